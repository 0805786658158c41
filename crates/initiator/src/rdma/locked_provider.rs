//! A provider that several threads use, each for its own connections.
//!
//! The thread that polls the provider receives completions and events of all connections and puts
//! them into the inboxes of their connections. If only one connection uses the provider, the lock
//! is rarely contended, and the thread sleeps in the provider. If several use it, one of the
//! waiting threads sleeps in the provider with the lock held, and a thread that needs the lock
//! wakes it. The others sleep until that thread wakes them, for at most
//! [`LockedProvider::WAITER_SLEEP_MAX`].

use std::{
    fmt, io, mem,
    os::fd::BorrowedFd,
    sync::{
        Arc, Mutex, MutexGuard, TryLockError,
        atomic::{AtomicBool, AtomicU32, Ordering},
    },
    thread,
    time::Duration,
};

use fabric::verbs::{Completion, Event, ProtectionDomain, Qpn};
use fabric::{FabricError, Wait};

use super::provider::HostProvider;
use crate::queue_connection::ConnectionHandle;
use crate::socket::{Interest, Waker, sleep};

/// A provider and the connections over it.
#[derive(Debug)]
pub(super) struct LockedProvider {
    state: Mutex<ProviderState>,
    sharing: Sharing,
    /// Whether a thread sleeps with the lock held. `interrupt` wakes it.
    is_asleep: AtomicBool,
    interrupt: Arc<Waker>,
    domains: AtomicU32,
}

/// Whether several threads use a provider.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sharing {
    /// Only the thread of its one connection, and the supervisor while that connects or polls.
    Own,
    /// The threads of several connections.
    Shared,
}

/// A provider and the inboxes of its connections.
pub(super) struct ProviderState {
    pub(super) provider: Box<dyn HostProvider + Send>,
    inboxes: Vec<Inbox>,
    /// The index of the inbox that was last used.
    recent: usize,
}

/// Completions and events of a connection that it has not yet taken.
struct Inbox {
    qpn: Qpn,
    handle: Arc<RdmaConnectionHandle>,
    notifications: Vec<Notification>,
}

/// A completion or an event of a connection.
#[derive(Clone, Debug)]
pub(super) enum Notification {
    Completion(Completion),
    Event(Event),
}

/// What other threads use of a connection.
#[derive(Debug)]
pub(super) struct RdmaConnectionHandle {
    is_closed: AtomicBool,
    /// Readable when another thread has put a notification into its inbox or has closed it.
    pub(super) waker: Waker,
    interrupt: Arc<Waker>,
}

impl LockedProvider {
    /// How often the supervisor polls providers whose threads may not, since peers wait for
    /// acknowledgements.
    pub(super) const IDLE_POLL_INTERVAL: Duration = Duration::from_millis(10);
    /// How long a thread waits for another to deliver its notifications before it polls itself.
    const WAITER_SLEEP_MAX: Duration = Duration::from_millis(1);

    pub(super) fn new(
        provider: Box<dyn HostProvider + Send>,
        sharing: Sharing,
    ) -> Result<Self, FabricError> {
        Ok(Self {
            state: Mutex::new(ProviderState {
                provider,
                inboxes: Vec::new(),
                recent: 0,
            }),
            sharing,
            is_asleep: AtomicBool::new(false),
            interrupt: Arc::new(Waker::new()?),
            domains: AtomicU32::new(1),
        })
    }

    /// Creates the handle of a new connection.
    pub(super) fn new_handle(&self) -> Result<Arc<RdmaConnectionHandle>, FabricError> {
        Ok(Arc::new(RdmaConnectionHandle {
            is_closed: AtomicBool::new(false),
            waker: Waker::new()?,
            interrupt: Arc::clone(&self.interrupt),
        }))
    }

    /// A protection domain of its own for a connection, so that its keys are invalid for the peers
    /// of other connections.
    pub(super) fn domain(&self) -> ProtectionDomain {
        ProtectionDomain(self.domains.fetch_add(1, Ordering::Relaxed))
    }

