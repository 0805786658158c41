//! What a Linux host needs to use a target: commands, lines of files and units. This module sends
//! no requests to the daemon.
//!
//! Read first: nvme-connect(1), nvme-connect-all(1), iscsiadm(8), systemd.mount(5); systemd's
//! `60-persistent-storage.rules` for the names below /dev/disk/by-id.

mod disk;
mod iscsi;
mod nvme;
mod srp;

use std::net::IpAddr;

use control::{
    ChapView, DhChapView, HostView, Portal, PortalState, PortalView, TargetView, ToldBy, VolumeView,
};
use serde::Serialize;
use server::{HostName, PortalDefinition, Protocol, TargetName, Transport};

use disk::DiskLines;
pub(crate) use nvme::identity;

/// The daemon's objects that the lines are made from.
pub(crate) struct Offer<'a> {
    pub(crate) target: &'a TargetView,
    pub(crate) hosts: &'a [HostView],
    pub(crate) portals: &'a [PortalView],
    pub(crate) volumes: &'a [VolumeView],
}

/// The lines that the user requests.
#[derive(Default)]
pub(crate) struct Wish<'a> {
    /// The host that connects.
    pub(crate) host: Option<&'a str>,
    /// The only portal, if lines for one portal are requested.
    pub(crate) portal: Option<Portal>,
    /// The address of a portal that listens on all addresses, per family: IPv4, then IPv6.
    pub(crate) addresses: [Option<IpAddr>; 2],
}

/// Everything that a host needs to use a target.
#[derive(Debug, Serialize)]
pub(crate) struct ConnectLines {
    pub(crate) target: String,
    pub(crate) protocol: &'static str,
    /// The host that the lines are for, if the target identifies it by name.
    pub(crate) host: Option<String>,
    /// Notes to read before.
    pub(crate) notes: Vec<String>,
    /// The ways to the target.
    pub(crate) portals: Vec<PortalLines>,
    /// Its volumes, as the host sees them.
    pub(crate) disks: Vec<DiskLines>,
    /// Commands that disconnect the host from the target, through all portals.
    pub(crate) disconnect: Vec<String>,
}

/// What a host needs to use a target through one portal.
#[derive(Debug, Serialize)]
pub(crate) struct PortalLines {
    pub(crate) url: String,
    pub(crate) notes: Vec<String>,
    #[serde(flatten)]
    pub(crate) steps: Steps,
}

/// What a host does, in each case as root.
#[derive(Debug, Serialize)]
pub(crate) struct Steps {
    /// Commands that list what the portal offers.
    pub(crate) discover: Vec<String>,
    /// Commands that connect.
    pub(crate) connect: Vec<String>,
    pub(crate) at_boot: AtBoot,
}

/// How a host connects whenever it boots.
#[derive(Debug, Serialize)]
pub(crate) struct AtBoot {
    /// A line for the end of a file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) file: Option<FileLine>,
    /// Commands, after that.
    pub(crate) commands: Vec<String>,
}

/// A line and the file that it belongs to.
#[derive(Debug, Serialize)]
pub(crate) struct FileLine {
    pub(crate) path: &'static str,
    pub(crate) line: String,
}

/// Why there are no lines to print.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ConnectLineError {
    #[error(
        "{target} does not list host {host}; choose one of {listed}, or allow it with `ramport target set`"
    )]
    HostNotListed {
        target: String,
        host: String,
        listed: String,
    },
    #[error(
        "{target} lists no host, so nobody may use it; allow one with `ramport target set {target} --host NAME`"
    )]
    NoHosts { target: String },
    #[error(
        "host {host} is not a host of {protocol}, the protocol of {target}; choose another with --host"
    )]
    HostOfOtherProtocol {
        target: String,
        host: String,
        protocol: &'static str,
    },
    #[error(
        "{target} is an iSCSI target, whose hosts have neither DH-HMAC-CHAP secrets nor TLS keys; choose an NVMe target, or set a CHAP secret with `ramport host create IQN --chap-secret-file FILE`"
    )]
    NotNvme { target: String },
    #[error(
        "no suitable portal leads to {target}; open one with `ramport portal create {scheme}://ADDRESS`"
    )]
    NoPortal {
        target: String,
        scheme: &'static str,
    },
    #[error("{portal} does not lead to {target}; choose one of {others}")]
    OtherPortal {
        target: String,
        portal: String,
        others: String,
    },
}

