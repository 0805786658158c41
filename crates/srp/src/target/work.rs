//! The execution of commands whose data have arrived. Long commands are executed in time slices:
//! the first one when the data have arrived, the others when the channel is called again, after
//! other channels.

use std::time::Instant;

use block::Status;
use scsi::{
    CopySlots, Finish, LeaseHolder, Medium, Response, SanitizeWork, ScsiStatus, Sense, Step,
    WorkItem,
};

use super::admission::{Admission, is_settled, restrict};
use super::session::TargetSession;
use super::task::{Execution, Progress, Task, Work};
use crate::backend::Backend;

/// PERSISTENT RESERVE OUT.
const PERSISTENT_RESERVE_OUT: u8 = 0x5F;

impl<B: Backend> TargetSession<B> {
    /// Executes the task if its data have arrived, otherwise requests more.
    pub(super) fn advance(&mut self, slot: usize, now: Instant, backend: &mut B) {
        let (leases, task) = self.tasks.leases_and(slot);
        let Some(task) = task else {
            return;
        };
        if task.waits_for_volume() {
            return;
        }
        if task.progress() == Progress::Receiving {
            if task.moved < task.len {
                if task.requested < task.len {
                    self.tasks.queue(slot);
                }
                return;
            }
            if let Work::Gathered(Medium::Unmap { .. }) = task.work {
                let mut admission = Admission { now, slot, leases };
                if !admission.admit_unmap(task, backend) {
                    self.complete(slot, now);
                    return;
                }
            }
            match begin(task, backend) {
                Begun::Done => {}
                Begun::Executes => {
                    task.enter(Progress::Working);
                    self.workload.queue_command(slot, task.generation);
                }
                Begun::Sanitizes(work) => {
                    let command = (slot, task.generation);
                    let begun = self.workload.begin_sanitizing(work, command, leases, now);
                    restrict(task, begun.admitted);
                    if begun.waits {
                        task.enter(Progress::Working);
                    }
                }
            }
            if task.progress() == Progress::Working {
                self.work(now, backend);
                return;
            }
        }
        self.complete(slot, now);
    }

    /// The next time slice of what is being executed.
    pub(super) fn work_again(&mut self, now: Instant, backend: &mut B) {
        if self.workload.due().is_some() {
            self.check_standing(now, backend);
            self.workload.start_turn(now);
            self.work(now, backend);
        }
    }

    /// Executes for the rest of this time slice, first what has waited longest.
    pub(super) fn work(&mut self, now: Instant, backend: &mut B) {
        while let Some(item) = self.workload.next_item() {
            match item {
                WorkItem::Command(slot, generation) => {
                    self.work_on_command(slot, generation, now, backend);
                }
                WorkItem::Sanitize(number) => self.sanitize(number, now),
            }
        }
    }

    fn work_on_command(&mut self, slot: usize, generation: u16, now: Instant, backend: &mut B) {
        let (leases, task) = self.tasks.leases_and(slot);
        let task = task
            .filter(|task| task.generation == generation && task.progress() == Progress::Working);
        // It may have been aborted.
        let Some(task) = task else { return };
        let turn = &mut self.workload.turn;
        // Looked up again each time: the logical unit may have been removed.
        let view = task.view(backend);
        let step = match &mut task.execution {
            Some(Execution::Medium(execution)) => match view {
                Some(view) => execution.go_on(&task.gathered, view.volume.as_ref(), turn),
                None => Step::Over(Response::check(Sense::of_volume(Status::Gone))),
            },
            Some(Execution::Copy(copy)) => {
                let slots = CopySlots {
                    source: LeaseHolder::CopySource(slot).lease(),
                    destination: LeaseHolder::Command(slot).lease(),
                };
                let step = copy.go_on(now, turn, leases, slots);
                task.not_before = task.not_before.max(copy.not_before());
                step
            }
            // It is not queued by its command.
            Some(Execution::Sanitize(_)) | None => return,
        };
        match step {
            Step::More => self.workload.queue_command(slot, generation),
            Step::Waits => {}
            Step::Over(response) => {
                task.response = response;
                task.execution = None;
                self.complete(slot, now);
            }
        }
    }

