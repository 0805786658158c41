//! What a volume is to be, and what is wrong with that.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use block::{BlockSize, Blocks, Geometry, Status};
use file_io::{HostDisk, HostDiskError};
use memory::{Budget, MemoryError, Provision};
use window::{Backing, Window, WindowOptions};

use crate::cache_settings::{CacheModeName, CacheSettings};
use crate::mirror_info::RecordError;
use crate::replication_info::Placement;
use crate::{ByteSize, LaneRegistry, Relay};

/// What a volume is to be, or is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumeSpec {
    /// Its capacity: whole blocks, from [`VolumeSpec::SIZE_MIN`] to [`VolumeSpec::SIZE_MAX`].
    pub size: ByteSize,
    /// The size of its blocks.
    pub block_size: BlockSize,
    /// What its blocks are kept in.
    pub kind: VolumeKind,
}

/// What a volume's blocks are kept in, with the settings of that kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum VolumeKind {
    /// Memory of this machine.
    Ram {
        /// When the memory is allocated.
        provision: Provision,
    },
    /// What another volume was at one moment.
    Snapshot {
        /// The name of that volume.
        of: String,
    },
    /// What a snapshot shows, and what was written since to memory of its own.
    Clone {
        /// The name of the snapshot.
        of: String,
    },
    /// A regular file or block device of this machine.
    File {
        /// Its absolute path.
        path: PathBuf,
        /// When the space of a file that is created or grown is allocated.
        provision: Provision,
    },
    /// A disk of another machine.
    Remote {
        /// URLs of the disk, which are paths to it. They contain no secrets.
        urls: Vec<String>,
        /// How long a command may take, whatever becomes of the paths meanwhile.
        io_timeout: Duration,
        /// What distinguishes the disk from others. Absent until it was reached.
        disk: Option<String>,
    },
    /// Other volumes, one after another.
    Linear {
        /// Their names.
        members: Vec<String>,
    },
    /// Units of other volumes in turn.
    Stripe {
        /// The names of the volumes.
        members: Vec<String>,
        /// Bytes of a unit: a power of two from [`VolumeSpec::UNIT_MIN`] to
        /// [`VolumeSpec::UNIT_MAX`].
        unit: ByteSize,
    },
    /// Other volumes that hold the same bytes.
    Mirror {
        /// Their names. The first had the contents when the mirror was made.
        members: Vec<String>,
        /// Bytes per second that are copied at most to members that missed something.
        resync_rate: Option<ByteSize>,
    },
    /// Memory in front of a slower volume.
    Cache {
        /// The name of the slower volume.
        of: [String; 1],
        /// Size, mode and the like.
        settings: CacheSettings,
    },
    /// Memory of nodes of a cluster, each of which holds a copy.
    Replicated {
        /// How many nodes hold a copy.
        copies: u8,
        /// Where the copies are. Absent until the cluster has placed them.
        placement: Option<Placement>,
    },
}

/// The most memory of the frames of one volume. NVMe Copy needs the most: 128 MiB, on blocks of 512
/// bytes.
const WINDOW_BYTES_MAX: u64 = 256 << 20;

/// What volumes of all kinds use of the program.
#[derive(Clone)]
pub struct Platform {
    /// What memory is charged to.
    pub budget: Arc<Budget>,
    /// Where volumes report completions of commands that they made wait.
    pub relay: Arc<Relay>,
    /// Where volumes drive their devices in the threads of sessions. Without lanes, each has a
    /// thread.
    pub lanes: Arc<LaneRegistry>,
    /// The file in which a mirror records what it has to know after a restart; its folder is
    /// created. Without one, a mirror of an earlier run starts as a new one.
    pub record: Option<PathBuf>,
}

impl fmt::Debug for Platform {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut fields = f.debug_struct("Platform");
        fields.field("record", &self.record).finish_non_exhaustive()
    }
}

impl Platform {
    /// The window of a volume on `backing`.
    pub fn window(
        &self,
        geometry: Geometry,
        frame_bytes: u32,
        backing: Arc<dyn Backing>,
    ) -> Arc<Window> {
        let options = WindowOptions {
            frame_bytes,
            memory_bytes_max: WINDOW_BYTES_MAX,
        };
        let (budget, relay) = (Arc::clone(&self.budget), Arc::clone(&self.relay));
        Arc::new(Window::new(geometry, options, backing, budget, relay as _))
    }
}

