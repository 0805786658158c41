//! How commands are admitted to their volumes, and how their effects become safe.

use std::sync::Arc;
use std::time::Instant;

use block::{Extent, Intent, OpKind, Settled, Volume};
use scsi::{Medium, ScsiStatus, medium};
use session::{Admitted, Leases};

use super::task::{Progress, Task, Work};
use crate::backend::Backend;

/// Admits a task to its volume.
pub(super) struct Admission<'a> {
    pub(super) now: Instant,
    pub(super) slot: usize,
    pub(super) leases: &'a mut Leases,
}

impl Admission<'_> {
    /// Asks the volume: the task may have to wait, its completion may be held back, or the volume
    /// fails it.
    pub(super) fn admit(&mut self, task: &mut Task, volume: &Arc<dyn Volume>) {
        let Some(kind) = task.op_kind() else {
            return;
        };
        let extent = match &task.work {
            Work::Read(extent) | Work::Write(extent) => Some(*extent),
            // Its ranges arrive with its data.
            Work::Gathered(Medium::Unmap { .. }) => return,
            Work::Gathered(command) => command.extent(),
            _ => None,
        };
        self.admit_extents(task, volume, kind, extent.as_slice());
    }

    /// Admits an UNMAP, whose ranges arrived with its data. Returns false if it is not to be
    /// executed now.
    #[cold]
    pub(super) fn admit_unmap<B: Backend>(&mut self, task: &mut Task, backend: &mut B) -> bool {
        if self.leases.holds(self.slot) {
            return true;
        }
        let Some(view) = task.view(backend) else {
            // The execution fails.
            return true;
        };
        let geometry = view.volume.geometry();
        let Some((extents, len)) = medium::unmapped_inside(&task.gathered, geometry) else {
            return true;
        };
        self.admit_extents(task, &view.volume, OpKind::Discard, &extents[..len]);
        task.progress() == Progress::Receiving
    }

    /// Admits a task whose kind and blocks are known.
    #[inline]
    pub(super) fn admit_extents(
        &mut self,
        task: &mut Task,
        volume: &Arc<dyn Volume>,
        kind: OpKind,
        extents: &[Extent],
    ) {
        let intent = Intent {
            kind,
            extents,
            len_bytes: task.len,
            data_use: task.data_use(),
            persistence: medium::persistence(&task.cdb),
        };
        match self.leases.admit(self.slot, volume, self.now, &intent) {
            Admitted::Now => {}
            other => restrict(task, other),
        }
    }
}

/// The volume answered something else than [`Admitted::Now`].
#[cold]
pub(super) fn restrict(task: &mut Task, admitted: Admitted) {
    match admitted {
        Admitted::Now => {}
        Admitted::Leased(at) => task.not_before = at,
        Admitted::Filling(at) => {
            task.not_before = at;
            task.enter(Progress::Filling);
        }
        Admitted::NotBefore(at) => task.not_before = Some(at),
        Admitted::Fail(status, at) => {
            task.not_before = at;
            task.fail_of_volume(status);
        }
    }
}

/// Makes the effects of an executed command safe. Returns false if it waits for its volume.
#[cold]
pub(super) fn is_settled(task: &mut Task, slot: usize, leases: &mut Leases) -> bool {
    if task.waits_for_volume() {
        return false;
    }
    if task.response.status != ScsiStatus::Good {
        return true;
    }
    match leases.settle(slot) {
        Ok(Settled::Done) => {}
        Ok(Settled::Later) => task.enter(Progress::Settling),
        Err(status) => task.fail_of_volume(status),
    }
    task.progress() != Progress::Settling
}
