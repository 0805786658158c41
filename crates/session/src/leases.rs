//! Commands that wait for their volume: what every protocol does about them, once.
//!
//! ```text
//!           admit                 complete              settle                complete
//!  (none) ─┬─ Later ──► Filling ────────────► Granted ──┬─ Later ─► Settling ──────────► Granted
//!          └─ NowThenSettle ────────────────►           └─ Done ──►
//!
//!  from every state: release ──► (none), with the next generation
//! ```
//!
//! A protocol numbers by slots what may hold a lease: its commands, and what goes on without a
//! command. [`Leases`] keeps for each slot the lease that is held on a volume, if one is, and ends
//! each lease exactly once. Commands on volumes that are ready at once, such as RAM, never have a
//! lease: they cost one check of their slot when they are retired.

use std::sync::Arc;
use std::time::Instant;

use block::{Admission, Completion, Intent, OpKind, Settled, Status, Ticket, Volume};

/// The leases that one connection holds on volumes, at most one in each slot. A command that
/// touches several volumes has several slots. Bounded by the connection's slots. What is left is
/// released when this drops, so that no way in which a connection ends keeps a volume's memory.
#[derive(Debug)]
pub struct Leases {
    connection: u64,
    slots: Vec<LeaseSlot>,
    /// How many slots have a lease.
    count: usize,
}

/// What a connection is charged for its slots counts on this.
const _: () = assert!(size_of::<LeaseSlot>() <= 32);

#[derive(Debug, Default)]
struct LeaseSlot {
    /// Of the next ticket. It changes when a lease ends, so that late completions find nothing.
    generation: u32,
    lease: Option<Lease>,
}

struct Lease {
    volume: Arc<dyn Volume>,
    stage: LeaseStage,
    /// Whether [`Volume::settle`] is still to be called.
    settles: bool,
}

impl std::fmt::Debug for Lease {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Lease")
            .field("stage", &self.stage)
            .field("settles", &self.settles)
            .finish_non_exhaustive()
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LeaseStage {
    /// The volume brings the blocks into memory.
    Filling,
    /// The blocks are in memory, and nothing is awaited.
    Granted,
    /// The volume makes the command's effects safe.
    Settling,
}

/// Whether and when a command may continue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admitted {
    /// Execute and complete: the command holds no lease.
    Now,
    /// Execute, and complete as soon as [`Leases::settle`] allows, but not before the instant if
    /// there is one. Bytes of the volume must be copied, since they may leave memory when the lease
    /// ends.
    Leased(Option<Instant>),
    /// Execute, but do not complete before this instant.
    NotBefore(Instant),
    /// Do not execute; complete with this error, not before the instant if there is one.
    Fail(Status, Option<Instant>),
    /// Wait for [`Resumed::Filled`]. The command holds a lease, as with [`Leased`](Self::Leased).
    Filling(Option<Instant>),
}

/// What a command had waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resumed {
    /// The blocks are in memory: execute. With an error: complete with it, and do not execute.
    Filled(Result<(), Status>),
    /// The effects are safe, or are not: complete.
    Settled(Result<(), Status>),
}

impl Leases {
    /// Of a connection, by the number that its runtime gave it.
    pub fn new(connection: u64) -> Self {
        Self {
            connection,
            slots: Vec::new(),
            count: 0,
        }
    }

