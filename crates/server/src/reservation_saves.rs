//! Reservations that must be saved: an iSCSI target queues itself when its reservations have
//! changed; the control plane fetches, saves and acknowledges them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use scsi::Reservations;

use crate::TargetName;

/// Reservations that must be saved before the command that changed them is answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnsavedReservations {
    /// The target.
    pub target: TargetName,
    /// All its reservations that outlive a restart, by LUN.
    pub luns: BTreeMap<u32, Reservations>,
    /// The number of this state of the reservations.
    pub(crate) number: u64,
}

/// The targets whose reservations must be saved. No other lock is taken under this one.
#[derive(Default)]
pub(crate) struct SaveQueue {
    inner: Mutex<Inner>,
    changed: Condvar,
}

#[derive(Default)]
struct Inner {
    targets: BTreeSet<TargetName>,
    /// Whether the control plane saves them.
    is_served: bool,
    is_stopping: bool,
}

impl SaveQueue {
    /// A target's reservations have changed.
    pub(crate) fn post(&self, target: &TargetName) {
        self.lock().targets.insert(target.clone());
        self.changed.notify_one();
    }

    /// From now on the control plane calls [`next`](Self::next).
    pub(crate) fn set_served(&self) {
        self.lock().is_served = true;
    }

    pub(crate) fn is_served(&self) -> bool {
        self.lock().is_served
    }

    /// Waits for the next target. Returns `None` when the server stops.
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
