//! The reservation commands, which arrive on I/O queues.

use block::Access;
use zerocopy::{FromBytes, IntoBytes};

use super::{HostId, KeyCheck, Notices, Reservations};
use crate::controller::reply::{self, Answer, Failure, Location};
use crate::controller::{Connection, Permit, QueueId, Subsystem};
use crate::wire::reservation::{
    EXTENDED_DATA_STRUCTURE, IGNORE_EXISTING_KEY, RegisteredController, ReservationKeys,
    ReservationStatus, ReservationType, acquire_action, register_action, release_action,
};
use crate::wire::{Nsid, Sqe, StatusCode, opcode};

/// CDW10 bits 2:0: which action.
fn action(sqe: &Sqe) -> u8 {
    (sqe.cdw10.get() & 0b111) as u8
}

/// Reservation Type (RTYPE): CDW10 bits 15:8.
fn kind(sqe: &Sqe) -> Option<ReservationType> {
    ReservationType::from_raw((sqe.cdw10.get() >> 8) as u8)
}

fn invalid() -> Failure {
    StatusCode::InvalidField.at(Location::CDW10)
}

/// The first key of `data`.
fn current_key(data: &[u8]) -> Result<u64, Failure> {
    let (key, _) = data
        .split_first_chunk()
        .ok_or(StatusCode::DataSglLengthInvalid)?;
    Ok(u64::from_le_bytes(*key))
}

fn keys(data: &[u8]) -> Result<ReservationKeys, Failure> {
    ReservationKeys::read_from_bytes(data).map_err(|_| StatusCode::DataSglLengthInvalid.into())
}

/// Ignore Existing Key no longer exists in Acquire and Release; a command that sets it is rejected.
fn check_no_ignore(sqe: &Sqe) -> Result<(), Failure> {
    if sqe.cdw10.get() & IGNORE_EXISTING_KEY != 0 {
        Err(invalid())
    } else {
        Ok(())
    }
}

impl Reservations {
    /// Reservation Register. Change Persist Through Power Loss State (CPTPL) is accepted and
    /// ignored: nothing persists, which RESCAP and PTPLS report, but hosts request it without
    /// checking.
    fn on_register(&mut self, host: HostId, sqe: &Sqe, data: &[u8]) -> Result<Notices, Failure> {
        const CPTPL_RESERVED: u32 = 0b01;
        if sqe.cdw10.get() >> 30 == CPTPL_RESERVED {
            return Err(invalid());
        }
        let keys = keys(data)?;
        let key = keys.other.get();
        let key_check = if sqe.cdw10.get() & IGNORE_EXISTING_KEY == 0 {
            KeyCheck::Current(keys.current.get())
        } else {
            KeyCheck::Skip
        };
        match action(sqe) {
            register_action::REGISTER => self.register(host, key).map(|()| Notices::new()),
            register_action::UNREGISTER => self.unregister(host, key_check),
            register_action::REPLACE => self.replace(host, key_check, key).map(|()| Notices::new()),
            _ => return Err(invalid()),
        }
        .map_err(Failure::from)
    }

    fn on_acquire(&mut self, host: HostId, sqe: &Sqe, data: &[u8]) -> Result<Notices, Failure> {
        check_no_ignore(sqe)?;
        let keys = keys(data)?;
        let kind = kind(sqe).ok_or_else(invalid)?;
        let key = keys.current.get();
        match action(sqe) {
            acquire_action::ACQUIRE => self.acquire(host, key, kind).map(|()| Notices::new()),
            // Both wait until the other hosts' connections know their new permits
            // ([`Subsystem::fence`]); what is not done by then fails, so that nothing is left to
            // abort.
            acquire_action::PREEMPT | acquire_action::PREEMPT_AND_ABORT => {
                self.preempt(host, key, keys.other.get(), kind)
            }
            _ => return Err(invalid()),
        }
        .map_err(Failure::from)
    }

