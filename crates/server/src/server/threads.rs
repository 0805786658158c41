//! The threads that drive connections, and what hosts do through each.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::Server;
use crate::counters::Totals;
use crate::{IoStatistics, ThreadInfo};

/// What hosts did through each thread. Taken when connections open, and by the control path.
#[derive(Debug, Default)]
pub(super) struct ThreadTotals(Mutex<Threads>);

#[derive(Debug, Default)]
struct Threads {
    /// By the number of the thread, which may have ended.
    totals: HashMap<usize, Arc<Totals>>,
    /// What was done through threads that have ended, and whose numbers others have now.
    replaced: IoStatistics,
}

impl ThreadTotals {
    /// The totals of the thread with this number.
    pub(super) fn of(&self, thread: usize) -> Arc<Totals> {
        Arc::clone(self.lock().totals.entry(thread).or_default())
    }

    /// A thread has started, perhaps with the number of one that has ended.
    pub(super) fn start(&self, thread: usize) {
        let mut threads = self.lock();
        if let Some(ended) = threads.totals.insert(thread, Arc::default()) {
            threads.replaced += &ended.sum();
        }
    }

    /// What was done through all threads, including those that have ended: no counter ever falls.
    fn sum(&self) -> IoStatistics {
        let threads = self.lock();
        let mut sum = threads.replaced.clone();
        for totals in threads.totals.values() {
            sum += &totals.sum();
        }
        sum
    }

    /// Counters are complete between any two statements, so a poisoned lock is used.
    fn lock(&self) -> MutexGuard<'_, Threads> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Server {
    /// Every thread that drives connections: first the reactors, then RDMA threads by address, then
    /// those for UDP.
    pub fn threads(&self) -> Vec<ThreadInfo> {
        let mut threads = self.shared.reactors.usage();
        threads.extend(self.shared.rdma.usage());
        threads.extend(self.shared.datagrams.usage());
        let core = self.core();
        let threads = threads.into_iter().map(|thread| ThreadInfo {
            connections: core.registry.connections_on(thread.index),
            statistics: core.threads.of(thread.index).sum(),
            name: thread.name,
            cpu_time: thread.cpu_time,
        });
        threads.collect()
    }

    /// What hosts did through all threads since the server started, including RDMA threads that
    /// have ended.
    pub fn statistics(&self) -> IoStatistics {
        self.core().threads.sum()
    }
}

#[cfg(test)]
mod tests {
    use block::OpKind;

    use super::*;
    use crate::counters::{Batch, Counters};

    #[test]
    fn commands_of_threads_that_ended_stay_in_the_sum() {
        let threads = ThreadTotals::default();
        let errors_at = |threads: &ThreadTotals| threads.sum().total().errors;
        for round in 0..3 {
            threads.start(7);
            assert_eq!(threads.of(7).sum(), IoStatistics::default(), "a new thread");
            assert_eq!(errors_at(&threads), round * 2, "those before it count");
            let (totals, counters) = (threads.of(7), Arc::new(Counters::default()));
            totals.enter(&counters);
            counters.record(&Batch {
                kind: OpKind::Write,
                operations: 3,
                bytes: 512,
                errors: 2,
                latency_ns: 10_000,
            });
            totals.leave(&counters);
            assert_eq!(errors_at(&threads), (round + 1) * 2);
        }
        threads.start(8);
        assert_eq!(errors_at(&threads), 6, "of all threads");
    }
}
