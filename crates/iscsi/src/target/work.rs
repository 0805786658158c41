//! The execution of commands whose data have come. What may take long is executed in turns: the first when the data are
//! there, the others when the connection's time comes again, after its neighbours.

use std::collections::VecDeque;
use std::time::Instant;

use block::Status;
use scsi::{
    CopySlots, CopyWork, Finish, Medium, NexusId, Response, SanitizeWork, ScsiStatus, Sense, Step,
    Turn,
};
use session::{Admitted, Leases, Resumed};

use crate::backend::Backend;
use crate::target::task::{Due, LeaseHolder, Progress, Task, Work};
use crate::target::waiting::{Admitting, is_settled, restrict};
use crate::tcp::session::{Connection, Stage};

/// PERSISTENT RESERVE OUT.
const PERSISTENT_RESERVE_OUT: u8 = 0x5F;

/// A command's execution, as far as it has come.
pub(crate) enum Execution {
    /// By its volume.
    Medium(scsi::Execution),
    /// EXTENDED COPY.
    Copy(Box<CopyWork>),
    /// SANITIZE, which is about to be begun.
    Sanitize(Box<SanitizeWork>),
}

/// What waits for its turn.
enum Item {
    /// A command by its slot and the slot's generation; it may have ended meanwhile.
    Command(usize, u16),
    /// A sanitize operation by its number.
    Sanitize(usize),
}

/// A sanitize operation, which outlives its command.
struct Sanitizing {
    work: Box<SanitizeWork>,
    /// The command that waits for its end, by its slot and the slot's generation; it may have ended meanwhile.
    command: Option<(usize, u16)>,
}

/// The commands of a connection that are being executed, and what is left of its turn. Those that wait for a volume are
/// not in the queue.
#[derive(Default)]
pub(crate) struct Workload {
    queue: VecDeque<Item>,
    /// Sanitize operations that are not over, by number: at most one for each logical unit, and those whose logical unit
    /// was removed since the last turn.
    sanitizing: Vec<Option<Sanitizing>>,
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

    /// Whether nothing is left to work on or to wait for.
    pub(crate) fn is_empty(&self) -> bool {
        self.queue.is_empty() && self.sanitizing.is_empty()
    }

    /// Puts a command in the queue.
    pub(crate) fn queue_command(&mut self, slot: usize, generation: u16) {
        self.queue.push_back(Item::Command(slot, generation));
    }

    /// Begins the sanitize operation that the task in `slot` asks for, unless the volume refuses it.
    fn begin_sanitizing(
        &mut self,
        mut work: Box<SanitizeWork>,
        (slot, task): (usize, &mut Task),
        leases: &mut Leases,
        now: Instant,
    ) {
        let free = self.sanitizing.iter().position(Option::is_none);
        let number = free.unwrap_or(self.sanitizing.len());
        match work.admit(now, leases, LeaseHolder::Sanitize(number).lease()) {
            refused @ Admitted::Fail(..) => return restrict(task, refused),
            // The command itself holds no lease, but a filter holds it back.
            Admitted::NotBefore(at) | Admitted::Leased(Some(at)) | Admitted::Filling(Some(at)) => {
                restrict(task, Admitted::NotBefore(at));
            }
            Admitted::Now | Admitted::Leased(None) | Admitted::Filling(None) => {}
        }
        let mut command = None;
        if !work.is_immediate() {
            task.enter(Progress::Working);
            command = Some((slot, task.generation));
        }
        if !work.is_waiting() {
            self.queue.push_back(Item::Sanitize(number));
        }
        if free.is_none() {
            self.sanitizing.push(None);
        }
        self.sanitizing[number] = Some(Sanitizing { work, command });
    }

