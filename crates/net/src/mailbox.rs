//! How other threads speak to a reactor: a bounded queue, and an eventfd that wakes it where it
//! sleeps.

use std::collections::btree_map::{BTreeMap, Entry};
use std::collections::{BTreeSet, VecDeque};
use std::io;
use std::mem;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use block::Completion;
use rustix::event::{EventfdFlags, eventfd};

use crate::{ConnectionId, GracePeriod};

/// A reactor's mailbox for messages `M`. Wakes are kept apart from messages: many for one
/// connection are one, so they are bounded by the connections and posting one never waits.
pub struct Mailbox<M> {
    mail: Mutex<Mail<M>>,
    room: Condvar,
    /// Whether there is anything to collect.
    is_full: AtomicBool,
    /// Whether the reactor sleeps, or is about to.
    is_asleep: AtomicBool,
    event: OwnedFd,
    /// Whether the event was raised since it was last handled. The flag is set after raising the
    /// event, so a thread that sees the flag first is woken again.
    is_rung: AtomicBool,
}

/// What has been posted.
pub struct Mail<M> {
    /// In the order of posting.
    pub messages: VecDeque<M>,
    /// Connections whose sessions are to be woken.
    pub wakes: BTreeSet<ConnectionId>,
    /// Commands that volumes are done with, those of one connection together.
    pub completions: Completions,
    /// The last grace period that began. The thread passes it once the rest of this mail is
    /// handled.
    pub checkpoint: Option<GracePeriod>,
}

/// Completions of volumes, at most one for each slot of each connection.
///
/// That bounds them by the slots of the connections, however often a slot's command is aborted and
/// followed by another: a slot has one command at a time, so of two generations the older one was
/// released, and its completion means nothing any more.
#[derive(Debug, Default)]
pub struct Completions(BTreeMap<(ConnectionId, u32), Completion>);

