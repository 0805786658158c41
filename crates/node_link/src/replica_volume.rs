//! A replicated volume as the server has it.

use std::sync::{Arc, OnceLock};
use std::time::Instant;

use block::{Admission, Geometry, Intent, Op, Settled, Status, Ticket, Volume};
use volume::{
    Managed, ManagedVolume, ReplicationInfo, Storage, VolumeError, VolumeKind, VolumeSpec,
};

use crate::agreement::VolumeId;
use crate::replicas::Replicas;
use crate::volume::ReplicatedVolume;

/// The volume that a definition names, as the server has it. It serves commands as soon as it is
/// open in `replicas`.
///
/// # Errors
/// If the definition is invalid or does not say where the volume is placed.
pub fn attach(
    replicas: &Arc<Replicas>,
    spec: &VolumeSpec,
) -> Result<Arc<dyn ManagedVolume>, VolumeError> {
    spec.check()?;
    let placement = spec.kind.placement().ok_or(VolumeError::NotPlaced)?;
    let volume = ReplicaVolume {
        spec: spec.clone(),
        id: VolumeId(placement.volume),
        replicas: Arc::clone(replicas),
        opened: OnceLock::new(),
    };
    Ok(Arc::new(Managed::new(volume)))
}

/// A volume of a definition, before and after the node has opened it.
#[derive(Debug)]
struct ReplicaVolume {
    spec: VolumeSpec,
    id: VolumeId,
    replicas: Arc<Replicas>,
    opened: OnceLock<Arc<ReplicatedVolume>>,
}

impl ReplicaVolume {
    fn opened(&self) -> Option<&Arc<ReplicatedVolume>> {
        if let Some(opened) = self.opened.get() {
            return Some(opened);
        }
        let found = self.replicas.volume(self.id)?;
        Some(self.opened.get_or_init(|| found))
    }
}

impl Volume for ReplicaVolume {
    fn geometry(&self) -> Geometry {
        self.spec.geometry()
    }

    fn is_read_only(&self) -> bool {
        false
    }

    fn admit(&self, now: Instant, intent: &Intent<'_>, ticket: Ticket) -> Admission {
        match self.opened() {
            Some(volume) => volume.admit(now, intent, ticket),
            // The host asks again: the node is about to run.
            None => Admission::Fail(Status::Busy, None),
        }
    }

    fn execute(&self, op: Op<'_>) -> Result<(), Status> {
        match self.opened() {
            Some(volume) => volume.execute(op),
            None => Err(Status::Busy),
        }
    }

    fn settle(&self, ticket: Ticket) -> Result<Settled, Status> {
        match self.opened.get() {
            Some(volume) => volume.settle(ticket),
            None => Ok(Settled::Done),
        }
    }

    fn release(&self, ticket: Ticket) {
        if let Some(volume) = self.opened.get() {
            volume.release(ticket);
        }
    }
}

impl Storage for ReplicaVolume {
    /// With the placement of now.
    fn spec(&self) -> VolumeSpec {
        let mut spec = self.spec.clone();
        if let VolumeKind::Replicated {
            placement: Some(placement),
            ..
        } = &mut spec.kind
            && let Some(nodes) = self.replicas.placed(self.id)
        {
            placement.nodes = nodes;
        }
        spec
    }

    /// What this node's copy takes.
    fn used_bytes(&self) -> u64 {
        self.opened().map_or(0, |volume| volume.used_bytes())
    }

    fn resize(
        &self,
        _size: volume::ByteSize,
        _progress: &mut dyn FnMut(volume::Progress) -> std::ops::ControlFlow<()>,
    ) -> Result<(), VolumeError> {
        Err(VolumeError::ReplicatedStays)
    }

    fn erase(&self) -> Result<(), VolumeError> {
        Err(VolumeError::ReplicatedStays)
    }

    /// The copy ends when the cluster removes the volume, not when this machine no longer offers
    /// it.
    fn close(&self) {}

    fn problem(&self) -> Option<String> {
        let is_open = self.opened().is_some();
        (!is_open).then(|| {
            "this machine's node does not run, or has not reached etcd since the daemon was started; see `ramport cluster ls`".to_owned()
        })
    }

    fn replication(&self) -> Option<ReplicationInfo> {
        let info = self
            .opened()
            .map(|volume| self.replicas.info(&self.spec, volume));
        Some(info.unwrap_or_default())
    }
}
