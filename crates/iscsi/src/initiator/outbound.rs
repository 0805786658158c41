//! What is sent to the target: control PDUs, data-out, commands with immediate data.

use block::ByteRange;
use scsi::host::Transfer;
use session::{BufferRange, Buffers, Placement, SendList};
use zerocopy::big_endian::U32;
use zerocopy::{FromBytes as _, IntoBytes};

use super::error::Violation;
use super::pending::{Control, DataSequence};
use super::session::{Session, State};
use super::table::Phase;
use crate::framing::{OVERHEAD_MAX, push_end_of_segment, push_header, push_segment};
use crate::params::Digest;
use crate::wire::command::ScsiCommand;
use crate::wire::data::DataOut;
use crate::wire::{Bhs, FINAL, NO_TASK_TAG, U24, request};

/// Data up to this length are copied next to their header; longer ones are gathered from their
/// buffer.
pub(super) const COPY_MAX_BYTES: u32 = 4096;

/// Parts of a list that one PDU takes: head, data, padding and digest.
const PDU_PARTS: usize = 3;

/// R and W of a SCSI Command.
const READ: u8 = 0x40;
const WRITE: u8 = 0x20;
/// ATTR: SIMPLE.
const SIMPLE: u8 = 1;

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
        // Unsolicited data are sent in the order of their commands, since both queues are emitted
        // in order.
        loop {
            if !self.emit_answers(digests, before_bytes, buffers, out) {
                return;
            }
            if !self.emit_command(digests, before_bytes, buffers, out) {
                return;
            }
        }
    }

    /// Emits data-out. Returns `false` if the list is full.
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

    /// Emits the next command. Returns `false` if there is none, the window is closed, or the list
    /// is full.
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
        emit_header(digests, self.command_header(key, &unasked).as_bytes(), out);
        let entry = self.table.get_mut(key);
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
            self.answers.push_back(DataSequence {
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

    fn command_header(&mut self, key: u16, unasked: &Unasked) -> ScsiCommand {
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
        ScsiCommand {
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
        }
    }

    /// How much of a command's data is sent without an R2T (RFC 7143 §4.2.5.2).
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

    pub(super) fn push_control(&mut self, control: Control) -> Result<(), Violation> {
        if self.controls.len() >= Self::CONTROLS_MAX {
            return Err(Violation::Limit {
                limit: "the replies that wait to be sent",
            });
        }
        self.controls.push_back(control);
        Ok(())
    }
}

/// Data that are sent without an R2T, in bytes.
#[derive(Default)]
struct Unasked {
    /// In the command's own PDU.
    immediate_bytes: u32,
    /// In Data-Out PDUs behind it.
    following_bytes: u32,
}

/// How many own bytes of a list data of this length take.
fn copied_bytes(len_bytes: u32) -> usize {
    if len_bytes > COPY_MAX_BYTES {
        0
    } else {
        len_bytes as usize
    }
}

/// Whether a PDU fits.
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