impl Completions {
    fn insert(&mut self, completion: Completion) {
        let ticket = completion.ticket;
        match self.0.entry((ConnectionId(ticket.connection), ticket.slot)) {
            Entry::Vacant(place) => {
                place.insert(completion);
            }
            Entry::Occupied(mut place) => {
                let held = place.get().ticket.generation;
                // Generations wrap around.
                if ticket.generation.wrapping_sub(held) < 1 << 31 {
                    place.insert(completion);
                }
            }
        }
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl IntoIterator for Completions {
    type Item = (ConnectionId, Completion);
    type IntoIter = std::iter::Map<
        std::collections::btree_map::IntoIter<(ConnectionId, u32), Completion>,
        fn(((ConnectionId, u32), Completion)) -> (ConnectionId, Completion),
    >;

    fn into_iter(self) -> Self::IntoIter {
        self.0
            .into_iter()
            .map(|((connection, _), completion)| (connection, completion))
    }
}

impl<M> Mailbox<M> {
    /// The most messages that wait.
    pub const MESSAGES_MAX: usize = 1024;

    /// An empty one.
    pub fn new() -> io::Result<Self> {
        Ok(Self {
            mail: Mutex::new(Mail::default()),
            room: Condvar::new(),
            is_full: AtomicBool::new(false),
            is_asleep: AtomicBool::new(false),
            event: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
            is_rung: AtomicBool::new(false),
        })
    }

    /// What the reactor watches while it sleeps.
    pub fn event(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }

    /// Posts a message; waits while the mailbox is full. Not for reactor threads.
    pub fn post(&self, message: M) {
        let mut mail = self.lock();
        while mail.messages.len() >= Self::MESSAGES_MAX {
            mail = self.room.wait(mail).unwrap_or_else(PoisonError::into_inner);
        }
        mail.messages.push_back(message);
        self.ring(mail);
    }

    /// Posts a message. Returns it if the mailbox is full.
    pub fn try_post(&self, message: M) -> Result<(), M> {
        let mut mail = self.lock();
        if mail.messages.len() >= Self::MESSAGES_MAX {
            return Err(message);
        }
        mail.messages.push_back(message);
        self.ring(mail);
        Ok(())
    }

    /// Asks for a connection's session to be woken.
    pub fn post_wake(&self, connection: ConnectionId) {
        let mut mail = self.lock();
        mail.wakes.insert(connection);
        self.ring(mail);
    }

    /// Reports that a volume is done with commands of this thread's connections. Never waits.
    pub fn post_completions(&self, completions: &[Completion]) {
        let mut mail = self.lock();
        for completion in completions {
            mail.completions.insert(*completion);
        }
        self.ring(mail);
    }

    /// Asks the reactor to pass a grace period. Never waits.
    pub fn post_checkpoint(&self, period: GracePeriod) {
        let mut mail = self.lock();
        mail.checkpoint = mail.checkpoint.max(Some(period));
        self.ring(mail);
    }

    /// Everything that has been posted, for the reactor.
    pub fn collect(&self) -> Option<Mail<M>> {
        if !self.is_full.load(Ordering::Acquire) {
            return None;
        }
        let mut mail = self.lock();
        self.is_full.store(false, Ordering::Relaxed);
        self.room.notify_all();
        Some(mem::take(&mut mail))
    }

    /// The reactor is about to sleep: `false` if it must not, since there is mail.
    pub fn fall_asleep(&self) -> bool {
        self.is_asleep.store(true, Ordering::SeqCst);
        if self.is_full.load(Ordering::SeqCst) {
            self.is_asleep.store(false, Ordering::Relaxed);
            return false;
        }
        true
    }

    /// The reactor has woken.
    pub fn wake_up(&self) {
        self.is_asleep.store(false, Ordering::Relaxed);
    }

    /// The event was seen, if there was one.
    pub fn clear_event(&self) {
        if !self.is_rung.swap(false, Ordering::SeqCst) {
            return;
        }
        let mut count = [0; 8];
        // Without a count there is nothing to clear.
        let _ = rustix::io::read(&self.event, &mut count);
    }

    fn ring(&self, mail: MutexGuard<'_, Mail<M>>) {
        self.is_full.store(true, Ordering::SeqCst);
        drop(mail);
        // One poster wakes the reactor; until it has woken, others have nothing to add.
        if self.is_asleep.swap(false, Ordering::SeqCst) {
            // It fails only if the count is at its end, and then the reactor is being woken.
            let _ = rustix::io::write(&self.event, &1_u64.to_ne_bytes());
            self.is_rung.store(true, Ordering::SeqCst);
        }
    }

    /// No code that runs under this lock leaves the queue half changed, even where it panics.
    fn lock(&self) -> MutexGuard<'_, Mail<M>> {
        self.mail.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<M> Default for Mail<M> {
    fn default() -> Self {
        Self {
            messages: VecDeque::new(),
            wakes: BTreeSet::new(),
            completions: Completions::default(),
            checkpoint: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use block::Ticket;

    use super::*;

    fn is_rung(mailbox: &Mailbox<u32>) -> bool {
        let mut count = [0; 8];
        rustix::io::read(mailbox.event(), &mut count).is_ok()
    }

    #[test]
    fn messages_come_in_order_and_wakes_once() {
        let mailbox = Mailbox::new().expect("an eventfd");
        assert!(mailbox.collect().is_none());
        mailbox.post(1);
        mailbox.post(2);
        mailbox.post_wake(ConnectionId(7));
        mailbox.post_wake(ConnectionId(7));
        let mail = mailbox.collect().expect("mail");
        assert_eq!(mail.messages, [1, 2]);
        assert_eq!(mail.wakes.len(), 1);
        assert!(mailbox.collect().is_none());
    }

    #[test]
    fn completions_are_bounded_by_slots_and_the_newest_generation_stays() {
        let mailbox: Mailbox<u32> = Mailbox::new().expect("an eventfd");
        let post = |connection, slot, generation| {
            mailbox.post_completions(&[Completion {
                ticket: Ticket {
                    connection,
                    slot,
                    generation,
                },
                result: Ok(()),
            }]);
        };
        for generation in 0..1000 {
            post(7, 0, generation);
            post(7, 1, generation);
        }
        // One that was released before the newest began is reported late.
        post(7, 0, 998);
        post(8, 0, u32::MAX);
        post(8, 0, 0);
        let mail = mailbox.collect().expect("mail");
        assert_eq!(mail.completions.len(), 3);
        let kept: Vec<_> = mail
            .completions
            .into_iter()
            .map(|(id, done)| (id.0, done.ticket.slot, done.ticket.generation))
            .collect();
        assert_eq!(kept, [(7, 0, 999), (7, 1, 999), (8, 0, 0)]);
    }

    #[test]
    fn only_a_sleeping_reactor_is_rung() {
        let mailbox = Mailbox::new().expect("an eventfd");
        mailbox.post(1);
        assert!(!is_rung(&mailbox));
        assert!(!mailbox.fall_asleep(), "there is mail");
        mailbox.collect();
        assert!(mailbox.fall_asleep());
        mailbox.post(2);
        assert!(is_rung(&mailbox));
    }

    #[test]
    fn an_event_that_was_seen_is_cleared() {
        let mailbox = Mailbox::new().expect("an eventfd");
        mailbox.clear_event();
        for message in 0..2 {
            mailbox.collect();
            assert!(mailbox.fall_asleep());
            mailbox.post(message);
            mailbox.wake_up();
            mailbox.clear_event();
            assert!(!is_rung(&mailbox));
        }
    }

    #[test]
    fn a_full_mailbox_gives_the_message_back() {
        let mailbox = Mailbox::new().expect("an eventfd");
        for message in 0..Mailbox::<u32>::MESSAGES_MAX as u32 {
            mailbox.try_post(message).expect("room");
        }
        assert_eq!(mailbox.try_post(9), Err(9));
        mailbox.collect();
        assert_eq!(mailbox.try_post(9), Ok(()));
    }
}