/// Where the definition of a volume comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// A person: what is missing is created, and what cannot be opened is an error.
    New,
    /// An earlier run of the program: nothing is created. A volume that cannot be opened exists all
    /// the same and executes nothing; see [`Storage::problem`](crate::Storage::problem).
    Restored,
}

/// What is wrong with the specification of a volume.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SpecError {
    /// Too small or too large.
    #[error(
        "size {given} is out of range; choose a size from {} to {}",
        VolumeSpec::SIZE_MIN,
        VolumeSpec::SIZE_MAX
    )]
    SizeOutOfRange {
        /// The size asked for.
        given: ByteSize,
    },
    /// Not a whole number of blocks.
    #[error(
        "size {given} is not a multiple of the block size of {block_bytes} bytes; the next valid size is {next}"
    )]
    NotWholeBlocks {
        /// The size asked for.
        given: ByteSize,
        /// The block size.
        block_bytes: u64,
        /// The next larger valid size.
        next: ByteSize,
    },
    /// Not a valid unit of a stripe.
    #[error(
        "stripe unit {given} is invalid; choose a power of two from {} to {}",
        VolumeSpec::UNIT_MIN,
        VolumeSpec::UNIT_MAX
    )]
    Unit {
        /// The unit asked for.
        given: ByteSize,
    },
    /// A member twice.
    #[error("{name} is named twice; a volume can be a member once")]
    MemberTwice {
        /// Its name.
        name: String,
    },
    /// Too few or too many members.
    #[error("{given} members are out of range; name {min} to {max} volumes")]
    MemberCount {
        /// How many were named.
        given: usize,
        /// The fewest.
        min: usize,
        /// The most.
        max: usize,
    },
    /// Not a valid unit of a cache.
    #[error("cache block {given} is invalid; choose 4 KiB, 8 KiB, 16 KiB, 32 KiB or 64 KiB")]
    CacheBlock {
        /// The unit asked for.
        given: ByteSize,
    },
    /// Too few or too many copies.
    #[error(
        "{given} copies are out of range; choose 1 to {}",
        VolumeSpec::COPIES_MAX
    )]
    Copies {
        /// How many were asked for.
        given: u8,
    },
    /// Too small or too large a cache.
    #[error(
        "cache size {given} is out of range; choose a size from {} to {}",
        CacheSettings::SIZE_MIN,
        CacheSettings::SIZE_MAX
    )]
    CacheSize {
        /// The size asked for.
        given: ByteSize,
    },
}

