//! The server: its state, and how its parts find each other. The calls of each noun have a file.
//!
//! ```text
//!  control plane ──► Server ──► State (one lock) ──► NvmeTarget: Subsystem (a lock each) ──► Registry, Totals
//!  reactors ──► NvmePortal, BrpPortal, IscsiPortal, NfsPortal ──► a backend per connection ──► Core ──┘
//! ```
//!
//! Locks are taken from left to right. The data path takes none.

mod brp;
mod client_calls;
mod client_names;
mod client_records;
mod connections;
mod copies;
mod freeing;
mod hosts;
mod iscsi;
mod key_exchange;
mod lock_callbacks;
mod members;
mod nfs;
mod nvme;
mod paths;
mod portals;
mod portmapper;
mod rdma;
mod referrals;
mod remote;
mod reservations;
mod restart_notices;
mod saves;
mod sessions;
mod shares;
mod snapshots;
mod srp;
mod targets;
mod threads;
mod volumes;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use ::nfs::IpProtocol;
use ::nvme::controller::OpenError;
use block::{Access, HostIdentity};
use net::{ReactorHandle, ReactorOptions, Reactors, Threads};
use node_link::Replicas;
use uuid::Uuid;
use volume::{Budget, Charge, HostMemory, LaneRegistry, Relay};

use crate::access::is_told;
use crate::capacity::{self, Capacity};
use crate::iscsi::LOGOUT_WITHIN;
use crate::names::DISCOVERY_NQN;
use crate::nfs::Exports;
use crate::nvme_target::NvmeTarget;
use crate::registry::Registry;
use crate::reservation_saves::SaveQueue;
use crate::volume_handle::VolumeHandle;
use crate::{
    DhChapDefinition, HostDefinition, HostName, HostPolicy, PortalDefinition, ServerError,
    ShareDefinition, ShareName, StartError, TargetDefinition, TargetName, ToldBy, Transport,
    VolumeName,
};
pub use reservations::ReservationFeed;
pub use snapshots::NewSnapshot;

use client_names::{ClientNames, NameThread};
use client_records::ClientRecords;
use freeing::Freeing;
use key_exchange::KeyExchange;
use lock_callbacks::LockCallbacks;
use nfs::Datagrams;
use nvme::GeneratedKeys;
use paths::PathNotices;
use portals::PortalEntry;
use portmapper::Portmapper;
use rdma::Rdma;
use shares::ShareEntry;
use targets::{Service, TargetEntry};
use threads::ThreadTotals;

/// The settings of a server.
#[derive(Clone, Debug, Default)]
pub struct ServerConfig {
    /// Which cores serve.
    pub cores: Cores,
    /// The memory budget in bytes; 80 % of the available memory if absent.
    pub memory_bytes: Option<u64>,
    /// The UDP port of RoCEv2; 4791 if absent. Peers use the same port.
    pub rdma_udp_port: Option<u16>,
    /// Identifies this machine; identifiers of disks are derived from it. The result of [`machine`]
    /// if absent.
    pub machine: Option<Uuid>,
    /// Threads per address where RDMA is served in software; half as many as cores, at most 4, if
    /// absent.
    pub rdma_threads: Option<u16>,
    /// The folder in which mirrors record which members are in sync; it is created. Without one,
    /// mirrors that are restored start as new ones.
    pub mirror_records: Option<PathBuf>,
    /// The file in which clients of NFS are noted that may hold state, so that they alone may
    /// reclaim it after a restart. Without one, nothing is reclaimed.
    pub nfs_client_records: Option<PathBuf>,
    /// The replicated volumes of this machine; without them, there are none.
    pub replicas: Option<Arc<Replicas>>,
    /// The Unix socket of the portmapper (rpcbind), with which NFS portals are registered; without
    /// one, they are not.
    pub portmapper: Option<PathBuf>,
    /// Whether software RDMA sends packets one by one, without segmentation offload (GSO).
    pub rdma_gso_off: bool,
}

