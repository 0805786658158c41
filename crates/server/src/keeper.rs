//! Which reservations are to be saved: iSCSI targets post that theirs have changed, the control
//! plane fetches, saves and acknowledges them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use scsi::Reservations;

use crate::TargetName;

/// Reservations that have to be saved before the command that changed them is answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnsavedReservations {
    /// The target.
    pub target: TargetName,
    /// All of its reservations that outlive a restart, by LUN.
    pub luns: BTreeMap<u32, Reservations>,
    /// Which state of them this is.
    pub(crate) number: u64,
}

/// The targets whose reservations are to be saved. A leaf among the locks.
#[derive(Default)]
pub(crate) struct Keeper {
    inner: Mutex<Inner>,
    changed: Condvar,
}

#[derive(Default)]
struct Inner {
    targets: BTreeSet<TargetName>,
    /// Someone saves them.
    is_kept: bool,
    is_stopping: bool,
}

impl Keeper {
    /// A target's reservations have changed.
    pub(crate) fn post(&self, target: &TargetName) {
        self.lock().targets.insert(target.clone());
        self.changed.notify_one();
    }

    /// From now on someone calls [`next`](Self::next).
    pub(crate) fn set_kept(&self) {
        self.lock().is_kept = true;
    }

    pub(crate) fn is_kept(&self) -> bool {
        self.lock().is_kept
    }

    /// Waits for the next target; none when the server stops.
    pub(crate) fn next(&self) -> Option<TargetName> {
        let mut inner = self.lock();
        loop {
            if let Some(target) = inner.targets.pop_first() {
                return Some(target);
            }
            if inner.is_stopping {
                return None;
            }
            let woken = self.changed.wait(inner);
            inner = woken.unwrap_or_else(PoisonError::into_inner);
        }
    }

    pub(crate) fn stop(&self) {
        self.lock().is_stopping = true;
        self.changed.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
