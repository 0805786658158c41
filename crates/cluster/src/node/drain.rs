//! Drains nodes, and says how far that is.

use std::collections::BTreeSet;

use control::{DrainView, Force, NodeRole, RepairAfter};

use super::mirror::{Mirror, PlacedVolume};
use super::place::pool;
use super::shared::{Active, SharedNode};
use super::view;
use crate::etcd::{Txn, TxnOutcome};
use crate::fault::Fault;
use crate::keys::{ClusterRecord, Keys, record, value};
use crate::membership::NodeRecord;
use crate::placement::Pool;

/// Marks a node: its primaries and copies are to be elsewhere.
pub(super) async fn drain(shared: &SharedNode, name: &str, force: Force) -> Result<(), Fault> {
    let active = shared.active()?;
    let node = node(&active, name).await?;
    if node.role != NodeRole::Storage {
        let name = node.name;
        return Err(Fault::DrainOfWitness { name });
    }
    let keys = Keys::of(&active.membership.cluster);
    let load = NodeLoad::of(&shared.mirror(), keys, &node)?;
    if force == Force::No && load.staying > 0 {
        return Err(Fault::DrainNeedsForce {
            name: node.name,
            copies: load.staying,
        });
    }
    mark(&active, name, true).await
}

/// The node may hold copies and primaries again.
pub(super) async fn undrain(shared: &SharedNode, name: &str) -> Result<(), Fault> {
    mark(&shared.active()?, name, false).await
}

/// Sets after which time without a node its copies are made elsewhere.
pub(super) async fn set_repair_after(shared: &SharedNode, after: RepairAfter) -> Result<(), Fault> {
    let active = shared.active()?;
    let key = Keys::of(&active.membership.cluster).cluster();
    let found = active.etcd.get(&key).await?;
    let entry = found.ok_or_else(|| Fault::Damaged { key: key.clone() })?;
    let cluster = ClusterRecord {
        repair_after_s: after.0,
        ..record(&entry)?
    };
    let txn = Txn::new().if_revision(&key, entry.revision);
    made(&active, txn.put(&key, value(&cluster))).await
}

async fn node(active: &Active, name: &str) -> Result<NodeRecord, Fault> {
    let nodes = view::nodes(active).await?;
    let node = nodes.into_iter().find(|node| node.name.as_str() == name);
    node.ok_or_else(|| Fault::NoNode {
        name: name.to_owned(),
    })
}

async fn mark(active: &Active, name: &str, is_drained: bool) -> Result<(), Fault> {
    let keys = Keys::of(&active.membership.cluster);
    let key = keys.node(&node(active, name).await?.name);
    let entry = active.etcd.get(&key).await?.ok_or(Fault::Changed)?;
    let old: NodeRecord = record(&entry)?;
    if old.is_drained == is_drained {
        return Ok(());
    }
    let new = NodeRecord { is_drained, ..old };
    let txn = Txn::new().if_revision(&key, entry.revision);
    // What is placed at this moment is placed again, with regard to this.
    let txn = txn.put(&keys.pool(), Vec::new()).put(&key, value(&new));
    made(active, txn).await
}

async fn made(active: &Active, txn: Txn) -> Result<(), Fault> {
    match active.etcd.commit(txn).await? {
        TxnOutcome::Made { .. } => Ok(()),
        TxnOutcome::ConditionFailed => Err(Fault::Changed),
    }
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

impl NodeLoad {
    pub(super) fn of(mirror: &Mirror, keys: Keys<'_>, node: &NodeRecord) -> Result<Self, Fault> {
        let nodes = mirror.nodes(keys)?;
        let pool = pool(&nodes, &mirror.up(keys)?, &mirror.definitions(keys))?;
        let mut avoided = mirror.drained(keys);
        avoided.insert(node.number);
        let lost = BTreeSet::from([node.number]);
        let degraded: BTreeSet<u64> = pool.restoration(&lost).degraded.into_iter().collect();
        let mut load = Self::default();
        for volume in mirror.volumes(keys)? {
            load.add(&volume, node.number, &avoided, (&pool, &degraded));
        }
        Ok(load)
    }

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
