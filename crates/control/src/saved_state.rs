//! The state that the state file holds: definitions, reservations of iSCSI targets, and what
//! volumes were saved as at the last shutdown.

use std::collections::BTreeMap;

use server::{Reservations, TargetName, VolumeName};
use volume::SaveId;

use crate::change::Change;
use crate::definitions::Definitions;
use crate::reservations::TargetReservations;
use crate::shutdown_save::ShutdownSave;
use crate::text::Text;

/// The contents of the state file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct SavedState {
    pub(crate) definitions: Definitions,
    pub(crate) reservations: SavedReservations,
    pub(crate) shutdown_saves: ShutdownSaves,
}

/// What volumes were saved as at the last shutdown. Once a volume is restored and online, it is not
/// here any more.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ShutdownSaves(BTreeMap<Text<VolumeName>, ShutdownSave>);

/// Reservations by target.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct SavedReservations(BTreeMap<Text<TargetName>, TargetReservations>);

impl SavedState {
    /// Applies a change.
    pub(crate) fn make(&mut self, change: Change) {
        self.reservations.make(&change);
        self.shutdown_saves.make(&change);
        self.definitions.make(change);
    }

    /// The changes that lead from an empty state to this one.
    pub(crate) fn as_changes(&self) -> Vec<Change> {
        let mut changes = self.definitions.as_changes();
        changes.extend(self.reservations.as_changes());
        changes.extend(self.shutdown_saves.as_changes());
        changes
    }
}

impl ShutdownSaves {
    /// Applies a change, if it concerns these.
    pub(crate) fn make(&mut self, change: &Change) {
        match change {
            Change::SetShutdownSave(volume, Some(save)) => {
                self.0.insert(volume.clone(), *save);
            }
            Change::SetShutdownSave(volume, None) | Change::RemoveVolume(volume) => {
                self.0.remove(volume);
            }
            _ => {}
        }
    }

    /// The changes that lead from none to these.
    fn as_changes(&self) -> impl Iterator<Item = Change> {
        let all = self.0.iter();
        all.map(|(volume, save)| Change::SetShutdownSave(volume.clone(), Some(*save)))
    }

    pub(crate) fn of(&self, volume: &VolumeName) -> Option<SaveId> {
        self.0.get(&Text(volume.clone())).map(|save| (*save).into())
    }
}

impl SavedReservations {
    /// Applies a change, if it concerns reservations.
    pub(crate) fn make(&mut self, change: &Change) {
        match change {
            Change::SetReservations(target, luns) if !luns.is_empty() => {
                self.0.insert(target.clone(), luns.clone());
            }
            Change::SetReservations(target, _) | Change::RemoveTarget(target) => {
                self.0.remove(target);
            }
            _ => {}
        }
    }

    /// The changes that lead from no reservations to these.
    fn as_changes(&self) -> impl Iterator<Item = Change> {
        let all = self.0.iter();
        all.map(|(target, luns)| Change::SetReservations(target.clone(), luns.clone()))
    }

    pub(crate) fn of(&self, target: &TargetName) -> TargetReservations {
        let of_target = self.0.get(&Text(target.clone()));
        of_target.cloned().unwrap_or_default()
    }

    /// All reservations in the server's form, without those whose type is unknown.
    pub(crate) fn to_server(&self) -> impl Iterator<Item = (&TargetName, u32, Reservations)> {
        self.0.iter().flat_map(|(target, luns)| {
            let luns = luns.iter();
            luns.filter_map(|(lun, saved)| Some((&target.0, lun.0, saved.to_server()?)))
        })
    }
}
