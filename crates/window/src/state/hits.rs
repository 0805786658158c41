//! Hits of a cache: commands on one frame that is whole in memory. They are most of what a cache
//! does, so they take neither a lease of the table nor a look at the frame itself, and a read
//! leaves the frame among those that can be evicted, in the policy's order.
//!
//! ```text
//!  admit ──► Hit ──┬─ release
//!                  └─ (anything but the plain end of a write) ──► a lease of the table
//! ```

use block::{
    Admission, Blocks, DataUse, Extent, Intent, Lba, OpKind, Persistence, Settled, Status, Ticket,
};

use super::{LEASES_MAX, State, frame};
use crate::lease::{NO_FRAME, Stage};

/// What a command holds of a window.
#[derive(Clone, Copy, Debug)]
pub(super) enum Holder {
    /// A lease of the table.
    Lease(u32),
    /// One frame.
    Hit(Hit),
}

/// A command on one frame, all of whose sectors were valid when it was admitted.
#[derive(Clone, Copy, Debug)]
pub(super) struct Hit {
    /// [`NO_FRAME`] once the command needs it no longer.
    pub(super) frame: u32,
    first: u8,
    count: u8,
    pub(super) writes: bool,
}

impl State {
    /// Admits a command that hits. Otherwise nothing has changed.
    pub(super) fn admit_hit(&mut self, intent: &Intent<'_>, ticket: Ticket) -> Option<Admission> {
        self.cache.as_ref()?;
        let writes = match intent.data_use {
            DataUse::Read | DataUse::Verify => false,
            DataUse::Overwrite => true,
            DataUse::Modify | DataUse::Copy | DataUse::Erase | DataUse::Flush => return None,
        };
        let is_plain = intent.persistence == Persistence::Volatile
            && self.queue.is_empty()
            && (!writes || self.erasures.is_empty())
            && self.by_ticket.len() < LEASES_MAX;
        let [extent] = intent.extents else {
            return None;
        };
        let piece = self.shape.only_piece(*extent).filter(|_| is_plain)?;
        let frame = self.find_soon(piece.block, (piece.first, piece.count))?;
        let slot = &mut self.slots[frame as usize];
        let cache = self.cache.as_mut()?;
        if !slot.is_whole || slot.is_transient {
            return None;
        }
        slot.leases += 1;
        slot.is_quiet &= !writes;
        if slot.leases == 1 {
            slot.is_quiet = slot.is_idle && !writes;
            if std::mem::take(&mut slot.is_idle) {
                cache.evictable -= 1;
            } else {
                self.soon_free -= 1;
            }
        }
        cache.policy.touch(frame);
        if writes {
            cache.statistics.write_hits += 1;
        } else {
            cache.statistics.read_hits += 1;
        }
        let hit = Hit {
            frame,
            first: piece.first as u8,
            count: piece.count as u8,
            writes,
        };
        self.enter(ticket, Holder::Hit(hit));
        Some(Admission::NowThenSettle(None))
    }

    /// A command holds something from now on.
    pub(super) fn enter(&mut self, ticket: Ticket, holder: Holder) {
        let before = self.by_ticket.insert(ticket, holder);
        assert!(before.is_none(), "{ticket:?} names one command at a time");
    }

    /// See [`block::Volume::settle`].
    pub(super) fn settle_hit(&mut self, ticket: Ticket, hit: Hit) -> Result<Settled, Status> {
        if !hit.writes {
            return Ok(Settled::Done);
        }
        let has_failed = !frame!(self, hit.frame).failed.is_empty();
        if has_failed || !self.is_room_for_dirty() {
            let index = self.promote(ticket, hit);
            return self.settle_lease(index);
        }
        self.slot(hit.frame).is_acknowledged = true;
        let settled = Hit {
            frame: NO_FRAME,
            ..hit
        };
        self.by_ticket.insert(ticket, Holder::Hit(settled));
        self.unlease_hit(hit.frame);
        Ok(Settled::Done)
    }

    /// A command that has hit ends.
    pub(super) fn release_hit(&mut self, ticket: Ticket, hit: Hit) {
        self.by_ticket.remove(&ticket);
        if hit.frame != NO_FRAME {
            self.unlease_hit(hit.frame);
        }
    }

    fn unlease_hit(&mut self, frame: u32) {
        let slot = &mut self.slots[frame as usize];
        if slot.leases > 1 || !slot.is_quiet {
            return self.unlease(frame);
        }
        // Reads alone have used it, so it is as it was.
        slot.leases = 0;
        slot.is_idle = true;
        if let Some(cache) = &mut self.cache {
            cache.evictable += 1;
            cache.policy.join(frame);
        }
        self.evict_beyond_size();
    }

    /// Writes that have hit get leases, because something else happens to their blocks.
    pub(super) fn promote_writes(&mut self) {
        let mut writes = Vec::new();
        for (ticket, holder) in &self.by_ticket {
            if let Holder::Hit(hit) = holder
                && hit.writes
                && hit.frame != NO_FRAME
            {
                writes.push((*ticket, *hit));
            }
        }
        for (ticket, hit) in writes {
            self.promote(ticket, hit);
        }
    }

    /// Gives a write that has hit a lease of the table.
    fn promote(&mut self, ticket: Ticket, hit: Hit) -> u32 {
        let block = self.slots[hit.frame as usize].block;
        let lba = Lba((block << self.shape.frame_shift) + u64::from(hit.first));
        let extent = Extent::new(lba, Blocks(hit.count.into()));
        self.by_ticket.remove(&ticket);
        self.slot(hit.frame).is_quiet = false;
        let intent = Intent {
            kind: OpKind::Write,
            extents: &[extent],
            len_bytes: 0,
            data_use: DataUse::Overwrite,
            persistence: Persistence::Volatile,
        };
        let index = self.new_lease(&intent, ticket, false);
        let lease = self.lease(index);
        lease.stage = Stage::Granted;
        lease.keeps_frames = true;
        lease.held[0].frame = hit.frame;
        index
    }
}
