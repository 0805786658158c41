//! What a window's lock guards: which frame holds which window block, who waits for what, and what
//! is in flight.
//!
//! Lock order: the state, then one frame. A thread that holds several frames does not take the
//! state.

mod admission;
mod erasures;
mod flushes;
mod hits;
mod retention;
mod settling;
mod transfers;

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use block::{Blocks, ByteRange, Completion, Extent, Geometry, Lba, Status, Ticket};
use memory::{Budget, Charge, MemoryError};
use rustc_hash::FxBuildHasher;

use crate::backing::{Backing, BackingOp, Request, RequestId};
use crate::cache::{Cache, CacheOptions};
use crate::frames::Frames;
use crate::index::FrameIndex;
use crate::lease::{Lease, Stage};
use crate::options::WindowOptions;
use crate::sectors::SectorSet;

use erasures::Erasure;
use flushes::Flushes;
use hits::Holder;

/// The most leases of a window at a time.
pub(crate) const LEASES_MAX: usize = 1 << 16;

/// Hints between the look at the index and that at the frame.
const HINTS: usize = 4;

/// Sizes of a window, as powers of two.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    /// log2 of the bytes of a sector, which is a block of the volume.
    pub(crate) sector_shift: u32,
    /// log2 of the sectors of a frame.
    pub(crate) frame_shift: u32,
    pub(crate) frames_max: u32,
}

/// A run of sectors inside one window block.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Piece {
    pub(crate) block: u64,
    pub(crate) first: u32,
    pub(crate) count: u32,
    /// Sectors of the extent before this piece.
    pub(crate) before: u64,
}

impl Shape {
    /// The shape of a window on a device.
    ///
    /// # Panics
    /// If the frame size is not one of the allowed ones.
    pub(crate) fn new(geometry: Geometry, options: WindowOptions) -> Self {
        let frame_bytes = options.frame_bytes;
        let allowed = WindowOptions::FRAME_BYTES_MIN..=WindowOptions::FRAME_BYTES_MAX;
        assert!(
            allowed.contains(&frame_bytes) && frame_bytes.is_power_of_two(),
            "the frame size is one of the allowed ones"
        );
        let sector_shift = geometry.block_size.shift();
        Self {
            sector_shift,
            frame_shift: frame_bytes.trailing_zeros() - sector_shift,
            frames_max: (options.memory_bytes_max / u64::from(frame_bytes)).max(1) as u32,
        }
    }

    pub(crate) const fn frame_bytes(self) -> usize {
        1 << (self.sector_shift + self.frame_shift)
    }

    /// How many window blocks an extent touches.
    pub(crate) const fn blocks_of(self, extent: Extent) -> u64 {
        if extent.blocks.0 == 0 {
            return 0;
        }
        let last = extent.lba.0 + extent.blocks.0 - 1;
        (last >> self.frame_shift) - (extent.lba.0 >> self.frame_shift) + 1
    }

    /// The pieces of an extent, in order.
    pub(crate) fn pieces(self, extent: Extent) -> impl Iterator<Item = Piece> {
        let frame_sectors = 1_u64 << self.frame_shift;
        let mut before = 0;
        std::iter::from_fn(move || {
            let left = extent.blocks.0 - before;
            let at = extent.lba.0 + before;
            let first = at & (frame_sectors - 1);
            let count = left.min(frame_sectors - first);
            let piece = Piece {
                block: at >> self.frame_shift,
                first: first as u32,
                count: count as u32,
                before,
            };
            before += count;
            (count > 0).then_some(piece)
        })
    }

    /// The piece of an extent that is in one window block and not empty.
    fn only_piece(self, extent: Extent) -> Option<Piece> {
        let frame_sectors = 1_u64 << self.frame_shift;
        let first = extent.lba.0 & (frame_sectors - 1);
        let count = extent.blocks.0;
        (count > 0 && count <= frame_sectors - first).then_some(Piece {
            block: extent.lba.0 >> self.frame_shift,
            first: first as u32,
            count: count as u32,
            before: 0,
        })
    }

    /// The sectors of a window block.
    pub(crate) const fn extent_of(self, block: u64) -> Extent {
        Extent::new(
            Lba(block << self.frame_shift),
            Blocks(1 << self.frame_shift),
        )
    }

