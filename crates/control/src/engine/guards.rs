//! Guards: what is refused without force, since it destroys data or cuts hosts off.

use server::{Force, PortalDefinition, ServerError, TargetName, VolumeName};

use super::{Contents, Engine, EngineError};
use crate::definitions::Volume;
use crate::plan::Step;

impl Engine {
    /// Refuses to erase a volume, or to roll it back, while sessions use it.
    pub(super) fn guard_sessions(
        &self,
        name: &VolumeName,
        force: Force,
    ) -> Result<(), EngineError> {
        let attachments = self.server().volume(name)?.attachments;
        let targets: Vec<_> = attachments.into_iter().map(|place| place.target).collect();
        let in_use = self.volume_in_use(name, &targets);
        let has_sessions =
            matches!(in_use, ServerError::VolumeInUse { sessions, .. } if sessions > 0);
        if force == Force::No && has_sessions {
            return Err(in_use.into());
        }
        Ok(())
    }

    /// Refuses to remove a volume that others are made of.
    pub(super) fn guard_children(&self, name: &VolumeName) -> Result<(), ServerError> {
        let definitions = self.read();
        let children = definitions.children(name);
        if children.is_empty() {
            return Ok(());
        }
        let children: Vec<_> = children.into_iter().map(VolumeName::as_str).collect();
        Err(ServerError::HasChildren {
            volume: name.clone(),
            children: children.join(", "),
        })
    }

    /// Refuses to make something of a volume whose contents are not there.
    pub(super) fn guard_contents(&self, name: &VolumeName) -> Result<(), EngineError> {
        let volume = name.clone();
        match self.volume(name)?.contents {
            Contents::Present => Ok(()),
            Contents::Lost => Err(EngineError::ContentsLost { volume }),
            Contents::Restoring => Err(EngineError::Restoring { volume }),
            Contents::Damaged => Err(EngineError::Damaged {
                volume,
                damage: self.server().volume(name)?.damage,
            }),
        }
    }

    /// Refuses to remove a volume that `targets` offer, or that holds data.
    pub(super) fn guard_removal(
        &self,
        name: &VolumeName,
        targets: &[TargetName],
        force: Force,
    ) -> Result<(), EngineError> {
        if force == Force::Yes {
            return Ok(());
        }
        if !targets.is_empty() {
            return Err(self.volume_in_use(name, targets).into());
        }
        let info = self.server().volume(name)?;
        let kind = self.defined_volume(name)?.kind.0;
        let written = info.statistics.kind(block::OpKind::Write);
        if kind.holds_data(info.used_bytes, written.bytes) {
            return Err(EngineError::HoldsData {
                volume: name.clone(),
                used_bytes: info.used_bytes,
            });
        }
        Ok(())
    }

    /// Refuses to create a volume that overwrites what others hold.
    pub(super) fn guard_overwritten(
        &self,
        name: &VolumeName,
        volume: &Volume,
        force: Force,
    ) -> Result<(), EngineError> {
        // An apply creates those that do not exist yet, and looks at them then.
        let mut existing =
            overwritten(volume).filter(|member| self.server().volume(member).is_ok());
        existing.try_for_each(|member| self.guard_member(name, &member, force))
    }

    /// The same for members that the transaction has just created: a file may have existed before.
    pub(super) fn guard_new_members(
        &self,
        step: &Step,
        done: &[Step],
        force: Force,
    ) -> Result<(), EngineError> {
        let Step::CreateVolume(name, volume) = step else {
            return Ok(());
        };
        let is_new = |member: &VolumeName| {
            let mut done = done.iter();
            done.any(|step| matches!(step, Step::CreateVolume(created, _) if created == member))
        };
        let mut new = overwritten(volume).filter(is_new);
        new.try_for_each(|member| self.guard_member(name, &member, force))
    }

    /// Refuses to make a volume that holds data a member of a mirror, which overwrites it.
    pub(super) fn guard_member(
        &self,
        mirror: &VolumeName,
        member: &VolumeName,
        force: Force,
    ) -> Result<(), EngineError> {
        if force == Force::No && self.server().holds_data(member)? {
            return Err(EngineError::MirrorOverwrites {
                volume: member.clone(),
                mirror: mirror.clone(),
            });
        }
        Ok(())
    }

    /// Refuses to close a portal that has connections.
    pub(super) fn guard_portal(
        &self,
        portal: PortalDefinition,
        force: Force,
    ) -> Result<(), EngineError> {
        let open = self.server().portals();
        let info = open.iter().find(|info| info.definition == portal);
        match info.map_or(0, |info| info.connections) {
            connections if connections > 0 && force == Force::No => Err(EngineError::PortalInUse {
                portal,
                connections,
            }),
            _ => Ok(()),
        }
    }

    fn volume_in_use(&self, name: &VolumeName, targets: &[TargetName]) -> ServerError {
        let infos = targets
            .iter()
            .filter_map(|target| self.server().target(target).ok());
        let sessions = infos.map(|info| info.sessions).sum();
        let targets: Vec<_> = targets.iter().map(ToString::to_string).collect();
        ServerError::VolumeInUse {
            volume: name.clone(),
            targets: targets.join(", "),
            sessions,
        }
    }
}

/// The members whose contents a volume of this definition overwrites.
fn overwritten(volume: &Volume) -> impl Iterator<Item = VolumeName> {
    let members = volume.kind.0.overwritten().iter();
    members.filter_map(|member| member.parse().ok())
}
