//! The transport of an association: connecting queues, and the connection of a queue.

use std::{fmt::Debug, net::SocketAddr, time::Duration};

use nvme::host::{Command, CommandKey, ControllerFacts, NoRoom, Outcome};
use session::Buffers;
use tls::Key;

use crate::error::QueueName;
use crate::session_connection::SessionConnection;
use crate::{ConnectError, DeviceOptions, Url};

/// How the queues of an association are connected.
pub(crate) trait Transport: Debug + Send + Sized + 'static {
    /// A queue's connection.
    type Connection: NvmeConnection + 'static;

    /// The longest data of one command.
    const TRANSFER_MAX_BYTES: u64;

    /// Creates the transport that `url` and `options` describe.
    fn new(url: &Url, options: &DeviceOptions) -> Result<Self, ConnectError>;

    /// Uses TLS with a key that an authentication has generated, for the connections that follow,
    /// or none without a key.
    fn secure_with(&mut self, _key: Option<Key>) {}

    /// Connects a queue at `address`.
    fn connect(
        &mut self,
        address: SocketAddr,
        shape: &QueueShape,
    ) -> Result<Self::Connection, ConnectError>;

    /// The most data inside a command capsule of an I/O queue of this controller.
    fn in_capsule_max_bytes(controller: &ControllerFacts) -> u32 {
        controller.in_capsule_max_bytes
    }

    /// Polls the providers of connections whose owners may not poll them. Returns the time until
    /// the next call is due; `None` if the transport needs none.
    fn poll_idle(&mut self) -> Option<Duration> {
        None
    }
}

/// The parameters of a queue.
#[derive(Clone, Copy, Debug)]
pub(crate) struct QueueShape {
    pub(crate) queue: QueueName,
    /// The controller of an I/O queue; 0 for an admin queue.
    pub(crate) controller_id: u16,
    /// Keys of commands.
    pub(crate) keys: u16,
    /// Commands in flight at once: the queue's entries less one.
    pub(crate) in_flight_max: u16,
    pub(crate) in_capsule_max_bytes: u32,
    /// The queue's buffers, and their length.
    pub(crate) slots: u16,
    pub(crate) slot_bytes: usize,
}

/// A queue's connection.
pub(crate) trait NvmeConnection: SessionConnection<Outcome = Outcome> {
    /// See [`nvme::tcp::HostSession::submit`].
    fn submit(
        &mut self,
        key: CommandKey,
        command: &Command,
        buffers: &Buffers,
    ) -> Result<(), NoRoom>;

    /// How many more commands fit into the controller's queue.
    fn room(&self) -> u16;
}
