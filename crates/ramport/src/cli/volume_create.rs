//! Options of `ramport volume create` and `add-member`.

use clap::{Args, ValueHint};
use control::{
    ByteSize, CacheModeName, CacheSettings, Period, Provision, RemoteError, Size, VolumeKind,
    check_url,
};

use super::values::parse_period;
use super::{IdentityArgs, SavingArgs};

#[derive(Debug, Args)]
pub(crate) struct VolumeCreateArgs {
    /// Its name: letters, digits, '.', '_' and '-'
    pub(crate) name: String,
    /// Its capacity: 50G, 512MiB, or bytes. Of a file, device or remote disk that exists, and of
    /// members, the size is known, and of a save
    #[arg(long, short, required_unless_present_any = ["file", "remote", "linear", "stripe", "mirror", "cache_of", "from"])]
    pub(crate) size: Option<Size>,
    /// Store its blocks in this file or block device, which is created if a size is given
    #[arg(long, value_name = "PATH", value_hint = ValueHint::FilePath, conflicts_with_all = ["linear", "stripe", "mirror", "cache_of"])]
    pub(crate) file: Option<String>,
    /// Restore what this save of another volume holds, with its size and block size
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, conflicts_with_all = ["size", "block_size", "file", "remote", "linear", "stripe", "mirror", "cache_of"])]
    pub(crate) from: Option<String>,
    /// Use the disk of another machine at this URL: nvme+tcp, nvme+rdma, brp, brp+rdma, srp or
    /// iscsi, as `ramport bench` takes it. Give several, up to 8, for paths to one disk
    #[arg(long, value_name = "URL", conflicts_with_all = ["file", "thick", "linear", "stripe", "mirror", "cache_of"])]
    pub(crate) remote: Vec<String>,
    /// How long a command may take while the other machine does not answer, before it fails
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = parse_period, requires = "remote")]
    pub(crate) io_timeout: Period,
    /// Keep a copy in the memory of this many nodes of the cluster, 1 to 3, in different zones. All
    /// nodes have the volume
    #[arg(long, value_name = "N", conflicts_with_all = ["file", "from", "remote", "thick", "linear", "stripe", "mirror", "cache_of"])]
    pub(crate) copies: Option<u8>,
    #[command(flatten)]
    pub(crate) members: MembersArgs,
    /// Block size in bytes: 512 or 4096 [default: 512, or that of its members or remote disk]
    #[arg(long, value_name = "BYTES")]
    pub(crate) block_size: Option<Size>,
    /// Allocate all its memory, or the space of its file, now
    #[arg(long, conflicts_with_all = ["linear", "stripe", "mirror", "cache_of"])]
    pub(crate) thick: bool,
    /// Reject writes
    #[arg(long)]
    pub(crate) read_only: bool,
    #[command(flatten)]
    pub(crate) saving: SavingArgs,
    #[command(flatten)]
    pub(crate) identity: IdentityArgs,
}

impl VolumeCreateArgs {
    /// The kind that the options choose, with its settings.
    ///
    /// # Errors
    /// If a URL is invalid or contains a secret.
    pub(crate) fn kind(&self) -> Result<VolumeKind, RemoteError> {
        let provision = [Provision::Thin, Provision::Thick][usize::from(self.thick)];
        if let Some(kind) = self.members.kind() {
            return Ok(kind);
        }
        if let Some(copies) = self.copies {
            let placement = None;
            return Ok(VolumeKind::Replicated { copies, placement });
        }
        if !self.remote.is_empty() {
            let urls = self.remote.iter().map(|url| check_url(url));
            return Ok(VolumeKind::Remote {
                urls: urls.collect::<Result<_, _>>()?,
                io_timeout: self.io_timeout.0,
                disk: None,
            });
        }
        Ok(match &self.file {
            None => VolumeKind::Ram { provision },
            Some(file) => {
                // The daemon refuses an empty path, for one that cannot be made absolute.
                let path = std::path::absolute(file).unwrap_or_default();
                VolumeKind::File { path, provision }
            }
        })
    }
}

/// What a new volume is made of, if it is made of others.
#[derive(Debug, Args)]
pub(crate) struct MembersArgs {
    /// Put these volumes one after another, separated by commas. Nothing else can use them then
    #[arg(
        long,
        value_name = "VOLUMES",
        value_delimiter = ',',
        conflicts_with_all = ["stripe", "mirror"]
    )]
    pub(crate) linear: Option<Vec<String>>,
    /// Spread the blocks over these volumes in units
    #[arg(
        long,
        value_name = "VOLUMES",
        value_delimiter = ',',
        conflicts_with = "mirror"
    )]
    pub(crate) stripe: Option<Vec<String>>,
    /// Bytes of a unit of --stripe: a power of two from 4K to 16M
    #[arg(long, value_name = "SIZE", default_value = "64K", requires = "stripe")]
    pub(crate) stripe_unit: Size,
    /// Keep the same bytes on each of these volumes, two to eight. The contents of the first stay,
    /// and are copied to the others
    #[arg(long, value_name = "VOLUMES", value_delimiter = ',')]
    pub(crate) mirror: Option<Vec<String>>,
    /// Overwrite what members of --mirror hold, besides the first
    #[arg(long, requires = "mirror")]
    pub(crate) force: bool,
    /// Bytes per second that are copied at most to members of --mirror that missed something
    /// [default: as fast as they take it]
    #[arg(long, value_name = "SIZE", requires = "mirror")]
    pub(crate) resync_rate: Option<Size>,
    /// Put memory in front of this volume, as a cache
    #[arg(long, value_name = "VOLUME", conflicts_with_all = ["linear", "stripe", "mirror"], requires = "cache_size")]
    pub(crate) cache_of: Option<String>,
    /// The memory of the cache
    #[arg(long, value_name = "SIZE", requires = "cache_of")]
    pub(crate) cache_size: Option<Size>,
    /// What becomes of writes: write-through, write-around or write-back, which loses at a crash
    /// what hosts have not flushed
    #[arg(
        long,
        value_name = "MODE",
        default_value = "write-through",
        requires = "cache_of"
    )]
    pub(crate) cache_mode: CacheModeName,
    /// Bytes that the cache keeps and evicts as one: a power of two from 4K to 64K
    #[arg(long, value_name = "SIZE", default_value = "4K", requires = "cache_of")]
    pub(crate) cache_block: Size,
    /// Commands that continue a sequential stream beyond this length leave nothing in the cache; 0
    /// turns that off
    #[arg(long, value_name = "SIZE", default_value = "1M", requires = "cache_of")]
    pub(crate) sequential_bypass: Size,
}

