//! Makes copies of volumes elsewhere: those of nodes that are drained, and of nodes that stay away.
//!
//! The node that serves a volume does it, one transaction per step, so that whoever serves it next
//! goes on. What is to be done follows from what etcd has.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use control::{KindFields, NodeRole, Placement, Volume, VolumeKind};
use replica::wire::encode_config;
use tokio::task::AbortHandle;
use tokio::time::{Instant, sleep};

use super::loads::{self, PlacedVolume};
use super::pool::{Up, pool};
use super::shared::{Active, SharedNode};
use crate::etcd::{Txn, TxnOutcome};
use crate::fault::Fault;
use crate::keys::{ClusterRecord, Keys, value};
use crate::membership::NodeRecord;
use crate::placement::{Copies, Placed, Pool, Repair};

/// Between two looks.
const INTERVAL: Duration = Duration::from_millis(500);
/// How many volumes of a primary have a further copy at a time, which is copied to.
const COPYING_MAX: usize = 8;
/// The most steps between two looks.
const STEPS_MAX: usize = 32;

/// Starts the task.
pub(super) fn start(shared: &SharedNode, active: &Active) -> AbortHandle {
    let work = keep_repaired(shared.clone(), active.clone());
    tokio::spawn(work).abort_handle()
}

async fn keep_repaired(shared: SharedNode, active: Active) {
    let mut absent = Absent::default();
    let mut settled = None;
    loop {
        sleep(INTERVAL).await;
        match look(&shared, &active, &mut absent, settled.as_ref()) {
            Ok(Some(work)) => {
                settled = work.is_settled().then(|| work.basis.clone());
                if let Err(error) = work.carry_out(&active).await {
                    tracing::debug!(%error, "cannot change where copies are");
                }
            }
            Ok(None) => {}
            Err(error) => tracing::debug!(%error, "cannot say where copies are to be"),
        }
    }
}

/// Since when nodes are away, as this one knows.
#[derive(Debug, Default)]
struct Absent(BTreeMap<u32, Instant>);

impl Absent {
    /// Notes who is away. Returns those that have been for longer than `limit`.
    fn note(&mut self, nodes: &[NodeRecord], up: &Up, limit: Option<Duration>) -> BTreeSet<u32> {
        let now = Instant::now();
        let storage = nodes.iter().filter(|node| node.role == NodeRole::Storage);
        let away = storage.map(|node| node.number);
        let away: BTreeSet<u32> = away.filter(|number| !up.0.contains_key(number)).collect();
        self.0.retain(|number, _| away.contains(number));
        for number in away {
            self.0.entry(number).or_insert(now);
        }
        let is_long = |since: &Instant| limit.is_some_and(|limit| now - *since >= limit);
        let long = self.0.iter().filter(|(_, since)| is_long(since));
        long.map(|(number, _)| *number).collect()
    }
}

/// The number of changes of what etcd has, and the nodes that are away.
type Basis = (u64, BTreeSet<u32>);

/// What is to be done now.
struct Work {
    /// What it follows from.
    basis: Basis,
    pool: Pool,
    pool_revision: Option<i64>,
    avoided: BTreeSet<u32>,
    volumes: Vec<PlacedVolume>,
    up: Up,
}

/// Looks at what etcd has. Nothing is to be done if that is `settled`.
fn look(
    shared: &SharedNode,
    active: &Active,
    absent: &mut Absent,
    settled: Option<&Basis>,
) -> Result<Option<Work>, Fault> {
    let membership = &active.membership;
    let keys = Keys::of(&membership.cluster);
    let mirror = shared.mirror();
    let Some(cluster) = mirror.cluster(keys) else {
        return Ok(None);
    };
    let (nodes, up) = (mirror.nodes(keys)?, loads::up(&mirror, keys)?);
    let mut avoided = absent.note(&nodes, &up, cluster.repair_after());
    let basis = (mirror.changes(), avoided.clone());
    if settled == Some(&basis) {
        return Ok(None);
    }
    avoided.extend(mirror.drained(keys));
    let own = membership.node.number;
    let mut volumes = loads::volumes(&mirror, keys)?;
    let known: BTreeSet<u32> = nodes.iter().map(|node| node.number).collect();
    let placed = volumes.iter().flat_map(PlacedVolume::nodes);
    avoided.extend(placed.filter(|node| !known.contains(node)));
    volumes.retain(|it| it.config.primary.node == own);
    let pool = pool(&nodes, &up, &loads::definitions(&mirror, keys))?;
    let pool_revision = mirror.entry(&keys.pool()).map(|entry| entry.revision);
    Ok(Some(Work {
        basis,
        pool,
        pool_revision,
        avoided,
        volumes,
        up,
    }))
}

