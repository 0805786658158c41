//! The memory of a volume: sparse, shared by threads, and resizable while in use.

mod atomic;
mod backing;
mod changes;
mod clone;
mod layers;
mod origin;
mod snapshot;

use std::fmt;
use std::ops::{ControlFlow, Range};
use std::str::FromStr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use block::{Allocation, ByteRange, RawSpan, Status};

use crate::chunk::{Chunk, ZEROS, ZEROS_BYTES};
use crate::directory::Directory;
use crate::layout::Piece;
use crate::locks::{Guard, LockTable};
use crate::slabs::{SlabCharge, Slabs};
use crate::{Budget, Layout, MemoryError};

use backing::Backing;
use clone::Base;
use layers::{ChainCell, Newest};

pub use atomic::{Part, STORES_MAX, compare_and_write_across};
pub use changes::Tracker;
pub use snapshot::Snapshot;

/// A copy inside a store moves this much at a time, through the stack.
const COPY_BYTES: usize = 16 << 10;
/// Slabs that preallocation fills between two reports.
const SLABS_PER_REPORT: u64 = 32;

/// Whether a store allocates its memory when it is written, or at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Provision {
    /// A slab is allocated when it is first written, and freed by a discard.
    #[default]
    Thin,
    /// All memory is allocated at creation, and freed when the store shrinks or drops.
    Thick,
}

/// A text that is not the name of a [`Provision`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("is unknown; write thin or thick")]
pub struct NoSuchProvision;

/// `thin` or `thick`.
impl fmt::Display for Provision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Thin => "thin",
            Self::Thick => "thick",
        })
    }
}

impl FromStr for Provision {
    type Err = NoSuchProvision;

    fn from_str(text: &str) -> Result<Self, NoSuchProvision> {
        match text {
            "thin" => Ok(Self::Thin),
            "thick" => Ok(Self::Thick),
            _ => Err(NoSuchProvision),
        }
    }
}

/// The progress of an allocation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Bytes allocated and filled so far.
    pub done_bytes: u64,
    /// Bytes to allocate in total.
    pub total_bytes: u64,
}

/// A volume's memory. All offsets and lengths are bytes; operations are atomic per granule (see
/// [`Layout`]), so per block. Whatever was not written reads as zeros.
#[derive(Debug)]
pub struct Store {
    provision: Provision,
    /// Writers check it under their lock, so that after a shrink nothing is written beyond the end.
    len_bytes: AtomicU64,
    locks: LockTable,
    slabs: Slabs,
    /// What snapshots keep.
    chain: ChainCell,
    /// What shows where the slabs hold nothing, in a clone; then slabs are granules.
    base: Option<Base>,
    /// Resize, erase, close and snapshots exclude each other.
    control: Mutex<Life>,
}

/// A store that no one else resizes, erases, closes or takes snapshots of.
type Control<'a> = MutexGuard<'a, Life>;

impl Guard for Control<'_> {}

/// Whether a store may still have a length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Life {
    Open,
    Closed,
}

impl Store {
    /// An empty store. [`resize`](Self::resize) sets its length.
    pub fn new(budget: Arc<Budget>, provision: Provision, layout: Layout) -> Self {
        Self {
            provision,
            len_bytes: AtomicU64::new(0),
            locks: LockTable::new(layout.locks()),
            slabs: Slabs::new(budget, layout),
            chain: ChainCell::default(),
            base: None,
            control: Mutex::new(Life::Open),
        }
    }

    /// The length in bytes.
    pub fn len_bytes(&self) -> u64 {
        self.len_bytes.load(Ordering::Acquire)
    }

    /// Whether the length is 0.
    pub fn is_empty(&self) -> bool {
        self.len_bytes() == 0
    }

    /// The allocated memory in bytes, as charged to the budget: whole slabs.
    pub fn allocated_bytes(&self) -> u64 {
        self.slabs.allocated_bytes()
    }

    /// When the store allocates its memory.
    pub fn provision(&self) -> Provision {
        self.provision
    }

    /// The sizes in which it reserves, allocates and locks.
    pub fn layout(&self) -> Layout {
        self.slabs.layout()
    }

    /// The budget that it charges.
    pub fn budget(&self) -> &Arc<Budget> {
        self.slabs.budget()
    }

