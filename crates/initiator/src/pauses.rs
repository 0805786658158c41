//! The pauses between attempts to connect again.

use std::{
    thread,
    time::{Duration, Instant},
};

use rand::{Rng as _, SeedableRng as _, rngs::SmallRng};

use crate::Backoff;
use crate::mailbox::Shared;
use crate::socket::{Interest, sleep};

/// The pauses between attempts: means double up to a limit, each is drawn around its mean.
#[derive(Debug)]
pub(crate) struct Pauses {
    mean: Duration,
    max: Duration,
    random: SmallRng,
}

impl Pauses {
    pub(crate) fn new(backoff: Backoff, generation: u64) -> Self {
        Self {
            mean: backoff.first,
            max: backoff.max,
            random: SmallRng::seed_from_u64(backoff.seed ^ generation),
        }
    }

    pub(crate) fn next(&mut self) -> Duration {
        let pause = self.mean.mul_f64(self.random.random_range(0.5..1.5));
        self.mean = (self.mean * 2).min(self.max);
        pause
    }
}

/// Sleeps, unless the device is dropped meanwhile.
pub(crate) fn pause(shared: &Shared, pause: Duration) {
    let until = Instant::now() + pause;
    loop {
        shared.keeper.clear();
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() || shared.is_stopping() {
            return;
        }
        if sleep(&[(shared.keeper.descriptor(), Interest::Read)], Some(left)).is_err() {
            thread::sleep(left);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_with_jitter_up_to_the_limit_and_repeat_with_the_seed() {
        let backoff = Backoff {
            first: Duration::from_millis(100),
            max: Duration::from_secs(1),
            ..Backoff::default()
        };
        let draw = |generation| {
            let mut pauses = Pauses::new(backoff, generation);
            std::array::from_fn::<_, 8, _>(|_| pauses.next())
        };
        let means = [100, 200, 400, 800, 1000, 1000, 1000, 1000].map(Duration::from_millis);
        for (pause, mean) in draw(1).into_iter().zip(means) {
            assert!(mean / 2 <= pause && pause <= mean * 3 / 2, "{pause:?}");
        }
        assert_eq!(draw(1), draw(1));
        assert_ne!(draw(1), draw(2));
    }
}
