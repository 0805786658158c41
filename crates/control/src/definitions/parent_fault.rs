//! How what volumes are made of can be invalid.

use server::{TargetName, VolumeName};
use volume::{ByteSize, VolumeKind};

/// How many volumes that hold others may lie above each other.
pub(super) const HOLDERS_DEPTH_MAX: usize = 8;

/// What is wrong with a volume that another is made of.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParentFault {
    /// It is not defined.
    #[error("it is of {of}, which is not defined; define it, or name another")]
    Undefined {
        /// The name.
        of: String,
    },
    /// It is of the wrong kind.
    #[error(
        "it is of {of}, which is {kind}; snapshots are of RAM volumes and clones, and clones are of snapshots"
    )]
    Kind {
        /// The parent.
        of: String,
        /// The kind of the parent.
        kind: VolumeKind,
    },
    /// A cache of it would not see what is written through other nodes.
    #[error(
        "it caches {of}, which hosts of other nodes write to as well, so it would return old blocks; use {of} itself"
    )]
    WrittenByOthers {
        /// The parent.
        of: String,
    },
    /// It has other blocks.
    #[error("its block size differs from that of {of}, {bytes}; give {bytes}")]
    BlockSize {
        /// The parent.
        of: String,
        /// The block size of the parent.
        bytes: u64,
    },
    /// A snapshot is as large as what it is of.
    #[error("it is a snapshot of {of}, which has {size}; give that size")]
    Size {
        /// The parent.
        of: String,
        /// The size of the parent.
        size: ByteSize,
    },
    /// The size follows from the members.
    #[error("its size {given} differs from the {derived} of its members; leave the size out")]
    DerivedSize {
        /// The size given.
        given: ByteSize,
        /// The size that follows.
        derived: ByteSize,
    },
    /// Its members do not fit.
    #[error("{0}")]
    Members(String),
    /// It is made of itself.
    #[error("it is made of itself by way of {of}; name another")]
    Circle {
        /// The parent.
        of: String,
    },
    /// It is a member of two volumes.
    #[error("its member {of} is a member of {holder}, too; a volume can be a member of one")]
    Held {
        /// The member.
        of: String,
        /// Another volume that holds it.
        holder: VolumeName,
    },
    /// A target offers a member.
    #[error("its member {of} is offered by {target}; detach it, since a member has no other use")]
    Offered {
        /// The member.
        of: String,
        /// The target.
        target: TargetName,
    },
    /// Too many volumes that hold others lie above each other.
    #[error("volumes that are made of others can be nested {max} deep; use fewer levels", max = HOLDERS_DEPTH_MAX)]
    TooDeep,
}
