//! Options of `ramport host`, and of CHAP, which targets have, too.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use control::{DhChapHash, DhGroupPolicy, parse};

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
    /// Generate a DH-HMAC-CHAP secret or a TLS key for an NVMe host
    #[command(after_help = examples::HOST_KEYGEN)]
    Keygen(KeygenArgs),
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
    #[command(flatten)]
    pub(crate) dhchap: DhChapArgs,
    #[command(flatten)]
    pub(crate) tls: TlsArgs,
}

/// Keys of an NVMe host for TLS.
#[derive(Debug, Args)]
#[command(next_help_heading = "TLS (NVMe/TCP)")]
pub(crate) struct TlsArgs {
    /// File whose first line is the host's key (`ramport host keygen --tls`), readable by its owner
    /// only (- is standard input)
    #[arg(long, value_name = "FILE")]
    pub(crate) tls_psk_file: Option<PathBuf>,
    /// File with a key that the host may use instead, while it is being changed
    #[arg(long, value_name = "FILE")]
    pub(crate) tls_other_psk_file: Option<PathBuf>,
    /// Remove the keys
    #[arg(long, conflicts_with_all = ["tls_psk_file", "tls_other_psk_file"])]
    pub(crate) no_tls_psk: bool,
}

/// DH-HMAC-CHAP of an NVMe host.
#[derive(Debug, Args)]
#[command(next_help_heading = "DH-HMAC-CHAP (NVMe)")]
pub(crate) struct DhChapArgs {
    /// File whose first line is the host's secret (`ramport host keygen`), readable by its owner
    /// only (- is standard input)
    #[arg(long, value_name = "FILE")]
    pub(crate) dhchap_secret_file: Option<PathBuf>,
    /// File with a secret that the host may use instead, while it is being changed
    #[arg(long, value_name = "FILE")]
    pub(crate) dhchap_other_secret_file: Option<PathBuf>,
    /// File with the secret that targets prove if the host requests it
    #[arg(long, value_name = "FILE")]
    pub(crate) dhchap_ctrl_secret_file: Option<PathBuf>,
    /// The only hash function to accept: sha256, sha384, sha512 [default: any]
    #[arg(long, value_name = "HASH", value_parser = parse::<DhChapHash>)]
    pub(crate) dhchap_hash: Option<DhChapHash>,
    /// Groups to accept: any, none, ffdhe2048, ffdhe3072, ffdhe4096, ffdhe6144, ffdhe8192
    /// [default: any]
    #[arg(long, value_name = "GROUP", value_parser = parse::<DhGroupPolicy>)]
    pub(crate) dhchap_dhgroup: Option<DhGroupPolicy>,
    /// Disable DH-HMAC-CHAP
    #[arg(long, conflicts_with_all = [
        "dhchap_secret_file",
        "dhchap_other_secret_file",
        "dhchap_ctrl_secret_file",
        "dhchap_hash",
        "dhchap_dhgroup",
    ])]
    pub(crate) no_dhchap: bool,
}

#[derive(Debug, Args)]
pub(crate) struct KeygenArgs {
    /// The host's NQN (/etc/nvme/hostnqn on the host)
    #[arg(default_value = "HOSTNQN", hide_default_value = true)]
    pub(crate) name: String,
    /// Length of the key, that of the digests of sha256, sha384 or sha512, and the function that
    /// transforms it
    #[arg(long, value_name = "HASH", default_value = "sha256", value_parser = parse::<DhChapHash>)]
    pub(crate) hash: DhChapHash,
    /// Generate a key for TLS, of sha256 or sha384, instead of a secret
    #[arg(long)]
    pub(crate) tls: bool,
    /// The target that the host is to use: its portals are then in the printed lines
    #[arg(long, value_name = "NQN")]
    pub(crate) target: Option<String>,
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
