//! Reservations of iSCSI targets that outlive a restart (APTPL): how the control plane saves them.

use std::sync::Arc;

use scsi::Reservations;

use super::Server;
use super::targets::Service;
use crate::iscsi::IscsiTarget;
use crate::keeper::Keeper;
use crate::{TargetName, UnsavedReservations};

/// Tells which targets' reservations have to be saved. Does not keep the server alive.
#[derive(Clone)]
pub struct ReservationFeed {
    keeper: Arc<Keeper>,
}

impl ReservationFeed {
    /// Waits for a target whose reservations have to be saved; none when the server stops.
    pub fn wait(&self) -> Option<TargetName> {
        self.keeper.next()
    }
}

impl Server {
    /// Who takes this saves reservations: from now on, commands that change those that outlive a
    /// restart are not answered before [`reservations_saved`](Self::reservations_saved) was called.
    pub fn reservation_feed(&self) -> ReservationFeed {
        let keeper = Arc::clone(&self.core().keeper);
        keeper.set_kept();
        ReservationFeed { keeper }
    }

    /// The reservations of a target as they are to be saved; none where it was removed.
    pub fn unsaved_reservations(&self, target: &TargetName) -> Option<UnsavedReservations> {
        Some(self.iscsi_target(target)?.unsaved_reservations())
    }

    /// Reservations have been saved, or could not be (then the commands that changed them fail).
    pub fn reservations_saved(&self, saved: &UnsavedReservations, is_saved: bool) {
        if let Some(target) = self.iscsi_target(&saved.target) {
            target.note_saved(saved.number, is_saved);
        }
    }

    /// Puts saved reservations back after a restart. What no longer exists is passed over.
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
