//! iSCSI targets, and the backends of their connections.

mod backend;
mod sanitizing;
mod target;

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use ::iscsi::{Opened, SessionState};
use net::{ConnectionId, ReactorHandle};

pub(crate) use backend::{IscsiBackend, IscsiPortalId};
pub(crate) use target::IscsiTarget;

use crate::access::Grant;
use crate::{IscsiState, TargetName, Transport};

/// What a connection is charged until its login is done: texts, parsed and answered.
pub(crate) const LOGIN_BYTES: u64 = 64 << 10;
/// What a connection is charged from then on: the sum of its bounds. 272 tasks of 460 bytes, 800
/// leases of 32 bytes, a data segment that is kept until its digest was checked (256 KiB), 64
/// replies of at most 4 KiB. What commands gather comes on top, and over RDMA what was posted to
/// receive messages.
pub(crate) const CONNECTION_BYTES: u64 = 672 << 10;

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

/// The address at which a host that is connected to `local` reaches a portal on `portal`; `None` if
/// it cannot.
pub(crate) fn reachable(portal: IpAddr, local: IpAddr) -> Option<IpAddr> {
    let (portal, local) = (portal.to_canonical(), local.to_canonical());
    if portal.is_unspecified() {
        // Listening on all IPv6 addresses takes IPv4 connections too.
        let fits = portal.is_ipv6() || local.is_ipv4();
        return fits.then_some(local);
    }
    (!portal.is_loopback() || local.is_loopback()).then_some(portal)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_portal_is_told_by_an_address_that_the_host_reaches() {
        let told = |portal: &str, local: &str| {
            let told = reachable(
                portal.parse().expect("an address"),
                local.parse().expect("an address"),
            );
            told.map(|ip| ip.to_string())
        };
        assert_eq!(told("192.0.2.1", "192.0.2.9").as_deref(), Some("192.0.2.1"));
        assert_eq!(told("0.0.0.0", "192.0.2.9").as_deref(), Some("192.0.2.9"));
        assert_eq!(told("0.0.0.0", "2001:db8::1"), None);
        assert_eq!(told("::", "::ffff:192.0.2.9").as_deref(), Some("192.0.2.9"));
        assert_eq!(told("127.0.0.1", "192.0.2.9"), None);
        assert_eq!(told("127.0.0.1", "127.0.0.1").as_deref(), Some("127.0.0.1"));
    }
}
