//! What an iSER session posts: replies, RDMA READs instead of R2Ts, RDMA WRITEs instead of Data-In,
//! SCSI Responses.
//!
//! The data of all ready tasks are posted first, then the responses: a provider in software that
//! segments by GSO sends consecutive packets of one length with one system call.
//!
//! Read first: RFC 7145 §7.3.

use std::time::Instant;

use block::Status;
use scsi::{Sense, SenseKey};
use session::{RemoteKey, WorkList};
use zerocopy::IntoBytes;
use zerocopy::big_endian::U32;

use super::session::TargetSession;
use super::wire::{ControlHeader, Layout};
use crate::backend::Backend;
use crate::target::full_feature::FullFeature;
use crate::target::reply::Replies;
use crate::target::response::{Numbers, read_next, scsi_response, sense_segment};
use crate::target::stage::Stage;
use crate::target::task::{BURSTS_MAX, Progress, Task, Work};

/// DATA PHASE ERROR (4Bh/00h): the command names no buffer for its data, or one that they do not
/// fit.
const DATA_PHASE_ERROR: scsi::Asc = scsi::Asc(0x4B00);

/// Whether there was room for something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Posted {
    Yes,
    NoRoom,
}

/// The result of posting the data of a task.
enum TaskData {
    /// All data-in are posted: the task is done except for its response.
    Done,
    /// The task has nothing to post until something happens.
    Waiting,
    /// There was no room.
    NoRoom,
}

/// The result of posting a task's reads.
enum Reads {
    /// As many as allowed are posted.
    Posted,
    /// There was no room for all of them.
    NoRoom,
    /// The task has failed: the command names no buffer that they fit.
    Impossible,
}

/// How responses are sent.
#[derive(Clone, Copy)]
struct ResponseFormat {
    layout: Layout,
    /// They invalidate the keys of their commands.
    invalidates: bool,
}

impl<B: Backend> TargetSession<B> {
    pub(super) fn transmit(&mut self, now: Instant, backend: &mut B, out: &mut dyn WorkList) {
        if self.send_replies(backend, out) == Posted::NoRoom {
            return;
        }
        let format = ResponseFormat {
            layout: self.layout(),
            invalidates: self.invalidates,
        };
        let Stage::Full(core) = &mut self.stage else {
            return;
        };
        while !core.is_closing() {
            let data = post_data(core, &mut self.reads_posted, backend, out);
            let responses = send_responses(core, format, backend, out);
            if responses == Posted::NoRoom || data == Posted::NoRoom {
                return;
            }
            if !core.begin_early(now, backend) {
                return;
            }
        }
    }

    fn send_replies(&mut self, backend: &mut B, out: &mut dyn WorkList) -> Posted {
        let layout = self.layout();
        if self.stage.has_replies() && !self.holds_replies() {
            let (replies, numbers) = match &mut self.stage {
                Stage::Login(login) => {
                    let numbers = login.numbers();
                    (&mut login.replies, numbers)
                }
                Stage::Full(core) => {
                    let numbers = core.numbers(backend);
                    (&mut core.replies, numbers)
                }
            };
            if send_replies(replies, numbers, layout, out) == Posted::NoRoom {
                return Posted::NoRoom;
            }
        }
        // Hello follows the login, and so does its answer.
        if let Some(reply) = self.hello_reply {
            let len = layout.header_len();
            let Some(room) = out.send(len as u32, None) else {
                return Posted::NoRoom;
            };
            room.copy_from_slice(&reply.as_bytes()[..len]);
            self.hello_reply = None;
            if let Stage::Full(core) = &mut self.stage
                && reply.is_rejection()
            {
                core.close();
            }
        }
        Posted::Yes
    }
}

fn send_replies(
    replies: &mut Replies,
    numbers: (u32, u32),
    layout: Layout,
    out: &mut dyn WorkList,
) -> Posted {
    while let Some(front) = replies.front() {
        let len = (layout.header_len() + front.len_bytes()) as u32;
        let Some(room) = out.send(len, None) else {
            return Posted::NoRoom;
        };
        let reply = replies.pop(numbers).expect("there is a front");
        fill(room, layout, &reply.header, &reply.segment);
    }
    Posted::Yes
}

/// Posts the data of all ready tasks. Those that stay ready are done except for their responses.
fn post_data<B: Backend>(
    core: &mut FullFeature,
    reads_posted: &mut u64,
    backend: &mut B,
    out: &mut dyn WorkList,
) -> Posted {
    let mut done = 0;
    while let Some(slot) = core.tasks.ready_at(done) {
        match post_data_of(core, slot, reads_posted, backend, out) {
            TaskData::NoRoom => return Posted::NoRoom,
            TaskData::Waiting => core.tasks.remove_ready(done),
            TaskData::Done => done += 1,
        }
    }
    Posted::Yes
}

/// Answers the first ready tasks, as far as they are done.
fn send_responses<B: Backend>(
    core: &mut FullFeature,
    format: ResponseFormat,
    backend: &mut B,
    out: &mut dyn WorkList,
) -> Posted {
    while let Some(slot) = core.tasks.next_ready() {
        let Some(task) = core.tasks.get(slot).filter(|task| has_posted_all(task)) else {
            return Posted::Yes;
        };
        let (expected, max) = core.numbers(backend);
        let numbers = Numbers {
            stat: core.replies.stat_sn(),
            expected,
            max,
        };
        if send_response(task, format, numbers, backend, out) == Posted::NoRoom {
            return Posted::NoRoom;
        }
        core.replies.advance_stat_sn();
        core.retire_ready(slot, backend);
    }
    Posted::Yes
}

