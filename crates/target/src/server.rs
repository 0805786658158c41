//! The server: its state, and how its parts find each other. The calls stand in a file per noun.

mod hosts;
mod portals;
mod sessions;
mod targets;
mod volumes;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::{
    Capacity, HostDefinition, HostName, PortalDefinition, ServerError, StartError,
    TargetDefinition, TargetName, VolumeName,
};
use volumes::VolumeEntry;

/// What a server is started with.
#[derive(Clone, Debug, Default)]
pub struct ServerConfig {
    /// Which cores serve.
    pub cores: Cores,
    /// The memory budget; 80 % of what the machine has available, where not given.
    pub memory_bytes: Option<u64>,
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

/// The server. Cheap to clone; all clones are the same server. It stops when [`Server::stop`] is called or the
/// last clone is dropped.
#[derive(Clone)]
pub struct Server {
    shared: Arc<Shared>,
}

/// What all threads share.
struct Shared {
    state: Mutex<State>,
}

/// The definitions and what they became. Under one lock, which only the control path takes.
#[derive(Default)]
struct State {
    volumes: BTreeMap<VolumeName, VolumeEntry>,
    targets: BTreeMap<TargetName, TargetDefinition>,
    hosts: BTreeMap<HostName, HostDefinition>,
    portals: BTreeSet<PortalDefinition>,
}

impl Server {
    /// Starts the reactors; there is nothing to serve yet.
    #[expect(clippy::needless_pass_by_value, reason = "the reactors take it")]
    pub fn start(config: ServerConfig) -> Result<Self, StartError> {
        let _ = config;
        Ok(Self {
            shared: Arc::new(Shared {
                state: Mutex::new(State::default()),
            }),
        })
    }

    /// Memory: what there is, what is used, what things cost.
    pub fn capacity(&self) -> Capacity {
        Capacity {
            budget_bytes: 0,
            used_bytes: 0,
            connection_idle_bytes: 0,
            connection_max_bytes: 0,
            volume_bytes: 0,
            slab_bytes: 0,
        }
    }

    /// Stops: no connection is accepted any more, commands in flight are answered, then every connection is
    /// closed; what has not ended after `patience` is cut off. Returns when the reactors have ended.
    pub fn stop(&self, patience: Duration) {
        let _ = patience;
    }

    /// The state. A panic under this lock would have left it between two whole calls at worst, so the lock is
    /// taken all the same.
    fn state(&self) -> MutexGuard<'_, State> {
        self.shared
            .state
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Refuses what would open a target to the network without anyone having said so.
    fn check_exposure<'a>(
        targets: impl Iterator<Item = &'a TargetDefinition>,
        portals: impl Iterator<Item = PortalDefinition>,
    ) -> Result<(), ServerError> {
        let mut outside = portals.filter(|portal| !portal.address.ip().is_loopback());
        let Some(portal) = outside.next() else {
            return Ok(());
        };
        for target in targets {
            if target.hosts == crate::HostPolicy::Local {
                return Err(ServerError::OpenToNetwork {
                    target: target.name.clone(),
                    portal,
                });
            }
        }
        Ok(())
    }
}
