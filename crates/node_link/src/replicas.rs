//! The replicated volumes of this machine, whether or not its node runs.
//!
//! ```text
//!  cluster ──► Replicas: the node, and its volumes by number
//!                  ▲
//!  server ──► Managed<ReplicaVolume> of a definition
//! ```
//!
//! The server restores its volumes before the node is started, and a node may leave its cluster
//! while hosts use them. So the server has a volume of its own for each definition, which finds the
//! [`ReplicatedVolume`] here.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::hash::{BuildHasher as _, RandomState};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use memory::Budget;
use replica::{Config, MemberId};
use volume::{CopyRole, PathWatcher, ReplicaCopy, ReplicationInfo, VolumeSpec};

use crate::agreement::VolumeId;
use crate::clock::now;
use crate::node::Node;
use crate::options::{NodeError, VolumeOptions};
use crate::settings::settings;
use crate::volume::{ReplicatedVolume, Role};

/// The replicated volumes of this machine.
#[derive(Default)]
pub struct Replicas {
    state: Mutex<State>,
}

impl fmt::Debug for Replicas {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Replicas").finish_non_exhaustive()
    }
}

#[derive(Default)]
struct State {
    node: Option<Node>,
    /// Names of the cluster's nodes, by number.
    names: BTreeMap<u32, String>,
    volumes: BTreeMap<VolumeId, Arc<ReplicatedVolume>>,
    /// The numbers of the nodes that hold their copies.
    placed: BTreeMap<VolumeId, Vec<u32>>,
    /// The volumes that were opened since the node was started: a further copy is another member.
    opened_before: BTreeSet<VolumeId>,
    /// Who is notified of the paths of volumes, whether or not they are open.
    watchers: BTreeMap<VolumeId, PathWatcher>,
}

impl Replicas {
    /// The node runs.
    pub fn start(&self, node: Node) {
        drop(self.lock().replace(Some(node)));
    }

    /// Ends the node, if it runs, and all of its copies. Waits for its threads.
    pub fn stop(&self) {
        let former = self.lock().replace(None);
        drop(former);
    }

    /// Where another node is reached, and its name.
    ///
    /// # Errors
    /// If the node does not run, or a thread cannot be started.
    pub fn set_peer(&self, number: u32, name: &str, address: SocketAddr) -> Result<(), NodeError> {
        let mut state = self.lock();
        let node = state.node.as_ref().ok_or(NodeError::NotRunning)?;
        if number != node.number() {
            node.set_peer(number, vec![address])?;
        }
        state.names.insert(number, name.to_owned());
        Ok(())
    }

    /// Disconnects from all nodes except these.
    pub fn retain_peers(&self, numbers: &BTreeSet<u32>) {
        let mut state = self.lock();
        let state = &mut *state;
        let node = &state.node;
        state.names.retain(|number, _| {
            let stays = numbers.contains(number);
            if let Some(node) = node.as_ref().filter(|_| !stays) {
                node.remove_peer(*number);
            }
            stays
        });
    }

    /// These nodes, and no others, are not to be primaries. Primaries of this machine move away if
    /// it is one of them. Does nothing if the node does not run.
    pub fn set_drained(&self, numbers: &BTreeSet<u32>) {
        if let Some(node) = &self.lock().node {
            node.set_drained(numbers.clone());
        }
    }

    /// Begins this node's part in a volume: a copy, which is empty, if the volume is placed here.
    /// If the part has begun, the node gains a copy or gives it up as the placement says now.
    ///
    /// # Errors
    /// If the node does not run, the volume is not placed, or memory could not be allocated.
    pub fn open(&self, spec: &VolumeSpec, budget: &Arc<Budget>) -> Result<(), NodeError> {
        let placement = spec.kind.placement().ok_or(NodeError::NotPlaced)?;
        let id = VolumeId(placement.volume);
        let mut state = self.lock();
        let open = state.volumes.get(&id).cloned();
        let node = state.node.as_ref().ok_or(NodeError::NotRunning)?;
        let (number, incarnation) = (node.number(), node.incarnation());
        let is_here = placement.nodes.contains(&number);
        let former = open.as_ref().and_then(|open| open.member());
        let member = is_here.then(|| {
            former.unwrap_or_else(|| MemberId {
                node: number,
                incarnation: if state.opened_before.insert(id) {
                    incarnation
                } else {
                    RandomState::new().hash_one((id, now()))
                },
            })
        });
        let geometry = spec.geometry();
        let options = VolumeOptions {
            geometry,
            settings: settings(geometry),
            member,
            budget: Arc::clone(budget),
        };
        state.placed.insert(id, placement.nodes.clone());
        if let Some(open) = open {
            // To free the memory of a large one takes long.
            drop(state);
            return open.place(options);
        }
        let node = state.node.as_ref().ok_or(NodeError::NotRunning)?;
        let volume = node.open(id, options)?;
        if let Some(watcher) = state.watchers.get(&id) {
            volume.watch_path(Arc::clone(watcher));
        }
        state.volumes.insert(id, volume);
        Ok(())
    }

