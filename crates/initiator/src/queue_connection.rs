//! The connection of a queue, as the queue uses it whatever the protocol is.

use std::{
    collections::VecDeque,
    fmt::Debug,
    io,
    net::{Shutdown, TcpStream},
    os::fd::BorrowedFd,
    sync::Weak,
    time::{Duration, Instant},
};

use session::Buffers;

use crate::device_state::DeviceState;
use crate::slots::Slots;
use crate::socket::Interest;
use crate::{Completion, ConnectionError, Request};

/// A connection that carries the requests of one queue as commands of its protocol.
pub(crate) trait QueueConnection: Debug + Send {
    /// A handle that closes the connection from another thread.
    fn handle(&self) -> Weak<dyn ConnectionHandle>;

    /// The descriptor to wait for before the next [`turn`](Self::turn).
    fn descriptor(&self) -> BorrowedFd<'_>;

    /// The conditions of [`descriptor`](Self::descriptor) to wait for.
    fn interest(&self) -> Interest;

    /// Whether input makes [`descriptor`](Self::descriptor) readable.
    fn signals(&self) -> bool;

    /// Sleeps until input arrives, `also` is readable or `timeout` expires.
    fn wait_input(&self, also: Option<BorrowedFd<'_>>, timeout: Duration) -> io::Result<()>;

    /// Submits a request to the session. Returns `false` if the session has no room for it. A block
    /// has `1 << shift` bytes.
    fn start(&mut self, request: &Request, shift: u32, buffers: &mut Buffers) -> bool;

    /// Sends pending output and receives available input, without waiting.
    fn turn(&mut self, buffers: &mut Buffers) -> Result<(), ConnectionError>;

    /// Moves the outcomes of commands to `state`.
    fn settle(&mut self, state: &mut QueueState<'_>) -> ConnectionState;

    /// Returns buffers that the connection borrowed to the queue. Called when the connection is
    /// lost.
    fn release_buffers(&mut self, _buffers: &mut Buffers) {}

    /// Keeps what the next connection needs to go on with the session. Called when the connection
    /// is lost.
    fn keep_session(&mut self) {}

    /// Whether the other side executes a command once that is submitted again on the next
    /// connection.
    fn replays(&self) -> bool {
        false
    }

    /// Logs out, if the protocol ends each queue's session on its own. Called when the queue is
    /// dropped. An NVMe association ends as a whole, by its admin queue.
    fn log_out(&mut self, _buffers: &mut Buffers) {}

    /// Checks whether the peer is alive, if the protocol does so on each queue's connection: its
    /// silence may last for `timeout`. An NVMe association is kept alive by its admin queue.
    fn keep_alive(&mut self, _now: Instant, _timeout: Duration) -> ConnectionState {
        ConnectionState::Open
    }

    /// Handles a command of `slot` that exceeds its time limit.
    fn on_timeout(&mut self, slot: u16) -> TimeoutAction;
}

/// Closes a connection from a thread that does not own it.
pub(crate) trait ConnectionHandle: Debug + Send + Sync {
    /// Closes the connection. Its owner notices at its next turn.
    fn close(&self);
}

impl ConnectionHandle for TcpStream {
    fn close(&self) {
        // What was not sent must not be sent later: commands are submitted again on another
        // connection, and an old write that arrived after a new one would undo it.
        let _ = rustix::net::sockopt::set_socket_linger(self, Some(Duration::ZERO));
        // It fails only if the connection has ended already.
        let _ = self.shutdown(Shutdown::Both);
    }
}

/// Whether a connection can be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ConnectionState {
    Open,
    /// The peer has ended it in order.
    Ended,
}

/// What a queue does about a command that exceeds its time limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TimeoutAction {
    /// The peer was asked to abort the command. The command gets its time limit again.
    WaitForAbort,
    /// The connection counts as lost.
    Disconnect,
}

/// How often in a row a target was too busy for a command.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct BusyRetries(u8);

impl BusyRetries {
    const MAX: u8 = 200;
    /// The delay before a retry doubles up to the maximum; all retries together take 25 s.
    const DELAY_MIN: Duration = Duration::from_millis(1);
    const DELAY_MAX: Duration = Duration::from_millis(128);

    /// The delay before the command is submitted again; `None` if it has been often enough.
    pub(crate) fn next_delay(&mut self) -> Option<Duration> {
        if self.0 == Self::MAX {
            return None;
        }
        let delay = Self::DELAY_MIN * (1 << self.0.min(7));
        self.0 += 1;
        Some(delay.min(Self::DELAY_MAX))
    }
}

/// The parts of a queue that a connection updates when commands end.
pub(crate) struct QueueState<'a> {
    pub(crate) slots: &'a mut Slots,
    /// Slots whose command has to be submitted again.
    pub(crate) waiting: &'a mut VecDeque<u16>,
    pub(crate) done: &'a mut Vec<Completion>,
    pub(crate) shared: &'a DeviceState,
    pub(crate) buffers: &'a Buffers,
    /// The time of the turn.
    pub(crate) now: Instant,
    /// Slots whose command has to be submitted again, but not before the given instant.
    pub(crate) postponed: &'a mut Vec<(Instant, u16)>,
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn what_was_not_sent_when_a_connection_is_closed_is_never_sent() {
        let listener = TcpListener::bind(("127.0.0.1", 0)).expect("binds");
        let address = listener.local_addr().expect("bound");
        let mut ours = TcpStream::connect(address).expect("connects");
        let (mut theirs, _) = listener.accept().expect("connected");
        ours.set_nonblocking(true).expect("set");
        let mut written_bytes = 0;
        // Until neither side's buffer has room.
        while let Ok(count) = ours.write(&vec![7; 65536]) {
            written_bytes += count;
        }
        ours.close();
        drop(ours);
        let mut read = Vec::new();
        let ended = theirs.read_to_end(&mut read);
        assert!(
            ended.is_err(),
            "a reset, not the end of all that was written"
        );
        assert!(read.len() < written_bytes);
    }
}
