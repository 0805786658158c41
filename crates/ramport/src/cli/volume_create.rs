//! Options of `ramport volume create` and `add-member`.

use clap::{Args, ValueHint};
use control::{ByteSize, Provision, Size, VolumeKind};

use super::{IdentityArgs, SavingArgs};

#[derive(Debug, Args)]
pub(crate) struct VolumeCreateArgs {
    /// Its name: letters, digits, '.', '_' and '-'
    pub(crate) name: String,
    /// Its capacity: 50G, 512MiB, or bytes. Of a file or device that exists, and of members, the size
    /// is known
    #[arg(long, short, required_unless_present_any = ["file", "linear", "stripe"])]
    pub(crate) size: Option<Size>,
    /// Store its blocks in this file or block device, which is created if a size is given
    #[arg(long, value_name = "PATH", value_hint = ValueHint::FilePath, conflicts_with_all = ["linear", "stripe"])]
    pub(crate) file: Option<String>,
    #[command(flatten)]
    pub(crate) members: MembersArgs,
    /// Block size in bytes: 512 or 4096 [default: 512, or that of its members]
    #[arg(long, value_name = "BYTES")]
    pub(crate) block_size: Option<Size>,
    /// Allocate all its memory, or the space of its file, now
    #[arg(long, conflicts_with_all = ["linear", "stripe"])]
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
    pub(crate) fn kind(&self) -> VolumeKind {
        let provision = [Provision::Thin, Provision::Thick][usize::from(self.thick)];
        if let Some(kind) = self.members.kind() {
            return kind;
        }
        match &self.file {
            None => VolumeKind::Ram { provision },
            Some(file) => {
                // The daemon refuses an empty path, for one that cannot be made absolute.
                let path = std::path::absolute(file).unwrap_or_default();
                VolumeKind::File { path, provision }
            }
        }
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
        conflicts_with = "stripe"
    )]
    pub(crate) linear: Option<Vec<String>>,
    /// Spread the blocks over these volumes in units
    #[arg(long, value_name = "VOLUMES", value_delimiter = ',')]
    pub(crate) stripe: Option<Vec<String>>,
    /// Bytes of a unit of --stripe: a power of two from 4K to 16M
    #[arg(long, value_name = "SIZE", default_value = "64K", requires = "stripe")]
    pub(crate) stripe_unit: Size,
}

impl MembersArgs {
    /// The kind that the options choose, if they choose one.
    pub(crate) fn kind(&self) -> Option<VolumeKind> {
        if let Some(members) = self.linear.clone() {
            return Some(VolumeKind::Linear { members });
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
