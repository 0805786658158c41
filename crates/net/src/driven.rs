//! Sessions with their backends, whatever their types, as reactors drive them.

use std::error::Error;
use std::io;
use std::net::SocketAddr;
use std::time::Instant;

use block::{Completion, Pinned};
use session::{SendList, Session, SourceId, StreamSession};
use tls::{Entry, EntryError, Proven, RecordError};

use crate::ConnectionId;

/// A listener's number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ListenerId(pub u32);

/// What a reactor needs of a connection's backend, besides what the session needs of it.
pub trait Attachment {
    /// The memory behind a placement that the session has put into a send list. It must be found
    /// until [`handle_drained`](Self::handle_drained) has been called after that.
    fn memory(&self, source: SourceId) -> Option<&dyn Pinned>;

    /// Whether the peer may still be sent bytes of this volume. Called before each call that
    /// gathers some, since a slow peer may have lost its access since then. If so, its connection
    /// is closed.
    fn may_send(&self, source: SourceId) -> bool;

    /// Whether the peer has been admitted.
    fn login_progress(&self) -> LoginProgress;

    /// What has been charged to the budget for the connection, in bytes, as it began. Until its
    /// peer is admitted, this counts as held by a stranger.
    fn charged_bytes(&self) -> u64;

    /// The session's data of this turn were passed to the socket, or wait until it takes more.
    fn handle_sent(&mut self, now: Instant);

    /// The socket accepts no more. The rest of this turn's output is kept, in up to
    /// [`Reactors::UNDRAINED_MAX_BYTES`](crate::Reactors::UNDRAINED_MAX_BYTES) of memory.
    fn handle_stalled(&mut self);

    /// The peer has proven by TLS that it has this key. Called at most once, before the session
    /// gets its first bytes.
    fn handle_secured(&mut self, _proven: &Proven) {}

    /// Nothing waits to be sent any more: earlier placements are not used again.
    fn handle_drained(&mut self);

    /// The connection has ended, after the session's own [`Session::handle_close`].
    fn handle_closed(&mut self, reason: &CloseReason);
}

/// How far a peer has got on its way to being served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LoginProgress {
    /// It has not logged in. The handshake deadline and the bound on half-open connections hold.
    Pending,
    /// It has named itself and now proves who it is, which may take longer than a login. The bound
    /// on half-open connections still holds. The session has a deadline of its own.
    Authenticating,
    /// It is served.
    Admitted,
}

/// Creates sessions for the connections of a listener. Called on the reactor that will drive the
/// connection.
pub trait Acceptor: Send + Sync {
    /// The session for a new connection; `None` closes it at once.
    fn accept(&self, now: Instant, accepted: &Accepted) -> Option<Box<dyn DrivenStream>>;

    /// What decides between TLS and plain, for a new connection; `None` for protocols without TLS.
    fn entry(&self) -> Option<Entry> {
        None
    }
}

/// An accepted connection.
#[derive(Clone, Copy, Debug)]
pub struct Accepted {
    /// Its number.
    pub id: ConnectionId,
    /// The listener that accepted it.
    pub listener: ListenerId,
    /// The peer's end.
    pub peer: SocketAddr,
    /// Our end: the address that the peer connected to.
    pub local: SocketAddr,
}

