//! The responder: requests of the peer's, in order.
//!
//! The checks are in the architecture's order: sequence number, sequence of opcodes, rights of the
//! queue pair, resources, length, key, execution.

mod responses;

use std::collections::VecDeque;

use super::{Context, Dropped, QpConfig, QpFailure, first_sequence, rnr_timer};
use crate::backend::{AtomicOp, Backend};
use crate::memory::MemoryRange;
use crate::region::Right;
use crate::wire::{
    AtomicEth, AtomicOpcode, Extended, NakCode, Opcode, Packet, PathMtu, Position, Psn, Qpn, Reth,
    Rkey, Syndrome,
};
use crate::work::{Completion, RecvRequest, WorkId, WorkKind, WorkStatus};
use block::ByteRange;
use responses::Responses;

#[derive(Debug)]
pub(super) struct Responder {
    pub(super) qpn: Qpn,
    pub(super) config: QpConfig,
    pub(super) mtu: PathMtu,
    /// The next expected sequence number.
    pub(super) expected: u64,
    /// Messages completed (MSN).
    pub(super) completed: u32,
    message: Message,
    /// Whether the peer was asked to retransmit from `expected`.
    asked_to_go_back: bool,
    /// The completion of a receive whose message has begun.
    refused_with: WorkStatus,
    recvs: VecDeque<RecvRequest>,
    pub(super) responses: Responses,
}

/// The message whose first packet has arrived and whose last has not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Message {
    None,
    /// A SEND, and how much of it is there.
    Send {
        recv: RecvRequest,
        done_bytes: u32,
    },
    Write(Write),
}

/// An RDMA WRITE, and how much of it is missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Write {
    /// The address of the next byte.
    va: u64,
    rkey: Rkey,
    /// The number of missing bytes.
    left_bytes: u32,
    /// The length of the whole message.
    len_bytes: u32,
}

/// Why a request is not executed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Refusal {
    /// Refused permanently.
    Nak(NakCode),
    /// No receive is posted.
    NotReady,
    /// The message is longer than the receive that it began to fill.
    TooLong,
}

impl Refusal {
    const INVALID: Self = Self::Nak(NakCode::InvalidRequest);
    const ACCESS: Self = Self::Nak(NakCode::RemoteAccessError);
    const FAULT: Self = Self::Nak(NakCode::RemoteOperationalError);
}

type Outcome = Result<Option<QpFailure>, Dropped>;

impl Responder {
    /// The longest RDMA operation: 2^31 bytes.
    const DMA_LEN_MAX_BYTES: u32 = 1 << 31;

    pub(super) fn new(qpn: Qpn, config: &QpConfig) -> Self {
        Self {
            qpn,
            config: *config,
            mtu: PathMtu::B1024,
            expected: 0,
            completed: 0,
            message: Message::None,
            asked_to_go_back: false,
            refused_with: WorkStatus::Flushed,
            recvs: VecDeque::with_capacity(usize::from(config.recv_depth)),
            responses: Responses::new(config.responder_resources),
        }
    }

    pub(super) fn start(&mut self, first: Psn, mtu: PathMtu) {
        self.expected = first_sequence(first);
        self.mtu = mtu;
    }

    #[inline]
    pub(super) fn post(&mut self, request: RecvRequest) {
        self.recvs.push_back(request);
    }

    /// Handles a request.
    pub(super) fn handle_request<B: Backend>(
        &mut self,
        packet: &Packet<'_>,
        context: &mut Context<'_, B>,
    ) -> Outcome {
        let sequence = packet
            .bth
            .psn()
            .to_sequence(self.expected)
            .ok_or(Dropped::OutOfSequence)?;
        if sequence > self.expected {
            return self.on_gap();
        }
        if sequence < self.expected {
            return self.on_duplicate(sequence, packet, context);
        }
        match self.execute(packet, context) {
            Ok(sequences) => {
                self.asked_to_go_back = false;
                self.expected += sequences;
                let was_refused = self.responses.withdraw_refusal();
                let has_response = !matches!(packet.opcode, Opcode::Send(..) | Opcode::Write(..));
                if has_response {
                    // The response acknowledges everything before it, too.
                    self.responses.withdraw_acknowledgement();
                } else if packet.bth.wants_ack() || was_refused {
                    self.responses.acknowledge(self.expected - 1);
                }
                Ok(None)
            }
            Err(Refusal::NotReady) => {
                self.asked_to_go_back = true;
                let syndrome = Syndrome::RnrNak(rnr_timer(&self.config));
                self.responses.refuse(self.expected, syndrome);
                Ok(None)
            }
            Err(Refusal::TooLong) => Ok(Some(
                self.refuse(NakCode::InvalidRequest, WorkStatus::LocalLength),
            )),
            Err(Refusal::Nak(code)) => Ok(Some(self.refuse(code, recv_status(code)))),
        }
    }

