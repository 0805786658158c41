//! The requester: requests in order, cut into packets.
//!
//! After a loss it goes back to the oldest unacknowledged packet ("go back N"), and requests the
//! rest of an RDMA READ from the end of the responses received.

use std::collections::VecDeque;
use std::time::Instant;

use crate::memory::MemoryRange;

use super::retry::Retry;
use super::window::Window;
use super::{Connection, Context, QpConfig, QpFailure, Transmitted, first_sequence};
use crate::backend::Backend;
use crate::transmit::{ExtendedHeaders, Payload, PushError, TransmitList};
use crate::wire::{
    Bth, Ieth, ImmDt, Opcode, PathMtu, Position, Psn, Qpn, Reth, SendTail, WriteTail,
};
use crate::work::{
    Completion, Data, MESSAGE_LEN_MAX_BYTES, MessageTooLong, Remote, SendOp, SendRequest, Signal,
    WorkStatus,
};

/// Why a request was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PostError {
    /// The queue pair does not exist.
    #[error("no such queue pair")]
    NoSuchQp,
    /// Not yet connected.
    #[error("the queue pair is not connected")]
    NotConnected,
    /// It has failed.
    #[error("the queue pair has failed")]
    Failed,
    /// The send queue is full.
    #[error("the queue is full")]
    Full,
    /// The peer answers no RDMA READ.
    #[error("the peer accepts no RDMA READ")]
    NoReads,
    /// The message is too long.
    #[error(transparent)]
    TooLong(#[from] MessageTooLong),
}

/// A request in the send queue (work queue element).
#[derive(Debug)]
pub(super) struct Wqe {
    pub(super) request: SendRequest,
    /// The sequence number of its first packet; an RDMA READ has one for each packet of its
    /// response.
    pub(super) first: u64,
    /// The one after its last.
    pub(super) end: u64,
    /// The number of its first packet among all packets that are sent.
    first_packet: u64,
    /// An RDMA READ that was sent since the requester last went back.
    pub(super) is_open_read: bool,
}

#[derive(Debug)]
pub(super) struct Requester {
    pub(super) qpn: Qpn,
    pub(super) data_may_stay: bool,
    pub(super) queue: VecDeque<Wqe>,
    pub(super) mtu: PathMtu,
    initiator_depth: u8,
    /// The sequence number of the next request.
    next: u64,
    next_packet: u64,
    /// The oldest sequence number that is not acknowledged.
    pub(super) unacked: u64,
    /// The sequence number that is sent next, the request that it belongs to, and its packet
    /// number.
    pub(super) sending: u64,
    pub(super) cursor: usize,
    sending_packet: u64,
    /// The sequence number after the newest that ever was sent.
    pub(super) sent_end: u64,
    pub(super) open_reads: u8,
    pub(super) window: Window,
    pub(super) retry: Retry,
    /// The oldest unacknowledged sequence number when the requester went back last: once is enough.
    pub(super) went_back_at: Option<u64>,
    /// The sequence number after the last request or packet that requested an acknowledgement.
    asked_until: u64,
    /// Requests that succeeded and were not to say so.
    silent: u16,
    /// The sequence number of the packet that failed, once one has.
    blamed: Option<u64>,
}

impl Requester {
    /// Packets within a message after which an acknowledgement is requested.
    const ACK_INTERVAL: u64 = 32;
    /// Packets that may be late without indicating congestion.
    const TAIL_PACKETS: u64 = 16;
    /// Packets after which an acknowledgement is requested if all requests may complete late.
    const SILENT_MAX: u64 = 8;

    pub(super) fn new(qpn: Qpn, config: &QpConfig) -> Self {
        Self {
            qpn,
            data_may_stay: config.may_stay,
            queue: VecDeque::with_capacity(usize::from(config.send_depth)),
            mtu: PathMtu::B1024,
            initiator_depth: 0,
            next: 0,
            next_packet: 0,
            unacked: 0,
            sending: 0,
            cursor: 0,
            sending_packet: 0,
            sent_end: 0,
            open_reads: 0,
            window: Window::new(),
            retry: Retry::new(0, 0),
            went_back_at: None,
            asked_until: 0,
            silent: 0,
            blamed: None,
        }
    }

