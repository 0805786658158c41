//! Commands that wait for their volume: until their blocks are in memory ([`Progress::Filling`]), and until their effects
//! are safe ([`Progress::Settling`]).
//!
//! While a command waits for its blocks, the initiator is not asked for data. Only unsolicited data are kept; room for
//! them is made as for those of a command whose turn has not come.

use std::sync::Arc;
use std::time::Instant;

use block::{Blocks, Completion, Extent, Geometry, Intent, Lba, OpKind, Settled, Status, Volume};
use scsi::medium::{self, UNMAP_DESCRIPTORS_MAX};
use scsi::{Medium, NexusId, Response, ScsiStatus, Sense};
use session::{Admitted, Leases, Resumed};

use crate::backend::Backend;
use crate::target::command::{finish, kind_of};
use crate::target::task::{LeaseHolder, Progress, Task, Work};
use crate::target::work::Execution;
use crate::tcp::session::{Connection, Full, Stage};

/// How a new task is admitted to its volume.
pub(crate) struct Admitting<'a> {
    pub(crate) now: Instant,
    slot: usize,
    leases: &'a mut Leases,
}

impl<'a> Admitting<'a> {
    /// The task that is to be in `slot`.
    pub(crate) fn new(now: Instant, slot: usize, leases: &'a mut Leases) -> Self {
        Self { now, slot, leases }
    }

    /// Asks the volume: the task may have to wait, its completion may be held back, or the volume answers it.
    pub(crate) fn admit(&mut self, task: &mut Task, volume: &Arc<dyn Volume>) {
        let Some(kind) = kind_of(task) else {
            return;
        };
        let extent = match &task.work {
            Work::Read(extent) | Work::Write(extent) => Some(*extent),
            // Its ranges come with its data.
            Work::Gathered(Medium::Unmap { .. }) => return,
            Work::Gathered(transfer) => transfer.extent(),
            _ => None,
        };
        let len_bytes = task.len;
        self.admit_extents(task, volume, kind, extent.as_slice(), len_bytes);
    }

    /// Admits an UNMAP, whose ranges came with its data. False where it is not to be executed now.
    #[cold]
    pub(crate) fn admit_unmap<B: Backend>(
        &mut self,
        task: &mut Task,
        nexus: NexusId,
        backend: &mut B,
    ) -> bool {
        if self.leases.holds(self.slot) {
            return true;
        }
        let Some((view, _)) = backend.view(nexus, task.lun) else {
            // The execution says so.
            return true;
        };
        let mut extents = [Extent::new(Lba(0), Blocks(0)); UNMAP_DESCRIPTORS_MAX];
        let Some(len) = unmapped(&task.gathered, view.volume.geometry(), &mut extents) else {
            return true;
        };
        let len_bytes = task.len;
        self.admit_extents(
            task,
            &view.volume,
            OpKind::Discard,
            &extents[..len],
            len_bytes,
        );
        task.progress == Progress::Receiving
    }

    /// The same for a task of this kind whose blocks are known.
    #[inline]
    pub(crate) fn admit_extents(
        &mut self,
        task: &mut Task,
        volume: &Arc<dyn Volume>,
        kind: OpKind,
        extents: &[Extent],
        len_bytes: u64,
    ) {
        let intent = Intent {
            kind,
            extents,
            len_bytes,
        };
        match self.leases.admit(self.slot, volume, self.now, &intent) {
            Admitted::Now => {}
            other => restrict(task, other),
        }
    }
}

/// The volume did not simply say [`Admitted::Now`].
#[cold]
pub(crate) fn restrict(task: &mut Task, admitted: Admitted) {
    match admitted {
        Admitted::Now => {}
        Admitted::Leased(at) => {
            task.not_before = at;
            task.must_copy = true;
        }
        Admitted::Filling(at) => {
            task.not_before = at;
            task.must_copy = true;
            task.progress = Progress::Filling;
        }
        Admitted::NotBefore(at) => task.not_before = Some(at),
        Admitted::Fail(status, at) => {
            task.not_before = at;
            fail(task, status);
        }
    }
}

impl<B: Backend> Connection<B> {
    /// A volume is done with a command that it made wait.
    pub(crate) fn on_completion(&mut self, now: Instant, completion: Completion, backend: &mut B) {
        self.workload.continue_turn(now);
        self.look_at_standing(now, backend);
        let Stage::Full(full) = &mut self.stage else {
            return;
        };
        let Some((lease, resumed)) = full.tasks.leases.complete(completion) else {
            return;
        };
        match (LeaseHolder::of(lease), resumed) {
            (LeaseHolder::Sanitize(number), _) => {
                self.resume_sanitizing(number, resumed, now, backend);
            }
            (LeaseHolder::Command(slot) | LeaseHolder::CopySource(slot), _)
                if full.tasks.is_copying(slot) =>
            {
                self.resume_copy(slot, resumed, now, backend);
            }
            (LeaseHolder::Command(slot), Resumed::Filled(result)) => {
                self.filled(slot, result, now, backend);
            }
            (LeaseHolder::Command(slot), Resumed::Settled(result)) => {
                self.settled(slot, result, now);
            }
            // It may have been answered meanwhile.
            (LeaseHolder::CopySource(_), _) => {}
        }
    }

