//! The volumes that a connection has used, by the numbers of its protocol, with the counters of its
//! commands. Connections of all protocols use this on the data path, where it takes no lock.

use std::sync::Arc;
use std::time::Instant;

use block::{Pinned, Volume};
use session::SourceId;

use crate::counters::{Batch, Counters, Totals};
use crate::unsent::{Done, Unsent};

/// The volumes of a connection by `K`, the protocol's number. `P` is what the protocol stores with
/// each.
pub(crate) struct Views<K, P> {
    entries: Vec<Entry<K, P>>,
    /// The index of the entry used last: most connections use one volume.
    last: usize,
    sources: Sources,
    unsent: Unsent<K>,
    /// The totals to which all counters belong, besides the volume's: of the portal, the thread,
    /// the session and the target.
    sums: Vec<Arc<Totals>>,
}

/// A volume as of its last look-up.
pub(crate) struct Entry<K, P> {
    pub(crate) key: K,
    pub(crate) source: SourceId,
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
struct Sources {
    last: u32,
    retired: Vec<(SourceId, Arc<dyn Volume>)>,
}

impl<P> Found<P> {
    /// The same with another part.
    pub(crate) fn map<T>(self, change: impl FnOnce(P) -> T) -> Found<T> {
        Found {
            volume: self.volume,
            part: change(self.part),
            totals: self.totals,
        }
    }
}

impl<K: Copy + Ord, P> Views<K, P> {
    /// Nothing is looked up yet; counts in the totals `sums`.
    pub(crate) fn new(sums: Vec<Arc<Totals>>) -> Self {
        Self {
            entries: Vec::new(),
            last: 0,
            sources: Sources::default(),
            unsent: Unsent::default(),
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
        self.sources.last += 1;
        Entry {
            key,
            source: SourceId(self.sources.last),
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
                    self.sources.retired.push((entry.source, entry.volume));
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
        if let Some((key, batch)) = self.unsent.note(done) {
            record(&self.entries, &key, &batch);
        }
    }

    /// The replies of the noted commands were sent.
    pub(crate) fn handle_sent(&mut self, now: Instant) {
        let entries = &self.entries;
        self.unsent
            .handle_sent(now, |key, batch| record(entries, &key, batch));
    }

    /// Nothing is waiting to be sent any more.
    pub(crate) fn handle_drained(&mut self) {
        self.sources.retired.clear();
    }

    /// The volume of a source, unless it was removed.
    pub(crate) fn of_source(&self, source: SourceId) -> Option<&Entry<K, P>> {
        let is_it = |entry: &&Entry<K, P>| entry.source == source;
        let last = self.entries.get(self.last).filter(is_it);
        last.or_else(|| self.entries.iter().find(is_it))
    }

    /// The memory behind a placement.
    pub(crate) fn memory(&self, source: SourceId) -> Option<&dyn Pinned> {
        let retired = || self.sources.retired.iter().find(|(id, _)| *id == source);
        match self.of_source(source) {
            Some(view) => view.volume.pinned(),
            None => retired().and_then(|(_, volume)| volume.pinned()),
        }
    }
}

fn record<K: Ord, P>(entries: &[Entry<K, P>], key: &K, batch: &Batch) {
    if let Ok(at) = entries.binary_search_by_key(&key, |entry| &entry.key) {
        entries[at].counters.record(batch);
    }
}
