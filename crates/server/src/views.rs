//! The volumes that a connection has used, as its protocol numbers them, with the counters of what
//! it did to each. What a connection of any protocol needs on the data path: nothing here takes a
//! lock there.

use std::sync::Arc;
use std::time::{Duration, Instant};

use block::{OpKind, Pinned, Volume};
use session::RegionId;

use crate::tally::{Batch, Tally, Totals};

/// The volumes of a connection by `K`, the protocol's number; `P` is what the protocol keeps of
/// each.
pub(crate) struct Views<K, P> {
    entries: Vec<Entry<K, P>>,
    /// The one used last: most connections use one.
    last: usize,
    regions: Regions,
    /// Commands completed in this turn, until it is known how long they took.
    batches: Vec<PendingBatch<K>>,
    /// The sums that every tally counts in, besides the volume's: of the session and of the target.
    sums: Vec<Arc<Totals>>,
}

/// A volume as it was when it was last looked up.
pub(crate) struct Entry<K, P> {
    pub(crate) key: K,
    pub(crate) region: RegionId,
    pub(crate) volume: Arc<dyn Volume>,
    /// Whether bytes may be sent from where they lie in the volume.
    pub(crate) is_pinned: bool,
    pub(crate) part: P,
    tally: Arc<Tally>,
    totals: Option<Arc<Totals>>,
}

/// What a look-up found.
pub(crate) struct Found<P> {
    pub(crate) volume: Arc<dyn Volume>,
    pub(crate) part: P,
    /// The volume's sums, where it is one of ours.
    pub(crate) totals: Option<Arc<Totals>>,
}

/// The volumes that placements can name. A number is never used for another volume, and one that
/// has gone is kept until nothing waits to be sent from it.
#[derive(Default)]
struct Regions {
    last: u32,
    retired: Vec<(RegionId, Arc<dyn Volume>)>,
}

struct PendingBatch<K> {
    key: K,
    /// Until when the batch's latency counts so far.
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
    /// When the protocol was done with it.
    pub(crate) now: Instant,
}

/// Batches kept apart in one turn; beyond them, a batch is counted before its reply is sent.
const BATCHES_MAX: usize = 32;

impl<K: Copy + Ord, P> Views<K, P> {
    pub(crate) fn new() -> Self {
        Self {
            entries: Vec::new(),
            last: 0,
            regions: Regions::default(),
            batches: Vec::new(),
            sums: Vec::new(),
        }
    }

    /// What is counted from now on counts in `totals` too. Called before the first look-up.
    pub(crate) fn count_in(&mut self, totals: Arc<Totals>) {
        self.sums.push(totals);
    }

    /// The volume of a number, looked up where it is not known yet.
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
        let tally = Arc::new(Tally::default());
        for totals in self.sums.iter().chain(&found.totals) {
            totals.enter(&tally);
        }
        self.regions.last += 1;
        Entry {
            key,
            region: RegionId(self.regions.last),
            is_pinned: found.volume.pinned().is_some(),
            volume: found.volume,
            part: found.part,
            tally,
            totals: found.totals,
        }
    }

    /// Looks every kept volume up again.
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

    /// Folds what was counted for a volume into the sums that outlive the connection.
    fn leave(&self, entry: &Entry<K, P>) {
        for totals in self.sums.iter().chain(&entry.totals) {
            totals.leave(&entry.tally);
        }
    }

    /// Everything counted so far goes into the sums; the connection has ended.
    pub(crate) fn leave_all(&mut self) {
        for entry in std::mem::take(&mut self.entries) {
            self.leave(&entry);
        }
    }

    /// Notes a command that has ended. How long it took is known when its reply is sent.
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
            self.entries[at].tally.record(&batch);
        }
    }

    /// The replies of what was noted have been sent.
    pub(crate) fn handle_sent(&mut self, now: Instant) {
        let mut batches = std::mem::take(&mut self.batches);
        for pending in batches.drain(..) {
            self.record(&pending, now);
        }
        self.batches = batches;
    }

    /// Nothing waits to be sent any more.
    pub(crate) fn handle_drained(&mut self) {
        self.regions.retired.clear();
    }

    /// The volume of a region, unless it is one that has gone.
    pub(crate) fn of_region(&self, region: RegionId) -> Option<&Entry<K, P>> {
        let is_it = |entry: &&Entry<K, P>| entry.region == region;
        let last = self.entries.get(self.last).filter(is_it);
        last.or_else(|| self.entries.iter().find(is_it))
    }

    /// The memory behind a placement.
    pub(crate) fn memory(&self, region: RegionId) -> Option<&dyn Pinned> {
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