    /// A volume of an EXTENDED COPY has answered.
    fn resume_copy(&mut self, slot: usize, resumed: Resumed, now: Instant, backend: &mut B) {
        let Stage::Full(full) = &mut self.stage else {
            return;
        };
        if let Some(task) = full.tasks.get_mut(slot)
            && let Some(Execution::Copy(copy)) = &mut task.execution
            && copy.resume(resumed)
        {
            self.workload.queue_command(slot, task.generation);
            self.work(now, backend);
        }
    }

    /// The blocks of a command are in memory, or could not be brought there.
    fn filled(&mut self, slot: usize, result: Result<(), Status>, now: Instant, backend: &mut B) {
        let Stage::Full(full) = &mut self.stage else {
            return;
        };
        let Some(task) = full.tasks.get_mut(slot) else {
            return;
        };
        // It may have been answered meanwhile.
        if task.progress != Progress::Filling {
            return;
        }
        if let Err(status) = result {
            fail(task, status);
            full.tasks.queue(slot);
            return;
        }
        match task.work {
            Work::Read(_) => {
                task.enter(Progress::Sending);
                self.release(slot, now);
            }
            Work::Write(_) => {
                task.enter(Progress::Receiving);
                task.moved = 0;
                let kept = std::mem::take(&mut task.gathered);
                self.write_data(slot, &kept, backend);
                self.go_on(slot, now, backend);
            }
            _ => {
                task.enter(Progress::Receiving);
                self.go_on(slot, now, backend);
            }
        }
    }

    /// The effects of a command are safe, or are not.
    fn settled(&mut self, slot: usize, result: Result<(), Status>, now: Instant) {
        let Stage::Full(full) = &mut self.stage else {
            return;
        };
        let Some(task) = full.tasks.get_mut(slot) else {
            return;
        };
        if task.progress != Progress::Settling {
            return;
        }
        task.enter(Progress::Sending);
        if let Err(status) = result {
            fail(task, status);
        }
        self.release(slot, now);
    }
}

impl Full {
    /// Fails the commands that wait for volumes which are no longer behind their logical units, or no longer behind those
    /// that an EXTENDED COPY names.
    pub(crate) fn fail_without_unit(&mut self, nexus: NexusId, backend: &mut impl Backend) {
        if self.tasks.leases.is_empty() {
            return;
        }
        for slot in self.tasks.of_lun(None) {
            let Some(task) = self.tasks.get_mut(slot) else {
                continue;
            };
            if task.waits_for_volume() {
                let region = backend.view(nexus, task.lun).map(|(_, region)| region);
                if region != Some(task.region) {
                    fail(task, Status::Gone);
                    self.tasks.queue(slot);
                }
            } else if let Some(copy) = task.copy().filter(|copy| copy.is_waiting())
                && let Err(sense) = backend.with_device(|device| device.check_copy(nexus, copy))
            {
                task.execution = None;
                fail_with(task, sense);
                self.tasks.queue(slot);
            }
        }
    }
}

/// Makes the effects of a command safe that was executed. False where it waits for its volume.
#[cold]
pub(crate) fn is_settled(task: &mut Task, slot: usize, leases: &mut Leases) -> bool {
    if task.waits_for_volume() {
        return false;
    }
    if task.response.status != ScsiStatus::Good {
        return true;
    }
    match leases.settle(slot) {
        Ok(Settled::Done) => {}
        Ok(Settled::Later) => task.enter(Progress::Settling),
        Err(status) => fail(task, status),
    }
    task.progress != Progress::Settling
}

/// Ends a task with what its volume says.
fn fail(task: &mut Task, status: Status) {
    fail_with(task, Sense::of_volume(status));
}

fn fail_with(task: &mut Task, sense: Sense) {
    task.response = Response::check(sense);
    finish(task);
}

/// The ranges of UNMAP's parameter list, where they are few enough and all inside the volume.
fn unmapped(
    list: &[u8],
    geometry: Geometry,
    extents: &mut [Extent; UNMAP_DESCRIPTORS_MAX],
) -> Option<usize> {
    let mut len = 0;
    for extent in medium::unmapped(list) {
        geometry.byte_range(extent).ok()?;
        *extents.get_mut(len)? = extent;
        len += 1;
    }
    Some(len)
}
