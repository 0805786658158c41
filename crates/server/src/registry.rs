//! The connections and sessions that exist.

use std::collections::{BTreeMap, HashMap};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use block::HostIdentity;
use net::{Accepted, ConnectionId};
use nvme::controller::{ControllerId, PortalNumber};

use crate::access::Grant;
use crate::brp::Member as BrpMember;
use crate::counters::Totals;
use crate::iscsi::{Member as IscsiMember, Negotiated};
use crate::nfs::Member as NfsMember;
use crate::nvme_target::NvmeTarget;
use crate::{
    HostName, IscsiConnection, SessionId, SessionInfo, SessionProtocol, ShareName, TargetName,
    Transport,
};

/// The connections and sessions that exist. No other lock is taken under this one. It is taken when
/// connections open, log in and close.
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
    portal: PortalNumber,
    session: Option<SessionId>,
}

/// What a session is to its protocol.
#[derive(Clone)]
pub(crate) enum Member {
    /// A controller of a subsystem or of the discovery service, with the transport of its host.
    Controller(Arc<NvmeTarget>, ControllerId, Transport),
    /// An iSCSI session, with what was negotiated at its first login.
    Iscsi(IscsiMember, Arc<Negotiated>),
    /// A connection of an NFS client.
    Nfs(Arc<NfsMember>),
    /// The channels of an SRP nexus.
    Srp(IscsiMember),
    /// A session of BRP.
    Brp(Arc<NvmeTarget>, Arc<BrpMember>),
}

impl Member {
    /// The target; none for discovery.
    fn target(&self) -> Option<&TargetName> {
        match self {
            Self::Controller(target, ..) | Self::Brp(target, _) => target.name(),
            Self::Iscsi(member, _) | Self::Srp(member) => member.target_name(),
            Self::Nfs(_) => None,
        }
    }

    /// A session with an iSCSI target, whichever protocol it speaks.
    fn as_iscsi(&self) -> Option<&IscsiMember> {
        match self {
            Self::Controller(..) | Self::Nfs(_) | Self::Brp(..) => None,
            Self::Iscsi(member, _) | Self::Srp(member) => Some(member),
        }
    }

    fn as_nfs(&self) -> Option<&Arc<NfsMember>> {
        match self {
            Self::Controller(..) | Self::Iscsi(..) | Self::Srp(_) | Self::Brp(..) => None,
            Self::Nfs(member) => Some(member),
        }
    }

    fn is(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Controller(a, x, _), Self::Controller(b, y, _)) => Arc::ptr_eq(a, b) && x == y,
            (Self::Iscsi(a, _), Self::Iscsi(b, _)) | (Self::Srp(a), Self::Srp(b)) => a.is(b),
            (Self::Nfs(a), Self::Nfs(b)) => Arc::ptr_eq(a, b),
            (Self::Brp(_, a), Self::Brp(_, b)) => Arc::ptr_eq(a, b),
            _ => false,
        }
    }

    /// Ends the session and closes its connections; those of iSCSI when the initiator has logged
    /// out, or after `within`.
    pub(crate) fn end(&self, within: Duration) {
        match self {
            Self::Controller(target, controller, _) => {
                target.with(|subsystem| subsystem.delete_controller(*controller));
            }
            Self::Iscsi(member, _) | Self::Srp(member) => member.end(within),
            Self::Nfs(member) => member.end(),
            Self::Brp(_, member) => member.end(),
        }
    }
}

/// A host connected to a target.
#[derive(Clone)]
pub(crate) struct Session {
    pub(crate) member: Member,
    pub(crate) host: HostName,
    pub(crate) peer: SocketAddr,
    local: SocketAddr,
    connections: usize,
    /// Its connections, if they are iSCSI connections.
    links: Vec<Link>,
    since: SystemTime,
    totals: Arc<Totals>,
}

/// A connection of an iSCSI session.
#[derive(Clone)]
struct Link {
    id: ConnectionId,
    peer: SocketAddr,
    local: SocketAddr,
    negotiated: Arc<Negotiated>,
}

impl Registry {
    pub(crate) fn connection_opened(&self, id: ConnectionId, portal: PortalNumber) {
        let entry = ConnectionEntry {
            portal,
            session: None,
        };
        self.lock().connections.insert(id, entry);
    }