    /// The sectors of `extent` in a window block.
    pub(crate) fn covered(self, block: u64, extent: Extent) -> SectorSet {
        let whole = self.extent_of(block);
        let end = |extent: Extent| extent.lba.0.saturating_add(extent.blocks.0);
        let first = whole.lba.0.max(extent.lba.0);
        let last = end(whole).min(end(extent));
        let count = last.saturating_sub(first);
        SectorSet::span(
            (first.min(last) - whole.lba.0.min(last)) as u32,
            count as u32,
        )
    }

    /// Every sector of a frame.
    const fn all_sectors(self) -> SectorSet {
        SectorSet::span(0, 1 << self.frame_shift)
    }

    /// The bytes of the volume that a run of sectors of a window block stands for.
    const fn byte_range(self, block: u64, first: u32, count: u32) -> ByteRange {
        ByteRange {
            offset: ((block << self.frame_shift) + first as u64) << self.sector_shift,
            len: (count as u64) << self.sector_shift,
        }
    }
}

/// See the module.
#[derive(Debug)]
pub(crate) struct State {
    shape: Shape,
    frames: Arc<Frames>,
    backing: Arc<dyn Backing>,
    /// Of the memory of frames.
    charge: Charge,
    /// How many frames have memory.
    frames_with_memory: usize,
    slots: Vec<Slot>,
    /// Of frames that need none any more: their vectors are reused.
    #[expect(
        clippy::vec_box,
        reason = "what is reused is the box, which a slot has"
    )]
    spare_transfers: Vec<Box<Transfer>>,
    /// If frames are kept after their commands.
    cache: Option<Cache>,
    /// The frame of each window block that is in memory.
    map: FrameIndex,
    /// Frames without a window block that had one: those with memory at the end.
    free: VecDeque<u32>,
    /// How many of them have memory.
    idle_frames: usize,
    /// Frames that no lease keeps, but which are still in transfer or dirty. They become free
    /// without anything that a peer does.
    soon_free: usize,
    leases: Vec<Lease>,
    free_leases: Vec<u32>,
    /// What each command holds. This process makes tickets, so no peer chooses them.
    by_ticket: HashMap<Ticket, Holder, FxBuildHasher>,
    /// Leases that wait for frames, oldest first.
    queue: VecDeque<u32>,
    /// How many window blocks they need.
    promised: usize,
    active: Vec<Option<Active>>,
    free_ids: Vec<u32>,
    erasures: Vec<Erasure>,
    flushes: Flushes,
    /// Completions that are to be delivered once the lock is released.
    done: VecDeque<Completion>,
    /// Frames that an erasure touches: kept for its memory.
    scratch: Vec<u32>,
    /// The last hints of what is needed soon, each until as many others have come.
    hints: [Option<Piece>; HINTS],
    hints_given: usize,
    is_closed: bool,
}

/// What is known about a frame besides its bytes.
#[derive(Debug, Default)]
struct Slot {
    /// Which window block its frame holds, unless that is absent.
    block: u64,
    /// How many leases keep it.
    leases: u32,
    /// What is known besides while something is awaited of it or it is written: few of the many
    /// frames of a cache need that at a time, and a hit looks at one line of the processor's cache.
    transfer: Option<Box<Transfer>>,
    /// It is one of those that can be evicted.
    is_idle: bool,
    /// It was one of those, and reads that have hit are all that has used it since.
    is_quiet: bool,
    /// All of its sectors are valid. Not set if that is not known.
    is_whole: bool,
    /// It is not kept once no command uses it.
    is_transient: bool,
    /// Its write is one of the background.
    is_cleaned: bool,
    /// It has dirty sectors of commands that were answered.
    is_acknowledged: bool,
    /// It is among the dirty ones of the cache.
    is_listed: bool,
    /// Whether dirty sectors are to be written as soon as possible.
    is_write_wanted: bool,
    /// Whether the next write must be durable.
    is_durable_wanted: bool,
    /// The last transfer was a write: a fill comes next, if one is wanted.
    was_written: bool,
}

