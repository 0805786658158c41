//! Why a file was not written, and what is wrong with one.

use std::fmt;
use std::io;
use std::path::PathBuf;

use block::Status;

use crate::format::Label;

/// A step of the work on a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileStep {
    /// The file is opened for reading.
    Open,
    /// The new file is created beside the old one.
    Create,
    /// Bytes are read.
    Read,
    /// Bytes are written.
    Write,
    /// Bytes are put on stable storage.
    Sync,
    /// The new file gets its name.
    Rename,
}

impl fmt::Display for FileStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Open => "open",
            Self::Create => "create",
            Self::Read => "read",
            Self::Write => "write",
            Self::Sync => "sync",
            Self::Rename => "rename",
        })
    }
}

/// Why nothing was saved. What the folder held before is unchanged.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    /// The operating system refused.
    #[error(
        "cannot {step} {}: {source}; check the free space and the permissions of its folder",
        path.display()
    )]
    File {
        /// What was done.
        step: FileStep,
        /// To which file.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// The file is a save of other contents.
    #[error(
        "{} holds save {} of other contents, of volume {} ({} bytes); move the file away, or replace it with --force",
        path.display(), found.sequence, found.volume, found.size_bytes
    )]
    OtherSave {
        /// The file.
        path: PathBuf,
        /// What it says about itself.
        found: Box<Label>,
    },
    /// The file is something else.
    #[error("{} exists and is no save of a volume; choose another name", path.display())]
    NotASave {
        /// The file.
        path: PathBuf,
    },
    /// The name of an increment is in use.
    #[error("{} exists and is no increment of a save; move it away", path.display())]
    NotAnIncrement {
        /// The file.
        path: PathBuf,
    },
    /// The bytes of the volume could not be read.
    #[error("the volume cannot be read: {0}")]
    Source(#[source] Status),
    /// The caller ended the work.
    #[error("saving was cancelled")]
    Cancelled,
}

/// Why an increment is not used.
#[derive(Debug, thiserror::Error)]
pub enum LinkFault {
    /// It is not there, but a later one is.
    #[error("is missing, and a later one exists")]
    Missing,
    /// It is an increment of another file than the one before it.
    #[error("does not follow the file before it")]
    Foreign,
    /// It cannot be read.
    #[error("cannot be used ({0})")]
    Unreadable(#[source] Box<ImageError>),
}

/// What is wrong with a file.
#[derive(Debug, thiserror::Error)]
pub enum ImageError {
    /// The operating system refused.
    #[error("cannot {step} the file: {source}; check its path and permissions")]
    File {
        /// What was done.
        step: FileStep,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// It is something else.
    #[error("the file is no save of a volume; choose one that `ramport volume save` wrote")]
    NotASave,
    /// A later program wrote it.
    #[error(
        "the file has format version {found}; this program reads versions 1 and 2: use a newer one"
    )]
    Version {
        /// The version in the file.
        found: u32,
    },
    /// It holds only what has changed since another file.
    #[error("the file is an increment; give the complete save that its name begins with")]
    Increment,
    /// An increment beside the file does not fit.
    #[error(
        "its increment {} {fault}; put the right file there, or move this and later increments away to go back to save {sequence}",
        path.display()
    )]
    Broken {
        /// The increment.
        path: PathBuf,
        /// What is wrong with it.
        fault: LinkFault,
        /// The save before it.
        sequence: u64,
    },
    /// Its header disagrees with its checksum.
    #[error("the header of the file (its first 256 bytes) is damaged; use another save")]
    Header,
    /// Its end is missing or damaged.
    #[error(
        "the file ({len_bytes} bytes) is cut short, or its last 64 bytes are damaged; use another save"
    )]
    End {
        /// Its length in bytes.
        len_bytes: u64,
    },
    /// Its index is damaged.
    #[error(
        "the index of the file ({len_bytes} bytes from byte {offset} on) is damaged; use another save"
    )]
    Index {
        /// Where the index begins.
        offset: u64,
        /// Its length in bytes.
        len_bytes: u64,
    },
}
