//! SANITIZE (SBC-4, "Sanitize operations"): it goes on apart from the command that began it, and
//! until it is over the logical unit answers little else.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use block::Volume;

use crate::device::Response;
use crate::medium::{Execution, Medium};
use crate::opcodes::Name;
use crate::sense::{Asc, Sense, SenseKey};
use crate::turn::{Step, Turn};

/// What the operation stands at, beside 65536ths that are done.
const DONE: u32 = u32::MAX;
const FAILED: u32 = u32::MAX - 1;
/// AUSE: EXIT FAILURE MODE is enough.
const FAILED_MAY_BE_LEFT: u32 = u32::MAX - 2;

/// How a sanitize operation stands: known to the logical unit, and to a command that waits for its
/// end.
#[derive(Debug)]
struct Standing(AtomicU32);

impl Standing {
    fn get(&self) -> u32 {
        self.0.load(Ordering::Acquire)
    }

    fn set(&self, standing: u32) {
        self.0.store(standing, Ordering::Release);
    }
}

/// The last sanitize operation of a logical unit.
pub(crate) struct Sanitize {
    standing: Arc<Standing>,
}

impl Sanitize {
    pub(crate) fn is_done(&self) -> bool {
        self.standing.get() == DONE
    }

    /// Why `name` has to wait, or cannot be, if so.
    pub(crate) fn refusal(&self, name: Name) -> Option<Sense> {
        let is_exempt = matches!(
            name,
            Name::Inquiry
                | Name::RequestSense
                | Name::ReportLuns
                | Name::ReportSupportedOpcodes
                | Name::ReportTaskManagement
                | Name::ReportTargetPortGroups
        );
        let sense = self.sense()?;
        let is_retry = sense.asc == Asc::SANITIZE_FAILED && name == Name::Sanitize;
        (!is_exempt && !is_retry).then_some(sense)
    }

    /// SANITIZE IN PROGRESS with how far it is, or SANITIZE COMMAND FAILED.
    pub(crate) fn sense(&self) -> Option<Sense> {
        match self.standing.get() {
            DONE => None,
            FAILED | FAILED_MAY_BE_LEFT => {
                Some(Sense::new(SenseKey::MediumError, Asc::SANITIZE_FAILED))
            }
            progress => Some(Sense::sanitizing(progress as u16)),
        }
    }

    /// EXIT FAILURE MODE: allowed where the failed operation allowed it.
    pub(crate) fn may_be_left(&self) -> bool {
        self.standing.get() == FAILED_MAY_BE_LEFT
    }
}

/// A sanitize operation on its way. One that is dropped before its end has failed; before it has
/// begun, it has never been.
pub struct SanitizeWork {
    volume: Arc<dyn Volume>,
    execution: Execution,
    standing: Arc<Standing>,
    /// What it stands at once it is dropped.
    if_dropped: u32,
    /// AUSE.
    may_be_left: bool,
    is_immediate: bool,
}

impl SanitizeWork {
    /// That a CDB, already checked, asks for, and what the logical unit keeps of it in place of the
    /// one `before`.
    pub(crate) fn new(
        cdb: &[u8; 16],
        command: Medium,
        volume: Arc<dyn Volume>,
        before: Option<&Sanitize>,
    ) -> (Self, Sanitize) {
        let standing = Arc::new(Standing(AtomicU32::new(0)));
        let sanitize = Sanitize {
            standing: Arc::clone(&standing),
        };
        let work = Self {
            volume,
            execution: Execution::new(command),
            standing,
            if_dropped: before.map_or(DONE, |before| before.standing.get()),
            may_be_left: cdb[1] & 0x20 != 0,
            is_immediate: cdb[1] & 0x80 != 0,
        };
        (work, sanitize)
    }

    /// Of which volume.
    pub fn volume(&self) -> &Arc<dyn Volume> {
        &self.volume
    }

    /// What the command that asked for it waits for; with IMMED it waits for nothing and is
    /// answered GOOD.
    pub fn outcome(&self) -> Option<SanitizeOutcome> {
        let standing = Arc::clone(&self.standing);
        (!self.is_immediate).then_some(SanitizeOutcome(standing))
    }

    /// Goes on until all is done or the turn is over; whether more is to be done.
    pub fn go_on(&mut self, turn: &mut Turn) -> bool {
        self.if_dropped = if self.may_be_left {
            FAILED_MAY_BE_LEFT
        } else {
            FAILED
        };
        match self.execution.go_on(&[], self.volume.as_ref(), turn) {
            Step::More => {
                let progress = u32::from(self.execution.progress());
                self.standing.set(progress);
                true
            }
            Step::Over(response) => {
                if response.sense.is_none() {
                    self.if_dropped = DONE;
                }
                self.standing.set(self.if_dropped);
                false
            }
        }
    }
}

impl Drop for SanitizeWork {
    fn drop(&mut self) {
        self.standing.set(self.if_dropped);
    }
}

/// What becomes of a sanitize operation, for the command that waits for it.
#[derive(Debug)]
pub struct SanitizeOutcome(Arc<Standing>);

impl SanitizeOutcome {
    /// Looks whether it is over.
    pub fn look(&self) -> Step {
        match self.0.get() {
            DONE => Step::Over(Response::good()),
            FAILED | FAILED_MAY_BE_LEFT => {
                let sense = Sense::new(SenseKey::MediumError, Asc::SANITIZE_FAILED);
                Step::Over(Response::check(sense))
            }
            _ => Step::More,
        }
    }
}

#[cfg(test)]
mod tests;
