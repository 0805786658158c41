//! A queue pair and the session that speaks over it.

use std::{
    fmt, io,
    os::fd::BorrowedFd,
    sync::{Arc, Weak},
    time::Duration,
};

use fabric::Wait;
use fabric::verbs::{Completion, Event, WorkKind, WorkStatus};
use session::{Buffers, RemoteKey};

use super::locked_provider::{Notification, ProviderState, RdmaConnectionHandle};
use super::provider::HostProvider;
use super::queue_pair::{QueuePair, WorkContext};
use crate::ConnectionError;
use crate::queue_connection::ConnectionHandle;
use crate::session_connection::SessionConnection;
use crate::socket::Interest;

/// A host's session of messages.
pub(crate) trait MessageHost: fmt::Debug + Send {
    /// How a command ended.
    type Outcome;

    /// Whether there is anything to post.
    fn wants_transmit(&self) -> bool;

    /// How many commands are in flight or wait to be posted.
    fn in_flight(&self) -> u16;

    /// Posts as much as fits.
    fn poll_transmit(&mut self, work: &mut WorkContext<'_>);

    /// Handles a message and the key that the peer invalidated with it. Appends outcomes to `done`.
    fn handle_message(
        &mut self,
        message: &[u8],
        invalidated: Option<RemoteKey>,
        work: &mut WorkContext<'_>,
        done: &mut Vec<Self::Outcome>,
    ) -> Result<(), ConnectionError>;

    /// Handles the end of the connection: invalidates the remaining keys.
    fn handle_close(&mut self, work: &mut WorkContext<'_>);

    /// The key of the command that has ended.
    fn key_of(outcome: &Self::Outcome) -> u16;

    /// Whether it was executed: its data are valid.
    fn is_success(outcome: &Self::Outcome) -> bool;
}

/// A queue pair and its session.
pub(crate) struct RdmaConnection<S: MessageHost> {
    pair: QueuePair,
    session: S,
    /// The message that is handled.
    message: Vec<u8>,
    outcomes: Vec<S::Outcome>,
    ended: Vec<S::Outcome>,
    /// Whether something could not be posted for lack of room, which completions make.
    lacks_room: bool,
}

impl<S: MessageHost> RdmaConnection<S> {
    /// A connection that has just been made, for `keys` commands.
    pub(crate) fn new(pair: QueuePair, session: S, keys: u16) -> Self {
        Self {
            message: vec![0; pair.resources.receive_bytes as usize],
            pair,
            session,
            outcomes: Vec::with_capacity(keys.into()),
            ended: Vec::new(),
            lacks_room: false,
        }
    }

    pub(crate) fn session(&self) -> &S {
        &self.session
    }

    pub(crate) fn session_mut(&mut self) -> &mut S {
        &mut self.session
    }

    /// Disconnects, and returns the registered buffers to `buffers`.
    fn close(&mut self, buffers: &mut Buffers) {
        let session = &mut self.session;
        self.pair.close(buffers, |work| session.handle_close(work));
    }

    #[inline]
    fn transmit(&mut self, state: &mut ProviderState, buffers: &mut Buffers) {
        if self.session.wants_transmit() {
            self.pair.resources.is_alone = self.session.in_flight() == 1;
            self.session.poll_transmit(&mut WorkContext {
                resources: &mut self.pair.resources,
                provider: state.provider.as_mut(),
                buffers,
            });
            self.lacks_room = self.session.wants_transmit();
        }
    }

    /// Handles a completion or an event.
    fn on_notification(
        &mut self,
        provider: &mut dyn HostProvider,
        notification: &Notification,
        buffers: &mut Buffers,
    ) -> Result<(), ConnectionError> {
        let completion = match notification {
            Notification::Completion(completion) => completion,
            Notification::Event(Event::QpFailed { failure, .. }) => {
                return Err(ConnectionError::QueuePair(*failure));
            }
            Notification::Event(Event::Disconnected { .. }) => return Err(ConnectionError::Closed),
            Notification::Event(_) => return Ok(()),
        };
        match (completion.status, completion.kind) {
            (WorkStatus::Success, WorkKind::Recv) => {
                self.on_message(provider, completion, buffers)?;
            }
            (WorkStatus::Success, _) => {
                self.pair.resources.handle_sent(completion.id);
                return Ok(());
            }
            // An event with the reason follows.
            _ => return Ok(()),
        }
        for outcome in self.ended.drain(..) {
            let (key, is_success) = (S::key_of(&outcome), S::is_success(&outcome));
            let resources = &mut self.pair.resources;
            resources.end(provider, key, is_success, buffers);
            self.outcomes.push(outcome);
        }
        Ok(())
    }

    fn on_message(
        &mut self,
        provider: &mut dyn HostProvider,
        completion: &Completion,
        buffers: &mut Buffers,
    ) -> Result<(), ConnectionError> {
        let resources = &mut self.pair.resources;
        let len_bytes = self.message.len().min(completion.len_bytes as usize);
        // The copy cannot change while it is checked.
        let message = &mut self.message[..len_bytes];
        let request = resources.receive(completion.id.0);
        let from = request.into.range.offset as usize;
        message.copy_from_slice(&provider.bytes(resources.receives)[from..from + len_bytes]);
        let invalidated = completion.invalidated.map(|key| RemoteKey(key.0));
        let qpn = resources.qpn;
        let mut work = WorkContext {
            resources,
            provider,
            buffers,
        };
        self.session
            .handle_message(message, invalidated, &mut work, &mut self.ended)?;
        // It fails only if the queue pair has failed, which an event reports.
        let _ = provider.post_recv(qpn, request);
        Ok(())
    }
}

impl<S> SessionConnection for RdmaConnection<S>
where
    S: MessageHost,
    S::Outcome: Send,
{
    type Outcome = S::Outcome;

    fn turn(&mut self, buffers: &mut Buffers) -> Result<(), ConnectionError> {
        if self.pair.handle.is_closed() {
            return Err(ConnectionError::Closed);
        }
        let shared = Arc::clone(&self.pair.provider);
        let mut state = shared.lock();
        let qpn = self.pair.resources.qpn;
        self.transmit(&mut state, buffers);
        state.poll(Wait::Poll, Some(qpn))?;
        state.take_notifications(qpn, &mut self.pair.notifications);
        if self.pair.notifications.is_empty() {
            return Ok(());
        }
        let mut notifications = std::mem::take(&mut self.pair.notifications);
        let handled = notifications.drain(..).try_for_each(|notification| {
            self.on_notification(state.provider.as_mut(), &notification, buffers)
        });
        self.pair.notifications = notifications;
        self.transmit(&mut state, buffers);
        handled
    }

    fn outcomes(&mut self) -> &mut Vec<S::Outcome> {
        &mut self.outcomes
    }

    fn handle(&self) -> Weak<dyn ConnectionHandle> {
        let handle: Arc<dyn ConnectionHandle> =
            Arc::<RdmaConnectionHandle>::clone(&self.pair.handle);
        Arc::downgrade(&handle)
    }

    fn descriptor(&self) -> BorrowedFd<'_> {
        self.pair.handle.waker.descriptor()
    }

    fn interest(&self) -> Interest {
        Interest::Read
    }

    fn signals(&self) -> bool {
        false
    }

    fn wait_input(&self, also: Option<BorrowedFd<'_>>, timeout: Duration) -> io::Result<()> {
        // A command may have been submitted after the last turn, since the peer allowed it.
        if self.session.wants_transmit() && !self.lacks_room {
            return Ok(());
        }
        let QueuePair {
            provider,
            resources,
            handle,
            ..
        } = &self.pair;
        provider.wait_input(resources.qpn, handle, also, timeout)
    }

    fn release_buffers(&mut self, buffers: &mut Buffers) {
        self.close(buffers);
    }
}

impl<S: MessageHost> Drop for RdmaConnection<S> {
    fn drop(&mut self) {
        // The registered buffers are dropped with the queue.
        let slots = self.pair.resources.slots;
        self.close(&mut Buffers::new(slots, 0));
    }
}

impl<S: MessageHost> fmt::Debug for RdmaConnection<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RdmaConnection")
            .field("qpn", &self.pair.resources.qpn)
            .field("in_flight", &self.session.in_flight())
            .finish_non_exhaustive()
    }
}
