//! The memory of a volume: sparse, shared by threads, and resizable while in use.

use std::fmt;
use std::ops::{ControlFlow, Range};
use std::str::FromStr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use block::{Allocation, ByteRange, RawSpan, Status};

use crate::chunk::Chunk;
use crate::directory::Directory;
use crate::locks::LockTable;
use crate::{Budget, Layout};

/// The longest span of bytes that were never written.
const ZEROS_BYTES: usize = 64 << 10;
/// What bytes that were never written read as.
static ZEROS: [u8; ZEROS_BYTES] = [0; ZEROS_BYTES];
/// A copy inside a store moves this much at a time, through the stack.
const COPY_BYTES: usize = 16 << 10;
/// The most slabs, or chunks that do not exist, that one query of the allocation visits.
const ALLOCATION_STEPS_MAX: usize = 1024;
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

/// Why an allocation failed.
#[derive(Debug, thiserror::Error)]
pub enum MemoryError {
    /// The budget has no room.
    #[error(
        "{wanted_bytes} bytes are needed, but only {free_bytes} of {total_bytes} bytes of the memory budget are free; \
         remove or shrink volumes, or raise --memory"
    )]
    OverBudget {
        /// The requested bytes.
        wanted_bytes: u64,
        /// The free bytes.
        free_bytes: u64,
        /// The limit in bytes.
        total_bytes: u64,
    },
    /// The host refused memory or address space.
    #[error(
        "the system refused to allocate memory: {0}; check vm.overcommit_memory, vm.max_map_count and ulimit -v"
    )]
    Host(#[source] std::io::Error),
    /// A store cannot be this long.
    #[error("{wanted_bytes} bytes are too many; a volume has at most {max_bytes} bytes")]
    TooLong {
        /// The requested bytes.
        wanted_bytes: u64,
        /// The longest store in bytes.
        max_bytes: u64,
    },
    /// The store was closed.
    #[error("the volume was removed")]
    Closed,
    /// The progress callback cancelled the allocation.
    #[error("allocation was cancelled")]
    Cancelled,
}

/// A volume's memory. All offsets and lengths are bytes; operations are atomic per granule (see
/// [`Layout`]), so per block. Whatever was not written reads as zeros.
#[derive(Debug)]
pub struct Store {
    layout: Layout,
    provision: Provision,
    budget: Arc<Budget>,
    /// Writers check it under their lock, so that after a shrink nothing is written beyond the end.
    len_bytes: AtomicU64,
    allocated_bytes: AtomicU64,
    locks: LockTable,
    chunks: Directory,
    /// Resize, erase and close exclude each other.
    control: Mutex<Life>,
}

/// Whether a store may still have a length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Life {
    Open,
    Closed,
}

/// Whether a slab must still be charged to the budget.
#[derive(Clone, Copy)]
enum SlabCharge {
    Due,
    Done,
}

/// A run of bytes inside one granule.
struct Piece {
    offset: u64,
    len: usize,
}

