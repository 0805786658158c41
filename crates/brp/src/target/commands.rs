//! The commands of a session, each in the slot of its tag from COMMAND to REPLY.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::time::Instant;

use block::{ByteRange, Extent, Op, OpKind, ReadDest};
use session::{Admitted, Leases, Placement, RemoteBuffer};

use super::backend::{Backend, Completed};
use super::merge::{Merge, Merger};
use super::record::{Arrival, Progress};
use super::slot::{Payload, Slot, Stage, allowed};
use super::{SessionRecord, Tag};
use crate::wire::{Command, Features, Operation, SessionId, Short, Status, Violation};

/// The commands of one session on one connection.
#[derive(Debug)]
pub(crate) struct Commands {
    session: SessionId,
    pub(super) slots: Box<[Slot]>,
    /// Commands to be answered or sent, in the order of sending.
    ready: VecDeque<Tag>,
    /// Without [`Features::ANY_ORDER`]: commands whose reply is not ready, in the order of arrival
    /// (BRP-35).
    order: Option<VecDeque<Tag>>,
    held: BinaryHeap<Reverse<Held>>,
    held_count: u64,
    pub(super) working: VecDeque<Tag>,
    /// What long work has cost in this turn.
    pub(super) turn_cost: u64,
    in_flight: u16,
    /// Commands that the host may have in flight (BRP-21).
    credits: u16,
    limits: Limits,
    pub(super) merger: Merger,
    /// Empty buffers, for pieces of blocks.
    spare: Vec<Vec<u8>>,
    /// The last known instant.
    pub(super) now: Instant,
    /// What commands hold on volumes that take time.
    pub(super) leases: Leases,
    /// Data inside commands whose volume is not ready, in bytes.
    pub(super) input_bytes: u64,
}

/// The bounds of commands, as the login has granted them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(
    clippy::struct_field_names,
    reason = "each is a bound in bytes, as in LOGIN_REPLY"
)]
pub(crate) struct Limits {
    /// The longest transfer in bytes.
    pub(crate) transfer_max_bytes: u32,
    /// The most data of one side of a COMPARE_AND_WRITE in bytes.
    pub(crate) compare_max_bytes: u32,
    /// The most data inside a reply over RDMA in bytes.
    pub(crate) reply_data_max_bytes: u32,
}

/// Where the data of a new command are.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Given<'a> {
    /// Over TCP: this many bytes are inside the command; if none, they are asked for.
    Stream(u32),
    /// Over RDMA: this many bytes are inside the command.
    Message(u32),
    /// Over RDMA: in this memory of the host, one stretch at least.
    Memory(&'a [RemoteBuffer]),
}

impl Given<'_> {
    /// Bytes inside the command.
    const fn inside_bytes(self) -> u32 {
        match self {
            Self::Stream(bytes) | Self::Message(bytes) => bytes,
            Self::Memory(_) => 0,
        }
    }
}

/// What a transport has to do about a new command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Begun {
    /// Nothing. Data inside the command are dropped.
    Done,
    /// Hand in the data inside the command.
    Inside(Tag),
    /// Fetch these bytes of its data.
    Fetch {
        /// The command.
        tag: Tag,
        /// Where they begin.
        offset_bytes: u32,
        /// How many; at least one.
        len_bytes: u32,
    },
}

/// The command at the front of those that are ready.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReadyCommand {
    pub(crate) tag: Tag,
    pub(crate) payload: Payload,
}

#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Held {
    until: Instant,
    order: u64,
    tag: u16,
}

impl Commands {
    /// Buffers that are kept for later.
    const SPARE_MAX: usize = 4;
    const SPARE_BYTES: usize = 4096;

    /// The commands of the session of `record`, on the connection of this number.
    pub(crate) fn new(
        now: Instant,
        record: SessionRecord,
        connection: u64,
        features: Features,
        merge: Merge,
        limits: Limits,
    ) -> Self {
        let (session, tags) = (record.session(), record.tags());
        let room = usize::from(tags);
        Self {
            session,
            slots: (record.into_tags().map(|tag| Slot::new(now, tag))).collect(),
            ready: VecDeque::with_capacity(room),
            order: (!features.contains(Features::ANY_ORDER)).then(|| VecDeque::with_capacity(room)),
            held: BinaryHeap::new(),
            held_count: 0,
            working: VecDeque::new(),
            turn_cost: 0,
            in_flight: 0,
            credits: tags,
            limits,
            merger: Merger::new(features.contains(Features::MERGE).then_some(merge)),
            spare: Vec::new(),
            now,
            leases: Leases::new(connection),
            input_bytes: 0,
        }
    }

