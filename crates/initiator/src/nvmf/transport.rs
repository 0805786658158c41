//! What an association asks of its transport.

use std::{
    fmt::Debug,
    io,
    net::SocketAddr,
    os::fd::BorrowedFd,
    sync::Weak,
    time::{Duration, Instant},
};

use nvme::host::{Command, CommandKey, ControllerFacts, NoRoom, Outcome};
use session::Buffers;

use crate::error::QueueName;
use crate::line::Line;
use crate::mailbox::Sever;
use crate::{ConnectError, ConnectionError, DeviceOptions, Url};

use super::line::NvmeLine;

/// How the queues of an association are connected.
pub(crate) trait Transport: Debug + Send + Sized + 'static {
    /// A queue's connection.
    type Connection: NvmeConnection + Send + 'static;

    /// The longest data of one command.
    const TRANSFER_MAX_BYTES: u64;

    /// As `url` and `options` have it.
    fn new(url: &Url, options: &DeviceOptions) -> Result<Self, ConnectError>;

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

    /// A connection as a queue's.
    fn line(line: NvmeLine<Self::Connection>) -> Line;

    /// Does what connections need whose owners do not look at them, and says when to do so again.
    fn tend(&mut self) -> Option<Duration> {
        None
    }
}

/// What a queue is to be like.
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
pub(crate) trait NvmeConnection: Debug {
    /// See [`nvme::tcp::HostSession::submit`].
    fn submit(
        &mut self,
        key: CommandKey,
        command: &Command,
        buffers: &Buffers,
    ) -> Result<(), NoRoom>;

    /// How many more commands fit into the controller's queue.
    fn room(&self) -> u16;

    /// Sends what is to be sent and takes what has arrived, without waiting.
    fn turn(&mut self, buffers: &mut Buffers) -> Result<(), ConnectionError>;

    /// What has ended since the last call; the vector is the caller's to drain.
    fn outcomes(&mut self) -> &mut Vec<Outcome>;

    /// The way to end the connection from another thread.
    fn handle(&self) -> Weak<dyn Sever>;

    /// What becomes readable, in some transports, when something arrives.
    fn descriptor(&self) -> BorrowedFd<'_>;

    /// Sleeps until something arrives, `also` is readable, or `timeout` is over.
    fn doze(&self, also: Option<BorrowedFd<'_>>, timeout: Duration) -> io::Result<()>;

    /// Takes turns until a command has ended, for `timeout` at most.
    fn wait_outcome(
        &mut self,
        buffers: &mut Buffers,
        timeout: Duration,
    ) -> Result<Outcome, ConnectionError> {
        let deadline = Instant::now() + timeout;
        loop {
            let turned = self.turn(buffers);
            if !self.outcomes().is_empty() {
                return Ok(self.outcomes().remove(0));
            }
            turned?;
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(ConnectionError::Silent { waited: timeout });
            }
            self.doze(None, left)?;
        }
    }
}
