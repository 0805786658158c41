//! `ramport portal`.

use std::collections::BTreeMap;

use control::{
    Portal, PortalPatch, PortalState, PortalView, RdmaProvider, RdmaSegmentation,
    RdmaStatisticsView, Text, TlsPolicy, path_part,
};
use server::{PortalAuth, PortalDefinition, RdmaChoice};

use super::{Daemon, query};
use crate::cli::{PortalCreateArgs, PortalSetArgs, PortalVerb, RdmaSwitch, Switch};
use crate::failure::Failure;
use crate::mistake::Mistake;
use crate::output::{self, TextRole, paint};

pub(super) fn run(daemon: &Daemon, verb: &PortalVerb) -> Result<(), Failure> {
    match verb {
        PortalVerb::Create(args) => show(daemon, &daemon.client.post(&path(created(args)), &())?),
        PortalVerb::List => list(daemon),
        PortalVerb::Show(args) => show(daemon, &daemon.client.get(&path(args.url))?),
        PortalVerb::Remove(args) => close(daemon, args.portal.url, args.force),
        PortalVerb::Set(args) => set(daemon, args),
    }
}

/// The portal to create.
fn created(args: &PortalCreateArgs) -> Portal {
    let Portal(portal) = args.portal.url;
    if args.require_auth {
        return Portal(PortalDefinition {
            auth: PortalAuth::Required,
            ..portal
        });
    }
    args.portal.url
}

/// Changes a portal. A setting that is in force already is no error.
fn set(daemon: &Daemon, args: &PortalSetArgs) -> Result<(), Failure> {
    let mut portal = args.url;
    if args.require_auth.is_some() || args.tls.is_some() {
        let patch = PortalPatch {
            require_auth: args.require_auth.map(|switch| switch == Switch::On),
            tls: args.tls.map(Text),
            ..PortalPatch::default()
        };
        let changed: PortalView = daemon.client.patch(&path(portal), &patch)?;
        portal = changed.url.parse().unwrap_or(portal);
        if args.rdma.is_none() {
            return show(daemon, &changed);
        }
    }
    match args.rdma {
        Some(switch) => set_rdma(daemon, portal, switch, args.force),
        None => Ok(()),
    }
}

/// Opens, changes or closes the portal over RDMA beside one over TCP, or changes one over RDMA.
fn set_rdma(daemon: &Daemon, url: Portal, switch: RdmaSwitch, force: bool) -> Result<(), Failure> {
    let portal = url.0;
    let asked = match switch {
        RdmaSwitch::On => server::RdmaChoice::default(),
        RdmaSwitch::Off => return switch_off(daemon, beside(url)?, force),
        RdmaSwitch::Auto => server::RdmaChoice::Auto,
        RdmaSwitch::Hw => server::RdmaChoice::Hw,
        RdmaSwitch::Soft => server::RdmaChoice::Soft,
    };
    let over_rdma = if portal.transport.is_rdma() && switch != RdmaSwitch::On {
        url
    } else {
        beside(url)?
    };
    let is_open = find(daemon, over_rdma)?.is_some();
    match (is_open, switch) {
        (true, RdmaSwitch::On) => show(daemon, &daemon.client.get(&path(over_rdma))?),
        (false, _) if !portal.transport.is_rdma() => {
            let _: PortalView = daemon.client.get(&path(url))?;
            let wanted = PortalDefinition {
                rdma: asked,
                ..over_rdma.0
            };
            show(daemon, &daemon.client.post(&path(Portal(wanted)), &())?)
        }
        _ => {
            let patch = PortalPatch {
                rdma: Some(asked.into()),
                ..PortalPatch::default()
            };
            show(daemon, &daemon.client.patch(&path(over_rdma), &patch)?)
        }
    }
}

fn switch_off(daemon: &Daemon, over_rdma: Portal, force: bool) -> Result<(), Failure> {
    match find(daemon, over_rdma)? {
        Some(portal) => close(daemon, portal, force),
        None => daemon.say(format_args!("portal {over_rdma} is not open")),
    }
}

fn close(daemon: &Daemon, portal: Portal, force: bool) -> Result<(), Failure> {
    let path = format!("{}{}", path(portal), query(force));
    daemon.client.delete(&path)?;
    daemon.say(format_args!("portal {portal} is closed"))
}

/// The portal over RDMA beside one over TCP.
fn beside(url: Portal) -> Result<Portal, Failure> {
    let portal = url.0;
    let beside = portal.transport.over_rdma().map(|transport| {
        Portal(PortalDefinition {
            transport,
            tls: TlsPolicy::Off,
            ..portal
        })
    });
    beside.ok_or_else(|| Mistake::NotOverTcp { portal: url }.into())
}

/// The portal that is defined there, with any RDMA provider and any use of TLS.
fn find(daemon: &Daemon, wanted: Portal) -> Result<Option<Portal>, Failure> {
    let portals: Vec<PortalView> = daemon.client.get("/v1/portals")?;
    let mut urls = portals.iter().filter_map(|portal| portal.url.parse().ok());
    let wanted = PortalDefinition {
        rdma: RdmaChoice::default(),
        auth: PortalAuth::default(),
        tls: TlsPolicy::default(),
        ..wanted.0
    };
    Ok(urls.find(|Portal(there)| there.is_named(&wanted)))
}

pub(super) fn path(portal: Portal) -> String {
    format!("/v1/portals/{}", path_part(&portal.to_string()))
}

