//! A target in plain memory for sessions in tests and fuzz targets.

pub mod fuzz;
mod iser;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use block::testing::VecVolume;
use block::{Access, Volume};
use scsi::testing::SeenVolumes;
use scsi::{Device, Lun, LunMap, NexusId, NexusPorts, SanitizeWork, Step, Turn, View};
use session::{Leases, Segment, SendList, Session as _, SourceId, StreamSession as _};

pub use iser::{IserBed, IserInitiator, Received, laid_out};

use crate::backend::{
    Abort, Authentication, Backend, Completed, LoggedIn, OpenError, Opened, Saved, SessionEnds,
    SessionState, TargetAddress, TargetRecord,
};
use crate::tcp::{SEND_LIST_MIN_BYTES, TargetSession};
use crate::{AbortScope, CommandWindow, LoginStatus, Parameters};

/// A target with a volume behind each LUN from 0 on.
#[derive(Clone)]
pub struct TestTarget {
    device: Arc<Mutex<Device>>,
    sessions: Arc<Mutex<Sessions>>,
    volumes: Arc<[Arc<VecVolume>]>,
    lun_count: usize,
    authentication: Authentication,
    /// The LUNs that connections looked up, in order.
    looked_up: Arc<Mutex<Vec<Lun>>>,
    /// Sanitize operations whose connection has ended and whose volume answers late.
    adopted: Arc<Mutex<Vec<SanitizeWork>>>,
}

/// The sessions with a target.
#[derive(Default)]
struct Sessions {
    connections: Vec<Member>,
    shared: BTreeMap<u16, Shared>,
    last_tsih: u16,
    last_id: u64,
    /// Connections that a volume or another connection has woken.
    wakes: BTreeSet<u64>,
}

/// The state that connections of a session share.
#[derive(Clone)]
struct Shared {
    opened: Opened,
    parameters: Parameters,
    window: Arc<Mutex<CommandWindow>>,
}

/// A connection of a session.
struct Member {
    id: u64,
    opened: Opened,
    cid: u16,
    aborts: Vec<Abort>,
}

/// The backend of one connection to a [`TestTarget`].
pub struct TestBackend {
    target: TestTarget,
    id: u64,
    opened: Option<Opened>,
    window: Option<Arc<Mutex<CommandWindow>>>,
    view: Option<View>,
    seen: SeenVolumes,
    /// The most bytes of commands that the connection may hold.
    pub gather_max: u64,
    /// How many commands have ended.
    pub completed: u64,
}

impl TestTarget {
    /// Its TargetName.
    pub const NAME: &'static str = "iqn.2026-11.com.example:test";

    /// A target that needs no authentication.
    pub fn new(volumes: Vec<Arc<VecVolume>>) -> Self {
        Self::over(volumes.clone(), volumes)
    }

    /// A target whose logical units keep their contents in `volumes`.
    pub fn over<V: Volume + 'static>(units: Vec<Arc<V>>, volumes: Vec<Arc<VecVolume>>) -> Self {
        let lun_count = units.len();
        let device = scsi::testing::device(Self::NAME, (0..).zip(units));
        Self {
            device: Arc::new(Mutex::new(device)),
            sessions: Arc::default(),
            volumes: volumes.into(),
            lun_count,
            authentication: Authentication::default(),
            looked_up: Arc::default(),
            adopted: Arc::default(),
        }
    }

    /// The LUNs that connections looked up, in order. A LUN without a logical unit is looked up
    /// when a command to it begins.
    pub fn looked_up(&self) -> Vec<Lun> {
        lock(&self.looked_up).clone()
    }

    /// The sanitize operations that outlived their connections and wait to be admitted again, since
    /// the last call.
    pub fn take_adopted(&self) -> Vec<SanitizeWork> {
        std::mem::take(&mut lock(&self.adopted))
    }

    /// The same target, whose logins need CHAP.
    #[must_use]
    pub fn with_authentication(self, authentication: Authentication) -> Self {
        Self {
            authentication,
            ..self
        }
    }

    /// The backend of a new connection.
    pub fn backend(&self) -> TestBackend {
        let mut sessions = lock(&self.sessions);
        sessions.last_id += 1;
        TestBackend {
            target: self.clone(),
            id: sessions.last_id,
            opened: None,
            window: None,
            view: None,
            seen: SeenVolumes::default(),
            gather_max: u64::MAX,
            completed: 0,
        }
    }

    /// The device server, for changes by a test.
    pub fn device(&self) -> MutexGuard<'_, Device> {
        lock(&self.device)
    }

    /// The volume behind `lun`.
    pub fn volume(&self, lun: Lun) -> &VecVolume {
        &self.volumes[usize::from(lun)]
    }
}

impl TestBackend {
    fn opened(&self) -> Opened {
        self.opened.expect("the session is not for discovery")
    }

