//! The command line. Completions and manual pages come from here too.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;
use control::{FaultRule, LostContents, Period, Portal, Size};
use initiator::Url;

mod api;
mod attach;
mod cluster;
mod connect_line;
mod copy;
mod examples;
mod fleet;
mod host;
mod identity;
mod network;
mod portal;
mod saves;
mod share;
mod shell;
mod snapshots;
mod study;
mod sweep;
mod target;
mod top;
mod values;
mod volume_create;
mod watch;

use api::parse_api;
pub(crate) use api::{ApiAddress, TokenVerb};
pub(crate) use attach::{AttachArgs, DetachDiskArgs, URL_VARIABLE};
pub(crate) use cluster::{ClusterArgs, ClusterCreateArgs, ClusterVerb, NodeDrainArgs, NodeVerb};
pub(crate) use connect_line::ConnectLineArgs;
pub(crate) use copy::CopyArgs;
pub(crate) use examples::definitions_example;
pub(crate) use fleet::{FleetCreateArgs, FleetFiles, FleetMergeArgs, FleetRunArgs, FleetVerb};
pub(crate) use host::{ChapArgs, DhChapArgs, HostArgs, HostVerb, KeygenArgs, TlsArgs};
pub(crate) use identity::IdentityArgs;
pub(crate) use network::{ReferralVerb, SessionVerb};
pub(crate) use portal::{PortalCreateArgs, PortalSetArgs, PortalVerb, RdmaSwitch, Switch};
pub(crate) use saves::{
    AcknowledgeArgs, RestoreArgs, SaveArgs, SaveVerb, SavingArgs, VolumeSetArgs,
};
pub(crate) use share::{ShareCreateArgs, ShareSetArgs, ShareVerb};
pub(crate) use shell::ShellArgs;
pub(crate) use snapshots::{CloneArgs, RollbackArgs, SnapshotArgs, SnapshotVerb};
pub(crate) use study::{StudyBrpArgs, StudyRdmaArgs, StudySeries, StudyVerb};
pub(crate) use sweep::{Point, points};
pub(crate) use target::{AccessArgs, DetachArgs, TargetCreateArgs, TargetSetArgs, TargetVerb};
pub(crate) use top::{Column, TopArgs, View};
pub(crate) use values::{Attach, Cores, HostLuns, MemoryBudget};
use values::{
    parse_attach, parse_cores, parse_fault, parse_host_luns, parse_iscsi_portal, parse_memory,
    parse_nfs_portal, parse_nvme_rdma_portal, parse_period, parse_portal, parse_range, parse_wait,
};
pub(crate) use volume_create::{
    AddMemberArgs, CacheArgs, MirrorArgs, Replacement, ScrubArgs, VolumeCreateArgs,
};
pub(crate) use watch::WatchArgs;

/// What `--version` prints after the name.
const VERSION: &str = if cfg!(target_feature = "crt-static") {
    concat!(
        env!("CARGO_PKG_VERSION"),
        " (static: RDMA in software only)"
    )
} else {
    env!("CARGO_PKG_VERSION")
};

/// Exports this machine's RAM to other machines as disks and shared files
#[derive(Debug, Parser)]
#[command(version = VERSION, propagate_version = true, max_term_width = 100, after_help = examples::RAMPORT)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) connection: Connection,
    #[command(subcommand)]
    pub(crate) verb: Verb,
}

