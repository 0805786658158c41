//! What a responder sends: responses to RDMA READs and atomics in the order of their requests, then
//! one acknowledgement for everything else.

use std::collections::VecDeque;

use super::{Responder, part};
use crate::backend::Backend;
use crate::qp::{Connection, Context, QpFailure, Transmitted};
use crate::region::Right;
use crate::transmit::{ExtendedHeaders, Payload, PushError, TransmitList};
use crate::wire::{Aeth, AtomicAckEth, Bth, NakCode, Opcode, Position, Psn, Reth, Rkey, Syndrome};
use crate::work::Gather;

/// The responses of a queue pair that have not been sent, and those to atomics that may have to be
/// sent again.
#[derive(Debug)]
pub(in crate::qp) struct Responses {
    /// Sorted by sequence number; no two overlap.
    queue: VecDeque<Response>,
    queue_max: usize,
    /// Results of the last atomics: these are never executed twice.
    atomics: VecDeque<AtomicResult>,
    atomics_max: usize,
    acknowledgement: Option<Acknowledgement>,
    /// Messages completed, as acknowledgements say it.
    pub(in crate::qp) messages: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Acknowledgement {
    sequence: u64,
    syndrome: Syndrome,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct AtomicResult {
    sequence: u64,
    original: u64,
    messages: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Response {
    Read(ReadResponse),
    Atomic(AtomicResult),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct ReadResponse {
    /// Sequence numbers of the first packet, of the next to send, and after the last.
    first: u64,
    next: u64,
    end: u64,
    va: u64,
    rkey: Rkey,
    len_bytes: u32,
    messages: u32,
    /// Whether this answers a duplicate, which may be dropped for the sake of a new request.
    is_again: bool,
}

impl Response {
    const fn range(&self) -> (u64, u64) {
        match self {
            Self::Read(read) => (read.first, read.end),
            Self::Atomic(atomic) => (atomic.sequence, atomic.sequence + 1),
        }
    }

    /// Whether it answers a duplicate of an RDMA READ.
    const fn is_again(&self) -> bool {
        matches!(self, Self::Read(read) if read.is_again)
    }
}

impl Responses {
    /// Answers for `resources` requests at once, and as many duplicates.
    pub(in crate::qp) fn new(resources: u8) -> Self {
        let queue_max = 2 * usize::from(resources);
        Self {
            queue: VecDeque::with_capacity(queue_max),
            queue_max,
            atomics: VecDeque::with_capacity(usize::from(resources)),
            atomics_max: usize::from(resources),
            acknowledgement: None,
            messages: 0,
        }
    }

    /// Whether one more new request can be answered; duplicates make room for it.
    pub(in crate::qp) fn has_room(&mut self) -> bool {
        if self.queue.len() < self.queue_max {
            return true;
        }
        match self.queue.iter().position(Response::is_again) {
            Some(index) => self.queue.remove(index).is_some(),
            None => false,
        }
    }

    /// Everything up to `sequence` has arrived.
    pub(in crate::qp) fn acknowledge(&mut self, sequence: u64) {
        self.acknowledgement = Some(Acknowledgement {
            sequence,
            syndrome: Syndrome::Ack,
        });
    }

    /// The same, for the sake of a duplicate: a refusal that is to be said already is not unsaid.
    pub(in crate::qp) fn acknowledge_duplicate(&mut self, sequence: u64) {
        let is_refusal = |said: &Acknowledgement| said.syndrome != Syndrome::Ack;
        if !self.acknowledgement.as_ref().is_some_and(is_refusal) {
            self.acknowledge(sequence);
        }
    }

    /// The packet at `sequence` is refused.
    pub(in crate::qp) fn refuse(&mut self, sequence: u64, syndrome: Syndrome) {
        self.acknowledgement = Some(Acknowledgement { sequence, syndrome });
    }

    /// A response says the same.
    pub(in crate::qp) fn withdraw_acknowledgement(&mut self) {
        self.acknowledgement = None;
    }

    /// Records that the packet that the peer was asked to retransmit has arrived. Returns whether
    /// the peer had been asked.
    pub(in crate::qp) fn withdraw_refusal(&mut self) -> bool {
        let is_refusal = |a: &Acknowledgement| a.syndrome != Syndrome::Ack;
        self.acknowledgement.take_if(|a| is_refusal(a)).is_some()
    }

    /// Whether a fatal refusal waits to be sent.
    pub(in crate::qp) fn is_refusing(&self) -> bool {
        matches!(
            self.acknowledgement,
            Some(Acknowledgement { syndrome: Syndrome::Nak(code), .. })
                if code != NakCode::PsnSequenceError
        )
    }

    /// A new RDMA READ is to be answered.
    pub(in crate::qp) fn read(&mut self, first: u64, end: u64, reth: &Reth, messages: u32) {
        self.queue.push_back(Response::Read(ReadResponse {
            first,
            next: first,
            end,
            va: reth.va.get(),
            rkey: reth.rkey(),
            len_bytes: reth.dma_len.get(),
            messages,
            is_again: false,
        }));
    }

    /// Answers an RDMA READ again, from the start of the duplicate.
    pub(in crate::qp) fn read_again(&mut self, first: u64, end: u64, reth: &Reth) {
        let untouched = |r: &Response| {
            matches!(r, Response::Read(read)
                if (read.first, read.end, read.next) == (first, end, first))
        };
        if self.queue.iter().any(untouched) {
            return;
        }
        self.queue.retain(|response| {
            let (other_first, other_end) = response.range();
            other_end <= first || other_first >= end
        });
        if self.queue.len() >= self.queue_max {
            return;
        }
        let response = Response::Read(ReadResponse {
            first,
            next: first,
            end,
            va: reth.va.get(),
            rkey: reth.rkey(),
            len_bytes: reth.dma_len.get(),
            messages: self.messages,
            is_again: true,
        });
        self.insert(first, response);
    }

    /// An atomic has been executed.
    pub(in crate::qp) fn atomic(&mut self, sequence: u64, original: u64, messages: u32) {
        let result = AtomicResult {
            sequence,
            original,
            messages,
        };
        if self.atomics.len() == self.atomics_max {
            self.atomics.pop_front();
        }
        self.atomics.push_back(result);
        self.queue.push_back(Response::Atomic(result));
    }

    /// An atomic is to be answered again; whether its result is still known.
    pub(in crate::qp) fn atomic_again(&mut self, sequence: u64) -> bool {
        let known = self.atomics.iter().find(|a| a.sequence == sequence);
        let Some(result) = known.copied() else {
            return false;
        };
        let queued = self.queue.iter().any(|r| r.range().0 == sequence);
        if !queued && self.queue.len() < self.queue_max {
            self.insert(sequence, Response::Atomic(result));
        }
        true
    }

    fn insert(&mut self, first: u64, response: Response) {
        let index = self.queue.partition_point(|r| r.range().0 < first);
        self.queue.insert(index, response);
    }

    /// Only a refusal is still said.
    pub(in crate::qp) fn flush(&mut self) {
        self.queue.clear();
        self.atomics.clear();
        if !self.is_refusing() {
            self.acknowledgement = None;
        }
    }
}

impl Responder {
    /// Sends responses to RDMA READs and atomics.
    pub(in crate::qp) fn poll_responses<B: Backend>(
        &mut self,
        connection: &Connection,
        budget: &mut u32,
        context: &mut Context<'_, B>,
        out: &mut TransmitList,
    ) -> Transmitted {
        while let Some(response) = self.responses.queue.front().copied() {
            if *budget == 0 {
                return Transmitted::BudgetSpent;
            }
            let pushed = match response {
                Response::Read(read) => self.send_read(connection, &read, context, out),
                Response::Atomic(atomic) => send_atomic(connection, &atomic, context, out),
            };
            match pushed {
                Ok(()) => *budget -= 1,
                Err(ReadError::ListFull) => return Transmitted::ListFull,
                // The data of a duplicate may have arrived before, and the key may have been
                // invalidated since.
                Err(ReadError::Refused(..)) if response.is_again() => {
                    self.responses.queue.pop_front();
                    continue;
                }
                Err(ReadError::Refused(code, sequence)) => {
                    self.responses.refuse(sequence, Syndrome::Nak(code));
                    return Transmitted::Failed(QpFailure::Responder(code));
                }
            }
            self.responses.advance_front();
        }
        Transmitted::All
    }

    /// Sends the acknowledgement that is due, once all responses have been sent: it answers for
    /// them, too.
    pub(in crate::qp) fn poll_acknowledgement<B: Backend>(
        &mut self,
        connection: &Connection,
        budget: &mut u32,
        context: &mut Context<'_, B>,
        out: &mut TransmitList,
    ) -> Transmitted {
        if !self.responses.queue.is_empty() {
            return Transmitted::All;
        }
        let Some(acknowledgement) = self.responses.acknowledgement else {
            return Transmitted::All;
        };
        if *budget == 0 {
            return Transmitted::BudgetSpent;
        }
        let psn = Psn::from_sequence(acknowledgement.sequence);
        let bth = Bth::new(Opcode::Acknowledge.to_wire(), connection.remote_qpn, psn);
        let aeth = Aeth::new(acknowledgement.syndrome, self.completed);
        let headers = ExtendedHeaders::default().with(&aeth);
        let pushed = out.push(
            &connection.flow,
            bth,
            &headers,
            Payload::None,
            context.backend,
        );
        if pushed.is_err() {
            return Transmitted::ListFull;
        }
        *budget -= 1;
        self.responses.acknowledgement = None;
        Transmitted::All
    }

    /// One packet of a response. The key is looked up again, since it may have been invalidated.
    fn send_read<B: Backend>(
        &self,
        connection: &Connection,
        read: &ReadResponse,
        context: &mut Context<'_, B>,
        out: &mut TransmitList,
    ) -> Result<(), ReadError> {
        let index = (read.next - read.first) as u32;
        let count = (read.end - read.first) as u32;
        let position = Position::of(index, count);
        let offset = index * self.mtu.bytes();
        let len = (read.len_bytes - offset).min(self.mtu.bytes());
        let mut gather = Gather::EMPTY;
        if len > 0 {
            let domain = self.config.domain;
            let place = context
                .regions
                .resolve(domain, Right::Read, read.rkey, read.va, read.len_bytes)
                .map_err(|_| ReadError::Refused(NakCode::RemoteAccessError, read.next))?;
            gather
                .push(part(place, offset, len))
                .expect("one part of at most a path MTU fits");
        }
        let psn = Psn::from_sequence(read.next);
        let opcode = Opcode::ReadResponse(position).to_wire();
        let bth = Bth::new(opcode, connection.remote_qpn, psn);
        let mut headers = ExtendedHeaders::default();
        if position != Position::Middle {
            headers = headers.with(&Aeth::new(Syndrome::Ack, read.messages));
        }
        let payload = Payload::Places {
            gather: &gather,
            offset: 0,
            len,
        };
        out.push(&connection.flow, bth, &headers, payload, context.backend)
            .map_err(|error| match error {
                PushError::Full => ReadError::ListFull,
                PushError::Fault(_) => {
                    ReadError::Refused(NakCode::RemoteOperationalError, read.next)
                }
            })
    }
}

impl Responses {
    /// A packet of the first response has been built.
    fn advance_front(&mut self) {
        match self.queue.front_mut() {
            Some(Response::Read(read)) if read.next + 1 < read.end => read.next += 1,
            _ => {
                self.queue.pop_front();
            }
        }
    }
}

enum ReadError {
    ListFull,
    /// The packet with this sequence number cannot be sent.
    Refused(NakCode, u64),
}

fn send_atomic<B: Backend>(
    connection: &Connection,
    atomic: &AtomicResult,
    context: &mut Context<'_, B>,
    out: &mut TransmitList,
) -> Result<(), ReadError> {
    let psn = Psn::from_sequence(atomic.sequence);
    let opcode = Opcode::AtomicAcknowledge.to_wire();
    let bth = Bth::new(opcode, connection.remote_qpn, psn);
    let headers = ExtendedHeaders::default()
        .with(&Aeth::new(Syndrome::Ack, atomic.messages))
        .with(&AtomicAckEth {
            original: atomic.original.into(),
        });
    out.push(
        &connection.flow,
        bth,
        &headers,
        Payload::None,
        context.backend,
    )
    .map_err(|_| ReadError::ListFull)
}
