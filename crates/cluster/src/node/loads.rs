//! Where copies and primaries are, from what etcd has.

use std::collections::BTreeSet;

use control::{DrainView, Volume, VolumeKind, VolumeName};
use node_link::VolumeId;
use replica::Config;

use super::mirror::Mirror;
use super::pool::{Up, pool};
use super::volumes::id_of;
use crate::agreement::config;
use crate::etcd::Entry;
use crate::fault::Fault;
use crate::keys::{Keys, record};
use crate::placement::Pool;

/// A volume and its configuration, each with the revision that wrote it.
pub(super) struct PlacedVolume {
    pub(super) name: VolumeName,
    pub(super) id: VolumeId,
    pub(super) volume: Volume,
    pub(super) volume_revision: i64,
    pub(super) config: Config,
    pub(super) config_revision: i64,
}

impl PlacedVolume {
    /// The nodes that hold copies.
    pub(super) fn nodes(&self) -> Vec<u32> {
        let placement = self.volume.kind.0.placement();
        placement.map_or_else(Vec::new, |placement| placement.nodes.clone())
    }

    /// How many copies there are to be.
    pub(super) fn wanted(&self) -> usize {
        match self.volume.kind.0 {
            VolumeKind::Replicated { copies, .. } => copies.into(),
            _ => 0,
        }
    }

    /// The nodes whose copies are in sync.
    pub(super) fn in_sync(&self) -> Vec<u32> {
        self.config.in_sync.iter().map(|id| id.node).collect()
    }
}

/// The nodes that can hold copies.
pub(super) fn up(mirror: &Mirror, keys: Keys<'_>) -> Result<Up, Fault> {
    let alive = mirror.below(&keys.alive()).cloned().collect();
    Up::read(&mirror.nodes(keys)?, alive, &keys.alive())
}

/// The definitions of volumes.
pub(super) fn definitions(mirror: &Mirror, keys: Keys<'_>) -> Vec<Entry> {
    mirror.below(&keys.volumes()).cloned().collect()
}

/// The volumes whose configuration is known.
pub(super) fn volumes(mirror: &Mirror, keys: Keys<'_>) -> Result<Vec<PlacedVolume>, Fault> {
    let mut volumes = Vec::new();
    for entry in mirror.below(&keys.volumes()) {
        let damaged = || Fault::Damaged {
            key: entry.key.clone(),
        };
        let name = entry.key.strip_prefix(&keys.volumes());
        let name = name.and_then(|name| name.parse().ok());
        let volume: Volume = record(entry)?;
        let id = id_of(&volume).ok_or_else(damaged)?;
        if let Some(found) = mirror.entry(&keys.config(id)) {
            volumes.push(PlacedVolume {
                name: name.ok_or_else(damaged)?,
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

/// What a node has, and what would move if it were drained.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct NodeLoad {
    pub(super) copies: usize,
    pub(super) primaries: usize,
    /// Volumes of which a copy or the primary moves away.
    pub(super) moving: usize,
    /// Copies that fit on no other node.
    pub(super) staying: usize,
}

/// What nodes have, for looking at several of them.
pub(super) struct Loads {
    pool: Pool,
    volumes: Vec<PlacedVolume>,
    drained: BTreeSet<u32>,
}

impl Loads {
    /// What this node has heard of.
    pub(super) fn read(mirror: &Mirror, keys: Keys<'_>) -> Result<Self, Fault> {
        let (nodes, up) = (mirror.nodes(keys)?, up(mirror, keys)?);
        Ok(Self {
            pool: pool(&nodes, &up, &definitions(mirror, keys))?,
            volumes: volumes(mirror, keys)?,
            drained: mirror.drained(keys),
        })
    }

    pub(super) fn of(&self, node: u32) -> NodeLoad {
        let mut avoided = self.drained.clone();
        avoided.insert(node);
        let lost = BTreeSet::from([node]);
        let degraded = self.pool.restoration(&lost).degraded;
        let degraded: BTreeSet<u64> = degraded.into_iter().collect();
        let mut load = NodeLoad::default();
        for volume in &self.volumes {
            load.add(volume, node, &avoided, (&self.pool, &degraded));
        }
        load
    }
}

impl NodeLoad {
    fn add(
        &mut self,
        volume: &PlacedVolume,
        node: u32,
        avoided: &BTreeSet<u32>,
        (pool, degraded): (&Pool, &BTreeSet<u64>),
    ) {
        let nodes = volume.nodes();
        let is_here = nodes.contains(&node) || volume.in_sync().contains(&node);
        let is_primary = volume.config.primary.node == node;
        self.copies += usize::from(is_here);
        self.primaries += usize::from(is_primary);
        // A further copy is there already, or fits elsewhere.
        let kept: Vec<u32> = nodes.iter().copied().filter(|it| *it != node).collect();
        let has_other = kept.len() >= volume.wanted();
        let can_leave = has_other
            || !kept.is_empty() && !degraded.contains(&volume.id.0)
            || kept.is_empty() && pool.another_node(volume.id.0, &kept).is_some();
        let mut in_sync = volume.in_sync().into_iter();
        let can_move = is_primary && in_sync.any(|it| !avoided.contains(&it));
        self.staying += usize::from(is_here && !can_leave);
        self.moving += usize::from(is_here && can_leave || can_move);
    }

    /// How far the drain of a node is.
    pub(super) fn drain_view(&self) -> DrainView {
        DrainView {
            moving: self.moving,
            staying: self.staying,
        }
    }
}