/// How to reach the daemon, and the output format.
#[derive(Clone, Debug, Args)]
pub(crate) struct Connection {
    /// The daemon's Unix socket [default: /run/ramport/ramport.sock for root,
    /// $XDG_RUNTIME_DIR/ramport/ramport.sock]
    #[arg(
        long,
        global = true,
        value_name = "PATH",
        env = "RAMPORT_SOCKET",
        help_heading = "Daemon"
    )]
    pub(crate) socket: Option<PathBuf>,
    /// The daemon's REST address over TCP, instead of the socket: https://HOST:PORT or
    /// http://HOST:PORT; without a scheme, https except on loopback
    #[arg(
        long,
        global = true,
        value_name = "URL",
        env = "RAMPORT_API",
        requires = "api_proof",
        value_parser = parse_api,
        help_heading = "Daemon"
    )]
    pub(crate) api: Option<ApiAddress>,
    /// File with the daemon's certificate, or its issuer's, as PEM [default: the issuers that the
    /// system trusts]
    #[arg(
        long,
        global = true,
        value_name = "FILE",
        env = "RAMPORT_API_CA",
        help_heading = "Daemon"
    )]
    pub(crate) api_ca: Option<PathBuf>,
    /// The file with the token for requests over TCP; for `serve`, of an administrator's token
    /// beside those of `ramport token`
    #[arg(
        long,
        global = true,
        value_name = "FILE",
        env = "RAMPORT_API_TOKEN_FILE",
        group = "api_proof",
        help_heading = "Daemon"
    )]
    pub(crate) api_token_file: Option<PathBuf>,
    /// Instead of a token: file with a certificate whose name has a role
    /// (`ramport token create NAME --certificate`), as PEM
    #[arg(
        long,
        global = true,
        value_name = "FILE",
        env = "RAMPORT_API_CLIENT_CERT",
        group = "api_proof",
        requires = "api_client_key",
        help_heading = "Daemon"
    )]
    pub(crate) api_client_cert: Option<PathBuf>,
    /// File with that certificate's private key as PEM, readable by its owner only
    #[arg(
        long,
        global = true,
        value_name = "FILE",
        env = "RAMPORT_API_CLIENT_KEY",
        requires = "api_client_cert",
        help_heading = "Daemon"
    )]
    pub(crate) api_client_key: Option<PathBuf>,
    /// Print JSON
    #[arg(long, global = true)]
    pub(crate) json: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    /// Run the daemon
    #[command(after_help = examples::SERVE)]
    Serve(Box<ServeArgs>),
    /// Serve a RAM disk on this machine, verify it, measure it, and keep serving
    #[command(after_help = examples::DEMO)]
    Demo(DemoArgs),
    #[command(flatten)]
    Daemon(DaemonVerb),
    /// List the targets of a discovery service
    #[command(after_help = examples::DISCOVER)]
    Discover(DiscoverArgs),
    /// Attach a disk of another machine as a block device of this one
    #[command(after_help = examples::ATTACH)]
    Attach(Box<AttachArgs>),
    /// Detach such a disk, or list them
    #[command(after_help = examples::DETACH)]
    Detach(DetachDiskArgs),
    /// Measure volumes over the network, block devices and files, in fio's vocabulary
    #[command(after_help = examples::BENCH)]
    Bench(Box<bench::Args>),
    /// Show RDMA adapters of this machine and whether software RDMA works
    #[command(subcommand, after_help = examples::FABRIC)]
    Fabric(FabricVerb),
    /// Work in a tree of the daemon's objects: cd, ls, and every command
    #[command(after_help = examples::SHELL)]
    Shell(ShellArgs),
    /// Print completions for a shell
    #[command(after_help = examples::COMPLETIONS)]
    Completions(CompletionsArgs),
    /// Print candidates for the last of some words; the scripts of `completions` call this
    #[command(hide = true)]
    Complete(CompleteArgs),
    /// Write the manual pages: of each verb, and ramport.toml(5)
    #[command(after_help = examples::MAN)]
    Man(ManArgs),
}

