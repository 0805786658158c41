//! Why a disk cannot be attached or detached.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use initiator::ConnectError;

/// Why a disk cannot be attached or detached.
#[derive(Debug, thiserror::Error)]
pub enum AttachError {
    /// A name with other characters, or too long.
    #[error(
        "{name:?} cannot name an attached disk; use 1 to 64 letters, digits, '.', '_' and '-', and no '.' in front"
    )]
    Name {
        /// The name.
        name: String,
    },
    /// Another process has a disk of this name.
    #[error("a disk named {name} is attached; choose another --name, or `ramport detach {name}`")]
    NameInUse {
        /// The name.
        name: String,
    },
    /// No attached disk has this name or device.
    #[error("no attached disk is named {name}; `ramport detach` without a name lists them")]
    NotAttached {
        /// What was given.
        name: String,
    },
    /// All names that are tried are in use.
    #[error("{count} disks are attached already; detach one first")]
    TooMany {
        /// How many.
        count: u32,
    },
    /// The device is mounted or open.
    #[error("{} is in use; unmount it and close it first (`lsblk {}`, `fuser -v {}`)", device.display(), device.display(), device.display())]
    InUse {
        /// The device.
        device: PathBuf,
    },
    /// The process did not end in time.
    #[error(
        "{} was not detached within {} s; see its log, {}",
        device.display(),
        timeout.as_secs(),
        log.display()
    )]
    StillAttached {
        /// The device.
        device: PathBuf,
        /// How long it was waited for.
        timeout: Duration,
        /// Where its process logs.
        log: PathBuf,
    },
    /// The target cannot be reached.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// The kernel refuses a step.
    #[error("cannot {step}: {source}; {fix}")]
    Kernel {
        /// What was tried.
        step: &'static str,
        /// The kernel's error.
        source: io::Error,
        /// How to fix it.
        fix: &'static str,
    },
}

impl AttachError {
    /// Whether the user can fix it with another request or after a change of the machine.
    pub fn is_mistake(&self) -> bool {
        match self {
            Self::Connect(error) => error.is_mistake(),
            Self::StillAttached { .. } => false,
            _ => true,
        }
    }
}
