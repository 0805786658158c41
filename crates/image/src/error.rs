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
    /// The bytes of the volume could not be read.
    #[error("the volume cannot be read: {0}")]
    Source(#[source] Status),
    /// The caller ended the work.
    #[error("saving was cancelled")]
    Cancelled,
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
    #[error("the file has format version {found}; this program reads version 1: use a newer one")]
    Version {
        /// The version in the file.
        found: u32,
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
