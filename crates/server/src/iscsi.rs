//! iSCSI targets, and their sessions as the registry knows them.

mod target;

use std::sync::Arc;
use std::time::Duration;

use ::iscsi::{Opened, SessionState};
use net::{ConnectionId, ReactorHandle};

pub(crate) use target::{IscsiTarget, SharedSession};

use crate::access::Grant;
use crate::{IscsiState, TargetName, Transport};

/// How long an initiator may take to log out after it was asked to.
pub(crate) const LOGOUT_WITHIN: Duration = Duration::from_secs(3);

/// An iSCSI session as the registry knows it.
#[derive(Clone)]
pub(crate) enum Member {
    /// With a target.
    Normal(Arc<IscsiTarget>, Opened),
    /// For discovery: of one connection.
    Discovery(ConnectionId, ReactorHandle),
}

/// What a session's login negotiated, for display.
#[derive(Clone, Debug)]
pub(crate) struct Negotiated {
    pub(crate) transport: Transport,
    pub(crate) isid: [u8; 6],
    pub(crate) cid: u16,
    pub(crate) keys: Vec<(&'static str, String)>,
}

impl Member {
    pub(crate) fn target_name(&self) -> Option<&TargetName> {
        match self {
            Self::Normal(target, _) => Some(target.name()),
            Self::Discovery(..) => None,
        }
    }

    pub(crate) fn tsih(&self) -> u16 {
        match self {
            Self::Normal(_, opened) => opened.tsih,
            Self::Discovery(..) => 0,
        }
    }

    /// The state of the session.
    pub(crate) fn state(&self) -> IscsiState {
        match self {
            Self::Normal(target, opened) => match target.session_state(*opened) {
                SessionState::Active => IscsiState::LoggedIn,
                SessionState::LogoutRequested(_) => IscsiState::LogoutRequested,
                SessionState::SessionDropped
                | SessionState::ConnectionDropped
                | SessionState::Ended => IscsiState::Dropped,
            },
            Self::Discovery(..) => IscsiState::LoggedIn,
        }
    }

    pub(crate) fn is(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Normal(a, x), Self::Normal(b, y)) => Arc::ptr_eq(a, b) && x == y,
            (Self::Discovery(a, _), Self::Discovery(b, _)) => a == b,
            _ => false,
        }
    }

    /// Ends the session: its initiator is asked to log out, and is dropped if it has not done so in
    /// time. Not for reactor threads.
    pub(crate) fn end(&self, within: Duration) {
        match self {
            Self::Normal(target, opened) => target.request_logout(*opened, within),
            Self::Discovery(connection, handle) => handle.close(*connection),
        }
    }

    /// Drops the session's connections, or one of them. Not for reactor threads.
    pub(crate) fn drop_connections(&self, one: Option<ConnectionId>) {
        match (self, one) {
            (Self::Normal(target, opened), None) => target.drop_session(*opened),
            (Self::Normal(target, opened), Some(one)) => target.drop_connection(*opened, one),
            (Self::Discovery(connection, handle), _) => handle.close(*connection),
        }
    }

    pub(crate) fn set_grant(&self, grant: Grant) {
        if let Self::Normal(target, opened) = self {
            target.set_grant(*opened, grant);
        }
    }
}
