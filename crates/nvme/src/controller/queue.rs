//! A queue of a controller: the commands of one connection, from submission queue entry to
//! completion, for every transport.
//!
//! ```text
//!               begin                  data … data_done            (filters)
//!  capsule ─────┬──────► Receiving ──────────────┬──────────────► Held ──┐
//!               │                                ├─► Working ────────────┤
//!               ├────────────────────────────────┤                       ▼
//!               └─► (errors, reads, no data) ────┴───────────────────► Ready ──► retire_front ──► Free
//!
//!  on volumes that take time: Filling, or Keeping while data of the capsule arrive, before Receiving, Working or Ready;
//!  Settling before Held or Ready. `Stage::next` has the whole table.
//! ```
//!
//! The transport moves the data: it passes the host's data to [`Queue::data`], in order, and sends
//! the data and completions of the ready commands, from the front. Write data are executed in whole
//! blocks as they arrive; a partial block waits in a small buffer. Nothing is allocated for a read,
//! or for a write whose blocks arrive whole.

mod auth;
mod control;
mod data;
mod fused;
mod role;
mod slot;
mod waiting;
mod work;

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::time::Instant;

use block::{ByteRange, Op, ReadDest, WriteCache};
use session::{Admitted, Leases, Placement};
use zerocopy::little_endian::U16;

use self::auth::QueueAuth;
use self::fused::FusedFirst;
use self::role::Role;
use self::slot::{CidSet, Slot, Stage};
use super::io::{self, Action, Command, Context};
use super::{
    Backend, CommandClass, Completed, DataPointer, Limits, SlotId, SqFlow, is_control_command,
};
use crate::wire::{Cid, Cqe, Fuse, Sqe, Status, StatusCode};

/// The commands of one connection, each in a slot from its capsule to its completion.
#[derive(Debug)]
pub struct Queue {
    role: Role,
    slots: Vec<Slot>,
    free: Vec<SlotId>,
    cids: CidSet,
    /// Commands to be completed or sent, in the order in which they became so.
    ready: VecDeque<SlotId>,
    held: BinaryHeap<Reverse<Held>>,
    held_count: u64,
    working: VecDeque<SlotId>,
    /// What long work has cost in this turn.
    turn_cost: u64,
    fused: FusedFirst,
    sq_head: u16,
    sq_entries: u32,
    transfer_max_bytes: u32,
    /// The volatile write cache that Identify Controller reported to the host.
    write_cache: WriteCache,
    in_capsule_max_bytes: u32,
    /// Empty buffers of a block, for pieces of blocks.
    spare: Vec<Vec<u8>>,
    /// The last known instant.
    now: Instant,
    /// What commands hold on volumes that take time.
    leases: Leases,
    /// Data in capsules of commands whose volume is not ready, in bytes.
    input_bytes: u64,
    /// When the keep alive timer runs out; on admin queues only.
    keep_alive_deadline: Option<Instant>,
    /// In-band authentication, if the host has to prove a secret.
    auth: Option<Box<QueueAuth>>,
    /// The controller was deleted, the host has disconnected, or it was not authenticated.
    is_ended: bool,
}

/// What a transport has to do about a new command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Begun {
    /// Nothing: it carries no data, or none that matter any more.
    Done,
    /// Bring its data.
    Receive {
        /// The command.
        slot: SlotId,
        /// Where they are.
        pointer: DataPointer,
    },
}

/// The host submitted more commands than the queue has entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("more commands than the submission queue has entries ({entries})")]
pub struct QueueFull {
    /// Entries of the queue.
    pub entries: u32,
}

/// The command at the front of those that are ready.
#[derive(Clone, Copy, Debug)]
pub struct Ready<'a> {
    /// Its identifier.
    pub cid: Cid,
    /// Its slot.
    pub slot: SlotId,
    /// What is to be sent before its completion.
    pub payload: Payload<'a>,
    /// Whether the completion reports only success, so that a transport may omit it.
    pub is_plain_success: bool,
}

/// What goes to the host.
#[derive(Clone, Copy, Debug)]
pub enum Payload<'a> {
    /// Nothing (more).
    None,
    /// Bytes of a volume, whole blocks at a time through [`Queue::copy_front`] or
    /// [`Queue::place_front`].
    Blocks {
        /// The length of a block.
        block_bytes: u32,
        /// How many were taken already.
        done_bytes: u32,
        /// How many there are in all.
        len_bytes: u32,
        /// Whether they may be sent from where they lie in the volume: by [`Queue::place_front`].
        may_place: bool,
    },
    /// Bytes of a reply.
    Reply {
        /// How many were taken already.
        done_bytes: u32,
        /// All of them.
        bytes: &'a [u8],
    },
}

#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Held {
    until: Instant,
    order: u64,
    slot: SlotId,
}

