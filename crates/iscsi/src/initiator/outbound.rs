//! What goes to the target: control PDUs, data-out, commands with immediate data.

use block::ByteRange;
use scsi::Lun;
use scsi::host::Transfer;
use session::{BufferRange, Buffers, Placement, SendList};
use zerocopy::big_endian::{U16, U32};
use zerocopy::{FromBytes as _, IntoBytes};

use super::table::{Phase, abort_tag};
use super::{Session, State};
use crate::framing::{OVERHEAD_MAX, push_end_of_segment, push_header, push_segment};
use crate::params::Digest;
use crate::text::TextBuilder;
use crate::wire::command::{ScsiCommand, TaskManagementRequest, function};
use crate::wire::data::DataOut;
use crate::wire::login::{LoginRequest, LogoutRequest, TextRequest};
use crate::wire::other::NopOut;
use crate::wire::{BHS_LEN, Bhs, FINAL, NO_TASK_TAG, U24, request};

/// A sequence of data-out that has not been sent in full.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) key: u16,
    /// The R2T's Target Transfer Tag; all ones for unsolicited data.
    pub(super) ttt: U32,
    pub(super) lun: [u8; 8],
    pub(super) data_sn: u32,
    /// The next byte to send, from the start of the command's data.
    pub(super) offset: u32,
    pub(super) left_bytes: u32,
}

/// A PDU that is no command and carries no blocks. Its CmdSN and ExpStatSN are filled in when it is emitted.
#[derive(Debug)]
pub(super) struct Control {
    header: [u8; BHS_LEN],
    segment: Vec<u8>,
}

/// Data up to this length are copied next to their header; longer ones are gathered from their buffer.
pub(super) const COPY_MAX_BYTES: u32 = 4096;

/// Parts of a list that one PDU takes: head, data, padding and digest.
const PDU_PARTS: usize = 3;

/// I: immediate delivery, which takes no CmdSN.
const IMMEDIATE: u8 = 0x40;
/// R and W of a SCSI Command.
const READ: u8 = 0x40;
const WRITE: u8 = 0x20;
/// ATTR: SIMPLE.
const SIMPLE: u8 = 1;

/// Initiator Task Tags of what is no command; a session has one of each at a time.
pub(super) const TAG_LOGIN: u32 = 0xFF01;
pub(super) const TAG_TEXT: u32 = 0xFF02;
pub(super) const TAG_LOGOUT: u32 = 0xFF03;
pub(super) const TAG_PING: u32 = 0xFF04;

impl Control {
    pub(super) fn login(flags: u8, isid: [u8; 6], text: Vec<u8>) -> Self {
        let header = LoginRequest {
            opcode: IMMEDIATE | request::LOGIN,
            flags,
            version_max: 0,
            version_min: 0,
            total_ahs_words: 0,
            data_segment_len: U24::new(text.len() as u32),
            isid,
            tsih: U16::ZERO,
            itt: U32::new(TAG_LOGIN),
            cid: U16::new(1),
            reserved: U16::ZERO,
            cmd_sn: U32::ZERO,
            exp_stat_sn: U32::ZERO,
            reserved_32: [0; 16],
        };
        Self::new(&header, text)
    }

    /// SendTargets=All.
    pub(super) fn send_targets() -> Self {
        let mut text = TextBuilder::default();
        text.push("SendTargets", "All");
        Self::text([0; 8], U32::new(NO_TASK_TAG), text.into_bytes())
    }

    /// Asks for the rest of an answer.
    pub(super) fn text_rest(lun: [u8; 8], ttt: U32) -> Self {
        Self::text(lun, ttt, Vec::new())
    }

    fn text(lun: [u8; 8], ttt: U32, text: Vec<u8>) -> Self {
        let header = TextRequest {
            opcode: IMMEDIATE | request::TEXT,
            flags: FINAL,
            reserved: [0; 2],
            total_ahs_words: 0,
            data_segment_len: U24::new(text.len() as u32),
            lun,
            itt: U32::new(TAG_TEXT),
            ttt,
            cmd_sn: U32::ZERO,
            exp_stat_sn: U32::ZERO,
            reserved_32: [0; 16],
        };
        Self::new(&header, text)
    }