fn post_data_of<B: Backend>(
    core: &mut FullFeature,
    slot: usize,
    reads_posted: &mut u64,
    backend: &mut B,
    out: &mut dyn WorkList,
) -> TaskData {
    let tag = core.tasks.transfer_tag(slot);
    let Some(task) = core.tasks.get_mut(slot) else {
        return TaskData::Done;
    };
    if task.progress() == Progress::Receiving {
        match post_reads(task, tag, reads_posted, out) {
            Reads::NoRoom => return TaskData::NoRoom,
            Reads::Posted => return TaskData::Waiting,
            Reads::Impossible => {}
        }
    }
    if !may_answer(task) {
        return TaskData::Waiting;
    }
    match post_writes(task, backend, out) {
        Posted::NoRoom => TaskData::NoRoom,
        Posted::Yes => TaskData::Done,
    }
}

/// Reads data-out from the initiator, in order.
fn post_reads(task: &mut Task, tag: u32, reads_posted: &mut u64, out: &mut dyn WorkList) -> Reads {
    while task.solicited < task.len && task.r2ts.len() < BURSTS_MAX {
        let len = out.piece_bytes(capped(task.len - task.solicited));
        let offset = task.solicited - u64::from(task.advertised.write_base.unwrap_or(0));
        let buffer = task.advertised.write;
        let piece = buffer.and_then(|buffer| buffer.piece(offset as u32, len));
        let Some(piece) = piece else {
            task.fail(SenseKey::AbortedCommand, DATA_PHASE_ERROR);
            return Reads::Impossible;
        };
        if !out.read(u64::from(tag), piece) {
            return Reads::NoRoom;
        }
        task.next_sn += 1;
        task.solicited += u64::from(len);
        task.r2ts.push_back(task.solicited);
        *reads_posted += 1;
    }
    Reads::Posted
}

/// Writes data-in into the initiator's buffer.
fn post_writes<B: Backend>(task: &mut Task, backend: &mut B, out: &mut dyn WorkList) -> Posted {
    while task.has_data_in() {
        let len = out.piece_bytes(capped(task.len - task.moved));
        let buffer = task.advertised.read;
        let piece = buffer.and_then(|buffer| buffer.piece(task.moved as u32, len));
        let Some(piece) = piece else {
            task.fail_data_in(Sense::new(SenseKey::AbortedCommand, DATA_PHASE_ERROR));
            break;
        };
        let Some(room) = out.write(piece) else {
            return Posted::NoRoom;
        };
        match fill_data(task, room, backend) {
            Ok(()) => task.moved += u64::from(len),
            Err(sense) => {
                out.retract();
                task.fail_data_in(sense);
            }
        }
    }
    Posted::Yes
}

fn send_response<B: Backend>(
    task: &Task,
    format: ResponseFormat,
    numbers: Numbers,
    backend: &mut B,
    out: &mut dyn WorkList,
) -> Posted {
    let segment = sense_segment(task, backend);
    let mut header = scsi_response(task, segment.len(), numbers);
    // There were no R2T and Data-In PDUs.
    header.exp_data_sn = U32::new(0);
    let key = key_of(task).filter(|_| format.invalidates);
    let len = (format.layout.header_len() + size_of_val(&header) + segment.len()) as u32;
    let Some(room) = out.send(len, key) else {
        return Posted::NoRoom;
    };
    fill(room, format.layout, header.as_bytes(), &segment);
    Posted::Yes
}

/// Whether a task may be answered once its data-in are posted. Outstanding reads use the
/// initiator's buffer, which the initiator reuses once it has the response.
fn may_answer(task: &Task) -> bool {
    task.progress() == Progress::Sending && task.r2ts.is_empty()
}

/// Whether a task is done except for its response.
fn has_posted_all(task: &Task) -> bool {
    may_answer(task) && !task.has_data_in()
}

/// A length for pieces, which have at most `u32::MAX` bytes.
fn capped(left: u64) -> u32 {
    u32::try_from(left).unwrap_or(u32::MAX)
}

/// The key that a task's response invalidates: one fits a message, and no command names two.
fn key_of(task: &Task) -> Option<RemoteKey> {
    let buffer = task.advertised.read.or(task.advertised.write);
    buffer.map(|buffer| buffer.key)
}

/// Copies the next data-in of a task. A placement is not possible: the checksum of a packet must be
/// that of the bytes that are sent and retransmitted, even if a host writes meanwhile.
fn fill_data<B: Backend>(task: &Task, room: &mut [u8], backend: &mut B) -> Result<(), Sense> {
    match &task.work {
        Work::Data(data) => {
            room.copy_from_slice(&data[task.moved as usize..][..room.len()]);
            Ok(())
        }
        Work::Read(extent) => {
            let view = task.view(backend);
            let view = view.ok_or(Sense::of_volume(Status::Gone))?;
            read_next(task, *extent, room, view.volume.as_ref()).map_err(Sense::of_volume)
        }
        _ => Ok(()),
    }
}

/// Fills a message: the iSER header, and the PDU. PDUs of targets name no buffers, so a header
/// without base offsets omits nothing but zeros.
fn fill(room: &mut [u8], layout: Layout, header: &[u8], segment: &[u8]) {
    let iser = ControlHeader::new(None, None);
    let (head, rest) = room.split_at_mut(layout.header_len());
    head.copy_from_slice(&iser.as_bytes()[..layout.header_len()]);
    let (bhs, data) = rest.split_at_mut(header.len());
    bhs.copy_from_slice(header);
    data.copy_from_slice(segment);
}
