//! What the progress bar of one run says: IOPS and the time that is left.

use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

use indicatif::ProgressBar;

use crate::format::thousands;

/// The time over which the IOPS shown are averaged.
const WINDOW: Duration = Duration::from_secs(2);

/// Until when a run continues.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Goal {
    /// Until this much time is over.
    Time(Duration),
    /// Until this many I/Os have completed.
    Ios(u64),
}

/// Feeds a bar.
pub(crate) struct Progress<'a> {
    bar: &'a ProgressBar,
    start: Instant,
    goal: Goal,
    /// The I/Os completed at some instants of the last [`WINDOW`].
    recent: VecDeque<(Instant, u64)>,
}

impl<'a> Progress<'a> {
    pub(crate) fn new(bar: &'a ProgressBar, start: Instant, goal: Goal) -> Self {
        bar.set_length(match goal {
            Goal::Time(time) => time.as_millis() as u64,
            Goal::Ios(ios) => ios,
        });
        Self {
            bar,
            start,
            goal,
            recent: VecDeque::new(),
        }
    }

    /// Shows that `ios` I/Os have completed at `now`.
    pub(crate) fn show(&mut self, now: Instant, ios: u64) {
        if self.recent.back().is_some_and(|&(_, last)| last > ios) {
            // The count begins again after the ramp.
            self.recent.clear();
        }
        self.recent.push_back((now, ios));
        while self.recent.len() > 2 && now.saturating_duration_since(self.recent[0].0) > WINDOW {
            self.recent.pop_front();
        }
        let (from, before) = self.recent[0];
        let seconds = now.saturating_duration_since(from).as_secs_f64();
        let iops = if seconds > 0.0 {
            (ios - before) as f64 / seconds
        } else {
            0.0
        };
        let passed = now.saturating_duration_since(self.start);
        let (position, left_s) = match self.goal {
            Goal::Time(time) => (
                passed.as_millis() as u64,
                time.saturating_sub(passed).as_secs_f64(),
            ),
            Goal::Ios(goal) => (ios, goal.saturating_sub(ios) as f64 / iops.max(1e-9)),
        };
        self.bar.set_position(position);
        self.bar.set_message(message(iops, left_s));
    }
}

fn message(iops: f64, left_s: f64) -> String {
    const UNKNOWN_FROM_S: f64 = 1e6;
    if left_s < UNKNOWN_FROM_S {
        format!("{} IOPS, {left_s:.0} s left", thousands(iops))
    } else {
        format!("{} IOPS", thousands(iops))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_message_has_iops_and_the_time_that_is_left() {
        let bar = ProgressBar::hidden();
        let start = Instant::now();
        let mut progress = Progress::new(&bar, start, Goal::Time(Duration::from_secs(10)));
        progress.show(start, 0);
        progress.show(start + Duration::from_secs(2), 3000);
        assert_eq!(bar.message(), "1,500 IOPS, 8 s left");
        progress.show(start + Duration::from_secs(3), 0);
        assert_eq!(bar.message(), "0 IOPS, 7 s left");
        let mut progress = Progress::new(&bar, start, Goal::Ios(1000));
        progress.show(start, 0);
        assert_eq!(bar.message(), "0 IOPS");
        progress.show(start + Duration::from_secs(1), 100);
        assert_eq!(bar.message(), "100 IOPS, 9 s left");
    }
}
