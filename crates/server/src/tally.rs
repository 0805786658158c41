//! Counters while they are being counted: each has one writer, a connection on its reactor, and any
//! number of readers. So a count is a plain load and store, and no two cores write to the same
//! line. A `hdrhistogram::Histogram` needs exclusive access to record, so that readers would need a lock.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use block::OpKind;

use crate::{IoStatistics, KindStatistics, Latency};

/// What one connection has done to one volume.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    /// Made when the first command of a kind comes.
    kinds: [OnceLock<Box<KindTally>>; OpKind::ALL.len()],
}

#[derive(Debug)]
struct KindTally {
    operations: AtomicU64,
    bytes: AtomicU64,
    errors: AtomicU64,
    sum_ns: AtomicU64,
    sum_of_squares_us2: AtomicU64,
    buckets: [AtomicU64; Latency::BUCKETS],
}

/// Like commands that took equally long, counted together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Batch {
    pub(crate) kind: OpKind,
    pub(crate) operations: u64,
    pub(crate) bytes: u64,
    pub(crate) errors: u64,
    pub(crate) latency_ns: u64,
}

impl Tally {
    /// Counts a batch. Only the one writer calls this.
    pub(crate) fn record(&self, batch: &Batch) {
        let tally = self.kinds[batch.kind as usize].get_or_init(Box::default);
        add(&tally.operations, batch.operations);
        add(&tally.bytes, batch.bytes);
        if batch.errors > 0 {
            add(&tally.errors, batch.errors);
        }
        let ns = batch.latency_ns;
        let square_us2 = u128::from(ns) * u128::from(ns) / 1_000_000;
        add(&tally.sum_ns, ns.saturating_mul(batch.operations));
        let square_us2 = u64::try_from(square_us2).unwrap_or(u64::MAX);
        add(
            &tally.sum_of_squares_us2,
            square_us2.saturating_mul(batch.operations),
        );
        add(&tally.buckets[Latency::bucket_of(ns)], batch.operations);
    }

    /// What was counted so far.
    fn add_to(&self, total: &mut IoStatistics) {
        for (kind, tally) in OpKind::ALL.into_iter().zip(&self.kinds) {
            if let Some(tally) = tally.get() {
                *total.kind_mut(kind) += &tally.snapshot();
            }
        }
    }
}

impl Default for KindTally {
    fn default() -> Self {
        Self {
            operations: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            errors: AtomicU64::new(0),
            sum_ns: AtomicU64::new(0),
            sum_of_squares_us2: AtomicU64::new(0),
            buckets: std::array::from_fn(|_| AtomicU64::new(0)),
        }
    }
}

impl KindTally {
    fn snapshot(&self) -> KindStatistics {
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let buckets = std::array::from_fn(|bucket| load(&self.buckets[bucket]));
        KindStatistics {
            operations: load(&self.operations),
            bytes: load(&self.bytes),
            errors: load(&self.errors),
            latency: Latency::from_parts(
                &buckets,
                load(&self.sum_ns),
                load(&self.sum_of_squares_us2),
            ),
        }
    }
}

/// There is one writer, so nothing is lost between the load and the store.
fn add(counter: &AtomicU64, more: u64) {
    let sum = counter.load(Ordering::Relaxed).wrapping_add(more);
    counter.store(sum, Ordering::Relaxed);
}

/// The sum of many tallies: of those that are being counted, and of those that have ended.
#[derive(Debug, Default)]
pub(crate) struct Totals {
    inner: Mutex<TotalsInner>,
}

#[derive(Debug, Default)]
struct TotalsInner {
    live: Vec<Arc<Tally>>,
    ended: IoStatistics,
}

impl Totals {
    pub(crate) fn enter(&self, tally: &Arc<Tally>) {
        self.lock().live.push(Arc::clone(tally));
    }

    /// The tally will not change any more.
    pub(crate) fn leave(&self, tally: &Arc<Tally>) {
        let mut inner = self.lock();
        if let Some(at) = inner.live.iter().position(|live| Arc::ptr_eq(live, tally)) {
            inner.live.swap_remove(at);
            tally.add_to(&mut inner.ended);
        }
    }

    pub(crate) fn sum(&self) -> IoStatistics {
        let inner = self.lock();
        let mut sum = inner.ended.clone();
        for tally in &inner.live {
            tally.add_to(&mut sum);
        }
        sum
    }

    /// Sums are complete between any two statements.
    fn lock(&self) -> MutexGuard<'_, TotalsInner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn batch(kind: OpKind, operations: u64, latency_ns: u64) -> Batch {
        Batch {
            kind,
            operations,
            bytes: operations * 512,
            errors: u64::from(kind == OpKind::Write),
            latency_ns,
        }
    }

    #[test]
    fn a_sum_has_live_and_ended_tallies() {
        let totals = Totals::default();
        let (first, second) = (Arc::new(Tally::default()), Arc::new(Tally::default()));
        totals.enter(&first);
        totals.enter(&second);
        first.record(&batch(OpKind::Read, 3, 10_000));
        second.record(&batch(OpKind::Read, 1, 50_000));
        second.record(&batch(OpKind::Write, 2, 20_000));
        let before = totals.sum();
        totals.leave(&second);
        totals.leave(&second);
        assert_eq!(totals.sum(), before);
        let reads = before.kind(OpKind::Read);
        assert_eq!((reads.operations, reads.bytes, reads.errors), (4, 2048, 0));
        assert_eq!(reads.latency.count(), 4);
        assert_eq!(reads.latency.sum().as_nanos(), 80_000);
        assert_eq!(before.kind(OpKind::Write).errors, 1);
        assert_eq!(before.kind(OpKind::Flush).operations, 0);
    }
}
