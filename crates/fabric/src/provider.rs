//! The interface of all providers.

use std::io;
use std::net::IpAddr;
use std::os::fd::BorrowedFd;
use std::time::Duration;

use crate::error::FabricError;
use crate::verbs::{
    CommId, Completion, Event, MemoryId, MemoryRange, PathMtu, PostError, Psn, QpConfig, Qpn,
    RecvRequest, Region, RejReason, Remote, Rkey, SendRequest,
};

/// How often a paired queue pair retransmits: without a limit if the receiver is not ready.
pub(crate) const RETRIES: u8 = 7;

/// How long to wait for something to happen.
#[derive(Clone, Copy, Debug)]
pub enum Wait<'a> {
    /// Not at all.
    Poll,
    /// At most this long.
    AtMost(Duration),
    /// At most this long, or until `event` is readable.
    Event {
        /// How long.
        at_most: Duration,
        /// Ends the wait: another thread makes it readable to wake this one.
        event: BorrowedFd<'a>,
    },
}

/// Where to connect.
#[derive(Clone, Copy, Debug)]
pub struct ConnectTo<'a> {
    /// The peer's address.
    pub address: IpAddr,
    /// The port that it listens at, of the TCP port space.
    pub port: u16,
    /// The application's private data: at most 56 bytes.
    pub private_data: &'a [u8],
}

/// A peer's queue pair, as the peer has named it by other means than the connection manager.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeerQp {
    /// The peer's address.
    pub address: IpAddr,
    /// The queue pair's number.
    pub qpn: Qpn,
    /// Payload of a full packet: the same at both ends.
    pub path_mtu: PathMtu,
    /// The PSN of our first packet, which the peer has been given.
    pub send_psn: Psn,
    /// The PSN of the peer's first packet.
    pub recv_psn: Psn,
}

/// Queue pairs, connections, and memory that peers can reach. One thread owns a provider and drives
/// it by [`poll`](Provider::poll); nothing happens in between.
pub trait Provider {
    /// Allocates zeroed memory that requests can name. Adapters pin it, and the system limits
    /// pinned memory.
    fn allocate(&mut self, len_bytes: usize) -> Result<MemoryId, FabricError>;

    /// Frees memory. Keys to it must be invalidated and requests that name it completed; any that
    /// are left fail.
    fn release(&mut self, memory: MemoryId);

    /// The bytes of allocated memory; empty if there is no such memory. Memory that is named by a
    /// posted receive, by a READ that has not completed, or by a key with write access may change
    /// while it is read: copy it before checking it.
    fn bytes(&self, memory: MemoryId) -> &[u8];

    /// The bytes of a placement in allocated memory.
    ///
    /// # Panics
    /// If the placement is not inside the memory.
    fn placed(&self, place: MemoryRange) -> &[u8] {
        let start = place.range.offset as usize;
        &self.bytes(place.memory)[start..][..place.range.len as usize]
    }

    /// The bytes of allocated memory, for writing.
    fn bytes_mut(&mut self, memory: MemoryId) -> &mut [u8];

    /// Registers memory for remote access. Returns its address and key. The address is the
    /// requested one if the provider supports that; an adapter's address has the same offset in its
    /// page as the memory has.
    fn register(&mut self, region: Region) -> Result<Remote, FabricError>;

    /// Invalidates a key. Returns whether it was valid.
    fn invalidate(&mut self, key: Rkey) -> bool;

    /// Creates a queue pair.
    fn create_qp(&mut self, config: QpConfig) -> Result<Qpn, FabricError>;

    /// Destroys a queue pair, and ends its connection. Outstanding requests complete as flushed.
    fn destroy_qp(&mut self, qpn: Qpn);

    /// Posts a request to the send queue; it leaves with the next [`poll`](Self::poll). Its data
    /// stay as they are until it has completed.
    fn post_send(&mut self, qpn: Qpn, request: SendRequest) -> Result<(), PostError>;

    /// Posts a receive.
    fn post_recv(&mut self, qpn: Qpn, request: RecvRequest) -> Result<(), PostError>;

    /// Accepts connection requests to a port from now on.
    fn listen(&mut self, port: u16) -> Result<(), FabricError>;

    /// Rejects further requests for connections to a port; those that are made remain.
    fn stop_listening(&mut self, port: u16);

