//! What volumes use of their node: other nodes, the agreement, and where completions go.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};

use block::Completions;
use replica::wire::Packet;

use crate::agreement::Agreement;
use crate::outbox::Peer;

/// The connections of a node.
pub(crate) struct Links {
    /// This node.
    pub node: u32,
    pub agreement: Arc<dyn Agreement>,
    pub completions: Arc<dyn Completions>,
    peers: RwLock<BTreeMap<u32, Arc<Peer>>>,
    /// The nodes that are not to be primaries.
    drained: RwLock<BTreeSet<u32>>,
}

impl fmt::Debug for Links {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Links")
            .field("node", &self.node)
            .finish_non_exhaustive()
    }
}

impl Links {
    pub fn new(
        node: u32,
        agreement: Arc<dyn Agreement>,
        completions: Arc<dyn Completions>,
    ) -> Self {
        Self {
            node,
            agreement,
            completions,
            peers: RwLock::default(),
            drained: RwLock::default(),
        }
    }

    /// These nodes, and no others, are not to be primaries.
    pub fn set_drained(&self, nodes: BTreeSet<u32>) {
        *self.drained.write().unwrap_or_else(PoisonError::into_inner) = nodes;
    }

    /// Whether a node is not to be primary.
    pub fn is_drained(&self, node: u32) -> bool {
        let drained = self.drained.read().unwrap_or_else(PoisonError::into_inner);
        drained.contains(&node)
    }

    pub fn peer(&self, node: u32) -> Option<Arc<Peer>> {
        let peers = self.peers.read().unwrap_or_else(PoisonError::into_inner);
        peers.get(&node).cloned()
    }

    pub fn insert(&self, peer: Arc<Peer>) {
        let mut peers = self.peers.write().unwrap_or_else(PoisonError::into_inner);
        peers.insert(peer.node, peer);
    }

    pub fn remove(&self, node: u32) -> Option<Arc<Peer>> {
        let mut peers = self.peers.write().unwrap_or_else(PoisonError::into_inner);
        peers.remove(&node)
    }

    /// Ends connections whose handshakes take too long.
    pub fn handle_tick(&self) {
        let peers = self.peers.read().unwrap_or_else(PoisonError::into_inner);
        for peer in peers.values() {
            peer.handle_tick();
        }
    }

    /// Disconnects from all nodes.
    pub fn close(&self) {
        let peers = self.peers.read().unwrap_or_else(PoisonError::into_inner);
        for peer in peers.values() {
            peer.close();
        }
    }

    /// Sends `packet` if the node is connected.
    pub fn send(&self, node: u32, packet: &Packet) {
        if let Some(peer) = self.peer(node) {
            peer.send(packet);
        }
    }
}