/// Which cores have a reactor thread.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Cores {
    /// As many threads as the process may use cores, not pinned.
    #[default]
    All,
    /// This many threads, not pinned.
    Count(usize),
    /// A thread on each of these cores, pinned.
    Pinned(Vec<usize>),
}

/// The server. Cheap to clone; all clones are the same server. It stops when [`Server::stop`] is
/// called or the last clone is dropped.
#[derive(Clone)]
pub struct Server {
    shared: Arc<Shared>,
}

struct Shared {
    core: Arc<Core>,
    /// Threads for RDMA; they end before the reactors.
    rdma: Rdma,
    /// Threads for UDP; they end before the reactors, too.
    datagrams: Datagrams,
    reactors: Reactors,
    _client_names: NameThread,
}

/// What the control plane and all connections share.
struct Core {
    state: Mutex<State>,
    registry: Registry,
    save_queue: Arc<SaveQueue>,
    budget: Arc<Budget>,
    /// The folder in which mirrors record which members are in sync.
    mirror_records: Option<PathBuf>,
    replicas: Option<Arc<Replicas>>,
    /// Where volumes report completions.
    relay: Arc<Relay>,
    /// Where volumes drive their files in the reactors' threads.
    lanes: Arc<LaneRegistry>,
    threads: ThreadTotals,
    /// The number of connections that were rejected because too little of the budget was free.
    rejected_connections: AtomicU64,
    /// The number of soft threshold crossings that initiators were notified of.
    told_of_short_space: AtomicU64,
    discovery: Arc<NvmeTarget>,
    /// The shares as NFS connections see them, and what these connections share.
    exports: Exports,
    /// The addresses of clients that shares name by host name.
    client_names: Arc<ClientNames>,
    key_exchange: KeyExchange,
    /// Keys for TLS that authentications have generated.
    generated_keys: GeneratedKeys,
    freeing: Freeing,
    _lock_callbacks: LockCallbacks,
    _client_records: ClientRecords,
    portmapper: Portmapper,
    path_notices: PathNotices,
    handle: ReactorHandle,
}

/// The definitions and what they became, under one lock, which only the control path takes.
#[derive(Default)]
struct State {
    /// Identifies this machine; identifiers of disks are derived from it.
    machine: Uuid,
    volumes: BTreeMap<VolumeName, VolumeHandle>,
    /// Names of volumes that are being created.
    reserved_names: BTreeSet<VolumeName>,
    /// The volume that holds each volume which is held.
    holders: BTreeMap<VolumeName, VolumeName>,
    targets: BTreeMap<TargetName, TargetEntry>,
    shares: BTreeMap<ShareName, ShareEntry>,
    /// For what all NFS connections share, from the first portal on.
    nfs_charge: Option<Charge>,
    hosts: BTreeMap<HostName, HostDefinition>,
    portals: BTreeMap<PortalDefinition, PortalEntry>,
    /// Other discovery services.
    referrals: BTreeSet<PortalDefinition>,
    last_port: u16,
    is_stopping: bool,
}

/// How long a change waits for commands in progress that it takes the right from, before it reports
/// that they may still be executed.
const FINISH_TURNS_MAX: Duration = Duration::from_secs(5);
/// How long a stop waits for the portmapper.
const UNREGISTER_WITHIN: Duration = Duration::from_secs(2);

