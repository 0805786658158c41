//! Which connections and sessions there are.

use std::collections::{BTreeMap, HashMap};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use net::{Accepted, ConnectionId};
use nvme::target::{ControllerId, PortId};

use crate::offered::Offered;
use crate::tally::Totals;
use crate::{HostName, SessionId, SessionInfo, TargetName};

/// Which connections and sessions there are. A leaf among the locks; taken when connections come, log in and go.
#[derive(Default)]
pub(crate) struct Registry {
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    connections: HashMap<ConnectionId, ConnectionEntry>,
    sessions: BTreeMap<SessionId, Session>,
    last_session: u64,
}

struct ConnectionEntry {
    portal: PortId,
    session: Option<SessionId>,
}

/// A host connected to a target: a controller with its queues.
#[derive(Clone)]
pub(crate) struct Session {
    pub(crate) offered: Arc<Offered>,
    pub(crate) host: HostName,
    pub(crate) controller: ControllerId,
    pub(crate) peer: SocketAddr,
    local: SocketAddr,
    connections: usize,
    since: SystemTime,
    totals: Arc<Totals>,
}

impl Registry {
    pub(crate) fn connection_opened(&self, id: ConnectionId, portal: PortId) {
        let entry = ConnectionEntry {
            portal,
            session: None,
        };
        self.lock().connections.insert(id, entry);
    }

    /// A connection has become a queue of a controller: the session's first, or one more. Returns the session and its
    /// totals.
    pub(crate) fn bind(
        &self,
        accepted: &Accepted,
        offered: &Arc<Offered>,
        controller: ControllerId,
        host: &HostName,
    ) -> (SessionId, Arc<Totals>) {
        let mut inner = self.lock();
        let existing = inner.sessions.iter_mut().find(|(_, session)| {
            session.controller == controller && Arc::ptr_eq(&session.offered, offered)
        });
        let (id, totals) = match existing {
            Some((&id, session)) if session.host == *host => {
                session.connections += 1;
                (id, Arc::clone(&session.totals))
            }
            _ => {
                inner.last_session += 1;
                let id = SessionId(inner.last_session);
                let session = Session {
                    offered: Arc::clone(offered),
                    host: host.clone(),
                    controller,
                    peer: accepted.peer,
                    local: accepted.local,
                    connections: 1,
                    since: SystemTime::now(),
                    totals: Arc::default(),
                };
                let totals = Arc::clone(&session.totals);
                inner.sessions.insert(id, session);
                (id, totals)
            }
        };
        if let Some(connection) = inner.connections.get_mut(&accepted.id) {
            connection.session = Some(id);
        }
        (id, totals)
    }

    /// A connection has ended; with its last one ends a session.
    pub(crate) fn connection_closed(&self, id: ConnectionId) {
        let mut inner = self.lock();
        let Some(session) = inner
            .connections
            .remove(&id)
            .and_then(|entry| entry.session)
        else {
            return;
        };
        if let Some(entry) = inner.sessions.get_mut(&session) {
            entry.connections -= 1;
            if entry.connections == 0 {
                inner.sessions.remove(&session);
            }
        }
    }

    pub(crate) fn sessions(&self) -> Vec<(SessionId, Session)> {
        let inner = self.lock();
        inner
            .sessions
            .iter()
            .map(|(&id, session)| (id, session.clone()))
            .collect()
    }

    pub(crate) fn session(&self, id: SessionId) -> Option<Session> {
        self.lock().sessions.get(&id).cloned()
    }

    /// How many sessions a target has.
    pub(crate) fn sessions_of(&self, target: &TargetName) -> usize {
        let inner = self.lock();
        let is_of = |session: &&Session| session.offered.name() == Some(target);
        inner.sessions.values().filter(is_of).count()
    }

    /// How many connections came through a portal and are still there.
    pub(crate) fn connections_of(&self, portal: PortId) -> usize {
        let inner = self.lock();
        let is_of = |entry: &&ConnectionEntry| entry.portal == portal;
        inner.connections.values().filter(is_of).count()
    }

    /// Every method leaves the maps complete.
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Session {
    pub(crate) fn info(&self, id: SessionId) -> SessionInfo {
        SessionInfo {
            id,
            target: self.offered.name().cloned(),
            host: self.host.clone(),
            peer: self.peer,
            local: self.local,
            controller: self.controller.0,
            connections: self.connections,
            since: self.since,
            statistics: self.totals.sum(),
        }
    }
}
