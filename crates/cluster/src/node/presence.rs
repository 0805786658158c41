//! What a member does all the time: it shows that it is there, by a lease in etcd, and notes which
//! others are.

use std::collections::BTreeSet;
use std::time::Duration;

use tokio::task::AbortHandle;
use tokio::time::sleep;

use super::shared::{Active, SharedNode};
use crate::etcd::{Change, EtcdError, Lease, Txn, TxnOutcome};
use crate::etcd_program::peer_url;
use crate::fault::Fault;
use crate::keys::{AliveRecord, ClusterRecord, Keys, record, value};
use crate::membership::{EtcdUse, Membership, NodeRecord};

/// A node that was not heard of for so long is down.
const LEASE_TTL: Duration = Duration::from_secs(6);
/// How often the lease is kept alive.
const KEEP_ALIVE: Duration = Duration::from_secs(2);
/// After an error of etcd.
const RETRY: Duration = Duration::from_millis(500);
/// How often a node looks whether its cluster exists.
const WAIT_FOR_CLUSTER: Duration = Duration::from_millis(100);
/// After the node found that it was removed.
const REMOVED_PAUSE: Duration = Duration::from_secs(30);
/// Where etcd is reached is asked again after so many times of keeping the lease alive.
const REFRESH_EVERY: u32 = 15;
/// A watch without changes is begun again after so long.
const WATCH_LIMIT: Duration = Duration::from_secs(60);

/// Starts the tasks.
pub(super) fn start(shared: &SharedNode, active: &Active) -> Vec<AbortHandle> {
    let keep = tokio::spawn(keep(shared.clone(), active.clone()));
    let watch = tokio::spawn(watch(active.clone()));
    vec![keep.abort_handle(), watch.abort_handle()]
}

async fn keep(shared: SharedNode, active: Active) {
    wait_for_cluster(&active).await;
    if let Err(error) = shared.establish() {
        tracing::error!(%error, "cannot note that the cluster exists");
    }
    loop {
        match register(&shared, &active).await {
            Ok(Some(lease)) => hold(&shared, &active, lease).await,
            Ok(None) => {
                let cluster = active.membership.cluster.as_str();
                tracing::error!(
                    cluster,
                    "this node was removed from its cluster; `ramport cluster leave` makes it forget that"
                );
                sleep(REMOVED_PAUSE).await;
            }
            Err(error) => {
                tracing::debug!(%error, "cannot show that this node is up");
                sleep(RETRY).await;
            }
        }
    }
}

/// Waits until the cluster is in etcd.
pub(super) async fn wait_for_cluster(active: &Active) {
    let Membership { cluster, id, .. } = &active.membership;
    let key = Keys::of(cluster).cluster();
    loop {
        if let Ok(Some(entry)) = active.etcd.get(&key).await
            && record::<ClusterRecord>(&entry).is_ok_and(|found| found.id == *id)
        {
            return;
        }
        sleep(WAIT_FOR_CLUSTER).await;
    }
}

/// Renews the node's record and shows by a lease that it is up. Returns nothing if the node was
/// removed.
async fn register(shared: &SharedNode, active: &Active) -> Result<Option<Lease>, Fault> {
    let Membership { cluster, node, .. } = &active.membership;
    let keys = Keys::of(cluster);
    let key = keys.node(&node.name);
    let Some(entry) = active.etcd.get(&key).await? else {
        return Ok(None);
    };
    let old: NodeRecord = record(&entry)?;
    if old.number != node.number {
        return Ok(None);
    }
    let new = NodeRecord {
        memory_bytes: node.role_memory(shared.own.memory_bytes),
        zone: shared.own.zone.clone(),
        is_drained: old.is_drained,
        ..node.clone()
    };
    let lease = active.etcd.grant_lease(LEASE_TTL).await?;
    let txn = Txn::new().if_revision(&key, entry.revision);
    let alive = AliveRecord {
        number: new.number,
        incarnation: active.incarnation.get().copied(),
    };
    let txn = txn.put_leased(&keys.alive_node(&node.name), value(&alive), lease);
    let txn = if new == old {
        txn
    } else {
        txn.put(&key, value(&new))
    };
    match active.etcd.commit(txn).await? {
        TxnOutcome::Made { .. } => Ok(Some(lease)),
        TxnOutcome::ConditionFailed => Err(Fault::Changed),
    }
}

