//! How a runtime drives a protocol that runs over a byte stream.

use std::time::Instant;

use crate::{SendList, Session};

/// A protocol's end of one connection over a byte stream (TCP): bytes in, bytes and placements out.
/// It has no socket, clock, lock or thread, so tests feed it bytes in any chunking and virtual
/// time.
///
/// The runtime calls [`handle_bytes`](Self::handle_bytes) with what it received, then
/// [`poll_transmit`](Self::poll_transmit) with a [`SendList`], sends, and calls `poll_transmit`
/// again when the list has drained and [`wants_transmit`](Session::wants_transmit) returns true.
pub trait StreamSession: Session {
    /// How many bytes to receive at most before the next call of
    /// [`handle_bytes`](Self::handle_bytes). A session that answers many short commands receives
    /// few at a time, so that its peer can continue with the first replies while the session builds
    /// the next ones. A session returns 0, and so takes nothing, only while
    /// [`wants_transmit`](Session::wants_transmit) returns true, or until other threads, which
    /// execute its commands, wake it.
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

    /// Adds pending output to `out`, as much as fits.
    fn poll_transmit(&mut self, now: Instant, backend: &mut Self::Backend, out: &mut SendList);
}

/// How many bytes bring about as many commands as a session does well to answer at a time.
///
/// Peers that keep many commands in flight would otherwise send them all at once, wait for all
/// replies, and leave the session idle until then.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    bytes: usize,
}

impl Pace {
    /// Commands of a turn. Fewer cost more system calls than they win time.
    const COMMANDS: usize = 64;
    /// The least bytes of a turn.
    const BYTES_MIN: usize = 4 << 10;

    /// Records that `commands` paced commands arrived in `input_bytes`.
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