    /// Has `watcher` called after each change of a volume's path, until [`Self::unwatch`].
    pub(crate) fn watch(&self, id: VolumeId, watcher: PathWatcher) {
        let mut state = self.lock();
        if let Some(volume) = state.volumes.get(&id) {
            volume.watch_path(Arc::clone(&watcher));
        }
        state.watchers.insert(id, watcher);
    }

    pub(crate) fn unwatch(&self, id: VolumeId) {
        self.lock().watchers.remove(&id);
    }

    /// The number of the node, if it runs.
    pub(crate) fn number(&self) -> Option<u32> {
        self.lock().node.as_ref().map(Node::number)
    }

    /// The numbers of the nodes that hold copies of a volume; nothing if it is not open.
    pub(crate) fn placed(&self, id: VolumeId) -> Option<Vec<u32>> {
        self.lock().placed.get(&id).cloned()
    }

    /// Ends this node's part in a volume.
    pub fn close(&self, id: VolumeId) {
        let mut state = self.lock();
        state.volumes.remove(&id);
        state.placed.remove(&id);
        let volume = state.node.as_ref().and_then(|node| node.forget(id));
        drop(state);
        if let Some(volume) = volume {
            volume.close();
        }
    }

    /// The volumes that are open.
    pub fn volumes(&self) -> Vec<VolumeId> {
        self.lock().volumes.keys().copied().collect()
    }

    /// The agreement has this configuration of a volume.
    pub fn see(&self, id: VolumeId, config: Config) {
        if let Some(volume) = self.volume(id) {
            volume.see(config);
        }
    }

    pub(crate) fn volume(&self, id: VolumeId) -> Option<Arc<ReplicatedVolume>> {
        self.lock().volumes.get(&id).cloned()
    }

    /// How the copies of a volume are.
    pub(crate) fn info(&self, spec: &VolumeSpec, volume: &ReplicatedVolume) -> ReplicationInfo {
        let status = volume.status();
        let state = self.lock();
        let placed = spec.kind.placement();
        let placed = placed.and_then(|it| state.placed.get(&VolumeId(it.volume)));
        let nodes = placed.map_or(&[][..], Vec::as_slice);
        let copies = nodes.iter().map(|node| {
            // The configuration may still name what this node had before it was restarted.
            let is_own = state.node.as_ref().is_some_and(|own| own.number() == *node);
            let counts = !is_own || matches!(status.role, Role::Primary | Role::Secondary);
            let in_sync = status.in_sync.iter().any(|member| member.node == *node) && counts;
            let primary = status.primary.filter(|primary| primary.node == *node);
            let is_primary = primary.is_some() && counts;
            let copied = status.copies.iter().find(|(id, _)| id.node == *node);
            let shift = spec.block_size.shift();
            let own = state.node.as_ref();
            let is_connected = |own: &Node| own.number() == *node || own.is_connected(*node);
            ReplicaCopy {
                node: match state.names.get(node) {
                    Some(name) => name.clone(),
                    None => node.to_string(),
                },
                role: match (is_primary, in_sync) {
                    (true, _) => CopyRole::Primary,
                    (false, true) => CopyRole::InSync,
                    (false, false) => CopyRole::OutOfSync,
                },
                is_connected: own.is_some_and(is_connected),
                copied_through_bytes: copied.map(|(_, next)| next.0 << shift),
            }
        });
        ReplicationInfo {
            epoch: status.epoch.0,
            copies: copies.collect(),
            copied_bytes: status.copied_bytes,
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// The state with another node and without volumes. The server's volumes stay, and watch.
    fn replace(&mut self, node: Option<Node>) -> Self {
        let next = Self {
            node,
            watchers: std::mem::take(&mut self.watchers),
            ..Self::default()
        };
        std::mem::replace(self, next)
    }
}
