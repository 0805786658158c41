//! Whether commands are delayed by what other peers do.

use std::time::{Duration, Instant};

/// How many times as long a round trip may take beside other peers as it takes alone, at [`PERCENTILE`].
const FACTOR_MAX: u32 = 10;
/// A limit below this one would judge the machine: a process waits this long for a processor if others are busy.
const LIMIT_MIN: Duration = Duration::from_millis(60);
/// The slowest tenth may meet anything on a busy machine.
const PERCENTILE: usize = 90;
/// Round trips of a measurement of one peer alone.
const ROUND_TRIPS: usize = 50;
/// Measurements of one peer alone: the machine may have been quieter during the first ones than beside the other peers.
const MEASUREMENTS_MAX: usize = 8;

/// Asserts that round trips took as long beside other peers as they take alone, up to a bound that a busy machine keeps.
///
/// `beside` are the times of the round trips beside the others, at least ten. When the others have ended, `round_trip`
/// makes one more of the same. Panics if nine of ten of `beside` do not keep the bound.
pub fn assert_not_delayed(beside: &[Duration], mut round_trip: impl FnMut()) {
    assert!(
        beside.len() >= 10,
        "{} round trips are too few",
        beside.len()
    );
    let beside = percentile(beside.to_vec());
    let mut limit = LIMIT_MIN;
    for _ in 0..MEASUREMENTS_MAX {
        if beside <= limit {
            return;
        }
        let alone = (0..ROUND_TRIPS).map(|_| timed(&mut round_trip)).collect();
        limit = limit.max(FACTOR_MAX * percentile(alone));
    }
    assert!(
        beside <= limit,
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
        assert_not_delayed(&beside, || std::thread::sleep(LIMIT_MIN / 4));
    }

    #[test]
    #[should_panic(expected = "took 120ms or longer beside other peers; 60ms is allowed")]
    fn what_is_fast_alone_is_delayed() {
        assert_not_delayed(&[2 * LIMIT_MIN; 10], || ());
    }
}
