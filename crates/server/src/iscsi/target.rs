//! An iSCSI target: its SCSI device, the sessions with it, and the volumes behind its LUNs.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use block::Access;
use iscsi::{
    Abort, AbortScope, CommandWindow, OpenError, Opened, Parameters, Saved, SessionEnds,
    SessionState,
};
use net::{ConnectionId, GracePeriod, ReactorHandle};
use scsi::{Device, Lun, NexusId, NexusPorts, PortProtocol, Reservations, TargetPort, View};
use srp::wire::PortId;
use uuid::Uuid;

use crate::access::Grant;
use crate::counters::Totals;
use crate::identity;
use crate::reservation_saves::{SaveQueue, UnsavedReservations};
use crate::views::Found;
use crate::volume_handle::VolumeHandle;
use crate::{LoginPolicy, PortalGroup, TargetName};

/// A target as its connections reach it.
pub(crate) struct IscsiTarget {
    name: TargetName,
    srp_port: PortId,
    inner: Mutex<Inner>,
    /// The device's generation, readable without the lock.
    generation: AtomicU64,
    totals: Arc<Totals>,
    handle: ReactorHandle,
    save_queue: Arc<SaveQueue>,
}

struct Inner {
    device: Device,
    /// The reservations that outlive a restart.
    kept: Kept,
    volumes: BTreeMap<Lun, VolumeHandle>,
    sessions: BTreeMap<u16, Session>,
    /// Counts changes of the sessions' connections.
    changes: u64,
    /// Sessions, connections or commands were ended since the last grace period began.
    has_ended: bool,
    /// When this is over, nothing is executed any more that was ended before it began.
    grace: GracePeriod,
    last_tsih: u16,
    /// The target was removed: it accepts no session.
    is_removed: bool,
}

/// Reservations that outlive a restart, and how far they have been saved.
#[derive(Default)]
struct Kept {
    /// The device's generation of reservations at the last comparison.
    seen: u64,
    luns: BTreeMap<u32, Reservations>,
    /// Counts changes of `luns`.
    number: u64,
    saved: u64,
    /// The last number that could not be saved.
    failed: u64,
}

struct Session {
    ports: NexusPorts,
    group: PortalGroup,
    grant: Grant,
    nexus: NexusId,
    state: SessionState,
    /// What its connections share, if it may have several.
    shared: Option<SharedSession>,
    connections: Vec<Connected>,
}

/// What the connections of a session share. The command window is the only lock on the data path:
/// it is separate from the target's, so that the sessions of a target do not wait for one another.
#[derive(Clone)]
pub(crate) struct SharedSession {
    parameters: Parameters,
    window: Arc<Mutex<CommandWindow>>,
}

impl SharedSession {
    /// The values that the first login negotiated.
    pub(crate) fn parameters(&self) -> &Parameters {
        &self.parameters
    }