    /// Whether it is over a snapshot. Its bytes are not in one place then, and cannot be pinned.
    pub fn is_clone(&self) -> bool {
        self.base.is_some()
    }

    /// Whether a discard takes longer at this moment, since the store has snapshots or its changes
    /// are tracked.
    pub fn has_snapshots(&self) -> bool {
        !self.chain.is_empty()
    }

    /// Whether the start of `range` is allocated, and for at least how many bytes that holds.
    pub fn allocation(&self, range: ByteRange) -> Allocation {
        Backing::of(range, |at| self.backing(at))
    }

    /// Prefetches bytes that an operation soon needs into the processor's cache. Changes nothing
    /// and takes no lock. Ranges that do not exist or are not allocated are ignored.
    pub fn prefetch(&self, range: ByteRange) {
        let first = self.pieces(range.offset, range.len).next();
        let Some(piece) = first else { return };
        if let Some(chunk) = self.allocated(piece.offset) {
            chunk.prefetch(self.layout().in_chunk(piece.offset), piece.len);
        }
    }

    /// Copies the bytes from `offset` on into `dest`.
    pub fn read(&self, offset: u64, dest: &mut [u8]) -> Result<(), Status> {
        self.check(offset, dest.len() as u64)?;
        let mut rest = dest;
        for piece in self.pieces(offset, rest.len() as u64) {
            let (dest, later) = rest.split_at_mut(piece.len);
            let _lock = self.locks.read(self.layout().granule(piece.offset));
            self.copy_out_locked(piece.offset, dest)?;
            rest = later;
        }
        Ok(())
    }

    /// Writes `data` at `offset`. After an error each granule, and so each block, is either old or
    /// new as a whole.
    pub fn write(&self, offset: u64, data: &[u8]) -> Result<(), Status> {
        self.check(offset, data.len() as u64)?;
        let mut rest = data;
        for piece in self.pieces(offset, rest.len() as u64) {
            let (data, later) = rest.split_at(piece.len);
            let lock = self.locks.write(self.layout().granule(piece.offset));
            self.check(piece.offset, piece.len as u64)?;
            let chunk = self.prepare(self.newest(&lock, piece.offset), &piece)?;
            // SAFETY: the write lock is held, and the slab has just been found allocated.
            unsafe { chunk.copy_in(self.layout().in_chunk(piece.offset), data) };
            rest = later;
        }
        Ok(())
    }

    /// Zeroes bytes without freeing memory.
    pub fn zero(&self, range: ByteRange) -> Result<(), Status> {
        self.check(range.offset, range.len)?;
        self.zero_pieces(range)
            .map_err(|error| self.refused(&error))
    }

    /// Makes bytes read as zeros. A thin store frees the slabs that lie inside the range as a
    /// whole.
    pub fn discard(&self, range: ByteRange) -> Result<(), Status> {
        self.check(range.offset, range.len)?;
        self.clear(range).map_err(|error| self.refused(&error))
    }

    /// Compares `data` with the bytes from `offset` on.
    pub fn compare(&self, offset: u64, data: &[u8]) -> Result<(), Status> {
        self.check(offset, data.len() as u64)?;
        for piece in self.pieces(offset, data.len() as u64) {
            let at = (piece.offset - offset) as usize;
            let _lock = self.locks.read(self.layout().granule(piece.offset));
            self.compare_locked(piece.offset, &data[at..at + piece.len], at)?;
        }
        Ok(())
    }

    /// Copies `from` to `to`, which may overlap. Slabs that are not allocated in the source are not
    /// allocated in the copy either, as far as slabs allow.
    pub fn copy(&self, from: ByteRange, to: u64) -> Result<(), Status> {
        self.check(from.offset, from.len)?;
        self.check(to, from.len)?;
        // Through the stack, so that no two locks are held at once; a piece is read before any
        // later one is written.
        let mut buffer = [0; COPY_BYTES];
        let forward = to <= from.offset;
        let mut done = 0;
        while done < from.len {
            let left = from.len - done;
            let (run, hole) = if forward {
                let start = from.offset + done;
                (self.run_from(start, left), self.is_hole(start))
            } else {
                let end = from.offset + left;
                (self.run_to(end, left), self.is_hole(end - 1))
            };
            let len = if hole {
                run
            } else {
                run.min(COPY_BYTES as u64)
            };
            let start = if forward { done } else { left - len };
            if hole {
                self.discard(ByteRange {
                    offset: to + start,
                    len,
                })?;
            } else {
                let part = &mut buffer[..len as usize];
                self.read(from.offset + start, part)?;
                self.write(to + start, part)?;
            }
            done += len;
        }
        Ok(())
    }

