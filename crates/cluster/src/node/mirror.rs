//! What etcd had when this node last heard of it, so that looking at it costs etcd nothing.

use std::collections::{BTreeMap, BTreeSet};

use crate::etcd::{Change, Entry};
use crate::fault::Fault;
use crate::keys::{ClusterRecord, Keys, record};
use crate::membership::NodeRecord;

/// The entries of the cluster.
#[derive(Debug, Default)]
pub(super) struct Mirror {
    entries: BTreeMap<String, Entry>,
    /// Grows with each change.
    changes: u64,
}

impl Mirror {
    /// Takes all that etcd has.
    pub(super) fn replace(&mut self, entries: &[Entry]) {
        let all = entries.iter();
        self.entries = all
            .map(|entry| (entry.key.clone(), entry.clone()))
            .collect();
        self.changes += 1;
    }

    pub(super) fn take(&mut self, change: &Change) {
        match change {
            Change::Put(entry) => drop(self.entries.insert(entry.key.clone(), entry.clone())),
            Change::Deleted { key, .. } => drop(self.entries.remove(key)),
        }
        self.changes += 1;
    }

    /// A number that is another one after each change.
    pub(super) fn changes(&self) -> u64 {
        self.changes
    }

    pub(super) fn entry(&self, key: &str) -> Option<&Entry> {
        self.entries.get(key)
    }

    /// The entries whose keys begin with `prefix`.
    pub(super) fn below(&self, prefix: &str) -> impl Iterator<Item = &Entry> {
        let range = self.entries.range(prefix.to_owned()..);
        let prefix = prefix.to_owned();
        let below = range.take_while(move |(key, _)| key.starts_with(&prefix));
        below.map(|(_, entry)| entry)
    }

    pub(super) fn cluster(&self, keys: Keys<'_>) -> Option<ClusterRecord> {
        record(self.entries.get(&keys.cluster())?).ok()
    }

    pub(super) fn nodes(&self, keys: Keys<'_>) -> Result<Vec<NodeRecord>, Fault> {
        self.below(&keys.nodes()).map(record).collect()
    }

    /// The numbers of the nodes that are drained.
    pub(super) fn drained(&self, keys: Keys<'_>) -> BTreeSet<u32> {
        let nodes = self.nodes(keys).unwrap_or_default().into_iter();
        let drained = nodes.filter(|node| node.is_drained);
        drained.map(|node| node.number).collect()
    }
}
