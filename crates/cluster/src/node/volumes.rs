//! The replicated volumes of the cluster on this machine: etcd has their definitions, and this node
//! opens its part in each of them and defines it for the server.

use std::collections::{BTreeMap, BTreeSet};
use std::net::TcpListener;
use std::sync::Arc;
use std::time::Duration;

use control::{EngineError, Force, Volume, VolumeName};
use node_link::{Credentials, NodeOptions, Security, VolumeId};
use replica::Config;
use tokio::runtime::Handle;
use tokio::task::{AbortHandle, spawn_blocking};
use tokio::time::sleep;
use uuid::Uuid;

use super::presence::wait_for_cluster;
use super::shared::{Active, Shared, SharedNode};
use crate::agreement::{EtcdAgreement, config};
use crate::etcd::{Change, Entry};
use crate::etcd_program::link_address;
use crate::fault::Fault;
use crate::keys::{ClusterRecord, Keys, record};
use crate::membership::{Membership, NodeRecord};

/// After an error.
const RETRY: Duration = Duration::from_secs(1);
/// A watch without changes is begun again after so long.
const WATCH_LIMIT: Duration = Duration::from_secs(60);
/// What could not be done is tried again after so long without changes.
const REPEAT_LIMIT: Duration = Duration::from_secs(5);

/// Starts this node's part in volumes. While that fails, the node is a member that holds no copies.
pub(super) fn start(shared: &SharedNode, active: &Active) -> AbortHandle {
    let started = start_node(shared, active);
    let work = start_at_last(started, shared.clone(), active.clone());
    tokio::spawn(work).abort_handle()
}

async fn start_at_last(mut started: Result<(), Fault>, shared: SharedNode, active: Active) {
    let mut last_error = String::new();
    while let Err(error) = started {
        warn_once(&mut last_error, &error);
        sleep(RETRY).await;
        started = start_node(&shared, &active);
    }
    follow_all(shared, active).await;
}

fn start_node(shared: &Shared, active: &Active) -> Result<(), Fault> {
    let Membership {
        cluster,
        id,
        node,
        identity,
        ..
    } = &active.membership;
    let address = link_address(node.address);
    let listener =
        TcpListener::bind(address).map_err(|source| Fault::Listen { address, source })?;
    let credentials =
        Credentials::from_pem(&identity.certificate, &identity.key, &identity.issuers)?;
    let (incarnation, _) = Uuid::new_v4().as_u64_pair();
    let options = NodeOptions {
        node: node.number,
        cluster: id.as_u64_pair().0,
        incarnation,
        listener,
        security: Security::Mutual(credentials),
    };
    let agreement = EtcdAgreement::new(active.etcd.clone(), cluster.clone(), Handle::current());
    let relay = shared.engine.platform().relay;
    let node = node_link::Node::start(options, Arc::new(agreement), relay)?;
    shared.replicas.start(node);
    active.incarnation.get_or_init(|| incarnation);
    Ok(())
}

/// Removes the replicated volumes from this machine, which belongs to no cluster.
pub(super) async fn forget(shared: &SharedNode) {
    let shared = shared.clone();
    let forgotten = spawn_blocking(move || {
        for (name, _) in shared.engine.replicated_volumes() {
            if let Err(error) = shared.engine.remove_volume(&name, Force::Yes) {
                tracing::error!(volume = %name, %error, "cannot remove a volume of a former cluster");
            }
        }
    });
    forgotten.await.expect("removing does not panic");
}

async fn follow_all(shared: SharedNode, active: Active) {
    wait_for_cluster(&active).await;
    let mut last_error = String::new();
    loop {
        match follow(&shared, &active, &mut last_error).await {
            Ok(()) => {}
            // What is away for a moment needs nobody.
            Err(Fault::Etcd(error)) => tracing::debug!(%error, "cannot follow the volumes"),
            Err(error) => warn_once(&mut last_error, &error),
        }
        sleep(RETRY).await;
    }
}

