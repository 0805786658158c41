//! The server's end of one connection: calls in, replies out, credits.
//!
//! ```text
//!  message ──► free slot ─┬─────────────────────────────► ready ──► reply ──► free slot
//!                         └─► inbound: RDMA READs, data ────┘ │
//!                                                             └─► RDMA WRITEs of results, message
//! ```
//!
//! A slot is a credit: a client that uses more than it was granted is disconnected. Replies are
//! made one at a time, when the send queue takes them, so however many calls wait, memory is
//! bounded by the slots and by one reply.

use std::collections::VecDeque;
use std::marker::PhantomData;
use std::time::Instant;

use ::session::{MessageSession, RemoteKey, Session, WorkList};

use super::chunks::{Chunks, Fault, LISTS_BYTES_MAX};
use super::inbound::Inbound;
use super::outbound::{Outbound, Sent};
use super::slot::{CREDITS, GATHERED_BYTES_MAX, INLINE_BYTES_MAX, Slot};
use super::wire::{PrivateData, SIZE_UNIT_BYTES};
use crate::Backend;
use crate::v3::LISTING_BYTES_MAX;

/// How a peer breaks the protocol so that the connection must end. Everything else has a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SessionError {
    /// More calls are in flight than were granted.
    #[error("more than {max} calls are in flight, which is how many credits were granted")]
    TooManyCalls {
        /// The credits.
        max: u16,
    },
    /// The data of a read were not asked for, or are too many.
    #[error("data arrived that were not requested")]
    UnexpectedData,
}

/// A session, and what its connection is to be like.
pub struct Accepted<B> {
    /// The session.
    pub session: RdmaSession<B>,
    /// The private data of the reply.
    pub private_data: [u8; size_of::<PrivateData>()],
}

/// Takes the private data of a connection request (RFC 8797 section 4). A client without private
/// data of this format receives messages of up to 1024 bytes, and supports no remote invalidation.
pub fn accept<B: Backend>(now: Instant, private_data: &[u8]) -> Accepted<B> {
    let asked = PrivateData::parse(private_data);
    let own = INLINE_BYTES_MAX as u32;
    let inline_bytes = asked.map_or(SIZE_UNIT_BYTES, PrivateData::receive_bytes);
    let outbound = Outbound::new(
        inline_bytes.min(own) as usize,
        asked.is_some_and(PrivateData::invalidates),
    );
    let slots = RdmaSession::<B>::CREDITS;
    Accepted {
        session: RdmaSession {
            slots: (0..slots).map(|_| Slot::new(now)).collect(),
            free: (0..slots).rev().collect(),
            header: Chunks::default(),
            inbound: Inbound::default(),
            ready: VecDeque::with_capacity(usize::from(slots)),
            outbound,
            is_broken: false,
            backend: PhantomData,
        },
        // Keys of ours are never given to clients, so they invalidate none.
        private_data: zerocopy::transmute!(PrivateData::new(own, false)),
    }
}

/// The server's end of one connection over a queue pair: RPC-over-RDMA version 1 with the programs
/// and versions of [`NfsSession`](crate::NfsSession).
#[derive(Debug)]
pub struct RdmaSession<B> {
    slots: Box<[Slot]>,
    /// Slots without a call.
    free: Vec<u16>,
    /// The header of the next message: memory to be used again.
    header: Chunks,
    inbound: Inbound,
    /// Calls that have arrived as a whole.
    ready: VecDeque<u16>,
    outbound: Outbound,
    is_broken: bool,
    backend: PhantomData<fn(&mut B)>,
}

impl<B> RdmaSession<B> {
    /// Calls in flight: the credits that are granted, and the receives to keep posted.
    pub const CREDITS: u16 = CREDITS;
    /// The length of each receive in bytes.
    pub const RECEIVE_LEN_BYTES: u32 = INLINE_BYTES_MAX as u32;
    /// Requests of the session's at once: a reply and two pieces of data for half of the calls.
    /// More would only wait in another queue.
    pub const SENDS: u16 = 96;
    /// The most RDMA READs at once.
    pub const READS_MAX: u8 = 16;
    /// The most memory that a connection takes in this session besides its receives, in bytes: what
    /// the program charges for it.
    pub const BYTES_MAX: u64 = {
        let slot = GATHERED_BYTES_MAX + size_of::<Slot>() + LISTS_BYTES_MAX;
        // The reply grows by doubling.
        (Self::CREDITS as usize * slot + 2 * (LISTING_BYTES_MAX + INLINE_BYTES_MAX)) as u64
    };
}

impl<B: Backend> MessageSession for RdmaSession<B> {
    fn handle_message(
        &mut self,
        now: Instant,
        message: &[u8],
        _: Option<RemoteKey>,
        backend: &mut B,
    ) -> Result<(), SessionError> {
        let header = self.header.read(message);
        if self.is_broken || header == Err(Fault::Ignored) {
            return Ok(());
        }
        let Some(index) = self.free.pop() else {
            self.is_broken = true;
            return Err(SessionError::TooManyCalls { max: Self::CREDITS });
        };
        let slot = &mut self.slots[usize::from(index)];
        std::mem::swap(&mut slot.chunks, &mut self.header);
        slot.begin(now, header);
        if slot.is_whole() {
            slot.finish(backend);
            self.ready.push_back(index);
        } else {
            self.inbound.begin(index);
        }
        Ok(())
    }

    fn handle_read(
        &mut self,
        _: Instant,
        tag: u64,
        data: &[u8],
        backend: &mut B,
    ) -> Result<(), SessionError> {
        if self.is_broken {
            return Ok(());
        }
        let first = self.inbound.first();
        let Some(index) = first.filter(|index| u64::from(*index) == tag) else {
            self.is_broken = true;
            return Err(SessionError::UnexpectedData);
        };
        let slot = &mut self.slots[usize::from(index)];
        slot.take(data, backend);
        if slot.is_whole() {
            slot.finish(backend);
            self.inbound.end_first();
            self.ready.push_back(index);
        }
        Ok(())
    }

    fn poll_transmit(&mut self, now: Instant, backend: &mut B, out: &mut dyn WorkList) {
        if self.is_broken {
            return;
        }
        self.inbound.poll(&mut self.slots, out);
        while let Some(&index) = self.ready.front() {
            let slot = &mut self.slots[usize::from(index)];
            if self.outbound.poll(now, slot, backend, out) == Sent::NoRoom {
                return;
            }
            slot.end();
            self.ready.pop_front();
            self.free.push(index);
        }
    }
}

impl<B: Backend> Session for RdmaSession<B> {
    type Backend = B;
    type Error = SessionError;

    fn wants_transmit(&self) -> bool {
        !self.is_broken && (!self.ready.is_empty() || self.inbound.wants())
    }

    fn is_idle(&self) -> bool {
        self.free.len() == self.slots.len()
    }

    fn is_closing(&self) -> bool {
        self.is_broken
    }

    fn handle_wake(&mut self, _: Instant, _: &mut B) -> Result<(), SessionError> {
        Ok(())
    }

    fn poll_timeout(&self) -> Option<Instant> {
        None
    }

    fn handle_timeout(&mut self, _: Instant, _: &mut B) -> Result<(), SessionError> {
        Ok(())
    }

    fn handle_close(&mut self, _: Instant, _: &mut B) {
        self.is_broken = true;
    }
}