    /// Commands that the host may have in flight.
    pub(crate) fn credits(&self) -> u16 {
        self.credits
    }

    /// Starts a turn, since input has arrived or time has passed. All that follows may cost one
    /// turn.
    pub(crate) fn start_turn(&mut self, now: Instant) {
        if now != self.now {
            self.now = now;
            self.turn_cost = 0;
        }
    }

    /// Whether the command of `tag` waits for data.
    pub(crate) fn is_receiving(&self, tag: Tag) -> bool {
        let slot = self.slots.get(tag.index());
        slot.is_some_and(|slot| matches!(slot.stage(), Stage::Receiving | Stage::Keeping))
    }

    /// Checks that a command may have this tag (BRP-11).
    pub(crate) fn check_free(&self, tag: Tag) -> Result<(), Violation> {
        let slot = self.slots.get(tag.index()).ok_or(Violation::Tag)?;
        if slot.stage() != Stage::Free {
            return Err(Violation::TagInUse);
        }
        Ok(())
    }

    /// The most data inside a reply over RDMA in bytes.
    pub(crate) fn reply_data_max_bytes(&self) -> u32 {
        self.limits.reply_data_max_bytes
    }

    /// Handles a command, whose data are as given.
    pub(crate) fn begin<B: Backend>(
        &mut self,
        command: &Command,
        given: Given<'_>,
        backend: &mut B,
    ) -> Result<Begun, Violation> {
        let tag = Tag(command.tag.get());
        self.check_free(tag)?;
        let slot = &mut self.slots[tag.index()];
        let arrival = slot.record.arrival(command)?;
        slot.open(self.now);
        self.in_flight += 1;
        if let Some(order) = &mut self.order {
            order.push_back(tag);
        }
        if arrival == Arrival::New {
            slot.record.begin(command);
        }
        let Some(operation) = Operation::from_byte(command.operation) else {
            return Ok(self.reject(tag, Status::Unsupported));
        };
        slot.operation = operation;
        if arrival == Arrival::Replay
            && let Some(begun) = self.replay(tag, backend)
        {
            return Ok(begun);
        }
        self.slots[tag.index()].is_known = true;
        Ok(match self.check(tag, given, backend) {
            Ok(admitted) => self.start(tag, admitted, given.inside_bytes(), backend),
            Err(status) => self.reject(tag, status),
        })
    }

    /// Answers a command that was executed in whole (BRP-30). `None`: the rest of it is to be
    /// executed.
    #[cold]
    fn replay<B: Backend>(&mut self, tag: Tag, backend: &mut B) -> Option<Begun> {
        let slot = &mut self.slots[tag.index()];
        match slot.record.progress {
            Progress::Partial => None,
            // It had no effect.
            _ if slot.operation == Operation::Read => {
                slot.record.progress = Progress::Partial;
                None
            }
            Progress::Done => {
                slot.status = slot.record.status;
                self.finish(tag);
                Some(Begun::Done)
            }
            Progress::Executed => {
                slot.operation = Operation::Flush;
                let admitted = match backend.unit() {
                    Some(unit) => {
                        let intent = slot.intent(&[]);
                        self.leases
                            .admit(tag.index(), unit.volume, self.now, &intent)
                    }
                    None => return Some(self.reject(tag, Status::Gone)),
                };
                let source = backend.unit().map(|unit| unit.source);
                self.slots[tag.index()].source = source.unwrap_or(session::SourceId(0));
                Some(self.start(tag, admitted, 0, backend))
            }
        }
    }

