//! What carries the commands of a channel: a queue pair.

use scsi::host::{Command, CommandKey, Outcome};
use session::{Buffers, RemoteKey};
use srp::initiator::{Abort, Event, InitiatorSession};

use crate::ConnectionError;
use crate::queue_connection::TimeoutAction;
use crate::rdma::{MessageHost, RdmaConnection, WorkContext};
use crate::scsi_sessions::{Ping, ScsiConnection, ScsiEvent};

impl ScsiConnection for RdmaConnection<InitiatorSession> {
    fn submit(&mut self, key: CommandKey, command: &Command, _: &Buffers) -> bool {
        self.session_mut().submit(key, command).is_ok()
    }

    fn abort(&mut self, key: CommandKey) -> TimeoutAction {
        // Each command is aborted once.
        match self.session_mut().abort(key) {
            Abort::Asked => TimeoutAction::WaitForAbort,
            Abort::AskedBefore | Abort::NotInFlight => TimeoutAction::Disconnect,
        }
    }

    fn poll_event(&mut self) -> Option<ScsiEvent> {
        let Event::LoggedOut = self.session_mut().poll_event()?;
        Some(ScsiEvent::LoggedOut)
    }

    fn log_out(&mut self) {
        self.session_mut().log_out();
    }

    fn ping(&mut self) -> Ping {
        Ping::ByCommand
    }

    fn heard(&self) -> u64 {
        self.session().heard()
    }
}

impl MessageHost for InitiatorSession {
    type Outcome = Outcome;

    #[inline]
    fn wants_transmit(&self) -> bool {
        self.wants_transmit()
    }

    fn in_flight(&self) -> u16 {
        self.in_flight()
    }

    fn poll_transmit(&mut self, work: &mut WorkContext<'_>) {
        self.poll_transmit(work);
    }

    fn handle_message(
        &mut self,
        message: &[u8],
        invalidated: Option<RemoteKey>,
        work: &mut WorkContext<'_>,
        done: &mut Vec<Outcome>,
    ) -> Result<(), ConnectionError> {
        Ok(self.handle_message(message, invalidated, work, done)?)
    }

    fn handle_close(&mut self, work: &mut WorkContext<'_>) {
        self.handle_close(work);
    }

    fn key_of(outcome: &Outcome) -> u16 {
        outcome.key.0
    }

    fn is_success(outcome: &Outcome) -> bool {
        outcome.result.is_ok()
    }
}
