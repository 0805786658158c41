//! Operations whose replies are not sent yet. Connections of all protocols use this on the data
//! path, where it takes no lock.

use std::time::{Duration, Instant};

use block::OpKind;

use crate::counters::Batch;

/// The operations completed in a turn, until their latency is known. `K` says what an operation was
/// done to, `O` is its kind.
pub(crate) struct Unsent<K, O = OpKind> {
    batches: Vec<PendingBatch<K, O>>,
}

struct PendingBatch<K, O> {
    key: K,
    /// The instant up to which the batch's latency is counted so far.
    now: Instant,
    batch: Batch<O>,
}

/// An operation that has ended.
pub(crate) struct Done<K, O = OpKind> {
    pub(crate) key: K,
    pub(crate) kind: O,
    pub(crate) bytes: u64,
    pub(crate) is_success: bool,
    pub(crate) started: Instant,
    /// When the protocol completed it.
    pub(crate) now: Instant,
}

/// The most batches of one turn. Further batches are counted before their replies are sent.
const BATCHES_MAX: usize = 32;

impl<K: Copy + PartialEq, O: Copy + PartialEq> Unsent<K, O> {
    /// Notes an operation that has ended. Its latency is known when its reply is sent. Returns the
    /// operation as a batch of its own, which is to be counted at once, if there are too many.
    pub(crate) fn note(&mut self, done: &Done<K, O>) -> Option<(K, Batch<O>)> {
        let latency_ns = nanos(done.now.saturating_duration_since(done.started));
        let bytes = if done.is_success { done.bytes } else { 0 };
        if let Some(last) = self.batches.last_mut()
            && last.key == done.key
            && last.batch.kind == done.kind
            && last.batch.latency_ns == latency_ns
            && last.now == done.now
        {
            last.batch.operations += 1;
            last.batch.bytes += bytes;
            last.batch.errors += u64::from(!done.is_success);
            return None;
        }
        let batch = Batch {
            kind: done.kind,
            operations: 1,
            bytes,
            errors: u64::from(!done.is_success),
            latency_ns,
        };
        if self.batches.len() >= BATCHES_MAX {
            return Some((done.key, batch));
        }
        self.batches.push(PendingBatch {
            key: done.key,
            now: done.now,
            batch,
        });
        None
    }

    /// The replies of the noted operations were sent: passes them to `record`.
    pub(crate) fn handle_sent(&mut self, now: Instant, mut record: impl FnMut(K, &Batch<O>)) {
        for pending in self.batches.drain(..) {
            let waited = now.saturating_duration_since(pending.now);
            let latency_ns = pending.batch.latency_ns + nanos(waited);
            let batch = Batch {
                latency_ns,
                ..pending.batch
            };
            record(pending.key, &batch);
        }
    }
}

impl<K, O> Default for Unsent<K, O> {
    fn default() -> Self {
        let batches = Vec::new();
        Self { batches }
    }
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn latency_lasts_until_the_reply_is_sent() {
        let start = Instant::now();
        let at = |us| start + Duration::from_micros(us);
        let done = |key, started, now| Done {
            key,
            kind: OpKind::Read,
            bytes: 512,
            is_success: key == 1,
            started,
            now,
        };
        let mut unsent = Unsent::default();
        for _ in 0..3 {
            assert_eq!(unsent.note(&done(1, at(0), at(10))), None);
        }
        assert_eq!(unsent.note(&done(2, at(5), at(10))), None);
        let mut seen = Vec::new();
        unsent.handle_sent(at(30), |key, batch| seen.push((key, *batch)));
        let (first, second) = (seen[0].1, seen[1].1);
        assert_eq!((first.operations, first.bytes, first.errors), (3, 1536, 0));
        assert_eq!((second.operations, second.bytes, second.errors), (1, 0, 1));
        assert_eq!((first.latency_ns, second.latency_ns), (30_000, 25_000));
        unsent.handle_sent(at(40), |_, _| panic!("each is counted once"));
        for key in 0..BATCHES_MAX {
            assert_eq!(unsent.note(&done(key, at(0), at(1))), None);
        }
        let (_, batch) = unsent.note(&done(99, at(0), at(1))).expect("too many");
        assert_eq!(batch.latency_ns, 1000);
    }
}