/// The host that connects.
struct ConnectingHost<'a> {
    /// The name that it gives, if the target tells it by name.
    name: Option<&'a str>,
    /// The name of its definition.
    listed: Option<&'a str>,
    chap: Option<&'a ChapView>,
    dhchap: Option<&'a DhChapView>,
}

/// A way to the target.
struct Way<'a> {
    view: &'a PortalView,
    portal: PortalDefinition,
    /// Without brackets, also for IPv6.
    address: String,
}

impl Way<'_> {
    fn host_and_port(&self) -> String {
        let port = self.portal.address.port();
        if self.address.contains(':') {
            format!("[{}]:{port}", self.address)
        } else {
            format!("{}:{port}", self.address)
        }
    }

    fn is_for_this_machine(&self) -> bool {
        self.portal.address.ip().to_canonical().is_loopback()
    }
}

/// The lines for a target.
pub(crate) fn lines(offer: &Offer<'_>, wish: &Wish<'_>) -> Result<ConnectLines, ConnectLineError> {
    let target = offer.target;
    let protocol = protocol_of(&target.name);
    let host = host(offer, wish, protocol)?;
    let ways = ways(offer, wish, protocol)?;
    let disks = disk::disks(target, offer.volumes, host.listed, protocol);
    let portals = ways.iter().map(|way| PortalLines {
        url: way.view.url.clone(),
        notes: way_notes(way),
        steps: match protocol {
            Protocol::Nvme => nvme::steps(target, &host, way),
            Protocol::Iscsi if way.portal.transport == Transport::Srp => {
                srp::steps(target, &host, way)
            }
            Protocol::Iscsi => iscsi::steps(target, &host, way),
        },
    });
    Ok(ConnectLines {
        target: target.name.clone(),
        protocol: word(protocol),
        host: host.name.map(str::to_owned),
        notes: notes(offer, &host, &ways, protocol),
        portals: portals.collect(),
        disks,
        disconnect: match protocol {
            Protocol::Nvme => nvme::disconnect(target),
            Protocol::Iscsi => disconnect_scsi(target, &ways),
        },
    })
}

