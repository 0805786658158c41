//! A subsystem: namespaces, and the controllers through which hosts reach them.

mod abort;
mod admin;
mod ana;
mod discovery;
mod events;
mod feature_values;
mod features;
mod fence;
mod foreign;
mod identify;
mod log_entries;
mod logs;
mod reservation;
pub(super) mod state;

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use block::{Access, Volume, WriteCache};

use super::connection::{CONTROLLER_ID, ConnectRequest, HOST_ID, HOST_NQN, QUEUE_ID, SQ_SIZE};
use super::{
    Completion, Connection, ControllerId, Gate, Limits, Permit, QueueId, Statistics, WakeToken,
};
use crate::wire::log::AnaState;
use crate::wire::{Nsid, StatusCode};
use abort::Aborts;
use ana::{Ana, ana_state};
use discovery::Directory;
use events::Event;
use fence::Fences;
use reservation::Reservations;
use state::{Controller, DISCOVERY_TIMEOUT_MS};

pub(super) use abort::Outcome;
pub use admin::{host_data_len, is_control_command};
pub use discovery::{DiscoveryRecord, HostFilter, SecureChannel};
pub use log_entries::FailedCommand;

/// The names of a subsystem and its limits.
#[derive(Clone, Debug)]
pub struct SubsystemConfig {
    /// NVM Subsystem NVMe Qualified Name (SUBNQN).
    pub nqn: String,
    /// Serial Number (SN): up to 20 ASCII characters, padded with blanks.
    pub serial: String,
    /// Model Number (MN): up to 40 ASCII characters, padded with blanks.
    pub model: String,
    /// Firmware Revision (FR): up to 8 ASCII characters, padded with blanks.
    pub firmware: String,
    /// Its bounds.
    pub limits: Limits,
}

/// The last ID of a controller: those above are reserved (NVMe base 2.0, figure 275, CNTLID).
const LAST_CONTROLLER: u16 = 0xFFEF;

/// A subsystem. See the [module](super) for the order of calls.
pub struct Subsystem {
    pub(super) config: SubsystemConfig,
    pub(super) role: Role,
    pub(super) namespaces: BTreeMap<Nsid, Namespace>,
    /// Those of namespaces that have ever had a registrant.
    pub(super) reservations: BTreeMap<Nsid, Reservations>,
    pub(super) fences: Fences,
    pub(super) aborts: Aborts,
    /// Connections of other protocols that use the namespaces.
    pub(super) foreign: BTreeSet<WakeToken>,
    pub(super) controllers: BTreeMap<ControllerId, Controller>,
    /// The last controller ID given out.
    pub(super) last_controller: ControllerId,
    ana: Ana,
    pub(super) generation: Generation,
    pub(super) wakes: BTreeSet<WakeToken>,
}

/// What a subsystem is for.
pub(super) enum Role {
    /// It has namespaces.
    Nvm(Box<dyn Statistics>),
    /// The discovery subsystem.
    Discovery(Directory),
}

/// A number that changes whenever the result of [`Subsystem::namespace`] or [`Subsystem::permit`]
/// may change.
#[derive(Clone, Debug, Default)]
pub struct Generation(Arc<AtomicU64>);

impl Generation {
    /// The number now.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Acquire)
    }

    pub(super) fn advance(&self) {
        self.0.fetch_add(1, Ordering::Release);
    }
}

/// A namespace of a subsystem.
pub struct Namespace {
    /// The volume behind it.
    pub volume: Arc<dyn Volume>,
    /// Its globally unique identifiers.
    pub ids: NamespaceIds,
}

/// Globally unique identifiers of a namespace. They stay with it for as long as it exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NamespaceIds {
    /// Universally unique identifier (UUID).
    pub uuid: [u8; 16],
    /// Namespace Globally Unique Identifier (NGUID).
    pub nguid: [u8; 16],
    /// IEEE Extended Unique Identifier (EUI64).
    pub eui64: [u8; 8],
}

impl NamespaceIds {
    /// The identifiers that belong to `seed`, which must be unique to the namespace and stay with
    /// it: the UUID of its volume.
    pub fn from_seed(seed: [u8; 16]) -> Self {
        let mut eui64 = [0; 8];
        for (at, byte) in seed.into_iter().enumerate() {
            eui64[at % 8] ^= byte.rotate_left(at as u32 / 8 * 3);
        }
        // Locally administered, so that it cannot be taken for one that a manufacturer was
        // assigned.
        eui64[0] = eui64[0] & !0b01 | 0b10;
        Self {
            uuid: seed,
            nguid: seed,
            eui64,
        }
    }
}

