//! Changes of shared state: the end of the nexus, aborts by others, and saved reservations.

use std::time::Instant;

use scsi::{Asc, Response, ScsiStatus, Sense, SenseKey};
use session::Session as _;

use super::pending::Ending;
use super::session::TargetSession;
use super::task::{Progress, Task, status};
use crate::backend::{Abort, Backend, Saved, Standing};

/// INTERNAL TARGET FAILURE (44h/00h).
const INTERNAL_TARGET_FAILURE: Asc = Asc(0x4400);

impl<B: Backend> TargetSession<B> {
    /// Checks whether the nexus was ended by others. If so, nothing more is executed or answered,
    /// since an answer of a closed nexus would be taken for the medium's.
    #[inline]
    pub(super) fn check_standing(&mut self, now: Instant, backend: &mut B) {
        match backend.standing() {
            Standing::Active => {}
            standing => self.follow(standing, now),
        }
    }

    #[cold]
    fn follow(&mut self, standing: Standing, now: Instant) {
        match (self.ending, standing) {
            (Ending::Open, Standing::Draining(within)) => {
                self.ending = Ending::Draining(now + within);
                self.log_out_if_idle();
            }
            (Ending::Open | Ending::Draining(_), Standing::Dropped) => {
                self.discard_all();
                self.ending = Ending::Logout;
            }
            (Ending::Open | Ending::Draining(_) | Ending::Logout, Standing::Ended) => self.close(),
            _ => {}
        }
    }

    /// Ends the channel at once.
    pub(super) fn close(&mut self) {
        self.discard_all();
        self.ending = Ending::Closed;
    }

    /// A channel that drains is logged out as soon as nothing is in progress.
    pub(super) fn log_out_if_idle(&mut self) {
        if matches!(self.ending, Ending::Draining(_)) && self.is_idle() {
            self.ending = Ending::Logout;
        }
    }

    /// A channel that drains has no more time.
    pub(super) fn check_draining(&mut self, now: Instant) {
        if matches!(self.ending, Ending::Draining(until) if now >= until) {
            self.discard_all();
            self.ending = Ending::Logout;
        }
    }

    fn discard_all(&mut self) {
        for slot in self.tasks.of_lun(None) {
            self.tasks.remove(slot);
        }
        self.held.clear();
        self.managements.clear();
        self.answers.clear();
    }

    /// Ends the tasks that others have aborted.
    pub(super) fn take_aborts(&mut self, backend: &mut B) {
        for abort in backend.take_aborts() {
            match abort {
                Abort::ByOwn(lun) => self.abort_lun(lun),
                // TAS is 1: each is answered with TASK ABORTED.
                Abort::ByAnother(lun) => {
                    for slot in self.tasks.of_lun(Some(lun)) {
                        self.tasks.unblock(slot);
                        if let Some(task) = self.tasks.get_mut(slot) {
                            (task.unsaved, task.fence) = (None, None);
                            task.end_with(status(ScsiStatus::TaskAborted));
                            self.tasks.queue(slot);
                        }
                    }
                }
            }
        }
    }

    /// Answers reservation commands whose reservations have been saved, or cannot be saved, and
    /// whose aborts are over.
    pub(super) fn release_reservations(&mut self, backend: &mut B) {
        for slot in self.tasks.slots_where(Task::awaits_reservation) {
            let Some(task) = self.tasks.get_mut(slot) else {
                continue;
            };
            let unsaved = task.unsaved;
            let saved = unsaved.map_or(Saved::Yes, |number| backend.saved(number));
            if saved != Saved::Pending {
                task.unsaved = None;
            }
            if saved == Saved::Failed {
                let sense = Sense::new(SenseKey::HardwareError, INTERNAL_TARGET_FAILURE);
                task.response = Response::check(sense);
            }
            task.fence.take_if(|fence| backend.is_past(*fence));
            if !task.awaits_reservation() && task.progress() == Progress::Held {
                task.enter(Progress::Sending);
                self.tasks.queue(slot);
            }
        }
    }
}
