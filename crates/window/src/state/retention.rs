//! What makes a window a cache: frames stay after their commands, and dirty ones are cleaned in the
//! background.
//!
//! ```text
//!  used by commands ──► idle: in a queue of the policy ──► used again, or evicted
//!                  └──► dirty: listed, cleaned in ascending order ──► idle
//! ```

use block::{DataUse, Intent, Persistence, Status};
use memory::MemoryError;

use super::hits::Holder;
use super::{Active, State, frame};
use crate::backing::BackingOp;
use crate::cache::{Cache, CacheMode, CacheOptions, CacheStatistics, Presence, kept_frames};
use crate::frame::FrameState;
use crate::lease::{NO_FRAME, Role};
use crate::sectors::SectorSet;

/// Background writes in flight at a time.
const CLEANING_MAX: usize = 32;
/// The share of a cache's frames that may be dirty: one in this many. A write beyond that is
/// answered when the slower device has it.
const DIRTY_SHARE: usize = 2;
/// Frames that are evicted under one hold of the lock when a cache becomes smaller.
const TRIM_STEP: usize = 256;
/// Records of transfers that are kept for later.
const SPARE_TRANSFERS_MAX: usize = 64;

impl State {
    /// Frames that can be evicted.
    pub(super) fn evictable(&self) -> usize {
        self.cache.as_ref().map_or(0, |cache| cache.evictable)
    }

    /// Whether a command continues a long sequential stream.
    pub(super) fn is_bypass(&mut self, intent: &Intent<'_>) -> bool {
        let shift = self.shape.sector_shift;
        let Some(cache) = &mut self.cache else {
            return false;
        };
        let follows = matches!(intent.data_use, DataUse::Read | DataUse::Overwrite);
        let limit_bytes = cache.options.bypass_bytes;
        if limit_bytes == 0 || !follows {
            return false;
        }
        let Some(extent) = intent.extents.first() else {
            return false;
        };
        cache.streams.follow(*extent) << shift > limit_bytes
    }

    /// Whether a frame that a command brings in is dropped after its use.
    pub(super) fn is_transient(&self, index: u32, role: Role) -> bool {
        let is_around = |mode: CacheMode| mode == CacheMode::WriteAround && role == Role::Overwrite;
        self.leases[index as usize].is_bypass
            || self
                .cache
                .as_ref()
                .is_some_and(|cache| is_around(cache.options.mode))
    }

    /// A command uses a frame that is there.
    pub(super) fn use_kept(&mut self, frame: u32, index: u32, role: Role) {
        let is_transient = self.is_transient(index, role);
        let is_bypass = self.leases[index as usize].is_bypass;
        if let Some(cache) = &mut self.cache {
            self.slots[frame as usize].is_transient &= is_transient;
            if !is_bypass {
                cache.policy.touch(frame);
            }
        }
    }

    /// Counts a command by what of it was in memory.
    pub(super) fn count(&mut self, index: u32, presence: Presence) {
        let Some(cache) = &mut self.cache else {
            return;
        };
        let lease = &self.leases[index as usize];
        let counts = &mut cache.statistics;
        if presence.pieces == 0 {
            return;
        }
        let [hits, partial_hits, misses, bypassed] = match lease.data_use {
            DataUse::Read | DataUse::Verify => [
                &mut counts.read_hits,
                &mut counts.read_partial_hits,
                &mut counts.read_misses,
                &mut counts.read_bypassed,
            ],
            _ => [
                &mut counts.write_hits,
                &mut counts.write_partial_hits,
                &mut counts.write_misses,
                &mut counts.write_bypassed,
            ],
        };
        *bypassed += u64::from(lease.is_bypass);
        let count = if presence.whole == presence.pieces {
            hits
        } else if presence.part > 0 {
            partial_hits
        } else {
            misses
        };
        *count += 1;
    }

    /// Counts what is asked of the slower device.
    pub(super) fn count_request(&mut self, op: BackingOp, len_bytes: u64) {
        let Some(cache) = &mut self.cache else {
            return;
        };
        match op {
            BackingOp::Read => cache.statistics.slower_read_bytes += len_bytes,
            BackingOp::Write(_) => cache.statistics.slower_written_bytes += len_bytes,
            BackingOp::Flush | BackingOp::Discard | BackingOp::WriteZeroes(_) => {}
        }
    }

    /// A frame that is clean and that nobody uses is kept or freed.
    pub(super) fn rest(&mut self, frame: u32) {
        let is_empty = frame!(self, frame).valid.is_empty();
        self.end_transfers(frame);
        let slot = &mut self.slots[frame as usize];
        let cache = self.cache.as_mut().filter(|cache| {
            let is_of_use = !is_empty || cache.policy.is_queued(frame);
            !slot.is_transient && is_of_use
        });
        let Some(cache) = cache else {
            self.soon_free -= 1;
            self.free_frame(frame);
            return;
        };
        if std::mem::replace(&mut slot.is_idle, true) {
            return;
        }
        self.soon_free -= 1;
        cache.evictable += 1;
        cache.policy.join(frame);
        self.evict_beyond_size();
    }