/// Why a namespace cannot be added.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NamespaceError {
    /// Not from 1 to [`Limits::namespaces_max`].
    #[error("namespace ID {nsid} is out of range; use 1 to {last}")]
    InvalidNsid {
        /// What was requested.
        nsid: Nsid,
        /// The largest.
        last: Nsid,
    },
    /// A namespace with this number exists.
    #[error("namespace {0} already exists")]
    Exists(Nsid),
}

impl Subsystem {
    /// An NVM subsystem without namespaces.
    pub fn new(config: SubsystemConfig, statistics: Box<dyn Statistics>) -> Self {
        Self::with_role(config, Role::Nvm(statistics))
    }

    /// A discovery subsystem.
    pub fn discovery(config: SubsystemConfig) -> Self {
        Self::with_role(config, Role::Discovery(Directory::default()))
    }

    fn with_role(config: SubsystemConfig, role: Role) -> Self {
        Self {
            config,
            role,
            namespaces: BTreeMap::new(),
            reservations: BTreeMap::new(),
            fences: Fences::default(),
            aborts: Aborts::default(),
            foreign: BTreeSet::new(),
            controllers: BTreeMap::new(),
            last_controller: ControllerId(0),
            ana: Ana::default(),
            generation: Generation::default(),
            wakes: BTreeSet::new(),
        }
    }

    /// Has controller IDs begin at another one than 1, which `seed` determines. Hosts refuse a
    /// second controller of a subsystem with the same ID, also if another machine offers it.
    pub fn seed_controller_ids(&mut self, seed: u16) {
        self.last_controller = ControllerId(seed % LAST_CONTROLLER);
    }

    /// How it was configured.
    pub fn config(&self) -> &SubsystemConfig {
        &self.config
    }

    /// The generation number, which changes when connections must check their namespaces again.
    pub fn generation(&self) -> Generation {
        self.generation.clone()
    }

    /// Adds a namespace and notifies the hosts.
    pub fn add_namespace(
        &mut self,
        nsid: Nsid,
        namespace: Namespace,
    ) -> Result<(), NamespaceError> {
        let last = Nsid(self.config.limits.namespaces_max);
        if nsid == Nsid::NONE || nsid > last {
            return Err(NamespaceError::InvalidNsid { nsid, last });
        }
        if self.namespaces.contains_key(&nsid) {
            return Err(NamespaceError::Exists(nsid));
        }
        self.ana.set(nsid, ana_state(namespace.volume.path().state));
        self.namespaces.insert(nsid, namespace);
        self.namespace_changed(nsid);
        Ok(())
    }

    /// Removes a namespace, notifies the hosts, and wakes their I/O queues, the commands of which
    /// may wait for its volume.
    pub fn remove_namespace(&mut self, nsid: Nsid) -> Option<Namespace> {
        let removed = self.namespaces.remove(&nsid)?;
        self.ana.remove(nsid);
        self.reservations.remove(&nsid);
        for controller in self.controllers.values_mut() {
            controller.features.forget(nsid);
            self.wakes.extend(controller.io_queues());
        }
        self.namespace_changed(nsid);
        Some(removed)
    }

    /// Notifies the hosts that the namespace's volume was resized, locked or unlocked.
    pub fn namespace_changed(&mut self, nsid: Nsid) {
        self.generation.advance();
        for controller in self.controllers.values_mut() {
            controller.changed.insert(nsid);
        }
        self.wakes.extend(&self.foreign);
        self.raise(Event::NamespaceAttributeChanged);
    }

    /// The namespaces in the order of their identifiers.
    pub fn namespaces(&self) -> impl Iterator<Item = (Nsid, &Namespace)> {
        self.namespaces
            .iter()
            .map(|(&nsid, namespace)| (nsid, namespace))
    }

    /// One namespace.
    pub fn namespace(&self, nsid: Nsid) -> Option<&Namespace> {
        self.namespaces.get(&nsid)
    }

    /// What the host of `controller` may do with namespace `nsid`.
    pub fn permit(&self, controller: ControllerId, nsid: Nsid) -> Permit {
        // Not denied: its host may try again on the next controller.
        let Some(controller) = self.controllers.get(&controller) else {
            return Permit::closed(Gate::ControllerGone);
        };
        let Some(state) = self.ana.state(nsid) else {
            return Permit::closed(Gate::AccessDenied);
        };
        let by_path = match state {
            AnaState::Inaccessible => Permit::closed(Gate::PathInaccessible),
            _ => Permit::ALL,
        };
        by_path
            .and(Permit::of_access(controller.access))
            .and(self.reservation_permit(controller.host.id, nsid))
    }