    pub(super) fn start(&mut self, connection: &Connection, initiator_depth: u8, retry_max: u8) {
        let first = first_sequence(connection.send_psn);
        self.mtu = connection.path_mtu;
        self.initiator_depth = initiator_depth;
        self.next = first;
        self.unacked = first;
        self.sending = first;
        self.sent_end = first;
        self.asked_until = first;
        self.retry = Retry::new(retry_max, connection.rnr_retry_max);
    }

    #[inline]
    pub(super) fn post(&mut self, request: SendRequest) -> Result<(), PostError> {
        let len = request.op.len_bytes();
        if len > MESSAGE_LEN_MAX_BYTES {
            return Err(MessageTooLong::Bytes(MESSAGE_LEN_MAX_BYTES).into());
        }
        let is_read = request.op.is_read();
        if is_read && self.initiator_depth == 0 {
            return Err(PostError::NoReads);
        }
        let packets = u64::from(self.mtu.packets(len));
        self.queue.push_back(Wqe {
            request,
            first: self.next,
            end: self.next + packets,
            first_packet: self.next_packet,
            is_open_read: false,
        });
        self.next += packets;
        self.next_packet += if is_read { 1 } else { packets };
        Ok(())
    }

    /// Sends as much as window, depth and budget allow.
    pub(super) fn poll_transmit<B: Backend>(
        &mut self,
        connection: &Connection,
        budget: &mut u32,
        context: &mut Context<'_, B>,
        out: &mut TransmitList,
    ) -> Transmitted {
        if self.retry.is_paused(context.now) {
            return Transmitted::All;
        }
        let oldest = self.oldest_packet();
        while let Some(wqe) = self.queue.get(self.cursor) {
            let is_read = wqe.request.op.is_read();
            let open_packets = self.sending_packet - oldest;
            if open_packets >= self.window.packets()
                || is_read && self.open_reads >= self.initiator_depth
                || self.sending - self.unacked >= Self::SEQUENCES_OPEN_MAX
            {
                return Transmitted::All;
            }
            if *budget == 0 {
                return Transmitted::BudgetSpent;
            }
            let is_burst_end = open_packets + 1 >= self.window.packets() || *budget == 1;
            let end = wqe.end;
            let asks = match self.send_one(wqe, connection, is_burst_end, context.backend, out) {
                Ok(asks) => asks,
                Err(PushError::Full) => return Transmitted::ListFull,
                Err(PushError::Fault(_)) => {
                    self.blame(self.sending);
                    return Transmitted::Failed(QpFailure::Request(WorkStatus::LocalMemory));
                }
            };
            let timed = asks.then_some(self.sending);
            self.retry.on_sent(context.now, timed);
            self.advance_sending(is_read, end);
            if asks {
                self.asked_until = self.sending;
            }
            *budget -= 1;
        }
        Transmitted::All
    }

    /// Sequence numbers in flight: a peer distinguishes old from new by half of the 24-bit space.
    const SEQUENCES_OPEN_MAX: u64 = 1 << 22;

    /// Builds the packet at `sending`, which is this request's; whether it requests an
    /// acknowledgement.
    fn send_one<B: Backend>(
        &self,
        wqe: &Wqe,
        connection: &Connection,
        is_burst_end: bool,
        backend: &mut B,
        out: &mut TransmitList,
    ) -> Result<bool, PushError> {
        let op = &wqe.request.op;
        let index = (self.sending - wqe.first) as u32;
        let offset = index * self.mtu.bytes();
        let left = op.len_bytes() - offset;
        if let SendOp::Read(_, remote) = op {
            let bth = self.bth(connection, Opcode::ReadRequest).with_ack_request();
            let va = remote.va.wrapping_add(u64::from(offset));
            let headers = ExtendedHeaders::default().with(&Reth::new(va, remote.rkey, left));
            return out
                .push(&connection.flow, bth, &headers, Payload::None, backend)
                .map(|()| true);
        }
        let len = left.min(self.mtu.bytes());
        let is_last = left == len;
        let (opcode, headers, data) = match op {
            SendOp::Write(data, remote) => describe_write(data, remote, offset, len),
            _ => describe(op, Position::of(index, (wqe.end - wqe.first) as u32)),
        };
        let mut bth = self.bth(connection, opcode);
        if is_last {
            let is_again = self.sending < self.sent_end;
            let is_due = self.sending + 1 >= self.asked_until + Self::SILENT_MAX;
            if wqe.request.signal == Signal::Always || is_again || is_due || is_burst_end {
                bth = bth.with_ack_request();
            }
            if !matches!(op, SendOp::Write(..)) {
                bth = bth.with_solicited_event();
            }
        } else if is_burst_end || (self.sending + 1).is_multiple_of(Self::ACK_INTERVAL) {
            bth = bth.with_ack_request();
        }
        let payload = Payload::of(data, offset, len);
        let asks = bth.wants_ack();
        out.push(&connection.flow, bth, &headers, payload, backend)
            .map(|()| asks)
    }

