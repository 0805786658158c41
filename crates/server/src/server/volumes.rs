//! Volumes.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use block::Completions;
use volume::filters::FilterSpec;
use volume::{
    Availability, ByteSize, Caching, Driver, ManagedVolume, MemoryError, Mirroring, Origin,
    Platform, Progress, Sources, SpecError, VolumeError, VolumeSpec, WriteLock,
};

use super::remote::OfferedDisks;
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
        let about = name.clone();
        self.insert_volumes(vec![(name, identity)], |server| {
            Ok(vec![server.build(&about, spec, Origin::New, progress)?])
        })
    }

    /// Removes a volume that was created a moment ago, because what it was created for has failed.
    /// A file that was created for it is removed, too, if it is still empty.
    ///
    /// # Errors
    /// Those of [`remove_volume`](Self::remove_volume) with force.
    pub fn undo_create_volume(&self, name: &VolumeName) -> Result<(), ServerError> {
        self.running_volume(name)?.storage().undo_creation();
        self.remove_volume(name, Force::Yes)
    }

    /// Creates a volume that an earlier run of the program had, with its identifiers. If what
    /// stores its blocks cannot be opened, the volume exists all the same and says why it executes
    /// nothing.
    ///
    /// # Errors
    /// Those of [`create_volume_as`](Self::create_volume_as), except that.
    pub fn restore_volume(
        &self,
        name: VolumeName,
        identity: VolumeIdentity,
        spec: &VolumeSpec,
    ) -> Result<(), ServerError> {
        let about = name.clone();
        self.insert_volumes(vec![(name, identity)], |server| {
            Ok(vec![server.build(
                &about,
                spec,
                Origin::Restored,
                &mut |_| {},
            )?])
        })
    }

    /// What a volume without a name uses of the server.
    pub fn platform(&self) -> Platform {
        Platform {
            budget: Arc::clone(&self.core().budget),
            relay: Arc::clone(&self.core().relay),
            lanes: Arc::clone(&self.core().lanes),
            record: None,
        }
    }

    fn platform_of(&self, name: &VolumeName) -> Platform {
        let records = self.core().mirror_records.as_ref();
        Platform {
            record: records.map(|folder| folder.join(name.as_str())),
            ..self.platform()
        }
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
        let new = vec![(name, VolumeIdentity::default())];
        self.insert_volumes(new, |_| Ok(vec![volume]))
    }

    /// Where volumes report completions of commands that they made wait.
    pub fn completions(&self) -> Arc<dyn Completions> {
        Arc::clone(&self.core().relay) as _
    }

    /// A driver of a volume, for commands of the program itself. A command fails that takes longer
    /// than `patience`.
    ///
    /// # Errors
    /// If the volume does not exist.
    pub fn driver(&self, name: &VolumeName, patience: Duration) -> Result<Driver, ServerError> {
        let volume = self.running_volume(name)?;
        Ok(Driver::new(&self.core().relay, volume, patience))
    }

    /// Creates the volume that `spec` says; the volume that it is made of exists.
    fn build(
        &self,
        name: &VolumeName,
        spec: &VolumeSpec,
        origin: Origin,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<Arc<dyn ManagedVolume>, ServerError> {
        let platform = self.platform_of(name);
        let built = volume::create_from(self, spec, origin, &platform, &mut |p| {
            progress(p);
            ControlFlow::Continue(())
        });
        built.map_err(|error| volume_error(error, name, spec))
    }

    /// Adds the volumes that `create` makes, one for each name, if it makes them. The names are
    /// reserved while it runs, which may take time.
    pub(super) fn insert_volumes(
        &self,
        new: Vec<(VolumeName, VolumeIdentity)>,
        create: impl FnOnce(&Self) -> Result<Vec<Arc<dyn ManagedVolume>>, ServerError>,
    ) -> Result<(), ServerError> {
        let names = || new.iter().map(|(name, _)| name);
        self.state().reserve_names(names())?;
        let charge = |name| {
            let charge = self.core().budget.reserve(VOLUME_BYTES);
            charge.map_err(|error| memory_error(error, name))
        };
        let charges: Result<Vec<_>, _> = names().map(charge).collect();
        let created = charges.and_then(|charges| Ok((create(self)?, charges)));
        let mut state = self.state();
        for name in names() {
            state.reserved_names.remove(name);
        }
        let (volumes, charges) = created?;
        for ((name, _), volume) in new.iter().zip(&volumes) {
            state.check_members(name, &volume.storage().spec().kind)?;
        }
        for (((name, identity), volume), charge) in new.into_iter().zip(volumes).zip(charges) {
            let handle = VolumeHandle {
                name: name.clone(),
                identity: Arc::new(identity),
                volume,
                created: SystemTime::now(),
                totals: Arc::default(),
                _charge: Arc::new(charge),
            };
            let storage = handle.volume.storage();
            storage.watch_path(self.core().path_notices.watcher(&name));
            state.hold_members(&name, &storage.spec().kind);
            state.volumes.insert(name, handle);
        }
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
        let volume = self.free_volume(name)?;
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

    /// Makes every block of a volume read as zeros and frees what it took.
    ///
    /// # Errors
    /// If it cannot be erased, what stores its blocks fails, or memory for what its snapshots show
    /// could not be allocated.
    pub fn erase_volume(&self, name: &VolumeName) -> Result<(), ServerError> {
        let volume = self.free_volume(name)?;
        let erased = volume.storage().erase();
        erased.map_err(|error| volume_error(error, name, &volume.storage().spec()))
    }

    /// A volume, unless the server is stopping.
    pub(super) fn running_volume(
        &self,
        name: &VolumeName,
    ) -> Result<Arc<dyn ManagedVolume>, ServerError> {
        let state = self.state();
        state.check_running()?;
        Ok(Arc::clone(&state.volume(name)?.volume))
    }

    /// Checks that a volume is no member of another one.
    ///
    /// # Errors
    /// If another volume holds it.
    pub fn check_free(&self, name: &VolumeName) -> Result<(), ServerError> {
        self.state().check_not_held(name)
    }

    /// Takes a volume offline for a change of all that it holds. When this returns, no command of
    /// a host changes it any more. Returns whether hosts could use it before.
    ///
    /// # Errors
    /// If it does not exist, or if a thread executes commands that began before for too long; the
    /// volume is then as available as before.
    pub(super) fn take_offline(
        &self,
        name: &VolumeName,
        volume: &dyn ManagedVolume,
    ) -> Result<Availability, ServerError> {
        let before = volume.controls().availability();
        match self.set_volume_availability(name, Availability::Offline) {
            Err(ServerError::Unfinished { waited }) => {
                volume.controls().set_availability(before);
                let volume = name.clone();
                Err(ServerError::StillExecuting { volume, waited })
            }
            result => result.map(|()| before),
        }
    }

    /// A volume of a server that runs, if no other volume holds it.
    pub(super) fn free_volume(
        &self,
        name: &VolumeName,
    ) -> Result<Arc<dyn ManagedVolume>, ServerError> {
        self.state().check_not_held(name)?;
        self.running_volume(name)
    }

    /// Locks a volume against writes, or unlocks it, and notifies attached hosts. When this
    /// returns, no write of theirs changes a locked volume any more.
    pub fn set_volume_lock(&self, name: &VolumeName, lock: WriteLock) -> Result<(), ServerError> {
        let state = self.state();
        state.check_running()?;
        let controls = state.volume(name)?.volume.controls();
        controls.set_write_lock(lock);
        for name in state.with_holders(name) {
            state.notify_hosts(&name, VolumeChange::Lock);
        }
        drop(state);
        match lock {
            WriteLock::ReadOnly => self.finish_turns(),
            WriteLock::Writable => Ok(()),
        }
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
        state.volume(name)?;
        let concerned = state.with_holders(name).into_iter().filter_map(|name| {
            let volume = Arc::clone(&state.volume(&name).ok()?.volume);
            let was_ready = volume.is_ready();
            Some((name, volume, was_ready))
        });
        let concerned: Vec<_> = concerned.collect();
        state
            .volume(name)?
            .volume
            .controls()
            .set_availability(availability);
        for (name, volume, was_ready) in concerned {
            if !was_ready && volume.is_ready() {
                state.notify_hosts(&name, VolumeChange::Ready);
            }
        }
        drop(state);
        match availability {
            Availability::Offline => self.finish_turns(),
            Availability::Online => Ok(()),
        }
    }

    /// Notifies attached hosts that a volume executes commands, which came about by itself.
    pub fn announce_ready(&self, name: &VolumeName) {
        let state = self.state();
        for name in state.with_holders(name) {
            state.notify_hosts(&name, VolumeChange::Ready);
        }
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

    /// Removes a volume and its data, except for a file, which stays. While it is attached this
    /// fails, unless forced, which detaches it everywhere. While snapshots or clones are made of it
    /// this always fails. What only memory holds of it is flushed first; if that fails, the volume
    /// stays, unless forced.
    pub fn remove_volume(&self, name: &VolumeName, force: Force) -> Result<(), ServerError> {
        self.take_out(name, force, |volume| volume.remove())
    }

    /// Removes a volume that holds others, such that it can be created again of them until
    /// [`forget_volume`](Self::forget_volume).
    ///
    /// # Errors
    /// Those of [`remove_volume`](Self::remove_volume) without force.
    pub fn release_volume(&self, name: &VolumeName) -> Result<(), ServerError> {
        self.take_out(name, Force::No, |volume| volume.free_members())
    }

    /// A volume that was released is not created again.
    pub fn forget_volume(&self, name: &VolumeName) {
        let is_there = self.state().volume(name).is_ok();
        if let Some(record) = self.platform_of(name).record.filter(|_| !is_there) {
            // One that stays is replaced when a mirror of this name is created.
            let _ = std::fs::remove_file(record);
        }
    }

    /// Takes a volume out of everything, and ends it.
    fn take_out(
        &self,
        name: &VolumeName,
        force: Force,
        end: impl FnOnce(&dyn ManagedVolume),
    ) -> Result<(), ServerError> {
        if force == Force::No {
            self.flush_volume(name)?;
        }
        let mut state = self.state();
        state.check_running()?;
        state.volume(name)?;
        let children = state.children(name);
        if !children.is_empty() {
            return Err(ServerError::HasChildren {
                volume: name.clone(),
                children: list(children.into_iter()),
            });
        }
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
        state.holders.retain(|_, holder| holder != name);
        drop(state);
        let Some(handle) = removed else {
            return Ok(());
        };
        let finished = self.finish_turns();
        end(&*handle.volume);
        finished
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
            created: self.created,
            used_bytes: storage.used_bytes(),
            lock: controls.write_lock(),
            availability: controls.availability(),
            problem: storage.problem(),
            damage: controls.damage(),
            paths: storage.paths(),
            cache: storage.cache().map(Caching::statistics),
            mirror: storage.mirror().map(Mirroring::info),
            replication: storage.replication(),
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

    /// Reserves the names of volumes that are about to be created.
    fn reserve_names<'a>(
        &mut self,
        names: impl Iterator<Item = &'a VolumeName>,
    ) -> Result<(), ServerError> {
        self.check_running()?;
        let mut reserved = BTreeSet::new();
        for name in names {
            if self.volumes.len() + self.reserved_names.len() + reserved.len() >= VOLUMES_MAX {
                return Err(ServerError::TooMany {
                    what: "volumes",
                    max: VOLUMES_MAX,
                });
            }
            let is_known = self.volumes.contains_key(name) || self.reserved_names.contains(name);
            if is_known || !reserved.insert(name.clone()) {
                return Err(ServerError::VolumeExists(name.clone()));
            }
        }
        self.reserved_names.append(&mut reserved);
        Ok(())
    }

    /// The volumes that are made of a volume.
    fn children(&self, name: &VolumeName) -> Vec<VolumeName> {
        let is_child = |handle: &&VolumeHandle| {
            let kind = handle.volume.storage().spec().kind;
            kind.parents().iter().any(|parent| parent == name.as_str())
        };
        let children = self.volumes.values().filter(is_child);
        children.map(|handle| handle.name.clone()).collect()
    }

    /// Where a volume is attached.
    pub(super) fn attachments(&self, name: &VolumeName) -> Vec<Attachment> {
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
    pub(super) fn notify_hosts(&self, name: &VolumeName, change: VolumeChange) {
        for place in self.attachments(name) {
            if let Some(target) = self.targets.get(&place.target) {
                target.service.notify(place.nsid, change);
            }
        }
    }
}

/// What volumes are made of.
impl Sources for Server {
    fn volume(&self, name: &str) -> Option<Arc<dyn ManagedVolume>> {
        self.running_volume(&name.parse().ok()?).ok()
    }

    fn open_remote(
        &self,
        spec: &VolumeSpec,
        origin: Origin,
        platform: &Platform,
    ) -> Result<Arc<dyn ManagedVolume>, VolumeError> {
        let own = Arc::new(OfferedDisks(Arc::downgrade(self.core())));
        remote::open(spec, origin, platform, own)
    }

    fn open_replicated(&self, spec: &VolumeSpec) -> Result<Arc<dyn ManagedVolume>, VolumeError> {
        let replicas = self.core().replicas.as_ref();
        node_link::attach(replicas.ok_or(VolumeError::NoCluster)?, spec)
    }
}

pub(super) fn volume_error(
    error: VolumeError,
    name: &VolumeName,
    wanted: &VolumeSpec,
) -> ServerError {
    let volume = name.clone();
    match error {
        VolumeError::Spec(SpecError::SizeOutOfRange { .. } | SpecError::NotWholeBlocks { .. }) => {
            ServerError::VolumeSize {
                len_bytes: wanted.size.0,
                block_bytes: wanted.block_size.bytes(),
                min_bytes: VolumeSpec::SIZE_MIN.0,
                max_bytes: VolumeSpec::SIZE_MAX.0,
            }
        }
        VolumeError::Memory(error) => memory_error(error, name),
        VolumeError::Gone => ServerError::UnknownVolume(volume),
        VolumeError::UnknownParent { of } => ServerError::UnknownParent { volume, of },
        source => ServerError::Volume { volume, source },
    }
}

fn memory_error(error: MemoryError, name: &VolumeName) -> ServerError {
    ServerError::of_memory(error, |source| ServerError::Memory {
        volume: name.clone(),
        source,
    })
}
