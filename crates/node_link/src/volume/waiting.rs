//! Commands that wait: for a primary, for blocks from it, or until their effects are safe.

use block::{Completion, Extent, Settled, Status, Ticket};
use replica::{Contents, LocalTime};

use super::ReplicatedVolume;
use super::lease::{Lease, Stage};
use super::state::State;
use crate::committed::{copy_shared, end};

impl State {
    pub fn settle(&mut self, ticket: Ticket) -> Result<Settled, Status> {
        let last = self.last_id;
        let Some(lease) = self.leases.get_mut(&ticket) else {
            return Ok(Settled::Done);
        };
        if let Some(status) = lease.error {
            return Err(status);
        }
        if self.is_closed {
            return Err(Status::Gone);
        }
        if self
            .outstanding
            .range(lease.first..=last.max(lease.first))
            .next()
            .is_none()
        {
            return Ok(Settled::Done);
        }
        lease.upto = Some(last);
        lease.stage = Stage::Settling;
        Ok(Settled::Later)
    }

    pub fn release(&mut self, ticket: Ticket) {
        if let Some(lease) = self.leases.remove(&ticket) {
            self.forwards.remove_fetch(&lease);
            self.parked -= usize::from(lease.stage == Stage::Parked);
            self.fetched_bytes -= lease.fetched_bytes;
        }
    }

    /// Completes commands whose writes are all settled.
    pub fn complete_settled(&mut self) {
        for (ticket, lease) in &mut self.leases {
            let Some(upto) = lease.upto.filter(|_| lease.stage == Stage::Settling) else {
                continue;
            };
            let is_settled = || self.outstanding.range(lease.first..=upto).next().is_none();
            if lease.error.is_some() || is_settled() {
                lease.stage = Stage::Granted;
                self.completions.push(Completion {
                    ticket: *ticket,
                    result: lease.error.map_or(Ok(()), Err),
                });
            }
        }
    }

    /// Ends the waiting of a parked or fetching command. Another part of its blocks may have ended
    /// it before.
    pub fn grant(&mut self, ticket: Ticket, result: Result<(), Status>) {
        let lease = self.leases.get_mut(&ticket);
        if let Some(lease) = lease.filter(|lease| lease.stage.is_before_execution()) {
            self.parked -= usize::from(lease.stage == Stage::Parked);
            lease.stage = Stage::Granted;
            self.forwards.remove_fetch(lease);
            self.completions.push(Completion { ticket, result });
        }
    }

    /// Fails commands that have waited for a primary for too long.
    pub fn expire_parked(&mut self, now: LocalTime) {
        if self.parked == 0 {
            return;
        }
        let is_late = |lease: &Lease| {
            let waited = now.since(lease.since);
            lease.stage == Stage::Parked && waited >= ReplicatedVolume::PARKED_MAX
        };
        let late = self.leases.iter().filter(|(_, lease)| is_late(lease));
        let late: Vec<Ticket> = late.map(|(ticket, _)| *ticket).collect();
        for ticket in late {
            self.grant(ticket, Err(Status::Busy));
        }
    }

    /// Whether a command waits for blocks of the primary.
    pub fn is_fetching(&self, ticket: Ticket) -> bool {
        let lease = self.leases.get(&ticket);
        lease.is_some_and(|lease| lease.stage == Stage::Fetching)
    }

    /// Takes blocks of the primary for a command.
    pub fn take_part(&mut self, ticket: Ticket, part: usize, contents: Contents) {
        let Some(lease) = self.leases.get_mut(&ticket) else {
            return;
        };
        if let Some(part) = lease.parts.get_mut(part) {
            part.contents = Some(contents);
        }
        if lease.stage == Stage::Fetching && lease.is_fetched() {
            self.grant(ticket, Ok(()));
        }
    }

    /// Reads blocks that were fetched for a command; the fetch that began last, since each command
    /// has one that began after it. A command that was admitted while this node served has none, so
    /// fetches from before that time do not count. Returns whether there is one.
    pub fn read_fetched(&self, extent: Extent, dest: &mut [u8]) -> bool {
        let fetched = self.leases.values().filter(|lease| {
            let covers = |of: &Extent| of.lba <= extent.lba && end(extent) <= end(*of);
            let is_recent = lease.fetch > self.fetch_floor;
            is_recent && lease.is_fetched() && lease.extents.iter().any(covers)
        });
        let Some(lease) = fetched.max_by_key(|lease| lease.fetch) else {
            return false;
        };
        for part in &lease.parts {
            if let Some(contents) = &part.contents {
                copy_shared(part.extent, contents, extent, dest);
            }
        }
        true
    }
}
