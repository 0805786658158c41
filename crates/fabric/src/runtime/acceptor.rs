//! What a runtime drives: a session with its backend, whatever their types, and what makes it.

use std::error::Error;
use std::time::Instant;

use block::Completion;
use net::{Accepted, Attachment, CloseReason};
use session::{MessageSession, RemoteKey, WorkList};

/// Makes sessions for the connections to a port. Called on the thread that will drive the connection.
pub trait MessageAcceptor: Send + Sync {
    /// The session for a connection that is asked for, or why there is none.
    fn accept(
        &self,
        now: Instant,
        accepted: &Accepted,
        request: &Request<'_>,
    ) -> Result<Admitted, Refusal>;
}

/// What a peer asks for.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// The application's private data. It may be padded with zeros.
    pub private_data: &'a [u8],
    /// RDMA READs that the peer answers at once.
    pub reads_max: u8,
}

/// A session, and what its queue pair is to be like.
pub struct Admitted {
    /// The session.
    pub driven: Box<dyn DrivenMessages>,
    /// The queue pair.
    pub shape: QueueShape,
    /// The application's private data for the peer: at most 196 bytes.
    pub private_data: Vec<u8>,
}

/// How deep a queue pair is. The receives are what the peer can make us hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueShape {
    /// Messages that the peer may have sent and that were not handled: at least 1.
    pub receives: u16,
    /// The longest message, in bytes.
    pub receive_len_bytes: u32,
    /// Requests of the session's at once: at least 1.
    pub sends: u16,
    /// RDMA READs among them.
    pub reads: u8,
}

/// Why a connection is not taken.
#[derive(Debug, thiserror::Error)]
pub enum Refusal {
    /// The protocol says no.
    #[error("{error}")]
    Protocol {
        /// Why.
        error: Box<dyn Error + Send + Sync>,
        /// What the peer is told: at most 148 bytes.
        private_data: Vec<u8>,
    },
    /// There is no room.
    #[error("the memory budget has no room for it")]
    NoResources,
}

/// A session with its backend, made by [`drive_messages`].
pub trait DrivenMessages {
    /// See [`MessageSession::handle_message`].
    fn handle_message(
        &mut self,
        now: Instant,
        message: &[u8],
        invalidated: Option<RemoteKey>,
    ) -> Result<(), CloseReason>;
    /// See [`MessageSession::handle_read`].
    fn handle_read(&mut self, now: Instant, tag: u64, data: &[u8]) -> Result<(), CloseReason>;
    /// See [`MessageSession::poll_transmit`].
    fn poll_transmit(&mut self, now: Instant, out: &mut dyn WorkList);
    /// See [`MessageSession::wants_transmit`].
    fn wants_transmit(&self) -> bool;
    /// See [`MessageSession::is_idle`].
    fn is_idle(&self) -> bool;
    /// See [`MessageSession::is_closing`].
    fn is_closing(&self) -> bool;
    /// See [`MessageSession::handle_wake`].
    fn handle_wake(&mut self, now: Instant) -> Result<(), CloseReason>;
    /// See [`MessageSession::handle_completion`].
    fn handle_completion(
        &mut self,
        now: Instant,
        completion: Completion,
    ) -> Result<(), CloseReason>;
    /// See [`MessageSession::poll_timeout`].
    fn poll_timeout(&self) -> Option<Instant>;
    /// See [`MessageSession::handle_timeout`].
    fn handle_timeout(&mut self, now: Instant) -> Result<(), CloseReason>;
    /// See [`MessageSession::handle_close`] and [`Attachment::handle_closed`].
    fn handle_close(&mut self, now: Instant, reason: &CloseReason);
    /// The backend.
    fn attachment(&self) -> &dyn Attachment;
    /// The backend.
    fn attachment_mut(&mut self) -> &mut dyn Attachment;
}

/// Joins a session and its backend into what a runtime drives.
pub fn drive_messages<S>(session: S, backend: S::Backend) -> Box<dyn DrivenMessages>
where
    S: MessageSession + 'static,
    S::Backend: Attachment + 'static,
    S::Error: Send + Sync + 'static,
{
    Box::new(Joined { session, backend })
}

struct Joined<S: MessageSession> {
    session: S,
    backend: S::Backend,
}

impl<S> DrivenMessages for Joined<S>
where
    S: MessageSession,
    S::Backend: Attachment,
    S::Error: Send + Sync + 'static,
{
    fn handle_message(
        &mut self,
        now: Instant,
        message: &[u8],
        invalidated: Option<RemoteKey>,
    ) -> Result<(), CloseReason> {
        self.session
            .handle_message(now, message, invalidated, &mut self.backend)
            .map_err(protocol)
    }

    fn handle_read(&mut self, now: Instant, tag: u64, data: &[u8]) -> Result<(), CloseReason> {
        self.session
            .handle_read(now, tag, data, &mut self.backend)
            .map_err(protocol)
    }

    fn poll_transmit(&mut self, now: Instant, out: &mut dyn WorkList) {
        self.session.poll_transmit(now, &mut self.backend, out);
    }

    fn wants_transmit(&self) -> bool {
        self.session.wants_transmit()
    }

    fn is_idle(&self) -> bool {
        self.session.is_idle()
    }

    fn is_closing(&self) -> bool {
        self.session.is_closing()
    }

    fn handle_wake(&mut self, now: Instant) -> Result<(), CloseReason> {
        self.session
            .handle_wake(now, &mut self.backend)
            .map_err(protocol)
    }

    fn handle_completion(
        &mut self,
        now: Instant,
        completion: Completion,
    ) -> Result<(), CloseReason> {
        self.session
            .handle_completion(now, completion, &mut self.backend)
            .map_err(protocol)
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.session.poll_timeout()
    }

    fn handle_timeout(&mut self, now: Instant) -> Result<(), CloseReason> {
        self.session
            .handle_timeout(now, &mut self.backend)
            .map_err(protocol)
    }

    fn handle_close(&mut self, now: Instant, reason: &CloseReason) {
        self.session.handle_close(now, &mut self.backend);
        self.backend.handle_closed(reason);
    }

    fn attachment(&self) -> &dyn Attachment {
        &self.backend
    }

    fn attachment_mut(&mut self) -> &mut dyn Attachment {
        &mut self.backend
    }
}

fn protocol<E: Error + Send + Sync + 'static>(error: E) -> CloseReason {
    CloseReason::Protocol(Box::new(error))
}
