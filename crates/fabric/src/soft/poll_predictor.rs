//! Predicts whether polling the socket finds anything.

/// Learns from the polls that are done while there is other work whether they find anything.
///
/// Under load they do. With one request or answer in flight at a time they hardly ever do, and an
/// empty poll delays the other work.
#[derive(Debug, Default)]
pub(super) struct PollPredictor {
    /// Consecutive empty polls, at most `EMPTY_POLLS_MAX`.
    empty_polls: u32,
    /// Polls skipped since the last one that was done.
    skipped_polls: u32,
}

impl PollPredictor {
    /// Consecutive empty polls after which polls are skipped.
    const EMPTY_POLLS_MAX: u32 = 16;
    /// Skipped polls after which one is done all the same.
    const SKIPPED_POLLS_MAX: u32 = 15;

    /// Whether to poll now.
    pub(super) fn should_poll(&mut self) -> bool {
        let should_poll = self.empty_polls < Self::EMPTY_POLLS_MAX
            || self.skipped_polls == Self::SKIPPED_POLLS_MAX;
        self.skipped_polls = if should_poll {
            0
        } else {
            self.skipped_polls + 1
        };
        should_poll
    }

    /// Records whether a poll found anything.
    pub(super) fn record(&mut self, has_found: bool) {
        self.empty_polls = if has_found {
            0
        } else {
            (self.empty_polls + 1).min(Self::EMPTY_POLLS_MAX)
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How many of `count` polls are done if all have the same result.
    fn done(predictor: &mut PollPredictor, count: u32, has_found: bool) -> u32 {
        let polls = (0..count).filter(|_| {
            let should_poll = predictor.should_poll();
            if should_poll {
                predictor.record(has_found);
            }
            should_poll
        });
        polls.count() as u32
    }

    #[test]
    fn polls_are_skipped_while_they_are_empty_and_done_again_when_one_is_not() {
        let mut predictor = PollPredictor::default();
        for _ in 0..3 {
            let one_in = PollPredictor::SKIPPED_POLLS_MAX + 1;
            let empty = done(
                &mut predictor,
                PollPredictor::EMPTY_POLLS_MAX + 10 * one_in,
                false,
            );
            assert_eq!(empty, PollPredictor::EMPTY_POLLS_MAX + 10);
            assert_eq!(done(&mut predictor, one_in, true), 1);
            assert_eq!(done(&mut predictor, 100, true), 100);
        }
        assert!(predictor.should_poll());
        predictor.record(false);
        assert!(predictor.should_poll(), "one empty poll is not enough");
    }
}
