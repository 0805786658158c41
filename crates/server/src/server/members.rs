//! Volumes that hold others: nothing else may use what they are made of.

use std::ops::ControlFlow;
use std::sync::Arc;

use volume::{
    Extendable, Member, Mirroring, Progress, Repair, Role, ScrubReport, VolumeError, VolumeKind,
};

use super::targets::VolumeChange;
use super::volumes::volume_error;
use super::{Server, State};
use crate::info::list;
use crate::{ServerError, VolumeName};

impl Server {
    /// Adds a volume to a linear volume while that is in use, and notifies attached hosts of the
    /// new size.
    ///
    /// # Errors
    /// If one of the two does not exist, the new member is used otherwise, or it does not fit.
    pub fn add_member(&self, name: &VolumeName, member: &VolumeName) -> Result<(), ServerError> {
        let mut state = self.state();
        state.check_free(name, member)?;
        let add = |volume: &dyn Extendable, new| volume.add_member(new);
        state.with_new_member(name, member, add)?;
        state.holders.insert(member.clone(), name.clone());
        state.notify_hosts(name, VolumeChange::Capacity);
        Ok(())
    }

    /// Changes settings of a cache or a mirror to those of `kind` while it is in use.
    ///
    /// # Errors
    /// If it is neither, a setting is invalid, the budget has no room, or what was written could
    /// not be flushed for a mode that promises it.
    pub fn set_settings(&self, name: &VolumeName, kind: &VolumeKind) -> Result<(), ServerError> {
        let volume = self.running_volume(name)?;
        let set = volume.storage().set_settings(kind);
        set.map_err(|error| volume_error(error, name, &volume.storage().spec()))
    }

    /// Checks what [`set_settings`](Self::set_settings) checks before anything changes, except for
    /// the budget.
    ///
    /// # Errors
    /// If a setting is invalid for the volume.
    pub fn check_settings(&self, name: &VolumeName, kind: &VolumeKind) -> Result<(), ServerError> {
        let volume = self.running_volume(name)?;
        let checked = volume.storage().check_settings(kind);
        checked.map_err(|error| volume_error(error, name, &volume.storage().spec()))
    }

    /// Takes a member of a mirror out of use until it is returned.
    ///
    /// # Errors
    /// If the volume is no mirror, has no such member, or the member has the only good copy.
    pub fn fail_member(&self, name: &VolumeName, member: &VolumeName) -> Result<(), ServerError> {
        self.with_mirror(name, |mirror| mirror.fail_member(member.as_str()))
    }

    /// Uses a member of a mirror again. What it missed is copied to it in the background.
    ///
    /// # Errors
    /// If the volume is no mirror or has no such member.
    pub fn return_member(&self, name: &VolumeName, member: &VolumeName) -> Result<(), ServerError> {
        self.with_mirror(name, |mirror| mirror.return_member(member.as_str()))
    }

    /// Uses another volume instead of a member of a mirror while hosts use that. The old member is
    /// free when this returns.
    ///
    /// # Errors
    /// If one of the volumes does not exist, the new member is used otherwise or does not fit, or
    /// the old one has the only good copy.
    pub fn replace_member(
        &self,
        name: &VolumeName,
        old: &VolumeName,
        new: &VolumeName,
    ) -> Result<(), ServerError> {
        let member = {
            let mut state = self.state();
            state.check_free(name, new)?;
            let member = state.new_member(name, new)?;
            state.holders.insert(new.clone(), name.clone());
            member
        };
        // It waits for commands in flight.
        let replaced = self.with_mirror(name, |mirror| mirror.replace_member(old.as_str(), member));
        let free = if replaced.is_ok() { old } else { new };
        self.state().holders.remove(free);
        replaced
    }

    /// Checks what [`replace_member`](Self::replace_member) checks, except that the new member has
    /// no other use: that use may end before.
    ///
    /// # Errors
    /// Those of [`replace_member`](Self::replace_member).
    pub fn check_replacement(
        &self,
        name: &VolumeName,
        old: &VolumeName,
        new: &VolumeName,
    ) -> Result<(), ServerError> {
        let member = self.state().new_member(name, new)?;
        self.with_mirror(name, |mirror| {
            mirror.check_replacement(old.as_str(), &member)
        })
    }

    /// Compares what members of a mirror in sync hold while hosts use it, and repairs differences
    /// if requested.
    ///
    /// # Errors
    /// If the volume is no mirror, or no member can be read at some place.
    pub fn scrub_volume(
        &self,
        name: &VolumeName,
        repair: Repair,
        progress: &mut dyn FnMut(Progress) -> ControlFlow<()>,
    ) -> Result<ScrubReport, ServerError> {
        let mut report = ScrubReport::default();
        self.with_mirror(name, |mirror| {
            report = mirror.scrub(repair, progress)?;
            Ok(())
        })?;
        Ok(report)
    }

    /// Whether a volume holds anything but zeros, or that is unknown: a part cannot be read, or
    /// reading takes longer than two minutes.
    ///
    /// # Errors
    /// If there is no such volume.
    pub fn holds_data(&self, name: &VolumeName) -> Result<bool, ServerError> {
        let volume = Arc::clone(&self.state().volume(name)?.volume);
        Ok(volume::copy::holds_data(&self.shared.core.relay, &volume))
    }

    /// Whether a volume is a member of a mirror of which others outlive the program, so that its
    /// contents are copied to it after a restart.
    pub fn is_refilled(&self, name: &VolumeName) -> bool {
        let state = self.state();
        let holder = state.holders.get(name);
        let holder = holder.and_then(|holder| state.volume(holder).ok());
        holder.is_some_and(|holder| {
            let storage = holder.volume.storage();
            storage.mirror().is_some() && storage.outlives_program()
        })
    }

