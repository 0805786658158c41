//! A node: its connections, its replicated volumes, and their threads.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, RwLock};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use block::Completions;
use replica::wire::{Hello, Packet};

use crate::agreement::{Agreement, VolumeId};
use crate::incoming::{Connections, Receiver};
use crate::links::Links;
use crate::options::{NodeError, NodeOptions, VolumeOptions};
use crate::outbox::Peer;
use crate::security::Security;
use crate::volume::ReplicatedVolume;

/// Time between two looks at what is due.
const TICK: Duration = Duration::from_millis(10);

/// A node, until it is dropped.
#[derive(Debug)]
pub struct Node {
    shared: Arc<Shared>,
    listening: SocketAddr,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

/// What threads use of a node.
#[derive(Debug)]
struct Shared {
    links: Arc<Links>,
    cluster: u64,
    incarnation: u64,
    security: Security,
    volumes: RwLock<BTreeMap<VolumeId, Arc<ReplicatedVolume>>>,
    connections: Arc<Connections>,
    is_over: Mutex<bool>,
    has_ended: Condvar,
}

impl Node {
    /// Starts a node without volumes that knows no other node.
    ///
    /// # Errors
    /// If a thread cannot be started.
    pub fn start(
        options: NodeOptions,
        agreement: Arc<dyn Agreement>,
        completions: Arc<dyn Completions>,
    ) -> Result<Self, NodeError> {
        let listening = options.listener.local_addr()?;
        let shared = Arc::new(Shared {
            links: Arc::new(Links::new(options.node, agreement, completions)),
            cluster: options.cluster,
            incarnation: options.incarnation,
            security: options.security,
            volumes: RwLock::default(),
            connections: Arc::default(),
            is_over: Mutex::new(false),
            has_ended: Condvar::new(),
        });
        let node = Self {
            shared: Arc::clone(&shared),
            listening,
            threads: Mutex::default(),
        };
        let listener = options.listener;
        node.spawn("node-accept", move || {
            let connections = Arc::clone(&shared.connections);
            connections.accept(&listener, &shared.security, &shared);
        })?;
        let shared = Arc::clone(&node.shared);
        node.spawn("node-clock", move || shared.run_clock())?;
        Ok(node)
    }

    /// Its number.
    pub fn number(&self) -> u32 {
        self.shared.links.node
    }

    /// What distinguishes this start of the node from others.
    pub fn incarnation(&self) -> u64 {
        self.shared.incarnation
    }

    /// Where other nodes connect to.
    pub fn listening(&self) -> SocketAddr {
        self.listening
    }

    /// Connects to another node at one of these addresses, now and again whenever the connection is
    /// lost. Its connections are accepted.
    ///
    /// # Errors
    /// If a thread cannot be started.
    pub fn set_peer(&self, node: u32, addresses: Vec<SocketAddr>) -> Result<(), NodeError> {
        // One at a time: each other node has one thread.
        let mut threads = lock(&self.threads);
        if let Some(peer) = self.shared.links.peer(node) {
            peer.set_addresses(addresses);
            return Ok(());
        }
        let peer = Arc::new(Peer::new(node, addresses));
        let hello = Hello {
            cluster: self.shared.cluster,
            from: self.shared.links.node,
            to: node,
            incarnation: self.shared.incarnation,
        };
        let thread = peer.start(self.shared.security.clone(), hello)?;
        self.shared.links.insert(peer);
        // Those of nodes that were removed.
        threads.retain(|thread| !thread.is_finished());
        threads.push(thread);
        Ok(())
    }

    /// Disconnects from another node, whose connections are no longer accepted.
    pub fn remove_peer(&self, node: u32) {
        if let Some(peer) = self.shared.links.remove(node) {
            peer.close();
        }
    }

    /// These nodes, and no others, are not to be primaries. If this one is among them, its
    /// primaries move to members in sync on other nodes, as soon as there are any.
    pub fn set_drained(&self, nodes: BTreeSet<u32>) {
        self.shared.links.set_drained(nodes);
    }

    /// Whether frames can be sent to another node.
    pub fn is_connected(&self, node: u32) -> bool {
        let peer = self.shared.links.peer(node);
        peer.is_some_and(|peer| peer.is_connected())
    }