    fn on_release(&mut self, host: HostId, sqe: &Sqe, data: &[u8]) -> Result<Notices, Failure> {
        check_no_ignore(sqe)?;
        let key = current_key(data)?;
        match action(sqe) {
            release_action::RELEASE => self.release(host, key, kind(sqe)),
            release_action::CLEAR => self.clear(host, key),
            _ => return Err(invalid()),
        }
        .map_err(Failure::from)
    }

    /// The extended Reservation Status data structure: an entry for each registered host.
    fn report(&self) -> Vec<u8> {
        let entry = |(&host, &key): (&HostId, &u64)| {
            RegisteredController::new(u8::from(self.is_holder(host)), key, host)
        };
        let entries: Vec<_> = self.keys.iter().map(entry).collect();
        let held = self.held.map(|held| held.kind);
        let head = ReservationStatus::new(self.generation, held, entries.len() as u16);
        let mut bytes = head.as_bytes().to_vec();
        bytes.extend_from_slice(entries.as_bytes());
        bytes
    }
}

impl Subsystem {
    /// What reservations let the host do with a namespace.
    pub(in crate::controller) fn reservation_permit(&self, host: HostId, nsid: Nsid) -> Permit {
        self.reservations
            .get(&nsid)
            .map_or(Permit::ALL, |reservations| reservations.permit(host))
    }

    /// What reservations let a host do that has not registered.
    pub(in crate::controller) fn unregistered_permit(&self, nsid: Nsid) -> Permit {
        self.reservations
            .get(&nsid)
            .map_or(Permit::ALL, Reservations::unregistered_permit)
    }

    /// Executes a reservation command of a host.
    pub(in crate::controller) fn reservation(
        &mut self,
        connection: &Connection,
        sqe: &Sqe,
        data: &[u8],
    ) -> Answer {
        let nsid = sqe.nsid();
        self.namespace_at(nsid)?;
        if sqe.opcode == opcode::RESERVATION_REPORT {
            return self.reservation_report(nsid, sqe);
        }
        let controller = self
            .controllers
            .get(&connection.controller)
            .ok_or(StatusCode::InternalError)?;
        let host = controller.host.id;
        if controller.access < Access::ReadWrite {
            return Err(StatusCode::AccessDenied.into());
        }
        if host == [0; 16] {
            // Without an identifier it cannot be distinguished from other hosts.
            return Err(StatusCode::OperationDenied.into());
        }
        let before = self.permits(nsid);
        let reservations = self.reservations.entry(nsid).or_default();
        let notices = match sqe.opcode {
            opcode::RESERVATION_REGISTER => reservations.on_register(host, sqe, data)?,
            opcode::RESERVATION_ACQUIRE => reservations.on_acquire(host, sqe, data)?,
            opcode::RESERVATION_RELEASE => reservations.on_release(host, sqe, data)?,
            _ => return Err(StatusCode::InvalidOpcode.at(Location::OPCODE)),
        };
        self.generation.advance();
        self.notify(nsid, &notices);
        Ok(self.fence(connection, sqe.cid(), nsid, &before))
    }

    /// Notifies hosts of changes of their reservations, through all of their controllers.
    fn notify(&mut self, nsid: Nsid, notices: &Notices) {
        for controller in self.controllers.values_mut() {
            for &(host, notice) in notices {
                if controller.host.id == host && controller.notify(notice, nsid) {
                    self.wakes.extend(controller.queues.get(&QueueId::ADMIN));
                }
            }
        }
    }

    fn reservation_report(&self, nsid: Nsid, sqe: &Sqe) -> Answer {
        if sqe.cdw11.get() & EXTENDED_DATA_STRUCTURE == 0 {
            // Host Identifiers have 128 bits in Fabrics, which only the extended structure holds.
            return Err(StatusCode::HostIdInconsistentFormat.at(Location::CDW11));
        }
        let len_bytes = (u64::from(sqe.cdw10.get()) + 1) * 4;
        if len_bytes > self.config.limits.transfer_max_bytes() {
            return Err(invalid());
        }
        let mut bytes = match self.reservations.get(&nsid) {
            Some(reservations) => reservations.report(),
            None => Reservations::default().report(),
        };
        bytes.resize(len_bytes as usize, 0);
        reply::data(sqe, bytes)
    }
}