impl Queue {
    /// The most data in the capsule of an admin command, in bytes.
    const ADMIN_IN_CAPSULE_BYTES: u32 = 8192;
    /// Buffers that are kept for later.
    const SPARE_MAX: usize = 4;
    const SPARE_BYTES: usize = 4096;

    /// A queue that waits for its Connect command.
    pub fn new(now: Instant) -> Self {
        let limits = Limits::default();
        Self {
            role: Role::Unconnected,
            slots: vec![Slot::new(now)],
            free: vec![SlotId(0)],
            cids: CidSet::new(),
            ready: VecDeque::new(),
            held: BinaryHeap::new(),
            held_count: 0,
            working: VecDeque::new(),
            turn_cost: 0,
            fused: FusedFirst::None,
            sq_head: 0,
            sq_entries: 1,
            transfer_max_bytes: limits.transfer_max_bytes() as u32,
            write_cache: WriteCache::Absent,
            in_capsule_max_bytes: Self::ADMIN_IN_CAPSULE_BYTES,
            spare: Vec::new(),
            now,
            leases: Leases::new(0),
            input_bytes: 0,
            keep_alive_deadline: None,
            auth: None,
            is_ended: false,
        }
    }

    /// The most data that a command capsule may carry, in bytes.
    pub fn in_capsule_max_bytes(&self) -> u32 {
        self.in_capsule_max_bytes
    }

    /// How many slots there are: their numbers are below.
    pub fn slots_len(&self) -> usize {
        self.slots.len()
    }

    /// Whether completions carry SQHD.
    pub fn sq_flow(&self) -> SqFlow {
        self.role
            .connection()
            .map_or(SqFlow::Enabled, |connection| connection.sq_flow)
    }

    /// The slot of the command that begins next.
    pub fn next_slot(&self) -> Option<SlotId> {
        self.free.last().copied()
    }

    /// The identifier of the command in `slot`, if it waits for data.
    pub fn receiving(&self, slot: SlotId) -> Option<Cid> {
        let slot = self.slots.get(slot.index())?;
        matches!(slot.stage(), Stage::Receiving | Stage::Keeping).then_some(slot.cid)
    }

    /// Starts a turn, since input has arrived or time has passed. All that follows may cost one
    /// turn.
    pub fn start_turn(&mut self, now: Instant) {
        self.now = now;
        self.turn_cost = 0;
    }

    /// Handles a command. `pointer` is the meaning of its data pointer to the transport, and is
    /// used only if the command has data.
    pub fn begin<B: Backend>(
        &mut self,
        sqe: &Sqe,
        pointer: Result<DataPointer, StatusCode>,
        backend: &mut B,
    ) -> Result<Begun, QueueFull> {
        let id = self.free.pop().ok_or(QueueFull {
            entries: self.sq_entries,
        })?;
        self.advance_head();
        let is_control = !self.role.is_io() || is_control_command(sqe.opcode);
        if self.fused != FusedFirst::None && (is_control || sqe.fuse() != Fuse::Second) {
            self.break_pair(backend);
        }
        let slot = &mut self.slots[id.index()];
        slot.open(self.now, sqe);
        if !self.cids.insert(sqe.cid()) {
            slot.flags.cid_conflicts = true;
            return Ok(self.reject(id, StatusCode::CommandIdConflict));
        }
        if is_control {
            return Ok(self.begin_control(id, sqe, pointer, backend));
        }
        slot.kind = io::kind(sqe.opcode);
        Ok(match sqe.fuse() {
            Fuse::None => self.begin_io(id, pointer, sqe, backend),
            Fuse::First => self.begin_first(id, pointer, sqe, backend),
            Fuse::Second => self.begin_second(id, pointer, sqe, backend),
            Fuse::Reserved => self.reject(id, StatusCode::InvalidField),
        })
    }

