//! How a runtime drives a protocol that runs over a byte stream.

use std::time::Instant;

use block::Completion;

use crate::SendList;

/// A protocol's end of one connection over a byte stream (TCP): bytes in, bytes and placements out.
/// It has no socket, clock, lock or thread, so tests feed it bytes in any chunking and virtual
/// time.
///
/// The runtime calls [`handle_bytes`](Self::handle_bytes) with what it received, then
/// [`poll_transmit`](Self::poll_transmit) with a [`SendList`], sends, and calls `poll_transmit`
/// again when the list has drained and [`wants_transmit`](Self::wants_transmit) says that there is
/// more.
pub trait StreamSession {
    /// What the session asks of the program around it (volumes, access check, shared protocol
    /// state).
    type Backend;
    /// How a peer breaks the protocol so that the connection must end. Whatever the protocol says
    /// to a peer as its last word is already queued for transmission when this is returned.
    type Error: std::error::Error;

    /// How many bytes to receive at most before the next call of
    /// [`handle_bytes`](Self::handle_bytes). A session that answers many short commands wants few
    /// at a time, so that its peer can go on with the first replies while it makes the next.
    fn turn_bytes(&self) -> usize {
        usize::MAX
    }

    /// Takes all of `input`, in any chunking, and executes the commands that it completes.
    fn handle_bytes(
        &mut self,
        now: Instant,
        input: &[u8],
        backend: &mut Self::Backend,
    ) -> Result<(), Self::Error>;

    /// Puts as much as fits of what is to be sent into `out`.
    fn poll_transmit(&mut self, now: Instant, backend: &mut Self::Backend, out: &mut SendList);

    /// Whether `poll_transmit` would add anything to an empty list.
    fn wants_transmit(&self) -> bool;

    /// Whether no command is in progress: none whose data are awaited, that is held back, or whose
    /// reply is not yet given out. A draining runtime closes the connection at such a moment.
    /// Unless it says otherwise, a session's commands are done as soon as it has nothing to send.
    fn is_idle(&self) -> bool {
        !self.wants_transmit()
    }

    /// Whether the connection is to be closed once everything has been sent.
    fn is_closing(&self) -> bool;

    /// Shared state of the protocol changed (a namespace was resized, a controller deleted …): look
    /// at it.
    fn handle_wake(&mut self, now: Instant, backend: &mut Self::Backend)
    -> Result<(), Self::Error>;

    /// A volume is done with a command that it made wait (see [`block::Completions`]): the one entry point for that.
    /// It takes no lock and searches nothing, since the ticket names the command's slot. Completions come in any
    /// order; one whose command is gone changes nothing. Sessions that give out no tickets get none.
    #[expect(unused_variables, reason = "hosts and discovery give out no tickets")]
    fn handle_completion(
        &mut self,
        now: Instant,
        completion: Completion,
        backend: &mut Self::Backend,
    ) -> Result<(), Self::Error> {
        Ok(())
    }

    /// When [`handle_timeout`](Self::handle_timeout) is due next.
    fn poll_timeout(&self) -> Option<Instant>;

    /// Time has reached what `poll_timeout` said: complete delayed commands, enforce deadlines.
    fn handle_timeout(
        &mut self,
        now: Instant,
        backend: &mut Self::Backend,
    ) -> Result<(), Self::Error>;

    /// The connection ended, for whatever reason: release shared state. Called exactly once, last.
    fn handle_close(&mut self, now: Instant, backend: &mut Self::Backend);
}

/// How many bytes bring about as many commands as a session does well to answer at a time.
///
/// Peers that keep many commands in flight would otherwise send them all at once, wait for all
/// replies, and leave the session idle meanwhile.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    bytes: usize,
}

impl Pace {
    /// Commands of a turn. Fewer cost more system calls than they win time.
    const COMMANDS: usize = 64;
    /// The least bytes of a turn.
    const BYTES_MIN: usize = 4 << 10;

    /// So many commands that are to be paced came with so many bytes.
    pub fn note(&mut self, input_bytes: usize, commands: usize) {
        self.bytes = match input_bytes.checked_div(commands) {
            Some(each) => (each * Self::COMMANDS).max(Self::BYTES_MIN),
            None => usize::MAX,
        };
    }

    /// See [`StreamSession::turn_bytes`].
    pub const fn turn_bytes(self) -> usize {
        self.bytes
    }
}

impl Default for Pace {
    fn default() -> Self {
        Self { bytes: usize::MAX }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_turn_takes_some_dozens_of_commands_or_all_data_there_are() {
        let mut pace = Pace::default();
        assert_eq!(pace.turn_bytes(), usize::MAX);
        pace.note(72 * 100, 100);
        assert_eq!(pace.turn_bytes(), 72 * 64);
        pace.note(10, 10);
        assert_eq!(pace.turn_bytes(), 4096);
        pace.note(100_000, 0);
        assert_eq!(pace.turn_bytes(), usize::MAX);
    }
}
