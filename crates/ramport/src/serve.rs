//! The daemon.

mod api;
mod cluster;
mod log;

use std::io::{self, IsTerminal as _};
use std::process;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use ::cluster::Node;
use control::{Api, Engine, IfClosed, OpenError, Portal, PortalView, TlsPolicy, parse};
use node_link::Replicas;
use server::{
    Force, HostMemory, PortalAuth, PortalDefinition, Progress, RdmaChoice, ServerConfig, VolumeName,
};
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::cli::{Connection, MemoryBudget, ServeArgs};
use crate::core_dumps;
use crate::failure::Failure;
use crate::mistake::{Mistake, SystemFailure};
use crate::verbs::provider;
use crate::{notify, paths};
use log::Log;

/// The portal of a daemon that has none.
const PORTAL_DEFAULT: &str = "nvme+tcp://127.0.0.1:4420";

/// Where rpcbind listens for programs of its machine.
const PORTMAPPER: &str = "/run/rpcbind.sock";

/// Serves until a signal ends it.
pub(crate) fn run(connection: &Connection, args: Box<ServeArgs>) -> Result<(), Failure> {
    let args = *args;
    core_dumps::forbid()?;
    let log = log::start(args.log, &args.log_level, args.audit_log.as_deref())?;
    let socket = connection.socket.clone().unwrap_or_else(paths::socket);
    let state = args.state.clone().unwrap_or_else(paths::state);
    let replicas = Arc::<Replicas>::default();
    let server = ServerConfig {
        cores: args.cores.clone().unwrap_or_default(),
        memory_bytes: args.memory.map(memory_bytes).transpose()?,
        rdma_threads: args.rdma_threads,
        rdma_gso_off: args.rdma_gso_off,
        portmapper: Some(PORTMAPPER.into()),
        replicas: Some(Arc::clone(&replicas)),
        ..ServerConfig::default()
    };
    let starting =
        Engine::start(server, &state, args.lost_contents.into()).map_err(open_failure)?;
    // Its folder exists now.
    let config = api::config(connection, &args, socket.clone(), &state)?;
    open_portals(starting.engine(), &args)?;
    let tls = config.tcp.as_ref().map(|tcp| tcp.tls.is_some());
    let listening = Api::listen(config).map_err(Failure::mistake)?;
    let budget_bytes = starting.engine().capacity().budget_bytes;
    let volumes = (starting.engine().clone(), replicas);
    let node = cluster::start(&args.cluster, &state, budget_bytes, volumes)?;
    // Nothing was written to the state file so far, and the remaining steps are unlikely to fail.
    let engine = starting.finish().map_err(open_failure)?;
    let capacity = engine.capacity();
    let control = node.as_ref().map(Node::control);
    let api = listening.serve(engine.clone(), control);
    let api = api.map_err(Failure::mistake)?;
    tracing::info!(
        socket = %socket.display(),
        state = %state.display(),
        volumes = engine.definitions().volumes.len(),
        budget_bytes = capacity.budget_bytes,
        "serving"
    );
    log_portals(&engine);
    if let Some(address) = api.tcp_address() {
        let address = address.to_string();
        tracing::info!(address, tls, "REST on TCP");
    }
    notify::tell("READY=1");
    wait_for_signal(&log)?;
    notify::tell("STOPPING=1");
    tracing::info!("stopping; a second signal stops at once");
    api.stop();
    // Commands on replicated volumes need the node while they complete.
    engine.stop(args.drain.0);
    drop(node);
    let mut shutdown = ShutdownProgress::default();
    engine.save_at_shutdown(&mut |volume, progress| shutdown.note(volume, progress));
    tracing::info!("stopped");
    Ok(())
}

fn log_portals(engine: &Engine) {
    for portal in engine.portals() {
        let provider = provider(&portal);
        let PortalView {
            url, state, reason, ..
        } = portal;
        tracing::info!(portal = url, ?state, rdma = provider, reason, "portal");
    }
}

/// Tells of the saves at shutdown.
#[derive(Default)]
struct ShutdownProgress {
    told: Option<Instant>,
}

/// How often the log reports the progress of the saves at shutdown.
const TELL_INTERVAL: Duration = Duration::from_secs(5);
/// How long the service manager waits from then on: a disk that hangs so long ends the daemon.
const MANAGER_PATIENCE: Duration = Duration::from_secs(60);

impl ShutdownProgress {
    fn note(&mut self, volume: &VolumeName, progress: Progress) {
        if self.told.is_some_and(|told| told.elapsed() < TELL_INTERVAL) {
            return;
        }
        self.told = Some(Instant::now());
        let Progress {
            done_bytes,
            total_bytes,
        } = progress;
        tracing::info!(%volume, done_bytes, total_bytes, "saving");
        let patience_us = MANAGER_PATIENCE.as_micros();
        notify::tell(&format!("EXTEND_TIMEOUT_USEC={patience_us}"));
    }
}