/// Why a connection ended.
#[derive(Debug, thiserror::Error)]
pub enum CloseReason {
    /// The peer closed it.
    #[error("the peer closed the connection")]
    PeerClosed,
    /// The protocol is done with it.
    #[error("the session ended")]
    SessionEnded,
    /// The peer broke the protocol.
    #[error("the peer broke the protocol: {0}")]
    Protocol(#[source] Box<dyn Error + Send + Sync>),
    /// The connection did not get as far as its session, because of TLS.
    #[error("{0}")]
    Entry(#[from] EntryError),
    /// A TLS record ended it.
    #[error("{0}")]
    Record(RecordError),
    /// The socket failed.
    #[error("the connection failed: {0}")]
    Io(#[from] io::Error),
    /// The queue pair failed.
    #[error("the connection failed: {0}")]
    Fabric(#[source] Box<dyn Error + Send + Sync>),
    /// The peer did not complete its login in time.
    #[error("the login was not completed in time")]
    HandshakeTimeout,
    /// It had not logged in, and others needed room.
    #[error("it had not logged in, and made room for other connections")]
    Evicted,
    /// There was no room for it.
    #[error("refused: {0}")]
    Refused(#[from] Refused),
    /// On request.
    #[error("ended on request")]
    Requested,
    /// The program stops.
    #[error("the server stops")]
    Stopping,
    /// The session panicked. Others go on.
    #[error("the session failed an assertion; please report this with the lines above it")]
    Panicked,
}

/// Why there is no room for a new connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// There are too many connections.
    #[error("the maximum number of connections is reached")]
    Full,
    /// Its network has too many that are half open.
    #[error(
        "its address, or the /64 network of its IPv6 address, has too many connections that have not logged in"
    )]
    HalfOpen,
    /// Those that are half open, and those that were evicted and have not closed yet, hold too much
    /// memory.
    #[error("connections that have not logged in hold too much of the memory budget")]
    Memory,
}

/// A session with its backend: the part that is the same over sockets and queue pairs.
pub trait Driven {
    /// See [`Session::wants_transmit`].
    fn wants_transmit(&self) -> bool;
    /// See [`Session::is_closing`].
    fn is_closing(&self) -> bool;
    /// See [`Session::may_close`].
    fn may_close(&mut self) -> bool;
    /// See [`Session::handle_wake`].
    fn handle_wake(&mut self, now: Instant) -> Result<(), CloseReason>;
    /// See [`Session::handle_completion`].
    fn handle_completion(
        &mut self,
        now: Instant,
        completion: Completion,
    ) -> Result<(), CloseReason>;
    /// See [`Session::poll_timeout`].
    fn poll_timeout(&self) -> Option<Instant>;
    /// See [`Session::handle_timeout`].
    fn handle_timeout(&mut self, now: Instant) -> Result<(), CloseReason>;
    /// See [`Session::handle_close`] and [`Attachment::handle_closed`].
    fn handle_close(&mut self, now: Instant, reason: &CloseReason);
    /// The backend.
    fn attachment(&self) -> &dyn Attachment;
    /// The backend.
    fn attachment_mut(&mut self) -> &mut dyn Attachment;
}

/// A session over a byte stream with its backend, made by [`drive`].
pub trait DrivenStream: Driven {
    /// See [`StreamSession::turn_bytes`].
    fn turn_bytes(&self) -> usize;
    /// See [`StreamSession::handle_bytes`].
    fn handle_bytes(&mut self, now: Instant, input: &[u8]) -> Result<(), CloseReason>;
    /// See [`StreamSession::poll_transmit`].
    fn poll_transmit(&mut self, now: Instant, out: &mut SendList);
}

/// Joins a session and its backend for a reactor.
pub fn drive<S>(session: S, backend: S::Backend) -> Box<dyn DrivenStream>
where
    S: StreamSession + 'static,
    S::Backend: Attachment + 'static,
    S::Error: Send + Sync + 'static,
{
    Box::new(Joined { session, backend })
}

/// A session and its backend.
pub struct Joined<S: Session> {
    /// The session.
    pub session: S,
    /// Its backend.
    pub backend: S::Backend,
}

impl<S> Driven for Joined<S>
where
    S: Session,
    S::Backend: Attachment,
    S::Error: Send + Sync + 'static,
{
    fn wants_transmit(&self) -> bool {
        self.session.wants_transmit()
    }

    fn is_closing(&self) -> bool {
        self.session.is_closing()
    }

    fn may_close(&mut self) -> bool {
        self.session.may_close(&mut self.backend)
    }

    fn handle_wake(&mut self, now: Instant) -> Result<(), CloseReason> {
        self.session
            .handle_wake(now, &mut self.backend)
            .map_err(CloseReason::protocol)
    }

    fn handle_completion(
        &mut self,
        now: Instant,
        completion: Completion,
    ) -> Result<(), CloseReason> {
        self.session
            .handle_completion(now, completion, &mut self.backend)
            .map_err(CloseReason::protocol)
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.session.poll_timeout()
    }

    fn handle_timeout(&mut self, now: Instant) -> Result<(), CloseReason> {
        self.session
            .handle_timeout(now, &mut self.backend)
            .map_err(CloseReason::protocol)
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

impl<S> DrivenStream for Joined<S>
where
    S: StreamSession,
    S::Backend: Attachment,
    S::Error: Send + Sync + 'static,
{
    fn turn_bytes(&self) -> usize {
        self.session.turn_bytes()
    }

    fn handle_bytes(&mut self, now: Instant, input: &[u8]) -> Result<(), CloseReason> {
        self.session
            .handle_bytes(now, input, &mut self.backend)
            .map_err(CloseReason::protocol)
    }

    fn poll_transmit(&mut self, now: Instant, out: &mut SendList) {
        self.session.poll_transmit(now, &mut self.backend, out);
    }
}

impl From<RecordError> for CloseReason {
    fn from(error: RecordError) -> Self {
        match error {
            RecordError::Closed => Self::PeerClosed,
            error => Self::Record(error),
        }
    }
}

impl CloseReason {
    /// The peer broke the protocol.
    pub fn protocol<E: Error + Send + Sync + 'static>(error: E) -> Self {
        Self::Protocol(Box::new(error))
    }
}