    /// Calls `each` with the addresses of the bytes, in order; see [`block::Pinned::pin`].
    pub fn pin(&self, range: ByteRange, each: &mut dyn FnMut(RawSpan)) {
        for piece in self.pieces(range.offset, range.len) {
            self.locks.pin(self.layout().granule(piece.offset));
        }
        // If `each` unwinds, the pin ends with it.
        let pinned = Pinned { store: self, range };
        for piece in self.pieces(range.offset, range.len) {
            self.spans(&piece, each);
        }
        std::mem::forget(pinned);
    }

    /// Ends a [`pin`](Self::pin) of the same range.
    pub fn unpin(&self, range: ByteRange) {
        for piece in self.pieces(range.offset, range.len) {
            self.locks.unpin(self.layout().granule(piece.offset));
        }
    }

    /// Makes all bytes zeros. A thin store frees all its memory.
    ///
    /// # Errors
    /// If the budget has no room for what snapshots need. Some blocks are zeros then.
    pub fn erase(&self) -> Result<(), MemoryError> {
        let control = self.control();
        self.note_all_changed(&control);
        self.set_base_len(0);
        self.clear(ByteRange {
            offset: 0,
            len: self.len_bytes(),
        })
    }

    /// Changes the length while the store is in use. A thick store that grows allocates and fills
    /// the new memory before the length changes, reports to `progress` meanwhile, and frees it
    /// again if that fails. A shrink frees memory at once; bytes beyond the end are lost, and the
    /// shrink fails if the budget has no room for what snapshots need of them. Do not call it on a
    /// thread that must not wait.
    pub fn resize(
        &self,
        len_bytes: u64,
        progress: &mut dyn FnMut(Progress) -> ControlFlow<()>,
    ) -> Result<(), MemoryError> {
        let max_bytes = Directory::CHUNKS_MAX * self.layout().chunk_bytes();
        if len_bytes > max_bytes {
            return Err(MemoryError::TooLong {
                wanted_bytes: len_bytes,
                max_bytes,
            });
        }
        let life = self.control();
        if *life == Life::Closed {
            return Err(MemoryError::Closed);
        }
        let old_bytes = self.len_bytes();
        self.note_all_changed(&life);
        if len_bytes < old_bytes {
            self.preserve_range(len_bytes..old_bytes)?;
            return self.truncate(len_bytes);
        }
        if self.provision == Provision::Thick {
            let new = self.layout().slab_ceil(old_bytes)..self.layout().slab_ceil(len_bytes);
            self.preallocate(new, progress)?;
        }
        self.len_bytes.store(len_bytes, Ordering::Release);
        Ok(())
    }

    /// Makes the store empty for good and frees all memory, even while others still refer to the
    /// store. Its snapshots show nothing any more.
    pub fn close(&self) {
        let mut life = self.control();
        *life = Life::Closed;
        self.drop_layers(&life);
        // Without layers nothing has to be kept, so nothing is allocated.
        let _cannot_fail = self.truncate(0);
    }
}

impl Store {
    fn control(&self) -> Control<'_> {
        // A panic under the mutex cannot leave its value half changed.
        self.control.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lowers the length. The caller holds `control`.
    fn truncate(&self, len_bytes: u64) -> Result<(), MemoryError> {
        self.set_base_len(len_bytes.min(self.base_len_bytes()));
        let old_bytes = self.len_bytes.swap(len_bytes, Ordering::AcqRel);
        // Writers that checked the old length under a lock have finished after this, and later ones
        // see the new length.
        self.locks.await_writers();
        self.vacate(ByteRange {
            offset: len_bytes,
            len: self.layout().slab_ceil(old_bytes) - len_bytes,
        })
    }

    fn check(&self, offset: u64, len: u64) -> Result<(), Status> {
        match offset.checked_add(len) {
            Some(end) if end <= self.len_bytes() => Ok(()),
            _ => Err(Status::LbaOutOfRange),
        }
    }

    /// The run of bytes, cut at granules.
    fn pieces(&self, offset: u64, len: u64) -> impl Iterator<Item = Piece> + use<> {
        self.layout().pieces(offset, len)
    }