    /// Changes what a controller's host may do with the namespaces. Hosts are notified that
    /// namespaces changed, since they show it as write protection; [`Access::Denied`] ends the
    /// controller.
    pub fn set_access(&mut self, controller: ControllerId, access: Access) {
        if access == Access::Denied {
            return self.delete_controller(controller);
        }
        let Some(found) = self.controllers.get_mut(&controller) else {
            return;
        };
        if std::mem::replace(&mut found.access, access) == access {
            return;
        }
        self.generation.advance();
        for &nsid in self.namespaces.keys() {
            found.changed.insert(nsid);
        }
        if found.events.raise(Event::NamespaceAttributeChanged) {
            self.wakes.extend(found.queues.get(&QueueId::ADMIN));
        }
    }

    /// The next connection to wake because shared state has changed. Call this until it returns
    /// `None` after every use of the subsystem.
    pub fn poll_wake(&mut self) -> Option<WakeToken> {
        self.wakes.pop_first()
    }

    /// Whether `connection` still is a queue of its controller; if not, it must be closed.
    pub fn is_connected(&self, connection: &Connection) -> bool {
        self.controllers
            .get(&connection.controller)
            .and_then(|controller| controller.queues.get(&connection.queue))
            == Some(&connection.wake)
    }

    /// Whether the controller reported a volatile write cache (Identify, VWC) to its host.
    pub(super) fn write_cache(&self, controller: ControllerId) -> WriteCache {
        let controller = self.controllers.get(&controller);
        controller.map_or(WriteCache::Absent, |controller| controller.write_cache)
    }

    /// When [`Self::handle_timeout`] is due for `controller`.
    pub fn poll_timeout(&self, controller: ControllerId) -> Option<Instant> {
        self.controllers.get(&controller)?.keep_alive.deadline()
    }

    /// Ends the controller if its Keep Alive Timer has expired.
    pub fn handle_timeout(&mut self, now: Instant, controller: ControllerId) {
        let is_expired = self
            .controllers
            .get_mut(&controller)
            .is_some_and(|controller| controller.keep_alive.is_expired(now));
        if is_expired {
            self.delete_controller(controller);
        }
    }

    /// Ends a controller; its connections are woken to close.
    pub fn delete_controller(&mut self, controller: ControllerId) {
        if let Some(deleted) = self.controllers.remove(&controller) {
            self.fences.leave(deleted.io_queues());
            self.wakes.extend(deleted.queues.into_values());
            self.generation.advance();
        }
    }

    /// Ends every controller, because the subsystem is removed.
    pub fn delete_all_controllers(&mut self) {
        while let Some((&controller, _)) = self.controllers.first_key_value() {
            self.delete_controller(controller);
        }
    }

    /// Removes a queue from its controller. The end of the admin queue is the end of the
    /// controller.
    pub(super) fn remove_queue(&mut self, connection: &Connection) {
        if connection.queue.is_admin() {
            self.delete_controller(connection.controller);
        } else if let Some(controller) = self.controllers.get_mut(&connection.controller) {
            controller.remove_io_queue(connection.queue);
            if controller.has_rested() {
                // Other queues may have waited for that to close.
                self.wakes.extend(controller.queues.values());
            }
            self.fences.leave(std::iter::once(connection.wake));
        }
    }

    /// A connection's I/O queue is idle, and the server is stopping. Returns whether its
    /// controller's queues may be closed; otherwise they are woken when they may.
    pub(super) fn note_rest(&mut self, connection: &Connection) -> bool {
        let Some(controller) = self.controllers.get_mut(&connection.controller) else {
            return true;
        };
        controller.note_rest(connection.queue);
        let has_rested = controller.has_rested();
        if has_rested {
            self.wakes.extend(controller.io_queues());
        }
        has_rested
    }

    pub(super) fn is_discovery(&self) -> bool {
        matches!(self.role, Role::Discovery(_))
    }

    /// Makes a connection a queue; called by [`connect`](super::connect).
    pub(super) fn connect(
        &mut self,
        now: Instant,
        request: ConnectRequest,
    ) -> Result<Connection, Completion> {
        let depth_max = if request.queue.is_admin() {
            self.config.limits.admin_queue_depth_max
        } else {
            self.config.limits.io_queue_depth_max
        };
        if request.sq_entries > depth_max {
            return Err(SQ_SIZE.into());
        }
        let (queue, wake) = (request.queue, request.origin.wake);
        let (sq_entries, sq_flow) = (request.sq_entries, request.sq_flow);
        let authentication = request.authentication.clone();
        let id = if queue.is_admin() {
            self.create_controller(now, request)?
        } else {
            self.find_controller(&request)?
        };
        let controller = self
            .controllers
            .get_mut(&id)
            .expect("just created or found");
        controller.insert_queue(queue, wake);
        controller.keep_alive.activity.mark();
        Ok(Connection {
            controller: id,
            queue,
            sq_entries,
            sq_flow,
            activity: controller.keep_alive.activity.clone(),
            io_queues: controller.io_queue_state.clone(),
            wake,
            authentication,
        })
    }

