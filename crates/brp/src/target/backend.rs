//! What the core requires of the program around it.

use std::sync::Arc;
use std::time::Instant;

use block::{OpKind, Volume};
use session::SourceId;

use super::SessionRecord;
use crate::wire::{LoginStatus, SessionId, Status};

/// One connection's way to the target that it logs in to. Crate `server` implements it; tests have
/// their own.
pub trait Backend {
    /// The connection's number, for the tickets of its commands.
    fn connection(&self) -> u64;

    /// Checks a login, and finds or creates its session. Called again when the connection is woken
    /// after [`LogIn::Wait`].
    fn log_in(&mut self, login: &LoginRequest<'_>) -> LogIn;

    /// The host has logged out: its session ends, and no record is kept. Called once at most, after
    /// a login was granted.
    fn log_out(&mut self);

    /// The connection has ended without a logout: keeps the record for a later login (BRP-27).
    fn detach(&mut self, record: SessionRecord);

    /// Whether the connection may go on. Asked when it is woken.
    fn standing(&mut self) -> Standing;

    /// The unit as the host sees it now; `None` if it was removed. Takes no lock unless something
    /// has changed since the last call.
    fn unit(&mut self) -> Option<UnitRef<'_>>;

    /// Charges the memory budget with `len_bytes` for data of commands that wait for their volume,
    /// in place of this connection's former charge. Returns `false` and keeps the former charge if
    /// the budget is exceeded. A lower charge always succeeds.
    fn charge_input(&mut self, len_bytes: u64) -> bool;

    /// A command was completed: for statistics. Called for each, so it must be cheap.
    fn completed(&mut self, command: &Completed);
}

/// What a host asks for, as far as the core has checked it.
#[derive(Clone, Copy, Debug)]
pub struct LoginRequest<'a> {
    /// The host's name.
    pub host: &'a str,
    /// The target's name.
    pub target: &'a str,
    /// The unit.
    pub unit: u32,
    /// The session to go on with; [`SessionId::NONE`]: a new one.
    pub session: SessionId,
    /// Tags of a new session.
    pub tags: u16,
    /// How long the session's record is to be kept without a connection, in ms.
    pub hold_ms: u32,
}

/// The answer to a login.
#[derive(Debug)]
pub enum LogIn {
    /// It is granted.
    Granted {
        /// The session's record; an empty one for a new session.
        record: SessionRecord,
        /// The identifier of the volume.
        volume: [u8; 16],
    },
    /// The session's old connection is being ended. The connection is woken when that is done
    /// (BRP-28).
    Wait,
    /// It is rejected.
    Rejected(LoginStatus),
}

/// Whether a connection may go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// It may.
    Good,
    /// The session has a newer connection.
    Replaced,
    /// The session was ended at the target, or the host may do nothing any more.
    Ended,
}

/// The unit as one connection sees it.
#[derive(Clone, Copy)]
pub struct UnitRef<'a> {
    /// The volume behind it.
    pub volume: &'a Arc<dyn Volume>,
    /// How placements name the volume on this connection. Another volume has another.
    pub source: SourceId,
    /// What the host may do.
    pub permission: Permission,
    /// Whether bytes may be sent from where they lie in the volume ([`Volume::pinned`]).
    pub is_pinned: bool,
}

/// What a host may do with the unit, and the status of what it may not. The volume's own write lock
/// is not in here: volumes refuse writes themselves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Permission {
    /// Read.
    pub read: Result<(), Status>,
    /// Write, and everything else that changes blocks.
    pub write: Result<(), Status>,
}

impl Permission {
    /// Everything.
    pub const ALL: Self = Self {
        read: Ok(()),
        write: Ok(()),
    };
}

/// A command that was completed, for statistics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completed {
    /// Its kind.
    pub kind: OpKind,
    /// Data that moved between host and target, in bytes.
    pub len_bytes: u32,
    /// Whether it succeeded.
    pub is_success: bool,
    /// When it came in.
    pub started: Instant,
    /// When it was completed.
    pub now: Instant,
}