    /// Closes the session.
    pub(super) fn logout() -> Self {
        let header = LogoutRequest {
            opcode: IMMEDIATE | request::LOGOUT,
            reason: FINAL,
            reserved: [0; 2],
            total_ahs_words: 0,
            data_segment_len: U24::default(),
            reserved_8: [0; 8],
            itt: U32::new(TAG_LOGOUT),
            cid: U16::ZERO,
            reserved_22: U16::ZERO,
            cmd_sn: U32::ZERO,
            exp_stat_sn: U32::ZERO,
            reserved_32: [0; 16],
        };
        Self::new(&header, Vec::new())
    }

    /// Answers a NOP-In.
    pub(super) fn nop(lun: [u8; 8], ttt: U32) -> Self {
        Self::nop_out(lun, NO_TASK_TAG, ttt)
    }

    /// Wants a NOP-In for an answer.
    pub(super) fn ping() -> Self {
        Self::nop_out([0; 8], TAG_PING, U32::new(NO_TASK_TAG))
    }

    fn nop_out(lun: [u8; 8], itt: u32, ttt: U32) -> Self {
        let header = NopOut {
            opcode: IMMEDIATE | request::NOP_OUT,
            flags: FINAL,
            reserved: [0; 2],
            total_ahs_words: 0,
            data_segment_len: U24::default(),
            lun,
            itt: U32::new(itt),
            ttt,
            cmd_sn: U32::ZERO,
            exp_stat_sn: U32::ZERO,
            reserved_32: [0; 16],
        };
        Self::new(&header, Vec::new())
    }

    /// Aborts the command of `itt`, whose CmdSN was `cmd_sn`.
    pub(super) fn abort_task(itt: u32, lun: Lun, cmd_sn: u32) -> Self {
        let header = TaskManagementRequest {
            opcode: IMMEDIATE | request::TASK_MANAGEMENT,
            function: FINAL | function::ABORT_TASK,
            reserved: [0; 2],
            total_ahs_words: 0,
            data_segment_len: U24::default(),
            lun: scsi::lun_bytes(lun),
            itt: U32::new(abort_tag(itt)),
            referenced_task_tag: U32::new(itt),
            cmd_sn: U32::ZERO,
            exp_stat_sn: U32::ZERO,
            ref_cmd_sn: U32::new(cmd_sn),
            exp_data_sn: U32::ZERO,
            reserved_40: [0; 8],
        };
        Self::new(&header, Vec::new())
    }

    fn new(header: &(impl IntoBytes + zerocopy::Immutable), segment: Vec<u8>) -> Self {
        let mut bytes = [0; BHS_LEN];
        bytes.copy_from_slice(header.as_bytes());
        Self {
            header: bytes,
            segment,
        }
    }

    /// The header with the numbers of the moment: every request has CmdSN and ExpStatSN in the same place.
    fn numbered(&self, cmd_sn: u32, exp_stat_sn: u32) -> [u8; BHS_LEN] {
        let mut header = self.header;
        header[24..28].copy_from_slice(&cmd_sn.to_be_bytes());
        header[28..32].copy_from_slice(&exp_stat_sn.to_be_bytes());
        header
    }
}

/// Which digests PDUs have.
#[derive(Clone, Copy)]
struct Digests {
    header: Digest,
    data: Digest,
}

impl Session {
    pub(super) fn emit(&mut self, buffers: &Buffers, out: &mut SendList) {
        let before_bytes = out.len_bytes();
        self.emit_pdus(before_bytes, buffers, out);
        self.emitted_bytes += out.len_bytes() - before_bytes;
    }

