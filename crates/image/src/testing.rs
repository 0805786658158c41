//! Files in memory that fail at a chosen call, a volume in a vector, and the functions of fuzz
//! targets, which `cargo test` runs over their corpora.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use block::{Allocation, ByteRange, Status};

use crate::{Files, Image, ImageError, ReadAt, Source};

/// A volume in a vector.
#[derive(Clone, Debug)]
pub struct VecSource(pub Vec<u8>);

impl Source for VecSource {
    fn allocation(&self, range: ByteRange) -> Allocation {
        let bytes = &self.0[range.offset as usize..(range.offset + range.len) as usize];
        let zeros = bytes.iter().take_while(|&&byte| byte == 0).count() as u64;
        Allocation {
            allocated: zeros == 0,
            len_bytes: if zeros == 0 { range.len } else { zeros },
        }
    }

    fn read(&self, offset: u64, dest: &mut [u8]) -> Result<(), Status> {
        dest.copy_from_slice(&self.0[offset as usize..][..dest.len()]);
        Ok(())
    }
}

/// What a file holds, and what of it is on stable storage.
#[derive(Clone, Debug, Default)]
struct Inode {
    bytes: Vec<u8>,
    synced: Vec<u8>,
}

impl Inode {
    fn after(&self, crash: Crash) -> Vec<u8> {
        let unsynced = self.bytes.strip_prefix(self.synced.as_slice());
        let unsynced = unsynced.unwrap_or_default();
        match crash {
            Crash::Kill => self.bytes.clone(),
            Crash::PowerCut | Crash::PowerCutAfterNames => self.synced.clone(),
            Crash::PowerCutInWrite => [&self.synced, &unsynced[..unsynced.len() / 2]].concat(),
            Crash::PowerCutAfterLength => [self.synced.clone(), vec![0; unsynced.len()]].concat(),
        }
    }
}

type Names = BTreeMap<PathBuf, Rc<RefCell<Inode>>>;

/// Files of one folder, in memory, of which some calls fail.
#[derive(Debug, Default)]
pub struct SimFiles {
    names: RefCell<Names>,
    /// The names on stable storage.
    synced_names: RefCell<Names>,
    calls: Cell<usize>,
    /// The numbers of the calls that fail.
    failing: RefCell<Range<usize>>,
}

/// What a crash leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Crash {
    /// The process was killed: what was written is there.
    Kill,
    /// The power failed: what was not synced is gone, and so are names.
    PowerCut,
    /// The power failed: what was not synced is gone, but names had been written.
    PowerCutAfterNames,
    /// The same, while what was not synced was being written: the first half of it is there.
    PowerCutInWrite,
    /// The same, but lengths had been written, and bytes had not: what was not synced is zeros.
    PowerCutAfterLength,
}

impl Crash {
    /// All of them.
    pub const ALL: [Self; 5] = [
        Self::Kill,
        Self::PowerCut,
        Self::PowerCutAfterNames,
        Self::PowerCutInWrite,
        Self::PowerCutAfterLength,
    ];
}

impl SimFiles {
    /// From call number `call` on, counted from 0 and from now, every call fails, as after a kill.
    pub fn fail_from(&self, call: usize) {
        self.fail(call..usize::MAX);
    }

    /// Call number `call` fails, counted from 0 and from now.
    pub fn fail_once(&self, call: usize) {
        self.fail(call..call + 1);
    }

    /// The calls with these numbers fail, counted from 0 and from now.
    pub fn fail(&self, calls: Range<usize>) {
        self.calls.set(0);
        *self.failing.borrow_mut() = calls;
    }

    /// Whether the first call that was to fail was made.
    pub fn has_failed(&self) -> bool {
        let failing = self.failing.borrow();
        !failing.is_empty() && self.calls.get() > failing.start
    }

    /// The folder after a crash.
    #[must_use]
    pub fn after(&self, crash: Crash) -> Self {
        let names = match crash {
            Crash::PowerCut => &self.synced_names,
            _ => &self.names,
        };
        let survives = |(path, inode): (&PathBuf, &Rc<RefCell<Inode>>)| {
            let bytes = inode.borrow().after(crash);
            let synced = bytes.clone();
            (path.clone(), Rc::new(RefCell::new(Inode { bytes, synced })))
        };
        let names: Names = names.borrow().iter().map(survives).collect();
        Self {
            synced_names: RefCell::new(names.clone()),
            names: RefCell::new(names),
            ..Self::default()
        }
    }

    /// What a file holds.
    pub fn bytes(&self, path: &Path) -> Option<Vec<u8>> {
        let inode = self.names.borrow().get(path).cloned()?;
        let bytes = inode.borrow().bytes.clone();
        Some(bytes)
    }

    /// Sets what a file holds, on stable storage.
    pub fn set(&self, path: &Path, bytes: &[u8]) {
        let inode = Rc::new(RefCell::new(Inode {
            bytes: bytes.to_vec(),
            synced: bytes.to_vec(),
        }));
        for names in [&self.names, &self.synced_names] {
            names.borrow_mut().insert(path.into(), Rc::clone(&inode));
        }
    }

