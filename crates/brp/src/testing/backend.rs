//! A target with one unit, whose sessions move between connections.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use block::Volume;
use session::SourceId;

use crate::target::{
    Backend, Completed, LogIn, LoginRequest, Permission, SessionRecord, Standing, UnitRef,
};
use crate::wire::{LoginStatus, SessionId};

/// A target with one unit, number 1, that admits every host.
#[derive(Default)]
pub struct TestTarget {
    unit: Mutex<Option<Arc<dyn Volume>>>,
    sessions: Mutex<BTreeMap<SessionId, TestSession>>,
    connections: AtomicU64,
}

/// A session.
struct TestSession {
    host: String,
    /// The connection that has the record, if none is here.
    connection: u64,
    record: Option<SessionRecord>,
}

impl TestTarget {
    /// A target of this volume.
    pub fn new(volume: Arc<dyn Volume>) -> Arc<Self> {
        Arc::new(Self {
            unit: Mutex::new(Some(volume)),
            ..Self::default()
        })
    }

    /// Removes the unit, or replaces it.
    pub fn set_unit(&self, volume: Option<Arc<dyn Volume>>) {
        *lock(&self.unit) = volume;
    }

    /// How many sessions there are.
    pub fn sessions(&self) -> usize {
        lock(&self.sessions).len()
    }

    /// Forgets sessions without a connection.
    pub fn forget_detached(&self) {
        lock(&self.sessions).retain(|_, session| session.record.is_none());
    }
}

/// A connection's backend.
pub struct TestBackend {
    target: Arc<TestTarget>,
    connection: u64,
    session: Option<SessionId>,
    unit: Option<Arc<dyn Volume>>,
    sources: u32,
    /// What the host may do.
    pub permission: Permission,
    /// The completed commands, in order.
    pub completed: Vec<Completed>,
    /// Bytes that are charged for the data of waiting commands.
    pub charged_bytes: u64,
    /// The most bytes that may be charged.
    pub charged_max_bytes: u64,
}

impl TestBackend {
    /// The backend of a new connection.
    pub fn new(target: &Arc<TestTarget>) -> Self {
        Self {
            connection: target.connections.fetch_add(1, Ordering::Relaxed) + 1,
            target: Arc::clone(target),
            session: None,
            unit: None,
            sources: 0,
            permission: Permission::ALL,
            completed: Vec::new(),
            charged_bytes: 0,
            charged_max_bytes: u64::MAX,
        }
    }

    /// The session of the connection, once a login was granted.
    pub fn session(&self) -> Option<SessionId> {
        self.session
    }
}

impl Backend for TestBackend {
    fn connection(&self) -> u64 {
        self.connection
    }

    fn log_in(&mut self, login: &LoginRequest<'_>) -> LogIn {
        if login.unit != 1 {
            return LogIn::Rejected(LoginStatus::NoUnit);
        }
        let mut sessions = lock(&self.target.sessions);
        let record = if login.session == SessionId::NONE {
            let mut id = [0xA5; 16];
            id[..8].copy_from_slice(&self.connection.to_le_bytes());
            let id = SessionId(id);
            let session = TestSession {
                host: login.host.to_owned(),
                connection: self.connection,
                record: None,
            };
            sessions.insert(id, session);
            SessionRecord::new(id, login.tags)
        } else {
            let Some(session) = sessions.get_mut(&login.session) else {
                return LogIn::Rejected(LoginStatus::NoSession);
            };
            if session.host != login.host {
                return LogIn::Rejected(LoginStatus::NoSession);
            }
            let Some(record) = session.record.take() else {
                return LogIn::Wait;
            };
            session.connection = self.connection;
            record
        };
        self.session = Some(record.session());
        LogIn::Granted {
            record,
            volume: [7; 16],
        }
    }

    fn log_out(&mut self) {
        if let Some(session) = self.session.take() {
            lock(&self.target.sessions).remove(&session);
        }
    }

    fn detach(&mut self, record: SessionRecord) {
        let mut sessions = lock(&self.target.sessions);
        let session = self.session.take().and_then(|id| sessions.get_mut(&id));
        if let Some(session) = session.filter(|session| session.connection == self.connection) {
            session.record = Some(record);
        }
    }

    fn standing(&mut self) -> Standing {
        Standing::Good
    }

    fn unit(&mut self) -> Option<UnitRef<'_>> {
        let now = lock(&self.target.unit).clone();
        let is_same = match (&now, &self.unit) {
            (Some(now), Some(before)) => Arc::ptr_eq(now, before),
            (None, None) => true,
            _ => false,
        };
        if !is_same {
            self.unit = now;
            self.sources += 1;
        }
        let volume = self.unit.as_ref()?;
        Some(UnitRef {
            volume,
            source: SourceId(self.sources),
            permission: self.permission,
            is_pinned: volume.pinned().is_some(),
        })
    }

    fn charge_input(&mut self, len_bytes: u64) -> bool {
        let fits = len_bytes <= self.charged_max_bytes;
        if fits {
            self.charged_bytes = len_bytes;
        }
        fits
    }

    fn completed(&mut self, command: &Completed) {
        self.completed.push(*command);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
