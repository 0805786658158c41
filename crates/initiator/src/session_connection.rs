//! What carries the commands of a session, whatever the session's protocol is: a TCP connection or
//! a queue pair.

use std::{
    fmt::Debug,
    io,
    os::fd::BorrowedFd,
    sync::Weak,
    time::{Duration, Instant},
};

use session::Buffers;

use crate::ConnectionError;
use crate::queue_connection::ConnectionHandle;
use crate::socket::Interest;

/// A connection with its session.
pub(crate) trait SessionConnection: Debug + Send {
    /// How a command ended.
    type Outcome;

    /// Sends pending output and receives available input, without waiting.
    fn turn(&mut self, buffers: &mut Buffers) -> Result<(), ConnectionError>;

    /// The outcomes of commands. The caller drains the vector.
    fn outcomes(&mut self) -> &mut Vec<Self::Outcome>;

    /// A handle that closes the connection from another thread.
    fn handle(&self) -> Weak<dyn ConnectionHandle>;

    /// The descriptor to wait for before the next [`turn`](Self::turn).
    fn descriptor(&self) -> BorrowedFd<'_>;

    /// The conditions of [`descriptor`](Self::descriptor) to wait for.
    fn interest(&self) -> Interest;

    /// Whether input makes [`descriptor`](Self::descriptor) readable.
    fn signals(&self) -> bool;

    /// Sleeps until input arrives, `also` is readable, or `timeout` expires.
    fn wait_input(&self, also: Option<BorrowedFd<'_>>, timeout: Duration) -> io::Result<()>;

    /// Returns buffers that the connection borrowed to the queue. Called when the connection is
    /// lost.
    fn release_buffers(&mut self, _buffers: &mut Buffers) {}
}

/// Takes turns until `look` finds something, for `timeout` at most.
pub(crate) fn wait_until<C: SessionConnection + ?Sized, T>(
    carrier: &mut C,
    buffers: &mut Buffers,
    timeout: Duration,
    mut look: impl FnMut(&mut C) -> Option<T>,
) -> Result<T, ConnectionError> {
    let deadline = Instant::now() + timeout;
    loop {
        let turned = carrier.turn(buffers);
        if let Some(found) = look(carrier) {
            return Ok(found);
        }
        turned?;
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(ConnectionError::Silent { waited: timeout });
        }
        carrier.wait_input(None, left)?;
    }
}

/// Takes turns until a command has ended, for `timeout` at most.
pub(crate) fn wait_outcome<C: SessionConnection>(
    carrier: &mut C,
    buffers: &mut Buffers,
    timeout: Duration,
) -> Result<C::Outcome, ConnectionError> {
    wait_until(carrier, buffers, timeout, |carrier| {
        let outcomes = carrier.outcomes();
        (!outcomes.is_empty()).then(|| outcomes.remove(0))
    })
}
