//! Remote volumes, as far as the server itself is concerned: it must not serve its own disks to
//! itself.

use std::fmt;
use std::sync::Weak;

use initiator::DeviceInfo;
use remote::OwnDisks;

use super::Core;
use crate::{TargetName, VolumeIdentity};

/// The disks that this server offers.
pub(super) struct OfferedDisks(pub(super) Weak<Core>);

impl OwnDisks for OfferedDisks {
    fn contain(&self, disk: &DeviceInfo) -> bool {
        let Some(core) = self.0.upgrade() else {
            return false;
        };
        let Ok(name) = disk.target.parse::<TargetName>() else {
            return false;
        };
        let state = core.state();
        let Some(target) = state.targets.get(&name) else {
            return false;
        };
        // Another machine may have a target of the same name, but not with the same disk.
        target.definition.namespaces.iter().any(|namespace| {
            state.volume(&namespace.volume).is_ok_and(|volume| {
                let place = volume.place(state.machine, &name);
                is_same(&volume.identity.seen_at(place), disk)
            })
        })
    }
}

fn is_same(ours: &VolumeIdentity, disk: &DeviceInfo) -> bool {
    let is_nguid = ours.nguid.is_some_and(|it| disk.identifier == it.bytes());
    let is_naa = ours.naa.is_some_and(|it| disk.identifier == it.bytes());
    is_nguid || is_naa
}

impl fmt::Debug for OfferedDisks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OfferedDisks")
    }
}
