//! Counters of connections. Each has one writer, a connection on its reactor, and any number of
//! readers. So counting is a plain load and store, and no two cores write to the same cache line. A
//! `hdrhistogram::Histogram` needs exclusive access to record, so that readers would need a lock.

use std::marker::PhantomData;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use block::OpKind;

use crate::statistics::{Kind, Statistics};
use crate::{KindStatistics, Latency};

/// What one connection has done to one volume or share, by the kind `K` of its operations.
#[derive(Debug)]
pub(crate) struct Counters<K = OpKind, const N: usize = { OpKind::ALL.len() }> {
    /// Allocated with the first command of a kind.
    kinds: [OnceLock<Box<KindCounters>>; N],
    of: PhantomData<K>,
}

#[derive(Debug)]
struct KindCounters {
    operations: AtomicU64,
    bytes: AtomicU64,
    errors: AtomicU64,
    sum_ns: AtomicU64,
    sum_of_squares_us2: AtomicU64,
    buckets: [AtomicU64; Latency::BUCKETS],
}

/// Commands of one kind with the same latency, counted together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Batch<K = OpKind> {
    pub(crate) kind: K,
    pub(crate) operations: u64,
    pub(crate) bytes: u64,
    pub(crate) errors: u64,
    pub(crate) latency_ns: u64,
}

impl<K: Copy> Batch<K> {
    /// The same as operations of another kind.
    pub(crate) fn of_kind<O>(&self, kind: O) -> Batch<O> {
        let Self {
            operations,
            bytes,
            errors,
            latency_ns,
            ..
        } = *self;
        Batch {
            kind,
            operations,
            bytes,
            errors,
            latency_ns,
        }
    }
}

impl<K, const N: usize> Default for Counters<K, N> {
    fn default() -> Self {
        Self {
            kinds: std::array::from_fn(|_| OnceLock::new()),
            of: PhantomData,
        }
    }
}

impl<K: Kind<N>, const N: usize> Counters<K, N> {
    /// Counts a batch. Only the writer calls this.
    pub(crate) fn record(&self, batch: &Batch<K>) {
        let counters = self.kinds[batch.kind.index()].get_or_init(Box::default);
        add(&counters.operations, batch.operations);
        add(&counters.bytes, batch.bytes);
        if batch.errors > 0 {
            add(&counters.errors, batch.errors);
        }
        let ns = batch.latency_ns;
        let square_us2 = u128::from(ns) * u128::from(ns) / 1_000_000;
        add(&counters.sum_ns, ns.saturating_mul(batch.operations));
        let square_us2 = u64::try_from(square_us2).unwrap_or(u64::MAX);
        add(
            &counters.sum_of_squares_us2,
            square_us2.saturating_mul(batch.operations),
        );
        add(&counters.buckets[Latency::bucket_of(ns)], batch.operations);
    }

    /// Adds what was counted so far.
    pub(crate) fn add_to(&self, total: &mut Statistics<K, N>) {
        for (kind, counters) in K::ALL.into_iter().zip(&self.kinds) {
            if let Some(counters) = counters.get() {
                *total.kind_mut(kind) += &counters.snapshot();
            }
        }
    }
}

impl Default for KindCounters {
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

impl KindCounters {
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

/// There is one writer, so no count is lost between the load and the store.
fn add(counter: &AtomicU64, more: u64) {
    let sum = counter.load(Ordering::Relaxed).wrapping_add(more);
    counter.store(sum, Ordering::Relaxed);
}

/// The sum of many counters: of open connections, and of those that have ended.
#[derive(Debug)]
pub(crate) struct Totals<K = OpKind, const N: usize = { OpKind::ALL.len() }> {
    inner: Mutex<TotalsInner<K, N>>,
}

#[derive(Debug)]
struct TotalsInner<K, const N: usize> {
    live: Vec<Arc<Counters<K, N>>>,
    ended: Statistics<K, N>,
}

impl<K, const N: usize> Default for Totals<K, N> {
    fn default() -> Self {
        let (live, ended) = (Vec::new(), Statistics::default());
        Self {
            inner: Mutex::new(TotalsInner { live, ended }),
        }
    }
}

impl<K: Kind<N>, const N: usize> Totals<K, N> {
    pub(crate) fn enter(&self, counters: &Arc<Counters<K, N>>) {
        self.lock().live.push(Arc::clone(counters));
    }

    /// The counters will not change any more.
    pub(crate) fn leave(&self, counters: &Arc<Counters<K, N>>) {
        let mut inner = self.lock();
        if let Some(at) = inner
            .live
            .iter()
            .position(|live| Arc::ptr_eq(live, counters))
        {
            inner.live.swap_remove(at);
            counters.add_to(&mut inner.ended);
        }
    }

    pub(crate) fn sum(&self) -> Statistics<K, N> {
        let inner = self.lock();
        let mut sum = inner.ended.clone();
        for counters in &inner.live {
            counters.add_to(&mut sum);
        }
        sum
    }

    /// Sums are complete between any two statements, so a poisoned lock is used.
    fn lock(&self) -> MutexGuard<'_, TotalsInner<K, N>> {
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
        let (first, second) = (Arc::new(Counters::default()), Arc::new(Counters::default()));
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
