//! What a host may do with a namespace at a given moment.

use block::{Access, Op};

use crate::wire::StatusCode;

/// Classes of commands for reservations and locks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CommandClass {
    /// Read, Compare, Verify, and the source of a Copy.
    Read,
    /// Write, Write Zeroes, Dataset Management, Flush, and the destination of a Copy.
    Write,
}

impl CommandClass {
    /// The class of what is asked of a volume.
    pub(super) const fn of(op: &Op<'_>) -> Self {
        match op {
            Op::Read { .. } | Op::Verify { .. } | Op::Compare { .. } => Self::Read,
            Op::Write { .. }
            | Op::WriteZeroes { .. }
            | Op::Discard { .. }
            | Op::Flush
            | Op::CompareAndWrite { .. }
            | Op::Copy { .. } => Self::Write,
        }
    }
}

/// Whether one class of commands passes, and if not, why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gate {
    /// It passes.
    Open,
    /// A reservation of another host excludes it.
    ReservationConflict,
    /// The access check grants this host no such commands.
    AccessDenied,
    /// The queue's controller was deleted; the connection is about to be closed.
    ControllerGone,
    /// The namespace is in ANA state Inaccessible.
    PathInaccessible,
}

/// What a controller's host may do with a namespace. The volume's own write lock is not in here:
/// volumes refuse writes themselves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Permit {
    /// For [`CommandClass::Read`].
    pub read: Gate,
    /// For [`CommandClass::Write`].
    pub write: Gate,
}

impl Permit {
    /// Everything passes.
    pub const ALL: Self = Self {
        read: Gate::Open,
        write: Gate::Open,
    };

    /// Nothing passes, for this reason.
    pub(super) const fn closed(gate: Gate) -> Self {
        Self {
            read: gate,
            write: gate,
        }
    }

    /// What the access check grants.
    pub(super) const fn of_access(access: Access) -> Self {
        match access {
            Access::Denied => Self::closed(Gate::AccessDenied),
            Access::ReadOnly => Self {
                read: Gate::Open,
                write: Gate::AccessDenied,
            },
            Access::ReadWrite => Self::ALL,
        }
    }

    /// The intersection of both. If one is closed, its reason; if both are, that of the first.
    #[must_use]
    pub(super) fn and(self, other: Self) -> Self {
        let first_closed = |a, b| if a == Gate::Open { b } else { a };
        Self {
            read: first_closed(self.read, other.read),
            write: first_closed(self.write, other.write),
        }
    }

    /// Whether something passes by `before` that does not pass by this.
    pub(super) fn takes_from(self, before: Self) -> bool {
        let is_lost = |before, now| before == Gate::Open && now != Gate::Open;
        is_lost(before.read, self.read) || is_lost(before.write, self.write)
    }

    /// Whether a command of `class` passes; else its status.
    pub const fn check(self, class: CommandClass) -> Result<(), StatusCode> {
        let gate = match class {
            CommandClass::Read => self.read,
            CommandClass::Write => self.write,
        };
        match gate {
            Gate::Open => Ok(()),
            Gate::ReservationConflict => Err(StatusCode::ReservationConflict),
            Gate::AccessDenied => Err(StatusCode::AccessDenied),
            Gate::ControllerGone => Err(StatusCode::AbortedSqDeletion),
            Gate::PathInaccessible => Err(StatusCode::AsymmetricAccessInaccessible),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_closed_gate_gives_its_status_to_its_class_only() {
        let permit = Permit {
            write: Gate::ReservationConflict,
            ..Permit::ALL
        };
        assert_eq!(permit.check(CommandClass::Read), Ok(()));
        assert_eq!(
            permit.check(CommandClass::Write),
            Err(StatusCode::ReservationConflict)
        );
        let permit = Permit {
            write: Gate::AccessDenied,
            ..Permit::ALL
        };
        assert_eq!(
            permit.check(CommandClass::Write),
            Err(StatusCode::AccessDenied)
        );
    }
}
