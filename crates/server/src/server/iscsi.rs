//! iSCSI: its portals, the identity of its initiators, and the answer to SendTargets.

mod backend;
pub(super) mod sanitizing;

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use block::{Access, HostIdentity};
use fabric::runtime::{Admitted, MessageAcceptor, QueueShape, Refusal, Request, drive_messages};
use iscsi::{Authentication, Credentials, OpenError, TargetAddress, TargetRecord, iser, tcp};
use net::{Accepted, Acceptor, DrivenStream, drive};
use nvme::controller::PortalNumber;

pub(super) use backend::IscsiPortalId;

use super::targets::{Service, TargetEntry};
use super::{Core, Server, State};
use crate::access::{Grant, is_told};
use crate::iscsi::IscsiTarget;
use crate::{ChapDefinition, ChapSecret, HostName, PortalGroup, TargetName, ToldBy, Transport};
use backend::IscsiBackend;

/// A portal that speaks iSCSI, over TCP or over RDMA.
pub(super) struct IscsiPortal {
    pub(super) core: Arc<Core>,
    pub(super) id: IscsiPortalId,
}

/// What a connection is charged until its login is done: texts, parsed and answered.
const LOGIN_BYTES: u64 = 64 << 10;
/// What a connection is charged from then on: the sum of its bounds. 272 tasks of 460 bytes, 800
/// leases of 32 bytes, a data segment that is kept until its digest was checked (256 KiB), 64
/// replies of at most 4 KiB. What commands gather comes on top, and over RDMA what was posted to
/// receive messages.
const CONNECTION_BYTES: u64 = 672 << 10;

/// The most requests of an iSER connection that are posted at once: a response and two pieces of
/// data for half the command window. More would only wait in another queue.
const ISER_SENDS: u16 = 192;

impl IscsiPortal {
    /// `None` if the budget has no room for another connection.
    fn backend(&self, accepted: &Accepted) -> Option<IscsiBackend> {
        let charge = self.core.charge_connection(LOGIN_BYTES)?;
        let core = Arc::clone(&self.core);
        Some(IscsiBackend::new(core, *accepted, self.id.clone(), charge))
    }
}

impl Acceptor for IscsiPortal {
    fn accept(&self, _: Instant, accepted: &Accepted) -> Option<Box<dyn DrivenStream>> {
        Some(drive(tcp::TargetSession::new(), self.backend(accepted)?))
    }
}

impl MessageAcceptor for IscsiPortal {
    fn accept(
        &self,
        _: Instant,
        accepted: &Accepted,
        request: &Request<'_>,
    ) -> Result<Admitted, Refusal> {
        if request.reads_max == 0 {
            return Err(Refusal::Protocol {
                error: "it accepts no RDMA READs, by which its writes would be fetched".into(),
                private_data: Vec::new(),
            });
        }
        let backend = self.backend(accepted).ok_or(Refusal::NoResources)?;
        let (agreed, private_data) = iser::accept(request.private_data);
        let config = iser::TargetConfig::default();
        let reads = request.reads_max.min(config.reads_max as u8);
        Ok(Admitted {
            driven: drive_messages(iser::TargetSession::new(agreed, config), backend),
            shape: QueueShape {
                receives: config.receives(),
                receive_len_bytes: iser::TargetConfig::RECEIVE_LEN_BYTES,
                sends: ISER_SENDS,
                reads,
            },
            private_data: private_data.to_vec(),
        })
    }
}

impl Core {
    /// The iSCSI target of this name, if it is offered at portals of `group`, and the access of the
    /// host `who`.
    fn open_iscsi(
        &self,
        name: &str,
        group: PortalGroup,
        who: HostIdentity<'_>,
    ) -> Result<(Arc<IscsiTarget>, Grant), OpenError> {
        let name: TargetName = name.parse().map_err(|_| OpenError::NotFound)?;
        let state = self.state();
        if state.is_stopping {
            return Err(OpenError::Unavailable);
        }
        let entry = state.targets.get(&name).ok_or(OpenError::NotFound)?;
        match &entry.service {
            Service::Iscsi(target) if entry.definition.logins.is_reached(group) => {
                Ok((Arc::clone(target), entry.access.grant(who)))
            }
            Service::Iscsi(_) | Service::Nvme(_) => Err(OpenError::NotFound),
        }
    }

    /// The present access of the host `who` to a target; denied if the target was removed.
    pub(super) fn iscsi_grant(&self, target: &Arc<IscsiTarget>, who: HostIdentity<'_>) -> Grant {
        let state = self.state();
        match state.targets.get(target.name()) {
            Some(entry) if entry.service.is_iscsi(target) => entry.access.grant(who),
            _ => Grant::all(Access::Denied),
        }
    }

    /// Notifies the initiators of all targets that the memory budget becomes short, once each time.
    pub(super) fn tell_of_short_space(&self) {
        let crossings = self.budget.soft_crossings();
        let told = &self.told_of_short_space;
        // Read in each turn, and written only if there is something to notify.
        if told.load(Ordering::Relaxed) == crossings
            || told.swap(crossings, Ordering::Relaxed) == crossings
        {
            return;
        }
        tracing::warn!(
            used_bytes = self.budget.used_bytes(),
            total_bytes = self.budget.total_bytes(),
            "the memory budget becomes short; remove volumes, or raise --memory"
        );
        for entry in self.state().targets.values() {
            if let Service::Iscsi(target) = &entry.service {
                target.space_becomes_short();
            }
        }
    }