    /// Refuses the packet at `expected` permanently. A receive that its message had begun to fill
    /// completes with `status`.
    fn refuse(&mut self, code: NakCode, status: WorkStatus) -> QpFailure {
        self.refused_with = status;
        self.responses.refuse(self.expected, Syndrome::Nak(code));
        QpFailure::Responder(code)
    }

    /// A packet is missing before this one.
    fn on_gap(&mut self) -> Outcome {
        if !self.asked_to_go_back {
            self.asked_to_go_back = true;
            let syndrome = Syndrome::Nak(NakCode::PsnSequenceError);
            self.responses.refuse(self.expected, syndrome);
        }
        Err(Dropped::OutOfSequence)
    }

    /// The packet is a duplicate. Its effect is not repeated.
    fn on_duplicate<B: Backend>(
        &mut self,
        sequence: u64,
        packet: &Packet<'_>,
        context: &mut Context<'_, B>,
    ) -> Outcome {
        match (packet.opcode, &packet.extended) {
            (Opcode::ReadRequest, Extended::Rdma(reth)) => {
                let len = reth.dma_len.get();
                let end = sequence + u64::from(self.mtu.packets(len));
                // A retry requests the same bytes or the rest of them, never more.
                let may_read = self.config.access.read;
                if !may_read || len > Self::DMA_LEN_MAX_BYTES || end > self.expected {
                    return Err(Dropped::OutOfSequence);
                }
                self.resolve_read(reth, context)
                    .map_err(|_| Dropped::OutOfSequence)?;
                self.responses.read_again(sequence, end, reth);
                Ok(None)
            }
            (Opcode::Atomic(_), _) => {
                if !self.responses.atomic_again(sequence) {
                    return Err(Dropped::OutOfSequence);
                }
                Ok(None)
            }
            _ => {
                self.responses.acknowledge_duplicate(self.expected - 1);
                Ok(None)
            }
        }
    }

    /// Executes the packet at `expected`. Returns how many sequence numbers it takes.
    fn execute<B: Backend>(
        &mut self,
        packet: &Packet<'_>,
        context: &mut Context<'_, B>,
    ) -> Result<u64, Refusal> {
        match packet.opcode {
            Opcode::Send(position, _) => self.on_send(position, packet, context).map(|()| 1),
            Opcode::Write(position, _) => self.on_write(position, packet, context).map(|()| 1),
            Opcode::ReadRequest => self.on_read(packet, context),
            Opcode::Atomic(code) => self.on_atomic(code, packet, context).map(|()| 1),
            Opcode::ReadResponse(_)
            | Opcode::Acknowledge
            | Opcode::AtomicAcknowledge
            | Opcode::DatagramSend
            | Opcode::CongestionNotification => Err(Refusal::INVALID),
        }
    }

    fn on_send<B: Backend>(
        &mut self,
        position: Position,
        packet: &Packet<'_>,
        context: &mut Context<'_, B>,
    ) -> Result<(), Refusal> {
        let (recv, done_bytes) = match (position.is_first(), self.message) {
            (true, Message::None) => (*self.recvs.front().ok_or(Refusal::NotReady)?, 0),
            (false, Message::Send { recv, done_bytes }) => (recv, done_bytes),
            _ => return Err(Refusal::INVALID),
        };
        self.check_len(position, packet.payload)?;
        let key = match packet.extended {
            Extended::Invalidate(ieth) => Some(Rkey(ieth.rkey.get())),
            _ => None,
        };
        if position.is_first() {
            self.recvs.pop_front();
            // From here on a failure completes the receive, since it is this message's.
            self.message = Message::Send { recv, done_bytes };
        }
        let len = packet.payload.len() as u32;
        if u64::from(done_bytes) + u64::from(len) > recv.into.range.len {
            return Err(Refusal::TooLong);
        }
        let may_stay = self.config.may_stay && position == Position::Only;
        let left = may_stay
            .then(|| context.backend.leave(packet.payload))
            .flatten();
        if left.is_none() {
            let offset = recv.into.range.offset + u64::from(done_bytes);
            context
                .backend
                .write(recv.into.memory, offset, packet.payload)
                .map_err(|_| Refusal::FAULT)?;
        }
        let done_bytes = done_bytes + len;
        if !position.is_last() {
            self.message = Message::Send { recv, done_bytes };
            return Ok(());
        }
        if let Some(key) = key {
            context
                .regions
                .invalidate_by_peer(self.config.domain, key)
                .map_err(|_| Refusal::ACCESS)?;
        }
        self.message = Message::None;
        self.complete_message();
        let mut completion = self.completion(recv.id, WorkStatus::Success, done_bytes);
        completion.at = left;
        completion.immediate = immediate(packet);
        completion.invalidated = key;
        context.completions.push_back(completion);
        Ok(())
    }