    /// A frame is clean, unused and in no transfer: what is known of its transfers is kept for
    /// another frame.
    fn end_transfers(&mut self, frame: u32) {
        let Some(mut transfer) = self.slot(frame).transfer.take() else {
            return;
        };
        if self.spare_transfers.len() < SPARE_TRANSFERS_MAX {
            transfer.writes_started = 0;
            transfer.failed = SectorSet::EMPTY;
            transfer.failure = None;
            self.spare_transfers.push(transfer);
        }
    }

    /// A frame has become idle: one is freed if there are more than the cache keeps.
    pub(super) fn evict_beyond_size(&mut self) {
        let is_over = |cache: &Cache| self.map.len() > cache.kept_frames;
        if self.cache.as_ref().is_some_and(is_over) {
            self.evict();
        }
    }

    /// If the cache is full, one frame is freed.
    pub(super) fn make_room(&mut self) {
        let is_full = |cache: &Cache| self.map.len() >= cache.kept_frames;
        if self.cache.as_ref().is_some_and(is_full) {
            self.evict();
        }
    }

    /// Frees one frame, if one can be freed.
    fn evict(&mut self) {
        let slots = &self.slots;
        let Some(cache) = &mut self.cache else {
            return;
        };
        if cache.evictable == 0 {
            return;
        }
        let evicted = cache.policy.evict(cache.kept_frames, |frame| {
            let slot = &slots[frame as usize];
            slot.is_idle.then_some(slot.block)
        });
        let frame = evicted.expect("a frame that can be evicted is in a queue");
        cache.evictable -= 1;
        cache.statistics.evictions += 1;
        self.slot(frame).is_idle = false;
        self.free_frame(frame);
    }

    /// Whether a write may stay in the cache.
    pub(super) fn is_room_for_dirty(&self) -> bool {
        self.cache.as_ref().is_some_and(|cache| {
            cache.options.mode == CacheMode::WriteBack
                && cache.dirty.len() < (cache.kept_frames / DIRTY_SHARE).max(1)
        })
    }

    /// Whether a command that has written is answered before the backing has its data.
    pub(super) fn is_written_back(&mut self, index: u32) -> bool {
        let lease = &self.leases[index as usize];
        if lease.persistence == Persistence::Durable || !self.is_room_for_dirty() {
            return false;
        }
        let held = lease.held.iter().filter(|held| held.role.changes());
        if held
            .clone()
            .any(|held| self.slots[held.frame as usize].is_transient)
        {
            return false;
        }
        for held in held {
            self.slots[held.frame as usize].is_acknowledged = true;
        }
        true
    }

    /// Whether dirty sectors of a frame stay dirty if they cannot be written: commands were told
    /// that they are in the cache.
    pub(super) fn keeps_unwritten(&self, frame: u32) -> bool {
        self.slots[frame as usize].is_acknowledged
    }

    /// The write of a run of sectors has failed, and it is to be tried again.
    pub(super) fn redo_write(&mut self, frame: u32, run: SectorSet, failure: Status) {
        frame!(self, frame).redo_write(run);
        let transfer = self.transfer(frame);
        transfer.failed = transfer.failed.or(run);
        transfer.failure = Some(failure);
    }

    /// Keeps the list of dirty frames.
    pub(super) fn list_dirty(&mut self, frame: u32, block: u64, is_dirty: bool) {
        let Some(cache) = &mut self.cache else {
            return;
        };
        let was_listed = std::mem::replace(&mut self.slots[frame as usize].is_listed, is_dirty);
        match (was_listed, is_dirty) {
            (false, true) => drop(cache.dirty.insert(block, frame)),
            (true, false) => drop(cache.dirty.remove(&block)),
            _ => {}
        }
    }

    /// Frames that may be dirty or whose write is in flight, in [`scratch`](Self::scratch).
    pub(super) fn find_changed(&mut self) {
        self.scratch.clear();
        let Some(cache) = &self.cache else {
            self.scratch.extend(self.map.frames());
            return;
        };
        self.scratch.extend(cache.dirty.values());
        let written = self
            .active
            .iter()
            .flatten()
            .filter_map(|active| match active {
                Active::Write { frame, .. } => Some(*frame),
                _ => None,
            });
        self.scratch.extend(written);
        for holder in self.by_ticket.values() {
            match *holder {
                Holder::Hit(hit) if hit.frame == NO_FRAME => {}
                Holder::Hit(hit) => self.scratch.push(hit.frame),
                Holder::Lease(index) => {
                    let lease = &self.leases[index as usize];
                    let held = lease.held.iter().filter(|_| lease.keeps_frames);
                    self.scratch.extend(held.map(|held| held.frame));
                }
            }
        }
        self.scratch.sort_unstable();
        self.scratch.dedup();
    }

