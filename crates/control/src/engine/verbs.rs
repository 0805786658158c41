//! What a person can do: each verb a transaction.

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU16;

use serde::{Deserialize, Serialize};
use server::{Force, HostName, RemoteForm, ServerError, SessionId, TargetName, VolumeName};
use utoipa::ToSchema;
use volume::{ByteSize, CacheModeName, CacheSettings, Progress, VolumeError, VolumeKind};

use super::saves::check_folder;
use super::{Engine, EngineError};
use crate::change::Change;
use crate::definitions::{
    Access, BlockLen, Chap, ChapForm, DefinitionFault, Definitions, Filters, Host, KindFields,
    Nsid, Saving, Target, Volume, resync_rate,
};
use crate::plan::{Phase, Step, plan};
use crate::text::{Portal, Size, Text};

/// What is to change of a volume; what is absent stays.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct VolumePatch {
    /// The new capacity. A smaller one cuts the end off and needs force.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, example = "100 GiB")]
    pub size: Option<Size>,
    /// Whether writes are refused.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub read_only: Option<bool>,
    /// All filters; an empty object clears them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub filters: Option<Filters>,
    /// Of a cache: its memory.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, example = "1 GiB")]
    pub cache_size: Option<Size>,
    /// Of a cache: `write-through`, `write-around` or `write-back`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, example = "write-back")]
    pub cache_mode: Option<Text<CacheModeName>>,
    /// Of a cache: commands that continue a sequential stream beyond this length leave nothing in
    /// it; 0 turns that off.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, example = "1 MiB")]
    pub sequential_bypass: Option<Size>,
    /// Of a mirror: bytes per second that are copied at most to members that missed something; 0
    /// for no limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, example = "100 MiB")]
    pub resync_rate: Option<Size>,
    /// When and where it is saved; null: on request alone.
    #[serde(
        skip_serializing_if = "Option::is_none",
        deserialize_with = "crate::definitions::some"
    )]
    pub save: Option<Option<Saving>>,
}

impl VolumePatch {
    /// The kind with changed settings of a cache or a mirror.
    fn kind(&self, name: &VolumeName, from: &VolumeKind) -> Result<VolumeKind, ServerError> {
        let mirror = self.mirror_kind(name, from)?;
        let from = &mirror;
        let sizes = [self.cache_size, self.sequential_bypass];
        if self.cache_mode.is_none() && sizes.iter().all(Option::is_none) {
            return Ok(from.clone());
        }
        let VolumeKind::Cache { of, settings } = from else {
            return Err(ServerError::Volume {
                volume: name.clone(),
                source: VolumeError::NotACache { kind: from.clone() },
            });
        };
        let bytes = |size: Option<Size>, now| size.map_or(now, |size| ByteSize(size.0));
        Ok(VolumeKind::Cache {
            of: of.clone(),
            settings: CacheSettings {
                size: bytes(self.cache_size, settings.size),
                mode: self.cache_mode.map_or(settings.mode, |text| text.0.0),
                bypass: bytes(self.sequential_bypass, settings.bypass),
                ..*settings
            },
        })
    }

    fn mirror_kind(&self, name: &VolumeName, from: &VolumeKind) -> Result<VolumeKind, ServerError> {
        match (self.resync_rate, from) {
            (None, _) => Ok(from.clone()),
            (rate, VolumeKind::Mirror { members, .. }) => Ok(VolumeKind::Mirror {
                members: members.clone(),
                resync_rate: resync_rate(rate),
            }),
            _ => Err(ServerError::Volume {
                volume: name.clone(),
                source: VolumeError::NotAMirror { kind: from.clone() },
            }),
        }
    }
}

