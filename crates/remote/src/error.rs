//! Why a disk of another machine does not serve as a volume.

use std::path::PathBuf;
use std::time::Duration;
use std::{fmt, io};

use initiator::{ConnectError, UrlError};
use volume::{ByteSize, VolumeError};

use crate::limits::{IO_TIMEOUT_MAX, IO_TIMEOUT_MIN, URLS_MAX};

/// Why a remote volume cannot be opened, or one of its paths not be used.
#[derive(Debug, thiserror::Error)]
pub enum RemoteError {
    /// A URL is not one.
    #[error(transparent)]
    Url(#[from] UrlError),
    /// A secret would be stored and shown.
    #[error(
        "the URL contains a CHAP secret; write the user and the secret on two lines of a file that only the daemon's user can read, and name it in the URL: chap=/ABSOLUTE/PATH"
    )]
    SecretInUrl,
    /// The daemon's working folder means nothing to who names a file.
    #[error("the path of the CHAP secrets, {}, is not absolute; give the path from / on, as the daemon sees it", path.display())]
    RelativeSecrets {
        /// The path.
        path: PathBuf,
    },
    /// Other users can read the secrets.
    #[error("other users can access {}, which holds a CHAP secret; use chmod 600", path.display())]
    ExposedSecrets {
        /// The path.
        path: PathBuf,
    },
    /// No paths, or too many.
    #[error("{count} URLs were given; give 1 to {URLS_MAX}")]
    UrlCount {
        /// How many.
        count: usize,
    },
    /// The time limit of I/O is out of range.
    #[error(
        "an I/O timeout of {given:?} is out of range; choose a time from {} s to {} s",
        IO_TIMEOUT_MIN.as_secs(),
        IO_TIMEOUT_MAX.as_secs()
    )]
    IoTimeout {
        /// The time asked for.
        given: Duration,
    },
    /// No connection.
    #[error("{url}: {source}")]
    Connect {
        /// Where to.
        url: String,
        /// Why.
        #[source]
        source: Box<ConnectError>,
    },
    /// The URL leads to another disk.
    #[error(
        "{url} leads to another disk ({found}) than the volume's ({expected}); all URLs of a volume lead to one disk, by one protocol"
    )]
    OtherDisk {
        /// The URL.
        url: String,
        /// The disk there.
        found: DiskId,
        /// The disk of the volume.
        expected: DiskId,
    },
    /// Several URLs, and nothing to compare their disks by.
    #[error(
        "the disk at {url} has no UUID, NGUID, designator or serial number, so whether other URLs lead to the same disk is unknown; give one URL"
    )]
    NoIdentity {
        /// The URL.
        url: String,
    },
    /// The disk has other blocks.
    #[error(
        "the disk at {url} has blocks of {actual_bytes} bytes, not {given_bytes}; give {actual_bytes}"
    )]
    BlockSize {
        /// The URL.
        url: String,
        /// The block size asked for.
        given_bytes: u64,
        /// That of the disk.
        actual_bytes: u64,
    },
    /// The disk has another size.
    #[error("the disk at {url} has {actual}, not {given}; leave the size out to use all of it")]
    Size {
        /// The URL.
        url: String,
        /// The size asked for.
        given: ByteSize,
        /// That of the disk.
        actual: ByteSize,
    },
    /// The disk is smaller than the volume was.
    #[error(
        "the disk at {url} has {actual}, less than the volume's {known}; grow it to at least that size"
    )]
    Shrunk {
        /// The URL.
        url: String,
        /// The size of the volume.
        known: ByteSize,
        /// That of the disk.
        actual: ByteSize,
    },
    /// A volume would be made of itself.
    #[error(
        "{url} leads to target {target} of this daemon; use the volume there itself, since a volume that waits for its own daemon can wait forever"
    )]
    OwnDisk {
        /// The URL.
        url: String,
        /// The target.
        target: String,
    },
    /// The size is not this machine's to change.
    #[error(
        "the size of a remote volume is that of its disk; change it on the other machine, and the volume grows"
    )]
    Resize,
    /// The connection was lost, or commands on it were not answered.
    #[error("the connection was lost or did not answer in time")]
    Lost,
    /// A thread or descriptor could not be created.
    #[error("cannot create a thread or descriptor: {0}")]
    Resources(#[from] io::Error),
    /// The memory of the queues does not fit the budget.
    #[error(transparent)]
    Memory(#[from] volume::MemoryError),
}

/// What distinguishes a disk from others: text of printable ASCII characters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DiskId(pub(crate) String);

impl fmt::Display for DiskId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl From<RemoteError> for VolumeError {
    fn from(error: RemoteError) -> Self {
        match error {
            RemoteError::Memory(error) => Self::Memory(error),
            error => Self::Remote(Box::new(error)),
        }
    }
}
