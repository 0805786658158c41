//! The server: its state, and how its parts find each other. The calls stand in a file per noun.
//!
//! ```text
//!  control plane ──► Server ──► State (one lock) ──► Offered: Subsystem (a lock each) ──► leaves: Registry, Totals
//!  reactors ──► portal::PortalAcceptor ──► ConnectionBackend ──► Core ──┘
//! ```
//!
//! Locks are taken from left to right. The data path takes none.

mod hosts;
mod iscsi;
mod nvme;
mod portals;
mod rdma;
mod referrals;
mod reservations;
mod sessions;
mod targets;
mod volumes;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use ::nvme::controller::OpenError;
use block::{Access, HostIdentity};
use net::{ReactorHandle, ReactorOptions, Reactors, Threads};
use uuid::Uuid;
use volume::{Budget, HostMemory};

use crate::capacity::{self, Capacity};
use crate::iscsi::LOGOUT_WITHIN;
use crate::keeper::Keeper;
use crate::names::DISCOVERY_NQN;
use crate::offered::{Offered, VolumeHandle};
use crate::registry::Registry;
use crate::{
    HostDefinition, HostName, HostPolicy, PortalDefinition, ServerError, StartError,
    TargetDefinition, TargetName, VolumeName,
};
pub use reservations::ReservationFeed;

use portals::PortalEntry;
use rdma::Rdma;
use targets::{Service, TargetEntry};

/// What a server is started with.
#[derive(Clone, Debug, Default)]
pub struct ServerConfig {
    /// Which cores serve.
    pub cores: Cores,
    /// The memory budget; 80 % of what the machine has available, where not given.
    pub memory_bytes: Option<u64>,
    /// The UDP port of RoCEv2; 4791, where not given. Peers use the same one.
    pub rdma_udp_port: Option<u16>,
    /// What tells this machine from others, and identifiers of disks are derived from;
    /// [`machine`]'s, where not given.
    pub machine: Option<Uuid>,
    /// Threads for each address where RDMA is served in software; half as many as cores, and at
    /// most 4, where not given.
    pub rdma_threads: Option<u16>,
    /// Whether RDMA in software sends packets one by one, and leaves no run of them to the system
    /// to cut (GSO).
    pub rdma_gso_off: bool,
}

/// Which cores serve: a reactor thread each.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Cores {
    /// As many threads as the process may use cores, wherever the system runs them.
    #[default]
    All,
    /// So many threads, wherever the system runs them.
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
    reactors: Reactors,
}

/// What the control plane and all connections share.
pub(crate) struct Core {
    state: Mutex<State>,
    pub(crate) registry: Registry,
    pub(crate) keeper: Arc<Keeper>,
    pub(crate) budget: Arc<Budget>,
    /// The soft crossings of the budget that initiators were told of.
    told_of_short_space: AtomicU64,
    discovery: Arc<Offered>,
    pub(crate) handle: ReactorHandle,
}

/// The definitions and what they became. Under one lock, which only the control path takes.
#[derive(Default)]
struct State {
    /// Tells this machine from others; identifiers are derived from it.
    machine: Uuid,
    volumes: BTreeMap<VolumeName, VolumeHandle>,
    /// Names of volumes whose memory is being taken.
    coming: BTreeSet<VolumeName>,
    targets: BTreeMap<TargetName, TargetEntry>,
    hosts: BTreeMap<HostName, HostDefinition>,
    portals: BTreeMap<PortalDefinition, PortalEntry>,
    /// Other discovery services.
    referrals: BTreeSet<PortalDefinition>,
    last_port: u16,
    is_stopping: bool,
}

impl Server {
    /// Starts the reactors; there is nothing to serve yet.
    pub fn start(config: ServerConfig) -> Result<Self, StartError> {
        let rdma = Rdma::new(&config);
        let host = HostMemory::probe().map_err(StartError::AvailableMemory)?;
        let budget_bytes = config
            .memory_bytes
            .unwrap_or_else(|| host.default_budget_bytes());
        let threads = match config.cores {
            Cores::All => {
                Threads::Count(std::thread::available_parallelism().map_or(1, usize::from))
            }
            Cores::Count(count) => Threads::Count(count),
            Cores::Pinned(cores) => Threads::Pinned(cores),
        };
        let reactors = Reactors::start(ReactorOptions {
            threads,
            ..ReactorOptions::default()
        })?;
        let handle = reactors.handle();
        let machine = config.machine.unwrap_or_else(machine);
        let core = Arc::new(Core {
            state: Mutex::new(State {
                machine,
                ..State::default()
            }),
            registry: Registry::default(),
            keeper: Arc::default(),
            budget: Arc::new(Budget::for_host(budget_bytes, &host)),
            told_of_short_space: AtomicU64::new(0),
            discovery: Arc::new(Offered::discovery(machine, handle.clone())),
            handle,
        });
        Ok(Self {
            shared: Arc::new(Shared {
                core,
                rdma,
                reactors,
            }),
        })
    }

