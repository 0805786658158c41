//! The volumes that a connection has used, by the numbers of its protocol, with the counters of its
//! commands. Connections of all protocols use this on the data path, where it takes no lock.

use std::sync::Arc;
use std::time::{Duration, Instant};

use block::{OpKind, Pinned, Volume};
use session::SourceId;

use crate::counters::{Batch, Counters, Totals};

/// The volumes of a connection by `K`, the protocol's number. `P` is what the protocol stores with
/// each.
pub(crate) struct Views<K, P> {
    entries: Vec<Entry<K, P>>,
    /// The index of the entry used last: most connections use one volume.
    last: usize,
    regions: Regions,
    /// Commands completed in this turn, until their latency is known.
    batches: Vec<PendingBatch<K>>,
    /// The totals to which all counters belong, besides the volume's: of the portal, the thread, the
    /// session and the target.
    sums: Vec<Arc<Totals>>,
}

/// A volume as of its last look-up.
pub(crate) struct Entry<K, P> {
    pub(crate) key: K,
    pub(crate) region: SourceId,
    pub(crate) volume: Arc<dyn Volume>,
    /// Whether bytes may be sent from where they lie in the volume.
    pub(crate) is_pinned: bool,
    pub(crate) part: P,
    counters: Arc<Counters>,
    totals: Option<Arc<Totals>>,
}

/// The result of a look-up.
pub(crate) struct Found<P> {
    pub(crate) volume: Arc<dyn Volume>,
    pub(crate) part: P,
    /// The volume's totals, if it is a volume of the server.
    pub(crate) totals: Option<Arc<Totals>>,
}

/// The volumes that placements can refer to. A number is never used for another volume. A removed
/// volume is kept until nothing is waiting to be sent from it.
#[derive(Default)]
struct Regions {
    last: u32,
    retired: Vec<(SourceId, Arc<dyn Volume>)>,
}

struct PendingBatch<K> {
    key: K,
    /// The instant up to which the batch's latency is counted so far.
    now: Instant,
    batch: Batch,
}

/// A command that has ended.
pub(crate) struct Done<K> {
    pub(crate) key: K,
    pub(crate) kind: OpKind,
    pub(crate) bytes: u64,
    pub(crate) is_success: bool,
    pub(crate) started: Instant,
    /// When the protocol completed it.
    pub(crate) now: Instant,
}

/// The most batches of one turn. Further batches are counted before their replies are sent.
const BATCHES_MAX: usize = 32;

impl<K: Copy + Ord, P> Views<K, P> {
    /// Nothing is looked up yet; counts in the totals `sums`.
    pub(crate) fn new(sums: Vec<Arc<Totals>>) -> Self {
        Self {
            entries: Vec::new(),
            last: 0,
            regions: Regions::default(),
            batches: Vec::new(),
            sums,
        }
    }

    /// Counts in `totals`, too, from now on. Called before the first look-up.
    pub(crate) fn count_in(&mut self, totals: Arc<Totals>) {
        self.sums.push(totals);
    }

    /// The volume of a number. It is looked up if it is not cached yet.
    pub(crate) fn find(
        &mut self,
        key: K,
        look_up: impl FnOnce() -> Option<Found<P>>,
    ) -> Option<&Entry<K, P>> {
        let is_last = self.entries.get(self.last).is_some_and(|v| v.key == key);
        if !is_last {
            self.last = match self.entries.binary_search_by_key(&key, |view| view.key) {
                Ok(at) => at,
                Err(at) => {
                    let entry = self.enter(key, look_up()?);
                    self.entries.insert(at, entry);
                    at
                }
            };
        }
        self.entries.get(self.last)
    }

    fn enter(&mut self, key: K, found: Found<P>) -> Entry<K, P> {
        let counters = Arc::new(Counters::default());
        for totals in self.sums.iter().chain(&found.totals) {
            totals.enter(&counters);
        }
        self.regions.last += 1;
        Entry {
            key,
            region: SourceId(self.regions.last),
            is_pinned: found.volume.pinned().is_some(),
            volume: found.volume,
            part: found.part,
            counters,
            totals: found.totals,
        }
    }

    /// Looks up every cached volume again.
    pub(crate) fn refresh(&mut self, look_up: impl Fn(K) -> Option<Found<P>>) {
        let mut kept = Vec::with_capacity(self.entries.len());
        for mut entry in std::mem::take(&mut self.entries) {
            match look_up(entry.key) {
                Some(now) if Arc::ptr_eq(&now.volume, &entry.volume) => {
                    entry.part = now.part;
                    kept.push(entry);
                }
                _ => {
                    self.leave(&entry);
                    self.regions.retired.push((entry.region, entry.volume));
                }
            }
        }
        self.entries = kept;
    }

    /// Adds what was counted for a volume to the totals that outlive the connection.
    fn leave(&self, entry: &Entry<K, P>) {
        for totals in self.sums.iter().chain(&entry.totals) {
            totals.leave(&entry.counters);
        }
    }

    /// The connection has ended: adds everything counted so far to the totals.
    pub(crate) fn leave_all(&mut self) {
        for entry in std::mem::take(&mut self.entries) {
            self.leave(&entry);
        }
    }

    /// Notes a command that has ended. Its latency is known when its reply is sent.
    pub(crate) fn note(&mut self, done: &Done<K>) {
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
            return;
        }
        let pending = PendingBatch {
            key: done.key,
            now: done.now,
            batch: Batch {
                kind: done.kind,
                operations: 1,
                bytes,
                errors: u64::from(!done.is_success),
                latency_ns,
            },
        };
        if self.batches.len() < BATCHES_MAX {
            self.batches.push(pending);
        } else {
            self.record(&pending, done.now);
        }
    }

    fn record(&self, pending: &PendingBatch<K>, sent: Instant) {
        let waited = sent.saturating_duration_since(pending.now);
        let batch = Batch {
            latency_ns: pending.batch.latency_ns + nanos(waited),
            ..pending.batch
        };
        let place = self.entries.binary_search_by_key(&pending.key, |v| v.key);
        if let Ok(at) = place {
            self.entries[at].counters.record(&batch);
        }
    }

    /// The replies of the noted commands were sent.
    pub(crate) fn handle_sent(&mut self, now: Instant) {
        let mut batches = std::mem::take(&mut self.batches);
        for pending in batches.drain(..) {
            self.record(&pending, now);
        }
        self.batches = batches;
    }

    /// Nothing is waiting to be sent any more.
    pub(crate) fn handle_drained(&mut self) {
        self.regions.retired.clear();
    }

    /// The volume of a region, unless it was removed.
    pub(crate) fn of_region(&self, region: SourceId) -> Option<&Entry<K, P>> {
        let is_it = |entry: &&Entry<K, P>| entry.region == region;
        let last = self.entries.get(self.last).filter(is_it);
        last.or_else(|| self.entries.iter().find(is_it))
    }

    /// The memory behind a placement.
    pub(crate) fn memory(&self, region: SourceId) -> Option<&dyn Pinned> {
        let retired = || self.regions.retired.iter().find(|(id, _)| *id == region);
        match self.of_region(region) {
            Some(view) => view.volume.pinned(),
            None => retired().and_then(|(_, volume)| volume.pinned()),
        }
    }
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
