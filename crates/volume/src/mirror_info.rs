//! How the members of a mirror are, and what is wrong with its record.

use std::io;
use std::path::PathBuf;

use block::{ByteRange, Status};

/// A member of a mirror as it is now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MirrorMember {
    /// Its name.
    pub name: String,
    /// What it is used for.
    pub role: Role,
    /// Why it is absent, or was before its resync.
    pub cause: Option<Cause>,
    /// Bytes of the regions that are to be copied to it.
    pub missing_bytes: u64,
}

/// A mirror as it is now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MirrorInfo {
    /// Its members in their order.
    pub members: Vec<MirrorMember>,
    /// Bytes that were copied to members that had missed them.
    pub resynced_bytes: u64,
}

/// What a member is used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// It has everything: it is read and written.
    InSync,
    /// It is written, and what it missed is copied to it.
    Resyncing,
    /// It is not used.
    Absent,
}

/// Why a member is absent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// Someone took it out of use.
    Person,
    /// A command failed.
    Failed(Status),
}

impl Cause {
    /// Whether the member is tried again by itself. One that fails to write is not trusted until
    /// someone says so; a block that could not be read is written again, which repairs most disks.
    pub const fn passes(self) -> bool {
        match self {
            Self::Person => false,
            Self::Failed(status) => !matches!(status, Status::WriteError | Status::Invalid),
        }
    }
}

/// What becomes of differences that a comparison finds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Repair {
    /// They are reported.
    No,
    /// The others get what the first member in sync holds.
    Yes,
}

/// What a comparison of members has found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ScrubReport {
    /// Bytes of the mirror that were compared.
    pub compared_bytes: u64,
    /// Bytes of the pieces of 64 KiB that differ.
    pub differing_bytes: u64,
    /// Bytes of those that were repaired.
    pub repaired_bytes: u64,
    /// Where they are: the first ranges of differing pieces.
    pub ranges: Vec<ByteRange>,
}

/// Why the file cannot be read or written.
#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    /// The system refused.
    #[error("cannot {action} {}: {source}", path.display())]
    Io {
        /// What was tried.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// It does not exist, or is not what was written.
    #[error(
        "{} is missing or damaged, so it is not known which members are in sync; remove the mirror, and create it again with the member first whose contents are good",
        path.display()
    )]
    Damaged {
        /// The file.
        path: PathBuf,
    },
    /// The members in sync have lost their contents.
    #[error(
        "the members in sync have lost their contents with the restart: {members}; the others are older; remove the mirror, and create it again with the member first whose contents are to be used"
    )]
    Lost {
        /// Their names.
        members: String,
    },
}