    /// Changes what identifiers of disks are derived from. Targets that exist keep theirs; refused where there are any,
    /// as theirs would be others after a restart.
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

    /// Memory: what there is, what is used, what things cost.
    pub fn capacity(&self) -> Capacity {
        capacity::report(&self.core().budget)
    }

    /// Stops: no connection is accepted any more, commands in flight are answered, then every
    /// connection is closed; what has not ended after `patience` is cut off. iSCSI initiators are
    /// asked to log out before. Returns when the reactors have ended.
    pub fn stop(&self, patience: Duration) {
        let until = Instant::now() + patience;
        self.state().is_stopping = true;
        self.dismiss_initiators(LOGOUT_WITHIN.min(patience / 2));
        self.core().keeper.stop();
        let left = until.saturating_duration_since(Instant::now());
        std::thread::scope(|scope| {
            scope.spawn(|| self.shared.rdma.stop(left));
            self.shared.reactors.stop(left);
        });
    }

    fn core(&self) -> &Arc<Core> {
        &self.shared.core
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.core().state()
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.core.keeper.stop();
    }
}

impl Core {
    /// The target, or the discovery service, of this name, and what the host `who` may do with it.
    pub(crate) fn open(
        &self,
        nqn: &str,
        who: HostIdentity<'_>,
    ) -> Result<(Arc<Offered>, Access), OpenError> {
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
            Service::Nvme(offered) => Ok((Arc::clone(offered), target.access.check(who))),
            Service::Iscsi(_) => Err(OpenError::UnknownSubsystem),
        }
    }

    /// What the host `who` may do with a target now; nothing, where it was removed.
    pub(crate) fn access(&self, offered: &Arc<Offered>, who: HostIdentity<'_>) -> Access {
        let Some(name) = offered.name() else {
            return Access::ReadWrite;
        };
        match self.state().targets.get(name) {
            Some(TargetEntry {
                service: Service::Nvme(now),
                access,
                ..
            }) if Arc::ptr_eq(now, offered) => access.check(who),
            _ => Access::Denied,
        }
    }

    /// The state. A panic under this lock would have left it between two whole calls at worst, so
    /// the lock is taken all the same.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes discovery tell of the targets and portals as they are now.
    fn publish(&self, state: &State) {
        self.publish_to_nvme(state);
        let groups = state.iscsi_groups();
        for entry in state.targets.values() {
            if let Service::Iscsi(target) = &entry.service {
                let logins = &entry.definition.logins;
                let groups = groups.iter().copied();
                target.set_groups(groups.filter(|group| logins.is_reached(*group)));
            }
        }
    }

    /// Tells every session what its host may do now; ends those of hosts that may do nothing.
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

    /// Refuses what would open a target to the network without anyone having said so.
    fn check_exposure<'a>(
        targets: impl Iterator<Item = &'a TargetDefinition>,
        portals: impl Iterator<Item = &'a PortalDefinition>,
    ) -> Result<(), ServerError> {
        let outside: Vec<_> = portals
            .filter(|portal| !portal.address.ip().is_loopback())
            .collect();
        for target in targets {
            let protocol = target.name.protocol();
            let is_reached = |portal: &&&PortalDefinition| portal.transport.protocol() == protocol;
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

/// Whether `targets` and `portals` may be together: a target without a host list is not offered through a portal that
/// other machines reach.
pub fn check_exposure<'a>(
    targets: impl Iterator<Item = &'a TargetDefinition>,
    portals: impl Iterator<Item = &'a PortalDefinition>,
) -> Result<(), ServerError> {
    State::check_exposure(targets, portals)
}

/// What tells this machine from others: made of its machine ID, or, where it has none (as in
/// containers), random.
pub fn machine() -> Uuid {
    std::fs::read_to_string("/etc/machine-id")
        .ok()
        .and_then(|text| Uuid::try_parse(text.trim()).ok())
        .map_or_else(Uuid::new_v4, |id| Uuid::new_v5(&id, b"ramport"))
}
