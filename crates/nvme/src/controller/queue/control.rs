//! Commands of the control path: Connect, the admin queue, Fabrics commands and reservations on I/O
//! queues. Their data are gathered behind their submission queue entry; then the subsystem executes
//! them.

use std::cmp::Reverse;
use std::time::Instant;

use session::Leases;
use zerocopy::{FromBytes, IntoBytes};

use super::auth::{QueueAuth, is_authentication};
use super::role::Role;
use super::slot::{Slot, Stage};
use super::{Begun, Queue};
use crate::controller::subsystem::Outcome;
use crate::controller::{
    Authentication, Backend, Completion, Connection, DataPointer, Reply, SlotId, SqFlow, connect,
    host_data_len,
};
use crate::wire::fabrics::fctype;
use crate::wire::{Cid, Sqe, StatusCode};

const SQE_BYTES: usize = size_of::<Sqe>();

impl Queue {
    /// The connection, once Connect has succeeded.
    pub fn connection(&self) -> Option<&Connection> {
        self.role.connection()
    }

    pub(super) fn begin_control<B: Backend>(
        &mut self,
        id: SlotId,
        sqe: &Sqe,
        pointer: Result<DataPointer, StatusCode>,
        backend: &mut B,
    ) -> Begun {
        let is_connect = sqe.opcode == Sqe::OPCODE_FABRICS && sqe.fctype() == fctype::CONNECT;
        if self.connection().is_none() && !is_connect {
            return self.reject(id, StatusCode::CommandSequenceError);
        }
        if matches!(self.role, Role::Unproven(_)) && !is_authentication(sqe) {
            return self.reject(id, StatusCode::AuthenticationRequired);
        }
        let len_bytes = host_data_len(sqe);
        let slot = &mut self.slots[id.index()];
        slot.flags.is_control = true;
        slot.flags.is_connect = is_connect;
        slot.to_host = match pointer {
            Ok(DataPointer::Remote { len_bytes }) => Ok(len_bytes),
            Ok(DataPointer::InCapsule { .. }) => Err(StatusCode::SglDescriptorTypeInvalid),
            Err(code) => Err(code),
        };
        slot.buffer = Vec::with_capacity(SQE_BYTES + len_bytes);
        slot.buffer.extend_from_slice(sqe.as_bytes());
        if len_bytes == 0 {
            self.execute_control(id, backend);
            return Begun::Done;
        }
        match pointer {
            Ok(pointer) if pointer.len_bytes() as usize == len_bytes => {
                slot.len_bytes = len_bytes as u32;
                Begun::Receive { slot: id, pointer }
            }
            Ok(_) => self.reject(id, StatusCode::DataSglLengthInvalid),
            Err(code) => self.reject(id, code),
        }
    }

    pub(super) fn execute_control<B: Backend>(&mut self, id: SlotId, backend: &mut B) {
        let now = self.now;
        let gathered = std::mem::take(&mut self.slots[id.index()].buffer);
        let (sqe, data) =
            Sqe::read_from_prefix(&gathered).expect("the buffer starts with an entry");
        if self.auth.is_some() && is_authentication(&sqe) {
            self.authenticate(id, &sqe, data, backend);
            return self.renew_deadline(backend);
        }
        let reply = match &self.role {
            Role::Unproven(_) => Reply::Done(StatusCode::AuthenticationRequired.into()),
            Role::Unconnected => match connect(now, &sqe, data, backend) {
                Ok(connection) => {
                    let reply = backend.with_subsystem(|subsystem| {
                        subsystem.answer_connect(&connection, sqe.cid())
                    });
                    self.open(now, connection, backend);
                    reply
                }
                Err(completion) => Reply::Done(completion),
            },
            Role::Admin(connection) => {
                let controller = connection.controller;
                backend.with_subsystem(|subsystem| subsystem.admin(now, controller, &sqe, data))
            }
            Role::Io(connection) => {
                backend.with_subsystem(|subsystem| subsystem.io_control(connection, &sqe, data))
            }
        };
        self.reply(id, reply);
        self.complete_kept(backend);
        self.renew_deadline(backend);
    }

    pub(super) fn reply(&mut self, id: SlotId, reply: Reply) {
        let slot = &mut self.slots[id.index()];
        slot.done_bytes = 0;
        slot.len_bytes = 0;
        match reply {
            Reply::Done(completion) => slot.complete(completion),
            Reply::Data(bytes) => match slot.to_host {
                Ok(room_bytes) if bytes.len() > room_bytes as usize => {
                    slot.fail(StatusCode::DataSglLengthInvalid);
                }
                Ok(_) => {
                    slot.len_bytes = bytes.len() as u32;
                    slot.buffer = bytes;
                }
                Err(code) => slot.fail(code),
            },
            Reply::Hold => {
                slot.enter(Stage::Parked);
                return;
            }
        }
        self.finish(id);
    }

    /// Handles changes of the subsystem: completes commands that it kept, and records that the
    /// connection no longer belongs to its controller.
    pub fn handle_wake<B: Backend>(&mut self, now: Instant, backend: &mut B) {
        self.start_turn(now);
        let Some(connection) = self.role.connection() else {
            return;
        };
        self.is_ended |= !backend.with_subsystem(|subsystem| subsystem.acknowledge(connection));
        if self.is_ended {
            return;
        }
        self.fail_without_namespace(backend);
        self.abort_asked(backend);
        self.complete_kept(backend);
        self.continue_authentication(backend);
        self.renew_deadline(backend);
    }