    /// Commands wait for frames: dirty ones are cleaned for them.
    pub(super) fn clean_for_queue(&mut self) {
        if let Some(cache) = &mut self.cache {
            cache.quota = cache.quota.max(CLEANING_MAX);
            self.clean();
        }
    }

    /// Begins a round of background writes of one in `share` of the dirty frames, but at least
    /// `frames_min`. Returns whether there are dirty frames.
    pub(crate) fn begin_cleaning(&mut self, share: usize, frames_min: usize) -> bool {
        let Some(cache) = &mut self.cache else {
            return false;
        };
        let dirty = cache.dirty.len();
        cache.is_cleaner_awake = dirty > 0;
        cache.quota = (dirty / share).max(frames_min).min(dirty);
        self.clean();
        dirty > 0
    }

    /// A frame stays dirty until the background writes it.
    pub(super) fn leave_dirty(&mut self) {
        if let Some(cache) = &mut self.cache
            && !std::mem::replace(&mut cache.is_cleaner_awake, true)
        {
            self.backing.wake_cleaner();
        }
    }

    /// Starts background writes, in ascending order.
    pub(super) fn clean(&mut self) {
        while let Some(frame) = self.next_to_clean() {
            self.slot(frame).is_write_wanted = true;
            self.kick(frame);
            let state = frame!(self, frame).state;
            if matches!(state, FrameState::Writing | FrameState::WritingDirty) {
                self.slot(frame).is_cleaned = true;
                if let Some(cache) = &mut self.cache {
                    cache.cleaning += 1;
                }
            }
        }
    }

    fn next_to_clean(&mut self) -> Option<u32> {
        let cache = self.cache.as_mut().filter(|_| !self.is_closed)?;
        while cache.quota > 0 && cache.cleaning < CLEANING_MAX {
            cache.quota -= 1;
            let after = cache.dirty.range(cache.cursor..).next();
            let next = after.or_else(|| cache.dirty.iter().next());
            let Some((&block, &frame)) = next else {
                cache.quota = 0;
                break;
            };
            cache.cursor = block + 1;
            if !frame!(self, frame).state.is_in_transfer() {
                return Some(frame);
            }
        }
        None
    }

    /// A write of a frame has ended.
    pub(super) fn end_cleaning(&mut self, frame: u32, failure: Option<Status>) {
        let is_cleaned = std::mem::take(&mut self.slots[frame as usize].is_cleaned);
        let Some(cache) = &mut self.cache else {
            return;
        };
        if is_cleaned {
            cache.cleaning -= 1;
            match failure {
                None => cache.statistics.write_backs += 1,
                Some(_) => cache.statistics.failed_write_backs += 1,
            }
        }
        if let Some(failure) = failure {
            self.fail_queue(failure);
        }
    }

    /// Changes what a cache is set to. [`trim`](Self::trim) follows.
    pub(crate) fn set_cache(&mut self, options: CacheOptions) -> Result<(), MemoryError> {
        let Some(cache) = &mut self.cache else {
            return Ok(());
        };
        let before = std::mem::replace(
            &mut cache.kept_frames,
            kept_frames(options, self.shape.frame_bytes()),
        );
        let charged = self.charge_frames(self.frames_with_memory, self.slots.len() as u32);
        if let Some(cache) = &mut self.cache {
            match charged {
                Ok(()) => cache.options = options,
                Err(_) => cache.kept_frames = before,
            }
        }
        charged
    }

    /// Evicts a few frames of a cache that has become smaller; whether more may follow.
    pub(crate) fn trim(&mut self) -> bool {
        for _ in 0..TRIM_STEP {
            let is_over = |cache: &Cache| self.map.len() > cache.kept_frames && cache.evictable > 0;
            if !self.cache.as_ref().is_some_and(is_over) {
                return false;
            }
            self.evict();
        }
        true
    }

    /// What a cache has done.
    pub(crate) fn cache_statistics(&self) -> CacheStatistics {
        let frame_bytes = self.shape.frame_bytes() as u64;
        self.cache
            .as_ref()
            .map_or(CacheStatistics::default(), |cache| CacheStatistics {
                resident_bytes: self.map.len() as u64 * frame_bytes,
                dirty_bytes: cache.dirty.len() as u64 * frame_bytes,
                ..cache.statistics
            })
    }
}
