//! `ramport fabric`: what this machine has for RDMA. It works without a daemon.

use std::net::Ipv4Addr;

use anyhow::Context;
use fabric::{Device, DevicePort, FabricError, Hw, Soft, SoftOptions};
use serde_json::{Value, json};

use crate::cli::{Connection, FabricVerb};
use crate::failure::Failure;
use crate::output;

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
    let devices =
        fabric::devices().context("can't look for adapters below /sys/class/infiniband")?;
    let ways = [adapters(&devices), software()];
    if connection.json {
        return output::json(&json!({
            "devices": devices.iter().map(device_json).collect::<Vec<_>>(),
            "providers": ways.iter().map(way_json).collect::<Vec<_>>(),
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
    Ok(())
}

/// Whether adapters can be used.
fn adapters(devices: &[Device]) -> Way {
    let active = |port: &&DevicePort| port.state == "ACTIVE";
    let active = devices.iter().flat_map(|d| &d.ports).filter(active).count();
    let probed = Hw::probe();
    let (is_available, reason) = match probed {
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
fn software() -> Way {
    let anywhere = Ipv4Addr::UNSPECIFIED.into();
    let (is_available, reason) = match Soft::bind(&SoftOptions::at_ip(anywhere)) {
        Ok(_) => (true, String::from("UDP port 4791 is free at every address")),
        Err(error) => {
            let address = anywhere;
            (false, FabricError::SoftPort { address, error }.to_string())
        }
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
