//! What a connection sends: queued replies, R2Ts, Data-In and SCSI Responses.
//!
//! Read first: RFC 7143 §11.4, §11.7, §11.8.

use std::time::Instant;

use block::{ByteRange, ReadDest};
use scsi::{Response, ScsiStatus, Sense};
use session::{Placement, SendList};
use zerocopy::IntoBytes;
use zerocopy::big_endian::U32;

use crate::backend::Backend;
use crate::params::Digest;
use crate::target::task::{Progress, Task, Work};
use crate::tcp::session::{Connection, Full, Stage};
use crate::wire::command::{RESIDUAL_OVERFLOW, RESIDUAL_UNDERFLOW, ScsiResponse};
use crate::wire::data::{DataIn, R2t, STATUS_PRESENT};
use crate::wire::{BHS_LEN, DIGEST_LEN, FINAL, NO_TASK_TAG, U24, response};

/// Reads of less than a page are copied into the send list; longer ones are gathered from volume memory.
pub const COPY_LEN_MAX: u64 = (4 << 10) - 1;
/// The longest data segment that is copied (for its digest, or since it can't be sent from the volume): it must fit into a send
/// list.
const COPIED_LEN_MAX: u64 = 64 << 10;
/// What a send list must hold at the least.
pub const SEND_LIST_MIN_BYTES: usize = COPIED_LEN_MAX as usize + 1024;
/// Room that a PDU needs beside its data: header, both digests, padding.
const OVERHEAD_MAX: usize = BHS_LEN + 2 * DIGEST_LEN + 3;

/// Whether a task has sent all that it can for now.
pub(crate) enum Sent {
    /// Nothing more; the task is finished and can be freed.
    Finished,
    /// Nothing more until data-out come.
    Waiting,
    /// The list is full.
    Full,
}

impl<B: Backend> Connection<B> {
    pub(crate) fn transmit(&mut self, now: Instant, backend: &mut B, out: &mut SendList) {
        let digest = self.header_digest();
        while let Some(reply) = self.replies.front() {
            if out.free_bytes() < reply.len() + OVERHEAD_MAX || out.free_parts() < 2 {
                return;
            }
            let reply = self.replies.pop_front().expect("there is a front");
            self.send_reply(reply, digest, out);
        }
        while !self.closing {
            let Stage::Full(full) = &mut self.stage else {
                return;
            };
            let Some(slot) = full.tasks.next_ready() else {
                if self.begin_held(now, backend) {
                    continue;
                }
                return;
            };
            match self.send_task(slot, backend, out) {
                Sent::Full => return,
                Sent::Waiting => self.with_full(|full| full.tasks.pop_ready()),
                Sent::Finished => self.with_full(|full| full.finish_ready(slot, backend)),
            }
        }
    }

    pub(crate) fn with_full(&mut self, call: impl FnOnce(&mut Full)) {
        if let Stage::Full(full) = &mut self.stage {
            call(full);
        }
    }

    /// ExpCmdSN and MaxCmdSN: the next and the last command that the window takes.
    pub(crate) fn numbers(&self) -> (u32, u32) {
        match &self.stage {
            Stage::Full(full) => full.tasks.numbers(),
            Stage::Login(_) => (self.login_cmd_sn, self.login_cmd_sn),
        }
    }

    fn send_task(&mut self, slot: usize, backend: &mut B, out: &mut SendList) -> Sent {
        let Stage::Full(full) = &mut self.stage else {
            return Sent::Finished;
        };
        let Some(task) = full.tasks.get(slot) else {
            return Sent::Finished;
        };
        match task.progress {
            Progress::Receiving => self.send_r2ts(slot, out),
            Progress::Waiting
            | Progress::Filling
            | Progress::Working
            | Progress::Settling
            | Progress::Held => Sent::Waiting,
            Progress::Sending => {
                if !self.send_data_in(slot, backend, out) {
                    return Sent::Full;
                }
                if self.is_answered(slot) || self.send_response(slot, out) {
                    Sent::Finished
                } else {
                    Sent::Full
                }
            }
            Progress::Answered => Sent::Finished,
        }
    }

    fn is_answered(&self, slot: usize) -> bool {
        let Stage::Full(full) = &self.stage else {
            return true;
        };
        let task = full.tasks.get(slot);
        task.is_none_or(|task| task.progress == Progress::Answered)
    }

