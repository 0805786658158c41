//! What takes long, and how far it is. A volume that is busy takes no other change; all others do.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde::{Deserialize, Serialize};
use server::VolumeName;
use utoipa::ToSchema;
use volume::Progress;

use super::EngineError;

/// Something that takes long.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Task {
    /// The volume.
    pub volume: String,
    /// What is being done to it: `creation`, `change`, `erasure`, `removal`, `apply`, `snapshot`,
    /// `roll back`, `copy`, `scrub`, `save`, `restoration`, `acknowledgement`.
    pub action: String,
    /// How much is done.
    pub done_bytes: u64,
    /// How much there is to do.
    pub total_bytes: u64,
}

/// The volumes that something long is being done to.
#[derive(Default)]
pub(super) struct Busy {
    tasks: Mutex<BTreeMap<VolumeName, Arc<Entry>>>,
}

struct Entry {
    action: &'static str,
    done_bytes: AtomicU64,
    total_bytes: AtomicU64,
}

impl Busy {
    /// Marks a volume as busy until the guard drops.
    pub(super) fn enter(
        &self,
        volume: &VolumeName,
        action: &'static str,
        total_bytes: u64,
    ) -> Result<BusyGuard<'_>, EngineError> {
        let mut tasks = self.tasks();
        if let Some(entry) = tasks.get(volume) {
            return Err(EngineError::Busy {
                volume: volume.clone(),
                action: entry.action,
            });
        }
        let entry = Arc::new(Entry {
            action,
            done_bytes: AtomicU64::new(0),
            total_bytes: AtomicU64::new(total_bytes),
        });
        tasks.insert(volume.clone(), Arc::clone(&entry));
        Ok(BusyGuard {
            busy: self,
            volume: volume.clone(),
            entry,
        })
    }

    /// The operation in progress.
    pub(super) fn list(&self) -> Vec<Task> {
        self.tasks()
            .iter()
            .map(|(volume, entry)| Task {
                volume: volume.to_string(),
                action: entry.action.to_owned(),
                done_bytes: entry.done_bytes.load(Ordering::Relaxed),
                total_bytes: entry.total_bytes.load(Ordering::Relaxed),
            })
            .collect()
    }

    fn tasks(&self) -> MutexGuard<'_, BTreeMap<VolumeName, Arc<Entry>>> {
        self.tasks.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A volume is busy while this lives.
pub(super) struct BusyGuard<'a> {
    busy: &'a Busy,
    volume: VolumeName,
    entry: Arc<Entry>,
}

impl BusyGuard<'_> {
    /// Notes how far it is.
    pub(super) fn note(&self, progress: Progress) {
        let Progress {
            done_bytes,
            total_bytes,
        } = progress;
        self.entry.done_bytes.store(done_bytes, Ordering::Relaxed);
        self.entry.total_bytes.store(total_bytes, Ordering::Relaxed);
    }
}

impl Drop for BusyGuard<'_> {
    fn drop(&mut self) {
        self.busy.tasks().remove(&self.volume);
    }
}
