//! A volume that completes late, in any order and with failures, under a test's control.

use std::collections::BTreeMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::VecVolume;
use crate::{
    Admission, BlockSize, Blocks, Completion, Extent, Geometry, Intent, Op, Settled, Status,
    Ticket, Volume, WriteCache,
};

/// Which steps of a command a [`LateVolume`] completes late.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lateness {
    /// No step, and commands have no lease.
    Never,
    /// Settling: blocks are in memory at once.
    Settling,
    /// Filling: effects are safe at once.
    Filling,
    /// Filling and settling.
    Both,
}

/// A volume over a [`VecVolume`] whose commands wait until a test completes their steps.
///
/// It checks that sessions use leases correctly. It panics if a lease is released twice, if an
/// operation touches blocks that no lease holds in memory, and if a command settles without having
/// been executed.
#[derive(Debug)]
pub struct LateVolume {
    disk: Arc<VecVolume>,
    state: Mutex<State>,
    resumed: Condvar,
}

/// Whether the thread that executes a write stops before it writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stop {
    None,
    AtNextWrite,
    Stopped,
}

/// A stopped thread goes on after this time in any case, so that a test that fails can end.
const STOP_MAX: Duration = Duration::from_secs(30);

#[derive(Debug)]
struct State {
    lateness: Lateness,
    leases_max: usize,
    leases: BTreeMap<Ticket, Held>,
    /// Tickets whose completion is outstanding, oldest first.
    waiting: Vec<Ticket>,
    refusal: Option<Status>,
    stop: Stop,
}

#[derive(Debug)]
struct Held {
    extents: Vec<Extent>,
    is_filled: bool,
}

impl LateVolume {
    /// A volume of zeros for which both steps take time.
    pub fn new(block_size: BlockSize, blocks: u64) -> Self {
        Self::over(Arc::new(VecVolume::new(block_size, blocks)))
    }

    /// The same over `disk`.
    pub fn over(disk: Arc<VecVolume>) -> Self {
        Self {
            disk,
            state: Mutex::new(State {
                lateness: Lateness::Both,
                leases_max: usize::MAX,
                leases: BTreeMap::new(),
                waiting: Vec::new(),
                refusal: None,
                stop: Stop::None,
            }),
            resumed: Condvar::new(),
        }
    }

    /// The volume below, which has contents, size and lock.
    pub fn disk(&self) -> &VecVolume {
        &self.disk
    }

    /// Sets which steps of further commands complete late.
    pub fn set_lateness(&self, lateness: Lateness) {
        self.state().lateness = lateness;
    }

    /// Sets the most leases at a time. Further commands fail with [`Status::Busy`].
    pub fn set_leases_max(&self, leases_max: usize) {
        self.state().leases_max = leases_max;
    }

    /// Makes further calls of [`Volume::settle`] fail with this error.
    pub fn set_settle_error(&self, refusal: Option<Status>) {
        self.state().refusal = refusal;
    }

    /// Stops the thread that executes the next write, before it writes, as if it were preempted.
    pub fn stop_next_write(&self) {
        self.state().stop = Stop::AtNextWrite;
    }

    /// Whether a thread has stopped.
    pub fn is_stopped(&self) -> bool {
        self.state().stop == Stop::Stopped
    }

    /// The thread that has stopped goes on.
    pub fn go_on(&self) {
        self.state().stop = Stop::None;
        self.resumed.notify_all();
    }

    fn stop_if_told(&self, op: &Op<'_>) {
        let mut state = self.state();
        if state.stop == Stop::AtNextWrite && matches!(op, Op::Write { .. }) {
            state.stop = Stop::Stopped;
            let is_stopped = |state: &mut State| state.stop == Stop::Stopped;
            let resumed = self.resumed.wait_timeout_while(state, STOP_MAX, is_stopped);
            drop(resumed.unwrap_or_else(PoisonError::into_inner));
        }
    }

