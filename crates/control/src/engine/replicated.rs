//! Replicated volumes: the cluster says which there are, and this machine has a definition of each.

use server::VolumeName;
use volume::{Platform, VolumeKind};

use super::{Engine, EngineError};
use crate::change::Change;
use crate::definitions::Volume;
use crate::plan::Step;
use crate::text::Text;

impl Engine {
    /// What replicated volumes use of the server.
    pub fn platform(&self) -> Platform {
        self.server().platform()
    }

    /// The replicated volumes that are defined.
    pub fn replicated_volumes(&self) -> Vec<(VolumeName, Volume)> {
        let definitions = self.read();
        let volumes = definitions.volumes.iter();
        let replicated = volumes.filter(|(_, volume)| volume.is_replicated());
        replicated
            .map(|(name, volume)| (name.0.clone(), volume.clone()))
            .collect()
    }

    /// The cluster has placed a volume elsewhere: its definition says so from now on.
    pub fn place_volume(&self, name: VolumeName, placed: &Volume) -> Result<(), EngineError> {
        let mut store = self.begin();
        let volume = Volume {
            kind: placed.kind.clone(),
            ..self.defined_volume(&name)?
        };
        let changes = vec![Change::SetVolume(Text(name), volume)];
        store.append(&changes)?;
        self.make(changes);
        Ok(())
    }

    /// The replicated volume of this name.
    pub fn replicated_volume(&self, name: &VolumeName) -> Option<Volume> {
        let volume = self.defined_volume(name).ok();
        volume.filter(Volume::is_replicated)
    }
}

impl Volume {
    /// Whether nodes of a cluster hold copies of it.
    pub fn is_replicated(&self) -> bool {
        matches!(self.kind.0, VolumeKind::Replicated { .. })
    }
}

/// A file of definitions neither creates nor removes replicated volumes: they belong to all nodes.
pub(super) fn check_steps(steps: &[Step]) -> Result<(), EngineError> {
    let concerned = steps.iter().find_map(|step| match step {
        Step::CreateVolume(name, volume) | Step::RemoveVolume(name, volume) => {
            volume.is_replicated().then_some(name)
        }
        _ => None,
    });
    match concerned {
        Some(volume) => Err(EngineError::OfCluster {
            volume: volume.clone(),
        }),
        None => Ok(()),
    }
}
