//! The delays between attempts to reconnect.

use std::{
    thread,
    time::{Duration, Instant},
};

use rand::{Rng as _, SeedableRng as _, rngs::SmallRng};

use crate::Backoff;
use crate::device_state::DeviceState;
use crate::socket::{Interest, sleep};

/// The delays between attempts. The mean delay doubles up to a limit, and each delay is drawn at
/// random around the mean.
#[derive(Debug)]
pub struct BackoffDelays {
    mean: Duration,
    max: Duration,
    random: SmallRng,
}

impl BackoffDelays {
    /// The delays of one series of attempts. `generation` makes its jitter differ from that of
    /// others.
    pub fn new(backoff: Backoff, generation: u64) -> Self {
        Self {
            mean: backoff.first,
            max: backoff.max,
            random: SmallRng::seed_from_u64(backoff.seed ^ generation),
        }
    }

    /// How long to wait before the next attempt.
    pub fn next_delay(&mut self) -> Duration {
        let delay = self.mean.mul_f64(self.random.random_range(0.5..1.5));
        self.mean = (self.mean * 2).min(self.max);
        delay
    }
}

/// Sleeps for `time`, or until the device is dropped.
pub(crate) fn sleep_while_running(shared: &DeviceState, time: Duration) {
    let until = Instant::now() + time;
    loop {
        shared.supervisor.clear();
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() || shared.is_stopping() {
            return;
        }
        if sleep(
            &[(shared.supervisor.descriptor(), Interest::Read)],
            Some(left),
        )
        .is_err()
        {
            thread::sleep(left);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_double_with_jitter_up_to_the_limit_and_repeat_with_the_seed() {
        let backoff = Backoff {
            first: Duration::from_millis(100),
            max: Duration::from_secs(1),
            ..Backoff::default()
        };
        let draw = |generation| {
            let mut delays = BackoffDelays::new(backoff, generation);
            std::array::from_fn::<_, 8, _>(|_| delays.next_delay())
        };
        let means = [100, 200, 400, 800, 1000, 1000, 1000, 1000].map(Duration::from_millis);
        for (delay, mean) in draw(1).into_iter().zip(means) {
            assert!(mean / 2 <= delay && delay <= mean * 3 / 2, "{delay:?}");
        }
        assert_eq!(draw(1), draw(1));
        assert_ne!(draw(1), draw(2));
    }
}