    /// Checks a command (BRP-14) and admits it to the volume.
    fn check<B: Backend>(
        &mut self,
        tag: Tag,
        given: Given<'_>,
        backend: &mut B,
    ) -> Result<Admitted, Status> {
        let slot = &mut self.slots[tag.index()];
        let unit = backend.unit().ok_or(Status::Gone)?;
        allowed(slot.operation, unit.permission)?;
        let geometry = unit.volume.geometry();
        slot.block_shift = geometry.block_size.shift();
        slot.source = unit.source;
        let extent = slot.extent();
        let is_flush = slot.operation == Operation::Flush;
        if is_flush != (extent.blocks.0 == 0) || (is_flush && extent.lba.0 != 0) {
            return Err(Status::Invalid);
        }
        let range = geometry.byte_range(extent)?;
        slot.len_bytes = data_bytes(slot.operation, range.len, self.limits)?;
        check_data(slot, given, self.limits.reply_data_max_bytes)?;
        if slot.operation == Operation::Read {
            // It is executed when it is sent, after the other received commands.
            unit.volume.prefetch(OpKind::Read, extent);
            slot.may_place = unit.is_pinned;
        }
        let extents = [extent];
        let extents: &[Extent] = if is_flush { &[] } else { &extents };
        let intent = slot.intent(extents);
        Ok(self
            .leases
            .admit(tag.index(), unit.volume, self.now, &intent))
    }

    /// Starts an admitted command.
    fn start<B: Backend>(
        &mut self,
        tag: Tag,
        admitted: Admitted,
        inside_bytes: u32,
        backend: &mut B,
    ) -> Begun {
        let slot = &mut self.slots[tag.index()];
        match admitted {
            Admitted::Now => {}
            Admitted::Leased(until) => {
                slot.not_before = until;
                slot.may_place = false;
            }
            Admitted::NotBefore(until) => slot.not_before = Some(until),
            Admitted::Fail(status, until) => {
                slot.not_before = until;
                return self.reject(tag, status.into());
            }
            Admitted::Filling(until) => {
                slot.not_before = until;
                slot.may_place = false;
                return self.start_filling(tag, inside_bytes, backend);
            }
        }
        if inside_bytes > 0 {
            return Begun::Inside(tag);
        }
        self.go_on(tag, backend)
    }

    /// Executes an admitted command that has no data inside, or asks for its data.
    pub(super) fn go_on<B: Backend>(&mut self, tag: Tag, backend: &mut B) -> Begun {
        let slot = &mut self.slots[tag.index()];
        match slot.operation {
            Operation::Read => self.finish(tag),
            Operation::Flush | Operation::WriteZeroes | Operation::Discard => {
                self.start_work(tag, backend);
            }
            Operation::Write | Operation::CompareAndWrite => {
                if slot.stage() != Stage::Receiving {
                    slot.enter(Stage::Receiving);
                }
                let offset_bytes = slot.record.done;
                slot.moved_bytes = offset_bytes;
                if slot.operation == Operation::CompareAndWrite && !self.keep_input(tag, backend) {
                    return self.reject(tag, Status::Busy);
                }
                let slot = &mut self.slots[tag.index()];
                if offset_bytes < slot.len_bytes {
                    return Begun::Fetch {
                        tag,
                        offset_bytes,
                        len_bytes: slot.len_bytes - offset_bytes,
                    };
                }
                self.data_gathered(tag, backend);
            }
        }
        Begun::Done
    }

    /// The command fails.
    pub(super) fn reject(&mut self, tag: Tag, status: Status) -> Begun {
        self.slots[tag.index()].fail(status);
        self.finish(tag);
        Begun::Done
    }

    /// There is no memory for data of commands that wait: the host is to send fewer (BRP-21).
    pub(super) fn lower_credits(&mut self) {
        self.credits = (self.credits / 2).max(1);
    }

    /// The command is executed: it may be answered, now or when its volume allows.
    pub(super) fn finish(&mut self, tag: Tag) {
        let slot = &mut self.slots[tag.index()];
        match slot.not_before {
            Some(until) if until > self.now => {
                slot.enter(Stage::Held);
                self.held_count += 1;
                self.held.push(Reverse(Held {
                    until,
                    order: self.held_count,
                    tag: tag.0,
                }));
            }
            _ => self.done(tag),
        }
    }

