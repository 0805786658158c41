//! A volume of the server, as targets of every protocol hold it.

use std::sync::Arc;

use volume::{Charge, ManagedVolume};

use crate::VolumeName;
use crate::counters::Totals;

/// A volume as targets see it.
#[derive(Clone)]
pub(crate) struct VolumeHandle {
    pub(crate) name: VolumeName,
    pub(crate) volume: Arc<dyn ManagedVolume>,
    pub(crate) totals: Arc<Totals>,
    /// What it costs besides the memory of its blocks, until the last reference drops.
    pub(crate) _charge: Arc<Charge>,
}
