//! What commands hold on the members of a composite while they wait: one command above, a lease on
//! each member that grants one below.
//!
//! ```text
//!  command ── ticket ──► Shares: slot ─┬─ ticket of member 0 ──► done ─┐
//!                                      └─ ticket of member 5 ──► done ─┴► all have answered ──► done(ticket)
//! ```

use std::collections::HashMap;
use std::ops::ControlFlow;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use block::{Admission, Completion, Completions, Intent, OpKind, Settled, Status, Ticket};

use crate::members::{Members, PLACES, bits};
use crate::relay::{Connections, Relay};

/// The leases of all commands of one composite. The lock is held while members are asked, since a
/// member may complete a command before the next one was asked. Members never report from inside
/// those calls, and the composite reports without the lock.
#[derive(Debug)]
pub(super) struct Shares {
    connections: Connections,
    relay: Arc<Relay>,
    table: Mutex<Table>,
}

#[derive(Debug, Default)]
struct Table {
    slots: Vec<Slot>,
    free: Vec<u32>,
    by_command: HashMap<Ticket, u32>,
}

#[derive(Debug, Default)]
struct Slot {
    generation: u32,
    share: Share,
}

/// What one command holds. A set bit is a member.
#[derive(Clone, Copy, Debug)]
struct Share {
    command: Option<Ticket>,
    /// Those that granted a lease.
    leased: u64,
    /// Those that are to be settled.
    settles: u64,
    /// Those that have not answered yet.
    waiting: u64,
    /// The first error.
    result: Result<(), Status>,
}

impl Default for Share {
    fn default() -> Self {
        Self {
            command: None,
            leased: 0,
            settles: 0,
            waiting: 0,
            result: Ok(()),
        }
    }
}

impl Shares {
    pub(super) fn new(relay: &Arc<Relay>) -> Arc<Self> {
        relay.join(PLACES, |connections| Self {
            connections,
            relay: Arc::clone(relay),
            table: Mutex::default(),
        })
    }

    /// Has a command admitted by members. `each_part` calls its argument for the part of each
    /// member. A read of a member whose memory cannot be pinned gets a lease in any case, so that
    /// sessions copy its data.
    pub(super) fn admit(
        &self,
        members: &Members,
        now: Instant,
        command: Ticket,
        each_part: impl FnOnce(&mut dyn FnMut(usize, &Intent<'_>) -> ControlFlow<()>),
    ) -> Admission {
        let mut table = self.table();
        let slot = table.take_slot();
        let mut share = Share::default();
        let (mut due, mut failure, mut is_copied) = (None, None, false);
        each_part(&mut |member, part| {
            let ticket = self.ticket(&table, member, slot);
            let volume = &members.get(member).volume;
            is_copied |= part.kind == OpKind::Read && volume.pinned().is_none();
            let (leased, waiting) = match volume.admit(now, part, ticket) {
                Admission::Now => return ControlFlow::Continue(()),
                Admission::NotBefore(until) => {
                    due = due.max(Some(until));
                    return ControlFlow::Continue(());
                }
                Admission::Fail(status, until) => {
                    due = due.max(until);
                    failure = Some(status);
                    return ControlFlow::Break(());
                }
                Admission::Later(until) => {
                    due = due.max(until);
                    (1 << member, 1 << member)
                }
                Admission::NowThenSettle(until) => {
                    due = due.max(until);
                    (1 << member, 0)
                }
            };
            share.leased |= leased;
            share.waiting |= waiting;
            if part.kind != OpKind::Read {
                share.settles |= leased;
            }
            ControlFlow::Continue(())
        });
        if failure.is_some() || share.leased == 0 && !is_copied {
            self.release_members(members, &table, slot, share.leased);
            table.free_slot(slot);
            return match (failure, due) {
                (Some(status), due) => Admission::Fail(status, due),
                (None, Some(due)) => Admission::NotBefore(due),
                (None, None) => Admission::Now,
            };
        }
        share.command = Some(command);
        table.slots[slot as usize].share = share;
        table.by_command.insert(command, slot);
        if share.waiting == 0 {
            Admission::NowThenSettle(due)
        } else {
            Admission::Later(due)
        }
    }

    /// Settles a command at every member that has a part of it.
    pub(super) fn settle(&self, members: &Members, command: Ticket) -> Result<Settled, Status> {
        let mut table = self.table();
        let Some(&slot) = table.by_command.get(&command) else {
            return Ok(Settled::Done);
        };
        let mut share = table.slots[slot as usize].share;
        for member in bits(std::mem::take(&mut share.settles)) {
            let ticket = self.ticket(&table, member, slot);
            match members.get(member).volume.settle(ticket) {
                Ok(Settled::Done) => {}
                Ok(Settled::Later) => share.waiting |= 1 << member,
                Err(status) => share.result = share.result.and(Err(status)),
            }
        }
        table.slots[slot as usize].share = share;
        if share.waiting != 0 {
            return Ok(Settled::Later);
        }
        share.result.map(|()| Settled::Done)
    }

    /// Ends what a command holds.
    pub(super) fn release(&self, members: &Members, command: Ticket) {
        let mut table = self.table();
        if let Some(slot) = table.by_command.remove(&command) {
            let leased = table.slots[slot as usize].share.leased;
            self.release_members(members, &table, slot, leased);
            table.free_slot(slot);
        }
    }

    fn release_members(&self, members: &Members, table: &Table, slot: u32, leased: u64) {
        for member in bits(leased) {
            let ticket = self.ticket(table, member, slot);
            members.get(member).volume.release(ticket);
        }
    }

    fn ticket(&self, table: &Table, member: usize, slot: u32) -> Ticket {
        Ticket {
            connection: self.connections.number(member),
            slot,
            generation: table.slots[slot as usize].generation,
        }
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        // A panic of a member leaves the entry of its command, which is released later.
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Table {
    fn take_slot(&mut self) -> u32 {
        self.free.pop().unwrap_or_else(|| {
            self.slots.push(Slot::default());
            (self.slots.len() - 1) as u32
        })
    }

    fn free_slot(&mut self, slot: u32) {
        let entry = &mut self.slots[slot as usize];
        *entry = Slot {
            generation: entry.generation.wrapping_add(1),
            share: Share::default(),
        };
        self.free.push(slot);
    }

    /// Notes the answer of a member. Returns the command and its result if it waits for no other.
    fn note(&mut self, member: usize, completion: Completion) -> Option<Completion> {
        let slot = self.slots.get_mut(completion.ticket.slot as usize)?;
        let (share, bit) = (&mut slot.share, 1 << member);
        if slot.generation != completion.ticket.generation || share.waiting & bit == 0 {
            return None;
        }
        share.waiting &= !bit;
        share.result = share.result.and(completion.result);
        (share.waiting == 0).then_some(Completion {
            ticket: share.command?,
            result: share.result,
        })
    }
}

impl Completions for Shares {
    fn done(&self, completion: Completion) {
        let member = self.connections.index_of(completion.ticket.connection);
        let noted = self.table().note(member, completion);
        if let Some(done) = noted {
            self.relay.done(done);
        }
    }
}
