//! Commands of the control path: their opcodes, their data, and the functions that execute them.
//!
//! Read first: NVM Express Base 2.0, "Admin Command Set", "Fabrics Command Set".

use std::time::Instant;

use block::Lba;

use super::log_entries::FailedCommand;
use super::state::Transition;
use crate::controller::reply::{Answer, DONE, Failure, Location};
use crate::controller::{Completion, Connection, ControllerId, QueueId, Reply, Subsystem};
use crate::wire::auth::MESSAGE_MAX_BYTES;
use crate::wire::fabrics::{
    Capabilities, Configuration, ConnectData, ConnectSqe, Property, PropertySqe, VERSION_2_0,
    fctype,
};
use crate::wire::{Fuse, Psdt, Sqe, Status, StatusCode, feature, opcode};

/// How long CSTS.RDY may take to follow CC.EN: it follows at once; this is the smallest figure.
const READY_TIMEOUT_MS: u32 = 500;

/// How many bytes of data a command of the control path carries from the host, as far as its opcode
/// and fields tell; the transport fetches them before the command is executed, and rejects the
/// command if its SGL differs.
pub fn host_data_len(sqe: &Sqe) -> usize {
    match sqe.opcode {
        opcode::SET_FEATURES => feature::host_data_len(sqe),
        opcode::RESERVATION_REGISTER | opcode::RESERVATION_ACQUIRE => 16,
        // One key; but Linux sends the room for two.
        opcode::RESERVATION_RELEASE => sqe.sgl1.len_bytes.get().clamp(8, 16) as usize,
        Sqe::OPCODE_FABRICS if sqe.fctype() == fctype::CONNECT => size_of::<ConnectData>(),
        // Its Transfer Length (TL), as far as a message can be long.
        Sqe::OPCODE_FABRICS if sqe.fctype() == fctype::AUTHENTICATION_SEND => {
            (sqe.cdw11.get() as usize).min(MESSAGE_MAX_BYTES)
        }
        _ => 0,
    }
}

/// Whether a command on an I/O queue goes to [`Subsystem::io_control`]: Fabrics commands and
/// reservations.
pub const fn is_control_command(opcode: u8) -> bool {
    matches!(
        opcode,
        Sqe::OPCODE_FABRICS
            | opcode::RESERVATION_REGISTER
            | opcode::RESERVATION_REPORT
            | opcode::RESERVATION_ACQUIRE
            | opcode::RESERVATION_RELEASE
    )
}

impl Subsystem {
    /// Executes a command of the admin queue of `controller`. `data` are the [`host_data_len`]
    /// bytes that it carries.
    pub fn admin(
        &mut self,
        now: Instant,
        controller: ControllerId,
        sqe: &Sqe,
        data: &[u8],
    ) -> Reply {
        let answer = self.admin_answer(now, controller, sqe, data);
        answer.unwrap_or_else(|failure| self.fail(controller, QueueId::ADMIN, sqe, failure))
    }

    /// Executes a command of an I/O queue for which [`is_control_command`] holds.
    pub fn io_control(&mut self, connection: &Connection, sqe: &Sqe, data: &[u8]) -> Reply {
        let answer = self.io_answer(connection, sqe, data);
        answer.unwrap_or_else(|failure| {
            self.fail(connection.controller, connection.queue, sqe, failure)
        })
    }

    /// Adds an entry to the error log for a command of the I/O path that failed.
    pub fn record_error(
        &mut self,
        connection: &Connection,
        command: &FailedCommand,
        status: Status,
    ) {
        if let Some(controller) = self.controllers.get_mut(&connection.controller) {
            let location = Location::Unspecified;
            controller
                .errors
                .record(connection.queue, command, status, location);
        }
    }

    /// The completion of a command that failed, with its entry in the error log.
    fn fail(
        &mut self,
        controller: ControllerId,
        queue: QueueId,
        sqe: &Sqe,
        failure: Failure,
    ) -> Reply {
        let mut completion = failure.completion;
        if let Some(controller) = self.controllers.get_mut(&controller) {
            completion.status = completion.status.with_more();
            let command = FailedCommand {
                cid: sqe.cid(),
                nsid: sqe.nsid(),
                opcode: sqe.opcode,
                lba: Lba(0),
            };
            controller
                .errors
                .record(queue, &command, completion.status, failure.location);
        }
        Reply::Done(completion)
    }

