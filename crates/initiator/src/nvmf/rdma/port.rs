//! A provider that several threads use, each for connections of its own.
//!
//! Whoever polls the provider takes in what came for everybody: what is another's waits in that one's inbox. Where a connection
//! has the port to itself, the lock is hardly ever contended, and its thread sleeps in the provider. Where it is shared, one of
//! those that wait sleeps in the provider, with the lock held, and is woken by whoever wants the lock; the others wait to be
//! woken by that one, and look by themselves now and then.

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
use crate::mailbox::Sever;
use crate::socket::{Interest, Waker, sleep};

/// A provider and the connections over it.
#[derive(Debug)]
pub(super) struct Port {
    drive: Mutex<Drive>,
    sharing: Sharing,
    /// Whether a thread sleeps with the lock held, and what wakes it.
    is_asleep: AtomicBool,
    kick: Arc<Waker>,
    domains: AtomicU32,
}

/// Whether several threads use a port at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sharing {
    /// Its one connection's thread alone, but for what the keeper does meanwhile.
    Own,
    /// They do.
    Shared,
}

/// What the lock guards.
pub(super) struct Drive {
    pub(super) provider: Box<dyn HostProvider + Send>,
    inboxes: Vec<Inbox>,
    /// Where the inbox stands that was last looked for.
    recent: usize,
}

/// What came for a connection.
struct Inbox {
    qpn: Qpn,
    end: Arc<End>,
    news: Vec<News>,
}

/// Something that came for a connection.
#[derive(Clone, Debug)]
pub(super) enum News {
    Completion(Completion),
    Event(Event),
}

/// A connection, as other threads see it.
#[derive(Debug)]
pub(super) struct End {
    is_severed: AtomicBool,
    /// Readable when another thread has put something into its inbox, or severed it.
    pub(super) waker: Waker,
    kick: Arc<Waker>,
}

impl Port {
    /// How often ports are polled whose threads may not: peers want to be acknowledged.
    pub(super) const TEND_INTERVAL: Duration = Duration::from_millis(10);
    /// How long a thread waits for another to bring its news before it looks by itself.
    const FOLLOW_MAX: Duration = Duration::from_millis(1);

    pub(super) fn new(
        provider: Box<dyn HostProvider + Send>,
        sharing: Sharing,
    ) -> Result<Self, FabricError> {
        Ok(Self {
            drive: Mutex::new(Drive {
                provider,
                inboxes: Vec::new(),
                recent: 0,
            }),
            sharing,
            is_asleep: AtomicBool::new(false),
            kick: Arc::new(Waker::new()?),
            domains: AtomicU32::new(1),
        })
    }

    /// A connection-to-be, as others see it.
    pub(super) fn end(&self) -> Result<Arc<End>, FabricError> {
        Ok(Arc::new(End {
            is_severed: AtomicBool::new(false),
            waker: Waker::new()?,
            kick: Arc::clone(&self.kick),
        }))
    }

    /// A protection domain that no other connection here has: keys are worth nothing to the others' peers.
    pub(super) fn domain(&self) -> ProtectionDomain {
        ProtectionDomain(self.domains.fetch_add(1, Ordering::Relaxed))
    }

