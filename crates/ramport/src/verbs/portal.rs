//! `ramport portal`.

use control::{Portal, PortalState, PortalView, path_part};
use target::PortalDefinition;

use super::Daemon;
use crate::cli::{PortalSetArgs, PortalVerb, Switch};
use crate::failure::Failure;
use crate::output::{self, Tone, paint};

pub(super) fn run(daemon: &Daemon, verb: &PortalVerb) -> Result<(), Failure> {
    match verb {
        PortalVerb::Create(args) => show(daemon, &daemon.client.post(&path(args.url), &())?),
        PortalVerb::List => list(daemon),
        PortalVerb::Show(args) => show(daemon, &daemon.client.get(&path(args.url))?),
        PortalVerb::Remove(args) => {
            daemon.client.delete(&path(args.url))?;
            daemon.say(format_args!("portal {} is closed", args.url))
        }
        PortalVerb::Set(args) => set(daemon, args),
    }
}

/// Opens or closes the portal over RDMA beside one over TCP. What is so already stays.
fn set(daemon: &Daemon, args: &PortalSetArgs) -> Result<(), Failure> {
    let portal = args.url.0;
    let beside = portal.transport.over_rdma().map(|transport| {
        Portal(PortalDefinition {
            transport,
            ..portal
        })
    });
    let Some(beside) = beside else {
        return Err(Failure::mistake(anyhow::anyhow!(
            "{} can't be switched to RDMA: name a portal over TCP, such as nvme+tcp://192.0.2.1:4420",
            args.url
        )));
    };
    let portals: Vec<PortalView> = daemon.client.get("/v1/portals")?;
    let exists = |url: Portal| portals.iter().any(|portal| portal.url == url.to_string());
    match (args.rdma, exists(beside)) {
        (Switch::On, true) => show(daemon, &daemon.client.get(&path(beside))?),
        (Switch::On, false) => {
            let _: PortalView = daemon.client.get(&path(args.url))?;
            show(daemon, &daemon.client.post(&path(beside), &())?)
        }
        (Switch::Off, true) => {
            daemon.client.delete(&path(beside))?;
            daemon.say(format_args!("portal {beside} is closed"))
        }
        (Switch::Off, false) => daemon.say(format_args!("portal {beside} is not open")),
    }
}

fn path(portal: Portal) -> String {
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
            state(portal),
            portal.connections.to_string(),
        ]
    });
    output::table(&["URL", "STATE", "CONNECTIONS"], &["CONNECTIONS"], rows)
}

fn show(daemon: &Daemon, portal: &PortalView) -> Result<(), Failure> {
    if daemon.is_json() {
        return output::json(portal);
    }
    output::fields(&[
        ("portal", paint(Tone::Name, &portal.url)),
        ("state", state(portal)),
        ("connections", portal.connections.to_string()),
    ])
}

pub(super) fn state(portal: &PortalView) -> String {
    match portal.state {
        PortalState::Open => "open".to_owned(),
        PortalState::Closed => paint(Tone::Warning, "closed: address not available"),
    }
}

/// How to open a target to other machines, for people.
pub(crate) fn open_to_others(program: &str, target: &str, address: &str) -> String {
    format!(
        "  {program} target set {target} --allow-any-host\n  {program} portal create nvme+tcp://{address}:4420"
    )
}