/// Why a volume was not created or resized.
#[derive(Debug, thiserror::Error)]
pub enum VolumeError {
    /// The specification is invalid.
    #[error(transparent)]
    Spec(#[from] SpecError),
    /// Its memory could not be allocated.
    #[error(transparent)]
    Memory(#[from] MemoryError),
    /// Its file or device does not serve as a disk.
    #[error("{} does not serve as a disk: {error}", path.display())]
    File {
        /// The path.
        path: PathBuf,
        /// Why.
        #[source]
        error: HostDiskError,
    },
    /// The kind is replicated, and the daemon takes part in no cluster.
    #[error(
        "a replicated volume belongs to a cluster; start the daemon with --cluster ADDRESS and --cluster-token-file FILE"
    )]
    NoCluster,
    /// Only the cluster places copies.
    #[error(
        "where the copies of a replicated volume are is not known; create one with `ramport volume create --copies`"
    )]
    NotPlaced,
    /// The same on all nodes, and set once.
    #[error(
        "a replicated volume cannot be resized or erased; remove it and create it again, or discard its blocks from a host"
    )]
    ReplicatedStays,
    /// The path of a file is not absolute.
    #[error(
        "path {} is not absolute; give the path from / on, as the daemon sees it",
        path.display()
    )]
    RelativePath {
        /// The path.
        path: PathBuf,
    },
    /// The file or device has another size than the volume is to have.
    #[error(
        "{} has {actual}, not {given}; leave the size out to use all of it, or name a file that does not exist to create it",
        path.display()
    )]
    FileSize {
        /// The path.
        path: PathBuf,
        /// The size asked for.
        given: ByteSize,
        /// The size of the file.
        actual: ByteSize,
    },
    /// The file of a volume without a size does not exist.
    #[error("{} does not exist; give a size to create it", path.display())]
    NeedsSize {
        /// The path.
        path: PathBuf,
    },
    /// The kind of volume only grows.
    #[error(
        "a file volume cannot shrink from {from} to {to}; remove the volume, truncate the file and create the volume again"
    )]
    CannotShrink {
        /// The size now.
        from: ByteSize,
        /// The size asked for.
        to: ByteSize,
    },
    /// Its size is that of the slower volume.
    #[error(
        "a cache cannot shrink from {from} to {to}; remove the cache, resize the volume behind it, and create the cache again"
    )]
    CacheCannotShrink {
        /// The size now.
        from: ByteSize,
        /// The size asked for.
        to: ByteSize,
    },
    /// What stores its blocks has failed.
    #[error("the file or device of the volume failed: {0}")]
    Storage(#[source] Status),
    /// Its disk on another machine does not serve.
    #[error(transparent)]
    Remote(Box<dyn std::error::Error + Send + Sync>),
    /// The kind reaches other machines, so [`create`](crate::create) does not make it.
    #[error("a volume of kind {kind} is made by the server alone")]
    NeedsNetwork {
        /// The kind.
        kind: VolumeKind,
    },
    /// A volume that it is made of does not exist.
    #[error("it is made of {of}, which does not exist")]
    UnknownParent {
        /// The name of that volume.
        of: String,
    },
    /// It was removed meanwhile.
    #[error("the volume was removed")]
    Gone,
    /// The kind is made of another volume, so [`create`](crate::create) does not make it.
    #[error("a volume of kind {kind} is made of that volume alone")]
    NeedsParent {
        /// The kind.
        kind: VolumeKind,
    },
    /// Only memory can have snapshots.
    #[error(
        "a volume of kind {kind} cannot have snapshots; RAM volumes and clones can; to take one of a snapshot, clone it first"
    )]
    NoSnapshots {
        /// The kind.
        kind: VolumeKind,
    },
    /// What was named is another kind of volume.
    #[error("a volume of kind {kind} is no snapshot; take one with `ramport volume snapshot`")]
    NotASnapshot {
        /// The kind.
        kind: VolumeKind,
    },
    /// A snapshot stays what it is.
    #[error(
        "a snapshot cannot be resized or erased; clone it with `ramport volume clone`, and change the clone"
    )]
    Unchangeable,
    /// A snapshot or a clone has the blocks of its parent.
    #[error(
        "block size {given_bytes} differs from the {parent_bytes} of the volume that it is of; give {parent_bytes}"
    )]
    OtherBlocks {
        /// The block size asked for.
        given_bytes: u64,
        /// That of the parent.
        parent_bytes: u64,
    },
    /// The size follows from the members.
    #[error("size {given} differs from the {derived} of its members; leave the size out")]
    DerivedSize {
        /// The size asked for.
        given: ByteSize,
        /// The size that follows.
        derived: ByteSize,
    },
    /// The same, for a resize.
    #[error(
        "the size of a volume that is made of others is that of its members; remove it, resize them, and create it again, or enlarge a linear volume with `ramport volume add-member`"
    )]
    SizeOfMembers,
    /// A member has no whole unit.
    #[error(
        "a member of {size} is smaller than the stripe unit of {unit}; choose a smaller unit or a larger member"
    )]
    SmallMember {
        /// The size of the member.
        size: ByteSize,
        /// The unit.
        unit: ByteSize,
    },
    /// A cache has the memory that it can use.
    #[error("a cache of {given} is larger than the volume of {of} behind it; choose at most {of}")]
    CacheTooLarge {
        /// The size asked for.
        given: ByteSize,
        /// The size of the volume.
        of: ByteSize,
    },
    /// The unit of a cache stays.
    #[error(
        "the block of the cache stays {block}, not {given}; remove the cache and create it again for another"
    )]
    CacheBlockStays {
        /// The unit asked for.
        given: ByteSize,
        /// That of the cache.
        block: ByteSize,
    },
    /// Only caches have settings of caches.
    #[error(
        "the volume is {kind}, not a cache; create one with `ramport volume create --cache-of`"
    )]
    NotACache {
        /// The kind.
        kind: VolumeKind,
    },
    /// What a cache holds did not reach the slower volume.
    #[error(
        "some of what was written has not reached the volume behind the cache: {0}; it stays in the cache"
    )]
    Unflushed(#[source] Status),
    /// Only mirrors have members in and out of sync.
    #[error("the volume is {kind}, not a mirror; create one with `ramport volume create --mirror`")]
    NotAMirror {
        /// The kind.
        kind: VolumeKind,
    },
    /// Another volume is meant, or none.
    #[error("{given} is no member of the mirror; its members are {members}")]
    NoSuchMember {
        /// What was named.
        given: String,
        /// The members.
        members: String,
    },
    /// Without it, nothing is left.
    #[error(
        "{member} has the only good copy of the mirror; wait until another member is in sync, or return one"
    )]
    LastCopy {
        /// Its name.
        member: String,
    },
    /// It has to hold everything.
    #[error(
        "a member of {given} is smaller than the mirror of {needed}; choose a volume of at least {needed}"
    )]
    SmallReplacement {
        /// The size of the new member.
        given: ByteSize,
        /// The size of the mirror.
        needed: ByteSize,
    },
    /// Places of members are not used again.
    #[error(
        "the mirror has had {max} members since the daemon started, which is the most; restart the daemon first"
    )]
    TooManyReplaced {
        /// The most.
        max: usize,
    },
    /// The record of a mirror.
    #[error(transparent)]
    Record(#[from] RecordError),
    /// A thread could not be started.
    #[error("cannot start a thread: {0}")]
    Thread(#[source] std::io::Error),
    /// Only linear volumes get members later.
    #[error("members can only be added to a linear volume")]
    NotLinear,
    /// A volume can only become what itself was.
    #[error("the snapshot was taken of another volume; choose one of this volume")]
    OtherOrigin,
    /// The volume was resized since the snapshot.
    #[error("the volume has {from} and the snapshot {to}; resize the volume to {to} first")]
    OtherSize {
        /// The size of the volume.
        from: ByteSize,
        /// The size of the snapshot.
        to: ByteSize,
    },
    /// The volume is now a mixture.
    #[error(
        "some blocks are those of the snapshot and others are not, because {0}; then roll back once more"
    )]
    HalfRolledBack(Status),
}

