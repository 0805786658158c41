//! Commands that wait for their volume: until their blocks are in memory ([`Progress::Filling`]),
//! and until their effects are safe ([`Progress::Settling`]).

use std::time::Instant;

use block::{Completion, Status};
use scsi::{LeaseHolder, Response};
use session::Resumed;

use super::session::TargetSession;
use super::task::{Execution, Progress, Work};
use crate::backend::Backend;

impl<B: Backend> TargetSession<B> {
    /// A volume has completed a command that it made wait.
    pub(super) fn on_completion(&mut self, now: Instant, completion: Completion, backend: &mut B) {
        let Some((lease, resumed)) = self.tasks.leases.complete(completion) else {
            return;
        };
        match (LeaseHolder::of(lease), resumed) {
            (LeaseHolder::Sanitize(number), _) => {
                if self.workload.resume_sanitizing(number, resumed) {
                    self.work(now, backend);
                }
            }
            (LeaseHolder::Command(slot) | LeaseHolder::CopySource(slot), _)
                if self.is_copying(slot) =>
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

    fn is_copying(&self, slot: usize) -> bool {
        let task = self.tasks.get(slot);
        task.is_some_and(|task| task.copy().is_some())
    }

    /// A volume of an EXTENDED COPY has answered.
    fn resume_copy(&mut self, slot: usize, resumed: Resumed, now: Instant, backend: &mut B) {
        if let Some(task) = self.tasks.get_mut(slot)
            && let Some(Execution::Copy(copy)) = &mut task.execution
            && copy.resume(resumed)
        {
            self.workload.queue_command(slot, task.generation);
            self.work(now, backend);
        }
    }

    /// The blocks of a command are in memory, or could not be loaded.
    fn filled(&mut self, slot: usize, result: Result<(), Status>, now: Instant, backend: &mut B) {
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
                self.take_data(slot, &kept, backend);
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
    /// no longer behind those that an EXTENDED COPY names, and ends the sanitize operations whose
    /// logical unit was removed.
    pub(super) fn fail_without_unit(&mut self, now: Instant, backend: &mut B) {
        for number in self.workload.waiting_sanitizing() {
            self.sanitize(number, now);
        }
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
                task.end_with(Response::check(sense));
                self.tasks.queue(slot);
            }
        }
    }
}
