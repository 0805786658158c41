//! What carries the messages of a session: a TCP connection or a queue pair.

use brp::host::{Common, HostCommand, HostError, NoRoom, Outcome};
use brp::wire::Status;
use brp::{rdma, tcp};
use session::{BufferRange, Buffers, RemoteKey, SendList};

use crate::ConnectionError;
use crate::connection::{Connection, Core};
use crate::rdma::{MessageHost, RdmaConnection, WorkContext};
use crate::session_connection::SessionConnection;

/// A connection of a session.
pub(super) trait Link: SessionConnection<Outcome = Outcome> {
    /// The session.
    fn common(&self) -> &Common;
    fn common_mut(&mut self) -> &mut Common;
    /// Takes a command.
    fn submit(&mut self, tag: u16, command: &HostCommand, buffers: &Buffers) -> Result<(), NoRoom>;
}

impl Link for Connection<tcp::HostSession> {
    fn common(&self) -> &Common {
        self.session_ref().common()
    }

    fn common_mut(&mut self) -> &mut Common {
        self.session().common_mut()
    }

    fn submit(&mut self, tag: u16, command: &HostCommand, buffers: &Buffers) -> Result<(), NoRoom> {
        self.session().submit(tag, command, buffers)
    }
}

impl Link for RdmaConnection<rdma::HostSession> {
    fn common(&self) -> &Common {
        self.session().common()
    }

    fn common_mut(&mut self) -> &mut Common {
        self.session_mut().common_mut()
    }

    fn submit(&mut self, tag: u16, command: &HostCommand, _: &Buffers) -> Result<(), NoRoom> {
        self.session_mut().submit(tag, command)
    }
}

impl MessageHost for rdma::HostSession {
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
        outcome.tag
    }

    fn is_success(outcome: &Outcome) -> bool {
        outcome.status == Status::Success
    }
}

impl rdma::HostWork for WorkContext<'_> {
    fn put(&mut self, range: BufferRange, data: &[u8]) {
        self.put_data(range, data);
    }
}

impl Core for tcp::HostSession {
    type Outcome = Outcome;
    type Error = HostError;

    fn handle_bytes(
        &mut self,
        input: &[u8],
        buffers: &mut Buffers,
        done: &mut Vec<Outcome>,
    ) -> Result<(), HostError> {
        self.handle_bytes(input, buffers, done)
    }

    fn direct(&self) -> Option<BufferRange> {
        self.direct()
    }

    fn handle_placed(
        &mut self,
        len_bytes: u32,
        _: &Buffers,
        done: &mut Vec<Outcome>,
    ) -> Result<(), HostError> {
        self.handle_placed(len_bytes, done);
        Ok(())
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
