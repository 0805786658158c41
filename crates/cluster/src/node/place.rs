//! Creates and removes replicated volumes.

use std::time::Duration;

use control::{Force, Identity, KindFields, Placement, Volume, VolumeKind, VolumeName};
use node_link::VolumeId;
use replica::Config;
use replica::wire::encode_config;
use tokio::time::{Instant, sleep};
use uuid::Uuid;

use super::pool::{Up, pool, wish};
use super::shared::{Active, SharedNode};
use super::view;
use super::volumes::id_of;
use crate::etcd::{EtcdError, Txn, TxnOutcome};
use crate::fault::Fault;
use crate::keys::{Keys, record, value};
use crate::placement::LossCover;

/// How often a change is tried while other nodes change the volumes.
const ATTEMPTS_MAX: usize = 32;
/// How long this machine may take to have a volume, or to have it no more.
const LOCAL_LIMIT: Duration = Duration::from_secs(10);
/// Between two looks.
const RETRY: Duration = Duration::from_millis(10);

/// What became of an attempt.
#[derive(PartialEq, Eq)]
enum Attempt {
    Done,
    /// Something was changed meanwhile.
    Again,
    /// It is not known whether the change was made.
    Unknown,
}

/// A volume that is to be created.
struct Request {
    name: VolumeName,
    volume: Volume,
    copies: u8,
    /// Random, so that no number is used again.
    id: VolumeId,
}

pub(super) async fn create(
    shared: &SharedNode,
    name: VolumeName,
    volume: Volume,
) -> Result<(), Fault> {
    let active = shared.active()?;
    active.incarnation.get().ok_or(Fault::NoCopiesHere)?;
    volume.check(&name)?;
    let VolumeKind::Replicated {
        copies,
        placement: None,
    } = volume.kind.0
    else {
        return Err(Fault::PlacedAlready { name });
    };
    if shared.engine.volume(&name).is_ok() {
        return Err(Fault::VolumeExists { name });
    }
    let placing = shared.placing.lock().await;
    let request = Request {
        name,
        volume,
        copies,
        id: VolumeId(Uuid::new_v4().as_u64_pair().0),
    };
    place_at_last(&active, &request).await?;
    drop(placing);
    let name = request.name;
    let is_here = wait_until(|| {
        let view = shared.engine.volume(&name).ok();
        let replication = view.and_then(|view| view.replication);
        replication.is_some_and(|it| it.primary.is_some())
    });
    if is_here.await {
        Ok(())
    } else {
        Err(Fault::CreatedElsewhere { name })
    }
}

/// Tries to place a volume until that is done or cannot be.
async fn place_at_last(active: &Active, request: &Request) -> Result<(), Fault> {
    let mut may_exist = false;
    let mut last = Fault::Changed;
    for _ in 0..ATTEMPTS_MAX {
        match place(active, request).await {
            Ok(Attempt::Done) => return Ok(()),
            Ok(Attempt::Again) => {}
            Ok(Attempt::Unknown) => may_exist = true,
            Err(fault) => {
                last = fault;
                break;
            }
        }
    }
    if may_exist {
        let name = request.name.clone();
        last = Fault::VolumeUnknown { name };
    }
    Err(last)
}

pub(super) async fn remove(
    shared: &SharedNode,
    name: VolumeName,
    force: Force,
) -> Result<(), Fault> {
    let active = shared.active()?;
    active.incarnation.get().ok_or(Fault::NoCopiesHere)?;
    if force == Force::No {
        return Err(Fault::RemoveNeedsForce { name });
    }
    let keys = Keys::of(&active.membership.cluster);
    let shown = shared.engine.replicated_volume(&name);
    let mut meant = shown.as_ref().and_then(id_of);
    let mut attempts = 0..ATTEMPTS_MAX;
    while let Some(entry) = active.etcd.get(&keys.volume(&name)).await? {
        attempts.next().ok_or(Fault::Changed)?;
        let volume: Volume = record(&entry)?;
        let Some(id) = id_of(&volume) else {
            return Err(Fault::Damaged { key: entry.key });
        };
        if *meant.get_or_insert(id) != id {
            // It is removed, and another one has its name by now.
            break;
        }
        let txn = Txn::new().if_revision(&entry.key, entry.revision);
        let txn = txn.put(&keys.pool(), Vec::new()).delete(&entry.key);
        let txn = txn.delete(&keys.config(id));
        match active.etcd.commit(txn).await {
            Ok(_) | Err(EtcdError::OutcomeUnknown { .. }) => {}
            Err(error) => return Err(error.into()),
        }
    }
    let is_gone = wait_until(|| {
        let found = shared.engine.replicated_volume(&name);
        found.is_none_or(|found| id_of(&found) != meant)
    });
    if is_gone.await {
        Ok(())
    } else {
        Err(Fault::RemovedElsewhere { name })
    }
}

