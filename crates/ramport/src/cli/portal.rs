//! Options of `ramport portal`.

use clap::{Args, Subcommand, ValueEnum};
use control::{Portal, TlsPolicy, parse};

use super::{examples, parse_portal};

#[derive(Debug, Subcommand)]
pub(crate) enum PortalVerb {
    /// Open a portal
    #[command(visible_alias = "open", after_help = examples::PORTAL_CREATE)]
    Create(PortalCreateArgs),
    /// List portals
    #[command(visible_alias = "ls", after_help = examples::PORTAL_LIST)]
    List,
    /// Show a portal
    #[command(after_help = examples::PORTAL_SHOW)]
    Show(PortalArgs),
    /// Require authentication at a portal; require or allow TLS; start or stop serving the same
    /// targets over RDMA at its address; choose adapter or software
    #[command(after_help = examples::PORTAL_SET)]
    Set(PortalSetArgs),
    /// Close a portal
    #[command(visible_aliases = ["rm", "close"], after_help = examples::PORTAL_REMOVE)]
    Remove(PortalRemoveArgs),
}

#[derive(Debug, Args)]
pub(crate) struct PortalCreateArgs {
    #[command(flatten)]
    pub(crate) portal: PortalArgs,
    /// Reject hosts without a secret (CHAP or DH-HMAC-CHAP), for discovery too; as ?auth=required
    /// in the URL
    #[arg(long)]
    pub(crate) require_auth: bool,
}

#[derive(Debug, Args)]
pub(crate) struct PortalRemoveArgs {
    #[command(flatten)]
    pub(crate) portal: PortalArgs,
    /// Even if it has connections, which end
    #[arg(long)]
    pub(crate) force: bool,
}

#[derive(Debug, Args)]
pub(crate) struct PortalArgs {
    /// Its URL: nvme+tcp://192.0.2.1:4420, iscsi://192.0.2.1:3260, iscsi://192.0.2.1:3260,2 for
    /// portal group 2, brp://192.0.2.1:4424, nfs://192.0.2.1:2049, nfs+udp://192.0.2.1:2049; over
    /// RDMA nvme+rdma://192.0.2.1:4420, iser://192.0.2.1:3260, srp://192.0.2.1:5555,
    /// brp+rdma://192.0.2.1:4424 or nfs+rdma://192.0.2.1:20049, with ?rdma=hw for adapter only or
    /// ?rdma=soft for software only; with TLS nvme+tcp://192.0.2.1:4420?tls=required, or
    /// ?tls=allowed if hosts may also connect without
    #[arg(value_parser = parse_portal)]
    pub(crate) url: Portal,
}

#[derive(Debug, Args)]
#[command(group = clap::ArgGroup::new("settings").required(true).multiple(true))]
pub(crate) struct PortalSetArgs {
    /// URL of the portal; for --rdma of a portal over TCP, or of a portal over RDMA to change its
    /// provider
    #[arg(value_parser = parse_portal)]
    pub(crate) url: Portal,
    /// Serve the same targets over RDMA too, at the same address and port; or with which provider
    #[arg(
        long,
        value_name = "on|off|auto|hw|soft",
        group = "settings",
        conflicts_with = "tls"
    )]
    pub(crate) rdma: Option<RdmaSwitch>,
    /// Reject hosts without a secret (CHAP or DH-HMAC-CHAP), for discovery too. Hosts of the portal
    /// connect again
    #[arg(long, value_name = "on|off", group = "settings")]
    pub(crate) require_auth: Option<Switch>,
    /// Whether hosts of an nvme+tcp portal use TLS; they connect again
    #[arg(
        long,
        value_name = "off|allowed|required",
        value_parser = parse::<TlsPolicy>,
        group = "settings"
    )]
    pub(crate) tls: Option<TlsPolicy>,
    /// Stop serving over RDMA even if hosts are connected
    #[arg(long)]
    pub(crate) force: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Switch {
    /// Do it
    On,
    /// Do not
    Off,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum RdmaSwitch {
    /// Serve over RDMA, as auto if it was off
    On,
    /// Do not serve over RDMA
    Off,
    /// Use the adapter with this address; if there is none, use software
    Auto,
    /// Use an adapter only
    Hw,
    /// Use software RDMA
    Soft,
}
