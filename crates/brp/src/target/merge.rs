//! Temporal merge: replies that are ready at about the same time are joined into one message (step
//! 3).
//!
//! Read first: docs/brp.md, "Temporal merge".
//!
//! ```text
//!            the mean of commands in flight reaches LOADED
//!   Idle ────────────────────────────────────────────────────► Loaded: replies are joined
//!    ▲                                                            │
//!    └────────────────────────────────────────────────────────────┘
//!            it falls below UNLOADED
//! ```
//!
//! [`Merge::Always`] joins in both states.

use std::time::{Duration, Instant};

/// When a target joins replies on sessions that have [`MERGE`](crate::wire::Features::MERGE).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Merge {
    /// While the session is loaded, and a reply waits only as long as other commands are in flight.
    Adaptive,
    /// Whatever the load: each reply waits for others, at most [`WAIT`](Self::WAIT).
    Always,
}

impl Merge {
    /// How long a reply waits for others at most (BRP-39).
    pub const WAIT: Duration = Duration::from_micros(50);
    /// Replies that are ready and end the wait.
    pub const REPLIES_WANTED: usize = 16;
    /// A session is loaded if on average this many commands are in flight …
    pub const LOADED: u32 = 8;
    /// … until the average is below this.
    pub const UNLOADED: u32 = 4;
}

/// Whether, and how long, replies of a session wait to be joined.
#[derive(Debug)]
pub(super) struct Merger {
    /// `None`: replies are never joined.
    merge: Option<Merge>,
    load: Load,
    /// Until when the ready replies wait.
    waits_until: Option<Instant>,
}

/// The load test: the exponentially weighted mean of the commands in flight, taken when one becomes
/// ready.
#[derive(Debug, Default)]
struct Load {
    /// The mean, in parts of 1 / `ONE`.
    mean: u32,
    is_loaded: bool,
}

impl Load {
    const ONE: u32 = 256;
    /// A sample counts one part in this many: the mean follows a change within some dozens of
    /// commands.
    const WEIGHT: u32 = 16;

    fn note(&mut self, in_flight: u16) {
        let sample = u32::from(in_flight) * Self::ONE;
        self.mean = self.mean - self.mean / Self::WEIGHT + sample / Self::WEIGHT;
        let bound = if self.is_loaded {
            Merge::UNLOADED
        } else {
            Merge::LOADED
        };
        self.is_loaded = self.mean >= bound * Self::ONE;
    }
}

impl Merger {
    pub(super) fn new(merge: Option<Merge>) -> Self {
        Self {
            merge,
            load: Load::default(),
            waits_until: None,
        }
    }

    /// A command became ready: `ready` are now, of `in_flight` commands.
    pub(super) fn note_ready(&mut self, now: Instant, ready: usize, in_flight: u16) {
        let Some(merge) = self.merge else {
            return;
        };
        self.load.note(in_flight);
        let is_only = ready == 1;
        let waits = match merge {
            Merge::Always => true,
            Merge::Adaptive => self.load.is_loaded && ready < usize::from(in_flight),
        };
        if !waits || ready >= Merge::REPLIES_WANTED {
            self.waits_until = None;
        } else if is_only {
            self.waits_until = Some(now + Merge::WAIT);
        }
    }

    /// Whether the ready replies may be sent.
    pub(super) fn is_open(&self) -> bool {
        self.waits_until.is_none()
    }

    /// When the wait ends.
    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        self.waits_until
    }

    pub(super) fn handle_timeout(&mut self, now: Instant) {
        if self.waits_until.is_some_and(|until| until <= now) {
            self.waits_until = None;
        }
    }

    /// Whether replies are joined now.
    pub(super) fn joins(&self) -> bool {
        match self.merge {
            None => false,
            Some(Merge::Always) => true,
            Some(Merge::Adaptive) => self.load.is_loaded,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn noted(merger: &mut Merger, now: Instant, in_flight: u16, times: usize) {
        for _ in 0..times {
            merger.note_ready(now, 1, in_flight);
        }
    }

    /// BRP-38.
    #[test]
    fn the_load_test_joins_from_eight_commands_in_flight_and_stops_below_four() {
        let now = Instant::now();
        let mut merger = Merger::new(Some(Merge::Adaptive));
        noted(&mut merger, now, 7, 1000);
        assert!(!merger.joins(), "seven are no load");
        noted(&mut merger, now, 16, 3);
        assert!(merger.joins(), "a burst loads it within a few commands");
        noted(&mut merger, now, 5, 1000);
        assert!(merger.joins(), "it stays loaded between the bounds");
        noted(&mut merger, now, 1, 64);
        assert!(!merger.joins(), "one at a time is no load");
    }

    /// BRP-39.
    #[test]
    fn a_wait_ends_with_enough_replies_or_time() {
        let now = Instant::now();
        let mut always = Merger::new(Some(Merge::Always));
        always.note_ready(now, 1, 1);
        assert!(!always.is_open());
        assert_eq!(always.poll_timeout(), Some(now + Merge::WAIT));
        always.note_ready(now + Merge::WAIT / 2, 2, 2);
        assert_eq!(
            always.poll_timeout(),
            Some(now + Merge::WAIT),
            "the first reply's"
        );
        always.handle_timeout(now + Merge::WAIT / 2);
        assert!(!always.is_open());
        always.handle_timeout(now + Merge::WAIT);
        assert!(always.is_open());
        always.note_ready(now, 1, 1);
        always.note_ready(now, Merge::REPLIES_WANTED, 20);
        assert!(always.is_open(), "enough to be joined");
    }

    /// BRP-39.
    #[test]
    fn an_adaptive_wait_ends_when_no_other_command_is_in_flight() {
        let now = Instant::now();
        let mut merger = Merger::new(Some(Merge::Adaptive));
        merger.note_ready(now, 1, 1);
        assert!(merger.is_open(), "there is no load");
        noted(&mut merger, now, 64, 8);
        assert!(!merger.is_open(), "others are in flight");
        merger.note_ready(now, 3, 3);
        assert!(merger.is_open(), "no other can become ready");
    }
}