    fn with_mirror(
        &self,
        name: &VolumeName,
        act: impl FnOnce(&dyn Mirroring) -> Result<(), VolumeError>,
    ) -> Result<(), ServerError> {
        let volume = self.running_volume(name)?;
        let spec = volume.storage().spec();
        let done = match volume.storage().mirror() {
            Some(mirror) => act(mirror),
            None => Err(VolumeError::NotAMirror {
                kind: spec.kind.clone(),
            }),
        };
        done.map_err(|error| volume_error(error, name, &spec))
    }

    /// Checks that a volume can be removed and created again of the same members, with the same
    /// contents.
    ///
    /// # Errors
    /// If it is a mirror whose members differ.
    pub fn check_release(&self, name: &VolumeName) -> Result<(), ServerError> {
        let volume = self.running_volume(name)?;
        let Some(mirror) = volume.storage().mirror() else {
            return Ok(());
        };
        let info = mirror.info();
        let differing = info.members.iter().find(|it| it.role != Role::InSync);
        match differing {
            Some(member) => Err(ServerError::OutOfSync {
                mirror: name.clone(),
                member: member.name.clone(),
            }),
            None => Ok(()),
        }
    }

    /// Writes what only memory holds of a volume to where it is kept.
    ///
    /// # Errors
    /// If that fails. It stays in memory.
    pub fn flush_volume(&self, name: &VolumeName) -> Result<(), ServerError> {
        let volume = self.running_volume(name)?;
        let flushed = volume.storage().flush();
        flushed.map_err(|error| volume_error(error, name, &volume.storage().spec()))
    }

    /// Checks what [`add_member`](Self::add_member) checks, except that the new member has no other
    /// use: that use may end before.
    ///
    /// # Errors
    /// Those of [`add_member`](Self::add_member).
    pub fn check_new_member(
        &self,
        name: &VolumeName,
        member: &VolumeName,
    ) -> Result<(), ServerError> {
        let check = |volume: &dyn Extendable, new| volume.check_addition(&new);
        self.state().with_new_member(name, member, check)
    }
}

impl State {
    /// Calls `add` with a linear volume and a volume that it may hold.
    fn with_new_member(
        &self,
        name: &VolumeName,
        member: &VolumeName,
        add: impl FnOnce(&dyn Extendable, Member) -> Result<(), VolumeError>,
    ) -> Result<(), ServerError> {
        let new = self.new_member(name, member)?;
        self.check_not_held(name)?;
        let volume = &self.volume(name)?.volume;
        let extendable = volume.storage().extendable().ok_or(VolumeError::NotLinear);
        let added = extendable.and_then(|extendable| add(extendable, new));
        added.map_err(|error| volume_error(error, name, &volume.storage().spec()))
    }

    /// A volume that another may hold, once it has no other use.
    fn new_member(&self, name: &VolumeName, member: &VolumeName) -> Result<Member, ServerError> {
        self.check_running()?;
        self.volume(name)?;
        let new = Member {
            name: member.to_string(),
            volume: Arc::clone(&self.volume(member)?.volume),
        };
        if member == name || self.is_below(name, member) {
            return Err(ServerError::MemberOfItself(name.clone()));
        }
        Ok(new)
    }

    /// Notes what a new volume holds.
    pub(super) fn hold_members(&mut self, holder: &VolumeName, kind: &VolumeKind) {
        if kind.holds_members() {
            let members = kind
                .parents()
                .iter()
                .filter_map(|member| member.parse().ok());
            self.holders
                .extend(members.map(|member| (member, holder.clone())));
        }
    }

    /// Checks that no other volume holds a volume.
    pub(super) fn check_not_held(&self, name: &VolumeName) -> Result<(), ServerError> {
        match self.holders.get(name) {
            Some(holder) => Err(ServerError::Held {
                volume: name.clone(),
                holder: holder.clone(),
            }),
            None => Ok(()),
        }
    }

    /// Checks that a volume which is about to exist may hold what it is made of. What changed while
    /// it was created is noticed here, under the lock.
    pub(super) fn check_members(
        &self,
        name: &VolumeName,
        kind: &VolumeKind,
    ) -> Result<(), ServerError> {
        if kind.holds_members() {
            for member in kind
                .parents()
                .iter()
                .filter_map(|member| member.parse().ok())
            {
                self.volume(&member)?;
                self.check_free(name, &member)?;
            }
        }
        Ok(())
    }

    /// Checks that `holder` may hold a volume: no target offers it, and no other volume holds it.
    fn check_free(&self, holder: &VolumeName, member: &VolumeName) -> Result<(), ServerError> {
        self.check_not_held(member)?;
        let attachments = self.attachments(member);
        if attachments.is_empty() {
            return Ok(());
        }
        Err(ServerError::MemberOffered {
            volume: member.clone(),
            holder: holder.clone(),
            targets: list(attachments.iter().map(|place| &place.target)),
        })
    }

    /// Whether a volume is made of `name`, by way of others or directly.
    fn is_below(&self, name: &VolumeName, of: &VolumeName) -> bool {
        let Ok(handle) = self.volume(of) else {
            return false;
        };
        let kind = handle.volume.storage().spec().kind;
        let mut parents = kind
            .parents()
            .iter()
            .filter_map(|parent| parent.parse().ok());
        parents.any(|parent: VolumeName| parent == *name || self.is_below(name, &parent))
    }

    /// A volume with those that hold it, directly or by way of others.
    pub(super) fn with_holders(&self, name: &VolumeName) -> Vec<VolumeName> {
        let next = |below: &VolumeName| self.holders.get(below).cloned();
        std::iter::successors(Some(name.clone()), next).collect()
    }
}
