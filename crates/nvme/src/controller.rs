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

mod abort;
mod admin;
mod ana;
mod backend;
mod connect;
mod discovery;
mod events;
mod features;
mod fence;
mod identify;
mod io;
mod limits;
mod logs;
mod permit;
mod queue;
mod reply;
mod reservation;
mod state;
mod subsystem;

pub use admin::{host_data_len, is_control_command};
pub use backend::{
    Backend, NamespaceRef, OpenError, Origin, PortalNumber, Statistics, Usage, WakeToken,
};
pub use connect::{
    Activity, Connection, ControllerId, Host, IoQueues, QueueId, SqFlow, connect, connected,
};
pub use discovery::{DiscoveryRecord, HostFilter};
pub use io::{
    COMPARE_AND_WRITE_BLOCKS_MAX, COPY_BLOCKS_MAX, COPY_RANGE_BLOCKS_MAX, COPY_RANGES_MAX,
    CopyRange, DATASET_RANGES_MAX, DataPointer, DatasetRange,
};
pub use limits::Limits;
pub use logs::FailedCommand;
pub use permit::{CommandClass, Gate, Permit};
pub use queue::{Begun, Completed, Payload, Queue, QueueFull, Ready, SlotId};
pub use reply::{Completion, Reply};
pub use subsystem::{
    Generation, Namespace, NamespaceError, NamespaceIds, Subsystem, SubsystemConfig,
};

#[cfg(test)]
mod tests;
