//! Saving volumes to files, and restoring them.

use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;

use volume::{
    Availability, Loader, Progress, RestoreError, Restored, SaveError, SaveId, Saved, Target,
    Wanted,
};

use super::Server;
use crate::{ServerError, VolumeName};

impl Server {
    /// Saves what a volume holds at this moment to `target`, while the volume is in use, and
    /// reports to `progress`, which may cancel it. Also when the server has stopped: what hosts
    /// wrote is then complete.
    ///
    /// # Errors
    /// If the volume does not exist or is not in memory, if memory runs out for what hosts change
    /// meanwhile, or if the file cannot be written. The target is then what it was.
    pub fn save_volume(
        &self,
        name: &VolumeName,
        id: SaveId,
        target: &Target<'_>,
        progress: &mut dyn FnMut(Progress) -> ControlFlow<()>,
    ) -> Result<Saved, ServerError> {
        let volume = Arc::clone(&self.state().volume(name)?.volume);
        let saved = volume::save(&*volume, name.as_str(), id, target, progress);
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
        if result.is_ok() {
            volume.controls().end_loading();
        }
        result.map_err(|source| ServerError::Restore {
            volume: name.clone(),
            source: Box::new(source),
        })
    }

    /// Begins to restore a volume that is offline, was never written to and is no member of another
    /// one: to save `only` in the file `path`, or to any. The caller sets the volume online, and
    /// the loader does the rest while hosts use it.
    ///
    /// # Errors
    /// If the volume does not exist or cannot be restored, if a volume that holds it exists, or if
    /// the file does not fit it, cannot be read or has a damaged header or index.
    pub fn begin_restore(
        &self,
        name: &VolumeName,
        path: &Path,
        only: Option<SaveId>,
    ) -> Result<Loader, ServerError> {
        let volume = self.free_volume(name)?;
        let begun = volume::begin_restore(&volume, path, only, &self.core().relay);
        begun.map_err(|source| ServerError::Restore {
            volume: name.clone(),
            source: Box::new(source),
        })
    }

    /// The next save of a volume is complete: what changes until then is not noted any more.
    ///
    /// # Errors
    /// If the volume does not exist.
    pub fn end_tracking(&self, name: &VolumeName) -> Result<(), ServerError> {
        let volume = Arc::clone(&self.state().volume(name)?.volume);
        volume.controls().end_tracking();
        Ok(())
    }

    /// What the save of a volume could not give becomes zeros, where hosts have not written it
    /// since.
    ///
    /// # Errors
    /// If the volume does not exist.
    pub fn accept_damage(&self, name: &VolumeName) -> Result<(), ServerError> {
        let volume = self.running_volume(name)?;
        volume.controls().end_loading();
        Ok(())
    }
}
