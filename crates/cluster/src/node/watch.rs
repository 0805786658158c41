//! What the nodes of the cluster do: each is asked for its counters.
//!
//! The nodes are asked at the same time, so one that does not answer delays the others by
//! [`ASK_LIMIT`] at most, and only until its lease has ended.

use std::collections::BTreeSet;
use std::time::Duration;

use control::{NodeCounters, WatchView, WatchedNode};
use tokio::task::{JoinSet, spawn_blocking};
use tokio::time::timeout;

use super::messages::{COUNTERS, Nothing};
use super::shared::{Active, KnownNode, Shared, SharedNode};
use super::view::{alive, nodes};
use crate::fault::Fault;
use crate::link::ask;

/// How long a node may take to answer.
const ASK_LIMIT: Duration = Duration::from_secs(1);
/// How long etcd may take to list the nodes.
const LIST_LIMIT: Duration = Duration::from_secs(1);

/// What this node has done.
pub(super) async fn counters(shared: &SharedNode) -> Result<NodeCounters, Fault> {
    let name = shared.active()?.membership.node.name;
    let engine = shared.engine.clone();
    let counted = spawn_blocking(move || engine.node_counters(Some(name.as_str()))).await;
    Ok(counted.expect("counters are read without a panic"))
}

/// What each node has done.
pub(super) async fn watch(shared: &SharedNode) -> Result<WatchView, Fault> {
    let active = shared.active()?;
    let (known, problem) = known(shared, &active).await;
    let mut asked = JoinSet::new();
    for node in known {
        let shared = shared.clone();
        let is_own = node.name == active.membership.node.name;
        asked.spawn(async move {
            if is_own {
                let counters = counters(&shared).await;
                return watched(&node, counters);
            }
            if !node.is_up {
                let reason = "its lease in etcd has ended: it is stopped, or cut off from etcd";
                return WatchedNode::silent(node.name.as_str(), reason.to_owned());
            }
            let answer = ask(&shared.link, node.address, COUNTERS, &Nothing {}, ASK_LIMIT).await;
            watched(&node, answer)
        });
    }
    let mut nodes = asked.join_all().await;
    nodes.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(WatchView {
        cluster: Some(active.membership.cluster.to_string()),
        nodes,
        problem,
    })
}

fn watched(node: &KnownNode, answer: Result<NodeCounters, impl std::fmt::Display>) -> WatchedNode {
    match answer {
        Ok(counters) => WatchedNode::answered(node.name.as_str(), counters),
        Err(error) => WatchedNode::silent(node.name.as_str(), error.to_string()),
    }
}

/// The nodes; if etcd does not answer those that it had last, or this node alone, with the reason.
async fn known(shared: &Shared, active: &Active) -> (Vec<KnownNode>, Option<String>) {
    let problem = match timeout(LIST_LIMIT, list(active)).await {
        Ok(Ok(now)) => {
            shared.known().clone_from(&now);
            return (now, None);
        }
        Ok(Err(fault)) => fault.to_string(),
        Err(_) => format!("etcd does not answer within {} s", LIST_LIMIT.as_secs()),
    };
    let mut known = shared.known().clone();
    let own = &active.membership.node;
    if known.iter().all(|node| node.name != own.name) {
        known = vec![KnownNode {
            name: own.name.clone(),
            address: own.address,
            is_up: true,
        }];
    }
    for node in &mut known {
        // Whether its lease is alive cannot be known now.
        node.is_up = true;
    }
    (known, Some(format!("nodes may be missing: {problem}")))
}

async fn list(active: &Active) -> Result<Vec<KnownNode>, Fault> {
    let up: BTreeSet<String> = alive(active).await?;
    let nodes = nodes(active).await?.into_iter();
    let known = nodes.map(|node| KnownNode {
        is_up: up.contains(node.name.as_str()),
        name: node.name,
        address: node.address,
    });
    Ok(known.collect())
}
