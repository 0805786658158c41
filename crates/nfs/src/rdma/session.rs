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
use super::outbound::{Outbound, REPLY_BYTES_KEPT, Sent};
use super::slot::{CREDITS, INLINE_BYTES_MAX, Slot};
use super::waiting::{GATHERED_BYTES_MAX, Waiting};
use super::wire::{PrivateData, SIZE_UNIT_BYTES};
use crate::Backend;

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
            waiting: Waiting::default(),
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
    /// Calls that other threads execute.
    waiting: Waiting,
    /// Calls that have arrived as a whole, and were executed if other threads do that.
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
        // Of a message, the bytes in front of and behind an argument in a chunk.
        let slot = 2 * INLINE_BYTES_MAX + size_of::<Slot>() + LISTS_BYTES_MAX;
        (Self::CREDITS as usize * slot + GATHERED_BYTES_MAX + REPLY_BYTES_KEPT) as u64
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
        slot.begin(now, header, backend);
        if slot.is_whole() {
            self.end_arrival(index, backend);
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
            self.inbound.end_first();
            self.end_arrival(index, backend);
        }
        Ok(())
    }

    fn poll_transmit(&mut self, now: Instant, backend: &mut B, out: &mut dyn WorkList) {
        if self.is_broken {
            return;
        }
        self.inbound.poll(&mut self.slots, &mut self.waiting, out);
        while let Some(&index) = self.ready.front() {
            let slot = &mut self.slots[usize::from(index)];
            match self.outbound.poll(now, slot, backend, out) {
                Sent::NoRoom => return,
                Sent::Waits => self.waiting.begin(index),
                Sent::Yes => {
                    slot.end();
                    self.waiting.end(slot);
                    self.free.push(index);
                }
            }
            self.ready.pop_front();
            self.submit(backend);
        }
        // Answered calls have freed memory for others.
        self.inbound.poll(&mut self.slots, &mut self.waiting, out);
    }
}

impl<B: Backend> RdmaSession<B> {
    /// A call has arrived as a whole.
    fn end_arrival(&mut self, index: u16, backend: &mut B) {
        let slot = &mut self.slots[usize::from(index)];
        slot.finish(backend);
        let room = self.outbound.data_room(&slot.chunks);
        if slot.waits(room, backend) {
            self.waiting.begin(index);
            self.submit(backend);
        } else {
            self.ready.push_back(index);
        }
    }

    /// Has calls executed by other threads, as many as there is room for.
    fn submit(&mut self, backend: &mut B) {
        while let Some(index) = self.waiting.submit(&mut self.slots, backend) {
            self.ready.push_back(index);
        }
    }
}

impl<B: Backend> Session for RdmaSession<B> {
    type Backend = B;
    type Error = SessionError;

    fn wants_transmit(&self) -> bool {
        !self.is_broken
            && (!self.ready.is_empty() || self.inbound.wants(&self.slots, &self.waiting))
    }

    fn is_idle(&self) -> bool {
        self.free.len() == self.slots.len()
    }

    fn is_closing(&self) -> bool {
        self.is_broken
    }

    fn handle_wake(&mut self, _: Instant, backend: &mut B) -> Result<(), SessionError> {
        while let Some(answer) = backend.next_answer() {
            let slot = &mut self.slots[usize::from(answer.slot)];
            let index = answer.slot;
            slot.answer(answer);
            self.ready.push_back(index);
        }
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