    /// Whether the connection was woken since the last call.
    pub fn take_wake(&mut self) -> bool {
        lock(&self.target.sessions).wakes.remove(&self.id)
    }

    /// Clears the unit attentions of the power-on.
    pub fn clear_attention(&mut self) {
        for lun in 0..self.target.lun_count {
            if let Some(Opened { nexus, .. }) = self.opened {
                self.target.device().begin(nexus, lun as Lun, &[0; 16]);
            }
        }
    }

    /// Everything that `connection` sends now.
    pub fn drain(&mut self, now: Instant, connection: &mut TargetSession<Self>) -> Vec<u8> {
        let mut list = SendList::with_capacity(SEND_LIST_MIN_BYTES);
        let mut bytes = Vec::new();
        while connection.wants_transmit() {
            connection.poll_transmit(now, self, &mut list);
            if list.is_empty() {
                break;
            }
            for segment in list.segments() {
                match segment {
                    Segment::Bytes(part) => bytes.extend_from_slice(part),
                    Segment::Place(place) => {
                        let volume = self.target.volume(place.source.0 as Lun);
                        bytes.extend(volume.bytes(place.range));
                    }
                }
            }
            list.consume(list.len_bytes());
        }
        bytes
    }
}

impl Backend for TestBackend {
    fn authentication(&mut self, _: &str, _: Option<&str>) -> Option<Authentication> {
        Some(self.target.authentication.clone())
    }

    fn connection(&self) -> u64 {
        self.id
    }

    fn portal_group(&self) -> u16 {
        1
    }

    fn open(&mut self, ends: SessionEnds<'_>) -> Result<Opened, OpenError> {
        if ends.target != TestTarget::NAME {
            return Err(OpenError::NotFound);
        }
        let ports = NexusPorts {
            initiator: ends.initiator.into(),
            target_port: 1,
        };
        let nexus = self
            .target
            .device()
            .open_nexus(ports, LunMap::All, Access::ReadWrite);
        let nexus = nexus.ok_or(OpenError::OutOfResources)?;
        let mut sessions = lock(&self.target.sessions);
        sessions.last_tsih += 1;
        let tsih = sessions.last_tsih;
        let opened = Opened { tsih, nexus };
        sessions.connections.push(Member::new(self.id, opened, 0));
        self.opened = Some(opened);
        Ok(opened)
    }

    fn share(&mut self, parameters: &Parameters, window: CommandWindow, cid: u16) {
        let opened = self.opened();
        let shared = Shared {
            opened,
            parameters: parameters.clone(),
            window: Arc::new(Mutex::new(window)),
        };
        self.window = Some(Arc::clone(&shared.window));
        let mut sessions = lock(&self.target.sessions);
        sessions.shared.insert(opened.tsih, shared);
        for member in sessions.of(opened) {
            member.cid = cid;
        }
    }

    fn join(
        &mut self,
        _: SessionEnds<'_>,
        tsih: u16,
        cid: u16,
    ) -> Result<(Opened, Parameters), OpenError> {
        let mut sessions = lock(&self.target.sessions);
        let session = sessions.shared.get(&tsih).cloned();
        let session = session.ok_or(OpenError::NoSession)?;
        let opened = session.opened;
        sessions.end(opened, |member| member.cid == cid);
        sessions.connections.push(Member::new(self.id, opened, cid));
        self.opened = Some(opened);
        self.window = Some(session.window);
        Ok((opened, session.parameters))
    }

    fn with_window<R>(&mut self, call: impl FnOnce(&mut CommandWindow) -> R) -> R {
        let window = self.window.as_ref();
        call(&mut lock(window.expect("the session is shared")))
    }

    fn end_others(&mut self, cid: Option<u16>) -> usize {
        let Some(opened) = self.opened else {
            return 0;
        };
        let own = self.id;
        let is_meant =
            |member: &Member| member.id != own && cid.is_none_or(|cid| member.cid == cid);
        lock(&self.target.sessions).end(opened, is_meant)
    }

    fn abort_on_others(&mut self, scope: AbortScope, before: u32) {
        let opened = self.opened();
        let mut sessions = lock(&self.target.sessions);
        let mut wakes = Vec::new();
        for member in sessions.of(opened).filter(|member| member.id != self.id) {
            member.aborts.push(Abort::ByOwn { scope, before });
            wakes.push(member.id);
        }
        sessions.wakes.extend(wakes);
    }

    fn fence(&mut self) -> u64 {
        0
    }

    fn is_past(&mut self, _: u64) -> bool {
        let connections = &lock(&self.target.sessions).connections;
        connections
            .iter()
            .all(|member| member.id == self.id || member.aborts.is_empty())
    }

    fn wake_other(&mut self, cid: u16) {
        let opened = self.opened();
        let mut sessions = lock(&self.target.sessions);
        let meant = sessions.of(opened).filter(|member| member.cid == cid);
        let meant: Vec<_> = meant.map(|member| member.id).collect();
        sessions.wakes.extend(meant);
    }

