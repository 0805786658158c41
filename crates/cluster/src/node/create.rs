//! Makes a cluster: asks each machine what it brings, gives each one its membership, and then
//! writes the cluster to etcd, at which moment it exists. Before that, an error makes every machine
//! forget it.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use control::{ExternalEtcd, NewCluster, NodeRole};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};
use uuid::Uuid;

use super::admit::identity;
use super::messages::{ENTER, FORGET, Forget, Nothing, OFFER, Offer, offer};
use super::shared::SharedNode;
use super::{PORT_DEFAULT, enter, forget, view};
use crate::certificates::Authority;
use crate::etcd::{EtcdError, Txn, TxnOutcome};
use crate::etcd_program::{NODE_PORT_MAX, client_url, peer_url};
use crate::fault::Fault;
use crate::keys::{ClusterRecord, Keys, record, value};
use crate::link::{LinkError, ask};
use crate::membership::{EtcdRun, EtcdUse, Membership, NodeRecord};
use crate::name::Name;
use crate::url::EtcdUrl;

/// The most nodes that a cluster begins with: one transaction of etcd, of at most 128 changes by
/// default, writes them.
const NODES_MAX: usize = 100;
/// The most etcds that nodes run: more would make changes slower, not safer.
const ETCDS_MAX: usize = 5;
/// How long a machine may take to answer.
const ASK_LIMIT: Duration = Duration::from_secs(15);
/// How long etcd may take to start.
const ETCD_LIMIT: Duration = Duration::from_secs(60);
/// How long the nodes may take to show that they are up; afterwards the cluster is reported as it
/// is.
const UP_LIMIT: Duration = Duration::from_secs(20);
/// Between two attempts.
const RETRY: Duration = Duration::from_millis(100);

/// What was asked for, checked.
struct Plan {
    cluster: Name,
    id: Uuid,
    /// With the witness, which is the last.
    addresses: Vec<(SocketAddr, NodeRole)>,
    external: Option<EtcdUse>,
}

pub(super) async fn create(shared: &SharedNode, request: NewCluster) -> Result<(), Fault> {
    let _changing = shared.changing.try_lock().map_err(|_| Fault::Busy)?;
    shared.require_none()?;
    let plan = Plan::read(shared.own.address, request)?;
    let offers = offers(shared, &plan).await?;
    let memberships = memberships(&plan, &offers, &shared.own.etcd)?;
    let made = match enter_all(shared, &memberships).await {
        Ok(()) => agree(shared, &plan, &memberships).await,
        Err(fault) => Err(fault),
    };
    match made {
        Ok(()) => {}
        // It may exist: machines that forget it would leave the others without their etcd.
        Err(Fault::CreationUnknown { .. }) => return made,
        Err(fault) => {
            forget_all(shared, &plan).await;
            return Err(fault);
        }
    }
    wait_until_up(shared, memberships.len()).await
}

/// An address as people write it.
pub(super) fn address(text: &str) -> Result<SocketAddr, Fault> {
    let with_port_default = || {
        let ip = text.parse::<IpAddr>().ok();
        ip.map(|ip| SocketAddr::new(ip, PORT_DEFAULT))
    };
    let found = text.parse::<SocketAddr>().ok().or_else(with_port_default);
    let is_reachable =
        |it: &SocketAddr| !it.ip().is_unspecified() && (1..=NODE_PORT_MAX).contains(&it.port());
    found.filter(is_reachable).ok_or_else(|| Fault::Address {
        text: text.chars().take(80).collect(),
    })
}

