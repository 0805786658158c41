//! The completer: handles responses to requests.

use std::collections::VecDeque;

use crate::memory::MemoryRange;

use super::requester::Requester;
use super::{Context, Dropped, QpFailure};
use crate::backend::{Backend, MemoryFault};
use crate::wire::{Extended, NakCode, Opcode, Packet, Position, RnrTimer, Syndrome};
use crate::work::{Completion, SendOp, WorkStatus};

type Outcome = Result<Option<QpFailure>, Dropped>;

impl Requester {
    /// Handles a response.
    pub(super) fn handle_response<B: Backend>(
        &mut self,
        packet: &Packet<'_>,
        context: &mut Context<'_, B>,
    ) -> Outcome {
        let sequence = packet
            .bth
            .psn()
            .to_sequence(self.unacked)
            .ok_or(Dropped::Unexpected)?;
        // Older: a duplicate. Newer: an acknowledgement of a packet that was never sent.
        if sequence < self.unacked || sequence >= self.sent_end {
            return Err(Dropped::Unexpected);
        }
        match (packet.opcode, &packet.extended) {
            (Opcode::Acknowledge, Extended::Acknowledge(aeth)) => match aeth.syndrome() {
                Some(Syndrome::Ack) => Ok(self.on_ack(sequence, context)),
                Some(Syndrome::Nak(code)) => Ok(self.on_nak(sequence, code, context)),
                Some(Syndrome::RnrNak(timer)) => Ok(self.on_rnr_nak(sequence, timer, context)),
                None => Err(Dropped::Unexpected),
            },
            (Opcode::ReadResponse(position), _) => {
                self.on_read_response(sequence, position, packet.payload, context)
            }
            _ => Err(Dropped::Unexpected),
        }
    }

    /// Everything up to `sequence` has arrived.
    fn on_ack<B: Backend>(
        &mut self,
        sequence: u64,
        context: &mut Context<'_, B>,
    ) -> Option<QpFailure> {
        if !self.acknowledge(sequence + 1, context) {
            self.on_gap(context);
        }
        None
    }

    /// The responder misses the packet at `sequence`, or refuses it. All before it have arrived.
    fn on_nak<B: Backend>(
        &mut self,
        sequence: u64,
        code: NakCode,
        context: &mut Context<'_, B>,
    ) -> Option<QpFailure> {
        self.acknowledge(sequence, context);
        let status = match code {
            NakCode::PsnSequenceError => {
                self.on_gap(context);
                return None;
            }
            NakCode::InvalidRequest => WorkStatus::RemoteInvalidRequest,
            NakCode::RemoteAccessError => WorkStatus::RemoteAccess,
            NakCode::RemoteOperationalError => WorkStatus::RemoteOperation,
        };
        // Responses to an RDMA READ before it may have been lost. The responder answers no more, so
        // the READ is flushed.
        self.blame(sequence);
        Some(QpFailure::Request(status))
    }

    /// The responder has no receive for the message that the packet at `sequence` begins.
    fn on_rnr_nak<B: Backend>(
        &mut self,
        sequence: u64,
        timer: RnrTimer,
        context: &mut Context<'_, B>,
    ) -> Option<QpFailure> {
        self.acknowledge(sequence, context);
        let wait = timer.duration();
        if let Err(status) = self.retry.on_receiver_not_ready(context.now, wait) {
            return Some(QpFailure::Request(status));
        }
        self.go_back();
        self.went_back_at = None;
        None
    }

    fn on_read_response<B: Backend>(
        &mut self,
        sequence: u64,
        position: Position,
        payload: &[u8],
        context: &mut Context<'_, B>,
    ) -> Outcome {
        if !self.acknowledge(sequence, context) {
            self.on_gap(context);
            return Err(Dropped::OutOfSequence);
        }
        let mtu = self.mtu.bytes();
        let Some(wqe) = self.queue.front() else {
            return Err(Dropped::Unexpected);
        };
        let SendOp::Read(into, _) = &wqe.request.op else {
            return Err(Dropped::Unexpected);
        };
        let offset = (sequence - wqe.first) as u32 * mtu;
        let len = (into.len_bytes() - offset).min(mtu);
        let is_last = sequence + 1 == wqe.end;
        if payload.len() != len as usize || position.is_last() != is_last {
            return Ok(Some(QpFailure::Request(WorkStatus::BadResponse)));
        }
        let is_whole = is_last && offset == 0;
        let may_stay = self.data_may_stay && is_whole;
        let left = may_stay.then(|| context.backend.leave(payload)).flatten();
        if left.is_none() && scatter(payload, into.slice(offset, len), context.backend).is_err() {
            return Ok(Some(QpFailure::Request(WorkStatus::LocalMemory)));
        }
        let packets_before = self.packets_acknowledged();
        if is_last {
            self.complete_head(left, context.completions);
        } else {
            self.unacked = sequence + 1;
        }
        self.on_progress(packets_before, context);
        Ok(None)
    }

    /// All packets before `end` have arrived. Returns whether no READ before `end` still lacks
    /// responses.
    fn acknowledge<B: Backend>(&mut self, end: u64, context: &mut Context<'_, B>) -> bool {
        let before = self.unacked;
        let packets_before = self.packets_acknowledged();
        let is_whole = self.complete_until(end, context.completions);
        if self.unacked != before {
            self.on_progress(packets_before, context);
        }
        is_whole
    }

    fn complete_until(&mut self, end: u64, completions: &mut VecDeque<Completion>) -> bool {
        while self.unacked < end {
            let Some(wqe) = self.queue.front() else {
                return true;
            };
            if wqe.request.op.is_read() {
                return false;
            }
            if end < wqe.end {
                self.unacked = end;
                return true;
            }
            self.complete_head(None, completions);
        }
        true
    }

    fn on_progress<B: Backend>(&mut self, packets_before: u64, context: &mut Context<'_, B>) {
        self.went_back_at = None;
        self.skip_acknowledged(packets_before);
        let is_more_open = self.unacked < self.sending;
        self.retry
            .on_progress(context.now, self.unacked, is_more_open);
    }

    /// Something after `unacked` arrived and `unacked` did not: send from there, once.
    fn on_gap<B: Backend>(&mut self, context: &mut Context<'_, B>) {
        if self.went_back_at == Some(self.unacked) {
            return;
        }
        self.window.on_loss();
        self.go_back();
        self.retry.on_retransmission(context.now);
    }
}

/// Copies received data to their destination.
fn scatter<B: Backend>(
    payload: &[u8],
    places: impl Iterator<Item = MemoryRange>,
    backend: &mut B,
) -> Result<(), MemoryFault> {
    let mut rest = payload;
    for place in places {
        let (bytes, after) = rest.split_at(place.range.len as usize);
        rest = after;
        backend.write(place.memory, place.range.offset, bytes)?;
    }
    Ok(())
}