    /// Aborts the commands that the admin queue asked to abort, if possible.
    fn abort_asked<B: Backend>(&mut self, backend: &mut B) {
        while let Some(connection) = self.role.connection() {
            let Some(cid) = backend.with_subsystem(|subsystem| subsystem.poll_abort(connection))
            else {
                return;
            };
            let outcome = self.abort(cid, backend);
            if let Some(connection) = self.role.connection() {
                backend.with_subsystem(|subsystem| subsystem.answer_abort(connection, outcome));
            }
        }
    }

    /// Completes a command with Command Abort Requested if it is delayed, in work, or waits for its
    /// volume. A command whose data are being transferred continues.
    fn abort<B: Backend>(&mut self, cid: Cid, backend: &mut B) -> Outcome {
        let is_victim = |slot: &Slot| {
            slot.cid == cid
                && !slot.flags.cid_conflicts
                && (matches!(slot.stage(), Stage::Held | Stage::Working) || slot.waits_for_volume())
        };
        let Some(index) = self.slots.iter().position(is_victim) else {
            return Outcome::NotAborted;
        };
        let id = SlotId(index as u16);
        self.held.retain(|Reverse(held)| held.slot != id);
        self.working.retain(|&working| working != id);
        self.give_up(id, StatusCode::AbortRequested, backend);
        Outcome::Aborted
    }

    /// Completes the commands that the subsystem had kept and that are due.
    fn complete_kept<B: Backend>(&mut self, backend: &mut B) {
        while let Some(connection) = self.role.connection() {
            let due = backend.with_subsystem(|subsystem| subsystem.poll_kept(connection));
            let Some((cid, completion)) = due else {
                return;
            };
            let parked = |slot: &Slot| slot.stage() == Stage::Parked && slot.cid == cid;
            if let Some(index) = self.slots.iter().position(parked) {
                self.slots[index].complete(completion);
                self.finish(SlotId(index as u16));
            }
        }
    }

    /// Ends the controller if its keep alive timer has expired.
    pub(super) fn handle_keep_alive<B: Backend>(&mut self, backend: &mut B) {
        let Role::Admin(connection) = &self.role else {
            return;
        };
        if self.keep_alive_deadline.is_some_and(|due| due <= self.now) {
            let (now, controller) = (self.now, connection.controller);
            backend.with_subsystem(|subsystem| subsystem.handle_timeout(now, controller));
            self.handle_wake(now, backend);
        }
    }

    /// Handles the end of the connection: removes it from the subsystem and releases its leases.
    pub fn handle_close<B: Backend>(&mut self, backend: &mut B) {
        self.leases.release_all();
        if let Some(connection) = self.role.connection() {
            backend.with_subsystem(|subsystem| subsystem.connection_closed(connection));
        }
    }

    /// Whether the connection may be closed by a server that stops, as far as other queues are
    /// concerned; this one is idle. Hosts end a controller with the first of its I/O queues, and
    /// cancel what is in flight on the others. So no I/O queue is closed until each has been idle
    /// once: what was in flight when the server began to stop is answered.
    pub fn may_close<B: Backend>(&mut self, backend: &mut B) -> bool {
        let Some(connection) = self.role.connection() else {
            return true;
        };
        connection.queue.is_admin()
            || connection.io_queues.have_rested()
            || backend.with_subsystem(|subsystem| subsystem.note_rest(connection))
    }

    /// A command may have moved the keep alive timer, or ended the connection (Disconnect).
    fn renew_deadline<B: Backend>(&mut self, backend: &mut B) {
        let Some(connection) = self.role.connection() else {
            return;
        };
        let is_admin = matches!(self.role, Role::Admin(_));
        let (deadline, is_connected) = backend.with_subsystem(|subsystem| {
            (
                subsystem.poll_timeout(connection.controller),
                subsystem.is_connected(connection),
            )
        });
        self.keep_alive_deadline = deadline.filter(|_| is_admin);
        self.is_ended |= !is_connected;
    }

    /// Becomes a queue of a controller.
    fn open<B: Backend>(&mut self, now: Instant, connection: Connection, backend: &mut B) {
        let (limits, write_cache) = backend.with_subsystem(|subsystem| {
            let write_cache = subsystem.write_cache(connection.controller);
            (subsystem.config().limits, write_cache)
        });
        self.write_cache = write_cache;
        let origin = backend.origin();
        let transport = origin.transport;
        self.leases = Leases::new(origin.wake.0);
        self.transfer_max_bytes = u32::try_from(limits.transfer_max_bytes()).unwrap_or(u32::MAX);
        self.sq_entries = connection.sq_entries;
        self.sq_head = 1;
        for index in self.slots.len()..self.sq_entries as usize {
            self.slots.push(Slot::new(now));
            self.free.push(SlotId(index as u16));
        }
        self.ready.reserve(self.slots.len());
        if !connection.queue.is_admin() {
            self.in_capsule_max_bytes = limits.in_capsule_max_bytes(transport);
        }
        let authentication = connection.authentication.as_ref();
        self.auth = authentication.map(|authentication| QueueAuth::new(now, authentication));
        self.role = if authentication.is_some_and(Authentication::is_required) {
            Role::Unproven(connection)
        } else {
            Role::of(connection)
        };
    }

    /// The submission queue head of a completion (SQHD).
    pub(super) fn sq_head(&self, slot: &Slot) -> u16 {
        /// In the completion of Connect: flow control is disabled.
        const FLOW_DISABLED: u16 = 0xFFFF;
        match self.sq_flow() {
            SqFlow::Enabled => self.sq_head,
            SqFlow::Disabled if slot.flags.is_connect => FLOW_DISABLED,
            SqFlow::Disabled => 0,
        }
    }
}

impl Slot {
    fn complete(&mut self, completion: Completion) {
        self.status = completion.status;
        self.result = completion.result;
    }
}