impl Plan {
    fn read(own: SocketAddr, request: NewCluster) -> Result<Self, Fault> {
        let NewCluster {
            name,
            nodes,
            witness,
            etcd,
        } = request;
        if !(1..=NODES_MAX).contains(&nodes.len()) {
            return Err(Fault::NodeCount {
                given: nodes.len(),
                max: NODES_MAX,
            });
        }
        if witness.is_some() && etcd.is_some() {
            return Err(Fault::WitnessWithoutEtcd);
        }
        let nodes = nodes.iter().map(|node| (node, NodeRole::Storage));
        let all = nodes.chain(witness.iter().map(|node| (node, NodeRole::Witness)));
        let mut addresses = Vec::new();
        for (text, role) in all {
            let address = address(text)?;
            if addresses.iter().any(|(other, _)| *other == address) {
                return Err(Fault::Twice { address });
            }
            addresses.push((address, role));
        }
        if !addresses.iter().any(|(address, _)| *address == own) {
            return Err(Fault::NotAmongNodes { own });
        }
        let external = match etcd {
            None => None,
            Some(ExternalEtcd { urls, tls }) => {
                let urls: Result<Vec<EtcdUrl>, _> = urls.iter().map(|url| url.parse()).collect();
                Some(EtcdUse::External { urls: urls?, tls })
            }
        };
        Ok(Self {
            cluster: name.parse()?,
            id: Uuid::new_v4(),
            addresses,
            external,
        })
    }
}

/// Asks every machine what it brings, all at once.
async fn offers(shared: &SharedNode, plan: &Plan) -> Result<Vec<Offer>, Fault> {
    let mut asked = JoinSet::new();
    for (at, (address, _)) in plan.addresses.iter().copied().enumerate() {
        let shared = shared.clone();
        asked.spawn(async move {
            let offered = if address == shared.own.address {
                Ok(offer(&shared).await)
            } else {
                ask(&shared.link, address, OFFER, &Nothing {}, ASK_LIMIT).await
            };
            (at, offered)
        });
    }
    let mut offers = BTreeMap::new();
    while let Some(done) = asked.join_next().await {
        let (at, offered) = done.expect("asking does not panic");
        offers.insert(at, offered?);
    }
    let mut names = BTreeMap::new();
    for (offer, (asked, _)) in offers.values().zip(&plan.addresses) {
        if offer.address != *asked {
            return Err(Fault::OtherAddress {
                asked: *asked,
                own: offer.address,
            });
        }
        if let Some(first) = names.insert(offer.name.clone(), offer.address) {
            return Err(Fault::SameName {
                name: offer.name.clone(),
                first,
                second: offer.address,
            });
        }
    }
    Ok(offers.into_values().collect())
}

/// What each machine is given.
fn memberships(plan: &Plan, offers: &[Offer], program: &str) -> Result<Vec<Membership>, Fault> {
    let authority = Authority::create(plan.cluster.as_str())?;
    let with_etcd = etcds(plan);
    let initial = with_etcd.iter().map(|at| {
        let Offer { name, address, .. } = &offers[*at];
        format!("{name}={}", peer_url(*address))
    });
    let initial_cluster = initial.collect::<Vec<_>>().join(",");
    let urls = with_etcd.iter().map(|at| client_url(offers[*at].address));
    let endpoints: Vec<_> = urls.collect();
    let mut memberships = Vec::new();
    for (at, (offer, (_, role))) in offers.iter().zip(&plan.addresses).enumerate() {
        let runs = with_etcd.contains(&at).then(|| EtcdRun {
            initial_cluster: initial_cluster.clone(),
            is_new: true,
        });
        if runs.is_some() && !offer.has_etcd {
            let program = format!("{program} on {}", offer.address);
            return Err(Fault::NoEtcd { program });
        }
        let etcd = plan.external.clone().unwrap_or_else(|| EtcdUse::Own {
            endpoints: endpoints.clone(),
            runs,
        });
        let mut node = NodeRecord {
            name: offer.name.clone(),
            number: u32::try_from(at).expect("at most NODES_MAX") + 1,
            address: offer.address,
            role: *role,
            zone: offer.zone.clone(),
            memory_bytes: 0,
            is_drained: false,
        };
        node.memory_bytes = node.role_memory(offer.memory_bytes);
        let identity = identity(&authority, &node)?;
        let cluster = (plan.cluster.clone(), plan.id);
        memberships.push(Membership::new(
            cluster,
            node,
            etcd,
            authority.key(),
            identity,
        ));
    }
    Ok(memberships)
}

