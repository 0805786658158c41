//! The command line. Completions and manual pages come from here too.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::num::NonZeroU16;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum, ValueHint};
use clap_complete::Shell;
use control::{Access, FaultRule, LostContents, Period, Portal, Provision, Size, VolumeKind};
use initiator::Url;

mod connect_line;
mod examples;
mod identity;
mod saves;
mod shell;
mod snapshots;
mod top;
mod values;

pub(crate) use connect_line::ConnectLineArgs;
pub(crate) use examples::definitions_example;
pub(crate) use identity::IdentityArgs;
pub(crate) use saves::{
    AcknowledgeArgs, RestoreArgs, SaveArgs, SaveVerb, SavingArgs, VolumeSetArgs,
};
pub(crate) use shell::ShellArgs;
pub(crate) use snapshots::{CloneArgs, RollbackArgs, SnapshotArgs, SnapshotVerb};
pub(crate) use top::{Column, TopArgs, View};
pub(crate) use values::{Attach, Cores, HostLuns, MemoryBudget};
use values::{
    parse_attach, parse_cores, parse_fault, parse_host_luns, parse_iscsi_portal, parse_memory,
    parse_nvme_rdma_portal, parse_period, parse_portal, parse_range, parse_wait,
};

/// What `--version` prints after the name.
const VERSION: &str = if cfg!(target_feature = "crt-static") {
    concat!(
        env!("CARGO_PKG_VERSION"),
        " (static: RDMA in software only)"
    )
} else {
    env!("CARGO_PKG_VERSION")
};

/// Exports this machine's RAM to other machines as disks
#[derive(Debug, Parser)]
#[command(version = VERSION, propagate_version = true, max_term_width = 100)]
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
    /// The daemon's REST address over TCP, instead of the socket
    #[arg(
        long,
        global = true,
        value_name = "HOST:PORT",
        env = "RAMPORT_API",
        requires = "api_token_file",
        help_heading = "Daemon"
    )]
    pub(crate) api: Option<String>,
    /// The file with the token for requests over TCP
    #[arg(
        long,
        global = true,
        value_name = "FILE",
        env = "RAMPORT_API_TOKEN_FILE",
        help_heading = "Daemon"
    )]
    pub(crate) api_token_file: Option<PathBuf>,
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
    Demo(DemoArgs),
    #[command(flatten)]
    Daemon(DaemonVerb),
    /// List the targets of a discovery service
    #[command(after_help = examples::DISCOVER)]
    Discover(DiscoverArgs),
    /// Measure volumes over the network, block devices and files, in fio's vocabulary
    #[command(after_help = examples::BENCH)]
    Bench(Box<bench::Args>),
    /// Show RDMA adapters of this machine and whether software RDMA works
    #[command(subcommand)]
    Fabric(FabricVerb),
    /// Work in a tree of the daemon's objects: cd, ls, and every command
    #[command(after_help = examples::SHELL)]
    Shell(ShellArgs),
    /// Print completions for a shell
    Completions(CompletionsArgs),
    /// Print candidates for the last of some words; the scripts of `completions` call this
    #[command(hide = true)]
    Complete(CompleteArgs),
    /// Write the manual pages: of each verb, and ramport.toml(5)
    Man(ManArgs),
}

/// Verbs that the daemon executes.
#[derive(Debug, Subcommand)]
pub(crate) enum DaemonVerb {
    /// Volumes: block devices in RAM or in files
    #[command(subcommand)]
    Volume(VolumeVerb),
    /// Targets: names under which hosts find volumes
    #[command(subcommand)]
    Target(TargetVerb),
    /// Hosts: who may use targets
    #[command(subcommand, after_help = examples::HOST)]
    Host(HostVerb),
    /// Portals: addresses where protocols listen
    #[command(subcommand)]
    Portal(PortalVerb),
    /// Referrals: other discovery services that discovery lists
    #[command(subcommand)]
    Referral(ReferralVerb),
    /// Sessions: hosts connected to targets
    #[command(subcommand)]
    Session(SessionVerb),
    /// Print what a Linux host needs to use a target: commands, lines of fstab, systemd units
    #[command(after_help = examples::CONNECT_LINE)]
    ConnectLine(ConnectLineArgs),
    /// Show everything as a tree
    Ls,
    /// Replace the daemon's definitions with those of a file (TOML or JSON; - is standard input)
    #[command(after_help = examples::APPLY)]
    Apply(ApplyArgs),
    /// Print all definitions, as a file for `apply`
    #[command(after_help = examples::EXPORT)]
    Export(ExportArgs),
    /// Show memory: budget, use, and the cost of a connection and a volume
    Capacity,
    /// Watch what the daemon does: volumes, sessions, portals and threads
    #[command(after_help = examples::TOP)]
    Top(TopArgs),
}