    /// The provider, for this thread alone.
    #[inline]
    pub(super) fn lock(&self) -> MutexGuard<'_, Drive> {
        loop {
            if let Some(drive) = self.try_lock() {
                return drive;
            }
            if self.is_asleep.load(Ordering::SeqCst) {
                self.kick.wake();
            }
            // It is held for a few microseconds, but by one who sleeps.
            thread::yield_now();
        }
    }

    /// Takes in what has come, where nobody else does just now.
    pub(super) fn tend(&self) {
        if let Some(mut drive) = self.try_lock() {
            // Whoever has a connection here meets the error, too.
            let _ = drive.poll(Wait::Poll, None);
        }
    }

    /// Whether the provider can be used on: that of an adapter which was removed can't.
    pub(super) fn is_usable(&self) -> bool {
        // What came before is taken by the first look, the news of the end by the second.
        let look = || {
            let drive = self.try_lock();
            drive.is_none_or(|mut drive| drive.poll(Wait::AtMost(Duration::ZERO), None).is_ok())
        };
        look() && look() && look()
    }

    /// Sleeps until something has come for `qpn`, `also` is readable, or `timeout` is over; or less. Whoever waits for
    /// something else, too, has to [tend](Self::tend) a port that is shared, since it can't be kicked out of the provider.
    pub(super) fn doze(
        &self,
        qpn: Qpn,
        end: &End,
        also: Option<BorrowedFd<'_>>,
        timeout: Duration,
    ) -> io::Result<()> {
        let leader = match (self.sharing, also) {
            (Sharing::Shared, Some(_)) => None,
            _ => self.try_lock(),
        };
        let Some(mut drive) = leader else {
            let slept = match also {
                Some(also) => sleep(
                    &[
                        (end.waker.descriptor(), Interest::Read),
                        (also, Interest::Read),
                    ],
                    Some(timeout),
                ),
                None => sleep(
                    &[(end.waker.descriptor(), Interest::Read)],
                    Some(timeout.min(Self::FOLLOW_MAX)),
                ),
            };
            end.waker.clear();
            return slept;
        };
        if end.is_severed() || !drive.inbox(qpn).is_none_or(|inbox| inbox.news.is_empty()) {
            return Ok(());
        }
        let event = also.unwrap_or_else(|| self.kick.descriptor());
        self.is_asleep.store(true, Ordering::SeqCst);
        let polled = drive.poll(
            Wait::Event {
                at_most: timeout,
                event,
            },
            Some(qpn),
        );
        self.is_asleep.store(false, Ordering::SeqCst);
        self.kick.clear();
        polled
    }

    fn try_lock(&self) -> Option<MutexGuard<'_, Drive>> {
        match self.drive.try_lock() {
            Ok(drive) => Some(drive),
            // What the mutex guards is whole whenever it is unlocked, even by a panic.
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }
}

impl Drive {
    /// From now on, what comes for `qpn` is put into an inbox.
    pub(super) fn enter(&mut self, qpn: Qpn, end: Arc<End>) {
        self.inboxes.push(Inbox {
            qpn,
            end,
            news: Vec::new(),
        });
    }

    /// What comes for `qpn` is nobody's from now on.
    pub(super) fn leave(&mut self, qpn: Qpn) {
        self.inboxes.retain(|inbox| inbox.qpn != qpn);
    }

    /// Polls the provider and puts what came into inboxes. `reader` is whoever looks into its inbox right after this.
    #[inline]
    pub(super) fn poll(&mut self, wait: Wait<'_>, reader: Option<Qpn>) -> io::Result<()> {
        self.provider.poll(wait)?;
        while let Some(completion) = self.provider.next_completion() {
            self.put(completion.qpn, News::Completion(completion), reader);
        }
        while let Some(event) = self.provider.next_event() {
            if let Some(qpn) = qpn_of(&event) {
                self.put(qpn, News::Event(event), reader);
            }
        }
        Ok(())
    }

    /// Exchanges the news of `qpn` with `empty`, which is empty.
    #[inline]
    pub(super) fn take_news(&mut self, qpn: Qpn, empty: &mut Vec<News>) {
        if let Some(inbox) = self.inbox(qpn) {
            mem::swap(&mut inbox.news, empty);
        }
    }

    #[inline]
    fn put(&mut self, qpn: Qpn, news: News, reader: Option<Qpn>) {
        // Nobody's: of a queue pair that was destroyed.
        let Some(inbox) = self.inbox(qpn) else {
            return;
        };
        let was_empty = inbox.news.is_empty();
        inbox.news.push(news);
        if was_empty && reader != Some(qpn) {
            inbox.end.waker.wake();
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

impl fmt::Debug for Drive {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Drive")
            .field("connections", &self.inboxes.len())
            .finish_non_exhaustive()
    }
}

impl End {
    pub(super) fn is_severed(&self) -> bool {
        self.is_severed.load(Ordering::Acquire)
    }
}

impl Sever for End {
    fn sever(&self) {
        self.is_severed.store(true, Ordering::Release);
        self.waker.wake();
        self.kick.wake();
    }
}

/// Whose an event is.
fn qpn_of(event: &Event) -> Option<Qpn> {
    match event {
        Event::Connected { qpn, .. }
        | Event::Established { qpn, .. }
        | Event::Disconnected { qpn, .. }
        | Event::QpFailed { qpn, .. } => Some(*qpn),
        Event::Rejected { qpn, .. } | Event::Unreachable { qpn, .. } => *qpn,
        // Nothing is listened for.
        Event::Request(_) => None,
    }
}