/// The places of the nodes that run etcd: the witness and the first ones, an odd number if there
/// are three or more, since another one would have to agree and could not be lost either.
fn etcds(plan: &Plan) -> Vec<usize> {
    if plan.external.is_some() {
        return Vec::new();
    }
    let count = match plan.addresses.len() {
        few @ 0..=2 => few,
        many => (many - 1 + many % 2).min(ETCDS_MAX),
    };
    let is_witness = |at: &usize| plan.addresses[*at].1 == NodeRole::Witness;
    let mut places: Vec<_> = (0..plan.addresses.len()).collect();
    places.sort_by_key(|at| !is_witness(at));
    places.truncate(count);
    places
}

async fn enter_all(shared: &SharedNode, memberships: &[Membership]) -> Result<(), Fault> {
    let mut asked = JoinSet::new();
    for membership in memberships.iter().cloned() {
        let shared = shared.clone();
        let address = membership.node.address;
        asked.spawn(async move {
            if address == shared.own.address {
                return enter(&shared, membership);
            }
            let entered: Result<Nothing, LinkError> =
                ask(&shared.link, address, ENTER, &membership, ASK_LIMIT).await;
            Ok(entered.map(drop)?)
        });
    }
    // All of them end before an error is returned, so that no machine enters the cluster after it
    // was asked to forget it.
    let mut entered = Ok(());
    while let Some(done) = asked.join_next().await {
        entered = entered.and(done.expect("asking does not panic"));
    }
    entered
}

/// Writes the cluster to etcd, once that answers.
async fn agree(shared: &SharedNode, plan: &Plan, memberships: &[Membership]) -> Result<(), Fault> {
    let etcd = shared.active()?.etcd;
    let keys = Keys::of(&plan.cluster);
    let next_number = u32::try_from(memberships.len()).expect("at most NODES_MAX") + 1;
    let cluster = ClusterRecord {
        id: plan.id,
        next_number,
        repair_after_s: ClusterRecord::REPAIR_AFTER_DEFAULT_S,
    };
    let create = || {
        let txn = Txn::new().if_absent(&keys.cluster());
        let txn = txn.put(&keys.cluster(), value(&cluster));
        let nodes = memberships.iter().map(|membership| &membership.node);
        nodes.fold(txn, |txn, node| {
            txn.put(&keys.node(&node.name), value(node))
        })
    };
    let begin = Instant::now();
    let mut may_exist = false;
    loop {
        let answer = match etcd.get(&keys.cluster()).await {
            Ok(Some(found)) => {
                let found: ClusterRecord = record(&found)?;
                if found.id == plan.id {
                    return Ok(());
                }
                let cluster = plan.cluster.clone();
                return Err(Fault::ClusterExists { cluster });
            }
            Ok(None) => etcd.commit(create()).await,
            Err(error) => Err(error),
        };
        match answer {
            Ok(TxnOutcome::Made { .. }) => return Ok(()),
            // Another one, or this one of before, whose answer was lost.
            Ok(TxnOutcome::ConditionFailed) => {}
            Err(error) => {
                may_exist |= matches!(error, EtcdError::OutcomeUnknown { .. });
                if begin.elapsed() < ETCD_LIMIT {
                    sleep(RETRY).await;
                } else if may_exist {
                    let cluster = plan.cluster.clone();
                    return Err(Fault::CreationUnknown { cluster });
                } else {
                    return Err(silent(shared, plan, &error.to_string()));
                }
            }
        }
    }
}

fn silent(shared: &SharedNode, plan: &Plan, error: &str) -> Fault {
    let written = shared.last_of_etcd();
    let last = if plan.external.is_some() || written.is_empty() {
        error.to_owned()
    } else {
        written
    };
    let own = shared.own.address;
    let ports = format!("{} and {}", client_url(own), peer_url(own));
    Fault::EtcdSilent { last, ports }
}

