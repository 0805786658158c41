//! Counters and latencies of volumes, targets and sessions, as values.

use std::marker::PhantomData;
use std::ops::AddAssign;
use std::time::Duration;

use ::nfs::Procedure;
use block::OpKind;

/// A kind of operation that is counted on its own. `N` is the number of kinds.
pub trait Kind<const N: usize>: Copy + 'static {
    /// Every kind, in the order of its index.
    const ALL: [Self; N];

    /// Its place in [`Self::ALL`].
    fn index(self) -> usize;
}

/// Counters since the start, by kind of operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Statistics<K, const N: usize> {
    /// Boxed, since NFS has dozens of kinds, and each takes 1 KiB.
    kinds: Box<[KindStatistics; N]>,
    of: PhantomData<K>,
}

/// Counters of operations on volumes. Operations of NFS that read, write or commit files are
/// counted beside them.
pub type IoStatistics = Statistics<OpKind, { OpKind::ALL.len() }>;

/// Counters of the procedures of NFS and MOUNT.
pub type FileStatistics = Statistics<Procedure, PROCEDURES>;

/// The number of procedures of NFS and MOUNT.
pub(crate) const PROCEDURES: usize = Procedure::ALL.len();

/// Counters of one kind of operation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KindStatistics {
    /// Completed commands, including failed ones.
    pub operations: u64,
    /// Bytes transferred by commands that succeeded.
    pub bytes: u64,
    /// Commands that failed.
    pub errors: u64,
    /// Their latency.
    pub latency: Latency,
}

/// How long commands took, from the arrival of their last needed byte's batch until their reply was
/// handed to the socket. Instants are taken once per batch, so this is the server's share, not what
/// a host sees.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Latency {
    buckets: [u64; Latency::BUCKETS],
    sum_ns: u64,
    /// In microseconds squared, so that it does not overflow.
    sum_of_squares_us2: u64,
}

impl Latency {
    /// How many buckets there are.
    pub const BUCKETS: usize = 112;
    /// log2 of the buckets per doubling.
    const SUB_BITS: u32 = 2;
    /// log2 of the nanoseconds below which everything is in bucket 0.
    const FIRST_BITS: u32 = 9;

    /// The bucket of a duration.
    pub const fn bucket_of(latency_ns: u64) -> usize {
        if latency_ns >> Self::FIRST_BITS == 0 {
            return 0;
        }
        let octave = latency_ns.ilog2();
        let sub = (latency_ns >> (octave - Self::SUB_BITS)) & ((1 << Self::SUB_BITS) - 1);
        let bucket = (((octave - Self::FIRST_BITS) as u64) << Self::SUB_BITS) + sub + 1;
        if bucket < Self::BUCKETS as u64 {
            bucket as usize
        } else {
            Self::BUCKETS - 1
        }
    }

    /// The shortest duration that is too long for a bucket; the last bucket takes everything that
    /// is longer.
    pub const fn bucket_end(bucket: usize) -> Duration {
        let octave = Self::FIRST_BITS + (bucket as u32 >> Self::SUB_BITS);
        let sub = bucket as u64 & ((1 << Self::SUB_BITS) - 1);
        Duration::from_nanos((1 << octave) + (sub << (octave - Self::SUB_BITS)))
    }

    /// The latencies of commands per bucket, the sum of them in nanoseconds, and the sum of their
    /// squares in microseconds squared.
    pub const fn from_parts(
        buckets: &[u64; Self::BUCKETS],
        sum_ns: u64,
        sum_of_squares_us2: u64,
    ) -> Self {
        Self {
            buckets: *buckets,
            sum_ns,
            sum_of_squares_us2,
        }
    }

    /// Commands per bucket.
    pub fn buckets(&self) -> &[u64; Self::BUCKETS] {
        &self.buckets
    }

    /// What was added since `earlier`; `None` if these are not later counters of the same.
    fn since(&self, earlier: &Self) -> Option<Self> {
        let mut buckets = self.buckets;
        for (mine, before) in buckets.iter_mut().zip(&earlier.buckets) {
            *mine = mine.checked_sub(*before)?;
        }
        let sum_ns = self.sum_ns.checked_sub(earlier.sum_ns)?;
        let sum_of_squares_us2 = self
            .sum_of_squares_us2
            .checked_sub(earlier.sum_of_squares_us2)?;
        Some(Self::from_parts(&buckets, sum_ns, sum_of_squares_us2))
    }