/// What is known about a frame that is written or awaited.
#[derive(Debug, Default)]
struct Transfer {
    waiters: Vec<Waiter>,
    /// How many writes of it were started.
    writes_started: u64,
    /// Requests of its write that are in flight, what failed of it, and why.
    parts: u32,
    failed: SectorSet,
    failure: Option<Status>,
    /// The flush that is prepared waits for the write of this number.
    flush_until: Option<u64>,
}

impl Slot {
    fn waiters(&self) -> &[Waiter] {
        self.transfer.as_ref().map_or(&[], |it| &it.waiters)
    }

    /// Whether a flush waits for it.
    fn is_flushed(&self) -> bool {
        self.transfer
            .as_ref()
            .is_some_and(|it| it.flush_until.is_some())
    }
}

/// A lease that waits for a frame.
#[derive(Clone, Copy, Debug)]
struct Waiter {
    lease: u32,
    sectors: SectorSet,
    event: Awaited,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Awaited {
    /// The sectors become valid.
    Fill,
    /// The write of this number ends.
    Write(u64),
}

/// A request in flight.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Active {
    /// A run of sectors of a frame is read.
    Fill { frame: u32, run: (u32, u32) },
    /// A run of sectors of a frame is written.
    Write { frame: u32, run: (u32, u32) },
    /// The backing flushes.
    Flush,
    /// An erasure, by its number.
    Erasure(u64),
}

impl State {
    pub(crate) fn new(
        shape: Shape,
        frames: Arc<Frames>,
        backing: Arc<dyn Backing>,
        budget: &Arc<Budget>,
        cache: Option<CacheOptions>,
    ) -> Result<Self, MemoryError> {
        let cache = cache.map(|options| Cache::new(options, shape.frame_bytes()));
        let mut state = Self {
            shape,
            frames,
            backing,
            charge: budget.overdraw(0),
            frames_with_memory: 0,
            slots: Vec::new(),
            spare_transfers: Vec::new(),
            cache,
            map: FrameIndex::new(),
            free: VecDeque::new(),
            idle_frames: 0,
            soon_free: 0,
            leases: Vec::new(),
            free_leases: Vec::new(),
            by_ticket: HashMap::default(),
            queue: VecDeque::new(),
            promised: 0,
            active: Vec::new(),
            free_ids: Vec::new(),
            erasures: Vec::new(),
            flushes: Flushes::default(),
            done: VecDeque::new(),
            scratch: Vec::new(),
            hints: [None; HINTS],
            hints_given: 0,
            is_closed: false,
        };
        state.charge_frames(0, 0)?;
        Ok(state)
    }

    /// The frame that holds a window block. [`Status::Busy`] if none does: its command's lease has
    /// ended, or another command's failed write took the contents away.
    pub(crate) fn frame_of(&self, block: u64) -> Result<u32, Status> {
        if self.is_closed {
            return Err(Status::Gone);
        }
        self.find(block).ok_or(Status::Busy)
    }

    /// The frame that holds a window block, if one does.
    fn find(&self, block: u64) -> Option<u32> {
        let slots = &self.slots;
        self.map
            .get(block, |frame| slots[frame as usize].block == block)
    }

    /// The same; if there is one, a run of its sectors is needed soon.
    fn find_soon(&self, block: u64, run: (u32, u32)) -> Option<u32> {
        let slots = &self.slots;
        self.map.get(block, |frame| {
            // All that is looked at next, at once.
            memory::prefetch_value(&slots[frame as usize]);
            if let Some(cache) = &self.cache {
                cache.policy.prefetch(frame);
            }
            self.frames.prefetch(frame, run, self.shape.sector_shift);
            slots[frame as usize].block == block
        })
    }

    /// The bytes of window blocks are needed soon, if they are in memory. Two steps, so that no
    /// look-up waits for the memory of the index: that of a block is prefetched now, and the frame
    /// in which the block is once more hints have come.
    pub(crate) fn prefetch(&mut self, extent: Extent) {
        // What is longer is followed by the processor itself.
        let Some(piece) = self.shape.pieces(extent).next() else {
            return;
        };
        self.map.prefetch(piece.block);
        let at = self.hints_given % HINTS;
        self.hints_given = self.hints_given.wrapping_add(1);
        if let Some(piece) = self.hints[at].replace(piece) {
            self.find_soon(piece.block, (piece.first, piece.count));
        }
    }

