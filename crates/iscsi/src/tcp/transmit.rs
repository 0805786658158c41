//! What a connection sends: queued replies, R2Ts, Data-In and SCSI Responses.
//!
//! Read first: RFC 7143 §11.4, §11.7, §11.8.

use std::time::Instant;

use block::{Blocks, ByteRange, Extent, Lba, Op, ReadDest, Status, Volume};
use scsi::{ScsiStatus, Sense};
use session::{Placement, Segment, SendList};
use zerocopy::IntoBytes;
use zerocopy::big_endian::U32;

use crate::backend::Backend;
use crate::framing::{
    OVERHEAD_MAX, digest_len, push_header, push_padding, push_padding_and_digest, push_segment,
};
use crate::params::{Digest, Parameters};
use crate::target::full_feature::FullFeature;
use crate::target::reply::Replies;
use crate::target::response::{Numbers, read_next, residual, scsi_response, sense_segment};
use crate::target::task::{Progress, Task, Work};
use crate::wire::data::{DataIn, R2t, STATUS_PRESENT};
use crate::wire::{BHS_LEN, FINAL, NO_TASK_TAG, U24, response};

/// Reads of less than a page are copied into the send list; longer ones are gathered from volume
/// memory.
pub(super) const COPY_LEN_MAX: u64 = (4 << 10) - 1;
/// The longest data segment that is copied, either for its digest or because it cannot be sent from
/// the volume. It must fit into a send list.
const COPIED_LEN_MAX: u64 = 64 << 10;
/// The least capacity of a send list, in bytes.
pub const SEND_LIST_MIN_BYTES: usize = COPIED_LEN_MAX as usize + 1024;

/// The digests of a connection's PDUs.
#[derive(Clone, Copy)]
pub(super) struct Digests {
    header: Digest,
    data: Digest,
}

impl Digests {
    pub(super) const NONE: Self = Self {
        header: Digest::None,
        data: Digest::None,
    };

    fn of(parameters: &Parameters) -> Self {
        Self {
            header: parameters.header_digest,
            data: parameters.data_digest,
        }
    }
}

/// The result of sending a task.
enum Sent {
    /// Everything was sent: the task ends.
    Finished,
    /// The task has nothing to send until something happens.
    Waiting,
    /// The list is full.
    Full,
}

/// Sends as much as fits into `out`.
pub(super) fn transmit<B: Backend>(
    core: &mut FullFeature,
    now: Instant,
    backend: &mut B,
    out: &mut SendList,
) {
    let digests = Digests::of(&core.parameters);
    if !core.replies.is_empty() {
        let numbers = core.numbers(backend);
        if !send_replies(&mut core.replies, numbers, digests, out) {
            return;
        }
    }
    while !core.is_closing() {
        let Some(slot) = core.tasks.next_ready() else {
            if core.begin_early(now, backend) {
                continue;
            }
            return;
        };
        match send_task(core, slot, digests, backend, out) {
            Sent::Full => return,
            Sent::Waiting => core.tasks.pop_ready(),
            Sent::Finished => core.retire_ready(slot, backend),
        }
    }
}

/// Sends replies. Returns false if the list is full. `numbers` are ExpCmdSN and MaxCmdSN.
pub(super) fn send_replies(
    replies: &mut Replies,
    numbers: (u32, u32),
    digests: Digests,
    out: &mut SendList,
) -> bool {
    while let Some(front) = replies.front() {
        if !has_room(out, OVERHEAD_MAX + front.len_bytes()) {
            return false;
        }
        let Some(reply) = replies.pop(numbers) else {
            return true;
        };
        let digests = if reply.is_of_login() {
            Digests::NONE
        } else {
            digests
        };
        push_header(&reply.header, digests.header, out);
        push_segment(&reply.segment, digests.data, out);
    }
    true
}

