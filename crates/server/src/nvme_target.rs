//! An NVMe target: its subsystem, and the volumes behind its namespaces.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use block::{Access, OpKind};
use net::{ConnectionId, ReactorHandle};
use nvme::controller::{
    ControllerId, Generation, Limits, Namespace, Permit, Statistics, Subsystem, SubsystemConfig,
    Usage,
};
use nvme::wire::Nsid;
use uuid::Uuid;
use volume::Budget;

use crate::TargetName;
use crate::brp::Sessions as BrpSessions;
use crate::counters::Totals;
use crate::views::Found;
use crate::volume_handle::VolumeHandle;

/// A target, or the discovery service, as connections reach it.
pub(crate) struct NvmeTarget {
    /// None for the discovery service.
    name: Option<TargetName>,
    subsystem: Mutex<Subsystem>,
    generation: Generation,
    namespaces: Arc<NamespaceVolumes>,
    totals: Arc<Totals>,
    /// Sessions of hosts that use the namespaces over BRP.
    brp: BrpSessions,
    handle: ReactorHandle,
}

/// The volumes behind namespaces. No other lock is taken under this one; it may be taken while a
/// subsystem is locked.
#[derive(Default)]
struct NamespaceVolumes {
    volumes: Mutex<BTreeMap<Nsid, VolumeHandle>>,
}

/// The model number of every controller.
const MODEL: &str = "ramport";

impl NvmeTarget {
    /// A target without namespaces. Machines that offer a volume by the same name are one
    /// subsystem to hosts, so the serial number depends on the name alone. Hosts refuse two
    /// controllers of a subsystem with the same ID, so each target begins its IDs at a random one.
    pub(crate) fn named(name: &TargetName, budget: &Arc<Budget>, handle: ReactorHandle) -> Self {
        let namespaces = Arc::new(NamespaceVolumes::default());
        let totals = Arc::new(Totals::default());
        let statistics = TargetStatistics {
            namespaces: Arc::clone(&namespaces),
            totals: Arc::clone(&totals),
            budget: Arc::clone(budget),
            since: Instant::now(),
        };
        let serial = Uuid::new_v5(&Uuid::NAMESPACE_URL, format!("nvme:{name}").as_bytes());
        let config = config(name.as_str(), serial);
        let mut subsystem = Subsystem::new(config, Box::new(statistics));
        subsystem.seed_controller_ids(Uuid::new_v4().as_u64_pair().1 as u16);
        Self::new(Some(name.clone()), subsystem, namespaces, totals, handle)
    }

    /// The discovery service.
    pub(crate) fn discovery(machine: Uuid, handle: ReactorHandle) -> Self {
        let config = config(crate::names::DISCOVERY_NQN, machine);
        Self::new(
            None,
            Subsystem::discovery(config),
            Arc::default(),
            Arc::default(),
            handle,
        )
    }

    fn new(
        name: Option<TargetName>,
        subsystem: Subsystem,
        namespaces: Arc<NamespaceVolumes>,
        totals: Arc<Totals>,
        handle: ReactorHandle,
    ) -> Self {
        Self {
            name,
            generation: subsystem.generation(),
            subsystem: Mutex::new(subsystem),
            namespaces,
            totals,
            brp: BrpSessions::new(handle.clone()),
            handle,
        }
    }

    pub(crate) fn name(&self) -> Option<&TargetName> {
        self.name.as_ref()
    }

    pub(crate) fn totals(&self) -> &Arc<Totals> {
        &self.totals
    }

    /// A number that changes when the answer of [`Self::view`] may have changed.
    pub(crate) fn generation(&self) -> u64 {
        self.generation.get()
    }

    /// Runs `f` with the subsystem, then wakes the connections that must check it.
    pub(crate) fn with<R>(&self, f: impl FnOnce(&mut Subsystem) -> R) -> R {
        let mut subsystem = self.lock();
        let result = f(&mut subsystem);
        while let Some(token) = subsystem.poll_wake() {
            self.handle.wake(ConnectionId(token.0));
        }
        result
    }

    /// What `controller` sees of a namespace now.
    pub(crate) fn view(&self, controller: ControllerId, nsid: Nsid) -> Option<Found<Permit>> {
        self.found(nsid, |subsystem| subsystem.permit(controller, nsid))
    }

    /// What a host of another protocol with this access sees of a namespace now.
    pub(crate) fn foreign_view(&self, access: Access, nsid: Nsid) -> Option<Found<Permit>> {
        self.found(nsid, |subsystem| subsystem.foreign_permit(access, nsid))
    }