impl Server {
    /// Starts the reactors. Nothing is served yet.
    pub fn start(config: ServerConfig) -> Result<Self, StartError> {
        let rdma = Rdma::new(&config);
        let host = HostMemory::probe().map_err(StartError::AvailableMemory)?;
        let budget_bytes = config.memory_bytes;
        let budget_bytes = budget_bytes.unwrap_or_else(|| host.default_budget_bytes());
        let budget = Arc::new(Budget::for_host(budget_bytes, &host));
        let lanes = Arc::<LaneRegistry>::default();
        let reactors = Reactors::start(ReactorOptions {
            threads: threads(config.cores),
            lanes: Some(Arc::clone(&lanes) as _),
            budget: Arc::clone(&budget),
            ..ReactorOptions::default()
        })?;
        let handle = reactors.handle();
        let machine = config.machine.unwrap_or_else(machine);
        let exports = Exports::new(machine, handle.clone());
        let (path_notices, path_changes) = PathNotices::new();
        let core = Arc::new(Core {
            state: Mutex::new(State {
                machine,
                ..State::default()
            }),
            registry: Registry::default(),
            save_queue: Arc::default(),
            budget,
            mirror_records: config.mirror_records,
            replicas: config.replicas,
            relay: Relay::new(Arc::new(handle.clone())),
            lanes,
            threads: ThreadTotals::default(),
            rejected_connections: AtomicU64::new(0),
            told_of_short_space: AtomicU64::new(0),
            discovery: Arc::new(NvmeTarget::discovery(machine, handle.clone())),
            _lock_callbacks: LockCallbacks::start(exports.clients())
                .map_err(StartError::LockCallbacks)?,
            _client_records: ClientRecords::start(config.nfs_client_records, exports.clients())
                .map_err(StartError::ClientRecords)?,
            exports,
            client_names: Arc::default(),
            generated_keys: GeneratedKeys::default(),
            key_exchange: KeyExchange::start(handle.clone()).map_err(StartError::KeyExchange)?,
            freeing: Freeing::start().map_err(StartError::Freeing)?,
            portmapper: Portmapper::start(config.portmapper).map_err(StartError::Portmapper)?,
            path_notices,
            handle,
        });
        paths::notify_hosts(Arc::downgrade(&core), path_changes)
            .map_err(StartError::PathNotices)?;
        let client_names = find_client_names(&core);
        Ok(Self {
            shared: Arc::new(Shared {
                core,
                rdma,
                datagrams: Datagrams::default(),
                reactors,
                _client_names: client_names.map_err(StartError::ClientNames)?,
            }),
        })
    }

    /// Changes what identifiers of disks are derived from.
    ///
    /// # Errors
    /// If targets exist, because their identifiers would change with a restart.
    pub fn set_machine(&self, machine: Uuid) -> Result<(), ServerError> {
        let mut state = self.state();
        if state.machine != machine && !state.targets.is_empty() {
            return Err(ServerError::MachineInUse);
        }
        state.machine = machine;
        Ok(())
    }

    /// What identifiers of disks are derived from.
    pub fn machine(&self) -> Uuid {
        self.state().machine
    }

    /// The memory budget, its use, and what objects cost.
    pub fn capacity(&self) -> Capacity {
        let core = self.core();
        let rejected_connections = core.rejected_connections.load(Ordering::Relaxed);
        capacity::report(&core.budget, rejected_connections)
    }

    /// Stops the server: accepts no more connections, asks iSCSI initiators to log out, answers
    /// commands in flight, and closes every connection. Connections that are still open after
    /// `timeout` are closed anyway. Returns when the reactors have ended.
    pub fn stop(&self, timeout: Duration) {
        let until = Instant::now() + timeout;
        self.state().is_stopping = true;
        self.dismiss_initiators(LOGOUT_WITHIN.min(timeout / 2));
        self.core().save_queue.stop();
        self.core()
            .portmapper
            .stop(UNREGISTER_WITHIN.min(timeout / 2));
        let left = until.saturating_duration_since(Instant::now());
        std::thread::scope(|scope| {
            scope.spawn(|| self.shared.rdma.stop(left));
            scope.spawn(|| self.shared.datagrams.stop());
            self.shared.reactors.stop(left);
        });
        self.flush_volumes();
    }

    /// Writes what only memory holds of volumes that keep their contents elsewhere.
    fn flush_volumes(&self) {
        let volumes: Vec<_> = self.state().volumes.values().cloned().collect();
        for handle in volumes {
            if let Err(error) = handle.volume.storage().flush() {
                tracing::error!(volume = %handle.name, %error, "what was written is lost");
            }
        }
    }