impl ClusterRecord {
    /// After which time without a node its copies are made elsewhere.
    fn repair_after(&self) -> Option<Duration> {
        (self.repair_after_s > 0).then(|| Duration::from_secs(self.repair_after_s))
    }
}

impl PlacedVolume {
    fn placed_on(&self, nodes: Vec<u32>) -> Volume {
        let mut volume = self.volume.clone();
        if let VolumeKind::Replicated { copies, .. } = volume.kind.0 {
            volume.kind = KindFields(VolumeKind::Replicated {
                copies,
                placement: Some(Placement {
                    volume: self.id.0,
                    nodes,
                }),
            });
        }
        volume
    }
}

impl Work {
    fn next(&self, volume: &PlacedVolume) -> Option<Repair> {
        let (nodes, in_sync) = (volume.nodes(), volume.in_sync());
        let copies = Copies {
            wanted: volume.wanted(),
            nodes: &nodes,
            in_sync: &in_sync,
            primary: volume.config.primary.node,
        };
        let another = |kept: &[u32]| self.pool.another_node(volume.id.0, kept);
        copies.next_repair(&self.avoided, another)
    }

    /// Whether nothing is to be done until something changes.
    fn is_settled(&self) -> bool {
        self.volumes
            .iter()
            .all(|volume| self.next(volume).is_none())
    }

    /// Takes steps until one fails, because something has changed meanwhile.
    async fn carry_out(mut self, active: &Active) -> Result<(), Fault> {
        let has_more = |it: &&PlacedVolume| it.nodes().len() > it.wanted();
        let mut copying = self.volumes.iter().filter(has_more).count();
        let mut steps = 0;
        for volume in std::mem::take(&mut self.volumes) {
            let Some(step) = self.next(&volume) else {
                continue;
            };
            if let Repair::Add(_) = step {
                copying += 1;
                if copying > COPYING_MAX {
                    continue;
                }
            }
            steps += 1;
            if steps > STEPS_MAX || !self.take(active, &volume, step).await? {
                break;
            }
        }
        Ok(())
    }

    /// Takes a step. Returns whether nothing had changed before.
    async fn take(
        &mut self,
        active: &Active,
        volume: &PlacedVolume,
        step: Repair,
    ) -> Result<bool, Fault> {
        let keys = Keys::of(&active.membership.cluster);
        let (name, id) = (&volume.name, volume.id);
        let mut nodes = volume.nodes();
        let txn = Txn::new().if_revision(&keys.volume(name), volume.volume_revision);
        let txn = match self.pool_revision {
            Some(revision) => txn.if_revision(&keys.pool(), revision),
            None => txn.if_absent(&keys.pool()),
        };
        let mut txn = txn.put(&keys.pool(), Vec::new());
        match step {
            Repair::Add(node) => {
                nodes.push(node);
                let (_, alive) = self.up.0.get(&node).ok_or(Fault::Changed)?;
                txn = txn.if_revision(&alive.key, alive.revision);
            }
            Repair::Drop(node) => {
                nodes.retain(|other| *other != node);
                let key = keys.config(id);
                // The definition and the configuration change at once: the node neither returns
                // after it has left, nor ends a copy that writes wait for.
                txn = txn.if_revision(&key, volume.config_revision);
                if let Some(next) = volume.config.without_node(node) {
                    txn = txn.put(&key, encode_config(&next));
                }
            }
        }
        let placed = volume.placed_on(nodes.clone());
        txn = txn.put(&keys.volume(name), value(&placed));
        let TxnOutcome::Made { revision } = active.etcd.commit(txn).await? else {
            return Ok(false);
        };
        tracing::info!(volume = %name, ?step, "changed where copies are");
        self.pool_revision = Some(revision);
        if let Some(former) = self.pool.remove(id.0) {
            self.pool.insert(id.0, Placed { nodes, ..former });
        }
        Ok(true)
    }
}
