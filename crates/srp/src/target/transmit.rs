//! What a channel posts: RDMA READs of tables and data-out, RDMA WRITEs of data-in, responses,
//! credits.
//!
//! The data of all ready tasks are posted first, then the responses: a provider in software that
//! segments by GSO sends consecutive packets of one length with one system call.

use block::Status;
use scsi::{ScsiStatus, Sense, SenseFormat, SenseKey};
use session::WorkList;
use zerocopy::IntoBytes;
use zerocopy::big_endian::U32;

use super::pending::Ending;
use super::places::Places;
use super::session::TargetSession;
use super::task::{DATA_PHASE_ERROR, Progress, Task, Work};
use crate::backend::{Backend, Completed};
use crate::wire::{CreditRequest, Direction, ResponseHeader, TargetLogout};

/// The most RDMA READs of one task that are posted at a time. Eight reads of 64 KiB keep a link of
/// 25 Gb/s busy for 160 us.
const READS_MAX: u16 = 8;

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

impl<B: Backend> TargetSession<B> {
    /// Posts what is ready. Returns whether there was room for all of it.
    pub(super) fn transmit(&mut self, backend: &mut B, out: &mut dyn WorkList) -> bool {
        let posted = match self.ending {
            Ending::Open | Ending::Draining(_) => self.post_ready(backend, out),
            Ending::Logout => self.post_logout(out),
            Ending::Closed => Posted::Yes,
        };
        posted == Posted::Yes
    }

    fn post_ready(&mut self, backend: &mut B, out: &mut dyn WorkList) -> Posted {
        while let Some(management) = self.answers.front().copied() {
            let len = size_of::<ResponseHeader>() + MANAGEMENT_RESULT_BYTES;
            let Some(room) = out.send(len as u32, None) else {
                return Posted::NoRoom;
            };
            self.answers.pop_front();
            let delta = std::mem::take(&mut self.tasks.owed) + 1;
            let mut header = ResponseHeader::new(management.tag, delta);
            header.flags = ResponseHeader::RESPONSE_VALID;
            header.response_len = U32::new(MANAGEMENT_RESULT_BYTES as u32);
            let (head, result) = room.split_at_mut(size_of::<ResponseHeader>());
            head.copy_from_slice(header.as_bytes());
            result.copy_from_slice(&[0, 0, 0, management.result as u8]);
        }
        let data = self.post_data(backend, out);
        let responses = self.post_responses(backend, out);
        if data == Posted::NoRoom || responses == Posted::NoRoom {
            return Posted::NoRoom;
        }
        self.post_credits(out)
    }

    /// Returns requests that no response is going to return. Initiators answer that, so that only
    /// one SRP_CRED_REQ uses their receives at a time.
    fn post_credits(&mut self, out: &mut dyn WorkList) -> Posted {
        if !self.owes_credits() {
            return Posted::Yes;
        }
        let request = CreditRequest::new(self.tasks.owed);
        let Some(room) = out.send(size_of_val(&request) as u32, None) else {
            return Posted::NoRoom;
        };
        room.copy_from_slice(request.as_bytes());
        self.tasks.owed = 0;
        self.awaits_credit_response = true;
        Posted::Yes
    }

    fn post_logout(&mut self, out: &mut dyn WorkList) -> Posted {
        let logout = TargetLogout::new();
        let Some(room) = out.send(size_of_val(&logout) as u32, None) else {
            return Posted::NoRoom;
        };
        room.copy_from_slice(logout.as_bytes());
        self.ending = Ending::Closed;
        Posted::Yes
    }

    /// Posts the data of all ready tasks. Those that stay ready are done except for their
    /// responses.
    fn post_data(&mut self, backend: &mut B, out: &mut dyn WorkList) -> Posted {
        let mut done = 0;
        while let Some(slot) = self.tasks.ready_at(done) {
            let Some((task, places)) = self.tasks.with_places(slot) else {
                return Posted::Yes;
            };
            match post_data_of(slot, task, places, backend, out) {
                TaskData::NoRoom => return Posted::NoRoom,
                TaskData::Waiting => self.tasks.remove_ready(done),
                TaskData::Done => done += 1,
            }
        }
        Posted::Yes
    }