    /// Asks for data-out: bursts in order, as many at once as were negotiated.
    fn send_r2ts(&mut self, slot: usize, out: &mut SendList) -> Sent {
        let ((exp, max), stat_sn) = (self.numbers(), self.stat_sn);
        let digest = self.header_digest();
        let Stage::Full(full) = &mut self.stage else {
            return Sent::Finished;
        };
        let outstanding_max = full.parameters.outstanding_r2t_max as usize;
        let burst = u64::from(full.parameters.burst_len_max);
        let ttt = full.tasks.transfer_tag(slot);
        let Some(task) = full.tasks.get_mut(slot) else {
            return Sent::Finished;
        };
        while task.solicited < task.len && task.r2ts.len() < outstanding_max {
            if out.free_bytes() < OVERHEAD_MAX || out.free_parts() < 2 {
                return Sent::Full;
            }
            let len = burst.min(task.len - task.solicited);
            let r2t = R2t {
                opcode: response::R2T,
                flags: FINAL,
                reserved: [0; 2],
                total_ahs_words: 0,
                data_segment_len: U24::new(0),
                lun: lun_field(task.lun),
                itt: U32::new(task.itt),
                ttt: U32::new(ttt),
                stat_sn: U32::new(stat_sn),
                exp_cmd_sn: U32::new(exp),
                max_cmd_sn: U32::new(max),
                r2t_sn: U32::new(task.next_sn),
                buffer_offset: U32::new(task.solicited as u32),
                desired_len: U32::new(len as u32),
            };
            push_header(r2t.as_bytes(), digest, out);
            task.next_sn += 1;
            task.solicited += len;
            task.r2ts.push_back(task.solicited);
        }
        Sent::Waiting
    }

    /// Sends Data-In until all is sent or the list is full; the last PDU carries the status where it is GOOD,
    /// and marks the task as answered. False where the list is full.
    fn send_data_in(&mut self, slot: usize, backend: &mut B, out: &mut SendList) -> bool {
        let (header_digest, data_digest) = (self.header_digest(), self.data_digest());
        loop {
            let (exp, max) = self.numbers();
            let Stage::Full(full) = &mut self.stage else {
                return true;
            };
            let parameters = &full.parameters;
            let (segment_max, burst) = (
                u64::from(parameters.send_segment_len_max),
                u64::from(parameters.burst_len_max),
            );
            let nexus = full.opened().map(|opened| opened.nexus);
            let Some(task) = full.tasks.get_mut(slot) else {
                return true;
            };
            let is_data_in = matches!(task.work, Work::Read(_) | Work::Data(_));
            if !is_data_in || task.moved >= task.len {
                return true;
            }
            // A sequence ends at a multiple of MaxBurstLength (F).
            let to_burst_end = burst - task.moved % burst;
            let mut len = segment_max.min(task.len - task.moved).min(to_burst_end);
            let is_placeable = matches!(task.work, Work::Read(_)) && !task.must_copy;
            let must_copy = !is_placeable || data_digest == Digest::Crc32c;
            if must_copy {
                len = len.min(COPIED_LEN_MAX);
            }
            let copied = must_copy || len <= COPY_LEN_MAX;
            let own_bytes = OVERHEAD_MAX + if copied { len as usize } else { 0 };
            if out.free_bytes() < own_bytes || out.free_parts() < 4 {
                return false;
            }
            let last = task.moved + len == task.len;
            let phase_collapse = last && task.response.status == ScsiStatus::Good;
            let mut header = data_in(task, len, exp, max);
            if last || to_burst_end == len {
                header.flags |= FINAL;
            }
            if phase_collapse {
                let (flags, residual) = residual(task);
                header.flags |= STATUS_PRESENT | flags;
                header.stat_sn = U32::new(self.stat_sn);
                header.residual = U32::new(residual);
            }
            push_header(header.as_bytes(), header_digest, out);
            let sent = match nexus {
                Some(nexus) => push_data(task, len, copied, data_digest, nexus, backend, out),
                None => Ok(()),
            };
            if let Err(sense) = sent {
                out.retract(
                    BHS_LEN
                        + if header_digest == Digest::Crc32c {
                            DIGEST_LEN
                        } else {
                            0
                        },
                );
                task.response = Response::check(sense);
                task.work = Work::None;
                return true;
            }
            task.moved += len;
            task.next_sn += 1;
            if phase_collapse {
                task.enter(Progress::Answered);
                self.stat_sn = self.stat_sn.wrapping_add(1);
            }
        }
    }

    /// False where the list is full.
    fn send_response(&mut self, slot: usize, out: &mut SendList) -> bool {
        let ((exp, max), stat_sn) = (self.numbers(), self.stat_sn);
        let (header_digest, data_digest) = (self.header_digest(), self.data_digest());
        let Stage::Full(full) = &mut self.stage else {
            return true;
        };
        let Some(task) = full.tasks.get_mut(slot) else {
            return true;
        };
        let segment = sense_segment(&task.response);
        if out.free_bytes() < OVERHEAD_MAX + segment.len() || out.free_parts() < 2 {
            return false;
        }
        let mut header = scsi_response(task, segment.len());
        (header.stat_sn, header.exp_cmd_sn, header.max_cmd_sn) =
            (U32::new(stat_sn), U32::new(exp), U32::new(max));
        push_header(header.as_bytes(), header_digest, out);
        push_segment(&segment, data_digest, out);
        self.stat_sn = self.stat_sn.wrapping_add(1);
        true
    }
}

