//! Slowing down when the network says that it is congested.

use std::time::{Duration, Instant};

/// Spaces a queue pair's packets after congestion notification packets (CNPs). Each notification
/// doubles the time per packet, each quiet period halves it until packets go unspaced again.
#[derive(Debug, Default)]
pub(super) struct Pacer {
    /// Time per packet; zero: none.
    gap: Duration,
    /// When the next packet may leave.
    next: Option<Instant>,
    /// When the gap was changed last.
    changed: Option<Instant>,
}

impl Pacer {
    /// The gap that the first notification brings: 4 KiB per 2 µs are 2 GB/s.
    const GAP_FIRST: Duration = Duration::from_micros(2);
    /// The longest gap.
    const GAP_MAX: Duration = Duration::from_millis(1);
    /// Notifications within this interval report the same congestion.
    pub(super) const NOTIFICATION_INTERVAL: Duration = Duration::from_micros(50);
    /// A period without notification after which the gap is halved.
    const QUIET: Duration = Duration::from_micros(1500);
    /// Packets that are sent at once, for segmentation. The gap of all of them follows.
    const BURST: u32 = 16;

    pub(super) fn on_congestion(&mut self, now: Instant) {
        let recent = |at: Instant| now.saturating_duration_since(at) < Self::NOTIFICATION_INTERVAL;
        if !self.gap.is_zero() && self.changed.is_some_and(recent) {
            return;
        }
        self.gap = (self.gap * 2).clamp(Self::GAP_FIRST, Self::GAP_MAX);
        self.changed = Some(now);
    }

    /// How many packets of `budget` may leave now.
    pub(super) fn allowance(&mut self, now: Instant, budget: u32) -> u32 {
        self.recover(now);
        if self.gap.is_zero() {
            self.next = None;
            return budget;
        }
        if self.is_waiting(now) {
            return 0;
        }
        budget.min(Self::BURST)
    }

    pub(super) fn on_sent(&mut self, now: Instant, packets: u32) {
        if packets > 0 && !self.gap.is_zero() {
            self.next = Some(now + self.gap * packets);
        }
    }

    pub(super) fn is_waiting(&self, now: Instant) -> bool {
        self.next.is_some_and(|next| next > now)
    }

    pub(super) const fn resumes_at(&self) -> Option<Instant> {
        self.next
    }

    /// The instant that `resumes_at` returned has passed.
    pub(super) fn on_timeout(&mut self, now: Instant) {
        if !self.is_waiting(now) {
            self.next = None;
        }
    }

    fn recover(&mut self, now: Instant) {
        // After 10 halvings the gap is 0, however much time has passed.
        while let Some(changed) = self.changed {
            if self.gap.is_zero() || now.saturating_duration_since(changed) < Self::QUIET {
                return;
            }
            self.gap /= 2;
            self.changed = Some(changed + Self::QUIET);
            if self.gap < Self::GAP_FIRST {
                self.gap = Duration::ZERO;
                self.changed = None;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notifications_slow_down_and_quiet_speeds_up_again() {
        let start = Instant::now();
        let at = |us| start + Duration::from_micros(us);
        let mut pacer = Pacer::default();
        assert_eq!(pacer.allowance(start, 100), 100);
        pacer.on_congestion(at(0));
        pacer.on_congestion(at(10));
        assert_eq!(pacer.gap, Pacer::GAP_FIRST, "one congestion");
        pacer.on_congestion(at(60));
        assert_eq!(pacer.gap, Pacer::GAP_FIRST * 2);
        assert_eq!(pacer.allowance(at(60), 100), Pacer::BURST);
        pacer.on_sent(at(60), 16);
        assert_eq!(pacer.resumes_at(), Some(at(60 + 64)));
        assert_eq!(pacer.allowance(at(100), 100), 0);
        assert_eq!(pacer.allowance(at(124), 100), Pacer::BURST);
        assert_eq!(pacer.allowance(at(60 + 3000), 100), 100);
        assert_eq!(pacer.resumes_at(), None);
    }

    #[test]
    fn the_gap_is_bounded() {
        let start = Instant::now();
        let mut pacer = Pacer::default();
        for step in 0..100u32 {
            pacer.on_congestion(start + Pacer::NOTIFICATION_INTERVAL * step);
        }
        assert_eq!(pacer.gap, Pacer::GAP_MAX);
    }
}