    /// Takes out a sanitize operation that is over; the command that waits for it.
    fn end_sanitizing(&mut self, number: usize) -> Option<(usize, u16)> {
        let ended = self.sanitizing.get_mut(number)?.take()?;
        while let Some(None) = self.sanitizing.last() {
            self.sanitizing.pop();
        }
        ended.command
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
            match begin(task, nexus, backend) {
                Begun::Done => {}
                Begun::Executes => {
                    task.enter(Progress::Working);
                    self.workload.queue_command(slot, task.generation);
                }
                Begun::Sanitizes(work) => {
                    let task = (slot, &mut *task);
                    self.workload.begin_sanitizing(work, task, leases, now);
                }
            }
            if task.progress == Progress::Working {
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

    /// Works for what is left of this turn, on what has waited longest.
    pub(crate) fn work(&mut self, now: Instant, backend: &mut B) {
        while !self.workload.turn.is_over() {
            match self.workload.queue.pop_front() {
                None => return,
                Some(Item::Command(slot, generation)) => {
                    self.work_on_command(slot, generation, now, backend);
                }
                Some(Item::Sanitize(number)) => self.work_on_sanitizing(number, now),
            }
        }
    }

    fn work_on_command(&mut self, slot: usize, generation: u16, now: Instant, backend: &mut B) {
        let Stage::Full(full) = &mut self.stage else {
            return;
        };
        let Some(nexus) = full.opened().map(|opened| opened.nexus) else {
            return;
        };
        let (leases, task) = full.tasks.leases_and(slot);
        let task =
            task.filter(|task| task.generation == generation && task.progress == Progress::Working);
        // It may have been aborted.
        let Some(task) = task else { return };
        let turn = &mut self.workload.turn;
        let step = match &mut task.execution {
            Some(Execution::Medium(execution)) => match backend.view(nexus, task.lun) {
                Some((view, _)) => execution.go_on(&task.gathered, view.volume.as_ref(), turn),
                // Looked up anew each time: the logical unit may have gone.
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
                self.release(slot, now);
            }
        }
    }

    fn work_on_sanitizing(&mut self, number: usize, now: Instant) {
        let Stage::Full(full) = &mut self.stage else {
            return;
        };
        let Some(Some(sanitizing)) = self.workload.sanitizing.get_mut(number) else {
            return;
        };
        let (leases, lease) = (
            &mut full.tasks.leases,
            LeaseHolder::Sanitize(number).lease(),
        );
        let response = match sanitizing
            .work
            .go_on(&mut self.workload.turn, leases, lease)
        {
            Step::More => return self.workload.queue.push_back(Item::Sanitize(number)),
            Step::Waits => return,
            Step::Over(response) => response,
        };
        leases.release(lease);
        let Some((slot, generation)) = self.workload.end_sanitizing(number) else {
            return;
        };
        let task = full.tasks.get_mut(slot);
        if let Some(task) = task.filter(|task| task.generation == generation)
            && task.progress == Progress::Working
        {
            task.response = response;
            self.release(slot, now);
        }
    }

    /// The volume of a sanitize operation has answered.
    pub(crate) fn resume_sanitizing(
        &mut self,
        number: usize,
        resumed: Resumed,
        now: Instant,
        backend: &mut B,
    ) {
        if let Some(Some(sanitizing)) = self.workload.sanitizing.get_mut(number) {
            sanitizing.work.resume(resumed);
            self.workload.queue.push_back(Item::Sanitize(number));
            self.work(now, backend);
        }
    }

    /// Ends the sanitize operations that wait for their volume and whose logical unit was removed. The others notice that
    /// in their next turn.
    pub(crate) fn end_sanitizing_without_unit(&mut self, now: Instant) {
        for number in 0..self.workload.sanitizing.len() {
            let sanitizing = self.workload.sanitizing.get(number);
            if let Some(Some(sanitizing)) = sanitizing
                && sanitizing.work.is_waiting()
            {
                self.work_on_sanitizing(number, now);
            }
        }
    }

    /// The connection ends: others go on with its sanitize operations.
    pub(crate) fn give_sanitizing_away(&mut self, backend: &mut B) {
        self.workload.queue.clear();
        let all = std::mem::take(&mut self.workload.sanitizing);
        let Stage::Full(full) = &mut self.stage else {
            return;
        };
        for (number, sanitizing) in all.into_iter().enumerate() {
            let Some(Sanitizing { mut work, .. }) = sanitizing else {
                continue;
            };
            let lease = LeaseHolder::Sanitize(number).lease();
            if work.suspend(&mut full.tasks.leases, lease) {
                backend.adopt(work);
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

/// What is left to do of a task whose data have all come.
enum Begun {
    /// Nothing.
    Done,
    /// It is executed in turns.
    Executes,
    /// This goes on without it.
    Sanitizes(Box<SanitizeWork>),
}

/// Begins the execution of a task whose data have all come.
fn begin<B: Backend>(task: &mut Task, nexus: NexusId, backend: &mut B) -> Begun {
    match task.work {
        // The initiator announced fewer data than the command needs: nothing is executed.
        Work::Gathered(_) if task.len < task.wanted_len => {
            task.response = Response::check(Sense::invalid_cdb_field(0));
        }
        Work::Gathered(transfer) => {
            task.execution = Some(Execution::Medium(scsi::Execution::new(transfer)));
            return Begun::Executes;
        }
        Work::Parameters => {
            let (lun, cdb, list) = (task.lun, task.cdb, std::mem::take(&mut task.gathered));
            match backend.with_device(|device| device.finish(nexus, lun, &cdb, &list)) {
                Finish::Done(response) => task.response = response,
                Finish::Copy(copy) => {
                    task.execution = Some(Execution::Copy(copy));
                    return Begun::Executes;
                }
            }
            let is_reservation = task.cdb[0] == PERSISTENT_RESERVE_OUT;
            if is_reservation && task.response.status == ScsiStatus::Good {
                task.unsaved = backend.unsaved();
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