    fn on_write<B: Backend>(
        &mut self,
        position: Position,
        packet: &Packet<'_>,
        context: &mut Context<'_, B>,
    ) -> Result<(), Refusal> {
        let mut write = self.write_of(packet)?;
        if !self.config.access.write {
            return Err(Refusal::INVALID);
        }
        let immediate = immediate(packet);
        if immediate.is_some() && self.recvs.is_empty() {
            return Err(Refusal::NotReady);
        }
        self.check_len(position, packet.payload)?;
        let len = packet.payload.len() as u32;
        let fits = if position.is_last() {
            len == write.left_bytes
        } else {
            len < write.left_bytes
        };
        if !fits || write.len_bytes > Self::DMA_LEN_MAX_BYTES {
            return Err(Refusal::INVALID);
        }
        // Checks the whole rest: a message outside its region writes nothing. 0 bytes need no key.
        if write.len_bytes > 0 {
            let place = self.resolve(
                Right::Write,
                write.rkey,
                write.va,
                write.left_bytes,
                context,
            )?;
            context
                .backend
                .write(place.memory, place.range.offset, packet.payload)
                .map_err(|_| Refusal::FAULT)?;
        }
        if !position.is_last() {
            write.va = write.va.wrapping_add(u64::from(len));
            write.left_bytes -= len;
            self.message = Message::Write(write);
            return Ok(());
        }
        self.message = Message::None;
        self.complete_write(write.len_bytes, immediate, context);
        Ok(())
    }

    /// The RDMA WRITE that a packet begins or continues.
    fn write_of(&self, packet: &Packet<'_>) -> Result<Write, Refusal> {
        let reth = match packet.extended {
            Extended::Rdma(reth) | Extended::RdmaImmediate(reth, _) => Some(reth),
            _ => None,
        };
        match (self.message, reth) {
            (Message::None, Some(reth)) => Ok(Write {
                va: reth.va.get(),
                rkey: reth.rkey(),
                left_bytes: reth.dma_len.get(),
                len_bytes: reth.dma_len.get(),
            }),
            (Message::Write(write), None) => Ok(write),
            _ => Err(Refusal::INVALID),
        }
    }

    /// Completes an RDMA WRITE of `len_bytes` bytes. Immediate data consume a receive.
    fn complete_write<B: Backend>(
        &mut self,
        len_bytes: u32,
        immediate: Option<u32>,
        context: &mut Context<'_, B>,
    ) {
        self.complete_message();
        if let (Some(data), Some(recv)) = (immediate, immediate.and(self.recvs.front().copied())) {
            self.recvs.pop_front();
            let mut completion = self.completion(recv.id, WorkStatus::Success, len_bytes);
            completion.immediate = Some(data);
            context.completions.push_back(completion);
        }
    }

    fn on_read<B: Backend>(
        &mut self,
        packet: &Packet<'_>,
        context: &mut Context<'_, B>,
    ) -> Result<u64, Refusal> {
        let (Message::None, Extended::Rdma(reth)) = (self.message, packet.extended) else {
            return Err(Refusal::INVALID);
        };
        let len = reth.dma_len.get();
        if !self.config.access.read || len > Self::DMA_LEN_MAX_BYTES {
            return Err(Refusal::INVALID);
        }
        if !self.responses.has_room() {
            return Err(Refusal::INVALID);
        }
        self.resolve_read(&reth, context)?;
        let sequences = u64::from(self.mtu.packets(len));
        self.complete_message();
        let end = self.expected + sequences;
        self.responses
            .read(self.expected, end, &reth, self.completed);
        Ok(sequences)
    }