/// The commands that disconnect from an iSCSI target, through portals of iSCSI and of SRP.
fn disconnect_scsi(target: &TargetView, ways: &[Way<'_>]) -> Vec<String> {
    let (srp, iscsi): (Vec<&Way<'_>>, Vec<_>) = ways
        .iter()
        .partition(|way| way.portal.transport == Transport::Srp);
    let mut commands = Vec::new();
    if !iscsi.is_empty() {
        commands.extend(iscsi::disconnect(target));
    }
    if !srp.is_empty() {
        commands.extend(srp::disconnect());
    }
    commands
}

/// The commands by which `host` connects to an NVMe target with the option `proof`, through each
/// portal whose transport `can_prove`. The target need not list the host yet.
pub(crate) fn nvme_commands(
    offer: &Offer<'_>,
    wish: &Wish<'_>,
    (host, proof): (&str, &str),
    can_prove: impl Fn(Transport) -> bool,
) -> Result<Vec<String>, ConnectLineError> {
    let target = offer.target;
    let protocol = protocol_of(&target.name);
    if protocol != Protocol::Nvme {
        return Err(ConnectLineError::NotNvme {
            target: target.name.clone(),
        });
    }
    let mut ways = ways(offer, wish, protocol)?;
    ways.retain(|way| can_prove(way.portal.transport));
    if ways.is_empty() {
        return Err(no_portal(offer, protocol));
    }
    let options = format!("{} {proof}", identity(host));
    let commands = ways.iter().map(|way| nvme::connect(target, way, &options));
    Ok(commands.collect())
}

fn protocol_of(target: &str) -> Protocol {
    let name = target.parse::<TargetName>();
    name.map_or(Protocol::Nvme, |name| name.protocol())
}

const fn word(protocol: Protocol) -> &'static str {
    match protocol {
        Protocol::Nvme => "nvme",
        Protocol::Iscsi => "iscsi",
    }
}

/// The host that is requested, or the only one that is listed.
fn host<'a>(
    offer: &Offer<'a>,
    wish: &Wish<'a>,
    protocol: Protocol,
) -> Result<ConnectingHost<'a>, ConnectLineError> {
    let target = offer.target;
    let listed: Vec<&str> = match &target.hosts {
        Some(hosts) => hosts.keys().map(|name| name.0.as_str()).collect(),
        None => Vec::new(),
    };
    if target.hosts.is_some() && listed.is_empty() {
        let target = target.name.clone();
        return Err(ConnectLineError::NoHosts { target });
    }
    let name = match (wish.host, listed.as_slice()) {
        (Some(host), listed) if target.hosts.is_some() && !listed.contains(&host) => {
            return Err(ConnectLineError::HostNotListed {
                target: target.name.clone(),
                host: host.to_owned(),
                listed: listed.join(", "),
            });
        }
        (Some(host), _) => Some(host),
        (None, &[only]) => Some(only),
        (None, _) => None,
    };
    let view = offer
        .hosts
        .iter()
        .find(|view| Some(view.name.as_str()) == name);
    let is_told_by_address = view.is_some_and(|view| view.told_by == ToldBy::Address);
    let given = name.filter(|_| !is_told_by_address);
    if let Some(host) = given {
        let is_fitting = (host.parse::<HostName>()).is_ok_and(|name| name.protocol() == protocol);
        if !is_fitting {
            return Err(ConnectLineError::HostOfOtherProtocol {
                target: target.name.clone(),
                host: host.to_owned(),
                protocol: word(protocol),
            });
        }
    }
    let own = view.and_then(|view| view.chap.as_ref());
    Ok(ConnectingHost {
        name: given,
        listed: name,
        chap: own.or(target.chap.as_ref()),
        dhchap: view.and_then(|view| view.dhchap.as_ref()),
    })
}

/// The portals through which the target is reached.
fn ways<'a>(
    offer: &Offer<'a>,
    wish: &Wish<'_>,
    protocol: Protocol,
) -> Result<Vec<Way<'a>>, ConnectLineError> {
    let target = offer.target;
    let leads_there = |portal: &PortalDefinition| {
        let groups = &target.portal_groups;
        // Kernels have no BRP.
        portal.transport.protocol() == Some(protocol)
            && !portal.transport.is_brp()
            && (groups.is_empty() || groups.contains(&portal.group.tag()))
    };
    let ways = offer.portals.iter().filter_map(|view| {
        let Portal(portal) = view.url.parse().ok()?;
        leads_there(&portal).then(|| Way {
            view,
            portal,
            address: address(&portal, wish),
        })
    });
    let mut ways: Vec<_> = ways.collect();
    if ways.is_empty() {
        return Err(no_portal(offer, protocol));
    }
    if let Some(Portal(wanted)) = wish.portal {
        let urls: Vec<_> = ways.iter().map(|way| way.view.url.as_str()).collect();
        let others = urls.join(", ");
        ways.retain(|way| way.portal.is_beside(&wanted));
        if ways.is_empty() {
            return Err(ConnectLineError::OtherPortal {
                target: target.name.clone(),
                portal: Portal(wanted).to_string(),
                others,
            });
        }
    }
    Ok(ways)
}

