//! What carries the commands of a session: a TCP connection.

use iscsi::initiator::{Abort, Event, Session, SessionError};
use scsi::host::{Command, CommandKey, Outcome};
use session::{BufferRange, Buffers, SendList};

use crate::connection::{Connection, Core};
use crate::queue_connection::TimeoutAction;
use crate::scsi_sessions::{Ping, ScsiConnection, ScsiEvent};

impl ScsiConnection for Connection<Session> {
    fn submit(&mut self, key: CommandKey, command: &Command, buffers: &Buffers) -> bool {
        self.session().submit(key, command, buffers).is_ok()
    }

    fn abort(&mut self, key: CommandKey) -> TimeoutAction {
        // Each command is aborted once.
        match self.session().abort(key) {
            Abort::Asked => TimeoutAction::WaitForAbort,
            Abort::AskedBefore | Abort::NotInFlight => TimeoutAction::Disconnect,
        }
    }

    fn poll_event(&mut self) -> Option<ScsiEvent> {
        loop {
            match self.session().poll_event()? {
                Event::Sense(sense) => return Some(ScsiEvent::Sense(sense)),
                Event::LoggedOut => return Some(ScsiEvent::LoggedOut),
                // The session answers the request to log out by itself, and then reports
                // `LoggedOut`.
                Event::LoggedIn | Event::Targets(_) | Event::LogoutRequested => {}
            }
        }
    }

    fn log_out(&mut self) {
        self.session().logout();
    }

    fn ping(&mut self) -> Ping {
        self.session().ping();
        Ping::Sent
    }

    fn heard(&self) -> u64 {
        self.session_ref().heard_pdus()
    }
}

impl Core for Session {
    type Outcome = Outcome;
    type Error = SessionError;

    fn handle_bytes(
        &mut self,
        input: &[u8],
        buffers: &mut Buffers,
        done: &mut Vec<Outcome>,
    ) -> Result<(), SessionError> {
        self.handle_bytes(input, buffers, done)
    }

    fn direct(&self) -> Option<BufferRange> {
        self.direct()
    }

    fn handle_placed(
        &mut self,
        len_bytes: u32,
        buffers: &Buffers,
        done: &mut Vec<Outcome>,
    ) -> Result<(), SessionError> {
        self.handle_placed(len_bytes, buffers, done)
    }

    fn expects_bulk(&self) -> bool {
        self.expects_bulk()
    }

    fn poll_transmit(&mut self, buffers: &Buffers, out: &mut SendList) {
        self.poll_transmit(buffers, out);
    }

    fn wants_transmit(&self) -> bool {
        self.wants_transmit()
    }

    fn handle_sent(&mut self, len_bytes: u64, done: &mut Vec<Outcome>) {
        self.handle_sent(len_bytes, done);
    }
}