    #[inline]
    fn bth(&self, connection: &Connection, opcode: Opcode) -> Bth {
        let psn = Psn::from_sequence(self.sending);
        Bth::new(opcode.to_wire(), connection.remote_qpn, psn)
    }

    /// The packet at `sending` has been built, of a request that ends before `end`.
    #[inline]
    fn advance_sending(&mut self, is_read: bool, end: u64) {
        if is_read {
            self.queue[self.cursor].is_open_read = true;
            self.open_reads += 1;
            self.sending = end;
        } else {
            self.sending += 1;
        }
        self.sending_packet += 1;
        if self.sending == end {
            self.cursor += 1;
        }
        self.sent_end = self.sent_end.max(self.sending);
    }

    /// The number of packets in flight.
    fn open_packets(&self) -> u64 {
        self.sending_packet - self.oldest_packet()
    }

    /// The number of the packet at `unacked` among all packets that are sent.
    fn oldest_packet(&self) -> u64 {
        match self.queue.front() {
            None => self.next_packet,
            Some(wqe) if wqe.request.op.is_read() => wqe.first_packet,
            Some(wqe) => wqe.first_packet + (self.unacked - wqe.first),
        }
    }

    /// Sends again from the oldest packet that is not acknowledged on.
    pub(super) fn go_back(&mut self) {
        self.went_back_at = Some(self.unacked);
        self.send_from_unacked();
    }

    /// Retransmits the last packet, which requests the acknowledgement that no packet in flight has
    /// requested (so none is a READ). The peer in turn requests whatever else has not arrived.
    fn request_acknowledgement(&mut self) {
        let is_of = |wqe: &Wqe| wqe.first < self.sending;
        let Some(cursor) = self.queue.iter().rposition(is_of) else {
            return;
        };
        self.cursor = cursor;
        self.sending -= 1;
        self.sending_packet -= 1;
    }

    fn send_from_unacked(&mut self) {
        let open = self.queue.iter_mut().take(self.cursor + 1);
        open.for_each(|wqe| wqe.is_open_read = false);
        self.open_reads = 0;
        self.sending = self.unacked;
        self.cursor = 0;
        self.sending_packet = self.oldest_packet();
    }

    /// Completes the request at the head of the queue. The data of a READ may lie elsewhere than
    /// the request said.
    pub(super) fn complete_head(
        &mut self,
        at: Option<MemoryRange>,
        completions: &mut VecDeque<Completion>,
    ) {
        let Some(wqe) = self.queue.front() else {
            return;
        };
        match wqe.request.signal {
            Signal::Always | Signal::Eventually => {
                let completion = wqe.request.completion(self.qpn, WorkStatus::Success);
                completions.push_back(Completion { at, ..completion });
            }
            Signal::OnError => self.silent += 1,
        }
        self.open_reads -= u8::from(wqe.is_open_read);
        self.unacked = wqe.end;
        self.cursor = self.cursor.saturating_sub(1);
        self.queue.pop_front();
    }

    /// `unacked` has moved: acknowledged packets need not be retransmitted, even if the requester
    /// had gone back to them.
    pub(super) fn skip_acknowledged(&mut self, packets_before: u64) {
        if self.sending < self.unacked {
            self.send_from_unacked();
        }
        let packets = self.oldest_packet().saturating_sub(packets_before);
        self.window.on_acknowledged(packets);
    }