    /// Opens a file that exists, so that bytes can be appended to it.
    ///
    /// # Errors
    /// If it does not exist, or the call fails.
    pub fn open_to_append(&self, path: &Path) -> io::Result<SimNew> {
        self.call()?;
        let inode = self.names.borrow().get(path).cloned();
        inode.map(SimNew).ok_or(io::ErrorKind::NotFound.into())
    }

    /// Removes the bytes of a file from `len` on.
    ///
    /// # Errors
    /// If the call fails.
    pub fn cut(&self, file: &mut SimNew, len: usize) -> io::Result<()> {
        self.call()?;
        file.0.borrow_mut().bytes.truncate(len);
        Ok(())
    }

    /// How many files there are.
    pub fn count(&self) -> usize {
        self.names.borrow().len()
    }

    fn call(&self) -> io::Result<()> {
        let call = self.calls.replace(self.calls.get() + 1);
        if self.failing.borrow().contains(&call) {
            return Err(io::ErrorKind::StorageFull.into());
        }
        Ok(())
    }
}

/// A file that was opened: its bytes at that moment.
#[derive(Debug)]
pub struct SimOld(Vec<u8>);

impl ReadAt for SimOld {
    fn len_bytes(&self) -> io::Result<u64> {
        Ok(self.0.len() as u64)
    }

    fn read_at(&self, offset: u64, dest: &mut [u8]) -> io::Result<()> {
        self.0.as_slice().read_at(offset, dest)
    }
}

/// A file that is being written.
#[derive(Debug)]
pub struct SimNew(Rc<RefCell<Inode>>);

impl Files for SimFiles {
    type Old = SimOld;
    type New = SimNew;

    fn open(&self, path: &Path) -> io::Result<Option<SimOld>> {
        self.call()?;
        Ok(self.bytes(path).map(SimOld))
    }

    fn create(&self, path: &Path) -> io::Result<SimNew> {
        self.call()?;
        let inode = Rc::default();
        self.names
            .borrow_mut()
            .insert(path.into(), Rc::clone(&inode));
        Ok(SimNew(inode))
    }

    fn append(&self, file: &mut SimNew, bytes: &[u8]) -> io::Result<()> {
        let mut inode = file.0.borrow_mut();
        if let Err(error) = self.call() {
            // A call that fails may have written a part.
            inode.bytes.extend_from_slice(&bytes[..bytes.len() / 2]);
            return Err(error);
        }
        inode.bytes.extend_from_slice(bytes);
        Ok(())
    }

    fn sync(&self, file: &mut SimNew) -> io::Result<()> {
        self.call()?;
        let inode = &mut *file.0.borrow_mut();
        inode.synced.clone_from(&inode.bytes);
        Ok(())
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.call()?;
        let mut names = self.names.borrow_mut();
        let inode = names.remove(from).ok_or(io::ErrorKind::NotFound)?;
        names.insert(to.into(), inode);
        Ok(())
    }

    fn sync_folder(&self, _folder: &Path) -> io::Result<()> {
        self.call()?;
        *self.synced_names.borrow_mut() = self.names.borrow().clone();
        Ok(())
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.call()?;
        let removed = self.names.borrow_mut().remove(path);
        removed.map(drop).ok_or(io::ErrorKind::NotFound.into())
    }

    fn remove_leftovers(&self, folder: &Path, begin: &str, end: &str) {
        if self.call().is_err() {
            return;
        }
        self.names.borrow_mut().retain(|path, _| {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            path.parent() != Some(folder) || !name.starts_with(begin) || !name.ends_with(end)
        });
    }
}

/// What a complete file shows; `None` if a chunk is damaged.
///
/// # Errors
/// If it cannot be opened.
pub fn contents(file: &[u8]) -> Result<Option<Vec<u8>>, ImageError> {
    let image = Image::open(file, |_| Ok::<(), ImageError>(()))?;
    let mut bytes = vec![0; image.label().size_bytes as usize];
    let mut is_whole = true;
    image.read(&mut |chunk| {
        let dest = &mut bytes[chunk.range.offset as usize..][..chunk.range.len as usize];
        match chunk.bytes {
            Some(held) => dest.copy_from_slice(held),
            None => is_whole = false,
        }
        Ok::<(), ImageError>(())
    })?;
    Ok(is_whole.then_some(bytes))
}

/// Fuzz target: a file of any bytes. Reading ends, stays inside the volume, and agrees with itself.
pub fn read_file(input: &[u8]) {
    let Ok(image) = Image::open(input, |_| Ok::<(), ImageError>(())) else {
        return;
    };
    let (mut end, mut held_bytes) = (0, 0);
    let read = image.read(&mut |chunk| {
        assert!(chunk.range.offset >= end, "chunks ascend");
        end = chunk.range.offset + chunk.range.len;
        assert!(
            end <= image.label().size_bytes,
            "no chunk is beyond the end"
        );
        if let Some(bytes) = chunk.bytes {
            assert_eq!(bytes.len() as u64, chunk.range.len);
        }
        held_bytes += chunk.range.len;
        Ok::<(), ImageError>(())
    });
    read.expect("the bytes can be read");
    assert_eq!(held_bytes, image.held_bytes());
}
