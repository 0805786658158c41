//! Deadlines of connections. Stale entries stay in the heap: when an entry fires, the connection
//! checks whether the deadline is still valid. So a deadline that is postponed (keep alive) costs
//! nothing until the old entry fires.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Instant;

use crate::ConnectionId;

/// The timers of one reactor. Bounded by the connections: each has at most two entries, the one it
/// means and one that came to be earlier than that.
#[derive(Debug, Default)]
pub struct Timers {
    heap: BinaryHeap<Reverse<(Instant, ConnectionId)>>,
    /// The list of the last round, for the next.
    spare: Vec<(Instant, ConnectionId)>,
}

impl Timers {
    /// Lets the connection's time come `at` then.
    pub fn arm(&mut self, at: Instant, connection: ConnectionId) {
        self.heap.push(Reverse((at, connection)));
    }

    /// When the next one is due.
    pub fn next(&self) -> Option<Instant> {
        self.heap.peek().map(|Reverse((at, _))| *at)
    }

    /// Those that are due by now, in order, for [`give_back`](Self::give_back) once each has had
    /// its time. Timers that are armed in the meantime are not included: a connection that
    /// continues work in pieces does so in the next round, after the other connections' turns.
    pub fn take_due(&mut self, now: Instant) -> Vec<(Instant, ConnectionId)> {
        let mut due = std::mem::take(&mut self.spare);
        due.extend(std::iter::from_fn(|| self.pop_due(now)));
        due
    }

    /// Takes the list of a round back.
    pub fn give_back(&mut self, mut due: Vec<(Instant, ConnectionId)>) {
        due.clear();
        self.spare = due;
    }

    /// The next one that is due by now.
    fn pop_due(&mut self, now: Instant) -> Option<(Instant, ConnectionId)> {
        if self.next()? > now {
            return None;
        }
        self.heap.pop().map(|Reverse(entry)| entry)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn timers_fire_in_order_and_not_before() {
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        let mut timers = Timers::default();
        timers.arm(at(20), ConnectionId(2));
        timers.arm(at(10), ConnectionId(1));
        timers.arm(at(30), ConnectionId(3));
        assert_eq!(timers.next(), Some(at(10)));
        assert_eq!(timers.pop_due(at(9)), None);
        assert_eq!(timers.pop_due(at(20)), Some((at(10), ConnectionId(1))));
        assert_eq!(timers.pop_due(at(20)), Some((at(20), ConnectionId(2))));
        assert_eq!(timers.pop_due(at(20)), None);
    }

    #[test]
    fn what_is_armed_in_a_round_waits_for_the_next() {
        let now = Instant::now();
        let mut timers = Timers::default();
        for id in [1, 2] {
            timers.arm(now, ConnectionId(id));
        }
        for round in [1, 2] {
            let due = timers.take_due(now);
            assert_eq!(due, [(now, ConnectionId(1)), (now, ConnectionId(2))]);
            for &(at, id) in &due {
                timers.arm(at, id);
            }
            timers.give_back(due);
            assert_eq!(timers.next(), Some(now), "round {round}");
        }
    }
}
