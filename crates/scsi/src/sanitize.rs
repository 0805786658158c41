//! SANITIZE (SBC-4, "Sanitize operations"): it continues apart from the command that began it, and
//! until it is over the logical unit answers little else.
//!
//! ```text
//!                admit               filled             executed             settled
//!  Unadmitted ─┬─ Later ──► Filling ────────► Executing ──┬─ Later ► Settling ──────► Ended
//!      ▲       └─ Now ─────────────────────►              └─ Done ──────────────────►
//!      │                       │                │                        │
//!      └──────── suspend ──────┴────────────────┴────────────────────────┘
//! ```
//!
//! An error ends it from every stage.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Instant;

use block::{DataUse, Extent, Intent, OpKind, Persistence, Settled, Status, Volume};
use session::{Admitted, Leases, Resumed};

use crate::medium::{Execution, Medium};
use crate::opcodes::Name;
use crate::response::Response;
use crate::sense::{Asc, Sense, SenseKey};
use crate::turn::{Step, Turn};

/// States of the operation other than its progress in 65536ths.
const DONE: u32 = u32::MAX;
const FAILED: u32 = u32::MAX - 1;
/// AUSE: EXIT FAILURE MODE is enough.
const FAILED_MAY_BE_LEFT: u32 = u32::MAX - 2;
/// The logical unit was removed meanwhile.
const GONE: u32 = u32::MAX - 3;

/// The state of a sanitize operation, which its logical unit and its driver share.
#[derive(Debug)]
struct Standing(AtomicU32);

impl Standing {
    fn get(&self) -> u32 {
        self.0.load(Ordering::Acquire)
    }

    /// Changes it, unless the logical unit is gone.
    fn set(&self, standing: u32) {
        self.change(|now| now != GONE, standing);
    }

    /// The logical unit is removed: an operation that is not over ends.
    fn abandon(&self) {
        self.change(|now| now < GONE, GONE);
    }

    fn change(&self, may: impl Fn(u32) -> bool, to: u32) {
        let change = |now| may(now).then_some(to);
        // If it may not change, it stays as it is.
        let _ = self
            .0
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, change);
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

    /// The sense data with which the operation makes command `name` fail; `None` if it does not.
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
            DONE | GONE => None,
            FAILED | FAILED_MAY_BE_LEFT => {
                Some(Sense::new(SenseKey::MediumError, Asc::SANITIZE_FAILED))
            }
            progress => Some(Sense::sanitizing(progress as u16)),
        }
    }

    /// Whether EXIT FAILURE MODE is allowed, as the failed operation permitted it.
    pub(crate) fn may_be_left(&self) -> bool {
        self.standing.get() == FAILED_MAY_BE_LEFT
    }
}

impl Drop for Sanitize {
    fn drop(&mut self) {
        self.standing.abandon();
    }
}

/// A sanitize operation in progress. If it is dropped before its end, it has failed; if it is
/// dropped before it was admitted, it has not begun.
///
/// Its driver calls [`admit`](Self::admit) once, and [`go_on`](Self::go_on) until the operation has
/// ended. The lease is of all blocks, as for an UNMAP of all, and does not belong to the command
/// that requested the operation.
pub struct SanitizeWork {
    volume: Arc<dyn Volume>,
    extent: Extent,
    execution: Execution,
    stage: Stage,
    standing: Arc<Standing>,
    /// The state that it has after it is dropped.
    if_dropped: u32,
    /// AUSE.
    may_be_left: bool,
    is_immediate: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Unadmitted,
    /// The volume makes its blocks ready.
    Filling,
    Executing,
    /// The volume makes the effects safe.
    Settling,
    Ended,
}

impl SanitizeWork {
    /// The operation that a checked CDB requests on the blocks `extent`, and the state that the
    /// logical unit keeps of it in place of `before`.
    pub(crate) fn new(
        cdb: &[u8; 16],
        extent: Extent,
        volume: Arc<dyn Volume>,
        before: Option<&Sanitize>,
    ) -> (Self, Sanitize) {
        let standing = Arc::new(Standing(AtomicU32::new(0)));
        let sanitize = Sanitize {
            standing: Arc::clone(&standing),
        };
        let work = Self {
            volume,
            extent,
            execution: Execution::new(Medium::Sanitize(extent)),
            stage: Stage::Unadmitted,
            standing,
            if_dropped: before.map_or(DONE, |before| before.standing.get()),
            may_be_left: cdb[1] & 0x20 != 0,
            is_immediate: cdb[1] & 0x80 != 0,
        };
        (work, sanitize)
    }