    fn found(
        &self,
        nsid: Nsid,
        permit: impl FnOnce(&Subsystem) -> Permit,
    ) -> Option<Found<Permit>> {
        let subsystem = self.lock();
        let volume = Arc::clone(&subsystem.namespace(nsid)?.volume);
        Some(Found {
            volume,
            totals: self
                .namespaces
                .lock()
                .get(&nsid)
                .map(|volume| Arc::clone(&volume.totals)),
            part: permit(&subsystem),
        })
    }

    /// The identifier of the volume behind a namespace, which is the same in every target.
    pub(crate) fn volume_id(&self, machine: Uuid, nsid: Nsid) -> Option<[u8; 16]> {
        let namespaces = self.namespaces.lock();
        let handle = namespaces.get(&nsid)?;
        Some(handle.identity.volume_id(machine, &handle.name))
    }

    /// The sessions of BRP.
    pub(crate) fn brp(&self) -> &BrpSessions {
        &self.brp
    }

    /// The target was removed: ends every session.
    pub(crate) fn remove(&self) {
        self.with(Subsystem::delete_all_controllers);
        self.brp.remove();
    }

    /// Makes a volume a namespace. The number is free and within bounds.
    pub(crate) fn attach(&self, nsid: u32, volume: &VolumeHandle, machine: Uuid) {
        let nsid = Nsid(nsid);
        let target = self
            .name
            .as_ref()
            .expect("the discovery service has no namespaces");
        let namespace = Namespace {
            volume: volume.volume.clone(),
            ids: volume.identity.namespace_ids(volume.place(machine, target)),
        };
        self.with(|subsystem| {
            self.namespaces.lock().insert(nsid, volume.clone());
            subsystem
                .add_namespace(nsid, namespace)
                .expect("the definition was checked: the number is free and within bounds");
        });
    }

    /// Removes a namespace.
    pub(crate) fn detach(&self, nsid: u32) {
        let nsid = Nsid(nsid);
        self.with(|subsystem| {
            subsystem.remove_namespace(nsid);
            self.namespaces.lock().remove(&nsid);
        });
    }

    /// Notifies hosts that a namespace's volume has changed.
    pub(crate) fn namespace_changed(&self, nsid: u32) {
        self.with(|subsystem| subsystem.namespace_changed(Nsid(nsid)));
    }

    /// Notifies hosts if they reach a namespace's volume in another way.
    pub(crate) fn path_changed(&self, nsid: u32) {
        self.with(|subsystem| subsystem.path_changed(Nsid(nsid)));
    }

    /// A subsystem is complete between any two calls, so a poisoned lock is used, and a panic of
    /// one session does not end the others.
    fn lock(&self) -> MutexGuard<'_, Subsystem> {
        self.subsystem
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

impl NamespaceVolumes {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<Nsid, VolumeHandle>> {
        self.volumes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The most namespaces of a target, and the highest number of one.
pub(crate) fn namespaces_max() -> u32 {
    Limits::default().namespaces_max
}

fn config(nqn: &str, serial: Uuid) -> SubsystemConfig {
    let mut digits = serial.simple().to_string();
    digits.truncate(20);
    SubsystemConfig {
        nqn: nqn.to_owned(),
        serial: digits,
        model: MODEL.to_owned(),
        firmware: env!("CARGO_PKG_VERSION").to_owned(),
        limits: Limits::default(),
    }
}

/// What the logs of a target's controllers report.
struct TargetStatistics {
    namespaces: Arc<NamespaceVolumes>,
    totals: Arc<Totals>,
    budget: Arc<Budget>,
    since: Instant,
}

impl Statistics for TargetStatistics {
    fn usage(&self) -> Usage {
        let sum = self.totals.sum();
        let (reads, writes) = (sum.kind(OpKind::Read), sum.kind(OpKind::Write));
        let busy_ns: u128 = sum
            .kinds()
            .map(|(_, kind)| kind.latency.sum().as_nanos())
            .sum();
        let budget_bytes = self.budget.total_bytes().max(1);
        let spare_percent = self.budget.free_bytes().saturating_mul(100) / budget_bytes;
        Usage {
            read_bytes: reads.bytes,
            written_bytes: writes.bytes,
            read_commands: reads.operations,
            write_commands: writes.operations,
            busy_minutes: u64::try_from(busy_ns / 60_000_000_000).unwrap_or(u64::MAX),
            power_on_hours: self.since.elapsed().as_secs() / 3600,
            media_errors: reads.errors + writes.errors,
            spare_percent: spare_percent.min(100) as u8,
        }
    }

    fn allocated_bytes(&self, nsid: Nsid) -> u64 {
        self.namespaces
            .lock()
            .get(&nsid)
            .map_or(0, |handle| handle.volume.storage().used_bytes())
    }
}