    /// The secrets that the host `who` has to prove to `target`, or for discovery. First the host's
    /// that is identified by the claimed name, then that of a host identified by address, then
    /// the target's own.
    pub(super) fn authentication(
        &self,
        who: HostIdentity<'_>,
        target: Option<&str>,
    ) -> Authentication {
        let state = self.state();
        let by_name = who
            .name
            .and_then(|name| name.parse::<HostName>().ok())
            .and_then(|name| state.hosts.get(&name))
            .filter(|host| host.told_by == ToldBy::Name);
        let by_address = || {
            let mut hosts = state.hosts.values();
            hosts.find(|host| {
                host.told_by == ToldBy::Address && host.chap.is_some() && is_told(host, who)
            })
        };
        let by_target = || {
            let name: TargetName = target?.parse().ok()?;
            state.targets.get(&name)?.definition.logins.chap.as_ref()
        };
        let chap = by_name
            .or_else(by_address)
            .and_then(|host| host.chap.as_ref())
            .or_else(by_target);
        chap.map_or_else(Authentication::default, credentials)
    }

    /// The answer to SendTargets for the host `who`, which is connected to the address `local`. It
    /// names only portals of the same transport, since an address does not state its transport.
    fn iscsi_targets(
        &self,
        who: HostIdentity<'_>,
        (transport, local): (Transport, IpAddr),
    ) -> Vec<TargetRecord> {
        let state = self.state();
        let portals = state.portals.keys();
        let addresses: Vec<_> = portals
            .filter(|portal| portal.transport == transport)
            .filter_map(|portal| {
                let address = TargetAddress {
                    ip: reachable(portal.address.ip(), local)?,
                    port: portal.address.port(),
                    group: portal.group.tag(),
                };
                Some((portal.group, address))
            })
            .collect();
        let targets = state.targets.iter().filter(|(_, entry)| {
            matches!(entry.service, Service::Iscsi(_)) && entry.access.check(who) > Access::Denied
        });
        let record = |(name, entry): (&TargetName, &TargetEntry)| {
            let logins = &entry.definition.logins;
            let reached = addresses
                .iter()
                .filter(|(group, _)| logins.is_reached(*group));
            TargetRecord {
                name: name.as_str().to_owned(),
                addresses: reached.map(|(_, address)| *address).collect(),
            }
        };
        // A record without an address means the discovery portal's own.
        let records = targets.map(record);
        records
            .filter(|record| !record.addresses.is_empty())
            .collect()
    }
}

impl Server {
    /// Asks all iSCSI initiators to log out, waits for that, for `patience` at the most, and drops
    /// those that have not.
    pub(super) fn dismiss_initiators(&self, patience: Duration) {
        let sessions = self.core().registry.iscsi_sessions();
        for session in &sessions {
            session.end(patience);
        }
        let registry = &self.core().registry;
        wait_until(patience, || registry.iscsi_sessions().is_empty());
        for session in registry.iscsi_sessions() {
            session.drop_connections(None);
        }
    }

    /// Drops the connections of an iSCSI portal, and waits until their peers have been notified,
    /// for [`DROP_NOTICE_TIMEOUT`] at the most.
    pub(super) fn drop_through(&self, portal: PortalNumber) {
        let registry = &self.core().registry;
        for (connection, session) in registry.iscsi_connections(portal) {
            session.drop_connections(Some(connection));
        }
        let is_done = || registry.iscsi_connections(portal).is_empty();
        wait_until(DROP_NOTICE_TIMEOUT, is_done);
    }
}

/// How long connections may take to notify their peers that they are dropped.
const DROP_NOTICE_TIMEOUT: Duration = Duration::from_secs(1);

fn wait_until(patience: Duration, is_done: impl Fn() -> bool) {
    const INTERVAL: Duration = Duration::from_millis(2);
    let until = Instant::now() + patience;
    while !is_done() && Instant::now() < until {
        std::thread::sleep(INTERVAL);
    }
}

impl State {
    /// The groups of the portals that speak iSCSI.
    pub(super) fn iscsi_groups(&self) -> BTreeSet<PortalGroup> {
        self.groups_where(Transport::is_iscsi)
    }

    /// The groups of the portals that speak SRP.
    pub(super) fn srp_groups(&self) -> BTreeSet<PortalGroup> {
        self.groups_where(|transport| transport == Transport::Srp)
    }

    fn groups_where(&self, is_meant: impl Fn(Transport) -> bool) -> BTreeSet<PortalGroup> {
        let portals = self.portals.keys();
        portals
            .filter(|portal| is_meant(portal.transport))
            .map(|portal| portal.group)
            .collect()
    }
}

fn credentials(chap: &ChapDefinition) -> Authentication {
    let of = |name: &str, secret: &ChapSecret| Credentials {
        name: name.to_owned(),
        secret: secret.bytes().to_vec().into(),
    };
    let mutual = chap.mutual.as_ref();
    Authentication {
        initiator: Some(of(&chap.user, &chap.secret)),
        target: mutual.map(|(name, secret)| of(name, secret)),
    }
}

/// The address at which a host that is connected to `local` reaches a portal on `portal`; `None` if
/// it cannot.
fn reachable(portal: IpAddr, local: IpAddr) -> Option<IpAddr> {
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
