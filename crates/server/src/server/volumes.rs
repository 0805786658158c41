//! Volumes.

use std::ops::ControlFlow;
use std::sync::Arc;

use block::Volume as _;
use volume::filters::FilterSpec;
use volume::{
    Availability, ByteSize, MemoryError, Progress, Provision, RamSpec, RamVolume, SpecError,
    VolumeError, WriteLock,
};

use super::targets::VolumeChange;
use super::{Server, State};
use crate::capacity::VOLUME_BYTES;
use crate::info::list;
use crate::offered::VolumeHandle;
use crate::{
    Attachment, Force, Lock, Provisioning, ServerError, VolumeDefinition, VolumeIdentity,
    VolumeInfo, VolumeName,
};

/// A volume: what was defined, and what became of it.
#[derive(Clone)]
pub(super) struct VolumeEntry {
    /// As created; the size is the volume's own.
    definition: VolumeDefinition,
    pub(super) handle: VolumeHandle,
}

/// The most volumes.
const VOLUMES_MAX: usize = 65_536;

impl Server {
    /// Creates a volume whose identifiers are derived. A thick one takes its memory from the budget
    /// at once, which may take a second for a few GiB; `progress` hears of it, and other calls go on
    /// meanwhile.
    pub fn create_volume(
        &self,
        definition: VolumeDefinition,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<(), ServerError> {
        self.create_volume_as(VolumeIdentity::default(), definition, progress)
    }

    /// As [`create_volume`](Self::create_volume), with identifiers of its own, which no other volume
    /// has.
    pub fn create_volume_as(
        &self,
        identity: VolumeIdentity,
        definition: VolumeDefinition,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<(), ServerError> {
        let name = definition.name.clone();
        self.state().check_new_volume(&name)?;
        let budget = &self.core().budget;
        let charge = budget.reserve(VOLUME_BYTES).map_err(VolumeError::from);
        let created = charge.and_then(|charge| {
            let ram = RamVolume::with_progress(spec(&definition), budget, &mut |p| {
                progress(p);
                ControlFlow::Continue(())
            })?;
            Ok((ram, charge))
        });
        let mut state = self.state();
        state.coming.remove(&name);
        let (ram, charge) = created.map_err(|error| volume_error(error, &definition))?;
        let entry = VolumeEntry {
            definition,
            handle: VolumeHandle {
                name: name.clone(),
                identity: Arc::new(identity),
                ram,
                totals: Arc::default(),
                _charge: Arc::new(charge),
            },
        };
        state.volumes.insert(name, entry);
        Ok(())
    }

    /// Grows or shrinks a volume while it is attached. Shrinking needs force, since it cuts data
    /// off. Attached hosts are told. A thick one that grows takes its memory as at creation.
    pub fn resize_volume(
        &self,
        name: &VolumeName,
        len_bytes: u64,
        force: Force,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<(), ServerError> {
        let definition = {
            let state = self.state();
            state.check_running()?;
            state.volume(name)?.definition_now()
        };
        if len_bytes < definition.len_bytes && force == Force::No {
            return Err(ServerError::ShrinkLosesData {
                volume: name.clone(),
                from_bytes: definition.len_bytes,
                to_bytes: len_bytes,
            });
        }
        let wanted = VolumeDefinition {
            len_bytes,
            ..definition
        };
        let ram = Arc::clone(&self.state().volume(name)?.handle.ram);
        let resized = ram.resize(ByteSize(len_bytes), &mut |p| {
            progress(p);
            ControlFlow::Continue(())
        });
        resized.map_err(|error| volume_error(error, &wanted))?;
        self.state().tell_hosts(name, VolumeChange::Capacity);
        Ok(())
    }

    /// Makes every block of a volume read as zeros and gives its memory back.
    pub fn erase_volume(&self, name: &VolumeName) -> Result<(), ServerError> {
        let ram = {
            let state = self.state();
            state.check_running()?;
            Arc::clone(&state.volume(name)?.handle.ram)
        };
        ram.erase();
        Ok(())
    }

    /// Locks a volume against writes, or unlocks it. Attached hosts are told.
    pub fn set_volume_lock(&self, name: &VolumeName, lock: Lock) -> Result<(), ServerError> {
        let state = self.state();
        state.check_running()?;
        let volume = state.volume(name)?;
        volume.handle.ram.set_write_lock(match lock {
            Lock::ReadOnly => WriteLock::ReadOnly,
            Lock::Unlocked => WriteLock::Writable,
        });
        state.tell_hosts(name, VolumeChange::Lock);
        Ok(())
    }

    /// Takes a volume offline, so that every command of hosts fails, or brings it online. Attached hosts are told when
    /// it comes online.
    pub fn set_volume_availability(
        &self,
        name: &VolumeName,
        availability: Availability,
    ) -> Result<(), ServerError> {
        let state = self.state();
        state.check_running()?;
        let ram = &state.volume(name)?.handle.ram;
        let was_ready = ram.is_ready();
        ram.set_availability(availability);
        if !was_ready && ram.is_ready() {
            state.tell_hosts(name, VolumeChange::Ready);
        }
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
        state.volume(name)?.handle.ram.set_filters(filters);
        Ok(())
    }

    /// Removes a volume and its data; refused while it is attached, unless forced, which detaches
    /// it everywhere.
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
        if let Some(volume) = state.volumes.remove(name) {
            drop(state);
            volume.handle.ram.mark_gone();
        }
        Ok(())
    }

    /// Every volume, by name.
    pub fn volumes(&self) -> Vec<VolumeInfo> {
        // Counters are summed without the lock, for which connecting hosts may wait.
        let (volumes, mut attachments) = {
            let state = self.state();
            let volumes: Vec<_> = state.volumes.values().cloned().collect();
            (volumes, state.all_attachments())
        };
        let volumes = volumes.iter();
        volumes
            .map(|volume| {
                let places = attachments.remove(&volume.handle.name);
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

impl VolumeEntry {
    /// What was defined, with the present size.
    fn definition_now(&self) -> VolumeDefinition {
        VolumeDefinition {
            len_bytes: self.handle.ram.geometry().len_bytes(),
            ..self.definition.clone()
        }
    }

    fn info(&self, attachments: Vec<Attachment>) -> VolumeInfo {
        let ram = &self.handle.ram;
        VolumeInfo {
            definition: self.definition_now(),
            used_bytes: ram.allocated_bytes(),
            lock: if ram.is_read_only() {
                Lock::ReadOnly
            } else {
                Lock::Unlocked
            },
            availability: if ram.is_ready() {
                Availability::Online
            } else {
                Availability::Offline
            },
            filters: ram.filters(),
            attachments,
            statistics: self.handle.totals.sum(),
        }
    }
}

impl State {
    pub(super) fn volume(&self, name: &VolumeName) -> Result<&VolumeEntry, ServerError> {
        self.volumes
            .get(name)
            .ok_or_else(|| ServerError::UnknownVolume(name.clone()))
    }

    /// Keeps the name for a volume whose memory is about to be taken.
    fn check_new_volume(&mut self, name: &VolumeName) -> Result<(), ServerError> {
        self.check_running()?;
        if self.volumes.len() + self.coming.len() >= VOLUMES_MAX {
            return Err(ServerError::TooMany {
                what: "volumes",
                max: VOLUMES_MAX,
            });
        }
        if self.volumes.contains_key(name) || !self.coming.insert(name.clone()) {
            return Err(ServerError::VolumeExists(name.clone()));
        }
        Ok(())
    }

    /// Where a volume is attached.
    fn attachments(&self, name: &VolumeName) -> Vec<Attachment> {
        self.all_attachments().remove(name).unwrap_or_default()
    }

    /// Where each volume is attached.
    fn all_attachments(&self) -> std::collections::BTreeMap<VolumeName, Vec<Attachment>> {
        let mut places = std::collections::BTreeMap::<_, Vec<_>>::new();
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

    /// Tells the hosts that a volume has changed.
    fn tell_hosts(&self, name: &VolumeName, change: VolumeChange) {
        for place in self.attachments(name) {
            if let Some(target) = self.targets.get(&place.target) {
                target.service.tell(place.nsid, change);
            }
        }
    }
}

fn spec(definition: &VolumeDefinition) -> RamSpec {
    RamSpec {
        size: ByteSize(definition.len_bytes),
        block_size: definition.block_size,
        provision: match definition.provisioning {
            Provisioning::Thin => Provision::Thin,
            Provisioning::Thick => Provision::Thick,
        },
    }
}

fn volume_error(error: VolumeError, wanted: &VolumeDefinition) -> ServerError {
    let volume = wanted.name.clone();
    match error {
        VolumeError::Spec(SpecError::SizeOutOfRange { .. } | SpecError::NotWholeBlocks { .. }) => {
            ServerError::VolumeSize {
                len_bytes: wanted.len_bytes,
                block_bytes: wanted.block_size.bytes(),
                min_bytes: RamSpec::SIZE_MIN.0,
                max_bytes: RamSpec::SIZE_MAX.0,
            }
        }
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