impl Store {
    /// An empty store. [`resize`](Self::resize) sets its length.
    pub fn new(budget: Arc<Budget>, provision: Provision, layout: Layout) -> Self {
        Self {
            layout,
            provision,
            budget,
            len_bytes: AtomicU64::new(0),
            allocated_bytes: AtomicU64::new(0),
            locks: LockTable::new(layout.locks()),
            chunks: Directory::default(),
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
        self.allocated_bytes.load(Ordering::Relaxed)
    }

    /// When the store allocates its memory.
    pub fn provision(&self) -> Provision {
        self.provision
    }

    /// The sizes in which it reserves, allocates and locks.
    pub fn layout(&self) -> Layout {
        self.layout
    }

    /// The budget that it charges.
    pub fn budget(&self) -> &Arc<Budget> {
        &self.budget
    }

    /// Whether the start of `range` is allocated, and for at least how many bytes that holds.
    pub fn allocation(&self, range: ByteRange) -> Allocation {
        let end = range.offset.saturating_add(range.len);
        let allocated = self.allocated(range.offset).is_some();
        let mut at = range.offset;
        for _ in 0..ALLOCATION_STEPS_MAX {
            if at >= end || self.allocated(at).is_some() != allocated {
                break;
            }
            let step_bytes = match self.chunks.get(self.layout.chunk(at)) {
                Some(_) => self.layout.slab_bytes(),
                None => self.layout.chunk_bytes(),
            };
            at = (at & !(step_bytes - 1)).saturating_add(step_bytes);
        }
        Allocation {
            allocated,
            len_bytes: at.min(end) - range.offset,
        }
    }

    /// Prefetches bytes that an operation soon needs into the processor's cache. Changes nothing
    /// and takes no lock. Ranges that do not exist or are not allocated are ignored.
    pub fn prefetch(&self, range: ByteRange) {
        let first = self.pieces(range.offset, range.len).next();
        let Some(piece) = first else { return };
        if let Some(chunk) = self.allocated(piece.offset) {
            chunk.prefetch(self.layout.in_chunk(piece.offset), piece.len);
        }
    }

    /// Copies the bytes from `offset` on into `dest`.
    pub fn read(&self, offset: u64, dest: &mut [u8]) -> Result<(), Status> {
        self.check(offset, dest.len() as u64)?;
        let mut rest = dest;
        for piece in self.pieces(offset, rest.len() as u64) {
            let (dest, later) = rest.split_at_mut(piece.len);
            let _lock = self.locks.read(self.layout.granule(piece.offset));
            self.copy_out_locked(piece.offset, dest);
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
            let _lock = self.locks.write(self.layout.granule(piece.offset));
            self.check(piece.offset, piece.len as u64)?;
            let chunk = self.allocate(piece.offset)?;
            // SAFETY: the write lock is held, and the slab has just been found allocated.
            unsafe { chunk.copy_in(self.layout.in_chunk(piece.offset), data) };
            rest = later;
        }
        Ok(())
    }

    /// Zeroes bytes without freeing memory.
    pub fn zero(&self, range: ByteRange) -> Result<(), Status> {
        self.check(range.offset, range.len)?;
        self.zero_pieces(range);
        Ok(())
    }

    /// Makes bytes read as zeros. A thin store frees the slabs that lie inside the range as a
    /// whole.
    pub fn discard(&self, range: ByteRange) -> Result<(), Status> {
        self.check(range.offset, range.len)?;
        match self.provision {
            Provision::Thin => self.vacate(range),
            Provision::Thick => self.zero_pieces(range),
        }
        Ok(())
    }

    /// Compares `data` with the bytes from `offset` on.
    pub fn compare(&self, offset: u64, data: &[u8]) -> Result<(), Status> {
        self.check(offset, data.len() as u64)?;
        for piece in self.pieces(offset, data.len() as u64) {
            let at = (piece.offset - offset) as usize;
            let _lock = self.locks.read(self.layout.granule(piece.offset));
            self.compare_locked(piece.offset, &data[at..at + piece.len], at)?;
        }
        Ok(())
    }

    /// If the bytes from `offset` on equal `compare`, writes `write` there: all or nothing, and
    /// atomic towards every other operation. Both must have the same length.
    pub fn compare_and_write(
        &self,
        offset: u64,
        compare: &[u8],
        write: &[u8],
    ) -> Result<(), Status> {
        if compare.len() != write.len() {
            return Err(Status::Invalid);
        }
        let len = compare.len() as u64;
        self.check(offset, len)?;
        if len == 0 {
            return Ok(());
        }
        let first = self.layout.granule(offset);
        let last = self.layout.granule(offset + len - 1);
        let _locks = self.locks.write_all(first, last - first + 1);
        self.check(offset, len)?;
        for piece in self.pieces(offset, len) {
            let at = (piece.offset - offset) as usize;
            self.compare_locked(piece.offset, &compare[at..at + piece.len], at)?;
        }
        // Allocate everything first, so that a full budget leaves every block old.
        for piece in self.pieces(offset, len) {
            self.allocate(piece.offset)?;
        }
        for piece in self.pieces(offset, len) {
            let at = (piece.offset - offset) as usize;
            let chunk = self.allocate(piece.offset)?;
            let data = &write[at..at + piece.len];
            // SAFETY: the write locks of all pieces are held, and the slab is allocated.
            unsafe { chunk.copy_in(self.layout.in_chunk(piece.offset), data) };
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
            self.locks.pin(self.layout.granule(piece.offset));
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
            self.locks.unpin(self.layout.granule(piece.offset));
        }
    }

    /// Makes all bytes zeros. A thin store frees all its memory.
    pub fn erase(&self) {
        let _control = self.control();
        let all = ByteRange {
            offset: 0,
            len: self.len_bytes(),
        };
        match self.provision {
            Provision::Thin => self.vacate(all),
            Provision::Thick => self.zero_pieces(all),
        }
    }

    /// Changes the length while the store is in use. A thick store that grows allocates and fills
    /// the new memory before the length changes, reports to `progress` meanwhile, and frees it
    /// again if that fails. A shrink frees memory at once; bytes beyond the end are lost. Do not
    /// call it on a thread that must not wait.
    pub fn resize(
        &self,
        len_bytes: u64,
        progress: &mut dyn FnMut(Progress) -> ControlFlow<()>,
    ) -> Result<(), MemoryError> {
        let max_bytes = Directory::CHUNKS_MAX * self.layout.chunk_bytes();
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
        if len_bytes < old_bytes {
            self.truncate(len_bytes);
            return Ok(());
        }
        if self.provision == Provision::Thick {
            let new = self.layout.slab_ceil(old_bytes)..self.layout.slab_ceil(len_bytes);
            self.preallocate(new, progress)?;
        }
        self.len_bytes.store(len_bytes, Ordering::Release);
        Ok(())
    }

    /// Makes the store empty for good and frees all memory, even while others still refer to the
    /// store.
    pub fn close(&self) {
        let mut life = self.control();
        *life = Life::Closed;
        self.truncate(0);
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        self.budget.refund(self.allocated_bytes());
    }
}

impl Store {
    fn control(&self) -> MutexGuard<'_, Life> {
        // A panic under the mutex cannot leave its value half changed.
        self.control.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lowers the length. The caller holds `control`.
    fn truncate(&self, len_bytes: u64) {
        let old_bytes = self.len_bytes.swap(len_bytes, Ordering::AcqRel);
        // Writers that checked the old length under a lock have finished after this, and later ones
        // see the new length.
        self.locks.await_writers();
        self.vacate(ByteRange {
            offset: len_bytes,
            len: self.layout.slab_ceil(old_bytes) - len_bytes,
        });
    }