    /// Runs `call` with the command window, which is complete between any two calls: a panic of one
    /// connection does not take it from the others.
    pub(crate) fn with_window<R>(&self, call: impl FnOnce(&mut CommandWindow) -> R) -> R {
        call(&mut self.window.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// A connection of a session.
struct Connected {
    cid: u16,
    id: ConnectionId,
    is_dropped: bool,
    /// Commands that it has to abort.
    aborts: Vec<Abort>,
}

/// The relative identifier of a target's port for SRP, and its group's. A portal group of iSCSI
/// with this tag would show the same numbers; the names of initiators tell the nexuses apart.
const SRP_PORT: u16 = u16::MAX;

/// The most channels of an SRP nexus. Linux's initiator opens one for each processor, and goes on
/// with fewer.
const CHANNELS_MAX: usize = 32;

/// The most aborts that wait for a connection: one by other sessions for each LUN, and as many by
/// its own. Beyond them, all of its commands are aborted.
const ABORTS_MAX: usize = 2 * scsi::UNITS_MAX;

impl IscsiTarget {
    /// A target without LUNs.
    pub(crate) fn new(
        name: &TargetName,
        handle: ReactorHandle,
        save_queue: Arc<SaveQueue>,
    ) -> Self {
        let device = Device::new(name.as_str().to_owned(), Vec::new());
        Self {
            name: name.clone(),
            srp_port: identity::srp_port(name),
            generation: AtomicU64::new(device.generation()),
            inner: Mutex::new(Inner {
                device,
                kept: Kept::default(),
                volumes: BTreeMap::new(),
                sessions: BTreeMap::new(),
                changes: 0,
                has_ended: false,
                grace: GracePeriod::default(),
                last_tsih: 0,
                is_removed: false,
            }),
            totals: Arc::default(),
            handle,
            save_queue,
        }
    }

    pub(crate) fn name(&self) -> &TargetName {
        &self.name
    }

    pub(crate) fn totals(&self) -> &Arc<Totals> {
        &self.totals
    }

    /// A number that changes when the results of [`view`](Self::view) or
    /// [`connection_state`](Self::connection_state) may have changed.
    pub(crate) fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    /// Opens a session, in the place of one with the same ends (RFC 7143 §6.3.5).
    pub(crate) fn open(
        &self,
        ends: SessionEnds<'_>,
        group: PortalGroup,
        grant: Grant,
        connection: ConnectionId,
    ) -> Result<Opened, OpenError> {
        self.with(|inner, handle| {
            if inner.is_removed {
                return Err(OpenError::Unavailable);
            }
            let ports = iscsi_ports(ends, group);
            inner.end_where(handle, |session| session.ports == ports);
            inner.open(ports, group, grant, connection)
        })
    }

    /// Opens a channel of SRP. With `is_multi` it joins the channels of its nexus, if these came
    /// through the same portal group with the same access; otherwise it is opened in their place.
    /// Returns whether other channels go on, if there were any.
    pub(crate) fn open_channel(
        &self,
        initiator: &str,
        is_multi: bool,
        group: PortalGroup,
        grant: Grant,
        connection: ConnectionId,
    ) -> Result<(Opened, Option<bool>), OpenError> {
        let ports = NexusPorts {
            initiator: initiator.to_owned(),
            target_port: SRP_PORT,
        };
        self.with(|inner, handle| {
            if inner.is_removed {
                return Err(OpenError::Unavailable);
            }
            let mut sessions = inner.sessions.iter_mut();
            let existing = sessions.find(|(_, session)| session.ports == ports);
            let has_others = existing.is_some();
            if let Some((&tsih, session)) = existing
                && is_multi
                && session.state == SessionState::Active
            {
                if session.group != group || session.grant != grant {
                    return Err(OpenError::NoSession);
                }
                if session.connections.len() >= CHANNELS_MAX {
                    return Err(OpenError::TooManyConnections);
                }
                session.connections.push(Connected::new(0, connection));
                let nexus = session.nexus;
                inner.changes += 1;
                return Ok((Opened { tsih, nexus }, Some(true)));
            }
            inner.end_where(handle, |session| session.ports == ports);
            let opened = inner.open(ports, group, grant, connection)?;
            Ok((opened, has_others.then_some(false)))
        })
    }

    /// A session's connections share these parameters and this window from now on; `cid` is the
    /// first one's.
    pub(crate) fn share(
        &self,
        opened: Opened,
        parameters: Parameters,
        window: CommandWindow,
        cid: u16,
    ) -> SharedSession {
        let window = Arc::new(Mutex::new(window));
        let shared = SharedSession { parameters, window };
        let mut inner = self.lock();
        if let Some(session) = inner.session(opened) {
            session.shared = Some(shared.clone());
            for connection in &mut session.connections {
                connection.cid = cid;
            }
        }
        shared
    }

    /// Joins a further connection to a session, in the place of one of the same CID (RFC 7143
    /// §6.3.4).
    pub(crate) fn join(
        &self,
        ends: SessionEnds<'_>,
        group: PortalGroup,
        number: (u16, u16),
        connection: ConnectionId,
    ) -> Result<(Opened, SharedSession), OpenError> {
        let (tsih, cid) = number;
        self.with(|inner, handle| {
            let session = inner.sessions.get_mut(&tsih);
            let session = session.filter(|session| {
                session.ports == iscsi_ports(ends, group) && session.state == SessionState::Active
            });
            let session = session.ok_or(OpenError::NoSession)?;
            let shared = session.shared.clone();
            let shared = shared.ok_or(OpenError::TooManyConnections)?;
            let ended = session.end_connections(handle, |other| other.cid == cid);
            inner.has_ended |= ended > 0;
            if session.connections.len() >= shared.parameters.connections_max as usize {
                return Err(OpenError::TooManyConnections);
            }
            session.connections.push(Connected::new(cid, connection));
            let nexus = session.nexus;
            inner.changes += 1;
            Ok((Opened { tsih, nexus }, shared))
        })
    }

    /// Ends other connections of a session: that of `cid`, or all. Returns how many there were.
    pub(crate) fn end_others(
        &self,
        opened: Opened,
        connection: ConnectionId,
        cid: Option<u16>,
    ) -> usize {
        self.with(|inner, handle| {
            inner.changes += 1;
            let is_meant = |other: &Connected| {
                other.id != connection && cid.is_none_or(|cid| other.cid == cid)
            };
            let session = inner.session(opened);
            let ended = session.map_or(0, |session| session.end_connections(handle, is_meant));
            inner.has_ended |= ended > 0;
            ended
        })
    }

    /// Aborts commands on the other connections of a session.
    pub(crate) fn abort_on_others(&self, opened: Opened, connection: ConnectionId, abort: Abort) {
        self.with(|inner, handle| {
            let connections = inner
                .session(opened)
                .map(|session| &mut session.connections);
            let mut has_ended = false;
            for other in connections.into_iter().flatten() {
                if other.id != connection {
                    other.abort(abort, handle);
                    has_ended = true;
                }
            }
            inner.has_ended |= has_ended;
        });
    }

    /// The grace period after which nothing is executed any more that was ended so far.
    pub(crate) fn grace(&self) -> GracePeriod {
        self.lock().grace
    }

    /// Wakes a connection of a session.
    pub(crate) fn wake_other(&self, opened: Opened, cid: u16) {
        let mut inner = self.lock();
        let session = inner.session(opened);
        let connections = session.into_iter().flat_map(|s| &s.connections);
        for connection in connections.filter(|other| other.cid == cid) {
            self.handle.wake(connection.id);
        }
    }

    /// A connection of a session has ended. The session ends with its last connection.
    pub(crate) fn leave(&self, opened: Opened, connection: ConnectionId) {
        self.with(|inner, handle| {
            let Some(session) = inner.session(opened) else {
                return;
            };
            session.connections.retain(|other| other.id != connection);
            if session.connections.is_empty() {
                inner.end_where(handle, |session| session.nexus == opened.nexus);
            }
        });
        self.handle.stop_waiting(connection);
    }

    /// Asks a session's initiator to log out. The session is dropped if the initiator has not done
    /// so in time, and at once if it was asked before.
    pub(crate) fn request_logout(&self, opened: Opened, within: Duration) {
        self.with(|inner, handle| {
            let Some(session) = inner.session(opened) else {
                return;
            };
            if session.state == SessionState::Active {
                session.state = SessionState::LogoutRequested(within);
                session.wake(handle);
                inner.changes += 1;
            } else {
                inner.drop_where(handle, |session| session.nexus == opened.nexus);
            }
        });
    }

    /// Drops a session's connections.
    pub(crate) fn drop_session(&self, opened: Opened) {
        self.with(|inner, handle| {
            inner.drop_where(handle, |session| session.nexus == opened.nexus);
        });
    }

    /// Drops the sessions through portals at which the target is no longer offered.
    pub(crate) fn keep_reached(&self, logins: &LoginPolicy) {
        self.with(|inner, handle| {
            inner.drop_where(handle, |session| !logins.is_reached(session.group));
        });
    }

    /// Drops one connection of a session.
    pub(crate) fn drop_connection(&self, opened: Opened, connection: ConnectionId) {
        self.with(|inner, handle| {
            inner.changes += 1;
            let session = inner.session(opened);
            if let Some(own) = session.and_then(|session| session.connection(connection)) {
                own.is_dropped = true;
                handle.wake(own.id);
                inner.has_ended = true;
            }
        });
    }

    /// Drops every session, and accepts no other.
    pub(crate) fn remove(&self) {
        self.with(|inner, handle| {
            inner.is_removed = true;
            inner.drop_where(handle, |_| true);
        });
    }

    /// Changes the access of a session's host. Without access, the session is dropped.
    pub(crate) fn set_grant(&self, opened: Opened, grant: Grant) {
        if grant.access == Access::Denied {
            self.drop_session(opened);
            return;
        }
        self.with(|inner, _| {
            let (luns, access) = (grant.luns.clone(), grant.access);
            inner.device.set_access(opened.nexus, access, luns);
            if let Some(session) = inner.session(opened) {
                session.grant = grant;
            }
        });
    }

    /// The state of a session.
    pub(crate) fn session_state(&self, opened: Opened) -> SessionState {
        let mut inner = self.lock();
        let session = inner.session(opened);
        session.map_or(SessionState::Ended, |session| session.state)
    }

    /// The state of a session, and of the connection in it.
    pub(crate) fn connection_state(
        &self,
        opened: Opened,
        connection: ConnectionId,
    ) -> SessionState {
        let mut inner = self.lock();
        let session = inner.session(opened);
        session.map_or(SessionState::Ended, |session| {
            let state = session.state;
            match session.connection(connection) {
                None => SessionState::Ended,
                Some(own) if own.is_dropped && state.is_served() => SessionState::ConnectionDropped,
                Some(_) => state,
            }
        })
    }

    /// The commands that a connection is to abort.
    pub(crate) fn take_aborts(&self, opened: Opened, connection: ConnectionId) -> Vec<Abort> {
        let mut inner = self.lock();
        let session = inner.session(opened);
        let connection = session.and_then(|session| session.connection(connection));
        connection.map_or_else(Vec::new, |own| std::mem::take(&mut own.aborts))
    }

    /// Runs `call` with the device, then notifies the connections that it concerns.
    pub(crate) fn with_device<R>(&self, call: impl FnOnce(&mut Device) -> R) -> R {
        self.with(|inner, _| call(&mut inner.device))
    }

    /// The present view of a LUN by a nexus.
    pub(crate) fn view(&self, nexus: NexusId, lun: Lun) -> Option<Found<View>> {
        let inner = self.lock();
        let view = inner.device.view(nexus, lun)?;
        let totals = inner
            .volumes
            .values()
            .find(|volume| is_volume(volume, &view));
        Some(Found {
            volume: Arc::clone(&view.volume),
            totals: totals.map(|volume| Arc::clone(&volume.totals)),
            part: view,
        })
    }

    /// The reservations that are to be saved.
    pub(crate) fn unsaved_reservations(&self) -> UnsavedReservations {
        let inner = self.lock();
        UnsavedReservations {
            target: self.name.clone(),
            luns: inner.kept.luns.clone(),
            number: inner.kept.number,
        }
    }

    /// The number of the present reservations, if they are to be saved and are not yet.
    pub(crate) fn unsaved(&self) -> Option<u64> {
        let number = {
            let kept = &self.lock().kept;
            (kept.saved < kept.number).then_some(kept.number)
        };
        number.filter(|_| self.save_queue.is_served())
    }

    /// Whether the reservations of a number have been saved.
    pub(crate) fn saved(&self, number: u64) -> Saved {
        let kept = &self.lock().kept;
        if kept.saved >= number {
            Saved::Yes
        } else if kept.failed >= number {
            Saved::Failed
        } else {
            Saved::Pending
        }
    }

    /// Reservations have been saved, or could not be.
    pub(crate) fn note_saved(&self, number: u64, is_saved: bool) {
        let mut inner = self.lock();
        let kept = &mut inner.kept;
        let slot = if is_saved {
            &mut kept.saved
        } else {
            &mut kept.failed
        };
        *slot = number.max(*slot);
        for session in inner.sessions.values() {
            session.wake(&self.handle);
        }
    }

    /// Restores saved reservations after a restart.
    pub(crate) fn restore_reservations(&self, lun: Lun, saved: Reservations) {
        self.with_device(|device| device.restore_reservations(lun, saved));
    }

    /// Makes a volume a LUN. The number is free and within bounds.
    pub(crate) fn attach(&self, lun: Lun, volume: &VolumeHandle, machine: Uuid) {
        let identity = volume.identity.unit(volume.place(machine, &self.name));
        self.with(|inner, _| {
            inner.volumes.insert(lun, volume.clone());
            let unit = volume.volume.clone();
            inner.device.insert_unit(lun, unit, identity);
        });
    }

    /// Removes a LUN.
    pub(crate) fn detach(&self, lun: Lun) {
        self.with(|inner, _| {
            inner.device.remove_unit(lun);
            inner.volumes.remove(&lun);
        });
        // Commands that wait for the volume end.
        for session in self.lock().sessions.values() {
            session.wake(&self.handle);
        }
    }

    /// A LUN's volume has another capacity.
    pub(crate) fn capacity_changed(&self, lun: Lun) {
        self.with_device(|device| device.capacity_changed(lun));
    }

    /// A LUN's volume was locked or unlocked.
    pub(crate) fn protection_changed(&self, lun: Lun) {
        self.with_device(|device| device.protection_changed(lun));
    }

    /// A LUN's volume executes commands again.
    pub(crate) fn became_ready(&self, lun: Lun) {
        self.with_device(|device| device.became_ready(lun));
    }

    /// Initiators may reach a LUN's volume in another way.
    pub(crate) fn path_changed(&self, lun: Lun) {
        self.with_device(|device| device.path_changed(lun));
    }

    /// The memory budget becomes short.
    pub(crate) fn space_becomes_short(&self) {
        self.with_device(Device::space_becomes_short);
    }

    /// The groups of the iSCSI portals at which the target is offered, and whether it is offered
    /// over SRP: for SCSI, its ports.
    pub(crate) fn set_ports(&self, groups: impl IntoIterator<Item = PortalGroup>, is_srp: bool) {
        let iscsi = groups.into_iter().map(|group| {
            let tag = group.tag();
            TargetPort {
                relative_id: tag,
                protocol: PortProtocol::Iscsi,
                name: format!("{},t,0x{tag:04x}", self.name),
                group: tag,
            }
        });
        let srp = is_srp.then(|| TargetPort {
            relative_id: SRP_PORT,
            protocol: PortProtocol::Srp,
            name: format!(
                "eui.{:016x}{:016x}",
                self.srp_port.extension(),
                self.srp_port.guid()
            ),
            group: SRP_PORT,
        });
        let ports = iscsi.chain(srp).collect();
        self.with_device(|device| device.set_ports(ports));
    }

    /// The target's port identifier for SRP.
    pub(crate) fn srp_port(&self) -> PortId {
        self.srp_port
    }

    fn with<R>(&self, call: impl FnOnce(&mut Inner, &ReactorHandle) -> R) -> R {
        let mut inner = self.lock();
        let result = call(&mut inner, &self.handle);
        while let Some((nexus, lun)) = inner.device.poll_abort() {
            inner.has_ended = true;
            let mut sessions = inner.sessions.values_mut();
            let session = sessions.find(|session| session.nexus == nexus);
            let connections = session.into_iter().flat_map(|s| &mut s.connections);
            for connection in connections {
                connection.abort(Abort::ByAnother(lun), &self.handle);
            }
        }
        if inner.has_new_reservations() {
            self.save_queue.post(&self.name);
        }
        let generation = inner.device.generation() + inner.changes;
        self.generation.store(generation, Ordering::Release);
        if std::mem::take(&mut inner.has_ended) {
            inner.grace = self.handle.start_grace_period();
        }
        result
    }

    /// The device is complete between any two of its calls, so a panic of one session does not take
    /// the target from the others.
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    /// Opens a session between these ports, which have none.
    fn open(
        &mut self,
        ports: NexusPorts,
        group: PortalGroup,
        grant: Grant,
        connection: ConnectionId,
    ) -> Result<Opened, OpenError> {
        let (luns, access) = (grant.luns.clone(), grant.access);
        let nexus = self.device.open_nexus(ports.clone(), luns, access);
        let nexus = nexus.ok_or(OpenError::OutOfResources)?;
        let tsih = self.take_tsih();
        let session = Session {
            ports,
            group,
            grant,
            nexus,
            state: SessionState::Active,
            shared: None,
            connections: vec![Connected::new(0, connection)],
        };
        self.sessions.insert(tsih, session);
        Ok(Opened { tsih, nexus })
    }

    fn session(&mut self, opened: Opened) -> Option<&mut Session> {
        let session = self.sessions.get_mut(&opened.tsih);
        session.filter(|session| session.nexus == opened.nexus)
    }

    /// Whether the reservations that outlive a restart have changed since the last call.
    fn has_new_reservations(&mut self) -> bool {
        let generation = self.device.reservations_generation();
        if generation == self.kept.seen {
            return false;
        }
        self.kept.seen = generation;
        let now = self.device.persistent_reservations();
        // PRGENERATION is not kept.
        let now = now.map(|(lun, reservations)| {
            let kept = Reservations {
                generation: 0,
                ..reservations.clone()
            };
            (u32::from(lun), kept)
        });
        let now: BTreeMap<_, _> = now.collect();
        let is_new = now != self.kept.luns;
        if is_new {
            self.kept.luns = now;
            self.kept.number += 1;
        }
        is_new
    }

    /// Ends sessions: closes their nexuses, so that none of their commands is executed any more,
    /// and wakes their connections.
    fn end_where(&mut self, handle: &ReactorHandle, is_meant: impl Fn(&Session) -> bool) {
        self.sessions.retain(|_, session| {
            if !is_meant(session) {
                return true;
            }
            self.device.close_nexus(session.nexus);
            session.wake(handle);
            // A session without connections executes nothing.
            self.has_ended |= !session.connections.is_empty();
            false
        });
    }

    /// Drops sessions: closes their nexuses, so that none of their commands is executed any more,
    /// and makes their connections notify the initiator. Each session ends with its last
    /// connection.
    fn drop_where(&mut self, handle: &ReactorHandle, is_meant: impl Fn(&Session) -> bool) {
        self.changes += 1;
        self.has_ended = true;
        for session in self
            .sessions
            .values_mut()
            .filter(|session| is_meant(session))
        {
            self.device.close_nexus(session.nexus);
            session.state = SessionState::SessionDropped;
            session.wake(handle);
        }
    }

    /// A number that no session has, and none had recently.
    fn take_tsih(&mut self) -> u16 {
        let mut tsih = self.last_tsih;
        loop {
            tsih = tsih.wrapping_add(1);
            // A device has fewer nexuses than there are numbers, so one is free.
            if tsih != 0 && !self.sessions.contains_key(&tsih) {
                self.last_tsih = tsih;
                return tsih;
            }
        }
    }
}

/// The ports of an iSCSI session.
fn iscsi_ports(ends: SessionEnds<'_>, group: PortalGroup) -> NexusPorts {
    NexusPorts {
        initiator: format!("{},i,0x{:012x}", ends.initiator, number(ends.isid)),
        target_port: group.tag(),
    }
}

impl Session {
    fn connection(&mut self, id: ConnectionId) -> Option<&mut Connected> {
        self.connections.iter_mut().find(|own| own.id == id)
    }

    /// Removes connections, and wakes them. Returns how many there were.
    fn end_connections(
        &mut self,
        handle: &ReactorHandle,
        is_meant: impl Fn(&Connected) -> bool,
    ) -> usize {
        let before = self.connections.len();
        self.connections.retain(|connection| {
            let stays = !is_meant(connection);
            if !stays {
                handle.wake(connection.id);
            }
            stays
        });
        before - self.connections.len()
    }

    fn wake(&self, handle: &ReactorHandle) {
        for connection in &self.connections {
            handle.wake(connection.id);
        }
    }
}

impl Connected {
    fn new(cid: u16, id: ConnectionId) -> Self {
        Self {
            cid,
            id,
            is_dropped: false,
            aborts: Vec::new(),
        }
    }

    fn abort(&mut self, abort: Abort, handle: &ReactorHandle) {
        if self.aborts.contains(&abort) {
            return;
        }
        let by_another = |abort: &Abort| matches!(abort, Abort::ByAnother(_));
        match abort {
            Abort::ByOwn { before, .. } if self.aborts.len() >= ABORTS_MAX => {
                let scope = AbortScope::All;
                self.aborts.retain(by_another);
                self.aborts.push(Abort::ByOwn { scope, before });
            }
            _ => self.aborts.push(abort),
        }
        handle.wake(self.id);
    }
}

const _: () = assert!(scsi::NEXUSES_MAX < u16::MAX as usize);

fn is_volume(volume: &VolumeHandle, view: &View) -> bool {
    std::ptr::addr_eq(Arc::as_ptr(&volume.volume), Arc::as_ptr(&view.volume))
}

/// An ISID as a number of 48 bits.
fn number(isid: [u8; 6]) -> u64 {
    let mut wide = [0; 8];
    wide[2..].copy_from_slice(&isid);
    u64::from_be_bytes(wide)
}