/// Verbs that the daemon executes.
#[derive(Debug, Subcommand)]
pub(crate) enum DaemonVerb {
    /// Volumes: block devices in RAM or in files
    #[command(subcommand, after_help = examples::VOLUME)]
    Volume(VolumeVerb),
    /// Targets: names under which hosts find volumes
    #[command(subcommand, after_help = examples::TARGET)]
    Target(TargetVerb),
    /// Shares: trees of files in RAM that clients mount over NFS
    #[command(subcommand, after_help = examples::SHARE)]
    Share(ShareVerb),
    /// Hosts: who may use targets
    #[command(subcommand, after_help = examples::HOST)]
    Host(HostVerb),
    /// Portals: addresses where protocols listen
    #[command(subcommand, after_help = examples::PORTAL)]
    Portal(PortalVerb),
    /// Referrals: other discovery services that discovery lists
    #[command(subcommand, after_help = examples::REFERRAL)]
    Referral(ReferralVerb),
    /// Tokens: who may use REST over TCP, and what for
    #[command(subcommand, after_help = examples::TOKEN)]
    Token(TokenVerb),
    /// Sessions: hosts connected to targets, and clients of shares
    #[command(subcommand, after_help = examples::SESSION)]
    Session(SessionVerb),
    /// The cluster: machines that agree on what they serve
    #[command(subcommand, after_help = examples::CLUSTER)]
    Cluster(ClusterVerb),
    /// Nodes: the machines of the cluster
    #[command(subcommand, after_help = examples::NODE)]
    Node(NodeVerb),
    /// Print what a Linux host needs to use a target: commands, lines of fstab, systemd units
    #[command(after_help = examples::CONNECT_LINE)]
    ConnectLine(ConnectLineArgs),
    /// Show everything as a tree
    #[command(after_help = examples::LS)]
    Ls,
    /// Replace the daemon's definitions with those of a file (TOML or JSON; - is standard input)
    #[command(after_help = examples::APPLY)]
    Apply(ApplyArgs),
    /// Print all definitions, as a file for `apply`
    #[command(after_help = examples::EXPORT)]
    Export(ExportArgs),
    /// Show memory: budget, use, and the cost of a connection and a volume
    #[command(after_help = examples::CAPACITY)]
    Capacity,
    /// Compare ways to serve volumes, by series of measurements
    #[command(subcommand, after_help = examples::STUDY)]
    Study(StudyVerb),
    /// Watch what the daemon does: volumes, sessions, portals and threads
    #[command(after_help = examples::TOP)]
    Top(TopArgs),
    /// Watch what the nodes of the cluster do, or this machine alone
    #[command(after_help = examples::WATCH)]
    Watch(WatchArgs),
    /// A fleet of clients that load volumes at the same time
    #[command(subcommand, after_help = examples::FLEET)]
    Fleet(FleetVerb),
}

