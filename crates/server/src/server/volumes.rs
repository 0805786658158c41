//! Volumes.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;

use block::Completions;
use volume::filters::FilterSpec;
use volume::{
    Availability, ByteSize, Charge, ManagedVolume, MemoryError, Progress, VolumeError, VolumeSpec,
    WriteLock,
};

use super::targets::VolumeChange;
use super::{Server, State};
use crate::capacity::VOLUME_BYTES;
use crate::info::list;
use crate::volume_handle::VolumeHandle;
use crate::{Attachment, Force, ServerError, VolumeIdentity, VolumeInfo, VolumeName};

/// The most volumes.
const VOLUMES_MAX: usize = 65_536;

impl Server {
    /// Creates a volume whose identifiers are derived from this machine, the target and its name.
    /// See [`create_volume_as`](Self::create_volume_as).
    ///
    /// # Errors
    /// Those of [`create_volume_as`](Self::create_volume_as).
    pub fn create_volume(
        &self,
        name: VolumeName,
        spec: &VolumeSpec,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<(), ServerError> {
        self.create_volume_as(name, VolumeIdentity::default(), spec, progress)
    }

    /// Creates a volume with identifiers of its own, which no other volume may have. A kind that
    /// allocates all its memory now takes a second for a few GiB; it reports to `progress`, and
    /// other calls go on meanwhile.
    ///
    /// # Errors
    /// If the name is taken, the specification is invalid, there are too many volumes, or memory
    /// could not be allocated.
    pub fn create_volume_as(
        &self,
        name: VolumeName,
        identity: VolumeIdentity,
        spec: &VolumeSpec,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<(), ServerError> {
        self.insert_volume(name, identity, spec, |server| {
            volume::create(spec, &server.core().budget, &mut |p| {
                progress(p);
                ControlFlow::Continue(())
            })
        })
    }

    /// Adds a volume that the caller has created. Its identifiers are derived. A volume that
    /// answers later reports to [`Self::completions`].
    ///
    /// # Errors
    /// If the name is taken, there are too many volumes, or the memory budget has no room for its
    /// entry.
    pub fn add_volume(
        &self,
        name: VolumeName,
        volume: Arc<dyn ManagedVolume>,
    ) -> Result<(), ServerError> {
        let spec = volume.storage().spec();
        self.insert_volume(name, VolumeIdentity::default(), &spec, |_| Ok(volume))
    }

    /// Where volumes report completions of commands that they made wait.
    pub fn completions(&self) -> Arc<dyn Completions> {
        Arc::new(self.core().handle.clone())
    }

    /// Reserves the name while `create` runs, which may take time.
    fn insert_volume(
        &self,
        name: VolumeName,
        identity: VolumeIdentity,
        spec: &VolumeSpec,
        create: impl FnOnce(&Self) -> Result<Arc<dyn ManagedVolume>, VolumeError>,
    ) -> Result<(), ServerError> {
        self.state().check_new_volume(&name)?;
        let create = || -> Result<(Arc<dyn ManagedVolume>, Charge), VolumeError> {
            let charge = self.core().budget.reserve(VOLUME_BYTES)?;
            Ok((create(self)?, charge))
        };
        let created = create();
        let mut state = self.state();
        state.reserved_names.remove(&name);
        let (volume, charge) = created.map_err(|error| volume_error(error, &name, spec))?;
        let handle = VolumeHandle {
            name: name.clone(),
            identity: Arc::new(identity),
            volume,
            totals: Arc::default(),
            _charge: Arc::new(charge),
        };
        state.volumes.insert(name, handle);
        Ok(())
    }

    /// Grows or shrinks a volume while it is attached, and notifies attached hosts. A shrink
    /// discards data and so needs force. A kind that allocates all its memory at creation also does
    /// so for what it grows by.
    pub fn resize_volume(
        &self,
        name: &VolumeName,
        len_bytes: u64,
        force: Force,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<(), ServerError> {
        let volume = self.running_volume(name)?;
        let spec = volume.storage().spec();
        let wanted = VolumeSpec {
            size: ByteSize(len_bytes),
            ..spec.clone()
        };
        if wanted.size < spec.size && force == Force::No {
            return Err(ServerError::ShrinkLosesData {
                volume: name.clone(),
                from_bytes: spec.size.0,
                to_bytes: len_bytes,
            });
        }
        let resized = volume.resize(wanted.size, &mut |p| {
            progress(p);
            ControlFlow::Continue(())
        });
        resized.map_err(|error| volume_error(error, name, &wanted))?;
        self.state().notify_hosts(name, VolumeChange::Capacity);
        Ok(())
    }

    /// Makes every block of a volume read as zeros and frees its memory.
    pub fn erase_volume(&self, name: &VolumeName) -> Result<(), ServerError> {
        self.running_volume(name)?.storage().erase();
        Ok(())
    }

    /// A volume, unless the server is stopping.
    fn running_volume(&self, name: &VolumeName) -> Result<Arc<dyn ManagedVolume>, ServerError> {
        let state = self.state();
        state.check_running()?;
        Ok(Arc::clone(&state.volume(name)?.volume))
    }

    /// Locks a volume against writes, or unlocks it, and notifies attached hosts. When this returns,
    /// no write of theirs changes a locked volume any more.
    pub fn set_volume_lock(&self, name: &VolumeName, lock: WriteLock) -> Result<(), ServerError> {
        let state = self.state();
        state.check_running()?;
        let controls = state.volume(name)?.volume.controls();
        controls.set_write_lock(lock);
        state.notify_hosts(name, VolumeChange::Lock);
        drop(state);
        self.finish_turns();
        Ok(())
    }

    /// Takes a volume offline, so that every command of hosts fails, or brings it online. Attached
    /// hosts are notified when it comes online.
    pub fn set_volume_availability(
        &self,
        name: &VolumeName,
        availability: Availability,
    ) -> Result<(), ServerError> {
        let state = self.state();
        state.check_running()?;
        let volume = &state.volume(name)?.volume;
        let was_ready = volume.is_ready();
        volume.controls().set_availability(availability);
        if !was_ready && volume.is_ready() {
            state.notify_hosts(name, VolumeChange::Ready);
        }
        drop(state);
        self.finish_turns();
        Ok(())
    }

    /// Replaces all filters of a volume; the default is none.
    pub fn set_volume_filters(
        &self,
        name: &VolumeName,
        filters: FilterSpec,
    ) -> Result<(), ServerError> {
        let state = self.state();
        state.check_running()?;
        let controls = state.volume(name)?.volume.controls();
        controls.set_filters(filters);
        Ok(())
    }

    /// Removes a volume and its data. While it is attached this fails, unless forced, which
    /// detaches it everywhere.
    pub fn remove_volume(&self, name: &VolumeName, force: Force) -> Result<(), ServerError> {
        let mut state = self.state();
        state.check_running()?;
        state.volume(name)?;
        let attachments = state.attachments(name);
        if !attachments.is_empty() && force == Force::No {
            let registry = &self.core().registry;
            return Err(ServerError::VolumeInUse {
                volume: name.clone(),
                targets: list(attachments.iter().map(|place| &place.target)),
                sessions: attachments
                    .iter()
                    .map(|place| registry.sessions_of(&place.target))
                    .sum(),
            });
        }
        for place in &attachments {
            if let Some(target) = state.targets.get_mut(&place.target) {
                let namespaces = &mut target.definition.namespaces;
                namespaces.retain(|namespace| namespace.nsid != place.nsid);
                target.service.detach(place.nsid);
            }
        }
        let removed = state.volumes.remove(name);
        drop(state);
        if let Some(handle) = removed {
            self.finish_turns();
            handle.volume.remove();
        }
        Ok(())
    }

    /// Every volume, by name.
    pub fn volumes(&self) -> Vec<VolumeInfo> {
        // Counters are summed without the lock, since connecting hosts wait for it.
        let (volumes, mut attachments) = {
            let state = self.state();
            let volumes: Vec<_> = state.volumes.values().cloned().collect();
            (volumes, state.all_attachments())
        };
        let volumes = volumes.iter();
        volumes
            .map(|volume| {
                let places = attachments.remove(&volume.name);
                volume.info(places.unwrap_or_default())
            })
            .collect()
    }

    /// One volume.
    pub fn volume(&self, name: &VolumeName) -> Result<VolumeInfo, ServerError> {
        let state = self.state();
        let volume = state.volume(name)?;
        Ok(volume.info(state.attachments(name)))
    }
}

impl VolumeHandle {
    fn info(&self, attachments: Vec<Attachment>) -> VolumeInfo {
        let (storage, controls) = (self.volume.storage(), self.volume.controls());
        VolumeInfo {
            name: self.name.clone(),
            spec: storage.spec(),
            used_bytes: storage.used_bytes(),
            lock: controls.write_lock(),
            availability: controls.availability(),
            filters: controls.filters(),
            attachments,
            statistics: self.totals.sum(),
        }
    }
}

impl State {
    pub(super) fn volume(&self, name: &VolumeName) -> Result<&VolumeHandle, ServerError> {
        self.volumes
            .get(name)
            .ok_or_else(|| ServerError::UnknownVolume(name.clone()))
    }

    /// Reserves the name of a volume that is about to be created.
    fn check_new_volume(&mut self, name: &VolumeName) -> Result<(), ServerError> {
        self.check_running()?;
        if self.volumes.len() + self.reserved_names.len() >= VOLUMES_MAX {
            return Err(ServerError::TooMany {
                what: "volumes",
                max: VOLUMES_MAX,
            });
        }
        if self.volumes.contains_key(name) || !self.reserved_names.insert(name.clone()) {
            return Err(ServerError::VolumeExists(name.clone()));
        }
        Ok(())
    }

    /// Where a volume is attached.
    fn attachments(&self, name: &VolumeName) -> Vec<Attachment> {
        self.all_attachments().remove(name).unwrap_or_default()
    }

    /// Where each volume is attached.
    fn all_attachments(&self) -> BTreeMap<VolumeName, Vec<Attachment>> {
        let mut places = BTreeMap::<_, Vec<_>>::new();
        for (target, entry) in &self.targets {
            for namespace in &entry.definition.namespaces {
                let of_volume = places.entry(namespace.volume.clone()).or_default();
                of_volume.push(Attachment {
                    target: target.clone(),
                    nsid: namespace.nsid,
                });
            }
        }
        places
    }

    /// Notifies the hosts of a volume that it has changed.
    fn notify_hosts(&self, name: &VolumeName, change: VolumeChange) {
        for place in self.attachments(name) {
            if let Some(target) = self.targets.get(&place.target) {
                target.service.notify(place.nsid, change);
            }
        }
    }
}

fn volume_error(error: VolumeError, name: &VolumeName, wanted: &VolumeSpec) -> ServerError {
    let volume = name.clone();
    match error {
        VolumeError::Spec(_) => ServerError::VolumeSize {
            len_bytes: wanted.size.0,
            block_bytes: wanted.block_size.bytes(),
            min_bytes: VolumeSpec::SIZE_MIN.0,
            max_bytes: VolumeSpec::SIZE_MAX.0,
        },
        VolumeError::Memory(MemoryError::OverBudget {
            wanted_bytes,
            free_bytes,
            ..
        }) => ServerError::OverBudget {
            needed_bytes: wanted_bytes,
            free_bytes,
        },
        VolumeError::Memory(source) => ServerError::Memory { volume, source },
        VolumeError::Gone => ServerError::UnknownVolume(volume),
    }
}
