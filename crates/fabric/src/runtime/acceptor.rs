//! Sessions over queue pairs with their backends, whatever their types, and how they are created.

use std::error::Error;
use std::time::Instant;

use net::{Accepted, Attachment, CloseReason, Driven, Joined};
use session::{MessageSession, RemoteKey, WorkList};

/// Creates sessions for the connections to a port. Called on the thread that will drive the
/// connection.
pub trait MessageAcceptor: Send + Sync {
    /// Returns the session for a requested connection, or why it is refused.
    fn accept(
        &self,
        now: Instant,
        accepted: &Accepted,
        request: &Request<'_>,
    ) -> Result<Admitted, Refusal>;
}

/// A connection request.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// The application's private data. It may be padded with zeros.
    pub private_data: &'a [u8],
    /// RDMA READs that the peer answers at once.
    pub reads_max: u8,
}

/// A session, and the shape of its queue pair.
pub struct Admitted {
    /// The session.
    pub driven: Box<dyn DrivenMessages>,
    /// The queue pair.
    pub shape: QueueShape,
    /// The application's private data for the peer: at most 196 bytes.
    pub private_data: Vec<u8>,
}

/// The depths of a queue pair. The receives are the memory that the peer can make us hold.
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

/// Why a connection is refused.
#[derive(Debug, thiserror::Error)]
pub enum Refusal {
    /// The protocol rejects the connection.
    #[error("{error}")]
    Protocol {
        /// Why.
        error: Box<dyn Error + Send + Sync>,
        /// Private data of the rejection: at most 148 bytes.
        private_data: Vec<u8>,
    },
    /// There is no room.
    #[error("the memory budget has no room for it")]
    NoResources,
}

/// A session over a queue pair with its backend, made by [`drive_messages`].
pub trait DrivenMessages: Driven {
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
}

/// Joins a session and its backend for a runtime.
pub fn drive_messages<S>(session: S, backend: S::Backend) -> Box<dyn DrivenMessages>
where
    S: MessageSession + 'static,
    S::Backend: Attachment + 'static,
    S::Error: Send + Sync + 'static,
{
    Box::new(Joined { session, backend })
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
            .map_err(CloseReason::protocol)
    }

    fn handle_read(&mut self, now: Instant, tag: u64, data: &[u8]) -> Result<(), CloseReason> {
        self.session
            .handle_read(now, tag, data, &mut self.backend)
            .map_err(CloseReason::protocol)
    }

    fn poll_transmit(&mut self, now: Instant, out: &mut dyn WorkList) {
        self.session.poll_transmit(now, &mut self.backend, out);
    }
}
