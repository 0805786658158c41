//! Joins a cluster, and leaves it.

use std::time::Duration;

use control::{Force, JoinCluster};
use tokio::time::{Instant, sleep};

use super::admit::{Admission, remove_etcd};
use super::create::address;
use super::enter;
use super::messages::{ADMIT, offer};
use super::shared::{Active, SharedNode};
use super::{view, volumes};
use crate::etcd::{Txn, TxnOutcome};
use crate::fault::Fault;
use crate::keys::{Keys, record};
use crate::link::ask;
use crate::membership::{EtcdUse, Membership, NodeRecord};

/// How long the other node may take to admit this one.
const ADMIT_LIMIT: Duration = Duration::from_secs(60);
/// How long this node may take to be up; afterwards the cluster is reported as it is.
const UP_LIMIT: Duration = Duration::from_secs(60);
/// How long etcd may take to let this node go.
const LEAVE_LIMIT: Duration = Duration::from_secs(20);
/// Between two attempts.
const RETRY: Duration = Duration::from_millis(100);

pub(super) async fn join(shared: &SharedNode, request: JoinCluster) -> Result<(), Fault> {
    let _changing = shared.changing.try_lock().map_err(|_| Fault::Busy)?;
    shared.require_none()?;
    let address = address(&request.address)?;
    let admission = Admission {
        offer: offer(shared).await,
    };
    let membership: Membership = ask(&shared.link, address, ADMIT, &admission, ADMIT_LIMIT).await?;
    let name = membership.node.name.clone();
    enter(shared, membership)?;
    let active = shared.active()?;
    let begin = Instant::now();
    while begin.elapsed() < UP_LIMIT {
        let up = view::alive(&active).await;
        if up.is_ok_and(|up| up.contains(name.as_str())) {
            break;
        }
        sleep(RETRY).await;
    }
    Ok(())
}

pub(super) async fn leave(shared: &SharedNode, force: Force) -> Result<(), Fault> {
    let _changing = shared.changing.try_lock().map_err(|_| Fault::Busy)?;
    let active = shared.active()?;
    let Membership {
        cluster,
        node,
        is_established,
        ..
    } = &active.membership;
    if *is_established {
        let nodes = view::nodes(&active).await?;
        let is_last = nodes.iter().all(|other| other.name == node.name);
        let (cluster, name) = (cluster.clone(), node.name.clone());
        if force == Force::No {
            return Err(if is_last {
                Fault::EndNeedsForce { cluster, name }
            } else {
                Fault::LeaveNeedsForce { cluster, name }
            });
        }
        let begin = Instant::now();
        // etcd may have to elect another leader meanwhile.
        while let Err(fault) = withdraw(&active, is_last).await {
            if !matches!(fault, Fault::Etcd(_) | Fault::Changed) || begin.elapsed() >= LEAVE_LIMIT {
                return Err(fault);
            }
            sleep(RETRY).await;
        }
    }
    shared.end().await;
    volumes::forget(shared).await;
    Ok(shared.folder.clear()?)
}

/// Takes the node out of etcd. It can be repeated.
async fn withdraw(active: &Active, is_last: bool) -> Result<(), Fault> {
    let Membership {
        cluster,
        node,
        etcd,
        ..
    } = &active.membership;
    let keys = Keys::of(cluster);
    let txn = match (etcd, is_last) {
        // The keys end with the etcd.
        (EtcdUse::Own { .. }, true) => return Ok(()),
        (EtcdUse::External { .. }, true) => Txn::new().delete_prefix(&keys.all()),
        (_, false) => {
            if let EtcdUse::Own { runs: Some(_), .. } = etcd {
                remove_etcd(active).await?;
            }
            let key = keys.node(&node.name);
            let Some(entry) = active.etcd.get(&key).await? else {
                return Ok(());
            };
            if record::<NodeRecord>(&entry)?.number != node.number {
                // It has left before, and another one has its name now.
                return Ok(());
            }
            let txn = Txn::new().if_revision(&key, entry.revision);
            txn.delete(&key).delete(&keys.alive_node(&node.name))
        }
    };
    match active.etcd.commit(txn).await? {
        TxnOutcome::Made { .. } => Ok(()),
        TxnOutcome::ConditionFailed => Err(Fault::Changed),
    }
}