impl Full {
    /// The task at the front of the queue has been answered.
    pub(crate) fn finish_ready(&mut self, slot: usize, backend: &mut impl Backend) {
        self.tasks.pop_ready();
        if let Some(task) = self.tasks.get(slot) {
            Self::completed(task, backend);
        }
        self.tasks.remove(slot);
        self.tasks.give_room_back(backend);
    }
}

/// The header of a task's SCSI Response, but for its numbers.
pub(crate) fn scsi_response(task: &Task, segment_len: usize) -> ScsiResponse {
    let (flags, residual) = residual(task);
    ScsiResponse {
        opcode: response::SCSI_RESPONSE,
        flags: FINAL | flags,
        response: 0,
        status: task.response.status as u8,
        total_ahs_words: 0,
        data_segment_len: U24::new(segment_len as u32),
        reserved: [0; 8],
        itt: U32::new(task.itt),
        snack_tag: U32::new(0),
        stat_sn: U32::new(0),
        exp_cmd_sn: U32::new(0),
        max_cmd_sn: U32::new(0),
        exp_data_sn: U32::new(task.next_sn),
        bidi_residual: U32::new(0),
        residual: U32::new(residual),
    }
}

fn data_in(task: &Task, len: u64, exp_cmd_sn: u32, max_cmd_sn: u32) -> DataIn {
    DataIn {
        opcode: response::DATA_IN,
        flags: 0,
        reserved: 0,
        status: 0,
        total_ahs_words: 0,
        data_segment_len: U24::new(len as u32),
        lun: [0; 8],
        itt: U32::new(task.itt),
        ttt: U32::new(NO_TASK_TAG),
        stat_sn: U32::new(0),
        exp_cmd_sn: U32::new(exp_cmd_sn),
        max_cmd_sn: U32::new(max_cmd_sn),
        data_sn: U32::new(task.next_sn),
        buffer_offset: U32::new(task.moved as u32),
        residual: U32::new(0),
    }
}

/// Appends the next `len` bytes of a task's data-in.
fn push_data<B: Backend>(
    task: &mut Task,
    len: u64,
    copied: bool,
    data_digest: Digest,
    nexus: scsi::NexusId,
    backend: &mut B,
    out: &mut SendList,
) -> Result<(), Sense> {
    let extent = match &task.work {
        Work::Data(data) => {
            push_segment(
                &data[task.moved as usize..][..len as usize],
                data_digest,
                out,
            );
            return Ok(());
        }
        Work::Read(extent) => *extent,
        _ => return Ok(()),
    };
    let gone = Sense::of_volume(block::Status::Gone);
    let (view, _) = backend.view(nexus, task.lun).ok_or(gone)?;
    let geometry = view.volume.geometry();
    let range = geometry.byte_range(extent).map_err(Sense::of_volume)?;
    let here = ByteRange {
        offset: range.offset + task.moved,
        len,
    };
    if copied {
        return push_copy(task, extent, here, data_digest, view.volume.as_ref(), out);
    }
    let checked = scsi::medium::piece(extent, task.block_size, task.moved, len);
    let check = block::Op::Read {
        extent: checked,
        dest: ReadDest::InPlace,
    };
    view.volume.execute(check).map_err(Sense::of_volume)?;
    let placed = out.place(Placement {
        source: task.region,
        range: here,
    });
    assert!(placed, "room for parts was checked");
    push_padding(len, out);
    Ok(())
}

/// Copies whole blocks into the list. Small replies are cheaper copied than gathered, and a digest must be that
/// of the bytes that are sent, whoever writes meanwhile.
fn push_copy(
    task: &Task,
    extent: block::Extent,
    here: ByteRange,
    data_digest: Digest,
    volume: &dyn block::Volume,
    out: &mut SendList,
) -> Result<(), Sense> {
    let len = here.len as usize;
    let room = out.reserve(len).expect("room was checked");
    if let Err(status) = read_next(task, extent, room, volume) {
        out.retract(len);
        return Err(Sense::of_volume(status));
    }
    if data_digest == Digest::Crc32c {
        let crc = crc32c::crc32c(room_of(out, len));
        push_trailer(len, crc, out);
    } else {
        push_padding(here.len, out);
    }
    Ok(())
}