    /// Executes a sanitize operation for the rest of the time slice. Its end answers the command
    /// that waits for it.
    pub(super) fn sanitize(&mut self, number: usize, now: Instant) {
        let leases = &mut self.tasks.leases;
        let Some((response, (slot, generation))) = self.workload.sanitize(number, leases) else {
            return;
        };
        let task = self.tasks.get_mut(slot);
        if let Some(task) = task.filter(|task| task.generation == generation)
            && task.progress() == Progress::Working
        {
            task.response = response;
            self.complete(slot, now);
        }
    }

    /// The channel ends: the program continues its sanitize operations.
    pub(super) fn hand_over_sanitizing(&mut self, backend: &mut B) {
        for (number, mut work) in self.workload.take_sanitizing() {
            let lease = LeaseHolder::Sanitize(number).lease();
            if work.suspend(&mut self.tasks.leases, lease) {
                backend.adopt(work);
            }
        }
    }

    /// A command was executed. It is answered as soon as its effects are safe, its reservations are
    /// saved, what it aborted is over, and the filters of its volume release it.
    pub(super) fn complete(&mut self, slot: usize, now: Instant) {
        let (leases, task) = self.tasks.leases_and(slot);
        let Some(task) = task else {
            return;
        };
        if !leases.is_empty() && !is_settled(task, slot, leases) {
            return;
        }
        if task.awaits_reservation() {
            task.enter(Progress::Held);
            return;
        }
        if task.progress() != Progress::Held {
            task.enter(Progress::Sending);
        }
        if let Some(until) = task.not_before.filter(|at| *at > now) {
            task.enter(Progress::Held);
            let generation = task.generation;
            let tasks = &self.tasks;
            let is_held = |slot, generation| {
                let task = tasks.get(slot).filter(|task| task.generation == generation);
                task.is_some_and(|task| task.progress() == Progress::Held)
            };
            self.held
                .push(until, (slot, generation), self.requests_max, is_held);
            return;
        }
        self.tasks.queue(slot);
    }

    /// Queues the tasks whose completion was held back until now.
    pub(super) fn release_held(&mut self, now: Instant) {
        while let Some((slot, generation)) = self.held.pop_due(now) {
            let Some(task) = self.tasks.get_mut(slot) else {
                continue;
            };
            if task.generation == generation && task.progress() == Progress::Held {
                task.enter(Progress::Sending);
                self.tasks.queue(slot);
            }
        }
    }
}

/// What follows once the data of a task have all arrived.
enum Begun {
    /// The task is done.
    Done,
    /// It is executed in time slices.
    Executes,
    /// This operation is executed without it.
    Sanitizes(Box<SanitizeWork>),
}

/// Begins the execution of a task whose data have all arrived.
fn begin<B: Backend>(task: &mut Task, backend: &mut B) -> Begun {
    match task.work {
        // Its buffer has fewer data than the command needs: nothing is executed.
        Work::Gathered(_) if task.len < task.wanted.1 => {
            task.response = Response::check(Sense::invalid_cdb_field(0));
        }
        Work::Gathered(command) => {
            task.execution = Some(Execution::Medium(scsi::Execution::new(command)));
            return Begun::Executes;
        }
        Work::Parameters => {
            let (lun, cdb, list) = (task.lun, task.cdb, std::mem::take(&mut task.gathered));
            let finished =
                backend.with_device(|device, nexus| device.finish(nexus, lun, &cdb, &list));
            match finished {
                Finish::Done(response) => task.response = response,
                Finish::Copy(copy) => {
                    task.execution = Some(Execution::Copy(copy));
                    return Begun::Executes;
                }
            }
            let is_reservation = task.cdb[0] == PERSISTENT_RESERVE_OUT;
            if is_reservation && task.response.status == ScsiStatus::Good {
                task.unsaved = backend.unsaved();
                let fence = backend.fence();
                task.fence = (!backend.is_past(fence)).then_some(fence);
            }
        }
        // Plain writes are done by now.
        Work::Read(_) | Work::Write(_) | Work::Data(_) | Work::None => {}
        Work::Sanitize => {
            if let Some(Execution::Sanitize(work)) = task.execution.take() {
                return Begun::Sanitizes(work);
            }
        }
    }
    Begun::Done
}
