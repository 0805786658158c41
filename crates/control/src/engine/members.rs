//! What volumes are made of: those that hold others, snapshots and clones.

use std::ops::ControlFlow;

use server::{Force, ServerError, VolumeName};
use volume::Repair;

use super::mirror_view::ScrubView;
use super::{BusyGuard, Engine, EngineError};
use crate::change::Change;
use crate::definitions::{DefinitionFault, KindFields, Volume};
use crate::store::Store;
use crate::text::{Size, Text};

impl Engine {
    /// Adds a volume to a linear volume, which grows by it while hosts use it.
    pub fn add_member(&self, name: &VolumeName, member: &VolumeName) -> Result<(), EngineError> {
        if name == member {
            return Err(ServerError::MemberOfItself(name.clone()).into());
        }
        let _busy = self.shared.busy.enter(name, "change", 0)?;
        let _member = self.shared.busy.enter(member, "use by another volume", 0)?;
        let mut store = self.begin();
        let (from, new) = (self.defined_volume(name)?, self.defined_volume(member)?);
        let is_free = self.read().check_free(std::iter::once(member.as_str()));
        is_free.map_err(|fault| DefinitionFault::parent(name, fault))?;
        self.server().check_new_member(name, member)?;
        let to = Volume {
            size: Size(from.size.0.saturating_add(new.size.0)),
            kind: KindFields(from.kind.0.with_member(member.as_str())),
            ..from
        };
        self.change_members(&mut store, name, to)
    }

    /// Uses another volume instead of a member of a mirror while hosts use that.
    pub fn replace_member(
        &self,
        name: &VolumeName,
        old: &VolumeName,
        new: &VolumeName,
        force: Force,
    ) -> Result<(), EngineError> {
        if name == new {
            return Err(ServerError::MemberOfItself(name.clone()).into());
        }
        let _busy = self.shared.busy.enter(name, "change", 0)?;
        let _member = self.shared.busy.enter(new, "use by another volume", 0)?;
        self.server().check_replacement(name, old, new)?;
        self.guard_member(name, new, force)?;
        let mut store = self.begin();
        let from = self.defined_volume(name)?;
        self.defined_volume(new)?;
        let is_free = self.read().check_free(std::iter::once(new.as_str()));
        is_free.map_err(|fault| DefinitionFault::parent(name, fault))?;
        self.server().check_replacement(name, old, new)?;
        let to = Volume {
            kind: KindFields(from.kind.0.with_replacement(old.as_str(), new.as_str())),
            ..from
        };
        self.change_members(&mut store, name, to)
    }

    /// Gives a volume the members of `to`.
    fn change_members(
        &self,
        store: &mut Store,
        name: &VolumeName,
        to: Volume,
    ) -> Result<(), EngineError> {
        to.check(name)?;
        let mut changed = self.read().clone();
        changed.volumes.insert(Text(name.clone()), to.clone());
        changed.check_all_parents()?;
        let change = Change::SetVolume(Text(name.clone()), to);
        self.commit(store, vec![change], Force::No, |_| false)
    }

    /// Takes a member of a mirror out of use until it is returned.
    pub fn fail_member(&self, name: &VolumeName, member: &VolumeName) -> Result<(), EngineError> {
        let _busy = self.shared.busy.enter(name, "change", 0)?;
        self.server().fail_member(name, member)?;
        tracing::info!(volume = %name, %member, "a member of a mirror is taken out of use");
        Ok(())
    }

    /// Uses a member of a mirror again. What it missed is copied to it in the background.
    pub fn return_member(&self, name: &VolumeName, member: &VolumeName) -> Result<(), EngineError> {
        let _busy = self.shared.busy.enter(name, "change", 0)?;
        self.server().return_member(name, member)?;
        tracing::info!(volume = %name, %member, "a member of a mirror is used again");
        Ok(())
    }

    /// Compares what members of a mirror hold while hosts use it, and repairs differences if asked
    /// to.
    pub fn scrub_volume(
        &self,
        name: &VolumeName,
        repair: Repair,
    ) -> Result<ScrubView, EngineError> {
        let total_bytes = self.server().volume(name)?.spec.size.0;
        let busy = self.shared.busy.enter(name, "scrub", total_bytes)?;
        let report = self.server().scrub_volume(name, repair, &mut |progress| {
            busy.note(progress);
            ControlFlow::Continue(())
        })?;
        let view = ScrubView::from(report);
        tracing::info!(
            volume = %name,
            differing_bytes = view.differing_bytes,
            repaired_bytes = view.repaired_bytes,
            "scrubbed"
        );
        Ok(view)
    }

    /// Checks what a new volume is made of. Those volumes take no other change until the returned
    /// guards drop.
    pub(super) fn enter_parents(
        &self,
        name: &VolumeName,
        volume: &Volume,
        force: Force,
    ) -> Result<Vec<BusyGuard<'_>>, EngineError> {
        let check = self.read().check_new_parents(name, volume);
        check.map_err(|fault| DefinitionFault::parent(name, fault))?;
        let parents = volume.parents().iter().filter_map(|of| of.parse().ok());
        let enter = |parent: VolumeName| {
            // A volume that holds others is offline as long as one of them is.
            if !volume.kind.0.holds_members() {
                self.guard_contents(&parent)?;
            }
            self.shared.busy.enter(&parent, "use by another volume", 0)
        };
        let guards = parents.map(enter).collect::<Result<_, _>>()?;
        self.guard_overwritten(name, volume, force)?;
        Ok(guards)
    }
}