    /// Waits until no thread executes commands any more by what was true before this call. What was
    /// taken from hosts is then theirs no longer. Called without locks, since threads in their
    /// turns may wait for these.
    ///
    /// # Errors
    /// [`ServerError::Unfinished`] if a thread does not end its turn within [`FINISH_TURNS_MAX`].
    fn finish_turns(&self) -> Result<(), ServerError> {
        let handle = &self.core().handle;
        let period = handle.start_grace_period();
        if handle.wait_until_over(period, FINISH_TURNS_MAX) {
            Ok(())
        } else {
            let waited = FINISH_TURNS_MAX;
            Err(ServerError::Unfinished { waited })
        }
    }

    fn core(&self) -> &Arc<Core> {
        &self.shared.core
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.core().state()
    }
}

fn threads(cores: Cores) -> Threads {
    match cores {
        Cores::All => Threads::Count(std::thread::available_parallelism().map_or(1, usize::from)),
        Cores::Count(count) => Threads::Count(count),
        Cores::Pinned(cores) => Threads::Pinned(cores),
    }
}

/// Starts the thread that finds the addresses of clients that shares name.
fn find_client_names(core: &Arc<Core>) -> io::Result<NameThread> {
    let weak = Arc::downgrade(core);
    NameThread::start(
        Arc::clone(&core.client_names),
        Box::new(client_names::by_system),
        Box::new(move || {
            if let Some(core) = weak.upgrade() {
                core.publish_shares(&core.state());
            }
        }),
    )
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.core.save_queue.stop();
    }
}

impl Core {
    /// The target, or the discovery service, of this name, and what the host `who` may do with it.
    fn open(
        &self,
        nqn: &str,
        who: HostIdentity<'_>,
    ) -> Result<(Arc<NvmeTarget>, Access), OpenError> {
        if nqn == DISCOVERY_NQN {
            return Ok((Arc::clone(&self.discovery), Access::ReadWrite));
        }
        let name: TargetName = nqn.parse().map_err(|_| OpenError::UnknownSubsystem)?;
        let state = self.state();
        if state.is_stopping {
            return Err(OpenError::Busy);
        }
        let target = state.targets.get(&name);
        let target = target.ok_or(OpenError::UnknownSubsystem)?;
        match &target.service {
            Service::Nvme(nvme) => Ok((Arc::clone(nvme), target.access.check(who))),
            Service::Iscsi(_) => Err(OpenError::UnknownSubsystem),
        }
    }

    /// What the host `who` has to prove over NVMe: first as the host of the name that it gives,
    /// then as one that is identified by its address.
    fn dhchap(&self, who: HostIdentity<'_>) -> Option<Arc<DhChapDefinition>> {
        let state = self.state();
        let by_name = who
            .name
            .and_then(|name| name.parse::<HostName>().ok())
            .and_then(|name| state.hosts.get(&name))
            .filter(|host| host.told_by == ToldBy::Name)
            .and_then(|host| host.dhchap.clone());
        let by_address = || {
            let mut hosts = state.hosts.values();
            hosts.find_map(|host| match &host.dhchap {
                Some(dhchap) if host.told_by == ToldBy::Address && is_told(host, who) => {
                    Some(Arc::clone(dhchap))
                }
                _ => None,
            })
        };
        by_name.or_else(by_address)
    }

    /// What the host `who` may do with a target now; nothing if the target was removed.
    fn access(&self, target: &Arc<NvmeTarget>, who: HostIdentity<'_>) -> Access {
        let Some(name) = target.name() else {
            return Access::ReadWrite;
        };
        match self.state().targets.get(name) {
            Some(TargetEntry {
                service: Service::Nvme(now),
                access,
                ..
            }) if Arc::ptr_eq(now, target) => access.check(who),
            _ => Access::Denied,
        }
    }

    /// Reserves memory until the charge drops.
    fn reserve(&self, len_bytes: u64) -> Result<Charge, ServerError> {
        let charge = self.budget.reserve(len_bytes);
        charge.map_err(|_| ServerError::OverBudget {
            needed_bytes: len_bytes,
            free_bytes: self.budget.free_bytes(),
        })
    }

