//! What a queue is of its controller.

use crate::controller::Connection;

/// What a queue is.
#[derive(Debug)]
pub(super) enum Role {
    /// Not yet one of a controller.
    Unconnected,
    /// One whose host has yet to prove who it is: only authentication commands are executed.
    Unproven(Connection),
    /// The admin queue.
    Admin(Connection),
    /// An I/O queue.
    Io(Connection),
}

impl Role {
    pub(super) fn is_io(&self) -> bool {
        matches!(self, Self::Io(_))
    }

    /// That of a queue whose host may use it.
    pub(super) fn of(connection: Connection) -> Self {
        if connection.queue.is_admin() {
            Self::Admin(connection)
        } else {
            Self::Io(connection)
        }
    }

    pub(super) fn connection(&self) -> Option<&Connection> {
        match self {
            Self::Unconnected => None,
            Self::Unproven(connection) | Self::Admin(connection) | Self::Io(connection) => {
                Some(connection)
            }
        }
    }
}