    /// IMMED: the command that requested it does not wait for its end.
    pub fn is_immediate(&self) -> bool {
        self.is_immediate
    }

    /// Whether it waits for its volume, or to be admitted.
    pub fn is_waiting(&self) -> bool {
        matches!(
            self.stage,
            Stage::Unadmitted | Stage::Filling | Stage::Settling
        )
    }

    /// Asks the volume to admit it. A lease is held in `slot`. After [`Admitted::Fail`] it is over;
    /// if this was the first attempt, it has never begun.
    pub fn admit(&mut self, now: Instant, leases: &mut Leases, slot: usize) -> Admitted {
        let intent = Intent {
            kind: OpKind::Discard,
            extents: &[self.extent],
            len_bytes: 0,
            data_use: DataUse::Erase,
            persistence: Persistence::Durable,
        };
        let admitted = leases.admit(slot, &self.volume, now, &intent);
        match admitted {
            Admitted::Fail(..) => {
                self.end(self.if_dropped);
                return admitted;
            }
            Admitted::Filling(_) => self.stage = Stage::Filling,
            Admitted::Now | Admitted::Leased(_) | Admitted::NotBefore(_) => {
                self.stage = Stage::Executing;
            }
        }
        self.if_dropped = if self.may_be_left {
            FAILED_MAY_BE_LEFT
        } else {
            FAILED
        };
        admitted
    }

    /// Goes on until all is done, the turn is over, or the volume makes it wait. It is over, too,
    /// when its logical unit was removed. The caller releases the lease in `slot` then.
    pub fn go_on(&mut self, turn: &mut Turn, leases: &mut Leases, slot: usize) -> Step {
        if self.standing.get() == GONE {
            self.stage = Stage::Ended;
        }
        match self.stage {
            Stage::Unadmitted | Stage::Filling | Stage::Settling => return Step::Waits,
            Stage::Executing => match self.execution.go_on(&[], self.volume.as_ref(), turn) {
                Step::Over(response) if response.sense.is_none() => self.settle(leases, slot),
                Step::Over(_) => self.end(self.if_dropped),
                step => {
                    let progress = u32::from(self.execution.progress());
                    self.standing.set(progress);
                    return step;
                }
            },
            Stage::Ended => {}
        }
        if self.stage == Stage::Settling {
            Step::Waits
        } else {
            Step::Over(self.response())
        }
    }

    /// All blocks are zeros: they are to stay so.
    fn settle(&mut self, leases: &mut Leases, slot: usize) {
        match leases.settle(slot) {
            Ok(Settled::Done) => self.end(DONE),
            Ok(Settled::Later) => {
                self.stage = Stage::Settling;
                self.standing.set(u32::from(u16::MAX));
            }
            Err(_) => self.end(self.if_dropped),
        }
    }

    /// Its volume has answered: it is to [go on](Self::go_on).
    pub fn resume(&mut self, resumed: Resumed) {
        match (self.stage, resumed) {
            (Stage::Filling, Resumed::Filled(Ok(()))) => self.stage = Stage::Executing,
            (Stage::Settling, Resumed::Settled(Ok(()))) => self.end(DONE),
            _ => self.end(self.if_dropped),
        }
    }

    /// Ends its lease in `slot`, since its driver ends. Returns whether another driver is to
    /// [admit](Self::admit) it again and go on with it. What it did under the lease may not be
    /// safe, and is done again.
    pub fn suspend(&mut self, leases: &mut Leases, slot: usize) -> bool {
        if leases.holds(slot) {
            leases.release(slot);
            self.execution = Execution::new(Medium::Sanitize(self.extent));
        }
        let goes_on = self.stage != Stage::Ended && self.standing.get() != GONE;
        if goes_on {
            self.stage = Stage::Unadmitted;
        }
        goes_on
    }

    fn end(&mut self, standing: u32) {
        self.stage = Stage::Ended;
        self.if_dropped = standing;
        self.standing.set(standing);
    }

    /// The answer to the command that requested it.
    fn response(&self) -> Response {
        match self.standing.get() {
            DONE => Response::good(),
            GONE => Response::check(Sense::of_volume(Status::Gone)),
            _ => Response::check(Sense::new(SenseKey::MediumError, Asc::SANITIZE_FAILED)),
        }
    }
}

impl Drop for SanitizeWork {
    fn drop(&mut self) {
        self.standing.set(self.if_dropped);
    }
}

#[cfg(test)]
mod tests;
