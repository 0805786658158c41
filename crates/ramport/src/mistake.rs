//! Mistakes and failures that the program itself finds. The others are errors of the crates below.

use std::io;
use std::path::PathBuf;
use std::process::ExitStatus;
use std::time::Duration;

use bench::{BenchError, VerifyReport};
use control::Portal;
use initiator::{ConnectError, Url};
use tracing_subscriber::filter::ParseError;

use crate::cli::ApiAddress;
use crate::units::bytes;

/// What a person can fix: exit status 2.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Mistake {
    /// `ramport serve --memory` is below the minimum.
    #[error(
        "--memory {} is too small; choose a size of at least {}, or a percentage of the available memory such as 80%",
        bytes(*given_bytes),
        bytes(*min_bytes)
    )]
    MemoryTooSmall { given_bytes: u64, min_bytes: u64 },
    /// `ramport serve --memory` exceeds the machine's memory, or its control group's.
    #[error(
        "--memory {} is more than this machine, or its control group, has ({}); {} are available now; choose at most that, or a percentage of the available memory such as 80%",
        bytes(*given_bytes),
        bytes(*total_bytes),
        bytes(*available_bytes)
    )]
    MemoryTooLarge {
        given_bytes: u64,
        total_bytes: u64,
        available_bytes: u64,
    },
    #[error("cannot write the audit log in {}: {source}; choose a folder that the daemon may write to", folder.display())]
    AuditLog {
        folder: PathBuf,
        source: tracing_appender::rolling::InitError,
    },
    /// A client certificate for plain HTTP.
    #[error(
        "--api-client-cert is for TLS, and {api} is plain HTTP; write https://HOST:PORT, or give a token with --api-token-file"
    )]
    CertificateWithoutTls { api: ApiAddress },
    /// `ramport serve --api-client-ca` without TLS.
    #[error("--api-client-ca needs TLS; leave out --api-tls off")]
    ClientIssuersWithoutTls,
    /// `ramport serve --socket-group` names no group of /etc/group.
    #[error("there is no group {group}; make it with `groupadd {group}`, or give a number")]
    NoGroup { group: String },
    /// A word of `--log-level` that is not a level.
    #[error(
        "--log-level {filter}: {word:?} is not a level; write error, warn, info, debug, trace or off, or a filter such as info,server=debug"
    )]
    LogLevel { filter: String, word: String },
    #[error("--log-level {filter}: {source}; write info, debug, or info,server=debug")]
    LogFilter { filter: String, source: ParseError },
    /// The machine's name is no name of a node.
    #[error(
        "the name of this machine, {name:?}, is no name of a node; give one with --node-name: lower-case letters, digits and hyphens"
    )]
    NoNodeName { name: String },
    /// Options of saves without a folder.
    #[error("volume {name} has no folder for saves; give one with --save-to")]
    NoSaveFolder {
        /// The volume.
        name: String,
    },
    /// `ramport volume snapshot --name` with several volumes.
    #[error("--name {name} names one snapshot, but there are {volumes} volumes; use --suffix")]
    OneName { name: String, volumes: usize },
    #[error("volume {name} has {}; it cannot shrink by {}; choose less", bytes(*size_bytes), bytes(*by_bytes))]
    ShrinkBeyondSize {
        name: String,
        size_bytes: u64,
        by_bytes: u64,
    },
    #[error(
        "target {target} has no volume {volume:?}; `ramport target show {target}` lists its volumes with their numbers"
    )]
    NotAttached { target: String, volume: String },
    /// `ramport target set` without anything to set.
    #[error(
        "say who may use it: --host NAME, --read-only-host NAME, --allow-any-host or --local; or for iSCSI how: --luns HOST=LUN:NUMBER, --portal-group GROUP, --any-portal-group, --chap-secret-file FILE or --no-chap"
    )]
    NothingToSet,
    /// `ramport host create --dhchap-ctrl-secret-file` alone.
    #[error(
        "DH-HMAC-CHAP needs the host's own secret; give it with --dhchap-secret-file FILE (`ramport host keygen` generates one)"
    )]
    NoDhChapSecret,
    /// `ramport host create --tls-other-psk-file` alone.
    #[error(
        "TLS needs the host's key first; give it with --tls-psk-file FILE (`ramport host keygen --tls` generates one)"
    )]
    NoTlsKey,
    /// `ramport host keygen --tls --hash sha512`.
    #[error("TLS keys are of sha256 or sha384; leave out --hash, or use --hash sha384")]
    TlsHash,
    /// `ramport target create --iscsi` with an NQN.
    #[error(
        "an iSCSI target needs a name such as iqn.2025-01.com.example:rd0; leave the name out to get one"
    )]
    NotAnIqn,
    #[error("number {number} is given twice; give each volume another number")]
    NumberTwice { number: u32 },
    /// `ramport portal set --rdma` of a portal that has no portal over RDMA beside it.
    #[error(
        "{portal} cannot be switched to RDMA: name a portal over TCP, such as nvme+tcp://192.0.2.1:4420"
    )]
    NotOverTcp { portal: Portal },
    #[error("cannot write {}: {source}; choose a file that you may write", path.display())]
    WriteFile { path: PathBuf, source: io::Error },
    #[error("cannot read {}: {source}; name a file that exists and that you may read", path.display())]
    ReadFile { path: PathBuf, source: io::Error },
    /// `ramport export --with-secrets` to a file that is not the owner's alone.
    #[error(
        "other users can read the file that standard output goes to; use `ramport export --with-secrets --output FILE`"
    )]
    ExposedOutput,
    #[error("cannot write manual pages to {}: {source}; choose a folder that you may write to", folder.display())]
    WriteManual { folder: PathBuf, source: io::Error },
    /// `ramport demo --socket` names the socket of a running daemon.
    #[error("another daemon answers on {}; leave --socket out, or choose another path", socket.display())]
    DaemonOnSocket { socket: PathBuf },
    #[error("{command} is given too many words; see `help`")]
    TooManyWords { command: String },
    #[error("{kind} {name} does not exist; `ls {place}` lists those that do")]
    NoSuchObject {
        kind: &'static str,
        name: String,
        place: String,
    },
    /// A command that cannot run in the shell.
    #[error("this command does not run in the shell; end the shell first")]
    NotInShell,
    #[error("{} is not UTF-8, which the shell needs; choose another path", path.display())]
    NotUtf8 { path: PathBuf },
    /// `ramport top --sort` names a column of another view.
    #[error("the view {view} has no column {column}; its columns are {columns}")]
    NoSuchColumn {
        view: String,
        column: String,
        columns: String,
    },
    /// `ramport top` without a terminal.
    #[error(
        "ramport top draws on a terminal; use `ramport top --once` to print the figures of one interval, with --json as a document"
    )]
    NoTerminal,
    /// `ramport watch` without a terminal.
    #[error(
        "ramport watch draws on a terminal; use `ramport watch --once` to print the figures of one interval, or --json for a document per line and interval"
    )]
    NoTerminalForWatch,
    #[error("there is no fleet; create one with `ramport fleet create --clients 8`")]
    NoFleet,
    #[error("there is a fleet; `ramport fleet ls` lists it, and `ramport fleet rm` removes it")]
    FleetExists,
    /// `ramport fleet run --begin` names a time that is too early.
    #[error(
        "--begin leaves no time to connect all clients; choose a time at least {connect_time:?} from now, for example $(($(date +%s) + 10))"
    )]
    BeginPassed { connect_time: Duration },
    #[error("{} has no counts of a fleet: {source}; name a file that `ramport fleet run --counts` wrote", path.display())]
    NoCounts {
        path: PathBuf,
        source: serde_json::Error,
    },
    #[error("{} has counts of another sweep than {}; give the same --sweep on all nodes", path.display(), first.display())]
    OtherSweep { path: PathBuf, first: PathBuf },
    #[error("{} has counts of node {node}, as a file before it; give a file of each node once", path.display())]
    NodeTwice { path: PathBuf, node: String },
    /// Clients of a fleet find no portal.
    #[error(
        "no portal {scheme} is open; open one with `ramport portal create {scheme}://ADDRESS:4420`, or beside one over TCP with `ramport portal set URL --rdma on`"
    )]
    NoRoute { scheme: &'static str },
}