/// Who may use a target. With neither, hosts on this machine alone.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct TargetAccess {
    /// What any host from anywhere may do.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub any_host: Option<Access>,
    /// The hosts that may use it.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<BTreeMap<String, Access>>)]
    pub hosts: Option<BTreeMap<Text<HostName>, Access>>,
    /// The LUNs that hosts on the list of an iSCSI target see, each with its number in the target.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    #[schema(value_type = BTreeMap<String, BTreeMap<String, String>>)]
    pub luns: BTreeMap<Text<HostName>, BTreeMap<Nsid, Nsid>>,
    /// The groups of the portals that an iSCSI target is reached through; all, where empty.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    #[schema(value_type = Vec<u16>)]
    pub portal_groups: BTreeSet<NonZeroU16>,
    /// What hosts without CHAP of their own have to prove to an iSCSI target.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<ChapForm>)]
    pub chap: Option<Chap>,
}

impl Engine {
    /// Creates a volume. A thick volume allocates its memory now; other changes are not blocked.
    pub fn create_volume(
        &self,
        name: VolumeName,
        mut volume: Volume,
        force: Force,
    ) -> Result<(), EngineError> {
        fill_in_size(&name, &mut volume)?;
        self.fill_in_size_over_members(&name, &mut volume)?;
        let busy = self.shared.busy.enter(&name, "creation", volume.size.0)?;
        volume.check(&name)?;
        check_folder(&name, &volume)?;
        if self.read().volumes.contains_key(&Text(name.clone())) {
            return Err(ServerError::VolumeExists(name).into());
        }
        self.read().check_identity(&name, &volume)?;
        let _parents = self.enter_parents(&name, &volume, force)?;
        let (identity, spec) = (volume.identity.to_server(), volume.spec());
        self.server()
            .create_volume_as(name.clone(), identity, &spec, &mut |progress| {
                busy.note(progress);
            })?;
        let mut store = self.begin();
        // Another volume may have been given an identifier meanwhile, or a target a member.
        let recheck = |known: &Definitions| {
            known.check_identity(&name, &volume)?;
            let is_free = known.check_free(volume.held());
            is_free.map_err(|fault| DefinitionFault::parent(&name, fault))
        };
        if let Err(fault) = recheck(&self.read()) {
            self.server().undo_create_volume(&name)?;
            return Err(fault.into());
        }
        let change = Change::SetVolume(Text(name), volume);
        let is_creation = |step: &Step| matches!(step, Step::CreateVolume(..));
        self.commit(&mut store, vec![change], Force::No, is_creation)
    }

    fn fill_in_size_over_members(
        &self,
        name: &VolumeName,
        volume: &mut Volume,
    ) -> Result<(), DefinitionFault> {
        if volume.lacks_size() {
            let size = self.read().size_over_members(volume);
            let size = size.map_err(|fault| DefinitionFault::parent(name, fault))?;
            volume.size = size.map_or(volume.size, |size| Size(size.0));
        }
        Ok(())
    }

    /// Changes a volume. A thick volume that grows allocates memory now; other changes are not
    /// blocked.
    pub fn change_volume(
        &self,
        name: &VolumeName,
        patch: VolumePatch,
        force: Force,
    ) -> Result<(), EngineError> {
        let busy = self.shared.busy.enter(name, "change", 0)?;
        let from = self.defined_volume(name)?;
        let to = Volume {
            size: patch.size.unwrap_or(from.size),
            read_only: patch.read_only.unwrap_or(from.read_only),
            kind: KindFields(patch.kind(name, &from.kind.0)?),
            filters: patch.filters.unwrap_or_else(|| from.filters.clone()),
            save: patch.save.unwrap_or_else(|| from.save.clone()),
            ..from.clone()
        };
        to.check(name)?;
        if from.save != to.save {
            check_folder(name, &to)?;
        }
        if to.size < from.size && force == Force::No {
            return Err(ServerError::ShrinkLosesData {
                volume: name.clone(),
                from_bytes: from.size.0,
                to_bytes: to.size.0,
            }
            .into());
        }
        let changes = self.read().with_cached(name, to.clone());
        let behind = changes.keys().filter(|other| other.0 != *name);
        let _behind = behind
            .map(|of| self.shared.busy.enter(&of.0, "growth of its cache", 0))
            .collect::<Result<Vec<_>, _>>()?;
        let changes: Vec<_> = changes
            .into_iter()
            .map(|(name, volume)| Change::SetVolume(name, volume))
            .collect();
        // What cannot be done is refused before anything grows.
        plan(&self.read(), &changes)?;
        if to.size > from.size {
            let note = &mut |progress| busy.note(progress);
            self.server()
                .resize_volume(name, to.size.0, Force::No, note)?;
        }
        if to.save.is_none() {
            self.server().end_tracking(name)?;
        }
        let is_growth =
            |step: &Step| matches!(step, Step::Resize { .. }) && step.phase() != Phase::Destroy;
        self.commit(&mut self.begin(), changes, force, is_growth)
    }