    fn on_atomic<B: Backend>(
        &mut self,
        code: AtomicOpcode,
        packet: &Packet<'_>,
        context: &mut Context<'_, B>,
    ) -> Result<(), Refusal> {
        let (Message::None, Extended::Atomic(atomic)) = (self.message, packet.extended) else {
            return Err(Refusal::INVALID);
        };
        let va = atomic.va.get();
        if !self.config.access.atomic || va % 8 != 0 || !self.responses.has_room() {
            return Err(Refusal::INVALID);
        }
        let rkey = Rkey(atomic.rkey.get());
        let place = self.resolve(Right::Atomic, rkey, va, 8, context)?;
        let original = context
            .backend
            .atomic(place.memory, place.range.offset, atomic_op(code, &atomic))
            .map_err(|_| Refusal::FAULT)?;
        self.complete_message();
        self.responses
            .atomic(self.expected, original, self.completed);
        Ok(())
    }

    /// The payload of a first or middle packet fills the path MTU; a last one is not empty.
    fn check_len(&self, position: Position, payload: &[u8]) -> Result<(), Refusal> {
        let (len, mtu) = (payload.len(), self.mtu.bytes() as usize);
        let right = match position {
            Position::First | Position::Middle => len == mtu,
            Position::Last => len > 0 && len <= mtu,
            Position::Only => len <= mtu,
        };
        if right { Ok(()) } else { Err(Refusal::INVALID) }
    }

    /// Checks the memory that an RDMA READ names; a length of 0 needs no key.
    fn resolve_read<B: Backend>(
        &self,
        reth: &Reth,
        context: &Context<'_, B>,
    ) -> Result<(), Refusal> {
        let len = reth.dma_len.get();
        if len == 0 {
            return Ok(());
        }
        self.resolve(Right::Read, reth.rkey(), reth.va.get(), len, context)
            .map(|_| ())
    }

    fn resolve<B: Backend>(
        &self,
        right: Right,
        rkey: Rkey,
        va: u64,
        len_bytes: u32,
        context: &Context<'_, B>,
    ) -> Result<MemoryRange, Refusal> {
        context
            .regions
            .resolve(self.config.domain, right, rkey, va, len_bytes)
            .map_err(|_| Refusal::ACCESS)
    }

    fn complete_message(&mut self) {
        self.completed = self.completed.wrapping_add(1) & 0x00FF_FFFF;
        self.responses.messages = self.completed;
    }

    /// Ends all receives. One that a message had begun to fill fails if that message was refused.
    pub(super) fn flush(&mut self, completions: &mut VecDeque<Completion>) {
        if let Message::Send { recv, done_bytes } = self.message {
            let status = self.refused_with;
            completions.push_back(self.completion(recv.id, status, done_bytes));
        }
        self.message = Message::None;
        while let Some(recv) = self.recvs.pop_front() {
            completions.push_back(self.completion(recv.id, WorkStatus::Flushed, 0));
        }
        self.responses.flush();
    }

    const fn completion(&self, id: WorkId, status: WorkStatus, len_bytes: u32) -> Completion {
        Completion {
            qpn: self.qpn,
            id,
            kind: WorkKind::Recv,
            status,
            len_bytes,
            at: None,
            immediate: None,
            invalidated: None,
        }
    }
}

/// The completion of a receive whose message is refused.
const fn recv_status(code: NakCode) -> WorkStatus {
    match code {
        NakCode::PsnSequenceError => WorkStatus::Flushed,
        NakCode::InvalidRequest => WorkStatus::RemoteInvalidRequest,
        NakCode::RemoteAccessError => WorkStatus::RemoteAccess,
        NakCode::RemoteOperationalError => WorkStatus::LocalMemory,
    }
}

fn immediate(packet: &Packet<'_>) -> Option<u32> {
    match packet.extended {
        Extended::Immediate(imm) | Extended::RdmaImmediate(_, imm) => Some(imm.data.get()),
        _ => None,
    }
}

fn atomic_op(code: AtomicOpcode, header: &AtomicEth) -> AtomicOp {
    match code {
        AtomicOpcode::CompareSwap => AtomicOp::CompareSwap {
            compare: header.compare.get(),
            swap: header.swap_or_add.get(),
        },
        AtomicOpcode::FetchAdd => AtomicOp::FetchAdd {
            add: header.swap_or_add.get(),
        },
    }
}

/// The placement of one packet of an RDMA READ response.
const fn part(place: MemoryRange, offset: u32, len: u32) -> MemoryRange {
    MemoryRange {
        memory: place.memory,
        range: ByteRange {
            offset: place.range.offset + offset as u64,
            len: len as u64,
        },
    }
}
