//! Commands of nvme-cli.

use control::TargetView;
use server::Transport;

use super::{AtBoot, ConnectingHost, FileLine, Steps, Way, quoted};

/// What `nvme connect-all`, and with it nvmf-autoconnect.service, reads.
const DISCOVERY_FILE: &str = "/etc/nvme/discovery.conf";

pub(super) fn steps(target: &TargetView, host: &ConnectingHost<'_>, way: &Way<'_>) -> Steps {
    let transport = transport(way);
    let path = path(way);
    let identity = host.name.map_or_else(String::new, identity);
    Steps {
        discover: vec![
            format!("modprobe nvme-{transport}"),
            format!("nvme discover {path}{identity}"),
        ],
        connect: vec![
            format!("modprobe nvme-{transport}"),
            connect(target, way, &format!("{identity}{}", secrets(host))),
        ],
        at_boot: AtBoot {
            file: Some(FileLine {
                path: DISCOVERY_FILE,
                line: format!("{path}{identity}"),
            }),
            commands: vec!["systemctl enable nvmf-autoconnect.service".to_owned()],
        },
    }
}

/// The command that connects, with the options for the host's name and its proof.
pub(super) fn connect(target: &TargetView, way: &Way<'_>, options: &str) -> String {
    let (path, target) = (path(way), quoted(&target.name));
    format!("nvme connect {path} --nqn={target}{options}")
}

fn transport(way: &Way<'_>) -> &'static str {
    match way.portal.transport {
        Transport::NvmeRdma => "rdma",
        _ => "tcp",
    }
}

/// The options for the portal.
fn path(way: &Way<'_>) -> String {
    format!(
        "--transport={} --traddr={} --trsvcid={}",
        transport(way),
        way.address,
        way.portal.address.port()
    )
}

/// The options for secrets, which are in files on the host.
fn secrets(host: &ConnectingHost<'_>) -> String {
    let Some(dhchap) = host.dhchap else {
        return String::new();
    };
    let mut options = r#" --dhchap-secret="$(cat SECRET-FILE)""#.to_owned();
    if dhchap.has_ctrl_secret {
        options.push_str(r#" --dhchap-ctrl-secret="$(cat CTRL-SECRET-FILE)""#);
    }
    options
}

/// The options for a host's name. Linux accepts one NQN per host ID, so that a name with a UUID
/// comes with the ID.
pub(crate) fn identity(name: &str) -> String {
    let mut options = format!(" --hostnqn={}", quoted(name));
    if let Some(id) = name.strip_prefix("nqn.2014-08.org.nvmexpress:uuid:") {
        options.push_str(" --hostid=");
        options.push_str(&quoted(id));
    }
    options
}

pub(super) fn disconnect(target: &TargetView) -> Vec<String> {
    vec![format!("nvme disconnect --nqn={}", quoted(&target.name))]
}
