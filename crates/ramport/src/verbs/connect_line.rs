//! `ramport connect-line`.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use control::{Endpoint, HostView, PortalView, TargetView, VolumeView};

use super::Daemon;
use super::words::{noun, target_path};
use crate::cli::ConnectLineArgs;
use crate::connect_line::{self, ConnectLines, Offer, PortalLines, Wish};
use crate::failure::Failure;
use crate::{local_address, output};

pub(super) fn run(daemon: &Daemon, args: &ConnectLineArgs) -> Result<(), Failure> {
    let client = &daemon.client;
    let view: TargetView = client.get(&target_path(&args.target))?;
    let hosts: Vec<HostView> = client.get("/v1/hosts")?;
    let portals: Vec<PortalView> = client.get("/v1/portals")?;
    let volumes: Vec<VolumeView> = client.get("/v1/volumes")?;
    let offer = Offer {
        target: &view,
        hosts: &hosts,
        portals: &portals,
        volumes: &volumes,
    };
    let wish = Wish {
        host: args.host.as_deref(),
        portal: args.portal,
        addresses: addresses(daemon, args.address),
    };
    let lines = connect_line::lines(&offer, &wish).map_err(Failure::mistake)?;
    if daemon.is_json() {
        return output::json(&lines);
    }
    output::line(text(&lines).trim_end())
}

/// What is written for portals on all addresses: what is given, or, if the daemon is on this
/// machine, the address that faces others.
pub(super) fn addresses(daemon: &Daemon, given: Option<IpAddr>) -> [Option<IpAddr>; 2] {
    let families: [IpAddr; 2] = [Ipv4Addr::UNSPECIFIED.into(), Ipv6Addr::UNSPECIFIED.into()];
    families.map(|family| match (given, &daemon.endpoint) {
        (Some(given), _) => (given.is_ipv4() == family.is_ipv4()).then_some(given),
        (None, Endpoint::Unix(_)) => local_address::facing_others(family),
        (None, Endpoint::Tcp { .. }) => None,
    })
}

/// The lines as paragraphs. Every sentence stands after a `#`, so that commands can be pasted with
/// it.
fn text(lines: &ConnectLines) -> String {
    let mut text = Paragraphs::default();
    text.remark(&format!(
        "Run the commands on the host that is to use {}, as root.",
        lines.target
    ));
    for note in &lines.notes {
        text.remark(note);
    }
    for portal in &lines.portals {
        self::portal(&mut text, portal);
    }
    for disk in &lines.disks {
        text.begin(&format!(
            "Volume {} is {} {}: {}. To mount it at boot, once it has a file system, add to /etc/fstab:",
            disk.volume,
            noun(&lines.target),
            disk.number,
            disk.device
        ));
        text.line(&disk.fstab);
        text.remark(&format!(
            "Or instead of that line, /etc/systemd/system/{}:",
            disk.mount_unit.name
        ));
        text.line(disk.mount_unit.text.trim_end());
    }
    text.begin("Disconnect, through all portals:");
    text.lines(&lines.disconnect);
    text.0
}

fn portal(text: &mut Paragraphs, portal: &PortalLines) {
    text.begin(&format!("Connect through {}:", portal.url));
    for note in &portal.notes {
        text.remark(note);
    }
    let steps = &portal.steps;
    text.lines(&steps.connect);
    if !steps.discover.is_empty() {
        text.begin("List what that portal offers:");
        text.lines(&steps.discover);
    }
    if steps.at_boot.file.is_none() && steps.at_boot.commands.is_empty() {
        return;
    }
    text.begin("Connect through it at boot:");
    if let Some(file) = &steps.at_boot.file {
        text.remark(&format!(
            "Add to {} (connects every target that the host may use there):",
            file.path
        ));
        text.line(&file.line);
    }
    text.lines(&steps.at_boot.commands);
}

#[derive(Default)]
struct Paragraphs(String);

impl Paragraphs {
    fn begin(&mut self, remark: &str) {
        self.0.push('\n');
        self.remark(remark);
    }

    fn remark(&mut self, sentence: &str) {
        self.0.push_str("# ");
        self.line(sentence);
    }

    fn lines(&mut self, lines: &[String]) {
        for line in lines {
            self.line(line);
        }
    }

    fn line(&mut self, line: &str) {
        self.0.push_str(line);
        self.0.push('\n');
    }
}