    fn admin_answer(&mut self, now: Instant, id: ControllerId, sqe: &Sqe, data: &[u8]) -> Answer {
        check_flags(sqe)?;
        let controller = self
            .controllers
            .get_mut(&id)
            .ok_or(StatusCode::InternalError)?;
        controller.keep_alive.activity.mark();
        if sqe.opcode == Sqe::OPCODE_FABRICS {
            return self.fabrics(id, sqe);
        }
        if !controller.is_ready() {
            return Err(StatusCode::CommandSequenceError.at(Location::OPCODE));
        }
        match sqe.opcode {
            opcode::ABORT => self.abort(id, sqe),
            opcode::ASYNC_EVENT_REQUEST => {
                controller.events.request(sqe.cid())?;
                Ok(Reply::Hold)
            }
            opcode::KEEP_ALIVE => {
                controller.keep_alive.restart(now);
                DONE
            }
            opcode::IDENTIFY => self.identify(id, sqe),
            opcode::GET_LOG_PAGE => self.get_log_page(id, sqe),
            opcode::GET_FEATURES => self.get_features(now, id, sqe),
            opcode::SET_FEATURES => self.set_features(now, id, sqe, data),
            _ => Err(StatusCode::InvalidOpcode.at(Location::OPCODE)),
        }
    }

    /// Fabrics commands on the admin queue of a controller that is connected.
    fn fabrics(&mut self, id: ControllerId, sqe: &Sqe) -> Answer {
        match sqe.fctype() {
            fctype::PROPERTY_GET => self.property_get(id, sqe),
            fctype::PROPERTY_SET => self.property_set(id, sqe),
            fctype::CONNECT => Err(StatusCode::CommandSequenceError.at(Location::NSID)),
            fctype::DISCONNECT => Err(StatusCode::InvalidQueueType.at(Location::NSID)),
            _ => Err(StatusCode::InvalidOpcode.at(Location::NSID)),
        }
    }

    fn property_get(&self, id: ControllerId, sqe: &Sqe) -> Answer {
        let (property, _) = property(sqe)?;
        let controller = self.controllers.get(&id).ok_or(StatusCode::InternalError)?;
        let value = match property {
            Property::Capabilities => {
                Capabilities::new(self.config.limits.io_queue_depth_max, READY_TIMEOUT_MS).0
            }
            Property::Version => u64::from(VERSION_2_0),
            Property::Configuration => u64::from(controller.configuration.0),
            Property::Status => u64::from(controller.status.0),
            Property::SubsystemReset => {
                return Err(StatusCode::InvalidField.at(Location::CDW11));
            }
        };
        Ok(Reply::Done(super::Completion::success(value)))
    }

    fn property_set(&mut self, id: ControllerId, sqe: &Sqe) -> Answer {
        let (property, command) = property(sqe)?;
        if property != Property::Configuration {
            return Err(StatusCode::InvalidField.at(Location::CDW11));
        }
        let controller = self
            .controllers
            .get_mut(&id)
            .ok_or(StatusCode::InternalError)?;
        let value = Configuration(command.value.get() as u32);
        let admin_queue = controller.queues.get(&QueueId::ADMIN).copied();
        match (controller.configure(value), admin_queue) {
            (Transition::EndIoQueues, Some(admin_queue)) => {
                self.end_io_queues(id);
                Ok(self.fence_leaving((admin_queue, sqe.cid()), Completion::SUCCESS))
            }
            _ => DONE,
        }
    }

    fn io_answer(&mut self, connection: &Connection, sqe: &Sqe, data: &[u8]) -> Answer {
        check_flags(sqe)?;
        match sqe.opcode {
            Sqe::OPCODE_FABRICS => self.io_fabrics(connection, sqe),
            _ => self.reservation(connection, sqe, data),
        }
    }

    /// Fabrics commands on an I/O queue. A Disconnect ends the queue: the transport sends the
    /// completion and closes the connection.
    fn io_fabrics(&mut self, connection: &Connection, sqe: &Sqe) -> Answer {
        match sqe.fctype() {
            fctype::DISCONNECT if sqe.cdw10.get() as u16 != ConnectSqe::RECORD_FORMAT => {
                Err(StatusCode::ConnectIncompatibleFormat.at(Location::CDW10))
            }
            fctype::DISCONNECT => {
                self.remove_queue(connection);
                DONE
            }
            fctype::CONNECT => Err(StatusCode::CommandSequenceError.at(Location::NSID)),
            _ => Err(StatusCode::InvalidOpcode.at(Location::NSID)),
        }
    }
}

/// Commands of the control path are never fused and use SGLs.
fn check_flags(sqe: &Sqe) -> Result<(), Failure> {
    const FLAGS: Location = Location::Byte(1);
    if sqe.fuse() != Fuse::None || sqe.psdt() != Psdt::SglMetadataAddress {
        return Err(StatusCode::InvalidField.at(FLAGS));
    }
    Ok(())
}

fn property(sqe: &Sqe) -> Result<(Property, PropertySqe), Failure> {
    let command: PropertySqe = zerocopy::transmute!(*sqe);
    let property = Property::from_offset(command.offset.get())
        .ok_or(StatusCode::InvalidField.at(Location::CDW11))?;
    if command.len_bytes() != Some(property.len_bytes()) {
        return Err(StatusCode::InvalidField.at(Location::CDW10));
    }
    Ok((property, command))
}