fn open_failure(error: OpenError) -> Failure {
    match error {
        OpenError::Start(error) if !error.is_mistake() => Failure::Broken(error.into()),
        error => Failure::mistake(error),
    }
}

/// The smallest budget: some connections and a volume fit.
const MEMORY_MIN_BYTES: u64 = 16 << 20;

/// The budget in bytes.
fn memory_bytes(budget: MemoryBudget) -> Result<u64, Failure> {
    let host = HostMemory::probe().map_err(SystemFailure::HostMemory)?;
    let bytes = match budget {
        MemoryBudget::Bytes(bytes) => bytes,
        MemoryBudget::Percent(percent) => host.available_bytes / 100 * u64::from(percent),
    };
    if bytes < MEMORY_MIN_BYTES {
        return Err(Mistake::MemoryTooSmall {
            given_bytes: bytes,
            min_bytes: MEMORY_MIN_BYTES,
        }
        .into());
    }
    if bytes > host.total_bytes {
        return Err(Mistake::MemoryTooLarge {
            given_bytes: bytes,
            total_bytes: host.total_bytes,
            available_bytes: host.available_bytes,
        }
        .into());
    }
    Ok(bytes)
}

/// Opens the portals that the command line names and that do not exist yet. A daemon without
/// portals opens one on loopback.
fn open_portals(engine: &Engine, args: &ServeArgs) -> Result<(), Failure> {
    let defined = engine.definitions().portals;
    let named = args.listen.iter().chain(&args.nvme_tcp);
    let named = named.chain(&args.iscsi).chain(&args.nvme_rdma);
    let named = named.chain(&args.nfs);
    let mut wanted: Vec<Portal> = named.copied().collect();
    if wanted.is_empty() && defined.is_empty() {
        wanted.push(parse(PORTAL_DEFAULT).map_err(Failure::mistake)?);
    }
    for portal in wanted {
        let bare = PortalDefinition {
            rdma: RdmaChoice::default(),
            auth: PortalAuth::default(),
            tls: TlsPolicy::default(),
            ..portal.0
        };
        let mut same = defined.iter().filter(|other| other.0.0.is_named(&bare));
        if let Some(defined) = same.next() {
            if defined.0.0.is_named(&portal.0) {
                continue;
            }
            // The command line chooses another RDMA provider or other use of TLS, or requires
            // authentication.
            let removed = engine.remove_portal(defined.0, Force::Yes);
            removed.map_err(Failure::mistake)?;
        }
        // RDMA may be unavailable, for example because another program uses it; the portals over
        // TCP are served nevertheless.
        let if_closed = if portal.0.transport.is_rdma() {
            IfClosed::Keep
        } else {
            IfClosed::Refuse
        };
        let added = engine.add_portal(portal, if_closed);
        added.map_err(Failure::mistake)?;
    }
    Ok(())
}

/// The signals that ask the daemon to stop.
struct StopSignals {
    terminate: Signal,
    interrupt: Signal,
    hangup: Signal,
    /// The daemon was started from a terminal, which is gone when SIGHUP arrives.
    has_terminal: bool,
}

impl StopSignals {
    /// Within a runtime.
    fn new() -> io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hangup: signal(SignalKind::hangup())?,
            has_terminal: io::stdin().is_terminal(),
        })
    }

    /// Waits for SIGTERM or SIGINT, or for the end of the terminal. Without a terminal, SIGHUP does
    /// not stop the daemon, since that would lose the contents of all volumes.
    async fn recv(&mut self) {
        loop {
            tokio::select! {
                _ = self.terminate.recv() => return,
                _ = self.interrupt.recv() => return,
                _ = self.hangup.recv() => {}
            }
            if self.has_terminal {
                return;
            }
            tracing::info!(
                "SIGHUP is ignored; change definitions with ramport apply, stop with SIGTERM"
            );
        }
    }
}

/// Waits for a signal to stop, and meanwhile logs the number of suppressed lines. After that, a
/// second signal ends the process at once.
fn wait_for_signal(log: &Log) -> Result<(), Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let mut signals = {
        let _guard = runtime.enter();
        StopSignals::new()?
    };
    runtime.block_on(async {
        tokio::select! {
            () = signals.recv() => {}
            () = log.report_suppressed() => {}
        }
    });
    thread::Builder::new()
        .name("second-signal".to_owned())
        .spawn(move || {
            runtime.block_on(signals.recv());
            eprintln!("ramport: stopped at once");
            process::exit(1);
        })?;
    Ok(())
}

/// The number of a group.
fn group_number(group: &str) -> Result<u32, Failure> {
    if let Ok(number) = group.parse() {
        return Ok(number);
    }
    let groups = std::fs::read_to_string("/etc/group").map_err(SystemFailure::Groups)?;
    groups
        .lines()
        .map(|line| line.split(':'))
        .find_map(|mut fields| (fields.next()? == group).then(|| fields.nth(1)?.parse().ok())?)
        .ok_or_else(|| {
            let group = group.to_owned();
            Mistake::NoGroup { group }.into()
        })
}
