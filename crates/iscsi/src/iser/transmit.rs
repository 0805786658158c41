//! What an iSER session posts: replies, RDMA READs in the place of R2Ts, RDMA WRITEs in that of Data-In, SCSI Responses.
//!
//! The data of all ready tasks are posted first, then the responses: packets of one length that follow one another leave with one
//! system call, where a provider in software segments by GSO.
//!
//! Read first: RFC 7145 §7.3.

use std::time::Instant;

use block::Status;
use scsi::{NexusId, Response, Sense, SenseKey};
use session::{RemoteKey, WorkList};
use zerocopy::IntoBytes;
use zerocopy::big_endian::U32;

use super::session::TargetSession;
use super::wire::{ControlHeader, Layout};
use crate::backend::Backend;
use crate::target::command::fail;
use crate::target::task::{BURSTS_MAX, Progress, Task, Work};
use crate::tcp::session::Stage;
use crate::tcp::transmit::{Sent, read_next, scsi_response, sense_segment};

/// DATA PHASE ERROR (4Bh/00h): the command names no buffer for its data, or one that they don't fit.
const DATA_PHASE_ERROR: scsi::Asc = scsi::Asc(0x4B00);

/// Whether there was room for something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Posted {
    Yes,
    NoRoom,
}

/// What became of a task's reads.
enum Reads {
    /// As many as may be are posted.
    Posted,
    /// There was no room for all of them.
    NoRoom,
    /// The task has failed: the command names no buffer that they fit.
    Impossible,
}

impl<B: Backend> TargetSession<B> {
    pub(super) fn transmit(&mut self, now: Instant, backend: &mut B, out: &mut dyn WorkList) {
        if self.send_replies(out) == Posted::NoRoom {
            return;
        }
        while !self.core.closing {
            let data = self.post_data(backend, out);
            if self.send_responses(backend, out) == Posted::NoRoom || data == Posted::NoRoom {
                return;
            }
            if !self.core.begin_held(now, backend) {
                return;
            }
        }
    }

    /// Posts the data of all ready tasks. Those that are left are done but for their responses.
    fn post_data(&mut self, backend: &mut B, out: &mut dyn WorkList) -> Posted {
        let mut done = 0;
        loop {
            let Stage::Full(full) = &mut self.core.stage else {
                return Posted::Yes;
            };
            let Some(slot) = full.tasks.ready_at(done) else {
                return Posted::Yes;
            };
            match self.post_data_of(slot, backend, out) {
                Sent::Full => return Posted::NoRoom,
                Sent::Waiting => self.core.with_full(|full| full.tasks.remove_ready(done)),
                Sent::Finished => done += 1,
            }
        }
    }

    /// Answers the tasks at the front that are done.
    fn send_responses(&mut self, backend: &mut B, out: &mut dyn WorkList) -> Posted {
        loop {
            let Stage::Full(full) = &mut self.core.stage else {
                return Posted::Yes;
            };
            let next = full.tasks.next_ready();
            let is_done = |slot: &usize| full.tasks.get(*slot).is_some_and(has_posted_all);
            let Some(slot) = next.filter(is_done) else {
                return Posted::Yes;
            };
            if self.send_response(slot, out) == Posted::NoRoom {
                return Posted::NoRoom;
            }
            self.core.with_full(|full| full.finish_ready(slot, backend));
        }
    }

    fn send_replies(&mut self, out: &mut dyn WorkList) -> Posted {
        let layout = self.layout();
        while let Some(reply) = self.core.replies.front()
            && self.may_reply()
        {
            let len = (layout.header_len() + reply.len()) as u32;
            let Some(room) = out.send(len, None) else {
                return Posted::NoRoom;
            };
            let mut reply = self.core.replies.pop_front().expect("there is a front");
            self.core.number_reply(&mut reply);
            let [header, segment] = reply.parts();
            fill(room, layout, header, segment);
        }
        // Hello comes after the login: so does its answer.
        if let Some(reply) = self.hello_reply {
            let len = layout.header_len();
            let Some(room) = out.send(len as u32, None) else {
                return Posted::NoRoom;
            };
            room.copy_from_slice(&reply.as_bytes()[..len]);
            self.hello_reply = None;
            self.core.closing |= reply.is_rejection();
        }
        Posted::Yes
    }

    fn post_data_of(&mut self, slot: usize, backend: &mut B, out: &mut dyn WorkList) -> Sent {
        let Stage::Full(full) = &mut self.core.stage else {
            return Sent::Finished;
        };
        let Some(task) = full.tasks.get(slot) else {
            return Sent::Finished;
        };
        if task.progress == Progress::Receiving {
            match self.post_reads(slot, out) {
                Reads::NoRoom => return Sent::Full,
                Reads::Posted => return Sent::Waiting,
                Reads::Impossible => {}
            }
        }
        let Stage::Full(full) = &self.core.stage else {
            return Sent::Finished;
        };
        if !full.tasks.get(slot).is_some_and(may_answer) {
            return Sent::Waiting;
        }
        match self.post_writes(slot, backend, out) {
            Posted::NoRoom => Sent::Full,
            Posted::Yes => Sent::Finished,
        }
    }

