//! A replicated volume as the server has it.

use std::sync::{Arc, OnceLock};
use std::time::Instant;

use block::{
    Admission, Geometry, HostPath, Intent, Op, PathState, Settled, Status, Ticket, Volume,
};
use volume::{
    Managed, ManagedVolume, PathWatcher, ReplicationInfo, Storage, VolumeError, VolumeKind,
    VolumeSpec,
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

    fn path(&self) -> HostPath {
        match self.opened() {
            Some(volume) => volume.path(),
            None => HostPath {
                state: PathState::Inaccessible,
                machine: self.replicas.number().unwrap_or(0),
            },
        }
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
    fn close(&self) {
        self.replicas.unwatch(self.id);
    }

    fn watch_path(&self, watcher: PathWatcher) {
        self.replicas.watch(self.id, watcher);
    }

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

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use block::{Completion, Completions};
    use memory::Budget;
    use volume::{ByteSize, Placement, VolumeKind};

    use super::*;
    use crate::{MemoryAgreement, Node, NodeOptions, Security};

    struct Nobody;

    impl Completions for Nobody {
        fn done(&self, _completion: Completion) {}
    }

    #[test]
    fn a_volume_that_is_not_open_is_no_path_and_reports_when_it_is_opened() {
        let placement = Placement {
            volume: 7,
            nodes: vec![1],
        };
        let spec = VolumeSpec {
            kind: VolumeKind::Replicated {
                copies: 1,
                placement: Some(placement),
            },
            ..VolumeSpec::thin(ByteSize(16 << 20))
        };
        let replicas = Arc::<Replicas>::default();
        let volume = attach(&replicas, &spec).expect("placed");
        let reports = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&reports);
        volume.storage().watch_path(Arc::new(move || {
            counted.fetch_add(1, Ordering::SeqCst);
        }));
        let path = |machine| HostPath {
            state: PathState::Inaccessible,
            machine,
        };
        assert_eq!(volume.path(), path(0));
        let options = NodeOptions {
            node: 1,
            cluster: 1,
            incarnation: 1,
            listener: TcpListener::bind("127.0.0.1:0").expect("a port"),
            security: Security::Plain,
        };
        let agreement = Arc::<MemoryAgreement>::default();
        let node = Node::start(options, agreement, Arc::new(Nobody)).expect("started");
        // A node that starts or ends does not forget who watches.
        replicas.start(node);
        assert_eq!(volume.path(), path(1));
        assert_eq!(reports.load(Ordering::SeqCst), 0);
        let budget = Arc::new(Budget::new(64 << 20));
        replicas.open(&spec, &budget).expect("opened");
        assert!(reports.load(Ordering::SeqCst) > 0);
        // There is no configuration.
        assert_eq!(volume.path(), path(1));
        replicas.stop();
    }
}
