//! How hosts of this node reach a volume.
//!
//! ```text
//!                     configuration known                lease obtained
//!  Inaccessible ──────────────────────────► NonOptimized ─────────────────► Optimized
//!       ▲  ▲                                   ▲                            │     │
//!       │  └── closed, by whichever state      └──── another is primary ────┘     │
//!       └──────────────────────────── lease expired ──────────────────────────────┘
//! ```

use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Mutex, PoisonError};

use block::PathState;
use replica::LocalTime;
use volume::PathWatcher;

use super::state::State;
use super::{ReplicatedVolume, is_before};

/// The state of the path, and who is notified of changes.
#[derive(Default)]
pub(super) struct PathCell {
    /// A [`PathState`].
    state: AtomicU8,
    watcher: Mutex<Option<PathWatcher>>,
}

impl PathCell {
    /// The path of a volume that was just opened.
    pub fn new() -> Self {
        let cell = Self::default();
        cell.set(PathState::Inaccessible);
        cell
    }

    pub fn get(&self) -> PathState {
        let state = self.state.load(Ordering::Acquire);
        let all = [PathState::Optimized, PathState::NonOptimized];
        let found = all.into_iter().find(|known| *known as u8 == state);
        found.unwrap_or(PathState::Inaccessible)
    }

    /// Returns whether it changed.
    pub fn set(&self, state: PathState) -> bool {
        self.state.swap(state as u8, Ordering::AcqRel) != state as u8
    }

    pub fn watch(&self, watcher: PathWatcher) {
        *self.watcher.lock().unwrap_or_else(PoisonError::into_inner) = Some(watcher);
        self.notify();
    }

    pub fn notify(&self) {
        let watcher = self.watcher.lock().unwrap_or_else(PoisonError::into_inner);
        let watcher = watcher.clone();
        if let Some(watcher) = watcher {
            watcher();
        }
    }
}

impl ReplicatedVolume {
    /// How commands of this node's hosts are executed now. A primary whose lease has expired can
    /// neither execute nor pass on commands, and hosts find its successor on their other paths. A
    /// primary that has no lease yet is about to obtain one, and commands wait for it.
    pub(super) fn find_path(&self, state: &State, now: LocalTime) -> PathState {
        if state.is_closed || state.knows_no_primary() {
            return PathState::Inaccessible;
        }
        match self.serves_until.load(Ordering::SeqCst) {
            0 => PathState::NonOptimized,
            until if is_before(now, until) => PathState::Optimized,
            _ => PathState::Inaccessible,
        }
    }

    /// Has `watcher` called after each change of [`Volume::path`](block::Volume::path), and now.
    pub fn watch_path(&self, watcher: PathWatcher) {
        self.path.watch(watcher);
    }
}