/// Makes this machine agree with etcd, and follows changes until one needs all to be read again.
async fn follow(
    shared: &SharedNode,
    active: &Active,
    last_error: &mut String,
) -> Result<(), Fault> {
    let cluster = &active.membership.cluster;
    let prefix = Keys::of(cluster).all();
    let (entries, revision) = active.etcd.list(&prefix).await?;
    let key = Keys::of(cluster).cluster();
    let is_own = |entry: &Entry| {
        entry.key == key
            && record::<ClusterRecord>(entry).is_ok_and(|found| found.id == active.membership.id)
    };
    // An etcd that has lost its data must not make the nodes give up theirs.
    if !entries.iter().any(is_own) {
        let cluster = cluster.clone();
        return Err(Fault::ClusterGone { cluster });
    }
    shared.mirror().replace(&entries);
    let wanted = Wanted::read(Keys::of(cluster), &entries);
    let mut is_complete = apply(shared, last_error, move |shared| wanted.settle(shared)).await;
    let mut watch = active.etcd.watch(&prefix, revision + 1).await?;
    loop {
        let limit = if is_complete {
            WATCH_LIMIT
        } else {
            REPEAT_LIMIT
        };
        let changes = watch.next(limit).await?;
        if changes.is_empty() {
            return Ok(());
        }
        for change in changes {
            shared.mirror().take(&change);
            let Some(step) = Step::read(Keys::of(cluster), change)? else {
                continue;
            };
            if matches!(step, Step::AllChanged) {
                return Ok(());
            }
            is_complete &= apply(shared, last_error, move |shared| step.take(shared)).await;
        }
    }
}

/// Does `work`, which waits for the state file, on another thread. Returns whether nothing failed;
/// what failed is logged once.
async fn apply(
    shared: &SharedNode,
    last_error: &mut String,
    work: impl FnOnce(&Shared) -> Result<(), Fault> + Send + 'static,
) -> bool {
    let shared = shared.clone();
    let done = spawn_blocking(move || work(&shared)).await;
    match done.expect("no step panics") {
        Ok(()) => {
            last_error.clear();
            true
        }
        Err(error) => {
            warn_once(last_error, &error);
            false
        }
    }
}

fn warn_once(last_error: &mut String, error: &Fault) {
    let error = error.to_string();
    if *last_error != error {
        tracing::warn!(error, "cannot make this machine agree with its cluster");
        *last_error = error;
    }
}

/// What etcd has.
struct Wanted {
    nodes: Vec<NodeRecord>,
    volumes: BTreeMap<VolumeName, Volume>,
    configs: Vec<(VolumeId, Config)>,
    /// Why some of it is not understood. Another version may have written that.
    damage: Result<(), Fault>,
}

impl Wanted {
    fn read(keys: Keys<'_>, entries: &[Entry]) -> Self {
        let mut wanted = Self {
            nodes: Vec::new(),
            volumes: BTreeMap::new(),
            configs: Vec::new(),
            damage: Ok(()),
        };
        for entry in entries {
            match Step::put(keys, entry) {
                Ok(Some(Step::Node(node))) => wanted.nodes.push(node),
                Ok(Some(Step::Volume(name, volume))) => {
                    wanted.volumes.insert(name, *volume);
                }
                Ok(Some(Step::Config(id, config))) => wanted.configs.push((id, config)),
                Ok(_) => {}
                Err(fault) => wanted.damage = Err(fault),
            }
        }
        wanted
    }

    /// Makes this machine agree with it. What fails does not stop the rest.
    fn settle(self, shared: &Shared) -> Result<(), Fault> {
        let gone = if self.damage.is_ok() {
            self.end_what_is_gone(shared)
        } else {
            Vec::new()
        };
        let nodes = self.nodes.into_iter().map(Step::Node);
        let volumes = self.volumes.into_iter();
        let volumes = volumes.map(|(name, volume)| Step::Volume(name, Box::new(volume)));
        let configs = self.configs.into_iter();
        let configs = configs.map(|(id, config)| Step::Config(id, config));
        let steps = nodes.chain(gone).chain(volumes).chain(configs);
        steps
            .map(|step| step.take(shared))
            .fold(self.damage, Result::and)
    }

