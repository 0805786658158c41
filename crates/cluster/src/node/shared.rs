//! What all tasks of a node work with.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use control::Engine;
use node_link::Replicas;
use tokio::task::AbortHandle;

use super::mirror::Mirror;
use crate::certificates::client;
use crate::client_tls::ClientTls;
use crate::etcd::Etcd;
use crate::etcd_program;
use crate::fault::Fault;
use crate::keys::Keys;
use crate::membership::{EtcdUse, FolderError, Membership, NodeFolder};
use crate::name::Name;
use crate::process::Supervised;
use crate::url::EtcdUrl;

/// What this machine is to others.
#[derive(Clone, Debug)]
pub(super) struct Own {
    pub(super) address: SocketAddr,
    pub(super) name: Name,
    pub(super) zone: Name,
    pub(super) memory_bytes: u64,
    /// The program etcd.
    pub(super) etcd: String,
}

/// The node.
pub(super) struct Shared {
    pub(super) own: Own,
    pub(super) folder: NodeFolder,
    /// How other daemons are asked.
    pub(super) link: ClientTls,
    /// What has the volumes of this machine.
    pub(super) engine: Engine,
    /// The copies that this machine holds.
    pub(super) replicas: Arc<Replicas>,
    /// The nodes as etcd had them last, for times when it does not answer.
    known: Mutex<Vec<KnownNode>>,
    /// Held by whatever places a volume.
    pub(super) placing: tokio::sync::Mutex<()>,
    /// Held by whatever changes the membership.
    pub(super) changing: tokio::sync::Mutex<()>,
    /// What etcd has, as far as this node has heard.
    mirror: Mutex<Mirror>,
    running: Mutex<Option<Running>>,
}

/// A node as etcd has it.
#[derive(Clone, Debug)]
pub(super) struct KnownNode {
    pub(super) name: Name,
    pub(super) address: SocketAddr,
    /// Whether its lease is alive.
    pub(super) is_up: bool,
}

/// A membership at work.
#[derive(Clone)]
pub(super) struct Active {
    pub(super) membership: Membership,
    pub(super) etcd: Etcd,
    /// What distinguishes this start of the node from others; absent while it holds no copies of
    /// volumes.
    pub(super) incarnation: Arc<OnceLock<u64>>,
}

struct Running {
    active: Active,
    process: Option<Supervised>,
    tasks: Vec<AbortHandle>,
}

impl Shared {
    pub(super) fn new(
        own: Own,
        folder: NodeFolder,
        link: ClientTls,
        (engine, replicas): (Engine, Arc<Replicas>),
    ) -> Self {
        Self {
            own,
            folder,
            link,
            engine,
            replicas,
            known: Mutex::default(),
            placing: tokio::sync::Mutex::default(),
            changing: tokio::sync::Mutex::default(),
            mirror: Mutex::default(),
            running: Mutex::default(),
        }
    }

    /// The numbers of the nodes that are drained.
    pub(super) fn drained(&self) -> BTreeSet<u32> {
        match self.active() {
            Ok(active) => self.mirror().drained(Keys::of(&active.membership.cluster)),
            Err(_) => BTreeSet::new(),
        }
    }

    pub(super) fn mirror(&self) -> MutexGuard<'_, Mirror> {
        self.mirror.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The membership.
    pub(super) fn active(&self) -> Result<Active, Fault> {
        let running = self.running();
        let running = running.as_ref().ok_or(Fault::NoCluster)?;
        Ok(running.active.clone())
    }

    /// An error if the machine belongs to a cluster.
    pub(super) fn require_none(&self) -> Result<(), Fault> {
        match &*self.running() {
            None => Ok(()),
            Some(Running { active, .. }) => Err(Fault::Member {
                cluster: active.membership.cluster.clone(),
                node: active.membership.node.name.clone(),
            }),
        }
    }

    /// Begins to work as a member: starts etcd, if this node runs it, and `tasks`.
    pub(super) fn begin(
        &self,
        membership: Membership,
        tasks: impl FnOnce(&Active) -> Vec<AbortHandle>,
    ) -> Result<(), Fault> {
        let etcd = etcd_of(&membership)?;
        let process = match &membership.etcd {
            EtcdUse::Own {
                runs: Some(run), ..
            } => {
                let id = membership.id.to_string();
                let node = &membership.node;
                let program = etcd_program::program(&self.own.etcd, &self.folder, node, &id, run);
                Some(Supervised::start(program))
            }
            EtcdUse::Own { runs: None, .. } | EtcdUse::External { .. } => None,
        };
        let active = Active {
            membership,
            etcd,
            incarnation: Arc::default(),
        };
        let tasks = tasks(&active);
        *self.running() = Some(Running {
            active,
            process,
            tasks,
        });
        Ok(())
    }

    /// Stops working as a member, and etcd. The membership stays in the folder.
    pub(super) async fn end(&self) {
        let running = self.running().take();
        let Some(running) = running else { return };
        for task in running.tasks {
            task.abort();
        }
        if let Some(process) = running.process {
            process.stop().await;
        }
        let replicas = Arc::clone(&self.replicas);
        // Its threads may take a second to end.
        let stopped = tokio::task::spawn_blocking(move || replicas.stop()).await;
        stopped.expect("stopping does not panic");
    }

    /// What etcd wrote last, if this node runs it.
    pub(super) fn last_of_etcd(&self) -> String {
        let running = self.running();
        let process = running
            .as_ref()
            .and_then(|running| running.process.as_ref());
        process.map_or_else(String::new, Supervised::last_lines)
    }

    /// Notes that the cluster exists: the membership is no longer given up.
    pub(super) fn establish(&self) -> Result<(), FolderError> {
        self.change(|membership| !std::mem::replace(&mut membership.is_established, true))
    }

    /// Notes where etcd is reached now.
    pub(super) fn note_endpoints(&self, now: &[EtcdUrl]) -> Result<(), FolderError> {
        self.change(|membership| match &mut membership.etcd {
            EtcdUse::Own { endpoints, .. } if *endpoints != *now => {
                *endpoints = now.to_vec();
                true
            }
            EtcdUse::Own { .. } | EtcdUse::External { .. } => false,
        })
    }

    /// Stores the membership if `change` returns true.
    fn change(&self, change: impl FnOnce(&mut Membership) -> bool) -> Result<(), FolderError> {
        let mut running = self.running();
        let Some(running) = running.as_mut() else {
            return Ok(());
        };
        if change(&mut running.active.membership) {
            self.folder.store(&running.active.membership)?;
        }
        Ok(())
    }

    /// The nodes as etcd had them last.
    pub(super) fn known(&self) -> MutexGuard<'_, Vec<KnownNode>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn running(&self) -> MutexGuard<'_, Option<Running>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A client of the cluster's etcd.
fn etcd_of(membership: &Membership) -> Result<Etcd, Fault> {
    let (urls, identity) = match &membership.etcd {
        EtcdUse::Own { endpoints, .. } => (endpoints, Some(&membership.identity)),
        EtcdUse::External { urls, tls } => (urls, tls.as_ref()),
    };
    let tls = identity.map(client).transpose();
    let tls = tls.map_err(crate::certificates::CertificateFault::from)?;
    Ok(Etcd::new(urls.clone(), tls))
}

/// Tasks that work with the node.
pub(super) type SharedNode = Arc<Shared>;