fn send_task<B: Backend>(
    core: &mut FullFeature,
    slot: usize,
    digests: Digests,
    backend: &mut B,
    out: &mut SendList,
) -> Sent {
    let (expected, max) = core.numbers(backend);
    let numbers = Numbers {
        stat: core.replies.stat_sn(),
        expected,
        max,
    };
    let ttt = core.tasks.transfer_tag(slot);
    let Some(task) = core.tasks.get_mut(slot) else {
        return Sent::Finished;
    };
    let parameters = &core.parameters;
    match task.progress() {
        Progress::Receiving => return send_r2ts(task, ttt, parameters, numbers, out),
        Progress::Sending => {}
        Progress::Answered => return Sent::Finished,
        Progress::Waiting
        | Progress::Filling
        | Progress::Working
        | Progress::Settling
        | Progress::Held => return Sent::Waiting,
    }
    if !send_data_in(task, parameters, numbers, backend, out) {
        return Sent::Full;
    }
    if task.progress() != Progress::Answered && !send_response(task, digests, numbers, backend, out)
    {
        return Sent::Full;
    }
    core.replies.advance_stat_sn();
    Sent::Finished
}

/// Requests data-out: bursts in order, as many at once as were negotiated.
fn send_r2ts(
    task: &mut Task,
    ttt: u32,
    parameters: &Parameters,
    numbers: Numbers,
    out: &mut SendList,
) -> Sent {
    let outstanding_max = parameters.outstanding_r2t_max as usize;
    let burst = u64::from(parameters.burst_len_max);
    while task.solicited < task.len && task.r2ts.len() < outstanding_max {
        if !has_room(out, OVERHEAD_MAX) {
            return Sent::Full;
        }
        let len = burst.min(task.len - task.solicited);
        let r2t = R2t {
            opcode: response::R2T,
            flags: FINAL,
            reserved: [0; 2],
            total_ahs_words: 0,
            data_segment_len: U24::new(0),
            lun: scsi::lun_bytes(task.lun),
            itt: U32::new(task.itt),
            ttt: U32::new(ttt),
            stat_sn: U32::new(numbers.stat),
            exp_cmd_sn: U32::new(numbers.expected),
            max_cmd_sn: U32::new(numbers.max),
            r2t_sn: U32::new(task.next_sn),
            buffer_offset: U32::new(task.solicited as u32),
            desired_len: U32::new(len as u32),
        };
        push_header(r2t.as_bytes(), parameters.header_digest, out);
        task.next_sn += 1;
        task.solicited += len;
        task.r2ts.push_back(task.solicited);
    }
    Sent::Waiting
}

/// The data of one Data-In PDU.
struct Piece {
    len: u64,
    /// They are copied into the list, or gathered from volume memory.
    is_copied: bool,
    /// They end a sequence (F).
    ends_sequence: bool,
    /// They are the last of the task.
    is_last: bool,
}

impl Piece {
    /// The next piece of a task's data-in.
    fn next(task: &Task, parameters: &Parameters) -> Self {
        // A sequence ends at a multiple of MaxBurstLength.
        let burst = u64::from(parameters.burst_len_max);
        let to_sequence_end = burst - task.moved % burst;
        let left = task.len - task.moved;
        let segment_max = u64::from(parameters.send_segment_len_max);
        let mut len = segment_max.min(left).min(to_sequence_end);
        let is_placeable = matches!(task.work, Work::Read(_)) && !task.must_copy;
        let must_copy = !is_placeable || parameters.data_digest == Digest::Crc32c;
        if must_copy {
            len = len.min(COPIED_LEN_MAX);
        }
        let is_last = len == left;
        Self {
            len,
            is_copied: must_copy || len <= COPY_LEN_MAX,
            ends_sequence: is_last || to_sequence_end == len,
            is_last,
        }
    }

    /// Bytes that it takes of the list itself.
    fn own_bytes(&self) -> usize {
        OVERHEAD_MAX + if self.is_copied { self.len as usize } else { 0 }
    }
}

/// Sends Data-In until all is sent. The last PDU carries the status if it is GOOD, and the task is
/// answered. Returns false if the list is full.
fn send_data_in<B: Backend>(
    task: &mut Task,
    parameters: &Parameters,
    numbers: Numbers,
    backend: &mut B,
    out: &mut SendList,
) -> bool {
    while task.has_data_in() {
        let piece = Piece::next(task, parameters);
        if out.free_bytes() < piece.own_bytes() || out.free_parts() < 4 {
            return false;
        }
        let has_status = piece.is_last && task.response.status == ScsiStatus::Good;
        let mut header = data_in(task, piece.len, numbers);
        if piece.ends_sequence {
            header.flags |= FINAL;
        }
        if has_status {
            let (flags, residual) = residual(task);
            header.flags |= STATUS_PRESENT | flags;
            header.stat_sn = U32::new(numbers.stat);
            header.residual = U32::new(residual);
        }
        push_header(header.as_bytes(), parameters.header_digest, out);
        if let Err(sense) = push_data(task, &piece, parameters.data_digest, backend, out) {
            out.retract(BHS_LEN + digest_len(parameters.header_digest));
            task.fail_data_in(sense);
            return true;
        }
        task.moved += piece.len;
        task.next_sn += 1;
        if has_status {
            task.enter(Progress::Answered);
        }
    }
    true
}