    fn context(&mut self, id: SlotId, pointer: Result<DataPointer, StatusCode>) -> Context<'_> {
        Context {
            now: self.now,
            slot: id,
            leases: &mut self.leases,
            kind: self.slots[id.index()].kind,
            pointer,
            transfer_max_bytes: self.transfer_max_bytes,
            write_cache: self.write_cache,
        }
    }

    fn begin_io<B: Backend>(
        &mut self,
        id: SlotId,
        pointer: Result<DataPointer, StatusCode>,
        sqe: &Sqe,
        backend: &mut B,
    ) -> Begun {
        match io::parse(&mut self.context(id, pointer), sqe, backend) {
            Ok(command) => self.start(id, &command, backend),
            Err(status) => self.reject(id, status),
        }
    }

    /// Starts a checked command.
    fn start<B: Backend>(&mut self, id: SlotId, command: &Command, backend: &mut B) -> Begun {
        let slot = &mut self.slots[id.index()];
        slot.action = command.action;
        slot.source = command.source;
        slot.extent = command.extent;
        slot.block_shift = command.block_shift;
        slot.len_bytes = command.len_bytes;
        slot.flags.may_place = command.may_place;
        if !matches!(command.admitted, Admitted::Now)
            && let Some(begun) = self.start_restricted(id, command, backend)
        {
            return begun;
        }
        if let Some(pointer) = command.from_host {
            return Begun::Receive { slot: id, pointer };
        }
        match command.action {
            Action::Read | Action::Hint => self.finish(id),
            _ => self.start_work(id, backend),
        }
        Begun::Done
    }

    /// Handles an admission other than [`Admitted::Now`]. Returns an outcome if the command does
    /// not start now.
    #[cold]
    fn start_restricted<B: Backend>(
        &mut self,
        id: SlotId,
        command: &Command,
        backend: &mut B,
    ) -> Option<Begun> {
        let slot = &mut self.slots[id.index()];
        match command.admitted {
            Admitted::Now => {}
            Admitted::Leased(until) => {
                slot.not_before = until;
                slot.flags.may_place = false;
            }
            Admitted::NotBefore(until) => slot.not_before = Some(until),
            Admitted::Fail(status, until) => {
                slot.not_before = until;
                return Some(self.reject(id, Status::from(status)));
            }
            Admitted::Filling(until) => {
                slot.not_before = until;
                return Some(self.start_filling(id, command.from_host, backend));
            }
        }
        None
    }

    fn reject(&mut self, id: SlotId, status: impl Into<Status>) -> Begun {
        self.slots[id.index()].fail(status);
        self.finish(id);
        Begun::Done
    }

    /// The command is executed: it may be completed, now or when its volume allows.
    fn finish(&mut self, id: SlotId) {
        let slot = &mut self.slots[id.index()];
        match slot.not_before {
            Some(until) if until > self.now => {
                slot.enter(Stage::Held);
                self.held_count += 1;
                self.held.push(Reverse(Held {
                    until,
                    order: self.held_count,
                    slot: id,
                }));
            }
            _ => {
                slot.enter(Stage::Ready);
                self.ready.push_back(id);
            }
        }
    }

    fn advance_head(&mut self) {
        let next = u32::from(self.sq_head) + 1;
        self.sq_head = if next >= self.sq_entries {
            0
        } else {
            next as u16
        };
    }

    /// When [`Self::handle_timeout`] is due.
    pub fn poll_timeout(&self) -> Option<Instant> {
        if !self.working.is_empty() {
            return Some(self.now);
        }
        let held = self.held.peek().map(|Reverse(held)| held.until);
        let authentication = self.auth.as_ref().and_then(|auth| auth.deadline());
        let due = [held, self.keep_alive_deadline, authentication];
        due.into_iter().flatten().min()
    }

    /// Continues commands that are executed in pieces, and releases delayed ones.
    pub fn handle_timeout<B: Backend>(&mut self, now: Instant, backend: &mut B) {
        self.start_turn(now);
        while let Some(Reverse(held)) = self.held.peek() {
            if held.until > now {
                break;
            }
            let slot = held.slot;
            self.held.pop();
            self.slots[slot.index()].enter(Stage::Ready);
            self.ready.push_back(slot);
        }
        self.work(backend);
        self.handle_keep_alive(backend);
        self.end_late_authentication(backend);
    }

    /// Whether the connection is to be closed once what is ready has been sent.
    pub fn is_ended(&self) -> bool {
        self.is_ended
    }

    /// Whether no command is in progress that the end of the connection would abort. Asynchronous
    /// Event Requests do not count. The end of an admin queue also ends the controller's I/O
    /// queues, so it is idle when they are gone.
    pub fn is_idle(&self) -> bool {
        let is_at_rest = |slot: &Slot| matches!(slot.stage(), Stage::Free | Stage::Parked);
        let is_needed = self.role.connection().is_some_and(|connection| {
            connection.queue.is_admin() && connection.io_queues.count() > 0
        });
        !is_needed && self.slots.iter().all(is_at_rest)
    }

    /// Whether a command is ready.
    pub fn has_ready(&self) -> bool {
        !self.ready.is_empty()
    }

    /// The first ready command.
    pub fn front(&self) -> Option<Ready<'_>> {
        let id = *self.ready.front()?;
        let slot = &self.slots[id.index()];
        let payload = if slot.is_failed() || slot.done_bytes >= slot.len_bytes {
            Payload::None
        } else {
            match slot.action {
                Action::Read => Payload::Blocks {
                    block_bytes: 1 << slot.block_shift,
                    done_bytes: slot.done_bytes,
                    len_bytes: slot.len_bytes,
                    may_place: slot.flags.may_place,
                },
                Action::Control => Payload::Reply {
                    done_bytes: slot.done_bytes,
                    bytes: &slot.buffer,
                },
                _ => Payload::None,
            }
        };
        Some(Ready {
            cid: slot.cid,
            slot: id,
            payload,
            is_plain_success: !slot.is_failed() && slot.result == 0,
        })
    }

    /// Reads the next bytes of the first ready command, a read, into `dest`: whole blocks. If this
    /// fails, the command must be completed with the error.
    pub fn copy_front<B: Backend>(
        &mut self,
        dest: &mut [u8],
        backend: &mut B,
    ) -> Result<(), Status> {
        let len_bytes = dest.len() as u32;
        self.read_front(len_bytes, ReadDest::Copy(dest), backend)
            .map(|_| ())
    }

    /// The placement of the next `len_bytes` bytes of the first ready command, a read. If this
    /// fails, the command must be completed with the error.
    pub fn place_front<B: Backend>(
        &mut self,
        len_bytes: u32,
        backend: &mut B,
    ) -> Result<Placement, Status> {
        self.read_front(len_bytes, ReadDest::InPlace, backend)
    }

    fn read_front<B: Backend>(
        &mut self,
        len_bytes: u32,
        dest: ReadDest<'_>,
        backend: &mut B,
    ) -> Result<Placement, Status> {
        let id = *self.ready.front().expect("the caller has seen the front");
        let slot = &mut self.slots[id.index()];
        let extent = slot.next_extent(len_bytes);
        let done = match backend.namespace(slot.nsid) {
            Some(namespace) if namespace.source == slot.source => namespace
                .permit
                .check(CommandClass::Read)
                .map_err(Status::from)
                .and_then(|()| {
                    let volume = namespace.volume;
                    volume
                        .execute(Op::Read { extent, dest })
                        .map_err(Status::from)
                }),
            _ => Err(Status::from(StatusCode::InvalidNamespaceOrFormat)),
        };
        match done {
            Ok(()) => {
                slot.done_bytes += len_bytes;
                // The volume has checked that the blocks exist.
                let range = ByteRange {
                    offset: extent.lba.0 << slot.block_shift,
                    len: u64::from(len_bytes),
                };
                Ok(Placement {
                    source: slot.source,
                    range,
                })
            }
            Err(status) => {
                slot.fail(status);
                Err(status)
            }
        }
    }

    /// `len_bytes` bytes of the first ready command's reply were sent.
    pub fn advance_front(&mut self, len_bytes: u32) {
        if let Some(id) = self.ready.front() {
            self.slots[id.index()].done_bytes += len_bytes;
        }
    }

    /// Completes the first ready command and frees its slot.
    pub fn retire_front<B: Backend>(&mut self, now: Instant, backend: &mut B) -> Option<Cqe> {
        let id = self.ready.pop_front()?;
        if self.slots[id.index()].is_failed() {
            self.record_failure(id, backend);
        }
        let slot = &self.slots[id.index()];
        let mut cqe = Cqe::new(slot.cid, slot.status, slot.result);
        cqe.sq_head = U16::new(self.sq_head(slot));
        if let Some(kind) = slot.kind {
            backend.completed(&Completed {
                nsid: slot.nsid,
                kind,
                len_bytes: slot.len_bytes,
                status: slot.status,
                started: slot.started,
                now,
            });
        }
        if !self.leases.is_empty() {
            self.end_lease(id, backend);
        }
        let slot = &mut self.slots[id.index()];
        slot.enter(Stage::Free);
        if !slot.flags.cid_conflicts {
            self.cids.remove(slot.cid);
        }
        if slot.buffer.capacity() > 0 {
            let buffer = std::mem::take(&mut slot.buffer);
            self.recycle(buffer);
        }
        self.free.push(id);
        Some(cqe)
    }

    /// Puts an I/O command that failed into the error log. Those of the control path are there
    /// already.
    #[cold]
    fn record_failure<B: Backend>(&self, id: SlotId, backend: &mut B) {
        let slot = &self.slots[id.index()];
        let Role::Io(connection) = &self.role else {
            return;
        };
        if !slot.flags.is_control {
            let command = slot.failed_command();
            backend.with_subsystem(|subsystem| {
                subsystem.record_error(connection, &command, slot.status);
            });
        }
    }

    fn recycle(&mut self, mut buffer: Vec<u8>) {
        if buffer.capacity() == Self::SPARE_BYTES && self.spare.len() < Self::SPARE_MAX {
            buffer.clear();
            self.spare.push(buffer);
        }
    }

    fn spare_buffer(&mut self) -> Vec<u8> {
        self.spare
            .pop()
            .unwrap_or_else(|| Vec::with_capacity(Self::SPARE_BYTES))
    }
}
