//! Attaching to the disk at a URL, and which disk that is.

use std::fmt::{Debug, Write as _};

use block::{BlockSize, Geometry};
use initiator::{Device, DeviceInfo, DeviceOptions, Queue, Url};
use volume::{ByteSize, VolumeError, VolumeKind};

use crate::error::{DiskId, RemoteError};
use crate::settings::{Settings, check_secrets};

/// A disk that is attached.
#[derive(Debug)]
pub(crate) struct Attachment {
    pub(crate) device: Device,
    pub(crate) queue: Queue,
}

/// Knows the disks that this program offers itself.
pub trait OwnDisks: Send + Sync + Debug {
    /// Whether the disk that describes itself so is one of them.
    fn contain(&self, disk: &DeviceInfo) -> bool;
}

/// What a disk has to be.
#[derive(Clone, Debug)]
pub(crate) struct Expected {
    pub(crate) geometry: Geometry,
    pub(crate) size: SizeRule,
    /// The disk that it has to be, if that is known.
    pub(crate) disk: Option<DiskId>,
    /// Whether the volume has several paths.
    pub(crate) needs_identity: bool,
}

/// How large a disk may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SizeRule {
    /// As large as was asked for.
    Same,
    /// It may have grown since.
    AtLeast,
}

/// What the disk of a remote volume is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Form {
    /// Its capacity.
    pub size: ByteSize,
    /// The size of its blocks.
    pub block_size: BlockSize,
    /// What distinguishes it from other disks, if it has an identifier.
    pub disk: Option<String>,
}

/// Asks the other side what the disk is, by the first URL.
///
/// # Errors
/// If the settings are invalid, or if there is no connection.
pub fn probe(kind: &VolumeKind) -> Result<Form, VolumeError> {
    let settings = Settings::of(kind)?;
    let Attachment { device, .. } = attach(&settings.urls[0], &settings.device_options([0; 3]))?;
    let geometry = device.geometry();
    Ok(Form {
        size: ByteSize(geometry.len_bytes()),
        block_size: geometry.block_size,
        disk: disk_of(device.info()).map(|disk| disk.0),
    })
}

/// Connects to the disk at `url`.
pub(crate) fn attach(url: &Url, options: &DeviceOptions) -> Result<Attachment, RemoteError> {
    check_secrets(url)?;
    let connected = Device::connect(url, options);
    let mut device = connected.map_err(|source| RemoteError::Connect {
        url: url.to_string(),
        source: Box::new(source),
    })?;
    let queue = device.take_queues().remove(0);
    Ok(Attachment { device, queue })
}

/// Checks that a disk is the expected one, and returns which it is.
pub(crate) fn check(
    url: &Url,
    device: &Device,
    expected: &Expected,
    own: &dyn OwnDisks,
) -> Result<Option<DiskId>, RemoteError> {
    let url = || url.to_string();
    if own.contain(device.info()) {
        return Err(RemoteError::OwnDisk {
            url: url(),
            target: device.info().target.clone(),
        });
    }
    let disk = disk_of(device.info());
    match (&disk, &expected.disk) {
        (None, _) if expected.needs_identity => return Err(RemoteError::NoIdentity { url: url() }),
        (found, Some(expected)) if found.as_ref() != Some(expected) => {
            return Err(RemoteError::OtherDisk {
                url: url(),
                found: found
                    .clone()
                    .unwrap_or_else(|| DiskId("unnamed".to_owned())),
                expected: expected.clone(),
            });
        }
        _ => {}
    }
    let (actual, wanted) = (device.geometry(), expected.geometry);
    if actual.block_size != wanted.block_size {
        return Err(RemoteError::BlockSize {
            url: url(),
            given_bytes: wanted.block_size.bytes(),
            actual_bytes: actual.block_size.bytes(),
        });
    }
    let size = |geometry: Geometry| ByteSize(geometry.len_bytes());
    if actual.blocks < wanted.blocks && expected.size == SizeRule::AtLeast {
        return Err(RemoteError::Shrunk {
            url: url(),
            known: size(wanted),
            actual: size(actual),
        });
    }
    if actual.blocks != wanted.blocks && expected.size == SizeRule::Same {
        return Err(RemoteError::Size {
            url: url(),
            given: size(wanted),
            actual: size(actual),
        });
    }
    Ok(disk)
}

/// What distinguishes a disk: the best identifier that it has.
pub(crate) fn disk_of(info: &DeviceInfo) -> Option<DiskId> {
    if let Some(uuid) = info.uuid.filter(|uuid| uuid.iter().any(|&byte| byte != 0)) {
        return Some(DiskId(format!("uuid.{}", hex(&uuid))));
    }
    if info.identifier.iter().any(|&byte| byte != 0) {
        return Some(DiskId(format!("id.{}", hex(&info.identifier))));
    }
    if info.serial.is_empty() {
        return None;
    }
    // A peer chooses it.
    let serial = info.serial.escape_default();
    Some(DiskId(format!("serial.{serial}.{}", info.unit)))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").expect("a String takes all");
        text
    })
}

#[cfg(test)]
mod tests {
    use block::WriteCache;

    use super::*;

    fn info(uuid: Option<[u8; 16]>, identifier: &[u8], serial: &str) -> DeviceInfo {
        DeviceInfo {
            model: String::new(),
            serial: serial.to_owned(),
            identifier: identifier.to_vec(),
            uuid,
            write_cache: WriteCache::Absent,
            is_write_protected: false,
            firmware: String::new(),
            target: "nqn.x:y".to_owned(),
            address: ([127, 0, 0, 1], 4420).into(),
            controller_id: None,
            unit: 3,
            queue_depth_max: 1,
        }
    }

    #[test]
    fn a_disk_is_known_by_the_best_identifier_that_it_has() {
        let id =
            |uuid, identifier, serial| disk_of(&info(uuid, identifier, serial)).map(|disk| disk.0);
        let uuid = Some([0xAB; 16]);
        assert_eq!(
            id(uuid, &[1], "s").expect("a UUID"),
            format!("uuid.{}", "ab".repeat(16))
        );
        assert_eq!(
            id(Some([0; 16]), &[0, 1], "s").expect("an NGUID"),
            "id.0001"
        );
        assert_eq!(
            id(None, &[0; 16], "s\n").expect("a serial"),
            "serial.s\\n.3"
        );
        assert_eq!(id(None, &[], ""), None);
    }
}
