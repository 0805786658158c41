//! Remote volumes: their paths, and what becomes of them by itself: they come online and grow.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use server::{Force, VolumeName};
use utoipa::ToSchema;
use volume::{PathInfo, VolumeKind};

use super::{Engine, VolumePatch};
use crate::text::Size;

/// A way to a disk on another machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PathView {
    /// Its URL.
    pub url: String,
    /// Whether it is connected.
    pub is_up: bool,
    /// Why it is not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
    /// How often it was connected since the daemon was started.
    pub connects: u64,
    /// How often its connection was lost, or given up because commands were not answered.
    pub losses: u64,
    /// How many commands the other side failed, including those that were tried again.
    pub errors: u64,
}

impl From<PathInfo> for PathView {
    fn from(info: PathInfo) -> Self {
        Self {
            url: info.url,
            is_up: info.is_up,
            problem: info.problem,
            connects: info.connects,
            losses: info.losses,
            errors: info.errors,
        }
    }
}

/// Remote volumes as they were at the last look.
#[derive(Debug, Default)]
pub(crate) struct RemoteWatch {
    online: BTreeSet<VolumeName>,
    /// Those whose growth could not be stored, which was logged.
    behind: BTreeSet<VolumeName>,
}

impl RemoteWatch {
    /// Notifies hosts of volumes that have come online, and defines volumes as large as their disks
    /// have become. A size that cannot be stored now is stored at the next look.
    pub(crate) fn look(&mut self, engine: &Engine) {
        let remote: Vec<_> = {
            let definitions = engine.read();
            let volumes = definitions.volumes.iter();
            volumes
                .filter(|(_, volume)| matches!(volume.kind.0, VolumeKind::Remote { .. }))
                .map(|(name, volume)| (name.0.clone(), volume.size))
                .collect()
        };
        for names in [&mut self.online, &mut self.behind] {
            names.retain(|name| remote.iter().any(|(defined, _)| defined == name));
        }
        for (name, size) in remote {
            let Ok(info) = engine.server().volume(&name) else {
                continue;
            };
            if info.problem.is_none() && self.online.insert(name.clone()) {
                engine.server().announce_ready(&name);
            }
            if info.spec.size.0 > size.0 {
                self.grow(engine, &name, Size(info.spec.size.0));
            }
        }
    }

    fn grow(&mut self, engine: &Engine, name: &VolumeName, size: Size) {
        let patch = VolumePatch {
            size: Some(size),
            ..VolumePatch::default()
        };
        match engine.change_volume(name, patch, Force::No) {
            Ok(()) => {
                self.behind.remove(name);
            }
            Err(error) if self.behind.insert(name.clone()) => {
                tracing::warn!(volume = %name, %error, "cannot note that a remote disk has grown; it is tried again");
            }
            Err(_) => {}
        }
    }
}
