//! Saving volumes to files, and restoring them.

use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;

use volume::{
    Availability, Progress, Replace, RestoreError, Restored, SaveError, SaveId, Saved, Wanted,
};

use super::Server;
use crate::{ServerError, VolumeName};

impl Server {
    /// Saves what a volume holds at this moment to the file `path`, while the volume is in use, and
    /// reports to `progress`, which may cancel it. Also when the server has stopped: what hosts
    /// wrote is then complete.
    ///
    /// # Errors
    /// If the volume does not exist or is not in memory, if memory runs out for what hosts change
    /// meanwhile, or if the file cannot be written. `path` is then what it was.
    pub fn save_volume(
        &self,
        name: &VolumeName,
        id: SaveId,
        path: &Path,
        replace: Replace,
        progress: &mut dyn FnMut(Progress) -> ControlFlow<()>,
    ) -> Result<Saved, ServerError> {
        let volume = Arc::clone(&self.state().volume(name)?.volume);
        let saved = volume::save(&*volume, name.as_str(), id, path, replace, progress);
        saved.map_err(|error| match error {
            SaveError::Gone => ServerError::UnknownVolume(name.clone()),
            source => ServerError::Save {
                volume: name.clone(),
                source: Box::new(source),
            },
        })
    }

    /// Makes a volume what the file `path` holds, and reports to `progress`, which may cancel it.
    /// The volume is offline meanwhile, and stays so: the caller sets it online when it has noted
    /// what was restored.
    ///
    /// # Errors
    /// If the volume does not exist or cannot be restored, if the file does not fit it, cannot be
    /// read or is damaged, or if memory could not be allocated, or if a thread executes commands
    /// that began before for too long. The volume is then what it was; if
    /// its contents are gone (`source` is [`RestoreError::Spoiled`]), it stays offline.
    pub fn restore_contents(
        &self,
        name: &VolumeName,
        path: &Path,
        wanted: Wanted,
        progress: &mut dyn FnMut(Progress) -> ControlFlow<()>,
    ) -> Result<Restored, ServerError> {
        let volume = self.running_volume(name)?;
        let availability = self.take_offline(name, &*volume)?;
        let result = volume::restore(&*volume, path, wanted, progress);
        let then = match &result {
            Ok(_) | Err(RestoreError::Spoiled { .. }) => Availability::Offline,
            Err(_) => availability,
        };
        self.set_volume_availability(name, then)?;
        result.map_err(|source| ServerError::Restore {
            volume: name.clone(),
            source: Box::new(source),
        })
    }
}