/// What another command line does not fix: exit status 1.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SystemFailure {
    #[error("cannot determine the memory of this machine: {0}")]
    HostMemory(#[source] io::Error),
    #[error("cannot read /etc/group: {0}")]
    Groups(#[source] io::Error),
    #[error("cannot read standard input: {0}")]
    StandardInput(#[source] io::Error),
    #[error("cannot look for adapters below /sys/class/infiniband: {0}")]
    Adapters(#[source] io::Error),
    #[error("cannot make the folder {}: {source}", path.display())]
    MakeFolder { path: PathBuf, source: io::Error },
    #[error("cannot find the program itself: {0}")]
    Program(#[source] io::Error),
    #[error("cannot start the daemon: {0}")]
    StartDaemon(#[source] io::Error),
    #[error("the daemon ended: {0}")]
    DaemonEnded(ExitStatus),
    #[error("the daemon does not answer after {waited_s} s")]
    DaemonSilent { waited_s: u64 },
    /// `ramport demo` could not write to its RAM disk or read from it.
    #[error("cannot verify the RAM disk: {0}")]
    Verify(#[source] BenchError),
    /// The RAM disk of `ramport demo` returned other bytes than were written.
    #[error("verification failed:\n{0}")]
    Differs(Box<VerifyReport>),
    #[error("cannot measure: {0}")]
    Measure(#[source] BenchError),
    /// The stream of `ramport top`.
    #[error("the daemon has ended the stream of figures")]
    FiguresEnded,
    #[error("cannot start a client of the fleet: {0}")]
    StartClient(#[source] io::Error),
    #[error("the client of {name} failed: {reason}")]
    Client { name: String, reason: String },
    #[error("the client of {name} does not end; its volume may not answer")]
    ClientSilent { name: String },
}

/// Why `ramport discover` prints nothing. The source says whether the person can fix it.
#[derive(Debug, thiserror::Error)]
#[error("cannot ask {url}: {source}")]
pub(crate) struct DiscoveryFailure {
    pub(crate) url: Url,
    pub(crate) source: ConnectError,
}

#[cfg(test)]
mod tests;
