//! A file or block device of this machine that serves as a disk.

use std::{
    fs::{File, OpenOptions},
    io::{self, Seek as _, SeekFrom},
    os::unix::fs::{FileTypeExt as _, MetadataExt as _, OpenOptionsExt as _},
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use rustix::fs::{FallocateFlags, FlockOperation, OFlags};

use crate::open::direct_alignment_bytes;

/// A file that is created if it does not exist.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NewFile {
    /// Its length.
    pub len_bytes: u64,
    /// Whether its space is allocated now. Otherwise it is sparse.
    pub allocate: bool,
}

/// A regular file or block device, opened for reads and writes and locked for this user alone.
#[derive(Debug)]
pub struct HostDisk {
    file: Arc<File>,
    len_bytes: AtomicU64,
    is_device: bool,
    is_direct: bool,
    /// Whether it was created when it was opened.
    is_new: bool,
}

/// Why a file or device does not serve as a disk.
#[derive(Debug, thiserror::Error)]
pub enum HostDiskError {
    /// It does not exist and is not to be created.
    #[error("it does not exist")]
    Missing,
    /// Something else uses it.
    #[error("something else uses it: another volume, another process or a mounted file system")]
    InUse,
    /// It is a folder, a terminal or the like.
    #[error("it is neither a regular file nor a block device")]
    NotADisk,
    /// It cannot be opened for reads and writes.
    #[error("cannot open it for reads and writes: {0}")]
    Open(#[source] io::Error),
    /// It cannot be created.
    #[error("cannot create it: {0}")]
    Create(#[source] io::Error),
    /// Its length cannot be read or set.
    #[error("cannot read or set its length: {0}")]
    Length(#[source] io::Error),
    /// A device has the length that it has.
    #[error("a block device cannot be resized from here")]
    FixedLength,
}

impl HostDisk {
    /// Opens a file or device, whose transfers will be whole blocks of `block_bytes`. A file that
    /// does not exist is created if `new` says how; if that fails, no file is left behind.
    pub fn open(
        path: &Path,
        block_bytes: u32,
        new: Option<NewFile>,
    ) -> Result<Self, HostDiskError> {
        match (open_existing(path), new) {
            (Err(HostDiskError::Missing), Some(new)) => create(path, new, block_bytes),
            (opened, _) => Self::from_file(opened?, block_bytes),
        }
    }

    /// Length of the file or device at `path` in bytes, without opening it for long.
    pub fn len_of(path: &Path) -> Result<u64, HostDiskError> {
        let mut file = File::open(path).map_err(open_error)?;
        check_type(&file)?;
        file.seek(SeekFrom::End(0)).map_err(HostDiskError::Length)
    }

    fn from_file(mut file: File, block_bytes: u32) -> Result<Self, HostDiskError> {
        let is_device = check_type(&file)?;
        rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive)
            .map_err(|_| HostDiskError::InUse)?;
        let len_bytes = file.seek(SeekFrom::End(0)).map_err(HostDiskError::Length)?;
        Ok(Self {
            is_direct: is_direct(&file, block_bytes),
            file: Arc::new(file),
            len_bytes: AtomicU64::new(len_bytes),
            is_device,
            is_new: false,
        })
    }

    /// Its length.
    pub fn len_bytes(&self) -> u64 {
        self.len_bytes.load(Ordering::Relaxed)
    }

    /// Whether transfers pass by the page cache.
    pub fn is_direct(&self) -> bool {
        self.is_direct
    }

    /// Bytes of storage that a file takes; all of a device.
    pub fn allocated_bytes(&self) -> u64 {
        if self.is_device {
            return self.len_bytes();
        }
        self.file.metadata().map_or(0, |file| file.blocks() * 512)
    }

    /// Makes a file longer, and allocates the new part if asked to; notices that a device has
    /// become longer.
    pub fn grow(&self, new: NewFile) -> Result<(), HostDiskError> {
        if self.is_device {
            let now = (&*self.file).seek(SeekFrom::End(0));
            self.len_bytes
                .store(now.map_err(HostDiskError::Length)?, Ordering::Relaxed);
            return if self.len_bytes() < new.len_bytes {
                Err(HostDiskError::FixedLength)
            } else {
                Ok(())
            };
        }
        set_len(&self.file, self.len_bytes(), new).map_err(HostDiskError::Length)?;
        self.len_bytes.store(new.len_bytes, Ordering::Relaxed);
        Ok(())
    }

    /// Removes the file at `path` if it was created when this was opened, is still there, and
    /// nothing was written to it.
    pub fn remove_if_new(&self, path: &Path) -> io::Result<()> {
        let (own, there) = (self.file.metadata()?, std::fs::symlink_metadata(path)?);
        let is_own = (own.dev(), own.ino()) == (there.dev(), there.ino());
        let first_data = rustix::fs::seek(&*self.file, rustix::fs::SeekFrom::Data(0));
        let is_empty = first_data == Err(rustix::io::Errno::NXIO);
        if self.is_new && is_own && is_empty {
            std::fs::remove_file(path)?;
        }
        Ok(())
    }

    /// Lets others use the file from now on. A queue's ring keeps it open for a moment after its
    /// end.
    pub fn unlock(&self) {
        // Nothing can be done about a failure; the lock ends with the last descriptor.
        let _ = rustix::fs::flock(&*self.file, FlockOperation::Unlock);
    }

    pub(crate) fn file(&self) -> &Arc<File> {
        &self.file
    }
}

fn open_existing(path: &Path) -> Result<File, HostDiskError> {
    let mut open = OpenOptions::new();
    open.read(true).write(true);
    let metadata = std::fs::metadata(path).map_err(open_error)?;
    if metadata.file_type().is_block_device() {
        // Fails if the device is mounted or part of another one.
        open.custom_flags(libc::O_EXCL);
    } else if !metadata.is_file() {
        return Err(HostDiskError::NotADisk);
    }
    open.open(path).map_err(open_error)
}

fn open_error(error: io::Error) -> HostDiskError {
    match error.raw_os_error() {
        Some(libc::ENOENT) => HostDiskError::Missing,
        Some(libc::EBUSY) => HostDiskError::InUse,
        _ => HostDiskError::Open(error),
    }
}

/// Whether it is a block device.
fn check_type(file: &File) -> Result<bool, HostDiskError> {
    let file_type = file.metadata().map_err(HostDiskError::Open)?.file_type();
    if file_type.is_block_device() || file_type.is_file() {
        Ok(file_type.is_block_device())
    } else {
        Err(HostDiskError::NotADisk)
    }
}

/// Passes by the page cache from now on, if the file can and takes transfers of whole blocks.
fn is_direct(file: &File, block_bytes: u32) -> bool {
    let fits = |alignment| block_bytes.is_multiple_of(alignment);
    direct_alignment_bytes(file).is_ok_and(fits)
        && rustix::fs::fcntl_setfl(file, OFlags::DIRECT).is_ok()
}

fn create(path: &Path, new: NewFile, block_bytes: u32) -> Result<HostDisk, HostDiskError> {
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)
        .map_err(HostDiskError::Create)?;
    let filled = set_len(&file, 0, new)
        .and_then(|()| file.sync_all())
        .and_then(|()| sync_folder(path))
        .map_err(HostDiskError::Create)
        .and_then(|()| HostDisk::from_file(file, block_bytes));
    if filled.is_err() {
        // What is left of a failed creation has no contents.
        let _ = std::fs::remove_file(path);
    }
    Ok(HostDisk {
        is_new: true,
        ..filled?
    })
}

fn set_len(file: &File, from_bytes: u64, new: NewFile) -> io::Result<()> {
    file.set_len(new.len_bytes)?;
    let added = new.len_bytes.saturating_sub(from_bytes);
    if new.allocate && added > 0 {
        rustix::fs::fallocate(file, FallocateFlags::empty(), from_bytes, added)?;
    }
    Ok(())
}

/// Makes the name of a new file durable.
fn sync_folder(path: &Path) -> io::Result<()> {
    let folder = path
        .parent()
        .filter(|folder| !folder.as_os_str().is_empty());
    File::open(folder.unwrap_or(Path::new(".")))?.sync_all()
}
