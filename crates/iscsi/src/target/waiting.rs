//! Commands that wait for their volume: until their blocks are in memory ([`Progress::Filling`]),
//! and until their effects are safe ([`Progress::Settling`]).
//!
//! While a command waits for its blocks, the initiator is not asked for data. Only unsolicited data
//! are kept. Room for them is reserved as for those of a command that may not start yet.

use std::time::Instant;

use block::{Completion, Status};
use scsi::{LeaseHolder, Response};
use session::Resumed;

use super::full_feature::FullFeature;
use super::task::{Execution, Progress, Work};
use crate::backend::Backend;

impl FullFeature {
    /// A volume has completed a command that it made wait.
    pub(crate) fn handle_completion<B: Backend>(
        &mut self,
        now: Instant,
        completion: Completion,
        backend: &mut B,
    ) {
        self.continue_turn(now, backend);
        if let Some((lease, resumed)) = self.tasks.leases.complete(completion) {
            self.resume(LeaseHolder::of(lease), resumed, now, backend);
        }
        self.end_turn(now, backend);
    }

    fn resume<B: Backend>(
        &mut self,
        holder: LeaseHolder,
        resumed: Resumed,
        now: Instant,
        backend: &mut B,
    ) {
        match (holder, resumed) {
            (LeaseHolder::Sanitize(number), _) => {
                self.resume_sanitizing(number, resumed, now, backend);
            }
            (LeaseHolder::Command(slot) | LeaseHolder::CopySource(slot), _)
                if self.tasks.is_copying(slot) =>
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
    fn resume_copy<B: Backend>(
        &mut self,
        slot: usize,
        resumed: Resumed,
        now: Instant,
        backend: &mut B,
    ) {
        if let Some(task) = self.tasks.get_mut(slot)
            && let Some(Execution::Copy(copy)) = &mut task.execution
            && copy.resume(resumed)
        {
            self.workload.queue_command(slot, task.generation);
            self.work(now, backend);
        }
    }

    /// The blocks of a command are in memory, or could not be loaded.
    fn filled<B: Backend>(
        &mut self,
        slot: usize,
        result: Result<(), Status>,
        now: Instant,
        backend: &mut B,
    ) {
        let Some(task) = self.tasks.get_mut(slot) else {
            return;
        };
        // It may have been answered meanwhile.
        if task.progress() != Progress::Filling {
            return;
        }
        if let Err(status) = result {
            task.fail_of_volume(status);
            self.tasks.queue(slot);
            return;
        }
        match task.work {
            Work::Read(_) => {
                task.enter(Progress::Sending);
                self.complete(slot, now);
            }
            Work::Write(_) => {
                task.enter(Progress::Receiving);
                task.moved = 0;
                let kept = std::mem::take(&mut task.gathered);
                self.handle_data(slot, &kept, backend);
                self.advance(slot, now, backend);
            }
            _ => {
                task.enter(Progress::Receiving);
                self.advance(slot, now, backend);
            }
        }
    }

    /// The effects of a command are safe, or are not.
    fn settled(&mut self, slot: usize, result: Result<(), Status>, now: Instant) {
        let Some(task) = self.tasks.get_mut(slot) else {
            return;
        };
        if task.progress() != Progress::Settling {
            return;
        }
        task.enter(Progress::Sending);
        if let Err(status) = result {
            task.fail_of_volume(status);
        }
        self.complete(slot, now);
    }

    /// Fails the commands that wait for volumes which are no longer behind their logical units, or
    /// no longer behind those that an EXTENDED COPY names.
    pub(super) fn fail_without_unit<B: Backend>(&mut self, backend: &mut B) {
        if self.tasks.leases.is_empty() {
            return;
        }
        for slot in self.tasks.of_lun(None) {
            let Some(task) = self.tasks.get_mut(slot) else {
                continue;
            };
            if task.waits_for_volume() {
                if task.view(backend).is_none() {
                    task.fail_of_volume(Status::Gone);
                    self.tasks.queue(slot);
                }
            } else if let Some(copy) = task.copy().filter(|copy| copy.is_waiting())
                && let Err(sense) =
                    backend.with_device(|device, nexus| device.check_copy(nexus, copy))
            {
                task.execution = None;
                task.end_with(Response::check(sense));
                self.tasks.queue(slot);
            }
        }
    }
}