    /// The command may be answered, if need be after those before it.
    fn done(&mut self, tag: Tag) {
        self.slots[tag.index()].enter(Stage::Done);
        let Some(order) = &mut self.order else {
            self.slots[tag.index()].enter(Stage::Ready);
            self.ready.push_back(tag);
            let ready = self.ready.len();
            return self.merger.note_ready(self.now, ready, self.in_flight);
        };
        while let Some(&first) = order.front() {
            let slot = &mut self.slots[first.index()];
            if slot.stage() != Stage::Done {
                return;
            }
            slot.enter(Stage::Ready);
            self.ready.push_back(first);
            order.pop_front();
            self.merger
                .note_ready(self.now, self.ready.len(), self.in_flight);
        }
    }

    /// When [`Self::handle_timeout`] is due.
    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        if !self.working.is_empty() {
            return Some(self.now);
        }
        let held = self.held.peek().map(|Reverse(held)| held.until);
        held.into_iter().chain(self.merger.poll_timeout()).min()
    }

    /// Continues commands that are executed in pieces, and releases delayed ones.
    pub(crate) fn handle_timeout<B: Backend>(&mut self, now: Instant, backend: &mut B) {
        self.now = now;
        self.turn_cost = 0;
        self.merger.handle_timeout(now);
        while let Some(Reverse(held)) = self.held.peek() {
            if held.until > now {
                break;
            }
            let tag = Tag(held.tag);
            self.held.pop();
            self.done(tag);
        }
        self.work(backend);
    }

    /// Whether no command is in flight.
    pub(crate) fn is_idle(&self) -> bool {
        self.in_flight == 0
    }

    /// Whether a command is ready, and its reply does not wait for others.
    pub(crate) fn has_ready(&self) -> bool {
        !self.ready.is_empty() && self.merger.is_open()
    }

    /// The first ready command, unless its reply waits for others.
    pub(crate) fn front(&self) -> Option<ReadyCommand> {
        if !self.merger.is_open() {
            return None;
        }
        let tag = *self.ready.front()?;
        let payload = self.slots[tag.index()].payload();
        Some(ReadyCommand { tag, payload })
    }

    /// What goes to the host for each ready command, in the order of sending.
    pub(super) fn ready_payloads(&self) -> impl Iterator<Item = Payload> + '_ {
        let slots = &self.slots;
        self.ready.iter().map(|tag| slots[tag.index()].payload())
    }

    /// Reads the next bytes of the first ready command, a read, into `dest`: whole blocks. Returns
    /// `false` if this fails; the command must then be answered with its status.
    #[must_use]
    pub(crate) fn copy_front<B: Backend>(&mut self, dest: &mut [u8], backend: &mut B) -> bool {
        let len_bytes = dest.len() as u32;
        self.read_front(len_bytes, ReadDest::Copy(dest), backend)
            .is_some()
    }

    /// The placement of the next `len_bytes` bytes of the first ready command, a read. `None` if
    /// this fails; the command must then be answered with its status.
    pub(crate) fn place_front<B: Backend>(
        &mut self,
        len_bytes: u32,
        backend: &mut B,
    ) -> Option<Placement> {
        self.read_front(len_bytes, ReadDest::InPlace, backend)
    }

    fn read_front<B: Backend>(
        &mut self,
        len_bytes: u32,
        dest: ReadDest<'_>,
        backend: &mut B,
    ) -> Option<Placement> {
        let tag = *self.ready.front().expect("the caller has seen the front");
        let slot = &mut self.slots[tag.index()];
        let extent = slot.part(slot.moved_bytes, len_bytes);
        slot.execute_op(Op::Read { extent, dest }, backend);
        if slot.is_failed() {
            return None;
        }
        slot.moved_bytes += len_bytes;
        // The volume has checked that the blocks exist.
        let range = ByteRange {
            offset: extent.lba.0 << slot.block_shift,
            len: u64::from(len_bytes),
        };
        Some(Placement {
            source: slot.source,
            range,
        })
    }

    /// Answers the first ready command and frees its tag. `data_bytes` bytes of data follow the
    /// reply.
    pub(crate) fn retire_front<B: Backend>(
        &mut self,
        now: Instant,
        data_bytes: u32,
        backend: &mut B,
    ) -> Option<Short> {
        let tag = self.ready.pop_front()?;
        if !self.leases.is_empty() {
            self.end_lease(tag, backend);
        }
        let slot = &mut self.slots[tag.index()];
        slot.record.status = slot.status;
        slot.record.progress = Progress::Done;
        if let Some(kind) = slot.kind() {
            backend.completed(&Completed {
                kind,
                len_bytes: slot.len_bytes,
                is_success: !slot.is_failed(),
                started: slot.started,
                now,
            });
        }
        if !slot.is_failed() && self.credits < self.slots.len() as u16 {
            self.credits += 1;
        }
        let slot = &mut self.slots[tag.index()];
        slot.enter(Stage::Free);
        self.in_flight -= 1;
        let (status, detail) = (slot.status, slot.record.detail);
        if slot.buffer.capacity() > 0 {
            let buffer = std::mem::take(&mut slot.buffer);
            self.recycle(buffer);
        }
        Some(Short::reply(
            tag.0,
            data_bytes,
            status,
            self.credits,
            detail,
        ))
    }

    /// The connection ends: releases everything, and returns the record of the session.
    pub(crate) fn close<B: Backend>(&mut self, backend: &mut B) -> SessionRecord {
        let tags = self.slots.iter().map(Slot::final_record);
        let record = SessionRecord::of(self.session, tags);
        self.leases.release_all();
        if std::mem::take(&mut self.input_bytes) > 0 {
            backend.charge_input(0);
        }
        record
    }

    pub(super) fn recycle(&mut self, mut buffer: Vec<u8>) {
        if buffer.capacity() == Self::SPARE_BYTES && self.spare.len() < Self::SPARE_MAX {
            buffer.clear();
            self.spare.push(buffer);
        }
    }

    pub(super) fn spare_buffer(&mut self) -> Vec<u8> {
        self.spare
            .pop()
            .unwrap_or_else(|| Vec::with_capacity(Self::SPARE_BYTES))
    }
}