    /// Locks the provider.
    #[inline]
    pub(super) fn lock(&self) -> MutexGuard<'_, ProviderState> {
        loop {
            if let Some(state) = self.try_lock() {
                return state;
            }
            if self.is_asleep.load(Ordering::SeqCst) {
                self.interrupt.wake();
            }
            // Only a sleeping thread holds the lock for more than a few microseconds.
            thread::yield_now();
        }
    }

    /// Polls the provider, unless another thread uses it.
    pub(super) fn poll_idle(&self) {
        if let Some(mut state) = self.try_lock() {
            // Each connection sees the error at its own next poll.
            let _ = state.poll(Wait::Poll, None);
        }
    }

    /// Whether the provider still works. The provider of a removed adapter does not.
    pub(super) fn is_usable(&self) -> bool {
        // The first polls return what arrived before the removal.
        let poll = || {
            let state = self.try_lock();
            state.is_none_or(|mut state| state.poll(Wait::AtMost(Duration::ZERO), None).is_ok())
        };
        poll() && poll() && poll()
    }

    /// Sleeps until `qpn` has a notification, `also` is readable, or `timeout` expires; it may
    /// return earlier. A caller with `also` does not poll a shared provider here, since other
    /// threads could not interrupt it: it has to call [`poll_idle`](Self::poll_idle).
    pub(super) fn wait_input(
        &self,
        qpn: Qpn,
        handle: &RdmaConnectionHandle,
        also: Option<BorrowedFd<'_>>,
        timeout: Duration,
    ) -> io::Result<()> {
        let leader = match (self.sharing, also) {
            (Sharing::Shared, Some(_)) => None,
            _ => self.try_lock(),
        };
        let Some(mut state) = leader else {
            let slept = match also {
                Some(also) => sleep(
                    &[
                        (handle.waker.descriptor(), Interest::Read),
                        (also, Interest::Read),
                    ],
                    Some(timeout),
                ),
                None => sleep(
                    &[(handle.waker.descriptor(), Interest::Read)],
                    Some(timeout.min(Self::WAITER_SLEEP_MAX)),
                ),
            };
            handle.waker.clear();
            return slept;
        };
        if handle.is_closed()
            || !state
                .inbox(qpn)
                .is_none_or(|inbox| inbox.notifications.is_empty())
        {
            return Ok(());
        }
        let event = also.unwrap_or_else(|| self.interrupt.descriptor());
        self.is_asleep.store(true, Ordering::SeqCst);
        let polled = state.poll(
            Wait::Event {
                at_most: timeout,
                event,
            },
            Some(qpn),
        );
        self.is_asleep.store(false, Ordering::SeqCst);
        self.interrupt.clear();
        polled
    }

    fn try_lock(&self) -> Option<MutexGuard<'_, ProviderState>> {
        match self.state.try_lock() {
            Ok(state) => Some(state),
            // A panic while the lock is held leaves the state valid.
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }
}

impl ProviderState {
    /// Adds an inbox for `qpn`.
    pub(super) fn add(&mut self, qpn: Qpn, handle: Arc<RdmaConnectionHandle>) {
        self.inboxes.push(Inbox {
            qpn,
            handle,
            notifications: Vec::new(),
        });
    }

    /// Removes the inbox of `qpn`. Its further notifications are dropped.
    pub(super) fn remove(&mut self, qpn: Qpn) {
        self.inboxes.retain(|inbox| inbox.qpn != qpn);
    }

    /// Polls the provider and puts notifications into inboxes. `reader` takes its notifications
    /// right after this call and is not woken.
    #[inline]
    pub(super) fn poll(&mut self, wait: Wait<'_>, reader: Option<Qpn>) -> io::Result<()> {
        self.provider.poll(wait)?;
        while let Some(completion) = self.provider.next_completion() {
            self.put(completion.qpn, Notification::Completion(completion), reader);
        }
        while let Some(event) = self.provider.next_event() {
            if let Some(qpn) = qpn_of(&event) {
                self.put(qpn, Notification::Event(event), reader);
            }
        }
        Ok(())
    }

    /// Swaps the notifications of `qpn` with the empty vector `empty`.
    #[inline]
    pub(super) fn take_notifications(&mut self, qpn: Qpn, empty: &mut Vec<Notification>) {
        if let Some(inbox) = self.inbox(qpn) {
            mem::swap(&mut inbox.notifications, empty);
        }
    }

    #[inline]
    fn put(&mut self, qpn: Qpn, notifications: Notification, reader: Option<Qpn>) {
        // The queue pair was destroyed.
        let Some(inbox) = self.inbox(qpn) else {
            return;
        };
        let was_empty = inbox.notifications.is_empty();
        inbox.notifications.push(notifications);
        if was_empty && reader != Some(qpn) {
            inbox.handle.waker.wake();
        }
    }

    #[inline]
    fn inbox(&mut self, qpn: Qpn) -> Option<&mut Inbox> {
        let recent = self.inboxes.get(self.recent);
        if recent.is_none_or(|inbox| inbox.qpn != qpn) {
            self.recent = self.inboxes.iter().position(|inbox| inbox.qpn == qpn)?;
        }
        self.inboxes.get_mut(self.recent)
    }
}

impl fmt::Debug for ProviderState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProviderState")
            .field("connections", &self.inboxes.len())
            .finish_non_exhaustive()
    }
}

impl RdmaConnectionHandle {
    pub(super) fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::Acquire)
    }
}

impl ConnectionHandle for RdmaConnectionHandle {
    fn close(&self) {
        self.is_closed.store(true, Ordering::Release);
        self.waker.wake();
        self.interrupt.wake();
    }
}

/// The queue pair that an event belongs to.
fn qpn_of(event: &Event) -> Option<Qpn> {
    match event {
        Event::Connected { qpn, .. }
        | Event::Established { qpn, .. }
        | Event::Disconnected { qpn, .. }
        | Event::QpFailed { qpn, .. } => Some(*qpn),
        Event::Rejected { qpn, .. } | Event::Unreachable { qpn, .. } => *qpn,
        // Hosts do not listen.
        Event::Request(_) => None,
    }
}