    /// The tickets for which a completion is outstanding, oldest first.
    pub fn waiting(&self) -> Vec<Ticket> {
        self.state().waiting.clone()
    }

    /// The number of leases.
    pub fn leases(&self) -> usize {
        self.state().leases.len()
    }

    /// The completion of a ticket in [`Self::waiting`]. The caller passes it to the session.
    pub fn complete(&self, ticket: Ticket, result: Result<(), Status>) -> Completion {
        let mut state = self.state();
        let at = state.waiting.iter().position(|&waiting| waiting == ticket);
        state.waiting.remove(at.expect("the ticket is waiting"));
        if let Some(held) = state.leases.get_mut(&ticket) {
            held.is_filled = true;
        }
        Completion { ticket, result }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Volume for LateVolume {
    fn geometry(&self) -> Geometry {
        self.disk.geometry()
    }

    fn is_read_only(&self) -> bool {
        self.disk.is_read_only()
    }

    fn write_cache(&self) -> WriteCache {
        self.disk.write_cache()
    }

    fn admit(&self, _now: Instant, intent: &Intent<'_>, ticket: Ticket) -> Admission {
        let mut state = self.state();
        let is_filled = match state.lateness {
            Lateness::Never => return Admission::Now,
            Lateness::Settling => true,
            Lateness::Filling | Lateness::Both => false,
        };
        if state.leases.len() >= state.leases_max {
            return Admission::Fail(Status::Busy, None);
        }
        let held = Held {
            extents: intent.extents.to_vec(),
            is_filled,
        };
        let before = state.leases.insert(ticket, held);
        assert!(before.is_none(), "{ticket:?} names one command at a time");
        if is_filled {
            return Admission::NowThenSettle(None);
        }
        state.waiting.push(ticket);
        Admission::Later(None)
    }

    fn execute(&self, op: Op<'_>) -> Result<(), Status> {
        {
            let state = self.state();
            let is_held = |extent: Extent| {
                state
                    .leases
                    .values()
                    .any(|held| held.is_filled && held.extents.iter().any(|of| covers(*of, extent)))
            };
            assert!(
                state.lateness == Lateness::Never
                    || extents(&op).into_iter().flatten().all(is_held),
                "{op:?} touches blocks that no lease holds in memory"
            );
        }
        self.stop_if_told(&op);
        self.disk.execute(op)
    }

    fn settle(&self, ticket: Ticket) -> Result<Settled, Status> {
        let mut state = self.state();
        let held = state
            .leases
            .get(&ticket)
            .expect("a command settles under its lease");
        assert!(held.is_filled, "a command settles after it was executed");
        if let Some(refusal) = state.refusal {
            return Err(refusal);
        }
        if state.lateness == Lateness::Filling {
            return Ok(Settled::Done);
        }
        state.waiting.push(ticket);
        Ok(Settled::Later)
    }

    fn release(&self, ticket: Ticket) {
        let held = self.state().leases.remove(&ticket);
        assert!(held.is_some(), "{ticket:?} is released once");
    }
}

/// The blocks that an operation reads or writes.
fn extents(op: &Op<'_>) -> [Option<Extent>; 2] {
    match *op {
        Op::Read { extent, .. }
        | Op::Write { extent, .. }
        | Op::WriteZeroes { extent, .. }
        | Op::Discard { extent }
        | Op::Verify { extent }
        | Op::Compare { extent, .. }
        | Op::CompareAndWrite { extent, .. } => [Some(extent), None],
        Op::Copy { from, to } => [Some(from), Some(Extent::new(to, from.blocks))],
        Op::Flush => [None, None],
    }
}

fn covers(outer: Extent, inner: Extent) -> bool {
    let end = |extent: Extent| extent.lba.0 + extent.blocks.0;
    inner.blocks == Blocks(0) || (outer.lba <= inner.lba && end(inner) <= end(outer))
}