    /// Makes every block of a volume read as zeros; rejected while sessions use it, unless forced.
    /// Other changes are not blocked.
    pub fn erase_volume(&self, name: &VolumeName, force: Force) -> Result<(), EngineError> {
        let info = self.server().volume(name)?;
        self.guard_sessions(name, force)?;
        let busy = self.shared.busy.enter(name, "erasure", info.used_bytes)?;
        busy.note(Progress {
            done_bytes: 0,
            total_bytes: info.used_bytes,
        });
        self.server().erase_volume(name)?;
        self.found_empty(name)?;
        tracing::info!(volume = %name, "erased");
        Ok(())
    }

    /// Removes a volume; refused while it is attached or holds data, unless forced.
    pub fn remove_volume(&self, name: &VolumeName, force: Force) -> Result<(), EngineError> {
        let _busy = self.shared.busy.enter(name, "removal", 0)?;
        self.defined_volume(name)?;
        if force == Force::No {
            // Before anything changes, since it may fail.
            self.server().flush_volume(name)?;
        }
        let mut store = self.begin();
        self.guard_children(name)?;
        let (mut targets, mut changes) = (Vec::new(), Vec::new());
        for (target, definition) in &self.read().targets {
            let mut without = definition.clone();
            without.namespaces.retain(|_, volume| volume.0 != *name);
            if without != *definition {
                targets.push(target.0.clone());
                changes.push(Change::SetTarget(target.clone(), without));
            }
        }
        self.guard_removal(name, &targets, force)?;
        changes.push(Change::RemoveVolume(Text(name.clone())));
        self.commit(&mut store, changes, Force::Yes, |_| false)
    }

    /// Creates a target.
    pub fn create_target(&self, name: TargetName, target: Target) -> Result<(), EngineError> {
        let mut store = self.begin();
        if self.read().targets.contains_key(&Text(name.clone())) {
            return Err(ServerError::TargetExists(name).into());
        }
        self.set_target(&mut store, name, target, Force::No)
    }

    /// Creates an iSCSI target whose name is made here, of the machine and the first volume, and
    /// returns the name.
    pub fn create_iscsi_target(&self, target: Target) -> Result<TargetName, EngineError> {
        let mut store = self.begin();
        let first = target.namespaces.values().next();
        let word = first.map_or("target", |volume| volume.0.as_str());
        let names = self.server().iscsi_names(word);
        let name = {
            let definitions = self.read();
            let mut free =
                names.filter(|name| !definitions.targets.contains_key(&Text(name.clone())));
            free.next().expect("names do not end")
        };
        self.set_target(&mut store, name.clone(), target, Force::No)?;
        Ok(name)
    }

    /// Changes the hosts that may use a target. Sessions that are no longer allowed end.
    pub fn set_target_access(
        &self,
        name: &TargetName,
        access: TargetAccess,
    ) -> Result<(), EngineError> {
        let mut store = self.begin();
        let target = Target {
            any_host: access.any_host,
            hosts: access.hosts,
            luns: access.luns,
            portal_groups: access.portal_groups,
            chap: access.chap,
            ..self.defined_target(name)?
        };
        self.set_target(&mut store, name.clone(), target, Force::No)
    }