    /// Reserves the memory of a connection. Returns `None`, and counts the connection as rejected,
    /// if too little of the budget is free.
    fn charge_connection(&self, len_bytes: u64) -> Option<Charge> {
        let charge = self.budget.reserve(len_bytes);
        if charge.is_err() {
            self.note_rejected_connection();
        }
        charge.ok()
    }

    /// Counts a connection that was rejected because too little of the budget was free.
    fn note_rejected_connection(&self) {
        self.rejected_connections.fetch_add(1, Ordering::Relaxed);
    }

    /// The state. A panic under this lock leaves the state as it is between two calls, so a
    /// poisoned lock is used.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Updates what discovery reports to the targets and portals as they are now.
    fn publish(&self, state: &State) {
        self.publish_to_nvme(state);
        let portals = state.portals.keys();
        let nfs = portals.filter_map(|portal| {
            let protocol = match portal.transport {
                Transport::Nfs => IpProtocol::Tcp,
                Transport::NfsUdp => IpProtocol::Udp,
                _ => return None,
            };
            Some((protocol, portal.address))
        });
        self.portmapper.register(nfs);
        let groups = state.iscsi_groups();
        let srp_groups = state.srp_groups();
        for entry in state.targets.values() {
            if let Service::Iscsi(target) = &entry.service {
                let logins = &entry.definition.logins;
                let groups = groups.iter().copied();
                let is_srp = srp_groups.iter().any(|group| logins.is_reached(*group));
                target.set_ports(groups.filter(|group| logins.is_reached(*group)), is_srp);
            }
        }
    }

    /// Updates what the host of each session may do; ends the sessions of hosts that may do
    /// nothing.
    fn renew_sessions(&self, state: &State) {
        for (_, session) in self.registry.sessions() {
            if let Some(target) = session.target().and_then(|name| state.targets.get(name)) {
                session.set_grant(target.access.grant(session.identity()));
            }
        }
    }
}

impl State {
    fn check_running(&self) -> Result<(), ServerError> {
        if self.is_stopping {
            return Err(ServerError::Stopping);
        }
        Ok(())
    }

    /// Rejects what would open a target to the network without an explicit setting.
    fn check_exposure<'a>(
        targets: impl Iterator<Item = &'a TargetDefinition>,
        portals: impl Iterator<Item = &'a PortalDefinition>,
    ) -> Result<(), ServerError> {
        let outside: Vec<_> = portals
            .filter(|portal| !portal.address.ip().is_loopback())
            .collect();
        for target in targets {
            let protocol = target.name.protocol();
            let is_reached =
                |portal: &&&PortalDefinition| portal.transport.protocol() == Some(protocol);
            if let (HostPolicy::Local, Some(&&portal)) =
                (&target.hosts, outside.iter().find(is_reached))
            {
                return Err(ServerError::OpenToNetwork {
                    target: target.name.clone(),
                    portal,
                });
            }
        }
        Ok(())
    }
}

/// Checks that `targets`, `shares` and `portals` may exist together: a target without a host list,
/// or a share without a client list, is not offered through a portal that other machines can reach.
pub fn check_exposure<'a>(
    targets: impl Iterator<Item = &'a TargetDefinition>,
    shares: impl Iterator<Item = &'a ShareDefinition>,
    portals: impl Iterator<Item = &'a PortalDefinition> + Clone,
) -> Result<(), ServerError> {
    State::check_exposure(targets, portals.clone())?;
    State::check_share_exposure(shares, portals)
}

/// An identifier of this machine: derived from its machine ID, or random if it has none, as in
/// containers.
pub fn machine() -> Uuid {
    std::fs::read_to_string("/etc/machine-id")
        .ok()
        .and_then(|text| Uuid::try_parse(text.trim()).ok())
        .map_or_else(Uuid::new_v4, |id| Uuid::new_v5(&id, b"ramport"))
}