    /// Answers the first ready tasks, as far as they are done.
    fn post_responses(&mut self, backend: &mut B, out: &mut dyn WorkList) -> Posted {
        while let Some(slot) = self.tasks.ready_at(0) {
            let delta = self.tasks.owed + 1;
            let Some(task) = self.tasks.get(slot).filter(|task| has_posted_all(task)) else {
                return Posted::Yes;
            };
            let format = sense_format(task, backend);
            if post_response(task, delta, format, out) == Posted::NoRoom {
                return Posted::NoRoom;
            }
            account(task, backend);
            self.tasks.remove_ready(0);
            self.tasks.remove(slot);
            self.tasks.owed = 0;
            self.tasks.return_room(backend);
        }
        Posted::Yes
    }
}

/// Bytes of the response data of task management.
const MANAGEMENT_RESULT_BYTES: usize = 4;

fn post_data_of<B: Backend>(
    slot: usize,
    task: &mut Task,
    places: &mut Places,
    backend: &mut B,
    out: &mut dyn WorkList,
) -> TaskData {
    match task.progress() {
        Progress::Arriving => return post_table_reads(slot, task, out),
        Progress::Receiving => match post_reads(slot, task, places, out) {
            Some(waits) => return waits,
            // It has failed: the command names no memory for its data.
            None => task.fail(SenseKey::AbortedCommand, DATA_PHASE_ERROR),
        },
        _ => {}
    }
    if !may_answer(task) {
        return TaskData::Waiting;
    }
    match post_writes(task, places, backend, out) {
        Posted::NoRoom => TaskData::NoRoom,
        Posted::Yes => TaskData::Done,
    }
}

/// Reads the rest of a descriptor table.
fn post_table_reads(slot: usize, task: &mut Task, out: &mut dyn WorkList) -> TaskData {
    while let Some((table, _)) = &mut task.table
        && table.len_bytes > 0
    {
        let len_bytes = out.piece_bytes(table.len_bytes);
        let rest = table.piece(len_bytes, table.len_bytes - len_bytes);
        let piece = table.piece(0, len_bytes);
        let (Some(piece), Some(rest)) = (piece, rest) else {
            // The parser has checked that the table has addresses.
            return TaskData::Waiting;
        };
        if !out.read(slot as u64, piece) {
            return TaskData::NoRoom;
        }
        *table = rest;
        task.reads += 1;
    }
    TaskData::Waiting
}

/// Reads data-out from the initiator, in order. `None` if there is no memory for them.
fn post_reads(
    slot: usize,
    task: &mut Task,
    places: &mut Places,
    out: &mut dyn WorkList,
) -> Option<TaskData> {
    while task.requested < task.len && task.reads < READS_MAX {
        let piece = places.next(out.piece_bytes(capped(task.len - task.requested)))?;
        if !out.read(slot as u64, piece) {
            return Some(TaskData::NoRoom);
        }
        places.advance(piece.len_bytes);
        task.reads += 1;
        task.requested += u64::from(piece.len_bytes);
    }
    Some(TaskData::Waiting)
}

/// Writes data-in into the initiator's memory.
fn post_writes<B: Backend>(
    task: &mut Task,
    places: &mut Places,
    backend: &mut B,
    out: &mut dyn WorkList,
) -> Posted {
    while task.has_data_in() {
        let piece = places.next(out.piece_bytes(capped(task.len - task.moved)));
        let Some(piece) = piece else {
            task.fail_data_in(Sense::new(SenseKey::AbortedCommand, DATA_PHASE_ERROR));
            break;
        };
        let Some(room) = out.write(piece) else {
            return Posted::NoRoom;
        };
        match fill_data(task, room, backend) {
            Ok(()) => {
                places.advance(piece.len_bytes);
                task.moved += u64::from(piece.len_bytes);
            }
            Err(sense) => {
                out.retract();
                task.fail_data_in(sense);
            }
        }
    }
    Posted::Yes
}

