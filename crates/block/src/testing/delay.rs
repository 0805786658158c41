//! Checks that other peers do not delay commands.

use std::thread;
use std::time::{Duration, Instant};

/// The most that a round trip may take beside other peers, as a multiple of its time alone, at
/// [`PERCENTILE`].
const FACTOR_MAX: u32 = 10;
/// The least limit. On a busy machine, each thread on the way waits for the time slices of others
/// (3 ms in Linux), and a virtual processor for those of its host.
const LIMIT_MIN: Duration = Duration::from_millis(20);
/// The slowest tenth is ignored, because a busy machine may delay any round trip.
const PERCENTILE: usize = 90;
/// The number of round trips in a measurement of one peer alone.
const ROUND_TRIPS: usize = 50;
/// The most measurements of one peer alone: during the first ones, the machine may have been less
/// busy than during the round trips beside the other peers.
const MEASUREMENTS_MAX: usize = 8;
/// The time between two measurements, in which what else the machine does changes.
const PAUSE: Duration = Duration::from_millis(250);

/// Asserts that round trips beside other peers took at most a bounded multiple of their time alone.
///
/// `beside` has the times of at least ten round trips beside other peers. `round_trip` makes one
/// more after the other peers have ended. Panics if more than a tenth of `beside` exceed the bound.
pub fn assert_not_delayed(beside: &[Duration], mut round_trip: impl FnMut()) {
    assert!(
        beside.len() >= 10,
        "{} round trips are too few",
        beside.len()
    );
    let beside = percentile(beside.to_vec());
    let mut limit = LIMIT_MIN;
    for measurement in 0..MEASUREMENTS_MAX {
        if measurement > 0 {
            thread::sleep(PAUSE);
        }
        let alone = (0..ROUND_TRIPS).map(|_| timed(&mut round_trip)).collect();
        limit = limit.max(FACTOR_MAX * percentile(alone));
        if beside <= limit {
            return;
        }
    }
    panic!(
        "a tenth of the round trips took {beside:?} or longer beside other peers; {limit:?} is allowed"
    );
}

/// How long `round_trip` takes.
pub fn timed(round_trip: impl FnOnce()) -> Duration {
    let started = Instant::now();
    round_trip();
    started.elapsed()
}

fn percentile(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times[times.len() * PERCENTILE / 100]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_few_slow_round_trips_are_no_delay() {
        let mut beside = [Duration::from_millis(1); 100];
        beside[..9].fill(Duration::from_secs(3));
        assert_not_delayed(&beside, || ());
    }

    #[test]
    fn what_is_as_slow_alone_is_no_delay() {
        let beside = [2 * LIMIT_MIN; 10];
        assert_not_delayed(&beside, || thread::sleep(LIMIT_MIN / 4));
    }

    #[test]
    #[should_panic(expected = "took 40ms or longer beside other peers; 20ms is allowed")]
    fn what_is_fast_alone_is_delayed() {
        assert_not_delayed(&[2 * LIMIT_MIN; 10], || ());
    }
}
