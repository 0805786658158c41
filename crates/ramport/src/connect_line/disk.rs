//! Disks as a Linux host names them, and how it mounts them.

use std::fmt::Write;

use control::{Nsid, TargetView, VolumeView};
use serde::Serialize;
use server::Protocol;

/// A volume of the target as a disk of the host.
#[derive(Debug, Serialize)]
pub(crate) struct DiskLines {
    /// The namespace ID or LUN that the host sees.
    pub(crate) number: u32,
    pub(crate) volume: String,
    /// Its path, which stays the same.
    pub(crate) device: String,
    /// A line for /etc/fstab.
    pub(crate) fstab: String,
    /// The same as a unit.
    pub(crate) mount_unit: MountUnit,
}

/// A mount unit of systemd.
#[derive(Debug, Serialize)]
pub(crate) struct MountUnit {
    /// The name of the file below /etc/systemd/system, which the mount point decides.
    pub(crate) name: String,
    pub(crate) text: String,
}

/// The disks that a host sees; all if it is not known which host.
pub(super) fn disks(
    target: &TargetView,
    volumes: &[VolumeView],
    host: Option<&str>,
    protocol: Protocol,
) -> Vec<DiskLines> {
    let map = target
        .luns
        .iter()
        .find(|(name, _)| Some(name.0.as_str()) == host);
    let seen_as = |number: u32| match map {
        None => Some(number),
        Some((_, luns)) => luns
            .iter()
            .find(|(_, mapped)| **mapped == Nsid(number))
            .map(|(lun, _)| lun.0),
    };
    let disks = target.namespaces.iter().filter_map(|namespace| {
        let number = seen_as(namespace.nsid)?;
        let volume = volumes.iter().find(|view| view.name == namespace.volume)?;
        let device = device(target, volume, namespace.nsid, protocol)?;
        Some(disk(number, &volume.name, device))
    });
    disks.collect()
}

/// The path by which udev names the disk: after the UUID, which Linux prefers to NVMe's other
/// identifiers, or after the NAA designator, which `scsi_id` prefers to SCSI's other ones and
/// writes after the designator's type, 3.
fn device(
    target: &TargetView,
    volume: &VolumeView,
    number: u32,
    protocol: Protocol,
) -> Option<String> {
    let mut places = volume.attachments.iter();
    let place = places.find(|place| place.target == target.name && place.nsid == number)?;
    let ids = &place.identifiers;
    Some(match protocol {
        Protocol::Nvme => format!("/dev/disk/by-id/nvme-uuid.{}", ids.uuid.as_ref()?),
        Protocol::Iscsi => format!("/dev/disk/by-id/scsi-3{}", ids.naa.as_ref()?),
    })
}

fn disk(number: u32, volume: &str, device: String) -> DiskLines {
    let text = format!(
        "[Unit]\nDescription=Volume {volume}\n\n[Mount]\nWhat={device}\nWhere=/mnt/{volume}\nOptions=_netdev\n\n[Install]\nWantedBy=remote-fs.target\n"
    );
    DiskLines {
        number,
        volume: volume.to_owned(),
        fstab: format!("{device} /mnt/{volume} auto _netdev,nofail 0 0"),
        mount_unit: MountUnit {
            name: format!("mnt-{}.mount", escaped(volume)),
            text,
        },
        device,
    }
}

/// A part of a path in the name of a unit, as systemd-escape(1) writes it.
fn escaped(part: &str) -> String {
    let mut escaped = String::new();
    for byte in part.bytes() {
        if byte.is_ascii_alphanumeric() || matches!(byte, b':' | b'_' | b'.') {
            escaped.push(byte.into());
        } else {
            // Writing to a string does not fail.
            let _ = write!(escaped, "\\x{byte:02x}");
        }
    }
    escaped
}
