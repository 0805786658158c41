//! Replies of a connection that do not belong to a task, and the numbers that all its PDUs carry.

use std::collections::VecDeque;

use zerocopy::IntoBytes;

use crate::wire::{BHS_LEN, Bhs, FINAL, NO_TASK_TAG, U24, response};

/// What sending a reply does to StatSN.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Numbering {
    /// The reply carries status: StatSN advances.
    Status,
    /// The reply shows the next StatSN.
    Peek,
}

/// A PDU that waits to be sent.
pub(crate) struct Reply {
    /// StatSN, ExpCmdSN and MaxCmdSN are filled in when it is sent.
    pub(crate) header: [u8; BHS_LEN],
    pub(crate) segment: Vec<u8>,
    numbering: Numbering,
    /// The connection ends once this is sent.
    is_last: bool,
}

impl Reply {
    /// Bytes of header and data.
    pub(crate) fn len_bytes(&self) -> usize {
        BHS_LEN + self.segment.len()
    }

    /// Whether it belongs to the login: digests are not in use yet (RFC 7143 §6.3).
    pub(crate) fn is_of_login(&self) -> bool {
        self.header[0] == response::LOGIN
    }
}

/// The fields of a target's header that differ from one reply to another; all others are zero.
pub(super) struct ReplyHeader {
    pub(super) opcode: u8,
    pub(super) flags: u8,
    pub(super) byte_2: u8,
    pub(super) lun: [u8; 8],
    pub(super) itt: u32,
    pub(super) ttt: u32,
}

impl ReplyHeader {
    pub(super) fn new(opcode: u8, itt: u32) -> Self {
        Self {
            opcode,
            flags: FINAL,
            byte_2: 0,
            lun: [0; 8],
            itt,
            ttt: 0,
        }
    }

    pub(super) fn encode(&self) -> [u8; BHS_LEN] {
        let mut header = [0; BHS_LEN];
        header[..3].copy_from_slice(&[self.opcode, self.flags, self.byte_2]);
        header[8..16].copy_from_slice(&self.lun);
        header[16..20].copy_from_slice(&self.itt.to_be_bytes());
        header[20..24].copy_from_slice(&self.ttt.to_be_bytes());
        header
    }
}

/// The replies of a connection that wait to be sent, and StatSN.
pub(crate) struct Replies {
    queue: VecDeque<Reply>,
    stat_sn: u32,
    /// The last reply of the connection was sent.
    is_finished: bool,
}

impl Replies {
    pub(super) fn new() -> Self {
        Self {
            queue: VecDeque::new(),
            stat_sn: 1,
            is_finished: false,
        }
    }

    /// Queues a reply. DataSegmentLength is filled in here.
    pub(super) fn push(
        &mut self,
        mut header: [u8; BHS_LEN],
        segment: Vec<u8>,
        numbering: Numbering,
    ) {
        header[5..8].copy_from_slice(U24::new(segment.len() as u32).as_bytes());
        self.queue.push_back(Reply {
            header,
            segment,
            numbering,
            is_last: false,
        });
    }

    /// The connection ends after the reply that was queued last.
    pub(super) fn close_after_last(&mut self) {
        if let Some(reply) = self.queue.back_mut() {
            reply.is_last = true;
        }
    }

    /// Rejects a PDU: its header is returned to the initiator.
    pub(super) fn reject(&mut self, bhs: &Bhs, reason: u8) {
        let header = ReplyHeader {
            byte_2: reason,
            ..ReplyHeader::new(response::REJECT, NO_TASK_TAG)
        };
        let segment = bhs.as_bytes().to_vec();
        self.push(header.encode(), segment, Numbering::Status);
    }

    /// The next reply to send.
    pub(crate) fn front(&self) -> Option<&Reply> {
        self.queue.front()
    }

    /// Takes the next reply, with its numbers. `(exp, max)` are ExpCmdSN and MaxCmdSN.
    pub(crate) fn pop(&mut self, (exp, max): (u32, u32)) -> Option<Reply> {
        let mut reply = self.queue.pop_front()?;
        for (i, number) in [self.stat_sn, exp, max].into_iter().enumerate() {
            reply.header[24 + 4 * i..28 + 4 * i].copy_from_slice(&number.to_be_bytes());
        }
        self.is_finished |= reply.is_last;
        if reply.numbering == Numbering::Status {
            self.advance_stat_sn();
        }
        Some(reply)
    }

    /// Whether the last reply of the connection was sent.
    pub(crate) fn is_finished(&self) -> bool {
        self.is_finished
    }

    /// StatSN of the next status.
    pub(crate) fn stat_sn(&self) -> u32 {
        self.stat_sn
    }

    /// A status has been sent.
    pub(crate) fn advance_stat_sn(&mut self) {
        self.stat_sn = self.stat_sn.wrapping_add(1);
    }

    pub(super) fn clear(&mut self) {
        self.queue.clear();
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// How many replies wait.
    pub(super) fn len(&self) -> usize {
        self.queue.len()
    }
}