    /// For [`Requester::skip_acknowledged`].
    pub(super) fn packets_acknowledged(&self) -> u64 {
        self.oldest_packet()
    }

    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        self.retry.poll_timeout()
    }

    pub(super) fn handle_timeout(&mut self, now: Instant) -> Option<QpFailure> {
        match self.retry.handle_timeout(now) {
            Err(status) => Some(QpFailure::Request(status)),
            Ok(false) => None,
            Ok(true) => {
                if self.asked_until <= self.unacked && self.unacked < self.sending {
                    self.request_acknowledgement();
                } else {
                    // So few packets congest nothing: their acknowledgement is late.
                    if self.open_packets() > Self::TAIL_PACKETS {
                        self.window.on_loss();
                    }
                    self.go_back();
                }
                self.retry.on_retransmission(now);
                None
            }
        }
    }

    /// Requests that succeeded silently since this was asked last.
    pub(super) fn take_silent(&mut self) -> u16 {
        std::mem::take(&mut self.silent)
    }

    /// The packet at `sequence` is the one that fails.
    pub(super) fn blame(&mut self, sequence: u64) {
        self.blamed = Some(sequence);
    }

    /// Ends all requests: the failed one, or the oldest if none failed, with `status`; the others
    /// are flushed.
    pub(super) fn flush(&mut self, status: WorkStatus, completions: &mut VecDeque<Completion>) {
        let blamed = self.blamed.unwrap_or(self.unacked);
        for wqe in self.queue.drain(..) {
            let is_blamed = (wqe.first..wqe.end).contains(&blamed);
            let status = if is_blamed {
                status
            } else {
                WorkStatus::Flushed
            };
            completions.push_back(wqe.request.completion(self.qpn, status));
        }
        self.cursor = 0;
        self.open_reads = 0;
        self.retry.stop();
    }
}

/// Opcode, headers and data of a packet of a WRITE. Each packet is a WRITE of its own. So all but
/// the last have one length and leave in long runs: the first packet of a longer message would be
/// longer than those that follow, and end its run.
#[inline]
fn describe_write<'a>(
    data: &'a Data,
    remote: &Remote,
    offset: u32,
    len: u32,
) -> (Opcode, ExtendedHeaders, &'a Data) {
    let va = remote.va.wrapping_add(u64::from(offset));
    let headers = ExtendedHeaders::default().with(&Reth::new(va, remote.rkey, len));
    let opcode = Opcode::Write(Position::Only, WriteTail::Plain);
    (opcode, headers, data)
}

/// Opcode, headers and data of a packet of a SEND, or of a WRITE with immediate data.
#[inline]
fn describe(op: &SendOp, position: Position) -> (Opcode, ExtendedHeaders, &Data) {
    let mut headers = ExtendedHeaders::default();
    let mut send_tail = SendTail::Plain;
    let mut write_tail = WriteTail::Plain;
    if let (true, SendOp::WriteImmediate(data, remote, _)) = (position.is_first(), op) {
        headers = headers.with(&Reth::new(remote.va, remote.rkey, data.len_bytes()));
    }
    if position.is_last() {
        match op {
            SendOp::SendImmediate(_, immediate) => {
                send_tail = SendTail::Immediate;
                headers = headers.with(&ImmDt {
                    data: (*immediate).into(),
                });
            }
            SendOp::WriteImmediate(_, _, immediate) => {
                write_tail = WriteTail::Immediate;
                headers = headers.with(&ImmDt {
                    data: (*immediate).into(),
                });
            }
            SendOp::SendInvalidate(_, key) => {
                send_tail = SendTail::Invalidate;
                headers = headers.with(&Ieth { rkey: key.0.into() });
            }
            SendOp::Send(_) | SendOp::Write(..) | SendOp::Read(..) => {}
        }
    }
    match op {
        SendOp::Send(data) | SendOp::SendImmediate(data, _) | SendOp::SendInvalidate(data, _) => {
            (Opcode::Send(position, send_tail), headers, data)
        }
        SendOp::WriteImmediate(data, _, _) => (Opcode::Write(position, write_tail), headers, data),
        SendOp::Write(..) | SendOp::Read(..) => {
            unreachable!("WRITEs and RDMA READs are not cut into packets here")
        }
    }
}
