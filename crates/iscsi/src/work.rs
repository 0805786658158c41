//! The execution of commands whose data have come. What may take long is executed in turns: the first when the data are
//! there, the others when the connection's time comes again, after its neighbours.

use std::collections::VecDeque;
use std::time::Instant;

use block::Status;
use scsi::{
    CopyWork, Finish, Medium, NexusId, Response, SanitizeOutcome, SanitizeWork, ScsiStatus, Sense,
    Step, Turn,
};

use crate::backend::Backend;
use crate::connection::{Connection, Stage};
use crate::task::{Due, Progress, Task, Work};
use crate::waiting::{Admitting, is_settled};

/// PERSISTENT RESERVE OUT.
const PERSISTENT_RESERVE_OUT: u8 = 0x5F;

/// A command's execution, as far as it has come.
pub(crate) enum Execution {
    /// By its volume.
    Medium(scsi::Execution),
    /// EXTENDED COPY.
    Copy(Box<CopyWork>),
    /// SANITIZE, which is about to be begun.
    Begins(Box<SanitizeWork>),
    /// SANITIZE, which goes on by itself.
    Awaits(SanitizeOutcome),
}

/// What waits for its turn.
enum Item {
    /// A command by its slot and the slot's generation; it may have ended meanwhile.
    Command(usize, u16),
    /// A sanitize operation, which outlives its command.
    Sanitize(Box<SanitizeWork>),
}

/// The commands of a connection that are being executed, and what is left of its turn.
#[derive(Default)]
pub(crate) struct Workload {
    queue: VecDeque<Item>,
    turn: Turn,
    began: Option<Instant>,
}

impl Workload {
    /// Input has come, or the time for the next turn.
    pub(crate) fn start_turn(&mut self, now: Instant) {
        self.began = Some(now);
        self.turn = Turn::new();
    }

    /// Input has come that may be one of many at the same time: together they have one turn.
    pub(crate) fn continue_turn(&mut self, now: Instant) {
        if self.began != Some(now) {
            self.start_turn(now);
        }
    }

    /// Whether nothing is left to work on.
    pub(crate) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// The sanitize operations that are not done; what else there was is forgotten.
    pub(crate) fn take_sanitizing(&mut self) -> impl Iterator<Item = Box<SanitizeWork>> + use<> {
        std::mem::take(&mut self.queue)
            .into_iter()
            .filter_map(|item| match item {
                Item::Sanitize(work) => Some(work),
                Item::Command(..) => None,
            })
    }

    /// When the next turn is due: at once where there is work.
    pub(crate) fn due(&self) -> Option<Instant> {
        self.began.filter(|_| !self.queue.is_empty())
    }
}

impl<B: Backend> Connection<B> {
    /// Executes the task where its data have come, else asks for more.
    pub(crate) fn go_on(&mut self, slot: usize, now: Instant, backend: &mut B) {
        let Stage::Full(full) = &mut self.stage else {
            return;
        };
        let Some(nexus) = full.opened().map(|opened| opened.nexus) else {
            return;
        };
        let (leases, task) = full.tasks.leases_and(slot);
        let Some(task) = task else {
            return;
        };
        if let Some(early) = &mut task.early {
            early.is_whole = true;
            return;
        }
        if task.waits_for_volume() {
            return;
        }
        if task.progress == Progress::Receiving {
            if task.moved < task.len {
                if !task.unsolicited_open {
                    full.tasks.queue(slot);
                }
                return;
            }
            if let Work::Gathered(Medium::Unmap { .. }) = task.work {
                let mut admitting = Admitting::new(now, slot, leases);
                if !admitting.admit_unmap(task, nexus, backend) {
                    self.release(slot, now);
                    return;
                }
            }
            if let Some(work) = begin(task, nexus, backend) {
                self.workload.queue.push_back(Item::Sanitize(work));
            }
            if task.execution.is_some() {
                task.enter(Progress::Working);
                let item = Item::Command(slot, task.generation);
                self.workload.queue.push_back(item);
                self.work(now, backend);
                return;
            }
        }
        self.release(slot, now);
    }

    /// The time has come to go on with what is being executed.
    pub(crate) fn take_turn(&mut self, now: Instant, backend: &mut B) {
        if !self.workload.queue.is_empty() {
            self.look_at_standing(now, backend);
            self.workload.start_turn(now);
            self.work(now, backend);
        }
    }