    fn logged_in(&mut self, _: &LoggedIn) {}

    fn login_refused(&mut self, _: &str, _: Option<&str>, _: LoginStatus) {}

    fn charge(&mut self, len_bytes: u64) -> bool {
        len_bytes <= self.gather_max
    }

    fn targets(&mut self, _: &str) -> Vec<TargetRecord> {
        vec![TargetRecord {
            name: TestTarget::NAME.into(),
            addresses: vec![TargetAddress {
                ip: std::net::Ipv4Addr::LOCALHOST.into(),
                port: 3260,
                group: 1,
            }],
        }]
    }

    fn with_device<R>(&mut self, call: impl FnOnce(&mut Device, NexusId) -> R) -> R {
        let nexus = self.opened().nexus;
        let mut device = self.target.device();
        let result = call(&mut device, nexus);
        let aborts: Vec<_> = std::iter::from_fn(|| device.poll_abort()).collect();
        let mut sessions = lock(&self.target.sessions);
        for (nexus, lun) in aborts {
            let mut wakes = Vec::new();
            let meant = sessions.connections.iter_mut();
            for member in meant.filter(|member| member.opened.nexus == nexus) {
                member.aborts.push(Abort::ByAnother(lun));
                wakes.push(member.id);
            }
            sessions.wakes.extend(wakes);
        }
        result
    }

    fn view(&mut self, lun: Lun) -> Option<(&View, SourceId)> {
        let nexus = self.opened?.nexus;
        lock(&self.target.looked_up).push(lun);
        self.view = self.target.device().view(nexus, lun);
        let view = self.view.as_ref()?;
        Some((view, SourceId(self.seen.number(lun, &view.volume))))
    }

    fn unsaved(&mut self) -> Option<u64> {
        None
    }

    fn saved(&mut self, _: u64) -> Saved {
        Saved::Yes
    }

    fn random(&mut self) -> [u8; 17] {
        [7; 17]
    }

    fn completed(&mut self, _: Completed) {
        self.completed += 1;
    }

    fn take_aborts(&mut self) -> Vec<Abort> {
        let Some(opened) = self.opened else {
            return Vec::new();
        };
        let mut sessions = lock(&self.target.sessions);
        let own = sessions.of(opened).find(|member| member.id == self.id);
        let aborts = own.map_or_else(Vec::new, |own| std::mem::take(&mut own.aborts));
        let all = sessions.connections.iter().map(|member| member.id);
        let all: Vec<_> = all.collect();
        sessions.wakes.extend(all);
        aborts
    }

    fn session_state(&mut self) -> SessionState {
        let Some(opened) = self.opened else {
            return SessionState::Active;
        };
        let mut sessions = lock(&self.target.sessions);
        let stands = sessions.of(opened).any(|member| member.id == self.id);
        if stands {
            SessionState::Active
        } else {
            SessionState::Ended
        }
    }

    fn drop_session(&mut self) {
        let opened = self.opened();
        lock(&self.target.sessions).end(opened, |_| true);
    }

    fn adopt(&mut self, mut sanitize: Box<SanitizeWork>) {
        let mut leases = Leases::new(u64::MAX);
        sanitize.admit(Instant::now(), &mut leases, 0);
        while let Step::More = sanitize.go_on(&mut Turn::new(), &mut leases, 0) {}
        if sanitize.suspend(&mut leases, 0) {
            lock(&self.target.adopted).push(*sanitize);
        }
    }

    fn close(&mut self) {
        let Some(opened) = self.opened else {
            return;
        };
        let mut sessions = lock(&self.target.sessions);
        sessions.connections.retain(|member| member.id != self.id);
        if sessions.of(opened).next().is_none() {
            sessions.shared.remove(&opened.tsih);
            drop(sessions);
            self.target.device().close_nexus(opened.nexus);
        }
    }
}

impl Sessions {
    fn of(&mut self, opened: Opened) -> impl Iterator<Item = &mut Member> {
        let all = self.connections.iter_mut();
        all.filter(move |member| member.opened == opened)
    }

    /// Ends connections of a session. Returns their number.
    fn end(&mut self, opened: Opened, is_meant: impl Fn(&Member) -> bool) -> usize {
        let is_meant = |member: &Member| member.opened == opened && is_meant(member);
        let meant = self.connections.iter().filter(|member| is_meant(member));
        self.wakes.extend(meant.map(|member| member.id));
        let before = self.connections.len();
        self.connections.retain(|member| !is_meant(member));
        before - self.connections.len()
    }
}

impl Member {
    fn new(id: u64, opened: Opened, cid: u16) -> Self {
        Self {
            id,
            opened,
            cid,
            aborts: Vec::new(),
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