    /// Opens a volume. Its copy, if there is one, is empty.
    ///
    /// # Errors
    /// If the options are invalid, memory could not be allocated, or the volume is open.
    pub fn open(
        &self,
        id: VolumeId,
        options: VolumeOptions,
    ) -> Result<Arc<ReplicatedVolume>, NodeError> {
        let volume = ReplicatedVolume::new(id, options, &self.shared.links)?;
        let mut volumes = self.shared.volumes.write();
        let volumes = volumes
            .as_mut()
            .unwrap_or_else(|poisoned| poisoned.get_mut());
        if volumes.contains_key(&id) {
            return Err(NodeError::Exists);
        }
        volumes.insert(id, Arc::clone(&volume));
        Ok(volume)
    }

    /// Ends this node's part in a volume; a copy is lost.
    pub fn close(&self, id: VolumeId) {
        if let Some(volume) = self.forget(id) {
            volume.close();
        }
    }

    /// The volume gets no messages any more. The caller closes it without holding a lock: to free
    /// the memory of a large one takes long.
    pub(crate) fn forget(&self, id: VolumeId) -> Option<Arc<ReplicatedVolume>> {
        let volumes = self.shared.volumes.write();
        let mut volumes = volumes.unwrap_or_else(PoisonError::into_inner);
        volumes.remove(&id)
    }

    fn spawn(&self, name: &str, run: impl FnOnce() + Send + 'static) -> io::Result<()> {
        let thread = thread::Builder::new().name(name.to_owned()).spawn(run)?;
        lock(&self.threads).push(thread);
        Ok(())
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        *lock(&self.shared.is_over) = true;
        self.shared.has_ended.notify_all();
        self.shared.connections.close(self.listening);
        self.shared.links.close();
        for volume in self.shared.volumes() {
            volume.close();
        }
        for thread in lock(&self.threads).drain(..) {
            // A thread that panicked has ended, too.
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn volumes(&self) -> Vec<Arc<ReplicatedVolume>> {
        let volumes = self.volumes.read().unwrap_or_else(PoisonError::into_inner);
        volumes.values().cloned().collect()
    }

    fn volume(&self, id: u64) -> Option<Arc<ReplicatedVolume>> {
        let volumes = self.volumes.read().unwrap_or_else(PoisonError::into_inner);
        volumes.get(&VolumeId(id)).cloned()
    }

    fn run_clock(&self) {
        let mut is_over = lock(&self.is_over);
        while !*is_over {
            let waited = self.has_ended.wait_timeout(is_over, TICK);
            drop(waited.unwrap_or_else(PoisonError::into_inner));
            let is_drained = self.links.is_drained(self.links.node);
            for volume in self.volumes() {
                volume.handle_tick();
                if is_drained {
                    volume.move_away();
                }
            }
            self.connections.handle_tick();
            self.links.handle_tick();
            is_over = lock(&self.is_over);
        }
    }
}

impl Receiver for Shared {
    fn admits(&self, hello: &Hello) -> bool {
        let is_for_me = hello.cluster == self.cluster && hello.to == self.links.node;
        is_for_me && self.links.peer(hello.from).is_some()
    }

    fn handle(&self, from: u32, packet: Packet) -> bool {
        let Some(peer) = self.links.peer(from) else {
            return false;
        };
        match packet {
            Packet::Hello(_) => return false,
            Packet::Ping(ping) => peer.on_ping(ping),
            Packet::Message { volume, envelope } => {
                if envelope.from.node != from {
                    return false;
                }
                if let Some(volume) = self.volume(volume) {
                    volume.handle_message(envelope);
                }
            }
            Packet::Command(command) => {
                if let Some(volume) = self.volume(command.volume) {
                    volume.handle_command(from, &command);
                }
            }
            Packet::Answer(answer) => {
                if let Some(volume) = self.volume(answer.volume) {
                    volume.handle_answer(from, answer);
                }
            }
        }
        true
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::sync::Barrier;

    use block::Completion;

    use super::*;
    use crate::agreement::MemoryAgreement;

    struct Nobody;

    impl Completions for Nobody {
        fn done(&self, _completion: Completion) {}
    }

    #[test]
    fn a_peer_that_several_threads_set_at_a_time_has_one_thread() {
        let options = NodeOptions {
            node: 0,
            cluster: 1,
            incarnation: 1,
            listener: TcpListener::bind("127.0.0.1:0").expect("a port"),
            security: Security::Plain,
        };
        let agreement = Arc::<MemoryAgreement>::default();
        let node = Node::start(options, agreement, Arc::new(Nobody)).expect("started");
        let barrier = Barrier::new(4);
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for peer in 1..=20 {
                        barrier.wait();
                        node.set_peer(peer, Vec::new()).expect("a thread");
                    }
                });
            }
        });
        // Those that accept and look at the clock, and one per peer.
        assert_eq!(lock(&node.threads).len(), 22);
    }
}