    /// The chunk of `offset` if the slab there is allocated. This stays true while a lock of the
    /// granule is held.
    fn allocated(&self, offset: u64) -> Option<&Chunk> {
        self.slabs.allocated(offset)
    }

    /// The memory of a piece, ready to be changed. The caller holds the write lock of the granule,
    /// and `newest` is what [`newest`](Self::newest) gave since.
    fn prepare(&self, newest: Newest<'_>, piece: &Piece) -> Result<&Chunk, Status> {
        self.preserve(newest, piece)
            .and_then(|()| self.allocate(piece.offset))
            .map_err(|error| self.refused(&error))
    }

    /// Allocates the slab of `offset` if it is not allocated. The caller holds the write lock of
    /// one of its granules.
    fn allocate(&self, offset: u64) -> Result<&Chunk, MemoryError> {
        match self.allocated(offset) {
            Some(chunk) => Ok(chunk),
            None => self.allocate_new(offset),
        }
    }

    fn copy_out_locked(&self, offset: u64, dest: &mut [u8]) -> Result<(), Status> {
        match self.allocated(offset) {
            Some(chunk) => {
                // SAFETY: the caller holds a lock of the granule, and the slab is allocated.
                unsafe { chunk.copy_out(self.layout().in_chunk(offset), dest) };
                Ok(())
            }
            None if self.base.is_none() => {
                dest.fill(0);
                Ok(())
            }
            None => self.with_inherited(offset, &mut |source| source.read(offset, dest)),
        }
    }

    /// Compares one piece, which is `at` bytes from the start of the whole.
    fn compare_locked(&self, offset: u64, data: &[u8], at: usize) -> Result<(), Status> {
        let mut difference = None;
        match self.allocated(offset) {
            Some(chunk) => {
                let start = self.layout().in_chunk(offset);
                // SAFETY: the caller holds a lock of the granule, and the slab is allocated.
                difference = unsafe { chunk.first_difference(start, data) };
            }
            None => self.with_inherited(offset, &mut |source| {
                difference = source.first_difference(offset, data);
            })?,
        }
        match difference {
            None => Ok(()),
            Some(byte) => Err(Status::Miscompare {
                offset_bytes: (at + byte) as u64,
            }),
        }
    }

    /// Makes the range zeros. A thin store frees what it can.
    fn clear(&self, range: ByteRange) -> Result<(), MemoryError> {
        match self.provision {
            Provision::Thin => self.vacate(range),
            Provision::Thick => self.zero_pieces(range),
        }
    }

    fn zero_pieces(&self, range: ByteRange) -> Result<(), MemoryError> {
        for piece in self.pieces(range.offset, range.len) {
            let lock = self.locks.write(self.layout().granule(piece.offset));
            if self.base.is_some() {
                self.zero_over_base(&lock, &piece)?;
            } else if let Some(chunk) = self.allocated(piece.offset) {
                self.preserve(self.newest(&lock, piece.offset), &piece)?;
                // SAFETY: the write lock is held, and the slab is allocated.
                unsafe { chunk.fill_zero(self.layout().in_chunk(piece.offset), piece.len) };
            }
        }
        Ok(())
    }

    /// Makes the range zeros and frees the slabs that contain nothing else in use.
    fn vacate(&self, range: ByteRange) -> Result<(), MemoryError> {
        let end = range.offset.saturating_add(range.len);
        // Where its base shows, a clone has zeros to note; beyond, only what it holds is not zeros.
        let shown_end = self.base_len_bytes().clamp(range.offset, end);
        self.zero_pieces(ByteRange {
            offset: range.offset,
            len: shown_end - range.offset,
        })?;
        self.vacate_slabs(shown_end..end)
    }

    fn vacate_slabs(&self, range: Range<u64>) -> Result<(), MemoryError> {
        let first = self.layout().slab_ceil(range.start).min(range.end);
        self.zero_pieces(ByteRange {
            offset: range.start,
            len: first - range.start,
        })?;
        self.free_slabs(first..range.end)
    }

    /// Frees the slabs of `range`, which starts at the start of a slab. If the last slab reaches
    /// beyond `range.end` and is in use there, it is only zeroed up to there.
    fn free_slabs(&self, range: Range<u64>) -> Result<(), MemoryError> {
        for (offset, chunk) in self.slabs.existing(range.clone()) {
            if chunk.is_allocated(self.layout().slab_in_chunk(offset)) {
                self.free_slab(chunk, offset, range.end)?;
            }
        }
        Ok(())
    }

