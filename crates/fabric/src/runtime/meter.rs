//! Counts of threads, for others to read. Each thread regularly writes to its own memory.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use crate::{Hw, Provider, Soft, SoftStatistics};

/// A provider that counts packets for a runtime.
pub trait Metered: Provider {
    /// The counts of packets; `None` if an adapter carries them.
    fn counted(&self) -> Option<SoftStatistics>;
}

impl Metered for Hw {
    fn counted(&self) -> Option<SoftStatistics> {
        None
    }
}

impl Metered for Soft {
    fn counted(&self) -> Option<SoftStatistics> {
        Some(self.statistics())
    }
}

/// The counts that one thread last published. It is the only writer.
#[derive(Debug, Default)]
pub(super) struct Published {
    /// Absent until there is something to count: adapters count by themselves.
    counts: OnceLock<[AtomicU64; SoftStatistics::COUNTS]>,
}

impl Published {
    /// Publishes the counts. A reader may see some counts from before and some from after.
    pub(super) fn publish(&self, counted: Option<SoftStatistics>) {
        let Some(counted) = counted else {
            return;
        };
        let counts = (self.counts).get_or_init(|| std::array::from_fn(|_| AtomicU64::new(0)));
        for (count, now) in counts.iter().zip(counted.to_counts()) {
            count.store(now, Ordering::Relaxed);
        }
    }

    fn read(&self) -> Option<SoftStatistics> {
        let counts = self.counts.get()?;
        let load = |index: usize| counts[index].load(Ordering::Relaxed);
        Some(SoftStatistics::from_counts(std::array::from_fn(load)))
    }
}

/// Reads the counts of the threads of an address without asking them, even if they are busy or have
/// ended.
#[derive(Clone, Debug)]
pub struct Meter(Arc<[Arc<Published>]>);

impl Meter {
    pub(super) fn of(threads: impl Iterator<Item = Arc<Published>>) -> Self {
        Self(threads.collect())
    }

    /// The sum over all threads, at most a tenth of a second old; `None` if an adapter carries the
    /// packets.
    pub fn read(&self) -> Option<SoftStatistics> {
        let read = self.0.iter().filter_map(|thread| thread.read());
        read.reduce(|sum, next| sum + next)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_meter_adds_up_what_threads_say_and_has_nothing_where_none_counts() {
        let threads = [(); 2].map(|()| Arc::new(Published::default()));
        let meter = Meter::of(threads.iter().cloned());
        threads[0].publish(None);
        assert_eq!(meter.read(), None);
        let counted = |send_calls| SoftStatistics {
            send_calls,
            ..SoftStatistics::default()
        };
        threads[0].publish(Some(counted(3)));
        assert_eq!(meter.read(), Some(counted(3)));
        threads[1].publish(Some(counted(4)));
        threads[0].publish(Some(counted(5)));
        assert_eq!(meter.read(), Some(counted(9)));
    }
}