#[derive(Debug, Args)]
pub(crate) struct ServeArgs {
    /// The memory budget for volumes, buffers and connections: a size of at least 16 MiB, or a percentage of the available memory [default: 80%]
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
    /// iser://192.0.2.1:3260
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
    /// Serve REST on this TCP address too; requires --api-token-file
    #[arg(long, value_name = "ADDRESS:PORT", requires = "api_token_file")]
    pub(crate) api_listen: Option<SocketAddr>,
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
    #[command(visible_alias = "ls")]
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
    /// Only show what would change, after the same checks. Exit status: 0 if nothing would change, 3
    /// if something would, 1 if it would be refused
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
    Create(VolumeCreateArgs),
    /// List volumes with size, used memory and targets
    #[command(visible_alias = "ls")]
    List,
    /// Show a volume
    Show(NameArgs),
    /// Set a volume's size
    Resize(ResizeArgs),
    /// Grow a volume by an amount
    Grow(ResizeByArgs),
    /// Shrink a volume by an amount; data beyond the new end are lost
    Shrink(ResizeByArgs),
    /// Make every block read as zeros
    Erase(RemoveArgs),
    /// Reject writes
    Lock(NameArgs),
    /// Accept writes again
    Unlock(NameArgs),
    #[command(flatten)]
    Saves(SaveVerb),
    #[command(flatten)]
    Snapshots(SnapshotVerb),
    /// Filters: delay, rate limit, faults
    #[command(subcommand)]
    Filter(FilterVerb),
    /// Remove a volume and its contents; the file of a volume in a file stays
    #[command(visible_alias = "rm")]
    Remove(RemoveArgs),
}

#[derive(Debug, Args)]
pub(crate) struct VolumeCreateArgs {
    /// Its name: letters, digits, '.', '_' and '-'
    pub(crate) name: String,
    /// Its capacity: 50G, 512MiB, or bytes. Of a file or device that exists, the size is known
    #[arg(long, short, required_unless_present = "file")]
    pub(crate) size: Option<Size>,
    /// Store its blocks in this file or block device, which is created if a size is given
    #[arg(long, value_name = "PATH", value_hint = ValueHint::FilePath)]
    pub(crate) file: Option<String>,
    /// Block size in bytes: 512 or 4096
    #[arg(long, value_name = "BYTES", default_value = "512")]
    pub(crate) block_size: Size,
    /// Allocate all its memory, or the space of its file, now
    #[arg(long)]
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
    Set(Box<FilterSetArgs>),
    /// Clear some filters, or all
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

#[derive(Debug, Subcommand)]
pub(crate) enum TargetVerb {
    /// Create a target
    #[command(after_help = examples::TARGET_CREATE)]
    Create(TargetCreateArgs),
    /// List targets
    #[command(visible_alias = "ls")]
    List,
    /// Show a target
    Show(NameArgs),
    /// Change who may use a target
    #[command(visible_alias = "change")]
    Set(TargetSetArgs),
    /// Attach a volume to a target
    Attach(AttachArgs),
    /// Detach a volume from a target
    Detach(DetachArgs),
    /// Remove a target
    #[command(visible_alias = "rm")]
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

#[derive(Debug, Subcommand)]
pub(crate) enum HostVerb {
    /// Define a host
    #[command(after_help = examples::HOST)]
    Create(HostArgs),
    /// List hosts
    #[command(visible_alias = "ls")]
    List,
    /// Show a host
    Show(NameArgs),
    /// Change a host
    #[command(visible_alias = "change")]
    Set(HostArgs),
    /// Remove a host; no target may list it
    #[command(visible_alias = "rm")]
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

#[derive(Debug, Subcommand)]
pub(crate) enum PortalVerb {
    /// Open a portal
    #[command(visible_alias = "open", after_help = examples::PORTAL_CREATE)]
    Create(PortalArgs),
    /// List portals
    #[command(visible_alias = "ls")]
    List,
    /// Show a portal
    Show(PortalArgs),
    /// Start or stop serving the same targets over RDMA at a portal's address; choose adapter or
    /// software
    #[command(after_help = examples::PORTAL_SET)]
    Set(PortalSetArgs),
    /// Close a portal
    #[command(visible_aliases = ["rm", "close"])]
    Remove(PortalRemoveArgs),
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
    /// portal group 2; over RDMA nvme+rdma://192.0.2.1:4420 or iser://192.0.2.1:3260, with ?rdma=hw
    /// for adapter only or ?rdma=soft for software only
    #[arg(value_parser = parse_portal)]
    pub(crate) url: Portal,
}

#[derive(Debug, Args)]
pub(crate) struct PortalSetArgs {
    /// URL of a portal over TCP, or of a portal over RDMA to change its provider
    #[arg(value_parser = parse_portal)]
    pub(crate) url: Portal,
    /// Serve the same targets over RDMA too, at the same address and port; or with which provider
    #[arg(long, value_name = "on|off|auto|hw|soft")]
    pub(crate) rdma: RdmaSwitch,
    /// Stop serving over RDMA even if hosts are connected
    #[arg(long)]
    pub(crate) force: bool,
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

#[derive(Debug, Subcommand)]
pub(crate) enum ReferralVerb {
    /// Add another discovery service to the discovery log
    Create(ReferralArgs),
    /// List referrals
    #[command(visible_alias = "ls")]
    List,
    /// Show a referral
    Show(ReferralArgs),
    /// Remove a referral
    #[command(visible_alias = "rm")]
    Remove(ReferralArgs),
}

#[derive(Debug, Args)]
pub(crate) struct ReferralArgs {
    /// The discovery service: nvme+tcp://192.0.2.7:8009
    #[arg(value_parser = parse_portal)]
    pub(crate) url: Portal,
}

#[derive(Debug, Subcommand)]
pub(crate) enum SessionVerb {
    /// List sessions
    #[command(visible_alias = "ls")]
    List,
    /// Show a session
    Show(SessionArgs),
    /// End a session
    #[command(visible_aliases = ["rm", "end"])]
    Remove(SessionArgs),
}

#[derive(Debug, Args)]
pub(crate) struct SessionArgs {
    /// Its number
    pub(crate) id: u64,
}

#[cfg(test)]
mod mistakes;
#[cfg(test)]
mod tests;