    fn check(&self, offset: u64, len: u64) -> Result<(), Status> {
        match offset.checked_add(len) {
            Some(end) if end <= self.len_bytes() => Ok(()),
            _ => Err(Status::LbaOutOfRange),
        }
    }

    /// The run of bytes, cut at granules.
    fn pieces(&self, offset: u64, len: u64) -> impl Iterator<Item = Piece> + use<> {
        let granule_bytes = self.layout.granule_bytes();
        let end = offset.saturating_add(len);
        let mut at = offset;
        std::iter::from_fn(move || {
            if at >= end {
                return None;
            }
            let next = ((at | (granule_bytes - 1)).saturating_add(1)).min(end);
            let piece = Piece {
                offset: at,
                len: (next - at) as usize,
            };
            at = next;
            Some(piece)
        })
    }

    /// The chunk of `offset` if the slab there is allocated. This stays true while a lock of the
    /// granule is held.
    fn allocated(&self, offset: u64) -> Option<&Chunk> {
        self.chunks
            .get(self.layout.chunk(offset))
            .filter(|chunk| chunk.is_allocated(self.layout.slab_in_chunk(offset)))
    }

    /// Allocates the slab of `offset` if it is not allocated. The caller holds the write lock of
    /// one of its granules.
    fn allocate(&self, offset: u64) -> Result<&Chunk, Status> {
        if let Some(chunk) = self.allocated(offset) {
            return Ok(chunk);
        }
        self.allocate_slab(offset, SlabCharge::Due)
            .map_err(|error| {
                if matches!(error, MemoryError::OverBudget { .. }) {
                    self.budget.note_failed_write();
                }
                Status::CapacityExceeded
            })
    }

    #[cold]
    fn allocate_slab(&self, offset: u64, slab_charge: SlabCharge) -> Result<&Chunk, MemoryError> {
        let chunk = self.chunks.get_or_try_make(self.layout.chunk(offset), || {
            Chunk::reserve(self.layout, &self.budget)
        })?;
        let slab_bytes = self.layout.slab_bytes();
        let charge = || match slab_charge {
            SlabCharge::Due => self.budget.try_charge(slab_bytes),
            SlabCharge::Done => Ok(()),
        };
        let refund = || match slab_charge {
            SlabCharge::Due => self.budget.refund(slab_bytes),
            SlabCharge::Done => {}
        };
        let slab = self.layout.slab_in_chunk(offset);
        let had = !chunk.allocate(slab, charge, refund)?;
        match slab_charge {
            SlabCharge::Done if had => self.budget.refund(slab_bytes),
            _ if had => {}
            _ => {
                self.allocated_bytes
                    .fetch_add(slab_bytes, Ordering::Relaxed);
            }
        }
        Ok(chunk)
    }

    fn copy_out_locked(&self, offset: u64, dest: &mut [u8]) {
        match self.allocated(offset) {
            // SAFETY: the caller holds a lock of the granule, and the slab is allocated.
            Some(chunk) => unsafe { chunk.copy_out(self.layout.in_chunk(offset), dest) },
            None => dest.fill(0),
        }
    }