/// Sends the SCSI Response of a task. Returns false if the list is full.
fn send_response<B: Backend>(
    task: &Task,
    digests: Digests,
    numbers: Numbers,
    backend: &mut B,
    out: &mut SendList,
) -> bool {
    let segment = sense_segment(task, backend);
    if !has_room(out, OVERHEAD_MAX + segment.len()) {
        return false;
    }
    let header = scsi_response(task, segment.len(), numbers);
    push_header(header.as_bytes(), digests.header, out);
    push_segment(&segment, digests.data, out);
    true
}

/// Whether the list has room for a PDU of this length whose data are copied.
fn has_room(out: &SendList, len_bytes: usize) -> bool {
    out.free_bytes() >= len_bytes && out.free_parts() >= 2
}

fn data_in(task: &Task, len: u64, numbers: Numbers) -> DataIn {
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
        exp_cmd_sn: U32::new(numbers.expected),
        max_cmd_sn: U32::new(numbers.max),
        data_sn: U32::new(task.next_sn),
        buffer_offset: U32::new(task.moved as u32),
        residual: U32::new(0),
    }
}

/// Appends the next piece of a task's data-in.
fn push_data<B: Backend>(
    task: &Task,
    piece: &Piece,
    data_digest: Digest,
    backend: &mut B,
    out: &mut SendList,
) -> Result<(), Sense> {
    let len = piece.len;
    let extent = match &task.work {
        Work::Data(data) => {
            let data = &data[task.moved as usize..][..len as usize];
            push_segment(data, data_digest, out);
            return Ok(());
        }
        Work::Read(extent) => *extent,
        _ => return Ok(()),
    };
    let (view, _) = backend
        .view(task.lun)
        .ok_or(Sense::of_volume(Status::Gone))?;
    if piece.is_copied {
        return push_copy(
            task,
            extent,
            len as usize,
            data_digest,
            view.volume.as_ref(),
            out,
        );
    }
    let check = Op::Read {
        extent: blocks_of(task, extent, len),
        dest: ReadDest::InPlace,
    };
    view.volume.execute(check).map_err(Sense::of_volume)?;
    // The volume has checked that the blocks exist.
    let start = extent.lba.0 << task.block_size.shift();
    let placed = out.place(Placement {
        source: task.source,
        range: ByteRange {
            offset: start + task.moved,
            len,
        },
    });
    assert!(placed, "room for parts was checked");
    push_padding(len as usize, out);
    Ok(())
}

/// The blocks of the next `len` bytes of a read of `extent`. Bytes may begin and end inside a
/// block.
fn blocks_of(task: &Task, extent: Extent, len: u64) -> Extent {
    let first = task.moved >> task.block_size.shift();
    let end = (task.moved + len).div_ceil(task.block_size.bytes());
    Extent::new(Lba(extent.lba.0 + first), Blocks(end - first))
}

/// Copies data-in into the list. Copying small replies is cheaper than gathering them, and a digest
/// must be that of the sent bytes, even if a host writes meanwhile.
fn push_copy(
    task: &Task,
    extent: Extent,
    len: usize,
    data_digest: Digest,
    volume: &dyn Volume,
    out: &mut SendList,
) -> Result<(), Sense> {
    let room = out.reserve(len).expect("room was checked");
    if let Err(status) = read_next(task, extent, room, volume) {
        out.retract(len);
        return Err(Sense::of_volume(status));
    }
    if data_digest == Digest::Crc32c {
        let crc = crc32c::crc32c(last_bytes(out, len));
        push_padding_and_digest(len, crc, out);
    } else {
        push_padding(len, out);
    }
    Ok(())
}

/// The last `len` own bytes of the list.
fn last_bytes(out: &SendList, len: usize) -> &[u8] {
    match out.segments().last() {
        Some(Segment::Bytes(bytes)) => &bytes[bytes.len() - len..],
        _ => &[],
    }
}