#[derive(Debug, Args)]
pub(crate) struct ServeArgs {
    /// The memory budget for volumes, buffers and connections: a size of at least 16 MiB, or a
    /// percentage of the available memory [default: 80%]
    #[arg(long, value_name = "SIZE|PERCENT%", value_parser = parse_memory)]
    pub(crate) memory: Option<MemoryBudget>,
    /// Serving threads: a number (2), or cores to pin threads to (0,2-3 or 1,) [default: all cores]
    #[arg(long, value_name = "N|LIST", value_parser = parse_cores)]
    pub(crate) cores: Option<Cores>,
    /// Threads per address with software RDMA; queues of hosts are spread over them: 1 to 16
    /// [default: half the cores, at most 4]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=fabric::Soft::THREADS_MAX as i64))]
    pub(crate) rdma_threads: Option<u16>,
    /// Disable segmentation offload (GSO) for software RDMA, for network adapters that damage
    /// segmented packets. Damage by the system itself is detected without this option
    #[arg(long)]
    pub(crate) rdma_gso_off: bool,
    /// The state file [default: /var/lib/ramport/state for root, $XDG_STATE_HOME/ramport/state]
    #[arg(long, value_name = "PATH", env = "RAMPORT_STATE")]
    pub(crate) state: Option<PathBuf>,
    /// Define a portal by URL: nvme+tcp://192.0.2.1:4420, iscsi://192.0.2.1:3260,
    /// iser://192.0.2.1:3260, nfs://192.0.2.1:2049
    #[arg(long, value_name = "URL", value_parser = parse_portal)]
    pub(crate) listen: Vec<Portal>,
    /// Define an NVMe/TCP portal [default if no portal is defined: 127.0.0.1:4420]
    #[arg(long, value_name = "ADDRESS[:PORT]", value_parser = parse_portal)]
    pub(crate) nvme_tcp: Vec<Portal>,
    /// Define an NVMe/RDMA portal. If RDMA does not work at the address, the log says why, the
    /// portal is retried, and the other portals are opened. rdma is auto (the default), hw (adapter
    /// only) or soft (software only)
    #[arg(long, value_name = "ADDRESS[:PORT][?rdma=CHOICE]", value_parser = parse_nvme_rdma_portal)]
    pub(crate) nvme_rdma: Vec<Portal>,
    /// Define an iSCSI portal, with the tag of its portal group if that is not 1
    #[arg(long, value_name = "ADDRESS[:PORT][,GROUP]", value_parser = parse_iscsi_portal)]
    pub(crate) iscsi: Vec<Portal>,
    /// Define an NFS portal, with MOUNT at the same port
    #[arg(long, value_name = "ADDRESS[:PORT]", value_parser = parse_nfs_portal)]
    pub(crate) nfs: Vec<Portal>,
    /// Volumes whose contents a restart lost: offline for hosts until `ramport volume acknowledge`,
    /// or served as zeros at once
    #[arg(
        long,
        value_name = "offline|zeros",
        default_value = "offline",
        hide_possible_values = true,
        env = "RAMPORT_LOST_CONTENTS"
    )]
    pub(crate) lost_contents: LostWord,
    /// Group whose members may use the socket: a name or a number
    #[arg(long, value_name = "GROUP")]
    pub(crate) socket_group: Option<String>,
    /// Serve REST on this TCP address too, for requests with tokens
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub(crate) api_listen: Option<SocketAddr>,
    /// Serve it over TLS [default: on, except on loopback without --api-cert and --api-client-ca]
    #[arg(long, value_name = "on|off", requires = "api_listen")]
    pub(crate) api_tls: Option<Switch>,
    /// File with the certificate for it, and those that lead to its issuer, as PEM
    /// [default: one that is generated at the first start: api-cert.pem beside the state file]
    #[arg(long, value_name = "FILE", requires_all = ["api_listen", "api_key"])]
    pub(crate) api_cert: Option<PathBuf>,
    /// File with the certificate's private key as PEM, readable by its owner only
    #[arg(long, value_name = "FILE", requires = "api_cert")]
    pub(crate) api_key: Option<PathBuf>,
    /// File with the issuers of client certificates, as PEM. A client whose certificate has the
    /// name of a token that was created with --certificate needs no other token
    #[arg(long, value_name = "FILE", requires = "api_listen")]
    pub(crate) api_client_ca: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) cluster: ClusterArgs,
    /// Write requests for changes, and who sent them, to files in this folder too, one a day; the
    /// last 31 are kept
    #[arg(long, value_name = "DIR")]
    pub(crate) audit_log: Option<PathBuf>,
    /// Log format
    #[arg(long, value_name = "FORM", default_value = "text")]
    pub(crate) log: LogForm,
    /// Log level: error, warn, info, debug, trace, or a filter such as info,server=debug
    #[arg(
        long,
        value_name = "FILTER",
        default_value = "info",
        env = "RAMPORT_LOG"
    )]
    pub(crate) log_level: String,
    /// How long to wait for commands in flight at shutdown: seconds, or a time such as 500ms
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = parse_wait)]
    pub(crate) drain: Period,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum LostWord {
    /// Commands of hosts fail until the loss is acknowledged
    Offline,
    /// They read as zeros
    Zeros,
}

