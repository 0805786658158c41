//! One of several threads that share an address.
//!
//! The system gives each socket the datagrams of its thread, with one exception: a run goes to the
//! thread of its first packet, and the system joins packets of one sender with equal lengths (by
//! GRO, or by a sender on the same machine), whatever queue pairs they are for. So each thread
//! checks which thread a packet is for, and forwards the packets of other threads.

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use net::parts::Mailbox;
use roce::wire::Ipv4Identification;
use roce::{Flow, Received};

use super::steering::Steering;

/// The shared state of an address's threads.
#[derive(Debug)]
pub(super) struct PortGroup {
    steering: Steering,
    inboxes: Box<[Inbox]>,
    /// The sockets, which stay as they are until the last thread has ended: the system would number
    /// those anew that are left.
    _sockets: Box<[OwnedFd]>,
}

/// Datagrams forwarded to a thread.
struct Inbox {
    mailbox: Mailbox<HandedOver>,
    waiting_bytes: AtomicUsize,
}

/// Datagrams that another thread's socket received.
struct HandedOver {
    flow: Flow,
    bytes: Box<[u8]>,
    segment_len_bytes: Option<u16>,
    congestion_experienced: bool,
}

/// A thread's place in a group.
#[derive(Debug)]
pub(super) struct PortShare {
    group: Arc<PortGroup>,
    index: u32,
}

impl PortGroup {
    /// For as many threads as there are sockets.
    pub(super) fn new(sockets: Vec<OwnedFd>) -> io::Result<Arc<Self>> {
        let inboxes: io::Result<_> = sockets.iter().map(|_| Inbox::new()).collect();
        Ok(Arc::new(Self {
            steering: Steering {
                threads: sockets.len() as u32,
            },
            inboxes: inboxes?,
            _sockets: sockets.into_boxed_slice(),
        }))
    }

    /// How its packets are spread.
    pub(super) fn steering(&self) -> Steering {
        self.steering
    }

    /// The place of each thread.
    pub(super) fn shares(self: &Arc<Self>) -> impl Iterator<Item = PortShare> + use<> {
        let group = Arc::clone(self);
        (0..group.steering.threads).map(move |index| PortShare {
            group: Arc::clone(&group),
            index,
        })
    }
}

impl PortShare {
    /// How many threads there are.
    pub(super) fn threads(&self) -> u32 {
        self.group.steering.threads
    }

    /// Which of them this is.
    pub(super) const fn index(&self) -> u32 {
        self.index
    }

    /// Passes the packets of this thread to `take`, in runs, and forwards the others. Returns the
    /// number of forwarded runs.
    pub(super) fn sort(&self, received: &Received<'_>, mut take: impl FnMut(&Received<'_>)) -> u64 {
        let whole = received.bytes.len();
        let segment_len = received.segment_len_bytes.map_or(whole, usize::from).max(1);
        let owner_of = |at: usize| {
            let end = whole.min(at + segment_len);
            self.group.steering.thread_of(&received.bytes[at..end])
        };
        let (mut start, mut handed_over) = (0, 0);
        while start < whole {
            let owner = owner_of(start);
            let mut end = start + segment_len;
            while end < whole && owner_of(end) == owner {
                end += segment_len;
            }
            let part = Received {
                bytes: &received.bytes[start..end.min(whole)],
                ..*received
            };
            if owner == self.index {
                take(&part);
            } else {
                self.group.inboxes[owner as usize].put(&part);
                handed_over += 1;
            }
            start = end;
        }
        handed_over
    }

    /// Passes the datagrams that other threads have forwarded to `take`. Returns whether there were
    /// any.
    pub(super) fn collect(&self, mut take: impl FnMut(&Received<'_>)) -> bool {
        let inbox = self.inbox();
        let Some(mail) = inbox.mailbox.collect() else {
            return false;
        };
        for handed_over in mail.messages {
            let len = handed_over.bytes.len();
            inbox.waiting_bytes.fetch_sub(len, Ordering::Relaxed);
            take(&handed_over.received());
        }
        true
    }

    /// Runs `sleep`, which ends when its event is readable, unless other threads have forwarded
    /// datagrams.
    pub(super) fn asleep<T>(
        &self,
        sleep: impl FnOnce(BorrowedFd<'_>) -> io::Result<T>,
    ) -> io::Result<()> {
        let mailbox = &self.inbox().mailbox;
        if !mailbox.fall_asleep() {
            return Ok(());
        }
        let slept = sleep(mailbox.event());
        mailbox.wake_up();
        mailbox.clear_event();
        slept.map(|_| ())
    }

    fn inbox(&self) -> &Inbox {
        &self.group.inboxes[self.index as usize]
    }
}

impl Inbox {
    /// The most bytes that may wait. The rest is dropped, and its senders retransmit it.
    const WAITING_MAX_BYTES: usize = 4 << 20;

    fn new() -> io::Result<Self> {
        Ok(Self {
            mailbox: Mailbox::new()?,
            waiting_bytes: AtomicUsize::new(0),
        })
    }

    fn put(&self, received: &Received<'_>) {
        let len = received.bytes.len();
        let waiting = self.waiting_bytes.fetch_add(len, Ordering::Relaxed);
        let has_room = waiting + len <= Self::WAITING_MAX_BYTES;
        // Copied: the thread that has received it receives the next into the same buffer.
        if !has_room || self.mailbox.try_post(HandedOver::of(received)).is_err() {
            self.waiting_bytes.fetch_sub(len, Ordering::Relaxed);
        }
    }
}

impl std::fmt::Debug for Inbox {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let waiting = self.waiting_bytes.load(Ordering::Relaxed);
        write!(f, "Inbox({waiting} bytes)")
    }
}

impl HandedOver {
    fn of(received: &Received<'_>) -> Self {
        Self {
            flow: received.flow,
            bytes: received.bytes.into(),
            segment_len_bytes: received.segment_len_bytes,
            congestion_experienced: received.congestion_experienced,
        }
    }

    fn received(&self) -> Received<'_> {
        Received {
            flow: self.flow,
            bytes: &self.bytes,
            segment_len_bytes: self.segment_len_bytes,
            identification: Ipv4Identification::Unknown,
            congestion_experienced: self.congestion_experienced,
        }
    }
}

#[cfg(test)]
mod tests;
