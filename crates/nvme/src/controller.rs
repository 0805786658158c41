//! The controller side, for every transport: subsystems, controllers, admin commands, discovery,
//! reservations.
//!
//! A [`Subsystem`] is a plain value with one owner; the program around it puts it behind a lock and
//! gives each connection a [`Backend`]. Only the control path goes through the subsystem. The I/O
//! path reads namespaces and [`Permit`]s from a copy that the backend renews when [`Generation`]
//! has changed.
//!
//! Order of calls on one connection:
//! 1. [`connect`] with the Connect command and its data gives a [`Connection`];
//! 2. on the admin queue, every command goes to [`Subsystem::admin`], after the transport fetched
//!    the [`host_data_len`] bytes that it carries; on I/O queues only those for which
//!    [`is_control_command`] holds, through [`Subsystem::io_control`];
//! 3. when woken, it calls [`Subsystem::acknowledge`] and closes if the result requires that; then,
//!    and after each command of the control path, it drains [`Subsystem::poll_kept`]; after a
//!    Disconnect it checks [`Subsystem::is_connected`];
//! 4. at its end, [`Subsystem::connection_closed`].

mod backend;
mod connect;
mod connection;
mod io;
mod limits;
mod permit;
mod queue;
mod reply;
mod statistics;
mod subsystem;

pub use backend::{Backend, Completed, NamespaceRef, OpenError};
pub use connect::connect;
pub use connection::{
    Activity, Authentication, Connection, ControllerId, Demand, Host, IoQueues, Origin,
    PortalNumber, QueueId, SlotId, SqFlow, WakeToken, connected,
};
pub use io::{CopyRange, DATASET_RANGES_MAX, DataPointer, DatasetRange};
pub use limits::{
    COMPARE_AND_WRITE_BLOCKS_MAX, COPY_BLOCKS_MAX, COPY_RANGE_BLOCKS_MAX, COPY_RANGES_MAX, Limits,
};
pub use permit::{CommandClass, Gate, Permit};
pub use queue::{Begun, Payload, Queue, QueueFull, Ready};
pub use reply::{Completion, Reply};
pub use statistics::{Statistics, Usage};
pub use subsystem::{
    DiscoveryRecord, FailedCommand, Generation, HostFilter, Namespace, NamespaceError,
    NamespaceIds, SecureChannel, Subsystem, SubsystemConfig, host_data_len, is_control_command,
};

#[cfg(test)]
mod tests;
