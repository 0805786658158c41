//! The files of a state, as the store uses them: the operating system's, or a model of them in
//! tests.

use std::fmt::Debug;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use rustix::fs::FlockOperation;
use rustix::io::Errno;

/// The files' mode: definitions name hosts, and will hold their secrets.
const MODE: u32 = 0o600;

/// What the store does to files. Nothing that is not synced outlives a power cut: bytes, lengths,
/// names.
pub(crate) trait Files {
    /// A file to which bytes are appended.
    type File: Debug;
    /// Keeps another process off the state.
    type Lock: Debug;

    /// Creates a folder and those that it is in, unless they exist.
    fn create_folder(&self, folder: &Path) -> io::Result<()>;

    /// Locks a file, which is created if it does not exist; `None` if another process has it.
    fn lock(&self, path: &Path) -> io::Result<Option<Self::Lock>>;

    /// All bytes of a file; `None` if it does not exist.
    fn read(&self, path: &Path) -> io::Result<Option<Vec<u8>>>;

    /// Opens a file that exists.
    fn open(&self, path: &Path) -> io::Result<Self::File>;

    /// Opens a file without any bytes, whether it exists or not.
    fn create(&self, path: &Path) -> io::Result<Self::File>;

    /// Appends bytes.
    fn append(&self, file: &mut Self::File, bytes: &[u8]) -> io::Result<()>;

    /// Removes the bytes from `len_bytes` on.
    fn cut(&self, file: &mut Self::File, len_bytes: u64) -> io::Result<()>;

    /// Puts bytes and length on stable storage.
    fn sync(&self, file: &mut Self::File) -> io::Result<()>;

    /// Gives a file another name, and replaces what had it.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// Puts the names of a folder on stable storage.
    fn sync_folder(&self, folder: &Path) -> io::Result<()>;
}

/// The files of this machine.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HostFiles;

impl Files for HostFiles {
    type File = File;
    type Lock = File;

    fn create_folder(&self, folder: &Path) -> io::Result<()> {
        fs::create_dir_all(folder)
    }

    fn lock(&self, path: &Path) -> io::Result<Option<File>> {
        let mut options = OpenOptions::new();
        let file = options.append(true).create(true).mode(MODE).open(path)?;
        match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Some(file)),
            Err(Errno::WOULDBLOCK) => Ok(None),
            Err(errno) => Err(errno.into()),
        }
    }

    fn read(&self, path: &Path) -> io::Result<Option<Vec<u8>>> {
        match fs::read(path) {
            Ok(bytes) => Ok(Some(bytes)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn open(&self, path: &Path) -> io::Result<File> {
        OpenOptions::new().append(true).open(path)
    }

    fn create(&self, path: &Path) -> io::Result<File> {
        let mut options = OpenOptions::new();
        let file = options.append(true).create(true).mode(MODE).open(path)?;
        file.set_len(0)?;
        Ok(file)
    }

    fn append(&self, file: &mut File, bytes: &[u8]) -> io::Result<()> {
        file.write_all(bytes)
    }

    fn cut(&self, file: &mut File, len_bytes: u64) -> io::Result<()> {
        file.set_len(len_bytes)
    }

    fn sync(&self, file: &mut File) -> io::Result<()> {
        file.sync_data()
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    fn sync_folder(&self, folder: &Path) -> io::Result<()> {
        File::open(folder)?.sync_all()
    }
}