    /// Asks `volume` to admit the command in `slot`, and keeps the lease if the volume grants one.
    ///
    /// # Panics
    /// If the slot's last command was not released.
    #[expect(
        clippy::inline_always,
        reason = "as a call, it costs each command of a volume in memory 20 instructions"
    )]
    #[inline(always)]
    pub fn admit(
        &mut self,
        slot: usize,
        volume: &Arc<dyn Volume>,
        now: Instant,
        intent: &Intent<'_>,
    ) -> Admitted {
        let generation = self.slots.get(slot).map_or(0, |slot| slot.generation);
        match volume.admit(now, intent, self.ticket(slot, generation)) {
            Admission::Now => Admitted::Now,
            other => self.admit_slowly(slot, volume, intent.kind, other),
        }
    }

    /// Every answer but [`Admission::Now`].
    #[cold]
    fn admit_slowly(
        &mut self,
        slot: usize,
        volume: &Arc<dyn Volume>,
        kind: OpKind,
        admission: Admission,
    ) -> Admitted {
        let (stage, admitted) = match admission {
            Admission::Now => return Admitted::Now,
            Admission::NotBefore(until) => return Admitted::NotBefore(until),
            Admission::Fail(status, until) => return Admitted::Fail(status, until),
            Admission::Later(until) => (LeaseStage::Filling, Admitted::Filling(until)),
            Admission::NowThenSettle(until) => (LeaseStage::Granted, Admitted::Leased(until)),
        };
        let lease = Lease {
            volume: Arc::clone(volume),
            stage,
            settles: kind != OpKind::Read,
        };
        self.insert(slot, lease);
        admitted
    }

    fn insert(&mut self, slot: usize, lease: Lease) {
        if self.slots.len() <= slot {
            self.slots.resize_with(slot + 1, LeaseSlot::default);
        }
        let before = self.slots[slot].lease.replace(lease);
        assert!(
            before.is_none(),
            "a slot's command is released before the next one is admitted"
        );
        self.count += 1;
    }

    /// Whether no command holds a lease.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Whether a command has ever held a lease.
    #[inline]
    pub fn were_held(&self) -> bool {
        !self.slots.is_empty()
    }

    /// Whether the command in `slot` holds a lease.
    #[inline]
    pub fn holds(&self, slot: usize) -> bool {
        let holds = |slot: &LeaseSlot| slot.lease.is_some();
        !self.is_empty() && self.slots.get(slot).is_some_and(holds)
    }

    /// Handles a volume's completion. Returns the slot of the command and its next step; `None` if
    /// the command has ended or does not wait.
    pub fn complete(&mut self, completion: Completion) -> Option<(usize, Resumed)> {
        let Completion { ticket, result } = completion;
        let slot = usize::try_from(ticket.slot).ok()?;
        let entry = self.slots.get_mut(slot)?;
        if ticket.connection != self.connection || ticket.generation != entry.generation {
            return None;
        }
        let lease = entry.lease.as_mut()?;
        let resumed = match lease.stage {
            LeaseStage::Filling => {
                lease.settles &= result.is_ok();
                Resumed::Filled(result)
            }
            LeaseStage::Settling => Resumed::Settled(result),
            LeaseStage::Granted => return None,
        };
        lease.stage = LeaseStage::Granted;
        Some((slot, resumed))
    }

    /// The command in `slot` was executed without a failure: makes its effects safe. A command
    /// without a lease, and one that changes nothing, has settled at once.
    ///
    /// # Errors
    /// The command completes with the error.
    pub fn settle(&mut self, slot: usize) -> Result<Settled, Status> {
        let Some(entry) = self.slots.get_mut(slot) else {
            return Ok(Settled::Done);
        };
        let generation = entry.generation;
        let Some(lease) = entry.lease.as_mut().filter(|lease| lease.settles) else {
            return Ok(Settled::Done);
        };
        lease.settles = false;
        let settled = lease.volume.settle(Ticket {
            connection: self.connection,
            slot: slot as u32,
            generation,
        })?;
        if settled == Settled::Later {
            lease.stage = LeaseStage::Settling;
        }
        Ok(settled)
    }

    /// The command in `slot` is retired or aborted: ends its lease, if it holds one.
    pub fn release(&mut self, slot: usize) {
        let Some(entry) = self.slots.get_mut(slot) else {
            return;
        };
        if let Some(lease) = entry.lease.take() {
            let generation = entry.generation;
            entry.generation = generation.wrapping_add(1);
            self.count -= 1;
            lease.volume.release(self.ticket(slot, generation));
        }
    }

    /// The connection has ended: ends every lease.
    pub fn release_all(&mut self) {
        for slot in 0..self.slots.len() {
            if self.is_empty() {
                return;
            }
            self.release(slot);
        }
    }

    fn ticket(&self, slot: usize, generation: u32) -> Ticket {
        Ticket {
            connection: self.connection,
            slot: slot as u32,
            generation,
        }
    }
}

impl Drop for Leases {
    fn drop(&mut self) {
        self.release_all();
    }
}

#[cfg(test)]
mod tests;