    /// Ends connections and copies that etcd has no more. Returns how the volumes without a
    /// definition there are removed.
    fn end_what_is_gone(&self, shared: &Shared) -> Vec<Step> {
        let numbers: BTreeSet<u32> = self.nodes.iter().map(|node| node.number).collect();
        shared.replicas.retain_peers(&numbers);
        let ids: BTreeSet<VolumeId> = self.volumes.values().filter_map(id_of).collect();
        let open = shared.replicas.volumes().into_iter();
        for id in open.filter(|id| !ids.contains(id)) {
            shared.replicas.close(id);
        }
        let defined = shared.engine.replicated_volumes().into_iter();
        let gone = defined.filter(|(name, _)| !self.volumes.contains_key(name));
        gone.map(|(name, _)| Step::VolumeRemoved(name)).collect()
    }
}

/// What is to be done for a change.
enum Step {
    Node(NodeRecord),
    /// A node has left, or the cluster is gone: all is read again.
    AllChanged,
    Volume(VolumeName, Box<Volume>),
    VolumeRemoved(VolumeName),
    Config(VolumeId, Config),
}

impl Step {
    fn read(keys: Keys<'_>, change: Change) -> Result<Option<Self>, Fault> {
        let key = match change {
            Change::Put(entry) => return Self::put(keys, &entry),
            Change::Deleted { key, .. } => key,
        };
        if key == keys.cluster() || key.starts_with(&keys.nodes()) {
            return Ok(Some(Self::AllChanged));
        }
        let name = key.strip_prefix(&keys.volumes());
        let name = name.map(str::parse).transpose();
        let name: Option<VolumeName> = name.map_err(|_| Fault::Damaged { key: key.clone() })?;
        Ok(name.map(Self::VolumeRemoved))
    }

    fn put(keys: Keys<'_>, entry: &Entry) -> Result<Option<Self>, Fault> {
        let damaged = || Fault::Damaged {
            key: entry.key.clone(),
        };
        if entry.key.starts_with(&keys.nodes()) {
            return Ok(Some(Self::Node(record(entry)?)));
        }
        if let Some(name) = entry.key.strip_prefix(&keys.volumes()) {
            let name = name.parse().map_err(|_| damaged())?;
            let volume: Volume = record(entry)?;
            id_of(&volume).ok_or_else(damaged)?;
            return Ok(Some(Self::Volume(name, Box::new(volume))));
        }
        let Some(id) = entry.key.strip_prefix(&keys.configs()) else {
            return Ok(None);
        };
        let id = u64::from_str_radix(id, 16).map_err(|_| damaged())?;
        Ok(Some(Self::Config(VolumeId(id), config(entry)?)))
    }

    fn take(self, shared: &Shared) -> Result<(), Fault> {
        match self {
            Self::Node(node) => {
                let address = link_address(node.address);
                let name = node.name.as_str();
                shared.replicas.set_peer(node.number, name, address)?;
                let drained = shared.drained();
                shared.replicas.set_drained(&drained);
            }
            Self::AllChanged => {}
            Self::Volume(name, volume) => define(shared, name, *volume)?,
            Self::VolumeRemoved(name) => {
                if let Some(volume) = shared.engine.replicated_volume(&name) {
                    remove(shared, &name, &volume)?;
                }
            }
            Self::Config(id, config) => shared.replicas.see(id, config),
        }
        Ok(())
    }
}

/// Opens this node's part in a volume, and defines it for the server.
fn define(shared: &Shared, name: VolumeName, volume: Volume) -> Result<(), Fault> {
    let budget = shared.engine.platform().budget;
    shared.replicas.open(&volume.spec(), &budget)?;
    match shared.engine.replicated_volume(&name) {
        Some(found) if found.kind == volume.kind => return Ok(()),
        Some(found) if id_of(&found) == id_of(&volume) => {
            return Ok(shared.engine.place_volume(name, &volume)?);
        }
        // Another one had the name while this machine was away.
        Some(found) => remove(shared, &name, &found)?,
        None => {}
    }
    shared.engine.create_volume(name, volume, Force::No)?;
    Ok(())
}

fn remove(shared: &Shared, name: &VolumeName, volume: &Volume) -> Result<(), EngineError> {
    // First, as its memory is free then even if the definition cannot be removed.
    if let Some(id) = id_of(volume) {
        shared.replicas.close(id);
    }
    shared.engine.remove_volume(name, Force::Yes)
}

/// The number of a volume that is placed.
pub(super) fn id_of(volume: &Volume) -> Option<VolumeId> {
    let placement = volume.kind.0.placement();
    placement.map(|placement| VolumeId(placement.volume))
}