    /// How many commands were measured.
    pub fn count(&self) -> u64 {
        self.buckets.iter().sum()
    }

    /// The sum of all durations.
    pub fn sum(&self) -> Duration {
        Duration::from_nanos(self.sum_ns)
    }

    /// The mean.
    pub fn mean(&self) -> Option<Duration> {
        let count = self.count();
        (count > 0).then(|| Duration::from_nanos(self.sum_ns / count))
    }

    /// The standard deviation.
    #[expect(
        clippy::cast_precision_loss,
        reason = "statistics need no more than 52 bits"
    )]
    pub fn standard_deviation(&self) -> Option<Duration> {
        let count = self.count();
        if count == 0 {
            return None;
        }
        let mean_us = self.sum_ns as f64 / 1e3 / count as f64;
        let mean_of_squares_us2 = self.sum_of_squares_us2 as f64 / count as f64;
        let variance_us2 = (mean_of_squares_us2 - mean_us * mean_us).max(0.0);
        Some(Duration::from_secs_f64(variance_us2.sqrt() / 1e6))
    }

    /// An upper bound of the duration that the share `quantile` (0 to 1) of all commands kept
    /// within.
    #[expect(
        clippy::cast_precision_loss,
        clippy::cast_sign_loss,
        reason = "a share of a count, rounded up"
    )]
    pub fn quantile(&self, quantile: f64) -> Option<Duration> {
        let wanted = (self.count() as f64 * quantile.clamp(0.0, 1.0)).ceil() as u64;
        let mut seen = 0;
        for (bucket, &count) in self.buckets.iter().enumerate() {
            seen += count;
            if count > 0 && seen >= wanted {
                return Some(Self::bucket_end(bucket));
            }
        }
        None
    }
}

impl Default for Latency {
    fn default() -> Self {
        Self::from_parts(&[0; Self::BUCKETS], 0, 0)
    }
}

impl AddAssign<&Self> for Latency {
    fn add_assign(&mut self, other: &Self) {
        for (mine, theirs) in self.buckets.iter_mut().zip(&other.buckets) {
            *mine += theirs;
        }
        self.sum_ns += other.sum_ns;
        self.sum_of_squares_us2 += other.sum_of_squares_us2;
    }
}

impl Kind<{ OpKind::ALL.len() }> for OpKind {
    const ALL: [Self; OpKind::ALL.len()] = OpKind::ALL;

    fn index(self) -> usize {
        self as usize
    }
}

impl Kind<PROCEDURES> for Procedure {
    const ALL: [Self; PROCEDURES] = Procedure::ALL;

    fn index(self) -> usize {
        Procedure::index(self)
    }
}

impl<K, const N: usize> From<[KindStatistics; N]> for Statistics<K, N> {
    /// The counters of each kind, in the order of [`Kind::ALL`].
    fn from(kinds: [KindStatistics; N]) -> Self {
        Self {
            kinds: Box::new(kinds),
            of: PhantomData,
        }
    }
}

impl<K, const N: usize> Default for Statistics<K, N> {
    fn default() -> Self {
        Self::from(std::array::from_fn(|_| KindStatistics::default()))
    }
}

impl<K: Kind<N>, const N: usize> Statistics<K, N> {
    /// Counters of one kind.
    pub fn kind(&self, kind: K) -> &KindStatistics {
        &self.kinds[kind.index()]
    }

    pub(crate) fn kind_mut(&mut self, kind: K) -> &mut KindStatistics {
        &mut self.kinds[kind.index()]
    }

