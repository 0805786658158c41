//! Sparse memory without locks: what a store and the layers of its snapshots consist of.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::chunk::{Chunk, Mark, Slab};
use crate::directory::Directory;
use crate::{Budget, Layout, MemoryError};

/// Slabs by offset. Memory is charged to the budget by the slab, until it is freed or this drops.
#[derive(Debug)]
pub(crate) struct Slabs {
    layout: Layout,
    budget: Arc<Budget>,
    allocated_bytes: AtomicU64,
    chunks: Directory,
}

/// Who charges a slab to the budget.
#[derive(Clone, Copy)]
pub(crate) enum SlabCharge {
    /// The allocation.
    Due,
    /// The caller has done so; the allocation refunds the charge if the slab has memory already.
    Done,
}

impl Slabs {
    pub(crate) fn new(budget: Arc<Budget>, layout: Layout) -> Self {
        Self {
            layout,
            budget,
            allocated_bytes: AtomicU64::new(0),
            chunks: Directory::default(),
        }
    }

    pub(crate) fn layout(&self) -> Layout {
        self.layout
    }

    pub(crate) fn budget(&self) -> &Arc<Budget> {
        &self.budget
    }

    /// The allocated memory in bytes, as charged to the budget: whole slabs.
    pub(crate) fn allocated_bytes(&self) -> u64 {
        self.allocated_bytes.load(Ordering::Relaxed)
    }

    /// The chunk of `offset` if the slab there is allocated. This stays true while a lock of the
    /// granule is held.
    pub(crate) fn allocated(&self, offset: u64) -> Option<&Chunk> {
        self.chunk(offset)
            .filter(|chunk| chunk.is_allocated(self.layout.slab_in_chunk(offset)))
    }

    /// What the slab of `offset` holds. This stays true while a lock of the granule is held.
    pub(crate) fn slab(&self, offset: u64) -> Slab<'_> {
        self.chunk(offset).map_or(Slab::Vacant, |chunk| {
            chunk.slab(self.layout.slab_in_chunk(offset))
        })
    }

    /// The chunk of `offset`, if it exists.
    pub(crate) fn chunk(&self, offset: u64) -> Option<&Chunk> {
        self.chunks.get(self.layout.chunk(offset))
    }

    /// The starts of the slabs in `range`, which starts at the start of a slab, with their chunks.
    /// Chunks that do not exist cost nothing.
    pub(crate) fn existing(
        &self,
        range: std::ops::Range<u64>,
    ) -> impl Iterator<Item = (u64, &Chunk)> {
        let chunk_bytes = self.layout.chunk_bytes();
        let slab_bytes = self.layout.slab_bytes() as usize;
        self.chunks
            .existing_from(self.layout.chunk(range.start))
            .map(move |(number, chunk)| (number * chunk_bytes, chunk))
            .take_while(move |&(chunk_start, _)| chunk_start < range.end)
            .flat_map(move |(chunk_start, chunk)| {
                let start = chunk_start.max(range.start);
                let end = (chunk_start + chunk_bytes).min(range.end);
                (start..end)
                    .step_by(slab_bytes)
                    .map(move |offset| (offset, chunk))
            })
    }

    /// Allocates the slab of `offset` if it is not allocated. The caller holds the write lock of
    /// one of its granules, or owns the slab otherwise.
    #[cold]
    pub(crate) fn allocate(
        &self,
        offset: u64,
        slab_charge: SlabCharge,
    ) -> Result<&Chunk, MemoryError> {
        let chunk = self.make_chunk(offset)?;
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

    /// Marks the slab of `offset`, which has no memory.
    ///
    /// Slabs are granules or lie inside of one, and the caller holds its write lock.
    pub(crate) fn mark(&self, offset: u64, mark: Mark) -> Result<(), MemoryError> {
        assert!(
            self.layout.granules_per_slab() == 1,
            "only granules are marked"
        );
        let chunk = self.make_chunk(offset)?;
        chunk.mark(self.layout.slab_in_chunk(offset), mark);
        Ok(())
    }

    /// Frees the slab of `offset` in `chunk`. It stays allocated, with zeros, if the host does not
    /// free its memory.
    ///
    /// # Safety
    ///
    /// The caller holds the write locks of all granules of the slab, or owns the slab otherwise.
    pub(crate) unsafe fn free(&self, chunk: &Chunk, offset: u64) {
        let slab_bytes = self.layout.slab_bytes();
        // SAFETY: the caller's.
        if unsafe { chunk.free(self.layout.slab_in_chunk(offset)) } {
            self.allocated_bytes
                .fetch_sub(slab_bytes, Ordering::Relaxed);
            self.budget.refund(slab_bytes);
        }
    }

    /// Frees all slabs, much faster than one by one. What the host does not free stays allocated.
    ///
    /// # Safety
    ///
    /// Nobody else uses these slabs.
    pub(crate) unsafe fn clear(&self) {
        for (_, chunk) in self.chunks.existing_from(0) {
            // SAFETY: the caller's.
            let freed_bytes = unsafe { chunk.free_all() } * self.layout.slab_bytes();
            self.allocated_bytes
                .fetch_sub(freed_bytes, Ordering::Relaxed);
            self.budget.refund(freed_bytes);
        }
    }

    /// Moves the slab of `offset` to `to`, which has none there, and its charge with it.
    ///
    /// # Errors
    /// If the host refused memory. Nothing was moved then.
    ///
    /// # Safety
    ///
    /// The caller holds the write locks of all granules of the slab, in both.
    pub(crate) unsafe fn transfer(&self, offset: u64, to: &Self) -> Result<(), MemoryError> {
        let Some(from) = self.allocated(offset) else {
            return Ok(());
        };
        let slab_bytes = self.layout.slab_bytes();
        let slab = self.layout.slab_in_chunk(offset);
        let new = to.allocate(offset, SlabCharge::Done)?;
        let start = self.layout.in_chunk(offset);
        // SAFETY: the caller's.
        unsafe { new.copy_from(from, start, slab_bytes as usize) };
        // SAFETY: the caller's. If the host does not free the memory yet, it does when the chunk is
        // unmapped.
        let _is_free = unsafe { from.free(slab) };
        self.allocated_bytes
            .fetch_sub(slab_bytes, Ordering::Relaxed);
        Ok(())
    }

    fn make_chunk(&self, offset: u64) -> Result<&Chunk, MemoryError> {
        self.chunks.get_or_try_make(self.layout.chunk(offset), || {
            Chunk::reserve(self.layout, &self.budget)
        })
    }
}

impl Drop for Slabs {
    fn drop(&mut self) {
        self.budget.refund(self.allocated_bytes());
    }
}