    /// Makes a volume a namespace of a target, with the lowest free number where none is given.
    /// Returns the number.
    pub fn attach_volume(
        &self,
        name: &TargetName,
        volume: VolumeName,
        nsid: Option<Nsid>,
    ) -> Result<Nsid, EngineError> {
        let mut store = self.begin();
        self.defined_volume(&volume)?;
        let mut target = self.defined_target(name)?;
        let nsid = nsid.unwrap_or_else(|| lowest_free(name, &target));
        if let Some(other) = target.namespaces.get(&nsid) {
            return Err(ServerError::NamespaceExists {
                target: name.clone(),
                nsid: nsid.0,
                volume: other.0.clone(),
            }
            .into());
        }
        target.namespaces.insert(nsid, Text(volume));
        self.set_target(&mut store, name.clone(), target, Force::No)?;
        Ok(nsid)
    }

    /// Takes a namespace from a target; refused while the target has sessions, unless forced.
    pub fn detach_volume(
        &self,
        name: &TargetName,
        nsid: Nsid,
        force: Force,
    ) -> Result<(), EngineError> {
        let mut store = self.begin();
        let mut target = self.defined_target(name)?;
        if target.namespaces.remove(&nsid).is_none() {
            return Err(ServerError::UnknownNamespace {
                target: name.clone(),
                nsid: nsid.0,
            }
            .into());
        }
        self.set_target(&mut store, name.clone(), target, force)
    }

    fn set_target(
        &self,
        store: &mut crate::store::Store,
        name: TargetName,
        mut target: Target,
        force: Force,
    ) -> Result<(), EngineError> {
        let mut changes = {
            let known = self.read();
            target.fill_in_secrets(&name, &known)?;
            known.check_target(&name, &target, HostName::is_qualified)?;
            known.check_target_volumes(&name, &target)?;
            known.check_identities_with(&name, &target)?;
            new_hosts(&target, &known)
        };
        changes.push(Change::SetTarget(Text(name), target));
        self.commit(store, changes, force, |_| false)
    }

    /// Removes a target; refused while it has sessions, unless forced.
    pub fn remove_target(&self, name: &TargetName, force: Force) -> Result<(), EngineError> {
        let mut store = self.begin();
        self.defined_target(name)?;
        let change = Change::RemoveTarget(Text(name.clone()));
        self.commit(&mut store, vec![change], force, |_| false)
    }

    /// Defines a host.
    pub fn create_host(&self, name: HostName, mut host: Host) -> Result<(), EngineError> {
        let mut store = self.begin();
        if self.read().hosts.contains_key(&Text(name.clone())) {
            return Err(ServerError::HostExists(name).into());
        }
        host.fill_in_secrets(&name, &self.read())?;
        host.check(&name)?;
        let change = Change::SetHost(Text(name), host);
        self.commit(&mut store, vec![change], Force::No, |_| false)
    }

    /// Changes a host. Sessions that are no longer allowed end.
    pub fn change_host(&self, name: HostName, mut host: Host) -> Result<(), EngineError> {
        let mut store = self.begin();
        if !self.read().hosts.contains_key(&Text(name.clone())) {
            return Err(ServerError::UnknownHost(name).into());
        }
        host.fill_in_secrets(&name, &self.read())?;
        host.check(&name)?;
        let change = Change::SetHost(Text(name), host);
        self.commit(&mut store, vec![change], Force::No, |_| false)
    }

    /// Removes a host that no target's list names.
    pub fn remove_host(&self, name: &HostName) -> Result<(), EngineError> {
        let mut store = self.begin();
        if !self.read().hosts.contains_key(&Text(name.clone())) {
            return Err(ServerError::UnknownHost(name.clone()).into());
        }
        let change = Change::RemoveHost(Text(name.clone()));
        self.commit(&mut store, vec![change], Force::No, |_| false)
    }

