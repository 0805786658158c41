//! Completions of commands that filters of a volume hold back.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Instant;

/// The completions that a connection holds back, the earliest first. A command is named by its slot
/// and the slot's generation; it may have been aborted meanwhile.
#[derive(Clone, Debug, Default)]
pub struct HeldCompletions(BinaryHeap<Reverse<(Instant, usize, u16)>>);

impl HeldCompletions {
    /// Holds the completion of a command back until an instant. `is_held` says whether a command
    /// still waits for that. Completions of aborted commands are discarded once they may be as many
    /// as those of others, of which there are `commands_max` at most.
    pub fn push(
        &mut self,
        until: Instant,
        (slot, generation): (usize, u16),
        commands_max: usize,
        is_held: impl Fn(usize, u16) -> bool,
    ) {
        if self.0.len() >= 2 * commands_max {
            self.0
                .retain(|Reverse((_, slot, generation))| is_held(*slot, *generation));
        }
        self.0.push(Reverse((until, slot, generation)));
    }

    /// Takes the next command whose completion is held back no longer at `now`.
    pub fn pop_due(&mut self, now: Instant) -> Option<(usize, u16)> {
        self.due().filter(|until| *until <= now)?;
        let Reverse((_, slot, generation)) = self.0.pop()?;
        Some((slot, generation))
    }

    /// The instant at which [`pop_due`](Self::pop_due) has the next one.
    pub fn due(&self) -> Option<Instant> {
        self.0.peek().map(|Reverse((until, ..))| *until)
    }

    /// Forgets all of them.
    pub fn clear(&mut self) {
        self.0.clear();
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn the_earliest_is_due_first() {
        let now = Instant::now();
        let at = |ms| now + Duration::from_millis(ms);
        let mut held = HeldCompletions::default();
        for (slot, ms) in [(0, 30), (1, 10), (2, 20)] {
            held.push(at(ms), (slot, 7), 8, |_, _| true);
        }
        assert_eq!((held.due(), held.pop_due(now)), (Some(at(10)), None));
        let due: Vec<_> = std::iter::from_fn(|| held.pop_due(at(20))).collect();
        assert_eq!(due, [(1, 7), (2, 7)]);
        held.clear();
        assert_eq!(held.due(), None);
    }

    #[test]
    fn those_of_aborted_commands_do_not_pile_up() {
        let now = Instant::now();
        let mut held = HeldCompletions::default();
        for generation in 0..1000 {
            held.push(now, (0, generation), 4, |_, other| other == generation);
            assert!(held.0.len() <= 8);
        }
    }
}