fn list(daemon: &Daemon) -> Result<(), Failure> {
    let portals: Vec<PortalView> = daemon.client.get("/v1/portals")?;
    if daemon.is_json() {
        return output::json(&portals);
    }
    if portals.is_empty() {
        return output::line(
            "no portals; open one with `ramport portal create nvme+tcp://ADDRESS`",
        );
    }
    let rows = portals.iter().map(|portal| {
        vec![
            portal.url.clone(),
            carrier(portal),
            provider(portal).unwrap_or_default().to_owned(),
            authentication(portal).to_owned(),
            portal.connections.to_string(),
            state(portal),
        ]
    });
    output::table(
        &["URL", "LISTENS", "RDMA", "AUTH", "CONNECTIONS", "STATE"],
        &["CONNECTIONS"],
        rows,
    )
}

fn show(daemon: &Daemon, portal: &PortalView) -> Result<(), Failure> {
    if daemon.is_json() {
        return output::json(portal);
    }
    let mut fields = vec![
        ("portal", paint(TextRole::Name, &portal.url)),
        ("state", painted_state(portal)),
    ];
    if let Some(tls) = &portal.tls {
        fields.push(("tls", tls.to_string()));
    }
    let authentication = match (authentication(portal), portal.open) {
        (word, true) => paint(TextRole::Warning, word),
        (word, false) => word.to_owned(),
    };
    fields.push(("auth", authentication));
    if let (Some(provider), Some(reason)) = (provider(portal), &portal.reason) {
        fields.push(("rdma", format!("{provider}: {reason}")));
    }
    if let Some(segmentation) = portal.segmentation {
        fields.push(("gso", segmented(segmentation).to_owned()));
    }
    fields.push(("connections", portal.connections.to_string()));
    if let Some(statistics) = &portal.statistics {
        fields.push(("packets", packets(statistics)));
    }
    output::fields(&fields)
}

/// What carries the protocol, and the port.
fn carrier(portal: &PortalView) -> String {
    let url = portal.url.parse::<Portal>();
    url.map_or_else(
        |_| String::new(),
        |Portal(at)| format!("{} {}", at.transport.carrier(), at.address.port()),
    )
}

/// Which hosts have to authenticate at a portal.
fn authentication(portal: &PortalView) -> &'static str {
    let url = portal.url.parse::<Portal>();
    let transport = url.map(|Portal(portal)| portal.transport);
    match (portal.require_auth, portal.open) {
        (true, _) => "required",
        (false, true) if transport.is_ok_and(server::Transport::is_nfs) => "client addresses",
        (false, true) if transport.is_ok_and(server::Transport::trusts_names) => {
            "names and addresses"
        }
        (false, true) => "open to anyone",
        (false, false) => "not required",
    }
}

/// Whether runs of packets are cut by the system.
const fn segmented(segmentation: RdmaSegmentation) -> &'static str {
    match segmentation {
        RdmaSegmentation::On => "on: the system cuts runs of packets",
        RdmaSegmentation::Off => "off: packets are sent one by one",
    }
}

/// The packets received at a portal's address, and the dropped and rejected ones by cause.
fn packets(statistics: &RdmaStatisticsView) -> String {
    let by_cause = [
        ("dropped", &statistics.packets_dropped),
        ("requests refused", &statistics.requests_refused),
    ];
    let by_cause = by_cause.into_iter();
    let told = by_cause.filter_map(|(what, causes)| Some(format!("{what}: {}", nonzero(causes)?)));
    let received = format!("{} received", statistics.packets_received);
    std::iter::once(received)
        .chain(told)
        .collect::<Vec<_>>()
        .join("; ")
}

/// The causes with a count above zero.
fn nonzero(causes: &BTreeMap<String, u64>) -> Option<String> {
    let causes: Vec<_> = (causes.iter())
        .filter(|(_, count)| **count > 0)
        .map(|(cause, count)| format!("{count} {}", cause.replace('_', " ")))
        .collect();
    (!causes.is_empty()).then(|| causes.join(", "))
}

/// Whether the portal is open, or why it is closed.
pub(crate) fn state(portal: &PortalView) -> String {
    match portal.state {
        PortalState::Open => "open".to_owned(),
        PortalState::Closed => {
            let reason = portal.reason.as_deref();
            let reason = reason.unwrap_or("it is tried again in some seconds");
            format!("closed: {reason}")
        }
    }
}

/// As [`state`], in colour if the portal is closed. Cells of tables have no colours, which would
/// count in their widths.
pub(crate) fn painted_state(portal: &PortalView) -> String {
    match portal.state {
        PortalState::Open => state(portal),
        PortalState::Closed => paint(TextRole::Warning, &state(portal)),
    }
}

/// The RDMA provider of a portal.
pub(crate) fn provider(portal: &PortalView) -> Option<&'static str> {
    Some(match portal.provider? {
        RdmaProvider::Hw => "hw",
        RdmaProvider::Soft => "soft",
    })
}

/// How to open a target to other machines, for people.
pub(crate) fn open_to_others(program: &str, target: &str, address: &str) -> String {
    format!(
        "  {program} target set {target} --allow-any-host\n  {program} portal create nvme+tcp://{address}:4420"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drops_and_rejections_are_counted_by_cause() {
        let causes = |causes: &[(&str, u64)]| {
            let causes = causes.iter();
            causes.map(|(cause, n)| ((*cause).to_owned(), *n)).collect()
        };
        let mut statistics = RdmaStatisticsView {
            packets_received: 7,
            packets_dropped: causes(&[("bad_icrc", 0), ("malformed", 0)]),
            ..RdmaStatisticsView::default()
        };
        assert_eq!(packets(&statistics), "7 received");
        statistics.packets_dropped = causes(&[("bad_icrc", 2), ("malformed", 0), ("stranger", 1)]);
        statistics.requests_refused = causes(&[("access", 0), ("connection_limit", 3)]);
        assert_eq!(
            packets(&statistics),
            "7 received; dropped: 2 bad icrc, 1 stranger; requests refused: 3 connection limit"
        );
    }
}
