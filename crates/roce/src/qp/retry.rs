//! When to send again, and when to give up.

use std::time::{Duration, Instant};

use crate::deadlines::earlier;
use crate::work::WorkStatus;

/// The retransmission timer and the counters of attempts without progress.
#[derive(Debug)]
pub(super) struct Retry {
    attempts_max: u8,
    rnr_attempts_max: u8,
    retries: u8,
    rnr_retries: u8,
    /// Smoothed round-trip time.
    round_trip: Duration,
    /// The packet whose acknowledgement is timed, and when it was sent.
    sample: Option<(u64, Instant)>,
    /// Whether any packet has left since the last were to be sent again.
    has_sent: bool,
    deadline: Option<Instant>,
    /// Until when a receiver that is not ready is left alone.
    paused_until: Option<Instant>,
}

impl Retry {
    /// The shortest timeout: longer than a busy peer takes to be scheduled.
    const TIMEOUT_MIN: Duration = Duration::from_millis(4);
    /// The longest.
    const TIMEOUT_MAX: Duration = Duration::from_millis(512);
    /// The RNR retry count that means "without end".
    const RNR_WITHOUT_END: u8 = 7;

    pub(super) const fn new(retry_max: u8, rnr_retry_max: u8) -> Self {
        Self {
            attempts_max: retry_max,
            rnr_attempts_max: rnr_retry_max,
            retries: 0,
            rnr_retries: 0,
            round_trip: Duration::ZERO,
            sample: None,
            has_sent: false,
            deadline: None,
            paused_until: None,
        }
    }

    /// A packet was sent. It is `timed` if it requests an acknowledgement.
    #[inline]
    pub(super) fn on_sent(&mut self, now: Instant, timed: Option<u64>) {
        self.has_sent = true;
        if self.deadline.is_none() {
            self.deadline = Some(now + self.timeout());
        }
        if self.sample.is_none() {
            self.sample = timed.map(|sequence| (sequence, now));
        }
    }

    /// Everything before `acknowledged` has arrived, which is more than was known.
    pub(super) fn on_progress(&mut self, now: Instant, acknowledged: u64, is_more_open: bool) {
        let sampled = self.sample.filter(|(sequence, _)| *sequence < acknowledged);
        if let Some((_, at)) = sampled {
            let measured = now.saturating_duration_since(at);
            self.round_trip = (self.round_trip * 7 + measured) / 8;
            self.sample = None;
        }
        self.retries = 0;
        self.rnr_retries = 0;
        self.arm(now, is_more_open);
    }

    /// Packets are about to be retransmitted, so their acknowledgements give no round-trip time.
    pub(super) fn on_retransmission(&mut self, now: Instant) {
        self.sample = None;
        self.has_sent = false;
        self.arm(now, true);
    }

    /// Sets the timer if packets are in flight. Nothing is sent while waiting for a receiver that
    /// is not ready, so nothing can be late.
    fn arm(&mut self, now: Instant, is_open: bool) {
        let is_timed = is_open && !self.is_paused(now);
        self.deadline = is_timed.then(|| now + self.timeout());
    }

    /// The receiver was not ready and requests a pause of `wait`.
    pub(super) fn on_receiver_not_ready(
        &mut self,
        now: Instant,
        wait: Duration,
    ) -> Result<(), WorkStatus> {
        if self.rnr_attempts_max < Self::RNR_WITHOUT_END {
            if self.rnr_retries >= self.rnr_attempts_max {
                return Err(WorkStatus::RnrRetryExceeded);
            }
            self.rnr_retries += 1;
        }
        self.sample = None;
        self.deadline = None;
        self.paused_until = Some(now + wait);
        Ok(())
    }

    #[inline]
    pub(super) fn is_paused(&self, now: Instant) -> bool {
        self.paused_until.is_some_and(|until| until > now)
    }

    #[inline]
    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        earlier(self.deadline, self.paused_until)
    }

    /// Whether to retransmit now. Returns an error after too many attempts.
    pub(super) fn handle_timeout(&mut self, now: Instant) -> Result<bool, WorkStatus> {
        if self.paused_until.is_some_and(|until| until <= now) {
            self.paused_until = None;
        }
        if self.deadline.is_none_or(|deadline| deadline > now) {
            return Ok(false);
        }
        // Packets that congestion control has held back do not count as an attempt.
        if self.has_sent {
            if self.retries >= self.attempts_max {
                return Err(WorkStatus::RetryExceeded);
            }
            self.retries += 1;
        }
        Ok(true)
    }

    pub(super) fn stop(&mut self) {
        self.deadline = None;
        self.paused_until = None;
    }

    /// Doubles with each attempt.
    fn timeout(&self) -> Duration {
        let base = (self.round_trip * 4).max(Self::TIMEOUT_MIN);
        let doublings = u32::from(self.retries.min(7));
        (base * 2u32.pow(doublings)).min(Self::TIMEOUT_MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timeouts_double_until_the_last_attempt_fails() {
        let start = Instant::now();
        let mut retry = Retry::new(3, 0);
        let mut now = start;
        retry.on_sent(now, Some(5));
        let mut waits = Vec::new();
        while let Ok(again) = retry.handle_timeout(now) {
            if again {
                retry.on_retransmission(now);
                retry.on_sent(now, None);
            }
            let due = retry.poll_timeout().unwrap();
            waits.push((due - now).as_millis());
            now = due;
        }
        assert_eq!(waits, [4, 8, 16, 32]);
        assert_eq!(retry.handle_timeout(now), Err(WorkStatus::RetryExceeded));
    }

    #[test]
    fn what_has_not_left_is_no_attempt() {
        let mut now = Instant::now();
        let mut retry = Retry::new(1, 0);
        retry.on_sent(now, Some(5));
        for _ in 0..10 {
            now = retry.poll_timeout().unwrap();
            assert_eq!(retry.handle_timeout(now), Ok(true));
            retry.on_retransmission(now);
        }
        retry.on_sent(now, None);
        now = retry.poll_timeout().unwrap();
        assert_eq!(retry.handle_timeout(now), Err(WorkStatus::RetryExceeded));
    }

    #[test]
    fn progress_resets_and_the_timer_follows_the_round_trip() {
        let start = Instant::now();
        let mut retry = Retry::new(1, 0);
        retry.on_sent(start, Some(5));
        let later = start + Duration::from_millis(80);
        assert_eq!(retry.handle_timeout(later), Ok(true));
        retry.on_progress(later, 6, true);
        assert_eq!(retry.round_trip, Duration::from_millis(10));
        let wait = retry.poll_timeout().unwrap() - later;
        assert_eq!(wait, Duration::from_millis(40));
        retry.on_progress(later, 7, false);
        assert_eq!(retry.poll_timeout(), None);
    }

    #[test]
    fn receivers_that_are_never_ready_fail_after_their_count() {
        let now = Instant::now();
        let wait = Duration::from_millis(1);
        let mut retry = Retry::new(7, 1);
        assert_eq!(retry.on_receiver_not_ready(now, wait), Ok(()));
        assert!(retry.is_paused(now));
        assert!(!retry.is_paused(now + wait));
        retry.on_retransmission(now);
        assert_eq!(
            retry.poll_timeout(),
            Some(now + wait),
            "no timer in a pause"
        );
        let second = retry.on_receiver_not_ready(now, wait);
        assert_eq!(second, Err(WorkStatus::RnrRetryExceeded));
        let mut endless = Retry::new(7, 7);
        for _ in 0..100 {
            assert_eq!(endless.on_receiver_not_ready(now, wait), Ok(()));
        }
    }
}
