//! Options of `ramport host`, and of CHAP, which targets have, too.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::{NameArgs, examples, parse_range};

#[derive(Debug, Subcommand)]
pub(crate) enum HostVerb {
    /// Define a host
    #[command(after_help = examples::HOST)]
    Create(HostArgs),
    /// List hosts
    #[command(visible_alias = "ls", after_help = examples::HOST_LIST)]
    List,
    /// Show a host
    #[command(after_help = examples::HOST_SHOW)]
    Show(NameArgs),
    /// Change a host
    #[command(visible_alias = "change", after_help = examples::HOST_SET)]
    Set(HostArgs),
    /// Remove a host; no target may list it
    #[command(visible_alias = "rm", after_help = examples::HOST_REMOVE)]
    Remove(NameArgs),
}

#[derive(Debug, Args)]
pub(crate) struct HostArgs {
    /// Its name: the host NQN (/etc/nvme/hostnqn on the host), the iSCSI initiator name
    /// (/etc/iscsi/initiatorname.iscsi on the host), or any word with --told-by-address
    pub(crate) name: String,
    /// Addresses that it may connect from: 192.0.2.7, 192.0.2.0/24 [default: any]
    #[arg(long, value_name = "RANGE", value_parser = parse_range)]
    pub(crate) address: Vec<server::AddressRange>,
    /// Identify it by its address only
    #[arg(long, requires = "address")]
    pub(crate) told_by_address: bool,
    #[command(flatten)]
    pub(crate) chap: ChapArgs,
}

/// CHAP for iSCSI logins of a host, or, for a target, of every host without CHAP settings of its
/// own.
#[derive(Debug, Args)]
#[command(next_help_heading = "CHAP (iSCSI)")]
pub(crate) struct ChapArgs {
    /// CHAP user name [default: the name of the host or target]
    #[arg(long, value_name = "NAME", requires = "chap_secret_file")]
    pub(crate) chap_user: Option<String>,
    /// File whose first line is the secret of 12 to 255 bytes, readable by its owner only (- is
    /// standard input)
    #[arg(long, value_name = "FILE")]
    pub(crate) chap_secret_file: Option<PathBuf>,
    /// Mutual CHAP: the target's user name [default: ramport]
    #[arg(long, value_name = "NAME", requires = "mutual_secret_file")]
    pub(crate) mutual_user: Option<String>,
    /// Mutual CHAP: file with the target's secret
    #[arg(long, value_name = "FILE", requires = "chap_secret_file")]
    pub(crate) mutual_secret_file: Option<PathBuf>,
    /// Disable CHAP
    #[arg(long, conflicts_with = "chap_secret_file")]
    pub(crate) no_chap: bool,
}