impl From<LostWord> for LostContents {
    fn from(word: LostWord) -> Self {
        match word {
            LostWord::Offline => Self::Offline,
            LostWord::Zeros => Self::Zeros,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogForm {
    /// Text for people
    Text,
    /// JSON, one object per line
    Json,
}

#[derive(Debug, Args)]
pub(crate) struct DemoArgs {
    /// The RAM disk's size
    #[arg(long, value_name = "SIZE", default_value = "1G")]
    pub(crate) size: Size,
    /// Exit after the measurement
    #[arg(long)]
    pub(crate) once: bool,
}

#[derive(Debug, Args)]
pub(crate) struct DiscoverArgs {
    /// The discovery service: nvme+tcp://HOST[:PORT], nvme+rdma://HOST[:PORT] or
    /// iscsi://[USER[%SECRET]@]HOST[:PORT]
    pub(crate) url: Url,
    /// How long to wait: seconds, or a time such as 500ms
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = parse_wait)]
    pub(crate) timeout: Period,
}

#[derive(Debug, Subcommand)]
pub(crate) enum FabricVerb {
    /// List adapters with link, state, speed and addresses; whether adapters and software RDMA
    /// work; and what each portal of the daemon uses
    #[command(visible_alias = "ls", after_help = examples::FABRIC)]
    List,
}

#[derive(Debug, Args)]
pub(crate) struct CompletionsArgs {
    /// The shell
    pub(crate) shell: Shell,
}

#[derive(Debug, Args)]
pub(crate) struct CompleteArgs {
    /// The words of a command line, up to the one that is being typed
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    pub(crate) words: Vec<OsString>,
}

#[derive(Debug, Args)]
pub(crate) struct ManArgs {
    /// The folder for the pages
    #[arg(value_name = "DIR")]
    pub(crate) folder: PathBuf,
}

#[derive(Debug, Args)]
pub(crate) struct ApplyArgs {
    /// The file
    pub(crate) file: PathBuf,
    /// Only show what would change, after the same checks. Exit status: 0 if nothing would change,
    /// 3 if something would, 1 if it would be refused
    #[arg(long)]
    pub(crate) diff: bool,
    /// Allow changes that destroy contents or end sessions
    #[arg(long)]
    pub(crate) force: bool,
}

#[derive(Debug, Args)]
pub(crate) struct ExportArgs {
    /// Include CHAP secrets, and what the identifiers of disks are derived from, so that `apply` on
    /// a new machine restores everything
    #[arg(long)]
    pub(crate) with_secrets: bool,
    /// Write to this file, readable by its owner only, instead of standard output
    #[arg(long, short, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct NameArgs {
    /// Its name
    pub(crate) name: String,
}

#[derive(Debug, Args)]
pub(crate) struct RemoveArgs {
    /// Its name
    pub(crate) name: String,
    /// Even if it is in use, or holds data that are lost
    #[arg(long)]
    pub(crate) force: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum VolumeVerb {
    /// Create a volume
    #[command(after_help = examples::VOLUME_CREATE)]
    Create(Box<VolumeCreateArgs>),
    /// List volumes with size, used memory and targets
    #[command(visible_alias = "ls", after_help = examples::VOLUME_LIST)]
    List,
    /// Show a volume
    #[command(after_help = examples::VOLUME_SHOW)]
    Show(NameArgs),
    /// Set a volume's size
    #[command(after_help = examples::VOLUME_RESIZE)]
    Resize(ResizeArgs),
    /// Grow a volume by an amount
    #[command(after_help = examples::VOLUME_GROW)]
    Grow(ResizeByArgs),
    /// Shrink a volume by an amount; data beyond the new end are lost
    #[command(after_help = examples::VOLUME_SHRINK)]
    Shrink(ResizeByArgs),
    /// Make every block read as zeros
    #[command(after_help = examples::VOLUME_ERASE)]
    Erase(RemoveArgs),
    /// Reject writes
    #[command(after_help = examples::VOLUME_LOCK)]
    Lock(NameArgs),
    /// Accept writes again
    #[command(after_help = examples::VOLUME_UNLOCK)]
    Unlock(NameArgs),
    #[command(flatten)]
    Saves(SaveVerb),
    /// Add a volume to a linear volume, which grows by it while hosts use it
    #[command(after_help = examples::VOLUME_ADD_MEMBER)]
    AddMember(AddMemberArgs),
    /// Change mode, size or bypass of a cache while hosts use it
    #[command(after_help = examples::VOLUME_CACHE)]
    Cache(CacheArgs),
    /// Take a member of a mirror out of use, use it again, or replace it
    #[command(after_help = examples::VOLUME_MIRROR)]
    Mirror(MirrorArgs),
    /// Compare what the members of a mirror hold while hosts use it
    #[command(after_help = examples::VOLUME_SCRUB)]
    Scrub(ScrubArgs),
    #[command(flatten)]
    Snapshots(SnapshotVerb),
    /// Copy a volume, a file or a disk of another machine to another
    #[command(after_help = examples::VOLUME_COPY)]
    Copy(CopyArgs),
    /// Filters: delay, rate limit, faults
    #[command(subcommand, after_help = examples::FILTER)]
    Filter(FilterVerb),
    /// Remove a volume and its contents; the file of a volume in a file stays
    #[command(visible_alias = "rm", after_help = examples::VOLUME_REMOVE)]
    Remove(RemoveArgs),
}

#[derive(Debug, Args)]
pub(crate) struct ResizeArgs {
    /// Its name
    pub(crate) name: String,
    /// The new capacity
    #[arg(long, short)]
    pub(crate) size: Size,
    /// Even if that discards data at its end
    #[arg(long)]
    pub(crate) force: bool,
}

#[derive(Debug, Args)]
pub(crate) struct ResizeByArgs {
    /// Its name
    pub(crate) name: String,
    /// The amount
    #[arg(value_name = "SIZE")]
    pub(crate) by: Size,
    /// Even if that discards data at its end
    #[arg(long)]
    pub(crate) force: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum FilterVerb {
    /// Set filters; other filters stay as they are
    #[command(after_help = examples::FILTER_SET)]
    Set(Box<FilterSetArgs>),
    /// Clear some filters, or all
    #[command(after_help = examples::FILTER_CLEAR)]
    Clear(FilterClearArgs),
}

#[derive(Debug, Args)]
#[command(group = clap::ArgGroup::new("filters").required(true).multiple(true))]
pub(crate) struct FilterSetArgs {
    /// The volume
    pub(crate) name: String,
    /// Delay every command: 250us, 10ms
    #[arg(long, value_name = "TIME", value_parser = parse_period, group = "filters")]
    pub(crate) delay: Option<Period>,
    /// Delay reads
    #[arg(long, value_name = "TIME", value_parser = parse_period, group = "filters")]
    pub(crate) delay_read: Option<Period>,
    /// Delay writes
    #[arg(long, value_name = "TIME", value_parser = parse_period, group = "filters")]
    pub(crate) delay_write: Option<Period>,
    /// Delay discards
    #[arg(long, value_name = "TIME", value_parser = parse_period, group = "filters")]
    pub(crate) delay_discard: Option<Period>,
    /// Delay flushes
    #[arg(long, value_name = "TIME", value_parser = parse_period, group = "filters")]
    pub(crate) delay_flush: Option<Period>,
    /// Delay data as a link of this many bytes per second would
    #[arg(long, value_name = "SIZE", group = "filters")]
    pub(crate) delay_bandwidth: Option<Size>,
    /// Limit commands per second
    #[arg(long, value_name = "N", group = "filters")]
    pub(crate) iops: Option<u64>,
    /// Limit reads per second
    #[arg(long, value_name = "N", group = "filters")]
    pub(crate) read_iops: Option<u64>,
    /// Limit writes per second
    #[arg(long, value_name = "N", group = "filters")]
    pub(crate) write_iops: Option<u64>,
    /// Limit bytes per second
    #[arg(long, value_name = "SIZE", group = "filters")]
    pub(crate) bandwidth: Option<Size>,
    /// Limit bytes read per second
    #[arg(long, value_name = "SIZE", group = "filters")]
    pub(crate) read_bandwidth: Option<Size>,
    /// Limit bytes written per second
    #[arg(long, value_name = "SIZE", group = "filters")]
    pub(crate) write_bandwidth: Option<Size>,
    /// Fail commands, KIND:STATUS[:every=N|:ppm=N]: read:read_error:ppm=100, any:busy:every=1000
    #[arg(long, value_name = "RULE", value_parser = parse_fault, group = "filters")]
    pub(crate) fault: Vec<FaultRule>,
    /// Seed for random faults
    #[arg(long, value_name = "SEED", default_value_t = 1)]
    pub(crate) fault_seed: u64,
}

#[derive(Debug, Args)]
pub(crate) struct FilterClearArgs {
    /// The volume
    pub(crate) name: String,
    /// Filters to clear [default: all]
    pub(crate) filters: Vec<FilterKind>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum FilterKind {
    /// Delays
    Delay,
    /// Rate limits
    RateLimit,
    /// Faults
    Fault,
}

#[cfg(test)]
mod mistakes;
#[cfg(test)]
mod tests;
