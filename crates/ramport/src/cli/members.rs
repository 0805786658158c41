//! Options of volumes that are made of others.

use clap::Args;
use control::{ByteSize, Size, VolumeKind, VolumeSpec};

/// What a new volume is made of, if it is made of others.
#[derive(Debug, Args)]
pub(crate) struct MembersArgs {
    /// Put these volumes one after another, separated by commas. Nothing else can use them then
    #[arg(long, value_name = "VOLUMES", value_delimiter = ',')]
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