impl MembersArgs {
    /// The kind that the options choose, if they choose one.
    pub(crate) fn kind(&self) -> Option<VolumeKind> {
        if let (Some(of), Some(size)) = (self.cache_of.clone(), self.cache_size) {
            return Some(VolumeKind::Cache {
                of: [of],
                settings: CacheSettings {
                    size: ByteSize(size.0),
                    mode: self.cache_mode.0,
                    block: ByteSize(self.cache_block.0),
                    bypass: ByteSize(self.sequential_bypass.0),
                },
            });
        }
        if let Some(members) = self.linear.clone() {
            return Some(VolumeKind::Linear { members });
        }
        if let Some(members) = self.mirror.clone() {
            let resync_rate = self.resync_rate.filter(|rate| rate.0 != 0);
            return Some(VolumeKind::Mirror {
                members,
                resync_rate: resync_rate.map(|rate| ByteSize(rate.0)),
            });
        }
        let unit = ByteSize(self.stripe_unit.0);
        let members = self.stripe.clone()?;
        Some(VolumeKind::Stripe { members, unit })
    }
}

#[derive(Debug, Args)]
pub(crate) struct AddMemberArgs {
    /// The linear volume
    pub(crate) name: String,
    /// The volume that becomes its last member; it has the same block size, and no other use
    pub(crate) member: String,
}

/// What to change of a cache; what is not given stays.
#[derive(Debug, Args)]
#[group(required = true, multiple = true)]
pub(crate) struct CacheChanges {
    /// What becomes of writes: write-through, write-around or write-back
    #[arg(long, value_name = "MODE")]
    pub(crate) mode: Option<CacheModeName>,
    /// The memory of the cache
    #[arg(long, value_name = "SIZE")]
    pub(crate) size: Option<Size>,
    /// Commands that continue a longer sequential stream leave nothing in the cache; 0 turns that
    /// off
    #[arg(long, value_name = "SIZE")]
    pub(crate) sequential_bypass: Option<Size>,
}

#[derive(Debug, Args)]
pub(crate) struct CacheArgs {
    /// The cache
    pub(crate) name: String,
    #[command(flatten)]
    pub(crate) changes: CacheChanges,
}

/// What to change of a mirror.
#[derive(Debug, Args)]
#[group(required = true, multiple = true)]
pub(crate) struct MirrorChanges {
    /// Take this member out of use until it is returned; what it misses meanwhile is remembered
    #[arg(long, value_name = "VOLUME")]
    pub(crate) fail: Option<String>,
    /// Use this member again; what it missed is copied to it in the background
    #[arg(long = "return", value_name = "VOLUME")]
    pub(crate) returned: Option<String>,
    /// Use another volume instead of a member, to which everything is copied in the background
    #[arg(long, value_name = "OLD=NEW", value_parser = parse_replacement)]
    pub(crate) replace: Option<Replacement>,
    /// Replace a member even if the new one holds data, which is overwritten
    #[arg(long, requires = "replace")]
    pub(crate) force: bool,
    /// Bytes per second that are copied at most to members that missed something; 0 for no limit
    #[arg(long, value_name = "SIZE")]
    pub(crate) resync_rate: Option<Size>,
}

/// A member of a mirror, and the volume that replaces it.
#[derive(Clone, Debug)]
pub(crate) struct Replacement {
    pub(crate) old: String,
    pub(crate) new: String,
}

fn parse_replacement(text: &str) -> Result<Replacement, &'static str> {
    let (old, new) = text
        .split_once('=')
        .ok_or("give the member and the volume that replaces it, as in b=c")?;
    Ok(Replacement {
        old: old.to_owned(),
        new: new.to_owned(),
    })
}

#[derive(Debug, Args)]
pub(crate) struct MirrorArgs {
    /// The mirror
    pub(crate) name: String,
    #[command(flatten)]
    pub(crate) changes: MirrorChanges,
}

#[derive(Debug, Args)]
pub(crate) struct ScrubArgs {
    /// The mirror
    pub(crate) name: String,
    /// Give the other members what the first member in sync holds where they differ
    #[arg(long)]
    pub(crate) repair: bool,
}