impl VolumeSpec {
    /// The smallest volume.
    pub const SIZE_MIN: ByteSize = ByteSize(1 << 20);
    /// The largest volume.
    pub const SIZE_MAX: ByteSize = ByteSize(64 << 40);
    /// The most members of a linear or striped volume.
    pub const MEMBERS_MAX: usize = memory::STORES_MAX;
    /// The most members of a mirror.
    pub const MIRROR_MEMBERS_MAX: usize = 8;
    /// The most copies of a replicated volume.
    pub const COPIES_MAX: u8 = 3;
    /// The smallest unit of a stripe.
    pub const UNIT_MIN: ByteSize = ByteSize(4 << 10);
    /// The largest unit of a stripe.
    pub const UNIT_MAX: ByteSize = ByteSize(16 << 20);
    /// The unit of a stripe if none is given.
    pub const UNIT_DEFAULT: ByteSize = ByteSize(64 << 10);

    /// A RAM volume with blocks of 512 bytes that allocates memory as it is written.
    pub const fn thin(size: ByteSize) -> Self {
        Self::ram(size, Provision::Thin)
    }

    /// A RAM volume with blocks of 512 bytes that allocates all its memory at creation.
    pub const fn thick(size: ByteSize) -> Self {
        Self::ram(size, Provision::Thick)
    }

    const fn ram(size: ByteSize, provision: Provision) -> Self {
        Self {
            size,
            block_size: BlockSize::B512,
            kind: VolumeKind::Ram { provision },
        }
    }

    /// Checks that a volume can have this size, and the settings of its kind.
    ///
    /// # Errors
    /// If the size is out of range or not a multiple of the block size, or a setting is invalid.
    pub fn check(&self) -> Result<(), SpecError> {
        self.kind.check()?;
        let given = self.size;
        if !(Self::SIZE_MIN..=Self::SIZE_MAX).contains(&given) {
            return Err(SpecError::SizeOutOfRange { given });
        }
        let block_bytes = self.block_size.bytes();
        if !given.0.is_multiple_of(block_bytes) {
            return Err(SpecError::NotWholeBlocks {
                given,
                block_bytes,
                next: ByteSize(given.0.next_multiple_of(block_bytes)),
            });
        }
        Ok(())
    }

    /// Block size and capacity. A size that is not a multiple of the block size is rounded down.
    pub const fn geometry(&self) -> Geometry {
        let blocks = self.size.0 >> self.block_size.shift();
        Geometry::new(self.block_size, Blocks(blocks))
    }