/// Fills `room` with the next data-in of a task that reads `extent`.
pub(crate) fn read_next(
    task: &Task,
    extent: block::Extent,
    room: &mut [u8],
    volume: &dyn block::Volume,
) -> Result<(), block::Status> {
    let (block_len, len) = (task.block_size.bytes(), room.len() as u64);
    // A transfer that is cut short (by the expected length) may begin or end inside a block.
    if task.moved % block_len != 0 || len % block_len != 0 {
        return read_unaligned(task, extent, room, volume);
    }
    let extent = scsi::medium::piece(extent, task.block_size, task.moved, len);
    volume.execute(block::Op::Read {
        extent,
        dest: ReadDest::Copy(room),
    })
}

/// The last `len` own bytes of the list.
fn room_of(out: &SendList, len: usize) -> &[u8] {
    match out.segments().last() {
        Some(session::Segment::Bytes(bytes)) => &bytes[bytes.len() - len..],
        _ => &[],
    }
}

/// A piece that is not of whole blocks: each block goes through a buffer.
fn read_unaligned(
    task: &Task,
    extent: block::Extent,
    room: &mut [u8],
    volume: &dyn block::Volume,
) -> Result<(), block::Status> {
    let block_len = task.block_size.bytes() as usize;
    let mut block = [0; 4096];
    let block = &mut block[..block_len];
    let (mut at, mut done) = (task.moved as usize, 0);
    while done < room.len() {
        let start = at / block_len * block_len;
        let one = scsi::medium::piece(extent, task.block_size, start as u64, block_len as u64);
        volume.execute(block::Op::Read {
            extent: one,
            dest: ReadDest::Copy(block),
        })?;
        let take = (block_len - (at - start)).min(room.len() - done);
        room[done..done + take].copy_from_slice(&block[at - start..][..take]);
        done += take;
        at += take;
    }
    Ok(())
}

/// Residual flags and count: what the CDB wanted against what the initiator expected (RFC 7143 §11.4.5).
fn residual(task: &Task) -> (u8, u32) {
    let moved = if task.response.status == ScsiStatus::Good {
        task.wanted_len
    } else {
        task.moved
    };
    let over = moved.saturating_sub(task.expected_len);
    let under = task.expected_len.saturating_sub(moved);
    match (over, under) {
        (0, 0) => (0, 0),
        (0, under) => (RESIDUAL_UNDERFLOW, under as u32),
        (over, _) => (RESIDUAL_OVERFLOW, over as u32),
    }
}

/// SenseLength and sense data.
pub(crate) fn sense_segment(response: &Response) -> Vec<u8> {
    let Some(sense) = &response.sense else {
        return Vec::new();
    };
    let bytes = sense.encode(scsi::SenseFormat::Fixed);
    let mut segment = (bytes.as_slice().len() as u16).to_be_bytes().to_vec();
    segment.extend_from_slice(bytes.as_slice());
    segment
}

fn lun_field(lun: scsi::Lun) -> [u8; 8] {
    scsi::lun_bytes(lun)
}

/// Appends a header and its digest. The caller has checked that there is room.
pub(crate) fn push_header(header: &[u8], digest: Digest, out: &mut SendList) {
    let pushed = out.push(header);
    assert!(pushed, "room for the header was checked");
    if digest == Digest::Crc32c {
        let pushed = out.push(&crc32c::crc32c(header).to_le_bytes());
        assert!(pushed, "room for the digest was checked");
    }
}

/// Appends a data segment, padding and digest. The caller has checked that there is room.
pub(crate) fn push_segment(segment: &[u8], digest: Digest, out: &mut SendList) {
    if segment.is_empty() {
        return;
    }
    let pushed = out.push(segment);
    assert!(pushed, "room for the segment was checked");
    push_end_of_segment(segment, digest, out);
}

/// Appends what follows a data segment that is in the list: padding and digest. The caller has checked that there is
/// room.
pub(crate) fn push_end_of_segment(segment: &[u8], digest: Digest, out: &mut SendList) {
    if digest == Digest::Crc32c {
        push_trailer(segment.len(), crc32c::crc32c(segment), out);
    } else {
        push_padding(segment.len() as u64, out);
    }
}

fn push_padding(len: u64, out: &mut SendList) {
    let padding = (len.next_multiple_of(4) - len) as usize;
    if padding > 0 {
        let pushed = out.push(&[0; 3][..padding]);
        assert!(pushed, "room for padding was checked");
    }
}

/// Padding and the digest over data (whose own CRC is `crc`) and padding.
fn push_trailer(len: usize, crc: u32, out: &mut SendList) {
    let padding = len.next_multiple_of(4) - len;
    push_padding(len as u64, out);
    let crc = crc32c::crc32c_append(crc, &[0; 3][..padding]);
    let pushed = out.push(&crc.to_le_bytes());
    assert!(pushed, "room for the digest was checked");
}