/// Makes every machine forget the cluster, as far as they answer.
async fn forget_all(shared: &SharedNode, plan: &Plan) {
    let mut asked = JoinSet::new();
    for (address, _) in plan.addresses.iter().copied() {
        let (shared, id) = (shared.clone(), plan.id);
        asked.spawn(async move {
            let forgotten = if address == shared.own.address {
                forget(&shared, id).await
            } else {
                let request = Forget { id };
                let asked: Result<Nothing, _> =
                    ask(&shared.link, address, FORGET, &request, ASK_LIMIT).await;
                asked.map(drop).map_err(Fault::from)
            };
            if let Err(error) = forgotten {
                tracing::warn!(%address, %error, "a machine did not forget a cluster that was not made; run `ramport cluster leave` there");
            }
        });
    }
    asked.join_all().await;
}

/// Waits until all nodes are up, within reason.
async fn wait_until_up(shared: &SharedNode, nodes: usize) -> Result<(), Fault> {
    let active = shared.active()?;
    let begin = Instant::now();
    while begin.elapsed() < UP_LIMIT {
        if view::alive(&active).await.is_ok_and(|up| up.len() >= nodes) {
            break;
        }
        sleep(RETRY).await;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(nodes: &[&str], witness: Option<&str>) -> NewCluster {
        NewCluster {
            name: "a".to_owned(),
            nodes: nodes.iter().map(ToString::to_string).collect(),
            witness: witness.map(str::to_owned),
            etcd: None,
        }
    }

    fn own() -> SocketAddr {
        "192.0.2.1:7450".parse().expect("an address")
    }

    #[test]
    fn an_odd_number_of_nodes_runs_etcd_the_witness_among_them() {
        let places = |nodes: usize, witness: Option<&str>| {
            let nodes: Vec<_> = (1..=nodes).map(|it| format!("192.0.2.{it}")).collect();
            let nodes: Vec<_> = nodes.iter().map(String::as_str).collect();
            etcds(&Plan::read(own(), request(&nodes, witness)).expect("read"))
        };
        assert_eq!(places(1, None), [0]);
        assert_eq!(places(2, None), [0, 1]);
        assert_eq!(places(2, Some("192.0.2.9")), [2, 0, 1]);
        assert_eq!(places(3, None), [0, 1, 2]);
        assert_eq!(places(4, None), [0, 1, 2]);
        assert_eq!(places(3, Some("192.0.2.9")), [3, 0, 1]);
        assert_eq!(places(100, None), [0, 1, 2, 3, 4]);
    }

    #[test]
    fn what_makes_no_cluster_is_refused_with_a_hint() {
        let told = |request| {
            let read = Plan::read(own(), request);
            read.err().expect("refused").to_string()
        };
        let one = || request(&["192.0.2.1"], None);
        let etcd = ExternalEtcd {
            urls: vec!["192.0.2.9:2379".to_owned()],
            tls: None,
        };
        for (request, expected) in [
            (request(&[], None), "1 to 100"),
            (request(&["192.0.2.2"], None), "--nodes"),
            (request(&["192.0.2.1", "192.0.2.1:7450"], None), "twice"),
            (request(&["192.0.2.1"], Some("192.0.2.1")), "twice"),
            (request(&["192.0.2.1", "b.example"], None), "ADDRESS:PORT"),
            (request(&["192.0.2.1", "0.0.0.0"], None), "ADDRESS:PORT"),
            (
                request(&["192.0.2.1", "192.0.2.2:65534"], None),
                "ADDRESS:PORT",
            ),
            (
                NewCluster {
                    name: "A b".to_owned(),
                    ..one()
                },
                "lower-case",
            ),
            (
                NewCluster {
                    etcd: Some(etcd.clone()),
                    ..one()
                },
                "https://HOST:2379",
            ),
            (
                NewCluster {
                    etcd: Some(etcd),
                    ..request(&["192.0.2.1"], Some("192.0.2.2"))
                },
                "leave one",
            ),
        ] {
            let told = told(request);
            assert!(told.contains(expected), "{told}");
        }
    }
}
