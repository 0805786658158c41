//! A token bucket, which delay and rate limit share.

use std::num::NonZeroU64;
use std::time::{Duration, Instant};

/// The longest time for which a command is held back, so that an extreme rate does not look like a
/// lost connection for ever.
const WAIT_MAX: Duration = Duration::from_secs(3600);

const PICOS_PER_SECOND: u128 = 1_000_000_000_000;
const PICOS_PER_NANO: u128 = 1_000;

/// Units (commands, bytes) that may be spent at a steady rate, with some credit after a pause: a
/// token bucket.
#[derive(Debug)]
pub(super) struct Meter {
    per_second: NonZeroU64,
    /// How far spending may run ahead of the rate before a command waits.
    credit_ps: u128,
    /// Instants are counted from the first one seen.
    origin: Option<Instant>,
    /// When all that was spent is covered, from `origin`. Finer than a nanosecond, so that rounding
    /// does not change a rate of gigabytes per second.
    covered_ps: u128,
}

impl Meter {
    pub(super) fn new(per_second: NonZeroU64, credit: Duration) -> Self {
        Self {
            per_second,
            credit_ps: credit.as_nanos() * PICOS_PER_NANO,
            origin: None,
            covered_ps: 0,
        }
    }

    /// Spends `units` at `now`. Returns the instant at which they are covered: `now` if the credit
    /// suffices.
    pub(super) fn spend(&mut self, now: Instant, units: u64) -> Instant {
        self.spend_at_most(now, units, WAIT_MAX)
    }

    /// The same, but the units cost at most `max` of time.
    pub(super) fn spend_at_most(&mut self, now: Instant, units: u64, max: Duration) -> Instant {
        let origin = *self.origin.get_or_insert(now);
        let now_ps = now.saturating_duration_since(origin).as_nanos() * PICOS_PER_NANO;
        let whole_ps = u128::from(units) * PICOS_PER_SECOND / u128::from(self.per_second.get());
        let cost_ps = whole_ps.min(max.as_nanos() * PICOS_PER_NANO);
        let limit_ps = now_ps + self.credit_ps + WAIT_MAX.as_nanos() * PICOS_PER_NANO;
        self.covered_ps = (self.covered_ps.max(now_ps) + cost_ps).min(limit_ps);
        let wait_ps = self.covered_ps.saturating_sub(now_ps + self.credit_ps);
        now + Duration::from_nanos((wait_ps / PICOS_PER_NANO) as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_steady_spender_gets_exactly_the_rate() {
        let rate = NonZeroU64::new(3_000_000_000).expect("not 0");
        let mut meter = Meter::new(rate, Duration::ZERO);
        let start = Instant::now();
        let mut last = start;
        for _ in 0..3_000_000 {
            last = meter.spend(start, 1000);
        }
        // Each costs 333⅓ ns. A third of a nanosecond, lost 3,000,000 times, would be a
        // millisecond.
        let early = (start + Duration::from_secs(1)).duration_since(last);
        assert!(early < Duration::from_micros(2), "{early:?}");
    }

    #[test]
    fn credit_is_restored_over_time_up_to_its_limit() {
        let rate = NonZeroU64::new(1000).expect("not 0");
        let mut meter = Meter::new(rate, Duration::from_millis(10));
        let start = Instant::now();
        for _ in 0..10 {
            assert_eq!(meter.spend(start, 1), start);
        }
        assert_eq!(meter.spend(start, 1), start + Duration::from_millis(1));
        let later = start + Duration::from_secs(60);
        for _ in 0..10 {
            assert_eq!(meter.spend(later, 1), later);
        }
        assert_eq!(meter.spend(later, 1), later + Duration::from_millis(1));
    }

    #[test]
    fn waits_are_bounded() {
        let mut meter = Meter::new(NonZeroU64::MIN, Duration::ZERO);
        let now = Instant::now();
        for _ in 0..3 {
            assert_eq!(meter.spend(now, u64::MAX), now + WAIT_MAX);
        }
    }
}