    fn free_slab(&self, chunk: &Chunk, offset: u64, end: u64) -> Result<(), MemoryError> {
        let slab_bytes = self.layout().slab_bytes();
        self.preserve_range(offset..offset + slab_bytes)?;
        let first = self.layout().granule(offset);
        let locks = self
            .locks
            .write_all(first, self.layout().granules_per_slab());
        if offset + slab_bytes > end && self.len_bytes() > end {
            drop(locks);
            return self.zero_pieces(ByteRange {
                offset,
                len: end - offset,
            });
        }
        // What was written meanwhile, after yet another snapshot.
        let newest = self.newest(&locks, offset);
        for piece in self.pieces(offset, slab_bytes) {
            self.preserve(newest, &piece)?;
        }
        // SAFETY: the write locks of all granules of the slab are held.
        unsafe { self.slabs.free(chunk, offset) };
        Ok(())
    }

    /// Allocates and fills the slabs of `range`, which lies beyond the end, so that no other thread
    /// uses them.
    fn preallocate(
        &self,
        range: Range<u64>,
        progress: &mut dyn FnMut(Progress) -> ControlFlow<()>,
    ) -> Result<(), MemoryError> {
        let slab_bytes = self.layout().slab_bytes();
        let total_bytes = range.end.saturating_sub(range.start);
        // All is charged before any of it is filled.
        self.budget().try_charge(total_bytes)?;
        let mut prepaid_bytes = total_bytes;
        let mut fill = || {
            for offset in range.clone().step_by(slab_bytes as usize) {
                let done_bytes = offset - range.start;
                if done_bytes.is_multiple_of(SLABS_PER_REPORT * slab_bytes) {
                    let report = Progress {
                        done_bytes,
                        total_bytes,
                    };
                    if progress(report).is_break() {
                        return Err(MemoryError::Cancelled);
                    }
                }
                let chunk = self.slabs.allocate(offset, SlabCharge::Done)?;
                prepaid_bytes -= slab_bytes;
                chunk.populate(self.layout().slab_in_chunk(offset))?;
            }
            Ok(())
        };
        let filled = fill();
        if let Err(error) = filled {
            self.budget().refund(prepaid_bytes);
            for (offset, chunk) in self.slabs.existing(range) {
                // SAFETY: nobody else uses what lies beyond the end.
                unsafe { self.slabs.free(chunk, offset) };
            }
            return Err(error);
        }
        // Everything is allocated, so it is too late to cancel.
        let _: ControlFlow<()> = progress(Progress {
            done_bytes: total_bytes,
            total_bytes,
        });
        Ok(())
    }

    fn spans(&self, piece: &Piece, each: &mut dyn FnMut(RawSpan)) {
        if let Some(chunk) = self.allocated(piece.offset) {
            each(RawSpan {
                ptr: chunk.at(self.layout().in_chunk(piece.offset), piece.len),
                len: piece.len,
            });
            return;
        }
        assert!(!self.is_clone(), "a clone shows what is elsewhere");
        let mut left = piece.len;
        while left > 0 {
            let len = left.min(ZEROS_BYTES);
            each(RawSpan {
                ptr: ZEROS.as_ptr(),
                len,
            });
            left -= len;
        }
    }

    fn is_hole(&self, offset: u64) -> bool {
        self.allocated(offset).is_none() && !(self.is_clone() && self.backing(offset).allocated)
    }

    /// How many of `len` bytes from `offset` on are in the same slab.
    fn run_from(&self, offset: u64, len: u64) -> u64 {
        len.min(self.layout().slab_floor(offset) + self.layout().slab_bytes() - offset)
    }

    /// How many of `len` bytes before `end` are in the same slab.
    fn run_to(&self, end: u64, len: u64) -> u64 {
        len.min(end - self.layout().slab_floor(end - 1))
    }
}

/// Ends a pin.
struct Pinned<'a> {
    store: &'a Store,
    range: ByteRange,
}

impl Drop for Pinned<'_> {
    fn drop(&mut self) {
        self.store.unpin(self.range);
    }
}

#[cfg(test)]
mod tests;
