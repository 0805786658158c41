//! Where volumes report completions: to sessions, or to commands of the program itself.
//!
//! ```text
//!  member ──► Relay ─┬─ connection from CONNECTIONS_MIN on ──► the sessions' runtimes
//!                    └─ below ──► what joined: a volume made of others, or a Driver
//! ```
//!
//! A volume that is made of others has parts of one command admitted by its members, and a
//! [`Driver`](crate::Driver) has commands without a session. Both use connection numbers that no
//! runtime assigns ([`Ticket::CONNECTIONS_MIN`]), which the relay gives out.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Bound;
use std::sync::{Arc, PoisonError, RwLock, Weak};

use block::{Completion, Completions, Ticket};

/// Passes each completion on to whom its ticket's connection belongs. Volumes that complete at once
/// never call it.
pub struct Relay {
    sessions: Arc<dyn Completions>,
    receivers: RwLock<Receivers>,
}

#[derive(Default)]
struct Receivers {
    /// The number after the last that was given out.
    next: u64,
    by_first: BTreeMap<u64, Receiver>,
}

struct Receiver {
    count: u64,
    completions: Weak<dyn Completions>,
}

/// Connection numbers that belong to one receiver, until this drops.
pub struct Connections {
    relay: Arc<Relay>,
    first: u64,
    count: u64,
}

impl Relay {
    /// A relay that passes completions of sessions on to `sessions`.
    pub fn new(sessions: Arc<dyn Completions>) -> Arc<Self> {
        Arc::new(Self {
            sessions,
            receivers: RwLock::default(),
        })
    }

    /// Gives `count` connection numbers to the receiver that `make` makes with them. It receives
    /// every completion of these connections until it drops the numbers. The thread of a volume
    /// may be the last that refers to it.
    ///
    /// # Panics
    /// If `count` numbers are not free: there are 2^32, and memory ends before.
    pub fn join<R: Completions + 'static>(
        self: &Arc<Self>,
        count: usize,
        make: impl FnOnce(Connections) -> R,
    ) -> Arc<R> {
        let count = count as u64;
        Arc::new_cyclic(|receiver: &Weak<R>| {
            let completions = receiver.clone() as Weak<dyn Completions>;
            let first = self.insert(Receiver { count, completions });
            make(Connections {
                relay: Arc::clone(self),
                first,
                count,
            })
        })
    }

    /// Gives the receiver the first of as many numbers as it needs. Numbers are used again only
    /// after all others.
    fn insert(&self, new: Receiver) -> u64 {
        let count = new.count;
        let mut receivers = self
            .receivers
            .write()
            .unwrap_or_else(PoisonError::into_inner);
        let mut first = receivers.next;
        for _ in 0..=receivers.by_first.len() + 1 {
            if first + count > Ticket::CONNECTIONS_MIN {
                first = 0;
            }
            let below = receivers.by_first.range(..first + count).next_back();
            match below {
                Some((start, receiver)) if start + receiver.count > first => {
                    first = start + receiver.count;
                }
                _ => {
                    receivers.next = first + count;
                    receivers.by_first.insert(first, new);
                    return first;
                }
            }
        }
        panic!("{count} connection numbers are free");
    }

    fn receiver(&self, connection: u64) -> Option<Arc<dyn Completions>> {
        let receivers = self
            .receivers
            .read()
            .unwrap_or_else(PoisonError::into_inner);
        let up_to = (Bound::Unbounded, Bound::Included(connection));
        let (first, receiver) = receivers.by_first.range(up_to).next_back()?;
        if connection - first >= receiver.count {
            return None;
        }
        receiver.completions.upgrade()
    }
}

impl Completions for Relay {
    fn done(&self, completion: Completion) {
        let connection = completion.ticket.connection;
        if connection >= Ticket::CONNECTIONS_MIN {
            self.sessions.done(completion);
        } else if let Some(receiver) = self.receiver(connection) {
            receiver.done(completion);
        }
    }

    fn done_all(&self, completions: &[Completion]) {
        let is_of_session = |of: &Completion| of.ticket.connection >= Ticket::CONNECTIONS_MIN;
        let same_side = |a: &Completion, b: &Completion| is_of_session(a) == is_of_session(b);
        for group in completions.chunk_by(same_side) {
            if is_of_session(&group[0]) {
                self.sessions.done_all(group);
            } else {
                for completion in group {
                    self.done(*completion);
                }
            }
        }
    }
}

impl fmt::Debug for Relay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Relay").finish_non_exhaustive()
    }
}

impl Connections {
    /// The number of this index, counted from 0.
    pub fn number(&self, index: usize) -> u64 {
        assert!((index as u64) < self.count, "as many as were asked for");
        self.first + index as u64
    }

    /// The index of a connection whose completion came.
    pub fn index_of(&self, connection: u64) -> usize {
        (connection - self.first) as usize
    }
}

impl fmt::Debug for Connections {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Connections({}, {})", self.first, self.count)
    }
}

impl Drop for Connections {
    fn drop(&mut self) {
        let receivers = self.relay.receivers.write();
        let mut receivers = receivers.unwrap_or_else(PoisonError::into_inner);
        receivers.by_first.remove(&self.first);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::io::Reports;

    struct Kept {
        connections: Connections,
        reports: Reports,
    }

    impl Completions for Kept {
        fn done(&self, completion: Completion) {
            self.reports.done(completion);
        }
    }

    fn join(relay: &Arc<Relay>, count: usize) -> Arc<Kept> {
        relay.join(count, |connections| Kept {
            connections,
            reports: Reports::default(),
        })
    }

    fn done(connection: u64) -> Completion {
        let ticket = Ticket {
            connection,
            slot: 1,
            generation: 2,
        };
        Completion {
            ticket,
            result: Ok(()),
        }
    }

    #[test]
    fn each_completion_goes_to_the_owner_of_its_connection() {
        let sessions = Arc::new(Reports::default());
        let relay = Relay::new(sessions.clone());
        let (a, b) = (join(&relay, 3), join(&relay, 1));
        let (last_of_a, of_b) = (a.connections.number(2), b.connections.number(0));
        assert_eq!(a.connections.index_of(last_of_a), 2);
        for connection in [last_of_a, of_b, of_b + 1, Ticket::CONNECTIONS_MIN, u64::MAX] {
            relay.done(done(connection));
        }
        assert_eq!(a.reports.take(), [done(last_of_a)]);
        assert_eq!(b.reports.take(), [done(of_b)]);
        let of_sessions = [done(Ticket::CONNECTIONS_MIN), done(u64::MAX)];
        assert_eq!(sessions.take(), of_sessions);
    }

    #[test]
    fn completions_of_a_receiver_that_has_gone_are_dropped() {
        let relay = Relay::new(Arc::new(Reports::default()));
        let gone = join(&relay, 2).connections.number(1);
        let next = join(&relay, 2);
        relay.done(done(gone));
        assert_eq!(next.reports.take(), []);
        assert!(
            next.connections.number(0) > gone,
            "numbers are not soon used again"
        );
    }

    #[test]
    fn numbers_are_used_again_in_the_end_except_those_in_use() {
        let relay = Relay::new(Arc::new(Reports::default()));
        let kept = join(&relay, 2);
        relay.receivers.write().expect("no panic").next = Ticket::CONNECTIONS_MIN - 1;
        let next = join(&relay, 3);
        assert_eq!(kept.connections.number(0), 0);
        assert_eq!(next.connections.number(0), 2);
    }
}
