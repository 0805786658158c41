//! Options of `ramport target`.

use std::num::NonZeroU16;

use clap::{Args, Subcommand, ValueEnum};
use control::Access;

use super::{
    Attach, ChapArgs, HostLuns, NameArgs, RemoveArgs, examples, parse_attach, parse_host_luns,
};

#[derive(Debug, Subcommand)]
pub(crate) enum TargetVerb {
    /// Create a target
    #[command(after_help = examples::TARGET_CREATE)]
    Create(TargetCreateArgs),
    /// List targets
    #[command(visible_alias = "ls", after_help = examples::TARGET_LIST)]
    List,
    /// Show a target
    #[command(after_help = examples::TARGET_SHOW)]
    Show(NameArgs),
    /// Change who may use a target
    #[command(visible_alias = "change", after_help = examples::TARGET_SET)]
    Set(TargetSetArgs),
    /// Attach a volume to a target
    #[command(after_help = examples::TARGET_ATTACH)]
    Attach(AttachArgs),
    /// Detach a volume from a target
    #[command(after_help = examples::TARGET_DETACH)]
    Detach(DetachArgs),
    /// Remove a target
    #[command(visible_alias = "rm", after_help = examples::TARGET_REMOVE)]
    Remove(RemoveArgs),
}

#[derive(Debug, Args)]
pub(crate) struct TargetCreateArgs {
    /// Its name, which decides the protocol: an NQN such as nqn.2025-01.com.example:rd0 for NVMe,
    /// an IQN such as iqn.2025-01.com.example:rd0 for iSCSI
    #[arg(required_unless_present = "iscsi")]
    pub(crate) name: Option<String>,
    /// Make it an iSCSI target; generates a name if none is given
    #[arg(long)]
    pub(crate) iscsi: bool,
    /// A volume, numbered in order by namespace IDs (from 1) or LUNs (from 0), or with an explicit
    /// number: rd0, rd1=7
    #[arg(long, value_name = "VOLUME[=NUMBER]", value_parser = parse_attach)]
    pub(crate) volume: Vec<Attach>,
    #[command(flatten)]
    pub(crate) access: AccessArgs,
}

#[derive(Debug, Args)]
pub(crate) struct TargetSetArgs {
    /// Its name
    pub(crate) name: String,
    #[command(flatten)]
    pub(crate) access: AccessArgs,
    /// Allow only hosts on this machine
    #[arg(long, conflicts_with_all = ["allow_any_host", "host", "read_only_host", "luns"])]
    pub(crate) local: bool,
    /// Make it reachable through portals of all groups again
    #[arg(long, conflicts_with = "portal_group")]
    pub(crate) any_portal_group: bool,
}

/// Who may use a target; by default only hosts on this machine.
#[derive(Debug, Args)]
pub(crate) struct AccessArgs {
    /// Allow any host from any address
    #[arg(long, value_name = "ACCESS", num_args = 0..=1, default_missing_value = "read-write", require_equals = true)]
    pub(crate) allow_any_host: Option<AccessWord>,
    /// Allow this host; repeat for more
    #[arg(long, value_name = "HOST", conflicts_with = "allow_any_host")]
    pub(crate) host: Vec<String>,
    /// Allow this host to read; repeat for more
    #[arg(long, value_name = "HOST", conflicts_with = "allow_any_host")]
    pub(crate) read_only_host: Vec<String>,
    /// LUNs that a listed host of an iSCSI target sees, each with its number in the target
    /// [default: all, under their own numbers]
    #[arg(long, value_name = "HOST=LUN:NUMBER,…", value_parser = parse_host_luns)]
    pub(crate) luns: Vec<HostLuns>,
    /// Make an iSCSI target reachable only through portals of this group; repeat for more [default:
    /// all groups]
    #[arg(long, value_name = "GROUP")]
    pub(crate) portal_group: Vec<NonZeroU16>,
    #[command(flatten)]
    pub(crate) chap: ChapArgs,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum AccessWord {
    /// Read and write
    ReadWrite,
    /// Read only
    ReadOnly,
}

impl From<AccessWord> for Access {
    fn from(word: AccessWord) -> Self {
        match word {
            AccessWord::ReadWrite => Self::ReadWrite,
            AccessWord::ReadOnly => Self::ReadOnly,
        }
    }
}

#[derive(Debug, Args)]
pub(crate) struct AttachArgs {
    /// The target
    pub(crate) name: String,
    /// The volume
    pub(crate) volume: String,
    /// The namespace ID, or the LUN in an iSCSI target [default: the lowest free one]
    #[arg(long, visible_alias = "lun", value_name = "NUMBER")]
    pub(crate) nsid: Option<u32>,
}

#[derive(Debug, Args)]
pub(crate) struct DetachArgs {
    /// The target
    pub(crate) name: String,
    /// The namespace ID, the LUN in an iSCSI target, or the volume
    #[arg(value_name = "NUMBER|VOLUME")]
    pub(crate) what: String,
    /// Even if hosts use it
    #[arg(long)]
    pub(crate) force: bool,
}