    /// Compares one piece, which is `at` bytes from the start of the whole.
    fn compare_locked(&self, offset: u64, data: &[u8], at: usize) -> Result<(), Status> {
        let difference = match self.allocated(offset) {
            // SAFETY: the caller holds a lock of the granule, and the slab is allocated.
            Some(chunk) => unsafe { chunk.first_difference(self.layout.in_chunk(offset), data) },
            None => data.iter().position(|&byte| byte != 0),
        };
        match difference {
            None => Ok(()),
            Some(byte) => Err(Status::Miscompare {
                offset_bytes: (at + byte) as u64,
            }),
        }
    }

    fn zero_pieces(&self, range: ByteRange) {
        for piece in self.pieces(range.offset, range.len) {
            let _lock = self.locks.write(self.layout.granule(piece.offset));
            if let Some(chunk) = self.allocated(piece.offset) {
                // SAFETY: the write lock is held, and the slab is allocated.
                unsafe { chunk.fill_zero(self.layout.in_chunk(piece.offset), piece.len) };
            }
        }
    }

    /// Makes the range zeros and frees the slabs that contain nothing else in use.
    fn vacate(&self, range: ByteRange) {
        let end = range.offset.saturating_add(range.len);
        let first = self.layout.slab_ceil(range.offset);
        if first >= end {
            self.zero_pieces(range);
            return;
        }
        self.zero_pieces(ByteRange {
            offset: range.offset,
            len: first - range.offset,
        });
        self.free_slabs(first..end);
    }

    /// Frees the slabs of `range`, which starts at the start of a slab. If the last slab reaches
    /// beyond `range.end` and is in use there, it is only zeroed up to there. Chunks that do not
    /// exist cost nothing.
    fn free_slabs(&self, range: Range<u64>) {
        let chunk_bytes = self.layout.chunk_bytes();
        for (number, chunk) in self.chunks.existing_from(self.layout.chunk(range.start)) {
            let chunk_start = number * chunk_bytes;
            if chunk_start >= range.end {
                return;
            }
            let start = chunk_start.max(range.start);
            let end = (chunk_start + chunk_bytes).min(range.end);
            for offset in (start..end).step_by(self.layout.slab_bytes() as usize) {
                self.free_slab(chunk, offset, range.end);
            }
        }
    }

    fn free_slab(&self, chunk: &Chunk, offset: u64, end: u64) {
        let slab_bytes = self.layout.slab_bytes();
        let slab = self.layout.slab_in_chunk(offset);
        if !chunk.is_allocated(slab) {
            return;
        }
        let first = self.layout.granule(offset);
        let locks = self.locks.write_all(first, self.layout.granules_per_slab());
        if offset + slab_bytes > end && self.len_bytes() > end {
            drop(locks);
            self.zero_pieces(ByteRange {
                offset,
                len: end - offset,
            });
            return;
        }
        // SAFETY: the write locks of all granules of the slab are held.
        let freed = unsafe { chunk.free(slab) };
        drop(locks);
        if freed {
            self.allocated_bytes
                .fetch_sub(slab_bytes, Ordering::Relaxed);
            self.budget.refund(slab_bytes);
        }
    }

    /// Allocates and fills the slabs of `range`, which lies beyond the end, so that no other thread
    /// uses them.
    fn preallocate(
        &self,
        range: Range<u64>,
        progress: &mut dyn FnMut(Progress) -> ControlFlow<()>,
    ) -> Result<(), MemoryError> {
        let slab_bytes = self.layout.slab_bytes();
        let total_bytes = range.end.saturating_sub(range.start);
        // All is charged before any of it is filled.
        self.budget.try_charge(total_bytes)?;
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
                let chunk = self.allocate_slab(offset, SlabCharge::Done)?;
                prepaid_bytes -= slab_bytes;
                chunk.populate(self.layout.slab_in_chunk(offset))?;
            }
            Ok(())
        };
        let filled = fill();
        if let Err(error) = filled {
            self.budget.refund(prepaid_bytes);
            self.free_slabs(range);
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
                ptr: chunk.at(self.layout.in_chunk(piece.offset), piece.len),
                len: piece.len,
            });
            return;
        }
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
        self.allocated(offset).is_none()
    }

    /// How many of `len` bytes from `offset` on are in the same slab.
    fn run_from(&self, offset: u64, len: u64) -> u64 {
        len.min(self.layout.slab_floor(offset) + self.layout.slab_bytes() - offset)
    }

    /// How many of `len` bytes before `end` are in the same slab.
    fn run_to(&self, end: u64, len: u64) -> u64 {
        len.min(end - self.layout.slab_floor(end - 1))
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
