//! What etcd had when this node last heard of it, so that looking at it costs etcd nothing.

use std::collections::{BTreeMap, BTreeSet};

use control::{Volume, VolumeName};
use node_link::VolumeId;
use replica::Config;

use super::place::Up;
use super::volumes::id_of;
use crate::agreement::config;
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

/// A volume and its configuration, each with the revision that wrote it.
pub(super) struct PlacedVolume {
    pub(super) name: VolumeName,
    pub(super) id: VolumeId,
    pub(super) volume: Volume,
    pub(super) volume_revision: i64,
    pub(super) config: Config,
    pub(super) config_revision: i64,
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

    fn below(&self, prefix: &str) -> impl Iterator<Item = &Entry> {
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

    /// The nodes that can hold copies.
    pub(super) fn up(&self, keys: Keys<'_>) -> Result<Up, Fault> {
        let alive = self.below(&keys.alive()).cloned().collect();
        Up::read(&self.nodes(keys)?, alive, &keys.alive())
    }

    /// The definitions of volumes.
    pub(super) fn definitions(&self, keys: Keys<'_>) -> Vec<Entry> {
        self.below(&keys.volumes()).cloned().collect()
    }

    /// The volumes whose configuration is known.
    pub(super) fn volumes(&self, keys: Keys<'_>) -> Result<Vec<PlacedVolume>, Fault> {
        let mut volumes = Vec::new();
        for entry in self.below(&keys.volumes()) {
            let damaged = || Fault::Damaged {
                key: entry.key.clone(),
            };
            let name = entry.key.strip_prefix(&keys.volumes());
            let name = name
                .and_then(|name| name.parse().ok())
                .ok_or_else(damaged)?;
            let volume: Volume = record(entry)?;
            let id = id_of(&volume).ok_or_else(damaged)?;
            if let Some(found) = self.entries.get(&keys.config(id)) {
                volumes.push(PlacedVolume {
                    name,
                    id,
                    volume,
                    volume_revision: entry.revision,
                    config: config(found)?,
                    config_revision: found.revision,
                });
            }
        }
        Ok(volumes)
    }
}
