//! A volume of the server, as targets of every protocol hold it.

use std::sync::Arc;
use std::time::SystemTime;

use uuid::Uuid;
use volume::{Charge, ManagedVolume};

use crate::counters::Totals;
use crate::{Place, TargetName, VolumeIdentity, VolumeName};

/// A volume as targets see it.
#[derive(Clone)]
pub(crate) struct VolumeHandle {
    pub(crate) name: VolumeName,
    pub(crate) identity: Arc<VolumeIdentity>,
    pub(crate) volume: Arc<dyn ManagedVolume>,
    /// When it was created, or, for a snapshot, taken.
    pub(crate) created: SystemTime,
    pub(crate) totals: Arc<Totals>,
    /// What it costs besides the memory of its blocks, until the last reference drops.
    pub(crate) _charge: Arc<Charge>,
}

impl VolumeHandle {
    /// The volume in a target, which its derived identifiers depend on.
    pub(crate) fn place<'a>(&'a self, machine: Uuid, target: &'a TargetName) -> Place<'a> {
        Place {
            machine,
            target,
            volume: &self.name,
        }
    }
}
