//! What every session does, whatever carries it.

use std::time::Instant;

use block::Completion;

/// A protocol's end of one connection: the part that is the same over a byte stream
/// ([`StreamSession`](crate::StreamSession)) and over a queue pair
/// ([`MessageSession`](crate::MessageSession)).
pub trait Session {
    /// What the session asks of the program around it (volumes, access check, shared protocol
    /// state).
    type Backend;
    /// How a peer breaks the protocol so that the connection must end. The protocol's
    /// last message to the peer is already queued for transmission when this is returned.
    type Error: std::error::Error;

    /// Whether `poll_transmit` would add anything if there was room.
    fn wants_transmit(&self) -> bool;

    /// Whether no command is in progress: none waits for data, none is held back, and every reply
    /// was added to the output. By default, a session's commands are done as soon as it has nothing
    /// to send.
    fn is_idle(&self) -> bool {
        !self.wants_transmit()
    }

    /// Whether a draining runtime may close the connection now. It asks after each turn from the
    /// beginning of the drain on. A session that is idle may have to wait for other connections of
    /// its host, the commands of which its end would end; it is woken when it need not wait any
    /// more.
    #[expect(unused_variables, reason = "most sessions wait for no other")]
    fn may_close(&mut self, backend: &mut Self::Backend) -> bool {
        self.is_idle()
    }

    /// Whether the connection is to be closed once everything has been sent.
    fn is_closing(&self) -> bool;

    /// Handles a change of shared protocol state (a namespace was resized, a controller deleted …).
    fn handle_wake(&mut self, now: Instant, backend: &mut Self::Backend)
    -> Result<(), Self::Error>;

    /// Handles a volume's completion of a command that waits (see [`block::Completions`]). This is
    /// the only entry point for completions. It takes no lock and searches nothing, since the
    /// ticket names the command's slot. Completions arrive in any order. A completion of a command
    /// that has ended is ignored.
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