    /// The memory that creating the volume takes from the budget for its blocks, in bytes.
    pub const fn reserved_bytes(&self) -> u64 {
        match &self.kind {
            VolumeKind::Ram { provision } => match provision {
                Provision::Thin => 0,
                Provision::Thick => self.size.0,
            },
            VolumeKind::Snapshot { .. }
            | VolumeKind::Clone { .. }
            | VolumeKind::File { .. }
            | VolumeKind::Remote { .. }
            | VolumeKind::Linear { .. }
            | VolumeKind::Stripe { .. }
            | VolumeKind::Mirror { .. }
            | VolumeKind::Replicated { .. } => 0,
            VolumeKind::Cache { settings, .. } => settings.size.0,
        }
    }
}

impl VolumeKind {
    /// Where the copies of a replicated volume are, once that was chosen.
    pub fn placement(&self) -> Option<&Placement> {
        match self {
            Self::Replicated { placement, .. } => placement.as_ref(),
            _ => None,
        }
    }

    /// The size of what a volume of this kind is made from on this machine, for one whose size is
    /// not given; `None` if the kind needs a size or its disk has to be asked.
    ///
    /// # Errors
    /// If the file or device does not exist or does not serve as a disk.
    pub fn natural_size(&self) -> Result<Option<ByteSize>, VolumeError> {
        match self {
            Self::Ram { .. }
            | Self::Snapshot { .. }
            | Self::Clone { .. }
            | Self::Remote { .. }
            | Self::Linear { .. }
            | Self::Stripe { .. }
            | Self::Mirror { .. }
            | Self::Cache { .. }
            | Self::Replicated { .. } => Ok(None),
            Self::File { path, .. } => {
                check_path(path)?;
                match HostDisk::len_of(path) {
                    Ok(len_bytes) => Ok(Some(ByteSize(len_bytes))),
                    Err(HostDiskError::Missing) => {
                        Err(VolumeError::NeedsSize { path: path.clone() })
                    }
                    Err(error) => Err(VolumeError::file(path, error)),
                }
            }
        }
    }

    /// Whether what a volume holds outlives the removal of the volume, and is not lost with the
    /// program either, unless it is lost with the members.
    pub const fn is_persistent(&self) -> bool {
        match self {
            Self::Ram { .. }
            | Self::Snapshot { .. }
            | Self::Clone { .. }
            | Self::Replicated { .. } => false,
            Self::File { .. }
            | Self::Remote { .. }
            | Self::Linear { .. }
            | Self::Stripe { .. }
            | Self::Mirror { .. }
            | Self::Cache { .. } => true,
        }
    }

    /// Whether what a volume holds is not lost with the program, unless it is lost with the
    /// members. Of a replicated volume, other nodes have copies.
    pub const fn outlives_program(&self) -> bool {
        self.is_persistent() || matches!(self, Self::Replicated { .. })
    }

    /// Whether a volume holds something that was written and that is lost with it, judged by the
    /// memory that it uses and by the bytes that hosts wrote since it was created.
    pub const fn holds_data(&self, used_bytes: u64, written_bytes: u64) -> bool {
        match self {
            Self::Ram { provision } => match provision {
                Provision::Thin => used_bytes > 0,
                // All its memory is in use from the beginning.
                Provision::Thick => written_bytes > 0,
            },
            // A snapshot without memory of its own shows what the next one, or the volume, shows.
            Self::Snapshot { .. } | Self::Clone { .. } => used_bytes > 0,
            // Other nodes may have written to it.
            Self::Replicated { .. } => true,
            // The file or disk stays, and so do the members.
            Self::File { .. }
            | Self::Remote { .. }
            | Self::Linear { .. }
            | Self::Stripe { .. }
            | Self::Mirror { .. }
            | Self::Cache { .. } => false,
        }
    }

