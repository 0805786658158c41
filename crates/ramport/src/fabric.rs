//! `ramport fabric`: what this machine has for RDMA. It works without a daemon; a running daemon
//! also returns its portals.

use std::net::Ipv4Addr;

use control::{Portal, PortalView, RdmaProvider};
use fabric::{Device, DevicePort, Hw, Soft, SoftOptions};
use serde_json::{Value, json};

use crate::cli::{Connection, FabricVerb};
use crate::failure::Failure;
use crate::mistake::SystemFailure;
use crate::output;
use crate::verbs::{Daemon, provider, state};

pub(crate) fn run(connection: &Connection, verb: &FabricVerb) -> Result<(), Failure> {
    match verb {
        FabricVerb::List => list(connection),
    }
}

/// A way to do RDMA, and whether it works here.
struct Way {
    name: &'static str,
    is_available: bool,
    reason: String,
}

fn list(connection: &Connection) -> Result<(), Failure> {
    let devices = fabric::devices().map_err(SystemFailure::Adapters)?;
    let portals = Daemon::new(connection)?.portals().unwrap_or_default();
    let ways = [adapters(&devices), software(&portals)];
    if connection.json {
        return output::json(&json!({
            "devices": devices.iter().map(device_json).collect::<Vec<_>>(),
            "providers": ways.iter().map(way_json).collect::<Vec<_>>(),
            "portals": portals.iter().map(|portal| portal_json(portal, &devices)).collect::<Vec<_>>(),
        }));
    }
    if !devices.is_empty() {
        let rows = devices.iter().flat_map(|device| {
            let ports = device.ports.iter();
            ports.map(|port| row(device, port))
        });
        output::table(
            &[
                "DEVICE",
                "PORT",
                "LINK",
                "STATE",
                "SPEED",
                "NETDEV",
                "ADDRESSES",
            ],
            &["PORT"],
            rows,
        )?;
    }
    for way in &ways {
        let works = if way.is_available {
            "works"
        } else {
            "does not work"
        };
        output::line(format_args!("{} {works}: {}", way.name, way.reason))?;
    }
    if portals.is_empty() {
        return Ok(());
    }
    let rows = portals.iter().map(|portal| {
        vec![
            portal.url.clone(),
            adapter_of(portal, &devices).unwrap_or("none").to_owned(),
            provider(portal).unwrap_or_default().to_owned(),
            state(portal),
        ]
    });
    output::table(&["PORTAL", "ADAPTER", "RDMA", "STATE"], &[], rows)
}

/// The adapter that could carry RDMA for a portal: one that has its address.
fn adapter_of<'a>(portal: &PortalView, devices: &'a [Device]) -> Option<&'a str> {
    let url: Portal = portal.url.parse().ok()?;
    let address = url.0.address.ip();
    let has_it = |port: &DevicePort| port.addresses.contains(&address);
    let mut devices = devices.iter();
    let device = devices.find(|device| device.ports.iter().any(has_it))?;
    Some(&device.name)
}

/// Whether adapters can be used.
fn adapters(devices: &[Device]) -> Way {
    let active = |port: &&DevicePort| port.state == "ACTIVE";
    let active = devices.iter().flat_map(|d| &d.ports).filter(active).count();
    let probed = Hw::probe();
    let (is_available, reason) = match probed {
        Err(error) if cfg!(target_feature = "crt-static") => (false, error.to_string()),
        _ if devices.is_empty() => (
            false,
            String::from(
                "this machine has no RDMA adapter, or its driver is not loaded; soft needs none",
            ),
        ),
        Err(error) => (false, format!("{error}; soft needs neither")),
        Ok(()) if active == 0 => (
            false,
            String::from("no port of an adapter is active; see to its cable, address and driver"),
        ),
        Ok(()) => (true, String::from("at the addresses above")),
    };
    Way {
        name: "hw",
        is_available,
        reason,
    }
}

/// Whether RDMA in software can be used: it needs its UDP port.
fn software(portals: &[PortalView]) -> Way {
    let options = SoftOptions::at_ip(Ipv4Addr::UNSPECIFIED.into());
    let mut served = portals.iter();
    let served = served.find(|portal| portal.provider == Some(RdmaProvider::Soft));
    let (is_available, reason) = match (Soft::bind(&options), served) {
        (Ok(_), _) => (true, String::from("UDP port 4791 is free at every address")),
        (Err(_), Some(portal)) => (
            true,
            format!("UDP port 4791 is the daemon's, for {}", portal.url),
        ),
        (Err(error), None) => (false, error.to_string()),
    };
    Way {
        name: "soft",
        is_available,
        reason,
    }
}

fn row(device: &Device, port: &DevicePort) -> Vec<String> {
    let addresses: Vec<_> = port.addresses.iter().map(ToString::to_string).collect();
    vec![
        device.name.clone(),
        port.number.to_string(),
        port.link_layer.to_string(),
        port.state.clone(),
        port.rate.clone(),
        port.netdev.clone().unwrap_or_default(),
        addresses.join(", "),
    ]
}

fn device_json(device: &Device) -> Value {
    let ports: Vec<_> = (device.ports.iter())
        .map(|port| {
            json!({
                "number": port.number,
                "link_layer": port.link_layer.to_string(),
                "state": port.state,
                "gbit_per_s": port.gbit_per_s,
                "rate": port.rate,
                "netdev": port.netdev,
                "addresses": port.addresses,
                "gids": port.gids,
            })
        })
        .collect();
    json!({ "name": device.name, "firmware": device.firmware, "ports": ports })
}

fn way_json(way: &Way) -> Value {
    json!({ "name": way.name, "is_available": way.is_available, "reason": way.reason })
}

fn portal_json(portal: &PortalView, devices: &[Device]) -> Value {
    json!({
        "url": portal.url,
        "adapter": adapter_of(portal, devices),
        "provider": portal.provider,
        "segmentation": portal.segmentation,
        "state": portal.state,
        "reason": portal.reason,
    })
}