    /// What was counted since `earlier`, a previous value of the same counters. Everything, if a
    /// counter stood higher then: another object of the same name began at zero.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let mut since = Self::default();
        for (kind, counters) in self.kinds() {
            let Some(added) = counters.since(earlier.kind(kind)) else {
                return self.clone();
            };
            *since.kind_mut(kind) = added;
        }
        since
    }

    /// The sum of all kinds.
    pub fn total(&self) -> KindStatistics {
        let mut total = KindStatistics::default();
        for kind in &*self.kinds {
            total += kind;
        }
        total
    }

    /// Every kind with its counters.
    pub fn kinds(&self) -> impl Iterator<Item = (K, &KindStatistics)> {
        K::ALL.into_iter().zip(&*self.kinds)
    }
}

impl KindStatistics {
    /// See [`IoStatistics::since`]; `None` if a counter stood higher.
    fn since(&self, earlier: &Self) -> Option<Self> {
        Some(Self {
            operations: self.operations.checked_sub(earlier.operations)?,
            bytes: self.bytes.checked_sub(earlier.bytes)?,
            errors: self.errors.checked_sub(earlier.errors)?,
            latency: self.latency.since(&earlier.latency)?,
        })
    }
}

impl<K, const N: usize> AddAssign<&Self> for Statistics<K, N> {
    fn add_assign(&mut self, other: &Self) {
        for (mine, theirs) in self.kinds.iter_mut().zip(&*other.kinds) {
            *mine += theirs;
        }
    }
}

impl AddAssign<&Self> for KindStatistics {
    fn add_assign(&mut self, other: &Self) {
        self.operations += other.operations;
        self.bytes += other.bytes;
        self.errors += other.errors;
        self.latency += &other.latency;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::counters::{Batch, Counters};

    #[test]
    fn buckets_follow_each_other_without_gap() {
        assert_eq!(Latency::bucket_of(0), 0);
        for bucket in 0..Latency::BUCKETS - 1 {
            let end_ns = Latency::bucket_end(bucket).as_nanos() as u64;
            assert_eq!(Latency::bucket_of(end_ns - 1), bucket, "below {end_ns}");
            assert_eq!(Latency::bucket_of(end_ns), bucket + 1, "at {end_ns}");
        }
        assert_eq!(Latency::bucket_of(u64::MAX), Latency::BUCKETS - 1);
    }

    #[test]
    fn mean_and_deviation_come_from_the_sums() {
        let mut buckets = [0; Latency::BUCKETS];
        buckets[Latency::bucket_of(10_000)] = 1;
        buckets[Latency::bucket_of(30_000)] = 1;
        let latency = Latency::from_parts(&buckets, 40_000, 100 + 900);
        assert_eq!(latency.mean(), Some(Duration::from_micros(20)));
        assert_eq!(
            latency.standard_deviation(),
            Some(Duration::from_micros(10))
        );
        assert!(latency.quantile(0.5).expect("measured") < Duration::from_micros(13));
        assert_eq!(Latency::default().mean(), None);
    }
    /// Counters after commands of the given latencies in microseconds, all of them reads.
    fn reads(latencies_us: &[u64]) -> IoStatistics {
        let counters = Counters::default();
        for latency_us in latencies_us {
            counters.record(&Batch {
                kind: OpKind::Read,
                operations: 1,
                bytes: 4096,
                errors: 0,
                latency_ns: latency_us * 1000,
            });
        }
        let mut statistics = IoStatistics::default();
        counters.add_to(&mut statistics);
        statistics
    }

    #[test]
    fn an_interval_has_only_its_own_commands() {
        // The first command took long; the p99 of the interval after it does not show that.
        let (before, after) = (reads(&[900_000]), reads(&[900_000, 10, 10, 30]));
        assert_eq!(after.since(&before), reads(&[10, 10, 30]));
        let interval = after.since(&before).total();
        assert_eq!((interval.operations, interval.bytes), (3, 3 * 4096));
        assert_eq!(interval.latency.sum(), Duration::from_micros(50));
        let p99 = interval.latency.quantile(0.99).expect("measured");
        assert!(
            p99 > Duration::from_micros(30) && p99 < Duration::from_micros(38),
            "{p99:?}"
        );
        assert_eq!(after.since(&after), IoStatistics::default());
    }

    #[test]
    fn counters_that_went_back_belong_to_another_object() {
        let (before, after) = (reads(&[10, 10, 10]), reads(&[10, 20]));
        assert_eq!(after.since(&before), after);
    }
}