    /// Works for what is left of this turn, on the command that has waited longest.
    fn work(&mut self, now: Instant, backend: &mut B) {
        while !self.workload.turn.is_over() {
            let (slot, generation) = match self.workload.queue.pop_front() {
                None => return,
                Some(Item::Command(slot, generation)) => (slot, generation),
                Some(Item::Sanitize(mut work)) => {
                    if work.go_on(&mut self.workload.turn) {
                        self.workload.queue.push_back(Item::Sanitize(work));
                    }
                    continue;
                }
            };
            let Stage::Full(full) = &mut self.stage else {
                return;
            };
            let Some(nexus) = full.opened().map(|opened| opened.nexus) else {
                return;
            };
            let task = full
                .tasks
                .get_mut(slot)
                .filter(|task| task.generation == generation && task.progress == Progress::Working);
            // It may have been aborted.
            let Some(task) = task else { continue };
            match step(task, nexus, &mut self.workload.turn, backend) {
                Step::More => {
                    let item = Item::Command(slot, generation);
                    self.workload.queue.push_back(item);
                }
                Step::Over(response) => {
                    task.response = response;
                    task.execution = None;
                    self.release(slot, now);
                }
            }
        }
    }

    /// A command was executed: it is answered, as soon as its effects are safe, its reservations are saved and the filters of its
    /// volume let it.
    pub(crate) fn release(&mut self, slot: usize, now: Instant) {
        let Stage::Full(full) = &mut self.stage else {
            return;
        };
        let (leases, task) = full.tasks.leases_and(slot);
        let Some(task) = task else {
            return;
        };
        if !leases.is_empty() && !is_settled(task, slot, leases) {
            return;
        }
        if task.unsaved.is_some() {
            task.enter(Progress::Held);
            return;
        }
        if task.progress != Progress::Held {
            task.enter(Progress::Sending);
        }
        if let Some(at) = task.not_before.filter(|at| *at > now) {
            task.enter(Progress::Held);
            let generation = task.generation;
            self.due.push(Due {
                at,
                slot,
                generation,
            });
            return;
        }
        full.tasks.queue(slot);
    }
}

/// Begins the execution of a task whose data have all come; where nothing is left to do after that, it has none. SANITIZE
/// brings work that goes on without it.
fn begin<B: Backend>(
    task: &mut Task,
    nexus: NexusId,
    backend: &mut B,
) -> Option<Box<SanitizeWork>> {
    match task.work {
        // The initiator announced fewer data than the command needs: nothing is executed.
        Work::Gathered(_) if task.len < task.wanted_len => {
            task.response = Response::check(Sense::invalid_cdb_field(0));
        }
        Work::Gathered(transfer) => {
            task.execution = Some(Execution::Medium(scsi::Execution::new(transfer)));
        }
        Work::Parameters => {
            let (lun, cdb, list) = (task.lun, task.cdb, std::mem::take(&mut task.gathered));
            match backend.with_device(|device| device.finish(nexus, lun, &cdb, &list)) {
                Finish::Done(response) => task.response = response,
                Finish::Copy(copy) => task.execution = Some(Execution::Copy(copy)),
            }
            let is_reservation = task.cdb[0] == PERSISTENT_RESERVE_OUT;
            if is_reservation && task.response.status == ScsiStatus::Good {
                task.unsaved = backend.unsaved();
            }
        }
        // Plain writes are done by now.
        Work::Read(_) | Work::Write(_) | Work::Data(_) | Work::None => {}
        Work::Sanitize => {
            let Some(Execution::Begins(work)) = task.execution.take() else {
                return None;
            };
            task.execution = work.outcome().map(Execution::Awaits);
            return Some(work);
        }
    }
    None
}

/// Goes on with the execution of a task.
fn step<B: Backend>(task: &mut Task, nexus: NexusId, turn: &mut Turn, backend: &mut B) -> Step {
    match &mut task.execution {
        Some(Execution::Medium(execution)) => {
            // Looked up anew each time: the logical unit may have gone.
            let Some((view, _)) = backend.view(nexus, task.lun) else {
                return Step::Over(Response::check(Sense::of_volume(Status::Gone)));
            };
            execution.go_on(&task.gathered, view.volume.as_ref(), turn)
        }
        Some(Execution::Copy(copy)) => copy.go_on(turn),
        // The operation itself is in the same queue, and takes what is left of the turn.
        Some(Execution::Awaits(outcome)) => outcome.look(),
        Some(Execution::Begins(_)) | None => Step::Over(Response::good()),
    }
}

#[cfg(test)]
mod tests;
