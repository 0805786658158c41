//! Drains nodes, and says how far that is.

use control::{Force, NodeRole, RepairAfter};

use super::loads::Loads;
use super::shared::{Active, SharedNode};
use super::view;
use crate::etcd::{Txn, TxnOutcome};
use crate::fault::Fault;
use crate::keys::{ClusterRecord, Keys, record, value};
use crate::membership::NodeRecord;

/// Marks a node: its primaries and copies are to be elsewhere.
pub(super) async fn drain(shared: &SharedNode, name: &str, force: Force) -> Result<(), Fault> {
    let active = shared.active()?;
    let node = node(&active, name).await?;
    if node.role != NodeRole::Storage {
        let name = node.name;
        return Err(Fault::DrainOfWitness { name });
    }
    let keys = Keys::of(&active.membership.cluster);
    let loads = {
        let mirror = shared.mirror();
        // This machine may not have heard of anything yet.
        mirror.cluster(keys).ok_or(Fault::Changed)?;
        Loads::read(&mirror, keys)?
    };
    let load = loads.of(node.number);
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