    /// Checks the settings of the kind.
    ///
    /// # Errors
    /// If a unit is invalid, members are too few or too many, or one is named twice.
    pub fn check(&self) -> Result<(), SpecError> {
        let (members, min, max) = match self {
            Self::Linear { members } => (members, 1, VolumeSpec::MEMBERS_MAX),
            Self::Mirror { members, .. } => (members, 2, VolumeSpec::MIRROR_MEMBERS_MAX),
            Self::Stripe { members, unit } => {
                let range = VolumeSpec::UNIT_MIN..=VolumeSpec::UNIT_MAX;
                if !unit.0.is_power_of_two() || !range.contains(unit) {
                    return Err(SpecError::Unit { given: *unit });
                }
                (members, 2, VolumeSpec::MEMBERS_MAX)
            }
            Self::Cache { settings, .. } => return check_cache(*settings),
            Self::Replicated { copies, .. } => {
                return match *copies {
                    1..=VolumeSpec::COPIES_MAX => Ok(()),
                    given => Err(SpecError::Copies { given }),
                };
            }
            Self::Ram { .. }
            | Self::Snapshot { .. }
            | Self::Clone { .. }
            | Self::File { .. }
            | Self::Remote { .. } => {
                return Ok(());
            }
        };
        let given = members.len();
        if !(min..=max).contains(&given) {
            return Err(SpecError::MemberCount { given, min, max });
        }
        let mut others = members.iter().enumerate();
        let twice = others.find(|(index, name)| members[..*index].contains(name));
        match twice {
            Some((_, name)) => Err(SpecError::MemberTwice { name: name.clone() }),
            None => Ok(()),
        }
    }
}

/// In words, such as `ram, thin` or `snapshot of rd0`.
impl fmt::Display for VolumeKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ram { provision } => write!(f, "ram, {provision}"),
            Self::Snapshot { of } => write!(f, "snapshot of {of}"),
            Self::Clone { of } => write!(f, "clone of {of}"),
            Self::File { path, provision } => write!(f, "file {}, {provision}", path.display()),
            Self::Remote { urls, .. } => write!(f, "remote {}", urls.join(" ")),
            Self::Linear { members } => write!(f, "linear of {}", members.join(", ")),
            Self::Stripe { members, unit } => {
                write!(f, "stripe of {}, unit {unit}", members.join(", "))
            }
            Self::Mirror { members, .. } => write!(f, "mirror of {}", members.join(", ")),
            Self::Cache { of: [of], settings } => {
                let mode = CacheModeName(settings.mode);
                write!(f, "cache of {of}, {}, {mode}", settings.size)
            }
            Self::Replicated { copies: 1, .. } => f.write_str("replicated, 1 copy"),
            Self::Replicated { copies, .. } => write!(f, "replicated, {copies} copies"),
        }
    }
}

impl VolumeError {
    pub(crate) fn file(path: &Path, error: HostDiskError) -> Self {
        Self::File {
            path: path.to_owned(),
            error,
        }
    }
}

/// Checks what can be checked of a cache without the slower volume.
pub(crate) fn check_cache(settings: CacheSettings) -> Result<(), SpecError> {
    let CacheSettings { size, block, .. } = settings;
    let blocks = CacheSettings::BLOCK_MIN..=CacheSettings::BLOCK_MAX;
    if !blocks.contains(&block) || !block.0.is_power_of_two() {
        return Err(SpecError::CacheBlock { given: block });
    }
    if !(CacheSettings::SIZE_MIN..=CacheSettings::SIZE_MAX).contains(&size) {
        return Err(SpecError::CacheSize { given: size });
    }
    Ok(())
}

/// The daemon's working folder means nothing to who names a file.
pub(crate) fn check_path(path: &Path) -> Result<(), VolumeError> {
    if path.is_absolute() {
        return Ok(());
    }
    Err(VolumeError::RelativePath {
        path: path.to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::io::MIB;

    #[test]
    fn sizes_that_no_volume_has_are_refused_with_a_hint() {
        let check = |size, block_size| {
            let spec = VolumeSpec {
                block_size,
                ..VolumeSpec::thin(ByteSize(size))
            };
            spec.check()
        };
        assert_eq!(check(MIB, BlockSize::B4096), Ok(()));
        assert_eq!(check(64 << 40, BlockSize::B512), Ok(()));
        let small = check(MIB - 512, BlockSize::B512).expect_err("too small");
        assert_eq!(
            small.to_string(),
            "size 1048064 B is out of range; choose a size from 1 MiB to 64 TiB"
        );
        assert!(check((64 << 40) + 512, BlockSize::B512).is_err());
        let uneven = check(MIB + 512, BlockSize::B4096).expect_err("no whole blocks");
        assert!(
            uneven
                .to_string()
                .ends_with("the next valid size is 1028 KiB")
        );
    }
}