impl NodeRecord {
    /// What a budget of the machine is worth to the cluster.
    pub(super) fn role_memory(&self, budget_bytes: u64) -> u64 {
        match self.role {
            control::NodeRole::Storage => budget_bytes,
            control::NodeRole::Witness => 0,
        }
    }
}

/// Keeps the lease alive until it has ended nevertheless, or the node has more to say.
async fn hold(shared: &SharedNode, active: &Active, lease: Lease) {
    let mut is_settled = false;
    let has_copies = active.incarnation.get().is_some();
    for round in 0.. {
        if active.incarnation.get().is_some() != has_copies {
            // It says so when it registers again.
            return;
        }
        match active.etcd.keep_alive(lease).await {
            Ok(true) => {}
            Ok(false) => return,
            // The lease may have ended, which the next answer says.
            Err(error) => tracing::debug!(%error, "cannot keep the lease alive"),
        }
        if !is_settled || round % REFRESH_EVERY == 0 {
            is_settled = match refresh(shared, active).await {
                Ok(is_settled) => is_settled,
                Err(error) => {
                    tracing::debug!(%error, "cannot ask for the members of etcd");
                    false
                }
            };
        }
        sleep(KEEP_ALIVE).await;
    }
}

/// Notes where etcd is reached, and asks for a vote of this node's etcd. Returns whether it has
/// one, or runs none.
async fn refresh(shared: &SharedNode, active: &Active) -> Result<bool, Fault> {
    let Membership { etcd, node, .. } = &active.membership;
    let EtcdUse::Own { runs, .. } = etcd else {
        return Ok(true);
    };
    let members = active.etcd.members().await?;
    let own = peer_url(node.address);
    let learner = members
        .iter()
        .find(|it| it.is_learner && it.peer_urls.contains(&own));
    let learner = learner.filter(|_| runs.is_some());
    if let Some(learner) = learner
        // Refused until it has all that the others have.
        && let Err(error) = active.etcd.promote(learner.id).await
    {
        tracing::debug!(%error, "the etcd of this node has no vote yet");
    }
    let voters = members.iter().filter(|member| !member.is_learner);
    let mut urls: Vec<_> = voters
        .flat_map(|member| member.client_urls.clone())
        .collect();
    if !urls.is_empty() {
        let near = crate::etcd_program::client_url(node.address);
        urls.sort_by_key(|url| *url != near);
        active.etcd.set_endpoints(urls.clone());
        shared.note_endpoints(&urls)?;
    }
    Ok(learner.is_none())
}

/// Logs which other nodes come and go.
async fn watch(active: Active) {
    let Membership { cluster, node, .. } = &active.membership;
    let prefix = Keys::of(cluster).alive();
    let mut up = BTreeSet::new();
    loop {
        let followed = follow(&active, &prefix, &mut up, node.name.as_str()).await;
        if let Err(error) = followed {
            tracing::debug!(%error, "cannot watch the other nodes");
        }
        sleep(RETRY).await;
    }
}

async fn follow(
    active: &Active,
    prefix: &str,
    up: &mut BTreeSet<String>,
    own: &str,
) -> Result<(), EtcdError> {
    let (entries, revision) = active.etcd.list(prefix).await?;
    let names = entries
        .iter()
        .filter_map(|entry| entry.key.strip_prefix(prefix));
    let now: BTreeSet<String> = names.map(str::to_owned).collect();
    for name in up.symmetric_difference(&now) {
        tell(name, now.contains(name), own);
    }
    *up = now;
    let mut watch = active.etcd.watch(prefix, revision + 1).await?;
    loop {
        let changes = watch.next(WATCH_LIMIT).await?;
        if changes.is_empty() {
            // The other end may be gone without a sign.
            return Ok(());
        }
        for change in changes {
            let (key, is_up) = match &change {
                Change::Put(entry) => (&entry.key, true),
                Change::Deleted { key, .. } => (key, false),
            };
            let Some(name) = key.strip_prefix(prefix) else {
                continue;
            };
            let is_new = if is_up {
                up.insert(name.to_owned())
            } else {
                up.remove(name)
            };
            if is_new {
                tell(name, is_up, own);
            }
        }
    }
}

fn tell(node: &str, is_up: bool, own: &str) {
    match (is_up, node == own) {
        (true, _) => tracing::info!(node, "a node of the cluster is up"),
        (false, false) => tracing::warn!(node, "a node of the cluster is down"),
        (false, true) => tracing::warn!(node, "etcd did not hear of this node in time"),
    }
}