    fn emit_pdus(&mut self, before_bytes: u64, buffers: &Buffers, out: &mut SendList) {
        let digests = Digests {
            header: self.parameters.header_digest,
            data: self.parameters.data_digest,
        };
        if let State::Closed = self.state {
            return;
        }
        while let Some(control) = self.controls.front() {
            if !has_room(out, control.segment.len()) {
                return;
            }
            let header = control.numbered(self.cmd_sn, self.exp_stat_sn);
            emit_header(digests, &header, out);
            emit_copy(digests, &control.segment, out);
            self.controls.pop_front();
        }
        if !matches!(self.state, State::FullFeature) || self.is_leaving {
            return;
        }
        // Unsolicited data come in the order of their commands, since both queues are emitted in order.
        loop {
            if !self.emit_answers(digests, before_bytes, buffers, out) {
                return;
            }
            if !self.emit_command(digests, before_bytes, buffers, out) {
                return;
            }
        }
    }

    /// Emits data-out; `false` where the list is full.
    fn emit_answers(
        &mut self,
        digests: Digests,
        before_bytes: u64,
        buffers: &Buffers,
        out: &mut SendList,
    ) -> bool {
        let segment_max = self.parameters.send_segment_len_max;
        while let Some(answer) = self.answers.front_mut() {
            let len_bytes = answer.left_bytes.min(segment_max);
            if !has_room(out, copied_bytes(len_bytes)) {
                return false;
            }
            let entry = self.table.get_mut(answer.key);
            let is_last = len_bytes == answer.left_bytes;
            let header = DataOut {
                opcode: request::DATA_OUT,
                flags: if is_last { FINAL } else { 0 },
                reserved: [0; 2],
                total_ahs_words: 0,
                data_segment_len: U24::new(len_bytes),
                lun: answer.lun,
                itt: U32::new(entry.itt(answer.key)),
                ttt: answer.ttt,
                reserved_24: U32::ZERO,
                exp_stat_sn: U32::new(self.exp_stat_sn),
                reserved_32: U32::ZERO,
                data_sn: U32::new(answer.data_sn),
                buffer_offset: U32::new(answer.offset),
                reserved_44: U32::ZERO,
            };
            emit_header(digests, header.as_bytes(), out);
            emit_range(digests, entry.part(answer.offset, len_bytes), buffers, out);
            entry.placed_until_bytes = self.emitted_bytes + (out.len_bytes() - before_bytes);
            if is_last {
                entry.open_answers -= 1;
                self.answers.pop_front();
            } else {
                answer.data_sn += 1;
                answer.offset += len_bytes;
                answer.left_bytes -= len_bytes;
            }
        }
        true
    }

    /// Emits the next command; `false` where there is none, the window is closed, or the list full.
    fn emit_command(
        &mut self,
        digests: Digests,
        before_bytes: u64,
        buffers: &Buffers,
        out: &mut SendList,
    ) -> bool {
        let Some(&key) = self.pending.front() else {
            return false;
        };
        if !self.window_is_open() {
            return false;
        }
        let unasked = self.unasked(key);
        if !has_room(out, copied_bytes(unasked.immediate_bytes)) {
            return false;
        }
        let entry = self.table.get_mut(key);
        let (direction, expected_len) = match entry.transfer {
            Transfer::None => (0, 0),
            Transfer::ToHost(range) => (READ, range.len_bytes),
            Transfer::ToTarget(range) => (WRITE, range.len_bytes),
        };
        let is_final = if unasked.following_bytes == 0 {
            FINAL
        } else {
            0
        };
        let header = ScsiCommand {
            opcode: request::SCSI_COMMAND,
            flags: is_final | direction | SIMPLE,
            reserved: [0; 2],
            total_ahs_words: 0,
            data_segment_len: U24::new(unasked.immediate_bytes),
            lun: scsi::lun_bytes(self.lun),
            itt: U32::new(entry.itt(key)),
            expected_len: U32::new(expected_len),
            cmd_sn: U32::new(self.cmd_sn),
            exp_stat_sn: U32::new(self.exp_stat_sn),
            cdb: entry.cdb,
        };
        emit_header(digests, header.as_bytes(), out);
        if unasked.immediate_bytes > 0 {
            emit_range(
                digests,
                entry.part(0, unasked.immediate_bytes),
                buffers,
                out,
            );
            if unasked.immediate_bytes > COPY_MAX_BYTES {
                entry.placed_until_bytes = self.emitted_bytes + (out.len_bytes() - before_bytes);
            }
        }
        entry.phase = Phase::Active;
        entry.cmd_sn = self.cmd_sn;
        entry.moved_bytes = match entry.transfer {
            Transfer::ToTarget(_) => unasked.immediate_bytes + unasked.following_bytes,
            _ => 0,
        };
        self.cmd_sn = self.cmd_sn.wrapping_add(1);
        self.pending.pop_front();
        if unasked.following_bytes > 0 {
            entry.open_answers += 1;
            self.answers.push_back(Answer {
                key,
                ttt: U32::new(NO_TASK_TAG),
                lun: scsi::lun_bytes(self.lun),
                data_sn: 0,
                offset: unasked.immediate_bytes,
                left_bytes: unasked.following_bytes,
            });
        }
        true
    }

