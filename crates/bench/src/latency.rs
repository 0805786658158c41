//! A latency distribution.

use std::time::Duration;

use hdrhistogram::Histogram;

/// The number of significant decimal digits that the histogram keeps: a step is at most 0.1 % of
/// its value.
const SIGNIFICANT_DIGITS: u8 = 3;
/// Latencies of this length and longer are equal: one hour.
const LATENCY_NS_MAX: u64 = 3_600_000_000_000;

/// Counts latencies in a histogram with steps of at most 0.1 %. Recording allocates nothing.
#[derive(Clone, Debug)]
pub struct Latencies(Histogram<u64>);

impl Default for Latencies {
    fn default() -> Self {
        let histogram = Histogram::new_with_bounds(1, LATENCY_NS_MAX, SIGNIFICANT_DIGITS);
        Self(histogram.expect("the bounds are in order and the digits are at most 5"))
    }
}

impl Latencies {
    /// Counts one latency.
    #[inline]
    pub fn record(&mut self, latency: Duration) {
        let ns = u64::try_from(latency.as_nanos()).unwrap_or(LATENCY_NS_MAX);
        self.0.saturating_record(ns);
    }

    /// Counts a latency in nanoseconds several times.
    pub(crate) fn record_many(&mut self, ns: u64, count: u64) {
        self.0.saturating_record_n(ns, count);
    }

    /// The latencies that were counted, to within a step, with their counts.
    pub(crate) fn counts(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.0.iter_recorded().map(|step| {
            let ns = self.0.median_equivalent(step.value_iterated_to());
            (ns, step.count_at_value())
        })
    }

    /// Adds the counts of another thread.
    pub fn merge(&mut self, other: &Self) {
        self.0.add(&other.0).expect("all have the same bounds");
    }

    /// Removes all counts.
    pub fn clear(&mut self) {
        self.0.reset();
    }

    /// The number of latencies counted.
    pub fn count(&self) -> u64 {
        self.0.len()
    }

    /// The mean in nanoseconds; 0 if nothing was counted.
    pub fn mean_ns(&self) -> f64 {
        self.0.mean()
    }

    /// The standard deviation in nanoseconds; 0 if nothing was counted.
    pub fn stddev_ns(&self) -> f64 {
        self.0.stdev()
    }

    /// The shortest latency in nanoseconds, to within a step; 0 if nothing was counted.
    pub fn min_ns(&self) -> u64 {
        self.0.min()
    }

    /// The longest latency in nanoseconds, to within a step; 0 if nothing was counted.
    pub fn max_ns(&self) -> u64 {
        self.0.max()
    }

    /// The latency in nanoseconds that `percent` of all latencies do not exceed, to within a step.
    pub fn percentile_ns(&self, percent: f64) -> u64 {
        self.0.value_at_percentile(percent)
    }

    /// The histogram's steps that hold a count, in order: from and to (both inclusive) in
    /// nanoseconds, and the count.
    pub fn steps(&self) -> impl Iterator<Item = (u64, u64, u64)> + '_ {
        self.0.iter_recorded().map(|step| {
            let to_ns = step.value_iterated_to();
            let from_ns = self.0.lowest_equivalent(to_ns);
            (from_ns, to_ns, step.count_at_value())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_cover_every_latency_and_are_narrow() {
        for shift in 0..42 {
            let mut latencies = Latencies::default();
            let ns = (1_u64 << shift) * 3 / 2;
            latencies.record(Duration::from_nanos(ns));
            let (from_ns, to_ns, count) = latencies.steps().next().expect("one was recorded");
            assert!(from_ns <= ns && ns <= to_ns, "{ns}: {from_ns}..={to_ns}");
            assert!((to_ns - from_ns) * 1000 <= ns, "{ns}: {from_ns}..={to_ns}");
            assert_eq!(count, 1);
        }
    }

    #[test]
    fn latencies_beyond_the_range_count_as_its_end() {
        let mut latencies = Latencies::default();
        latencies.record(Duration::MAX);
        assert_eq!(latencies.count(), 1);
        assert!(latencies.max_ns() >= LATENCY_NS_MAX);
    }

    #[test]
    fn figures_of_a_known_distribution() {
        let mut latencies = Latencies::default();
        for us in 1..=10_000 {
            latencies.record(Duration::from_micros(us));
        }
        let is_near = |got: f64, expected: f64| (got / expected - 1.0).abs() < 0.001;
        assert!(is_near(latencies.mean_ns(), 5_000_500.0));
        assert!(is_near(latencies.stddev_ns(), 2_886_751.0));
        for (percent, ns) in [(50.0, 5e6), (99.0, 9.9e6), (99.9, 9.99e6), (100.0, 1e7)] {
            let got = latencies.percentile_ns(percent) as f64;
            assert!(is_near(got, ns), "p{percent}: {got}");
        }
        assert!(is_near(latencies.min_ns() as f64, 1e3));
        assert!(is_near(latencies.max_ns() as f64, 1e7));
    }

    #[test]
    fn an_empty_distribution_has_figures_of_zero() {
        let latencies = Latencies::default();
        assert_eq!((latencies.min_ns(), latencies.max_ns()), (0, 0));
        assert_eq!(latencies.percentile_ns(99.0), 0);
        assert!(latencies.mean_ns().abs() + latencies.stddev_ns().abs() < f64::EPSILON);
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
        assert_eq!(first.0, whole.0);
        first.clear();
        assert_eq!(first.count(), 0);
    }
}