/// Waits until it is so. Returns whether it is, after [`LOCAL_LIMIT`] at the latest.
async fn wait_until(is_so: impl Fn() -> bool) -> bool {
    let begin = Instant::now();
    while !is_so() {
        if begin.elapsed() >= LOCAL_LIMIT {
            return false;
        }
        sleep(RETRY).await;
    }
    true
}

/// Places a volume and writes it to etcd, if nothing is changed meanwhile: neither other volumes
/// nor the start of the nodes that hold the copies.
async fn place(active: &Active, request: &Request) -> Result<Attempt, Fault> {
    let Request {
        name, volume, id, ..
    } = request;
    let keys = Keys::of(&active.membership.cluster);
    let etcd = &active.etcd;
    // First, so that it changes if the rest does.
    let guard = etcd.get(&keys.pool()).await?;
    let nodes = view::nodes(active).await?;
    let (alive, _) = etcd.list(&keys.alive()).await?;
    let up = Up::read(&nodes, alive, &keys.alive())?;
    let (volumes, _) = etcd.list(&keys.volumes()).await?;
    let key = keys.volume(name);
    if let Some(found) = volumes.iter().find(|entry| entry.key == key) {
        let found: Volume = record(found)?;
        if id_of(&found) == Some(*id) {
            return Ok(Attempt::Done);
        }
        let name = name.clone();
        return Err(Fault::VolumeExists { name });
    }
    let placed = pool(&nodes, &up, &volumes)?
        .place(id.0, wish(volume, request.copies), LossCover::Ignored)
        .map_err(|reason| Fault::Placement {
            name: name.clone(),
            reason,
        })?
        .nodes
        .clone();
    let mut members = Vec::new();
    let mut txn = Txn::new().if_absent(&keys.volume(name));
    txn = match guard {
        Some(entry) => txn.if_revision(&keys.pool(), entry.revision),
        None => txn.if_absent(&keys.pool()),
    };
    for number in &placed {
        let (member, entry) = up.0.get(number).ok_or(Fault::Changed)?;
        members.push(*member);
        txn = txn.if_revision(&entry.key, entry.revision);
    }
    let first = members.first().copied().ok_or(Fault::Changed)?;
    let config = Config::first(first, &members).ok_or(Fault::Changed)?;
    let txn = txn
        .put(&keys.pool(), Vec::new())
        .put(&keys.volume(name), value(&request.definition(placed)))
        .put(&keys.config(*id), encode_config(&config));
    match etcd.commit(txn).await {
        Ok(TxnOutcome::Made { .. }) => Ok(Attempt::Done),
        Ok(TxnOutcome::ConditionFailed) => Ok(Attempt::Again),
        Err(EtcdError::OutcomeUnknown { .. }) => Ok(Attempt::Unknown),
        Err(error) => Err(error.into()),
    }
}

impl Request {
    /// The definition that all nodes have: with a place, and with identifiers that do not depend on
    /// the machine.
    fn definition(&self, nodes: Vec<u32>) -> Volume {
        let mut volume = self.volume.clone();
        volume.kind = KindFields(VolumeKind::Replicated {
            copies: self.copies,
            placement: Some(Placement {
                volume: self.id.0,
                nodes,
            }),
        });
        if volume.identity.is_empty() {
            volume.identity = Identity::with_uuid(Uuid::new_v4());
        }
        volume
    }
}
