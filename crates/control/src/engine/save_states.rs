//! What is known of the saves of volumes.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use server::VolumeName;
use volume::{SaveId, Saved};

use crate::definitions::AfterCrash;
use crate::saved_state::SavedState;

/// What is known of the saves of each volume.
#[derive(Debug, Default)]
pub(super) struct SaveStates(BTreeMap<VolumeName, SaveState>);

#[derive(Debug, Default)]
pub(super) struct SaveState {
    /// The save that its contents come from, or were last saved as.
    pub(super) id: Option<SaveId>,
    /// When it was last to be saved regularly.
    pub(super) attempted: Option<Instant>,
    /// The last save that succeeded, and how long it took if that was in this process.
    pub(super) last: Option<(Saved, Option<Duration>)>,
    /// Why the last save or restoration failed.
    pub(super) failure: Option<String>,
    pub(super) restoration: Restoration,
}

/// Whether a volume is to be restored by the daemon.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Restoration {
    #[default]
    None,
    /// To this save, or to any.
    Planned(Option<SaveId>),
    /// It is served, and the rest of the save is being read.
    Loading,
}

impl SaveStates {
    /// The volumes that are to be restored when the daemon starts: those that were saved when it
    /// was last shut down, and those whose definition says so.
    pub(super) fn at_start(saved: &SavedState) -> Self {
        let volumes = saved.definitions.volumes.iter();
        let plan = volumes.filter_map(|(name, volume)| {
            let saving = volume.save.as_ref()?;
            let only = saved.shutdown_saves.of(&name.0);
            let is_planned = only.is_some() || saving.after_crash == AfterCrash::Restore;
            let state = SaveState {
                restoration: Restoration::Planned(only),
                ..SaveState::default()
            };
            is_planned.then(|| (name.0.clone(), state))
        });
        Self(plan.collect())
    }

    /// Whether a volume waits for its restoration, or is being restored.
    pub(super) fn is_planned(&self, name: &VolumeName) -> bool {
        let state = self.0.get(name);
        state.is_some_and(|state| state.restoration != Restoration::None)
    }

    /// Forgets a volume.
    pub(super) fn remove(&mut self, name: &VolumeName) {
        self.0.remove(name);
    }

    /// The volumes that wait for their restoration, and to which save.
    pub(super) fn planned(&self) -> Vec<(VolumeName, Option<SaveId>)> {
        let planned = self.0.iter().filter_map(|(name, state)| {
            let Restoration::Planned(only) = state.restoration else {
                return None;
            };
            Some((name.clone(), only))
        });
        planned.collect()
    }

    /// What is known of a volume.
    pub(super) fn get(&self, name: &VolumeName) -> Option<&SaveState> {
        self.0.get(name)
    }

    /// What is known of a volume, to note more.
    pub(super) fn of(&mut self, name: &VolumeName) -> &mut SaveState {
        self.0.entry(name.clone()).or_default()
    }
}