    fn create_controller(
        &mut self,
        now: Instant,
        mut request: ConnectRequest,
    ) -> Result<ControllerId, Completion> {
        if self.controllers.len() >= usize::from(self.config.limits.controllers_max) {
            return Err(StatusCode::ConnectControllerBusy.into());
        }
        if request.must_authenticate() && !self.has_room_for_unproven(request.origin.address) {
            return Err(StatusCode::ConnectControllerBusy.into());
        }
        if self.is_discovery() && request.keep_alive_timeout_ms == 0 {
            request.keep_alive_timeout_ms = DISCOVERY_TIMEOUT_MS;
        }
        let id = self
            .free_controller_id()
            .ok_or(StatusCode::ConnectControllerBusy)?;
        let is_volatile =
            |namespace: &Namespace| namespace.volume.write_cache() == WriteCache::Volatile;
        let write_cache = if self.namespaces.values().any(is_volatile) {
            WriteCache::Volatile
        } else {
            WriteCache::Absent
        };
        let mut controller = Controller::new(now, request, self.events_supported(), write_cache);
        if let Role::Discovery(directory) = &self.role {
            controller.discovery_generation = directory.generation();
        }
        self.controllers.insert(id, controller);
        self.last_controller = id;
        Ok(id)
    }

    /// Whether one more controller is possible whose host, at `address`, has to be authenticated.
    fn has_room_for_unproven(&self, address: IpAddr) -> bool {
        let unproven = || self.controllers.values().filter(|found| !found.is_proven);
        let of_address = unproven().filter(|found| found.origin.address == address);
        unproven().count() < Limits::UNPROVEN_CONTROLLERS_MAX
            && of_address.count() < Limits::UNPROVEN_CONTROLLERS_OF_ADDRESS_MAX
    }

    /// The host of `controller` has been authenticated.
    pub(super) fn prove(&mut self, controller: ControllerId) {
        if let Some(controller) = self.controllers.get_mut(&controller) {
            controller.is_proven = true;
        }
    }

    /// The next free controller ID after the last assigned one, so that IDs are not reused soon.
    fn free_controller_id(&self) -> Option<ControllerId> {
        let after = self.last_controller.0;
        (after + 1..=LAST_CONTROLLER)
            .chain(1..=after)
            .map(ControllerId)
            .find(|id| !self.controllers.contains_key(id))
    }

    fn find_controller(&self, request: &ConnectRequest) -> Result<ControllerId, Completion> {
        let id = ControllerId(request.controller);
        let controller = self.controllers.get(&id).ok_or(CONTROLLER_ID)?;
        if controller.host.nqn != request.host.nqn {
            return Err(HOST_NQN.into());
        }
        if controller.host.id != request.host.id {
            return Err(HOST_ID.into());
        }
        if controller.origin.transport != request.origin.transport {
            // The properties that a controller reports (IOCCSZ, SGLS) are those of one transport.
            return Err(CONTROLLER_ID.into());
        }
        if self.is_discovery() || request.queue.0 > self.config.limits.io_queues_max {
            return Err(QUEUE_ID.into());
        }
        if !controller.is_ready() || controller.queues.contains_key(&request.queue) {
            return Err(StatusCode::CommandSequenceError.into());
        }
        Ok(id)
    }

    pub(super) fn events_supported(&self) -> u32 {
        let events: &[Event] = match self.role {
            Role::Nvm(_) => &[Event::NamespaceAttributeChanged, Event::AnaChange],
            Role::Discovery(_) => &[Event::DiscoveryLogChange],
        };
        events.iter().filter_map(|event| event.enable_bit()).sum()
    }

    /// Ends the I/O queues of a controller, whose connections are woken to close.
    pub(super) fn end_io_queues(&mut self, controller: ControllerId) {
        if let Some(controller) = self.controllers.get_mut(&controller) {
            self.fences.leave(controller.io_queues());
            let io = controller.take_io_queues();
            self.wakes.extend(io.into_values());
        }
    }

    /// Raises an event on every controller.
    pub(super) fn raise(&mut self, event: Event) {
        for controller in self.controllers.values_mut() {
            if controller.events.raise(event) {
                self.wakes.extend(controller.queues.get(&QueueId::ADMIN));
            }
        }
    }
}
