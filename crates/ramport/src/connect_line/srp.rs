//! Commands for Linux's SRP initiator, ib_srp, over the RDMA connection manager.

use control::TargetView;
use server::{HostName, TargetName, srp_port};

use super::{AtBoot, ConnectingHost, Steps, Way};

/// Where ib_srp takes targets: one file for each port of an RDMA device.
const ADD_TARGET: &str = "\"$(ls -d /sys/class/infiniband_srp/srp-*/add_target | head -n 1)\"";

/// SRP has no discovery over the connection manager, and ib_srp keeps no targets.
pub(super) fn steps(target: &TargetView, host: &ConnectingHost<'_>, way: &Way<'_>) -> Steps {
    let name = target.name.parse::<TargetName>();
    let add = name.map(|name| {
        let port = srp_port(&name);
        let (id_ext, ioc_guid) = (port.extension(), port.guid());
        let (dest, initiator) = (way.host_and_port(), initiator_extension(host));
        format!(
            "echo id_ext={id_ext:016x},ioc_guid={ioc_guid:016x},dest={dest}{initiator} > {ADD_TARGET}"
        )
    });
    let load = "modprobe ib_srp".to_owned();
    Steps {
        discover: Vec::new(),
        connect: std::iter::once(load).chain(add).collect(),
        at_boot: AtBoot {
            file: None,
            commands: Vec::new(),
        },
    }
}

/// The first half of the initiator's port identifier, if the target knows the host by that. The
/// second half is from the GID of the host's port.
fn initiator_extension(host: &ConnectingHost<'_>) -> String {
    let name = host.name.and_then(|name| name.parse::<HostName>().ok());
    let name = name.filter(HostName::is_srp_port);
    let extension = name.as_ref().map(|name| &name.as_str()[2..18]);
    extension.map_or_else(String::new, |digits| format!(",initiator_ext={digits}"))
}

/// Ends all sessions of ib_srp on the host, since its remote ports have no names.
pub(super) fn disconnect() -> Vec<String> {
    vec![
        "for port in /sys/class/srp_remote_ports/port-*; do echo 1 > \"$port/delete\"; done"
            .to_owned(),
    ]
}