/// Copies the next data-in of a task, once, into the memory that is sent from. A placement is not
/// possible: the checksum of a packet must be that of the bytes that are sent and retransmitted,
/// even if a host writes meanwhile.
fn fill_data<B: Backend>(task: &Task, room: &mut [u8], backend: &mut B) -> Result<(), Sense> {
    match &task.work {
        Work::Data(data) => {
            room.copy_from_slice(&data[task.moved as usize..][..room.len()]);
            Ok(())
        }
        Work::Read(extent) => {
            let view = task.view(backend);
            let view = view.ok_or(Sense::of_volume(Status::Gone))?;
            let transfer = task.transfer(*extent);
            let read = transfer.read_next(room, view.volume.as_ref());
            read.map_err(Sense::of_volume)
        }
        _ => Ok(()),
    }
}

/// The format of the sense data of a task (D_SENSE).
fn sense_format<B: Backend>(task: &Task, backend: &mut B) -> SenseFormat {
    let has_sense = task.response.sense.is_some();
    let view = has_sense.then(|| backend.view(task.lun)).flatten();
    view.map_or(SenseFormat::Fixed, |(view, _)| view.sense_format)
}

fn post_response(task: &Task, delta: u32, format: SenseFormat, out: &mut dyn WorkList) -> Posted {
    let mut header = ResponseHeader::new(task.tag, delta);
    header.status = task.response.status as u8;
    set_residuals(task, &mut header);
    let sense = task.response.sense.as_ref();
    let sense = sense.map(|sense| sense.encode(format));
    let sense = sense.as_ref().map_or(&[][..], |sense| sense.as_slice());
    if !sense.is_empty() {
        header.flags |= ResponseHeader::SENSE_VALID;
        header.sense_len = U32::new(sense.len() as u32);
    }
    let len = size_of::<ResponseHeader>() + sense.len();
    let Some(room) = out.send(len as u32, None) else {
        return Posted::NoRoom;
    };
    let (head, rest) = room.split_at_mut(size_of::<ResponseHeader>());
    head.copy_from_slice(header.as_bytes());
    rest.copy_from_slice(sense);
    Posted::Yes
}

/// Residual counts: the bytes that the CDB transfers against those that its buffer has.
fn set_residuals(task: &Task, header: &mut ResponseHeader) {
    let (direction, wanted_len) = task.wanted;
    let is_good = task.response.status == ScsiStatus::Good;
    let moved = if is_good { wanted_len } else { task.moved };
    let of = |side| {
        let expected = if task.buffer == Some(side) {
            task.expected_len
        } else {
            0
        };
        let moved = if direction == side { moved } else { 0 };
        (
            moved.saturating_sub(expected),
            expected.saturating_sub(moved),
        )
    };
    for side in [Direction::In, Direction::Out] {
        let (over, under) = of(side);
        let (over_flag, under_flag, count) = match side {
            Direction::In => (
                ResponseHeader::DATA_IN_OVER,
                ResponseHeader::DATA_IN_UNDER,
                &mut header.data_in_residual,
            ),
            Direction::Out => (
                ResponseHeader::DATA_OUT_OVER,
                ResponseHeader::DATA_OUT_UNDER,
                &mut header.data_out_residual,
            ),
        };
        if over > 0 {
            header.flags |= over_flag;
        } else if under > 0 {
            header.flags |= under_flag;
        }
        count.set(capped(over.max(under)));
    }
}

/// Whether a task may be answered once its data-in are posted. Outstanding reads use the
/// initiator's buffer, which the initiator reuses once it has the response.
fn may_answer(task: &Task) -> bool {
    task.progress() == Progress::Sending && task.reads == 0
}

/// Whether a task is done except for its response.
fn has_posted_all(task: &Task) -> bool {
    may_answer(task) && !task.has_data_in()
}

/// A length for pieces and residual counts, which have 32 bits.
fn capped(len: u64) -> u32 {
    u32::try_from(len).unwrap_or(u32::MAX)
}

/// Accounts for a finished command.
fn account<B: Backend>(task: &Task, backend: &mut B) {
    if let Some(kind) = task.counted_kind() {
        backend.completed(Completed {
            lun: task.lun,
            kind,
            len_bytes: task.moved,
            ok: task.response.status == ScsiStatus::Good,
            started: task.started,
        });
    }
}
