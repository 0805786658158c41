//! Volumes.

use volume::{Progress, filters::FilterSpec};

use super::{Server, State};
use crate::info::list;
use crate::{
    Attachment, Force, IoStatistics, Lock, ServerError, VolumeDefinition, VolumeInfo, VolumeName,
};

/// The smallest capacity of a volume.
const LEN_MIN_BYTES: u64 = 1 << 20;
/// The largest capacity of a volume: 16 TiB.
const LEN_MAX_BYTES: u64 = 1 << 44;

/// A volume and what was defined.
pub(super) struct VolumeEntry {
    definition: VolumeDefinition,
    lock: Lock,
    filters: FilterSpec,
}

impl Server {
    /// Creates a volume. A thick one takes its memory from the budget at once, which may take a second for a few GiB;
    /// `progress` hears of it, and other calls go on meanwhile.
    pub fn create_volume(
        &self,
        definition: VolumeDefinition,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<(), ServerError> {
        let _ = progress;
        check_len(&definition, definition.len_bytes)?;
        let mut state = self.state();
        if state.volumes.contains_key(&definition.name) {
            return Err(ServerError::VolumeExists(definition.name));
        }
        let entry = VolumeEntry {
            definition: definition.clone(),
            lock: Lock::Unlocked,
            filters: FilterSpec::default(),
        };
        state.volumes.insert(definition.name, entry);
        Ok(())
    }

    /// Grows or shrinks a volume while it is attached. Shrinking needs force, since it cuts data off. Attached
    /// hosts are told. A thick one that grows takes its memory as at creation.
    pub fn resize_volume(
        &self,
        name: &VolumeName,
        len_bytes: u64,
        force: Force,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<(), ServerError> {
        let _ = progress;
        let mut state = self.state();
        let volume = state.volume_mut(name)?;
        check_len(&volume.definition, len_bytes)?;
        if len_bytes < volume.definition.len_bytes && force == Force::No {
            return Err(ServerError::ShrinkLosesData {
                volume: name.clone(),
                from_bytes: volume.definition.len_bytes,
                to_bytes: len_bytes,
            });
        }
        volume.definition.len_bytes = len_bytes;
        Ok(())
    }

    /// Makes every block of a volume read as zeros and gives its memory back.
    pub fn erase_volume(&self, name: &VolumeName) -> Result<(), ServerError> {
        self.state().volume(name)?;
        Ok(())
    }

    /// Locks a volume against writes, or unlocks it. Attached hosts are told.
    pub fn set_volume_lock(&self, name: &VolumeName, lock: Lock) -> Result<(), ServerError> {
        self.state().volume_mut(name)?.lock = lock;
        Ok(())
    }

    /// Replaces all filters of a volume; the default is none.
    pub fn set_volume_filters(
        &self,
        name: &VolumeName,
        filters: FilterSpec,
    ) -> Result<(), ServerError> {
        self.state().volume_mut(name)?.filters = filters;
        Ok(())
    }

    /// Removes a volume and its data; refused while it is attached, unless forced, which detaches it everywhere.
    pub fn remove_volume(&self, name: &VolumeName, force: Force) -> Result<(), ServerError> {
        let mut state = self.state();
        state.volume(name)?;
        let attachments = state.attachments(name);
        if !attachments.is_empty() && force == Force::No {
            return Err(ServerError::VolumeInUse {
                volume: name.clone(),
                targets: list(attachments.iter().map(|place| &place.target)),
                sessions: 0,
            });
        }
        for target in state.targets.values_mut() {
            target
                .namespaces
                .retain(|namespace| namespace.volume != *name);
        }
        state.volumes.remove(name);
        Ok(())
    }

    /// Every volume, by name.
    pub fn volumes(&self) -> Vec<VolumeInfo> {
        let state = self.state();
        state
            .volumes
            .values()
            .map(|volume| state.volume_info(volume))
            .collect()
    }

    /// One volume.
    pub fn volume(&self, name: &VolumeName) -> Result<VolumeInfo, ServerError> {
        let state = self.state();
        let volume = state.volume(name)?;
        Ok(state.volume_info(volume))
    }
}

impl State {
    pub(super) fn volume(&self, name: &VolumeName) -> Result<&VolumeEntry, ServerError> {
        self.volumes
            .get(name)
            .ok_or_else(|| ServerError::UnknownVolume(name.clone()))
    }

    fn volume_mut(&mut self, name: &VolumeName) -> Result<&mut VolumeEntry, ServerError> {
        self.volumes
            .get_mut(name)
            .ok_or_else(|| ServerError::UnknownVolume(name.clone()))
    }

    fn volume_info(&self, volume: &VolumeEntry) -> VolumeInfo {
        VolumeInfo {
            definition: volume.definition.clone(),
            used_bytes: 0,
            lock: volume.lock,
            filters: volume.filters.clone(),
            attachments: self.attachments(&volume.definition.name),
            statistics: IoStatistics::default(),
        }
    }

    /// Where a volume is attached.
    fn attachments(&self, name: &VolumeName) -> Vec<Attachment> {
        let mut places = Vec::new();
        for target in self.targets.values() {
            let of_volume = target
                .namespaces
                .iter()
                .filter(|namespace| namespace.volume == *name);
            places.extend(of_volume.map(|namespace| Attachment {
                target: target.name.clone(),
                nsid: namespace.nsid,
            }));
        }
        places
    }
}

fn check_len(definition: &VolumeDefinition, len_bytes: u64) -> Result<(), ServerError> {
    let block_bytes = definition.block_size.bytes();
    let is_fine =
        (LEN_MIN_BYTES..=LEN_MAX_BYTES).contains(&len_bytes) && len_bytes % block_bytes == 0;
    if is_fine {
        return Ok(());
    }
    Err(ServerError::VolumeSize {
        len_bytes,
        block_bytes,
        min_bytes: LEN_MIN_BYTES,
        max_bytes: LEN_MAX_BYTES,
    })
}
