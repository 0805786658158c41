//! The files of a folder, as the writer uses them: the operating system's, or a model of them in
//! tests.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use rustix::fs::{FlockOperation, OFlags, flock};

use crate::host_file::HostFile;
use crate::host_reader::HostReader;

/// Bytes that can be read at any place.
pub trait ReadAt {
    /// How many there are.
    fn len_bytes(&self) -> io::Result<u64>;

    /// Fills `dest` with the bytes from `offset` on.
    ///
    /// # Errors
    /// If they cannot be read or reach beyond the end.
    fn read_at(&self, offset: u64, dest: &mut [u8]) -> io::Result<()>;
}

impl ReadAt for HostReader {
    fn len_bytes(&self) -> io::Result<u64> {
        self.len_bytes()
    }

    fn read_at(&self, offset: u64, dest: &mut [u8]) -> io::Result<()> {
        self.read_at(offset, dest)
    }
}

impl ReadAt for &[u8] {
    fn len_bytes(&self) -> io::Result<u64> {
        Ok(self.len() as u64)
    }

    fn read_at(&self, offset: u64, dest: &mut [u8]) -> io::Result<()> {
        let start = usize::try_from(offset).ok();
        let bytes = start.and_then(|start| self.get(start..start.checked_add(dest.len())?));
        dest.copy_from_slice(bytes.ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }
}

/// What the writer does to files. A new file has a name of its own until it is renamed.
pub trait Files {
    /// A file that exists.
    type Old: ReadAt;
    /// A file that is being written.
    type New;

    /// Opens a file; `None` if it does not exist.
    fn open(&self, path: &Path) -> io::Result<Option<Self::Old>>;

    /// Creates a file that does not exist.
    fn create(&self, path: &Path) -> io::Result<Self::New>;

    /// Appends bytes.
    fn append(&self, file: &mut Self::New, bytes: &[u8]) -> io::Result<()>;

    /// Puts everything that was appended on stable storage.
    fn sync(&self, file: &mut Self::New) -> io::Result<()>;

    /// Gives a file another name, and replaces what had it.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// Puts the names of a folder on stable storage.
    fn sync_folder(&self, folder: &Path) -> io::Result<()>;

    /// Removes a file.
    fn remove(&self, path: &Path) -> io::Result<()>;

    /// Removes the files whose names begin and end so, that a killed process left in `folder`.
    /// One that cannot be removed stays.
    fn remove_leftovers(&self, folder: &Path, begin: &str, end: &str);
}

/// The files of this machine.
#[derive(Clone, Copy, Debug, Default)]
pub struct HostFiles;

impl Files for HostFiles {
    type Old = HostReader;
    type New = HostFile;

    fn open(&self, path: &Path) -> io::Result<Option<HostReader>> {
        let mut options = OpenOptions::new();
        // A pipe without a writer would never open.
        let flags = OFlags::NONBLOCK.bits().cast_signed();
        match options.read(true).custom_flags(flags).open(path) {
            Ok(file) if file.metadata()?.is_file() => Ok(Some(HostReader::new(file))),
            Ok(_) => Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "it is no regular file",
            )),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn create(&self, path: &Path) -> io::Result<HostFile> {
        let mut options = OpenOptions::new();
        let file = options
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(path)?;
        flock(&file, FlockOperation::LockExclusive)?;
        HostFile::new(file)
    }

    fn append(&self, file: &mut HostFile, bytes: &[u8]) -> io::Result<()> {
        file.append(bytes)
    }

    fn sync(&self, file: &mut HostFile) -> io::Result<()> {
        file.sync()
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    fn sync_folder(&self, folder: &Path) -> io::Result<()> {
        File::open(folder)?.sync_all()
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        fs::remove_file(path)
    }

    fn remove_leftovers(&self, folder: &Path, begin: &str, end: &str) {
        let Ok(entries) = fs::read_dir(folder) else {
            return;
        };
        for entry in entries.flatten() {
            let name = entry.file_name();
            let name = name.as_bytes();
            if !name.starts_with(begin.as_bytes()) || !name.ends_with(end.as_bytes()) {
                continue;
            }
            let Ok(file) = File::open(entry.path()) else {
                continue;
            };
            // A process that writes it holds the lock.
            if flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok() {
                let _stays = fs::remove_file(entry.path());
            }
        }
    }
}
