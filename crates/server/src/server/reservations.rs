//! Reservations of iSCSI targets that outlive a restart (APTPL): how the control plane saves them.

use std::sync::Arc;

use scsi::Reservations;

use super::Server;
use super::targets::Service;
use crate::iscsi::IscsiTarget;
use crate::reservation_saves::SaveQueue;
use crate::{TargetName, UnsavedReservations};

/// Names the targets whose reservations must be saved. Does not keep the server alive.
#[derive(Clone)]
pub struct ReservationFeed {
    save_queue: Arc<SaveQueue>,
}

impl ReservationFeed {
    /// Waits for a target whose reservations must be saved. Returns `None` when the server stops.
    pub fn wait(&self) -> Option<TargetName> {
        self.save_queue.next()
    }
}

impl Server {
    /// The caller saves reservations: from now on, commands that change reservations which outlive
    /// a restart are answered only after a call of
    /// [`reservations_saved`](Self::reservations_saved).
    pub fn reservation_feed(&self) -> ReservationFeed {
        let save_queue = Arc::clone(&self.core().save_queue);
        save_queue.set_served();
        ReservationFeed { save_queue }
    }

    /// The reservations of a target that must be saved; `None` if the target was removed.
    pub fn unsaved_reservations(&self, target: &TargetName) -> Option<UnsavedReservations> {
        Some(self.iscsi_target(target)?.unsaved_reservations())
    }

    /// Reservations were saved, or could not be saved. In the latter case the commands that changed
    /// them fail.
    pub fn reservations_saved(&self, saved: &UnsavedReservations, is_saved: bool) {
        if let Some(target) = self.iscsi_target(&saved.target) {
            target.note_saved(saved.number, is_saved);
        }
    }

    /// Restores saved reservations after a restart. What no longer exists is ignored.
    pub fn restore_reservations(&self, target: &TargetName, lun: u32, saved: Reservations) {
        let target = self.iscsi_target(target);
        if let (Some(target), Ok(lun)) = (target, scsi::Lun::try_from(lun)) {
            target.restore_reservations(lun, saved);
        }
    }

    fn iscsi_target(&self, name: &TargetName) -> Option<Arc<IscsiTarget>> {
        match &self.state().targets.get(name)?.service {
            Service::Iscsi(target) => Some(Arc::clone(target)),
            Service::Nvme(_) => None,
        }
    }
}