    /// Reads data-out from the initiator, in order.
    fn post_reads(&mut self, slot: usize, out: &mut dyn WorkList) -> Reads {
        let Stage::Full(full) = &mut self.core.stage else {
            return Reads::Posted;
        };
        let keys = full.parameters.rdma.as_ref();
        let solicited_only = keys.is_some_and(|keys| keys.solicited_only);
        let tag = u64::from(full.tasks.transfer_tag(slot));
        let Some(task) = full.tasks.get_mut(slot) else {
            return Reads::Posted;
        };
        while task.solicited < task.len && task.r2ts.len() < BURSTS_MAX {
            if task.next_sn == 0 && solicited_only {
                // All unsolicited data have come by now.
                task.advertised.write_base = task.solicited;
            }
            let len = out.piece_bytes(capped(task.len - task.solicited));
            let offset = task.solicited - task.advertised.write_base;
            let piece = task
                .advertised
                .write
                .and_then(|buffer| buffer.piece(offset as u32, len));
            let Some(piece) = piece else {
                fail(task, SenseKey::AbortedCommand, DATA_PHASE_ERROR);
                return Reads::Impossible;
            };
            if !out.read(tag, piece) {
                return Reads::NoRoom;
            }
            task.next_sn += 1;
            task.solicited += u64::from(len);
            task.r2ts.push_back(task.solicited);
            self.reads_posted += 1;
        }
        Reads::Posted
    }

    /// Writes data-in into the initiator's buffer.
    fn post_writes(&mut self, slot: usize, backend: &mut B, out: &mut dyn WorkList) -> Posted {
        let Stage::Full(full) = &mut self.core.stage else {
            return Posted::Yes;
        };
        let nexus = full.opened().map(|opened| opened.nexus);
        let (Some(nexus), Some(task)) = (nexus, full.tasks.get_mut(slot)) else {
            return Posted::Yes;
        };
        while has_data_in(task) {
            let len = out.piece_bytes(capped(task.len - task.moved));
            let buffer = task.advertised.read;
            let piece = buffer.and_then(|buffer| buffer.piece(task.moved as u32, len));
            let Some(piece) = piece else {
                let sense = Sense::new(SenseKey::AbortedCommand, DATA_PHASE_ERROR);
                end_with(task, sense);
                break;
            };
            let Some(room) = out.write(piece) else {
                return Posted::NoRoom;
            };
            match fill_data(task, room, nexus, backend) {
                Ok(()) => task.moved += u64::from(len),
                Err(sense) => {
                    out.retract();
                    end_with(task, sense);
                }
            }
        }
        Posted::Yes
    }

    fn send_response(&mut self, slot: usize, out: &mut dyn WorkList) -> Posted {
        let ((exp, max), stat_sn) = (self.core.numbers(), self.core.stat_sn);
        let (layout, invalidates) = (self.layout(), self.invalidates);
        let Stage::Full(full) = &mut self.core.stage else {
            return Posted::Yes;
        };
        let Some(task) = full.tasks.get_mut(slot) else {
            return Posted::Yes;
        };
        let segment = sense_segment(&task.response);
        let mut header = scsi_response(task, segment.len());
        (header.stat_sn, header.exp_cmd_sn, header.max_cmd_sn) =
            (U32::new(stat_sn), U32::new(exp), U32::new(max));
        // There were no R2T and Data-In PDUs.
        header.exp_data_sn = U32::new(0);
        let key = invalidated(task).filter(|_| invalidates);
        let len = (layout.header_len() + size_of_val(&header) + segment.len()) as u32;
        let Some(room) = out.send(len, key) else {
            return Posted::NoRoom;
        };
        fill(room, layout, header.as_bytes(), &segment);
        self.core.stat_sn = stat_sn.wrapping_add(1);
        Posted::Yes
    }
}

/// Whether a task may be answered once its data-in are posted. Reads that are outstanding use the initiator's buffer, which is
/// free again once it has the response.
fn may_answer(task: &Task) -> bool {
    task.progress == Progress::Sending && task.r2ts.is_empty()
}

/// Whether a task has data-in that were not posted.
fn has_data_in(task: &Task) -> bool {
    matches!(task.work, Work::Read(_) | Work::Data(_)) && task.moved < task.len
}

/// Whether a task is done but for its response.
fn has_posted_all(task: &Task) -> bool {
    may_answer(task) && !has_data_in(task)
}

/// So many bytes, as far as pieces are concerned.
fn capped(left: u64) -> u32 {
    u32::try_from(left).unwrap_or(u32::MAX)
}

/// The key that a task's response makes worthless: one fits a message, and no command names two.
fn invalidated(task: &Task) -> Option<RemoteKey> {
    let buffer = task.advertised.read.or(task.advertised.write);
    buffer.map(|buffer| buffer.key)
}

fn end_with(task: &mut Task, sense: Sense) {
    task.response = Response::check(sense);
    task.work = Work::None;
}

/// The next data-in of a task. They are copied, since a packet's checksum must be that of the bytes that are sent, and of
/// those that are sent again, whoever writes meanwhile.
fn fill_data<B: Backend>(
    task: &Task,
    room: &mut [u8],
    nexus: NexusId,
    backend: &mut B,
) -> Result<(), Sense> {
    match &task.work {
        Work::Data(data) => {
            room.copy_from_slice(&data[task.moved as usize..][..room.len()]);
            Ok(())
        }
        Work::Read(extent) => {
            let view = backend.view(nexus, task.lun);
            let (view, _) = view.ok_or(Sense::of_volume(Status::Gone))?;
            read_next(task, *extent, room, view.volume.as_ref()).map_err(Sense::of_volume)
        }
        _ => Ok(()),
    }
}

/// A message: the iSER header of a PDU that names no buffers, which targets' never do, and the PDU. Nothing but zeros is left
/// out of a header without base offsets then.
fn fill(room: &mut [u8], layout: Layout, header: &[u8], segment: &[u8]) {
    let iser = ControlHeader::new(None, None);
    let (head, rest) = room.split_at_mut(layout.header_len());
    head.copy_from_slice(&iser.as_bytes()[..layout.header_len()]);
    let (bhs, data) = rest.split_at_mut(header.len());
    bhs.copy_from_slice(header);
    data.copy_from_slice(segment);
}
