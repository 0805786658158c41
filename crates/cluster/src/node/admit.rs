//! Admits a node to the cluster.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::time::{Instant, sleep};

use control::{NodeRole, PemIdentity};

use super::messages::Offer;
use super::shared::{Active, SharedNode};
use super::view;
use crate::certificates::{Authority, Subject};
use crate::etcd::{Member, Txn, TxnOutcome};
use crate::etcd_program::{client_url, peer_url};
use crate::fault::Fault;
use crate::keys::{ClusterRecord, Keys, record, value};
use crate::membership::{EtcdRun, EtcdUse, Membership, NodeRecord};

/// Nodes run so many etcds before a further one only makes changes slower.
const ETCDS_WANTED: usize = 3;
/// How long the etcd of another new node may take to get its vote.
const LEARNER_LIMIT: Duration = Duration::from_secs(15);
/// Between two looks.
const RETRY: Duration = Duration::from_millis(200);

/// A node that wants to be admitted.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Admission {
    pub(super) offer: Offer,
}

/// Gives a new node its membership. A node that is down is admitted again, with its number, if it
/// has the same name and address: it may have been set up anew, or its admission broke off.
pub(super) async fn admit(shared: &SharedNode, request: Admission) -> Result<Membership, Fault> {
    let active = shared.active()?;
    let Admission { offer } = request;
    let (node, enlisted) = enlist(&active, &offer).await?;
    let Membership {
        cluster,
        id,
        etcd,
        authority_key,
        ..
    } = &active.membership;
    let etcd = match etcd {
        EtcdUse::External { .. } => etcd.clone(),
        EtcdUse::Own { .. } => etcd_for(&active, &node, offer.has_etcd).await?,
    };
    if let TxnOutcome::ConditionFailed = active.etcd.commit(enlisted).await? {
        return Err(Fault::Changed);
    }
    let authority = Authority::restore(cluster.as_str(), &authority_key.0)?;
    let identity = identity(&authority, &node)?;
    let key = authority.key();
    let cluster = (cluster.clone(), *id);
    Ok(Membership::new(cluster, node, etcd, key, identity))
}

/// The node's record, and what writes it to etcd.
async fn enlist(active: &Active, offer: &Offer) -> Result<(NodeRecord, Txn), Fault> {
    let keys = Keys::of(&active.membership.cluster);
    let entry = active.etcd.get(&keys.cluster()).await?;
    let entry = entry.ok_or_else(|| Fault::Damaged {
        key: keys.cluster(),
    })?;
    let cluster: ClusterRecord = record(&entry)?;
    let key = keys.node(&offer.name);
    let txn = Txn::new().if_revision(&keys.cluster(), entry.revision);
    let nodes = view::nodes(active).await?;
    let taken = |other: &&NodeRecord| other.address == offer.address && other.name != offer.name;
    if let Some(other) = nodes.iter().find(taken) {
        let (name, address) = (other.name.clone(), offer.address);
        return Err(Fault::AddressTaken { name, address });
    }
    let (txn, number, next_number, role, is_drained) = match active.etcd.get(&key).await? {
        None => {
            let next = cluster.next_number.checked_add(1);
            let next = next.ok_or_else(|| Fault::Damaged {
                key: keys.cluster(),
            })?;
            let txn = txn.if_absent(&key);
            (txn, cluster.next_number, next, NodeRole::Storage, false)
        }
        Some(found) => {
            let old: NodeRecord = record(&found)?;
            let is_up = view::alive(active).await?.contains(offer.name.as_str());
            if is_up || old.address != offer.address {
                let name = offer.name.clone();
                return Err(Fault::NodeExists { name });
            }
            let txn = txn.if_revision(&key, found.revision);
            (
                txn,
                old.number,
                cluster.next_number,
                old.role,
                old.is_drained,
            )
        }
    };
    let mut node = NodeRecord {
        name: offer.name.clone(),
        number,
        address: offer.address,
        role,
        zone: offer.zone.clone(),
        memory_bytes: 0,
        is_drained,
    };
    node.memory_bytes = node.role_memory(offer.memory_bytes);
    let cluster = ClusterRecord {
        next_number,
        ..cluster
    };
    let txn = txn
        .put(&keys.cluster(), value(&cluster))
        .put(&key, value(&node));
    Ok((node, txn))
}