    /// A connection has joined a session, or started it. Returns the session and its totals.
    pub(crate) fn bind(
        &self,
        accepted: &Accepted,
        member: Member,
        host: &HostName,
    ) -> (SessionId, Arc<Totals>) {
        let link = match &member {
            Member::Controller(..) | Member::Nfs(_) | Member::Srp(_) | Member::Brp(..) => None,
            Member::Iscsi(_, negotiated) => Some(Link {
                id: accepted.id,
                peer: accepted.peer,
                local: accepted.local,
                negotiated: Arc::clone(negotiated),
            }),
        };
        let mut inner = self.lock();
        let mut sessions = inner.sessions.iter_mut();
        let existing = sessions.find(|(_, session)| session.member.is(&member));
        let (id, totals) = match existing {
            Some((&id, session)) if session.host == *host => {
                session.connections += 1;
                session.links.extend(link);
                (id, Arc::clone(&session.totals))
            }
            _ => {
                inner.last_session += 1;
                let id = SessionId(inner.last_session);
                let session = Session {
                    member,
                    host: host.clone(),
                    peer: accepted.peer,
                    local: accepted.local,
                    connections: 1,
                    links: link.into_iter().collect(),
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

    /// A connection has ended. A session ends with its last connection.
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
            entry.links.retain(|link| link.id != id);
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
        let is_of = |session: &&Session| session.member.target() == Some(target);
        inner.sessions.values().filter(is_of).count()
    }

    /// How many open sessions have used each share.
    pub(crate) fn sessions_by_share(&self) -> BTreeMap<ShareName, usize> {
        let members: Vec<_> = {
            let inner = self.lock();
            let members = inner.sessions.values().map(|session| &session.member);
            members.filter_map(Member::as_nfs).cloned().collect()
        };
        let mut sessions = BTreeMap::new();
        for share in members.iter().flat_map(|member| member.shares()) {
            *sessions.entry(share).or_default() += 1;
        }
        sessions
    }

    /// The sessions with iSCSI targets.
    pub(crate) fn iscsi_sessions(&self) -> Vec<IscsiMember> {
        let inner = self.lock();
        let members = inner.sessions.values().map(|session| &session.member);
        members.filter_map(Member::as_iscsi).cloned().collect()
    }

    /// The open connections of sessions with iSCSI targets through a portal.
    pub(crate) fn iscsi_connections(
        &self,
        portal: PortalNumber,
    ) -> Vec<(ConnectionId, IscsiMember)> {
        let inner = self.lock();
        let through = inner.connections.iter();
        through
            .filter(|(_, entry)| entry.portal == portal)
            .filter_map(|(&id, entry)| {
                let session = inner.sessions.get(&entry.session?)?;
                Some((id, session.member.as_iscsi()?.clone()))
            })
            .collect()
    }

    /// The number of open connections through a portal.
    pub(crate) fn connections_of(&self, portal: PortalNumber) -> usize {
        let inner = self.lock();
        let is_of = |entry: &&ConnectionEntry| entry.portal == portal;
        inner.connections.values().filter(is_of).count()
    }

    /// The number of open connections that a thread drives ([`ConnectionId::thread`]).
    pub(crate) fn connections_on(&self, thread: usize) -> usize {
        let connections = &self.lock().connections;
        connections
            .keys()
            .filter(|id| id.thread() == thread)
            .count()
    }

    /// Every method leaves the maps complete, so a poisoned lock is used.
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Link {
    fn info(&self) -> IscsiConnection {
        IscsiConnection {
            cid: self.negotiated.cid,
            peer: self.peer,
            local: self.local,
            parameters: self.negotiated.keys.clone(),
        }
    }
}

impl Session {
    /// Who the session's host is, for the access check.
    pub(crate) fn identity(&self) -> HostIdentity<'_> {
        HostIdentity {
            name: Some(self.host.as_str()),
            address: self.peer.ip(),
        }
    }

    pub(crate) fn target(&self) -> Option<&TargetName> {
        self.member.target()
    }

    /// Updates what the session's host may do. A host that may do nothing loses its session.
    pub(crate) fn set_grant(&self, grant: Grant) {
        match &self.member {
            Member::Controller(target, controller, _) => {
                target.with(|subsystem| subsystem.set_access(*controller, grant.access));
            }
            Member::Iscsi(member, _) | Member::Srp(member) => member.set_grant(grant),
            Member::Brp(_, member) => member.set_grant(&grant),
            // Each call is checked on its own.
            Member::Nfs(_) => {}
        }
    }

    pub(crate) fn info(&self, id: SessionId) -> SessionInfo {
        SessionInfo {
            id,
            target: self.target().cloned(),
            host: self.host.clone(),
            peer: self.peer,
            local: self.local,
            protocol: match &self.member {
                Member::Controller(_, controller, transport) => SessionProtocol::Nvme {
                    transport: *transport,
                    controller: controller.0,
                },
                Member::Iscsi(member, negotiated) => SessionProtocol::Iscsi {
                    transport: negotiated.transport,
                    isid: negotiated.isid,
                    tsih: member.tsih(),
                    state: member.state(),
                    parameters: negotiated.keys.clone(),
                    connections: self.links.iter().map(Link::info).collect(),
                },
                Member::Srp(member) => SessionProtocol::Srp {
                    state: member.state(),
                },
                Member::Nfs(member) => member.protocol(),
                Member::Brp(_, member) => member.protocol(),
            },
            connections: self.connections,
            since: self.since,
            statistics: self.totals.sum(),
        }
    }
}