    /// Asks a peer for a connection of a new queue pair. An event reports the result.
    fn connect(&mut self, qpn: Qpn, to: &ConnectTo<'_>) -> Result<CommId, FabricError>;

    /// Connects a new queue pair with one that the peer has named by other means than the
    /// connection manager. It can be used from now on. There is no event when the peer disconnects:
    /// the queue pair fails instead. Over RoCE only.
    fn pair(&mut self, qpn: Qpn, with: &PeerQp) -> Result<(), FabricError>;

    /// Accepts a request with a new queue pair, which may be used from now on. At most 196 bytes of
    /// private data.
    fn accept(&mut self, id: CommId, qpn: Qpn, private_data: &[u8]) -> Result<(), FabricError>;

    /// Rejects a request. At most 148 bytes of private data. Adapters know one reason only,
    /// [`RejReason::CONSUMER`].
    fn reject(
        &mut self,
        id: CommId,
        reason: RejReason,
        private_data: &[u8],
    ) -> Result<(), FabricError>;

    /// Ends a connection: its queue pair fails at once, and an event reports when the peer has
    /// answered.
    fn disconnect(&mut self, id: CommId) -> Result<(), FabricError>;

    /// Allows a wait to notice completed requests up to a millisecond late, because nothing waits
    /// for them: an adapter then need not wake the thread for each. Messages are never noticed
    /// late. Off by default.
    fn may_notice_late(&mut self, _may: bool) {}

    /// Moves all data that can be moved. If there are none, and no completion or event is queued,
    /// waits first.
    fn poll(&mut self, wait: Wait<'_>) -> io::Result<()>;

    /// The next request that has ended.
    fn next_completion(&mut self) -> Option<Completion>;

    /// The next thing that happened.
    fn next_event(&mut self) -> Option<Event>;
}

impl<P: Provider + ?Sized> Provider for Box<P> {
    fn allocate(&mut self, len_bytes: usize) -> Result<MemoryId, FabricError> {
        (**self).allocate(len_bytes)
    }

    fn release(&mut self, memory: MemoryId) {
        (**self).release(memory);
    }

    fn bytes(&self, memory: MemoryId) -> &[u8] {
        (**self).bytes(memory)
    }

    fn bytes_mut(&mut self, memory: MemoryId) -> &mut [u8] {
        (**self).bytes_mut(memory)
    }

    fn register(&mut self, region: Region) -> Result<Remote, FabricError> {
        (**self).register(region)
    }

    fn invalidate(&mut self, key: Rkey) -> bool {
        (**self).invalidate(key)
    }

    fn create_qp(&mut self, config: QpConfig) -> Result<Qpn, FabricError> {
        (**self).create_qp(config)
    }

    fn destroy_qp(&mut self, qpn: Qpn) {
        (**self).destroy_qp(qpn);
    }

    fn post_send(&mut self, qpn: Qpn, request: SendRequest) -> Result<(), PostError> {
        (**self).post_send(qpn, request)
    }

    fn post_recv(&mut self, qpn: Qpn, request: RecvRequest) -> Result<(), PostError> {
        (**self).post_recv(qpn, request)
    }

    fn listen(&mut self, port: u16) -> Result<(), FabricError> {
        (**self).listen(port)
    }

    fn stop_listening(&mut self, port: u16) {
        (**self).stop_listening(port);
    }

    fn connect(&mut self, qpn: Qpn, to: &ConnectTo<'_>) -> Result<CommId, FabricError> {
        (**self).connect(qpn, to)
    }

    fn pair(&mut self, qpn: Qpn, with: &PeerQp) -> Result<(), FabricError> {
        (**self).pair(qpn, with)
    }

    fn accept(&mut self, id: CommId, qpn: Qpn, private_data: &[u8]) -> Result<(), FabricError> {
        (**self).accept(id, qpn, private_data)
    }

    fn reject(
        &mut self,
        id: CommId,
        reason: RejReason,
        private_data: &[u8],
    ) -> Result<(), FabricError> {
        (**self).reject(id, reason, private_data)
    }

    fn disconnect(&mut self, id: CommId) -> Result<(), FabricError> {
        (**self).disconnect(id)
    }

    fn may_notice_late(&mut self, may: bool) {
        (**self).may_notice_late(may);
    }

    fn poll(&mut self, wait: Wait<'_>) -> io::Result<()> {
        (**self).poll(wait)
    }

    fn next_completion(&mut self) -> Option<Completion> {
        (**self).next_completion()
    }

    fn next_event(&mut self) -> Option<Event> {
        (**self).next_event()
    }
}
