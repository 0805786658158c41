//! The cluster as etcd has it.

use std::collections::BTreeSet;

use control::{ClusterView, NodeState, NodeView};

use super::loads::{Loads, NodeLoad};
use super::shared::{Active, Shared};
use crate::etcd_program::peer_url;
use crate::fault::Fault;
use crate::keys::{ClusterRecord, Keys, record};
use crate::membership::{EtcdUse, Membership, NodeRecord};

/// Every node.
pub(super) async fn nodes(active: &Active) -> Result<Vec<NodeRecord>, Fault> {
    let prefix = Keys::of(&active.membership.cluster).nodes();
    let (entries, _) = active.etcd.list(&prefix).await?;
    entries.iter().map(record).collect()
}

/// The names of the nodes that are up.
pub(super) async fn alive(active: &Active) -> Result<BTreeSet<String>, Fault> {
    let prefix = Keys::of(&active.membership.cluster).alive();
    let (entries, _) = active.etcd.list(&prefix).await?;
    let names = entries
        .iter()
        .filter_map(|entry| entry.key.strip_prefix(&prefix));
    Ok(names.map(str::to_owned).collect())
}

/// What people see.
pub(super) async fn show(shared: &Shared, active: &Active) -> Result<ClusterView, Fault> {
    let nodes = nodes(active).await?;
    let up = alive(active).await?;
    let Membership {
        cluster,
        id,
        node,
        etcd,
        ..
    } = &active.membership;
    let etcd_is_own = matches!(etcd, EtcdUse::Own { .. });
    let mut voters = Vec::new();
    if etcd_is_own {
        let members = active.etcd.members().await?;
        let members = members.into_iter().filter(|member| !member.is_learner);
        voters.extend(members.flat_map(|member| member.peer_urls));
    }
    let keys = Keys::of(cluster);
    let cluster_record = active.etcd.get(&keys.cluster()).await?;
    let cluster_record: Option<ClusterRecord> = cluster_record.as_ref().map(record).transpose()?;
    let loads = Loads::read(&shared.mirror(), keys)?;
    let views = nodes
        .iter()
        .map(|node| view(node, loads.of(node.number), &up, &voters));
    let views = views.collect();
    let budgets = nodes.iter().map(|node| node.memory_bytes);
    let memory_bytes: u64 = budgets.clone().sum();
    let largest = budgets.max().unwrap_or(0);
    Ok(ClusterView {
        name: cluster.to_string(),
        id: id.to_string(),
        this_node: node.name.to_string(),
        etcd: active
            .etcd
            .endpoints()
            .iter()
            .map(ToString::to_string)
            .collect(),
        etcd_is_own,
        memory_bytes,
        memory_after_loss_bytes: memory_bytes - largest,
        etcd_losses_max: etcd_is_own.then(|| voters.len().saturating_sub(1) / 2),
        repair_after_s: cluster_record.map_or(0, |found| found.repair_after_s),
        nodes: views,
    })
}

fn view(node: &NodeRecord, load: NodeLoad, up: &BTreeSet<String>, voters: &[String]) -> NodeView {
    let is_up = up.contains(node.name.as_str());
    NodeView {
        name: node.name.to_string(),
        number: node.number,
        address: node.address.to_string(),
        role: node.role,
        zone: node.zone.to_string(),
        memory_bytes: node.memory_bytes,
        copies: load.copies,
        primaries: load.primaries,
        drain: node.is_drained.then(|| load.drain_view()),
        has_etcd: voters.contains(&peer_url(node.address)),
        state: if is_up {
            NodeState::Up
        } else {
            NodeState::Down
        },
    }
}