    /// How much of a command's data goes out without an R2T (RFC 7143 §4.2.5.2).
    fn unasked(&mut self, key: u16) -> Unasked {
        let values = &self.parameters;
        let Transfer::ToTarget(range) = self.table.get_mut(key).transfer else {
            return Unasked::default();
        };
        let burst = range.len_bytes.min(values.first_burst_len_max);
        let immediate_bytes = if values.immediate_data {
            burst.min(values.send_segment_len_max)
        } else {
            0
        };
        let following_bytes = if values.initial_r2t {
            0
        } else {
            burst - immediate_bytes
        };
        Unasked {
            immediate_bytes,
            following_bytes,
        }
    }

    pub(super) fn push_control(&mut self, control: Control) -> Result<(), super::Violation> {
        if self.controls.len() >= Self::CONTROLS_MAX {
            return Err(super::Violation::Limit {
                limit: "the replies that wait to be sent",
            });
        }
        self.controls.push_back(control);
        Ok(())
    }
}

/// Data that go out without an R2T.
#[derive(Default)]
struct Unasked {
    /// In the command's own PDU.
    immediate_bytes: u32,
    /// In Data-Out PDUs behind it.
    following_bytes: u32,
}

/// How many bytes of a list itself data of this length take.
fn copied_bytes(len_bytes: u32) -> usize {
    if len_bytes > COPY_MAX_BYTES {
        0
    } else {
        len_bytes as usize
    }
}

/// Whether a PDU surely fits.
fn has_room(out: &SendList, copied_bytes: usize) -> bool {
    out.free_parts() >= PDU_PARTS && out.free_bytes() >= OVERHEAD_MAX + copied_bytes
}

fn emit_header(digests: Digests, header: &[u8], out: &mut SendList) {
    debug_assert!(Bhs::ref_from_bytes(header).is_ok());
    push_header(header, digests.header, out);
}

/// Emits a data segment that is copied.
fn emit_copy(digests: Digests, segment: &[u8], out: &mut SendList) {
    push_segment(segment, digests.data, out);
}

/// Emits a data segment from a command's buffer.
fn emit_range(digests: Digests, range: BufferRange, buffers: &Buffers, out: &mut SendList) {
    let data = buffers.range(range);
    if range.len_bytes <= COPY_MAX_BYTES {
        // Copied, since one more part costs the operating system more than these few bytes.
        emit_copy(digests, data, out);
        return;
    }
    let fitted = out.place(Placement {
        source: Session::REGION,
        range: ByteRange {
            offset: buffers.offset(range),
            len: u64::from(range.len_bytes),
        },
    });
    assert!(fitted, "has_room was asked for these data");
    push_end_of_segment(data, digests.data, out);
}
