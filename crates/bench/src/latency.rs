//! A latency distribution in a fixed array.

use std::time::Duration;

/// log2 of the steps that each power of two is divided into: a step is less than 0.8 % of its value.
const STEP_BITS: u32 = 7;
const STEPS: usize = 1 << STEP_BITS;
/// log2 of the nanoseconds from which on latencies count as equal (137 s).
const RANGE_BITS: u32 = 37;
const BUCKETS: usize = 2 * STEPS + (RANGE_BITS - STEP_BITS - 1) as usize * STEPS;

/// How often which latency occurred: counts in steps that grow with the value, and exact sums. Recording is a
/// shift, an add and three multiplications at most; nothing is allocated after creation.
#[derive(Clone, Debug)]
pub struct Latencies {
    counts: Box<[u64; BUCKETS]>,
    count: u64,
    sum_ns: u64,
    /// Of squares; in floating point since they pass 64 bits after seconds.
    sum_squares: f64,
    min_ns: u64,
    max_ns: u64,
}

impl Default for Latencies {
    fn default() -> Self {
        let counts = vec![0; BUCKETS].into_boxed_slice();
        Self {
            counts: counts.try_into().expect("BUCKETS counts were made"),
            count: 0,
            sum_ns: 0,
            sum_squares: 0.0,
            min_ns: u64::MAX,
            max_ns: 0,
        }
    }
}

impl Latencies {
    /// Counts one latency.
    #[inline]
    pub fn record(&mut self, latency: Duration) {
        let ns = latency.as_nanos() as u64;
        self.counts[bucket(ns)] += 1;
        self.count += 1;
        self.sum_ns += ns;
        self.sum_squares += ns as f64 * ns as f64;
        self.min_ns = self.min_ns.min(ns);
        self.max_ns = self.max_ns.max(ns);
    }

    /// Adds what another thread counted.
    pub fn merge(&mut self, other: &Self) {
        for (mine, theirs) in self.counts.iter_mut().zip(other.counts.iter()) {
            *mine += theirs;
        }
        self.count += other.count;
        self.sum_ns += other.sum_ns;
        self.sum_squares += other.sum_squares;
        self.min_ns = self.min_ns.min(other.min_ns);
        self.max_ns = self.max_ns.max(other.max_ns);
    }

    /// Forgets everything.
    pub fn clear(&mut self) {
        self.counts.fill(0);
        self.count = 0;
        self.sum_ns = 0;
        self.sum_squares = 0.0;
        self.min_ns = u64::MAX;
        self.max_ns = 0;
    }

    /// How many were counted.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// The mean in nanoseconds; 0 where nothing was counted.
    pub fn mean_ns(&self) -> f64 {
        if self.count == 0 {
            return 0.0;
        }
        self.sum_ns as f64 / self.count as f64
    }

    /// The standard deviation in nanoseconds.
    pub fn stddev_ns(&self) -> f64 {
        if self.count < 2 {
            return 0.0;
        }
        let mean = self.mean_ns();
        let variance = self.sum_squares / self.count as f64 - mean * mean;
        variance.max(0.0).sqrt()
    }

    /// The shortest in nanoseconds; 0 where nothing was counted.
    pub fn min_ns(&self) -> u64 {
        if self.count == 0 { 0 } else { self.min_ns }
    }

    /// The longest in nanoseconds.
    pub fn max_ns(&self) -> u64 {
        self.max_ns
    }

    /// The latency in nanoseconds that `percent` of all do not pass, to within half a step (0.4 %).
    #[expect(
        clippy::cast_sign_loss,
        reason = "counts and percentages are not negative"
    )]
    pub fn percentile_ns(&self, percent: f64) -> u64 {
        let wanted = (self.count as f64 * percent / 100.0).ceil().max(1.0) as u64;
        let mut seen = 0;
        for (index, count) in self.counts.iter().enumerate() {
            seen += count;
            if seen >= wanted {
                let (low, high) = bounds(index);
                return low.midpoint(high).clamp(self.min_ns(), self.max_ns);
            }
        }
        self.max_ns
    }

    /// The steps that hold anything, in order: from (inclusive) and to (exclusive) in nanoseconds, and the count.
    pub fn steps(&self) -> impl Iterator<Item = (u64, u64, u64)> + '_ {
        self.counts
            .iter()
            .enumerate()
            .filter(|(_, count)| **count > 0)
            .map(|(index, count)| {
                let (low, high) = bounds(index);
                (low, high, *count)
            })
    }
}

#[inline]
fn bucket(ns: u64) -> usize {
    let ns = ns.min((1 << RANGE_BITS) - 1);
    if ns < 2 * STEPS as u64 {
        return ns as usize;
    }
    let octave = ns.ilog2() - STEP_BITS;
    ((octave as usize) << STEP_BITS) + (ns >> octave) as usize
}

/// The first value of a bucket and the first one after it.
fn bounds(index: usize) -> (u64, u64) {
    if index < 2 * STEPS {
        return (index as u64, index as u64 + 1);
    }
    let octave = (index >> STEP_BITS) - 1;
    let step = (index & (STEPS - 1)) + STEPS;
    ((step as u64) << octave, (step as u64 + 1) << octave)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_lies_in_its_step_and_steps_are_narrow() {
        for shift in 0..RANGE_BITS {
            for value in [1 << shift, (1 << shift) + 1, (1u64 << shift) * 3 / 2] {
                let index = bucket(value);
                let (low, high) = bounds(index);
                assert!(low <= value && value < high, "{value}: {low}..{high}");
                assert!((high - low) * 128 <= low.max(128), "{value}: {low}..{high}");
            }
        }
        assert_eq!(bucket(u64::MAX), BUCKETS - 1);
    }

    #[test]
    fn figures_of_a_known_distribution() {
        let mut latencies = Latencies::default();
        for us in 1..=10_000 {
            latencies.record(Duration::from_micros(us));
        }
        assert!((latencies.mean_ns() - 5_000_500.0).abs() < 1.0);
        assert!((latencies.stddev_ns() - 2_886_751.0).abs() < 10.0);
        for (percent, us) in [(50.0, 5_000.0), (99.0, 9_900.0), (99.9, 9_990.0)] {
            let got = latencies.percentile_ns(percent) as f64 / 1000.0;
            assert!((got / us - 1.0).abs() < 0.005, "p{percent}: {got}");
        }
        assert_eq!(latencies.min_ns(), 1_000);
        assert_eq!(latencies.max_ns(), 10_000_000);
        assert!(latencies.percentile_ns(100.0) <= 10_000_000);
    }

    #[test]
    fn merged_halves_equal_the_whole() {
        let mut whole = Latencies::default();
        let mut halves = [Latencies::default(), Latencies::default()];
        for ns in 0..5_000_u64 {
            let latency = Duration::from_nanos(ns * ns);
            whole.record(latency);
            halves[(ns % 2) as usize].record(latency);
        }
        let [mut first, second] = halves;
        first.merge(&second);
        assert_eq!(first.counts, whole.counts);
        assert_eq!(
            (first.count, first.sum_ns, first.min_ns, first.max_ns),
            (whole.count, whole.sum_ns, whole.min_ns, whole.max_ns)
        );
    }
}