fn no_portal(offer: &Offer<'_>, protocol: Protocol) -> ConnectLineError {
    ConnectLineError::NoPortal {
        target: offer.target.name.clone(),
        scheme: match protocol {
            Protocol::Nvme => Transport::NvmeTcp.scheme(),
            Protocol::Iscsi => Transport::Iscsi.scheme(),
        },
    }
}

/// The placeholder for the address if none is known.
const UNKNOWN_ADDRESS: &str = "ADDRESS";

fn address(portal: &PortalDefinition, wish: &Wish<'_>) -> String {
    let own = portal.address.ip().to_canonical();
    if !own.is_unspecified() {
        return own.to_string();
    }
    let [v4, v6] = wish.addresses;
    // A portal on every IPv6 address takes connections to IPv4 addresses too.
    let known = if own.is_ipv4() { v4 } else { v6.or(v4) };
    known.map_or_else(|| UNKNOWN_ADDRESS.to_owned(), |ip| ip.to_string())
}

fn way_notes(way: &Way<'_>) -> Vec<String> {
    let mut notes = Vec::new();
    if way.view.state == PortalState::Closed {
        let reason = way.view.reason.as_deref().unwrap_or("it is retried");
        notes.push(format!("The portal is closed: {reason}."));
    }
    if way.is_for_this_machine() {
        notes.push("The address is loopback: only this machine can connect.".to_owned());
    }
    if way.address == UNKNOWN_ADDRESS {
        notes.push(
            "The portal listens on all addresses: write one that the host reaches for ADDRESS, or give --address."
                .to_owned(),
        );
    }
    if way.portal.transport.is_rdma() {
        notes.push(
            "The host needs an RDMA device. Without an adapter: modprobe rdma_rxe && rdma link add rxe0 type rxe netdev eth0"
                .to_owned(),
        );
    }
    notes
}

fn notes(
    offer: &Offer<'_>,
    host: &ConnectingHost<'_>,
    ways: &[Way<'_>],
    protocol: Protocol,
) -> Vec<String> {
    let target = offer.target;
    let mut notes = Vec::new();
    if target.hosts.is_none() && target.any_host.is_none() {
        notes.push(format!(
            "The target accepts hosts on this machine only. To allow another: ramport target set {} --host NAME",
            quoted(&target.name)
        ));
    }
    if ways.iter().all(Way::is_for_this_machine) {
        notes.push(format!(
            "Every portal listed here is on loopback, so no other machine reaches the target. To open one: ramport portal create {}://ADDRESS",
            ways.first().map_or("", |way| way.portal.transport.scheme())
        ));
    }
    if host.listed.is_none() && target.hosts.is_some() {
        notes.push("The target lists several hosts. Lines for one of them: --host NAME".to_owned());
    }
    let view = offer
        .hosts
        .iter()
        .find(|view| Some(view.name.as_str()) == host.listed);
    if let Some(view) = view.filter(|view| !view.addresses.is_empty()) {
        let addresses = view.addresses.join(", ");
        notes.push(format!("The host may connect from {addresses} only."));
    }
    let name = host.name.and_then(|name| name.parse::<HostName>().ok());
    if let (Protocol::Iscsi, Some(name)) = (protocol, name)
        && !name.is_srp_port()
    {
        notes.push(format!(
            "The host must have this line in /etc/iscsi/initiatorname.iscsi: InitiatorName={name}"
        ));
    }
    if target.namespaces.is_empty() {
        notes.push(format!(
            "The target has no volumes. To attach one: ramport target attach {} VOLUME",
            quoted(&target.name)
        ));
    }
    notes
}

/// An argument of a shell command.
fn quoted(text: &str) -> String {
    // Names have no NUL, the only byte that cannot be quoted.
    shlex::try_quote(text).map_or_else(|_| text.replace('\0', ""), Into::into)
}

#[cfg(test)]
mod tests;