    /// The request of this name, which is in flight.
    pub(crate) fn active(&self, id: RequestId) -> Active {
        self.active[id.0 as usize].expect("a backing names requests that are in flight")
    }

    /// A completion to deliver.
    pub(crate) fn next_done(&mut self) -> Option<Completion> {
        self.done.pop_front()
    }

    /// How many frames hold a window block, and how many leases there are.
    #[cfg(test)]
    pub(crate) fn in_use(&self) -> (usize, usize) {
        (self.map.len(), self.by_ticket.len())
    }

    /// Every command that waits fails, and nothing is started any more.
    pub(crate) fn close(&mut self) {
        self.is_closed = true;
        self.queue.clear();
        self.promised = 0;
        for slot in &mut self.slots {
            if let Some(transfer) = &mut slot.transfer {
                transfer.waiters.clear();
            }
        }
        for erasure in &mut self.erasures {
            erasure.waiters.clear();
        }
        self.flushes = Flushes::default();
        for index in 0..self.leases.len() as u32 {
            let lease = &mut self.leases[index as usize];
            if lease.stage != Stage::Granted {
                lease.awaited = 0;
                lease.failure = Some(Status::Gone);
                self.report(index);
            }
        }
    }

    fn submit(&mut self, active: Active, op: BackingOp, range: ByteRange) {
        let id = self.free_ids.pop().unwrap_or_else(|| {
            self.active.push(None);
            self.active.len() as u32 - 1
        });
        self.active[id as usize] = Some(active);
        self.count_request(op, range.len);
        self.backing.submit(Request {
            id: RequestId(id),
            op,
            range,
        });
    }

    pub(crate) fn retire(&mut self, id: RequestId) {
        self.active[id.0 as usize] = None;
        self.free_ids.push(id.0);
    }

    fn slot(&mut self, frame: u32) -> &mut Slot {
        &mut self.slots[frame as usize]
    }

    /// What is known of a frame that is written or awaited.
    fn transfer(&mut self, frame: u32) -> &mut Transfer {
        let spare = &mut self.spare_transfers;
        let transfer = &mut self.slots[frame as usize].transfer;
        transfer.get_or_insert_with(|| spare.pop().unwrap_or_default())
    }

    fn lease(&mut self, index: u32) -> &mut Lease {
        &mut self.leases[index as usize]
    }

    /// A lease waits for one thing less. If that was the last one, its command goes on. Called for
    /// completions of the backing alone.
    fn end_wait(&mut self, index: u32, failure: Option<Status>) {
        let lease = self.lease(index);
        lease.failure = lease.failure.or(failure);
        lease.awaited -= 1;
        if lease.awaited > 0 {
            return;
        }
        if lease.then_flush && lease.failure.is_none() {
            lease.then_flush = false;
            self.join_flush(index);
        } else {
            self.report(index);
        }
    }

    /// A command may go on, or has failed.
    fn report(&mut self, index: u32) {
        let lease = self.lease(index);
        lease.stage = Stage::Granted;
        let completion = Completion {
            ticket: lease.ticket,
            result: lease.failure.map_or(Ok(()), Err),
        };
        self.done.push_back(completion);
    }

    /// Frames that hold blocks of `extent`, in [`scratch`](Self::scratch).
    fn find_resident(&mut self, extent: Extent) {
        let shape = self.shape;
        self.scratch.clear();
        if shape.blocks_of(extent) > self.map.len() as u64 {
            let slots = &self.slots;
            let touched = |frame: &u32| {
                let block = slots[*frame as usize].block;
                shape.extent_of(block).overlaps(extent)
            };
            self.scratch.extend(self.map.frames().filter(touched));
        } else {
            let blocks = shape.pieces(extent).map(|piece| piece.block);
            let mut scratch = std::mem::take(&mut self.scratch);
            scratch.extend(blocks.filter_map(|block| self.find(block)));
            self.scratch = scratch;
        }
    }
}

/// Locks a frame of a state, borrowing only its frames.
macro_rules! frame {
    ($state:expr, $frame:expr) => {
        $state.frames.lock($frame)
    };
}
use frame;