/// How many bytes of data move for a command on `len_bytes` bytes of the volume.
fn data_bytes(operation: Operation, len_bytes: u64, limits: Limits) -> Result<u32, Status> {
    let (max_bytes, times) = match operation {
        Operation::Read | Operation::Write => (limits.transfer_max_bytes, 1),
        Operation::CompareAndWrite => (limits.compare_max_bytes, 2),
        Operation::Flush | Operation::WriteZeroes | Operation::Discard => return Ok(0),
    };
    if len_bytes > u64::from(max_bytes) {
        return Err(Status::Invalid);
    }
    Ok(len_bytes as u32 * times)
}

/// Checks that all data of the command are where they may be (BRP-13, BRP-15, BRP-18).
fn check_data(slot: &Slot, given: Given<'_>, reply_data_max_bytes: u32) -> Result<(), Status> {
    let is_read = slot.operation == Operation::Read;
    let has_data = matches!(
        slot.operation,
        Operation::Write | Operation::CompareAndWrite
    );
    let is_whole = |inside_bytes| has_data && inside_bytes == slot.len_bytes;
    let is_valid = match given {
        Given::Stream(inside_bytes) => inside_bytes == 0 || is_whole(inside_bytes),
        Given::Message(0) if is_read => slot.len_bytes <= reply_data_max_bytes,
        Given::Message(0) => !has_data,
        Given::Message(inside_bytes) => is_whole(inside_bytes),
        Given::Memory(buffers) => (is_read || has_data) && is_tiled(slot, buffers),
    };
    is_valid.then_some(()).ok_or(Status::Invalid)
}

/// Whether the buffers are of whole blocks, have addresses, and hold the command's data exactly.
fn is_tiled(slot: &Slot, buffers: &[RemoteBuffer]) -> bool {
    let rest = (1 << slot.block_shift) - 1;
    let are_valid = buffers.iter().all(|buffer| {
        let len_bytes = buffer.len_bytes;
        len_bytes > 0 && len_bytes & rest == 0 && buffer.piece(0, len_bytes).is_some()
    });
    let sum: u64 = buffers
        .iter()
        .map(|buffer| u64::from(buffer.len_bytes))
        .sum();
    are_valid && sum == u64::from(slot.len_bytes)
}