/// How the node uses the etcd of the nodes: it runs another one if there are few.
async fn etcd_for(active: &Active, node: &NodeRecord, has_etcd: bool) -> Result<EtcdUse, Fault> {
    let own = peer_url(node.address);
    let mut members = members_but_learners(active, &own).await?;
    let former = members
        .iter()
        .position(|member| member.peer_urls.contains(&own));
    if let Some(at) = former {
        // Its data are gone, or were never there.
        let former = members.swap_remove(at);
        active.etcd.remove_member(former.id).await?;
    }
    let voters = members.iter().filter(|member| !member.is_learner);
    let endpoints = voters
        .flat_map(|member| member.client_urls.clone())
        .collect();
    let runs = if has_etcd && members.len() < ETCDS_WANTED {
        add_learner(active, &own).await?;
        let others = members.iter().flat_map(|member| {
            let urls = member.peer_urls.iter();
            urls.map(|url| format!("{}={url}", member.name))
        });
        let all = others.chain([format!("{}={own}", node.name)]);
        Some(EtcdRun {
            initial_cluster: all.collect::<Vec<_>>().join(","),
            is_new: false,
        })
    } else {
        None
    };
    Ok(EtcdUse::Own { endpoints, runs })
}

/// Adds a member to etcd, which refuses that until it has heard from those before for some seconds.
async fn add_learner(active: &Active, own: &str) -> Result<(), Fault> {
    let begin = Instant::now();
    while let Err(error) = active.etcd.add_learner(own.to_owned()).await {
        let members = active.etcd.members().await?;
        let mut urls = members.iter().flat_map(|member| &member.peer_urls);
        if urls.any(|url| url == own) {
            break;
        }
        if begin.elapsed() >= LEARNER_LIMIT {
            return Err(error.into());
        }
        sleep(RETRY).await;
    }
    Ok(())
}

/// The members of etcd, when there is no other than `own` without a vote: etcd allows one, and that
/// of a node whose admission broke off never gets one.
async fn members_but_learners(active: &Active, own: &str) -> Result<Vec<Member>, Fault> {
    let begin = Instant::now();
    loop {
        let members = active.etcd.members().await?;
        let is_other =
            |member: &&Member| member.is_learner && !member.peer_urls.iter().any(|url| url == own);
        let Some(learner) = members.iter().find(is_other) else {
            return Ok(members);
        };
        if begin.elapsed() >= LEARNER_LIMIT {
            if !learner.name.is_empty() {
                return Err(Fault::OtherJoins);
            }
            active.etcd.remove_member(learner.id).await?;
        }
        sleep(RETRY).await;
    }
}

/// Takes this node's etcd out of the cluster's.
pub(super) async fn remove_etcd(active: &Active) -> Result<(), Fault> {
    let node = &active.membership.node;
    let own = peer_url(node.address);
    let members = active.etcd.members().await?;
    let member = members
        .iter()
        .find(|member| member.peer_urls.contains(&own));
    let Some(member) = member else {
        return Ok(());
    };
    // The removed one stops, and its answer may be lost with it.
    let near = client_url(node.address);
    let all = active.etcd.endpoints();
    let others = all.iter().filter(|url| **url != near).cloned().collect();
    active.etcd.set_endpoints(others);
    let removed = active.etcd.remove_member(member.id).await;
    if removed.is_err() {
        active.etcd.set_endpoints(all);
    }
    Ok(removed?)
}

/// A node's certificate. Its DNS names are those by which the nodes' links know each other.
pub(super) fn identity(authority: &Authority, node: &NodeRecord) -> Result<PemIdentity, Fault> {
    let subject = Subject {
        address: node.address.ip(),
        names: &[format!("node-{}.ramport.internal", node.number)],
    };
    Ok(authority.issue(&subject)?)
}
