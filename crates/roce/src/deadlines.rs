//! Deadlines of connections and queue pairs.

use std::collections::BTreeSet;
use std::time::Instant;

/// The earlier one, of those that there are.
#[inline]
pub(crate) fn earlier(one: Option<Instant>, other: Option<Instant>) -> Option<Instant> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.min(other)),
        _ => one.or(other),
    }
}

/// Deadlines, at most one for each key.
#[derive(Debug)]
pub(crate) struct Deadlines<K> {
    set: BTreeSet<(Instant, K)>,
}

impl<K> Default for Deadlines<K> {
    fn default() -> Self {
        Self {
            set: BTreeSet::new(),
        }
    }
}

impl<K: Copy + Ord> Deadlines<K> {
    /// Sets the deadline of `key`, which keeps it in `current`.
    pub(crate) fn set(&mut self, current: &mut Option<Instant>, key: K, at: Option<Instant>) {
        if *current == at {
            return;
        }
        if let Some(old) = current.take() {
            self.set.remove(&(old, key));
        }
        if let Some(at) = at {
            self.set.insert((at, key));
        }
        *current = at;
    }

    /// When the next one is due.
    pub(crate) fn next(&self) -> Option<Instant> {
        self.set.first().map(|(at, _)| *at)
    }

    /// The key of the next deadline that is due by `now`. The deadline is removed.
    pub(crate) fn pop_due(&mut self, now: Instant) -> Option<K> {
        if self.next()? > now {
            return None;
        }
        self.set.pop_first().map(|(_, key)| key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn a_key_has_one_deadline_and_they_come_in_order() {
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        let mut deadlines = Deadlines::default();
        let (mut one, mut two) = (None, None);
        deadlines.set(&mut one, 1, Some(at(10)));
        deadlines.set(&mut two, 2, Some(at(20)));
        deadlines.set(&mut one, 1, Some(at(30)));
        assert_eq!(deadlines.next(), Some(at(20)));
        assert_eq!(deadlines.pop_due(at(19)), None);
        assert_eq!(deadlines.pop_due(at(25)), Some(2));
        deadlines.set(&mut one, 1, None);
        assert_eq!((deadlines.next(), one), (None, None));
    }
}