    /// Refers hosts that discover to another discovery service, too.
    pub fn add_referral(&self, referral: Portal) -> Result<(), EngineError> {
        let mut store = self.begin();
        if self.read().referrals.contains(&Text(referral)) {
            return Err(ServerError::ReferralExists(referral.0).into());
        }
        let change = Change::AddReferral(Text(referral));
        self.commit(&mut store, vec![change], Force::No, |_| false)
    }

    /// Refers hosts there no more.
    pub fn remove_referral(&self, referral: Portal) -> Result<(), EngineError> {
        let mut store = self.begin();
        self.referral(referral)?;
        let change = Change::RemoveReferral(Text(referral));
        self.commit(&mut store, vec![change], Force::No, |_| false)
    }

    /// Ends a session. Its host may come again, unless it is no longer allowed.
    pub fn end_session(&self, id: SessionId) -> Result<(), EngineError> {
        self.server().end_session(id)?;
        tracing::info!(session = %id, "ended");
        Ok(())
    }

    pub(super) fn defined_volume(&self, name: &VolumeName) -> Result<Volume, ServerError> {
        let definitions = self.read();
        let volume = definitions.volumes.get(&Text(name.clone()));
        volume
            .cloned()
            .ok_or_else(|| ServerError::UnknownVolume(name.clone()))
    }

    fn defined_target(&self, name: &TargetName) -> Result<Target, ServerError> {
        let definitions = self.read();
        let target = definitions.targets.get(&Text(name.clone()));
        target
            .cloned()
            .ok_or_else(|| ServerError::UnknownTarget(name.clone()))
    }
}

/// A volume without a size is as large as its file or disk. A remote disk is asked what it is, too.
pub(super) fn fill_in_size(name: &VolumeName, volume: &mut Volume) -> Result<(), ServerError> {
    let failed = |source| ServerError::Volume {
        volume: name.clone(),
        source,
    };
    if let VolumeKind::Remote { disk, .. } = &volume.kind.0
        && (volume.lacks_size() || disk.is_none())
    {
        let form = server::probe_remote(&volume.kind.0).map_err(failed)?;
        fill_in_form(volume, form);
        return Ok(());
    }
    if !volume.lacks_size() {
        return Ok(());
    }
    let size = volume.kind.0.natural_size().map_err(failed)?;
    // Without one, the check of the definition says what is wrong.
    volume.size = size.map_or(volume.size, |size| Size(size.0));
    Ok(())
}

/// Fills in what the definition of a remote volume leaves open. What contradicts the disk is
/// refused when the volume is created.
fn fill_in_form(volume: &mut Volume, form: RemoteForm) {
    if volume.lacks_size() {
        volume.size = Size(form.size.0);
        // The default, most likely.
        if volume.block_size == BlockLen::default() {
            volume.block_size = BlockLen(form.block_size);
        }
    }
    if let VolumeKind::Remote { disk, .. } = &mut volume.kind.0 {
        *disk = disk.take().or(form.disk);
    }
}

/// Definitions of the hosts in `target` that do not exist yet, if their names are NQNs or iSCSI
/// names. Any other unknown name may be a typing error, and remains an error.
fn new_hosts(target: &Target, known: &Definitions) -> Vec<Change> {
    let listed = target.hosts.iter().flat_map(BTreeMap::keys);
    let named: BTreeSet<_> = listed.chain(target.luns.keys()).collect();
    let is_new = |name: &&Text<HostName>| name.0.is_qualified() && !known.hosts.contains_key(name);
    let new = named.into_iter().filter(is_new);
    new.map(|name| Change::SetHost(name.clone(), Host::default()))
        .collect()
}

fn lowest_free(name: &TargetName, target: &Target) -> Nsid {
    let mut nsid = name.protocol().first_number();
    while target.namespaces.contains_key(&Nsid(nsid)) {
        nsid += 1;
    }
    Nsid(nsid)
}
