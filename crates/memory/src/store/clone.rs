//! A store over a snapshot: a clone. It shows the snapshot where it holds nothing itself. Its slabs
//! and granules are what snapshots copy at a time. A write to a part of one copies the rest first.
//!
//! Locks are taken from a clone to the origin of its snapshot, never the other way, so a thread
//! that holds a lock waits for one below it alone.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use block::Status;

use super::backing::Backing;
use super::snapshot::{Snapshot, Source};
use super::{Provision, Store};
use crate::MemoryError;
use crate::chunk::{Chunk, Mark, Slab};
use crate::layout::Piece;
use crate::locks::WriteGuard;
use crate::slabs::SlabCharge;

/// What a clone shows where it holds nothing.
#[derive(Debug)]
pub(super) struct Base {
    snapshot: Arc<Snapshot>,
    /// Beyond this the clone shows zeros. Who has control of the clone changes it.
    len_bytes: AtomicU64,
}

impl Base {
    fn len_bytes(&self) -> u64 {
        self.len_bytes.load(Ordering::Acquire)
    }
}

impl Store {
    /// The most snapshots below one another: a read of a clone may pass through all of them.
    pub const DEPTH_MAX: usize = 16;

    /// An empty store over a snapshot, which it shows up to `len_bytes` where it holds nothing
    /// itself. It is charged to the same budget. [`resize`](Self::resize) sets its length.
    ///
    /// # Errors
    /// If too many snapshots lie below one another.
    pub fn over(snapshot: Arc<Snapshot>, len_bytes: u64) -> Result<Self, MemoryError> {
        if snapshot.depth() > Self::DEPTH_MAX {
            return Err(MemoryError::TooDeep {
                max: Self::DEPTH_MAX,
            });
        }
        let origin = snapshot.origin();
        let (budget, layout) = (Arc::clone(origin.budget()), origin.layout().of_copies());
        let len_bytes = AtomicU64::new(len_bytes.min(snapshot.len_bytes()));
        Ok(Self {
            base: Some(Base {
                snapshot,
                len_bytes,
            }),
            ..Self::new(budget, Provision::Thin, layout)
        })
    }

    /// The snapshot that it is over, if it is a clone.
    pub fn base(&self) -> Option<&Arc<Snapshot>> {
        self.base.as_ref().map(|base| &base.snapshot)
    }

    /// How many snapshots lie below it.
    pub(super) fn depth(&self) -> usize {
        self.base.as_ref().map_or(0, |base| base.snapshot.depth())
    }

    /// How much of its base shows where it holds nothing.
    pub(super) fn base_len_bytes(&self) -> u64 {
        self.base.as_ref().map_or(0, Base::len_bytes)
    }

    /// Shows its base up to `len_bytes`, where it holds nothing itself.
    pub(super) fn set_base_len(&self, len_bytes: u64) {
        if let Some(base) = &self.base {
            base.len_bytes.store(len_bytes, Ordering::Release);
        }
    }

    /// Calls `then` with what the granule of `offset` shows, which has no memory here. The caller
    /// holds a lock of it.
    pub(super) fn with_inherited(
        &self,
        offset: u64,
        then: &mut dyn FnMut(Source<'_>),
    ) -> Result<(), Status> {
        let bound = match self.slabs.slab(offset) {
            Slab::Vacant => self.base_len_bytes(),
            _ => 0,
        };
        self.with_base(offset, bound, then)
    }

    /// Calls `then` with what the base shows in the granule of `offset`, and zeros from `bound` on.
    pub(super) fn with_base(
        &self,
        offset: u64,
        bound: u64,
        then: &mut dyn FnMut(Source<'_>),
    ) -> Result<(), Status> {
        match &self.base {
            Some(base) if self.layout().granule_floor(offset) < bound => {
                let snapshot = &base.snapshot;
                snapshot.with_source(offset, &mut |source| then(source.up_to(bound)))
            }
            _ => {
                then(Source::zeros(self.layout()));
                Ok(())
            }
        }
    }

    /// Allocates the slab of `offset`, which has no memory. It holds what has shown there. The
    /// caller holds the write lock of one of its granules.
    #[cold]
    pub(super) fn allocate_new(&self, offset: u64) -> Result<&Chunk, MemoryError> {
        let Some(base) = &self.base else {
            return self.slabs.allocate(offset, SlabCharge::Due);
        };
        let start = self.layout().granule_floor(offset);
        let len = self.layout().granule_bytes() as usize;
        let bound = match self.slabs.slab(offset) {
            Slab::Vacant => base.len_bytes(),
            _ => 0,
        };
        let chunk = self.slabs.allocate(offset, SlabCharge::Due)?;
        let filled = self.with_base(start, bound, &mut |source| {
            // SAFETY: the write lock is held, and the granule has just been allocated, so it has
            // zeros.
            unsafe { source.copy_to(chunk, start, len) };
        });
        if filled.is_err() {
            // SAFETY: the write lock is held, and the granule is the slab.
            unsafe { self.slabs.free(chunk, start) };
            return Err(MemoryError::Closed);
        }
        Ok(chunk)
    }

    /// Makes a piece zeros. A whole granule takes no memory then.
    pub(super) fn zero_over_base(
        &self,
        lock: &WriteGuard<'_>,
        piece: &Piece,
    ) -> Result<(), MemoryError> {
        let slab = self.slabs.slab(piece.offset);
        let shows_zeros = match slab {
            Slab::Allocated(_) => false,
            Slab::Marked(_) => true,
            Slab::Vacant => {
                piece.offset >= self.base_len_bytes() || !self.backing(piece.offset).allocated
            }
        };
        if shows_zeros {
            return Ok(());
        }
        self.preserve(self.newest(lock, piece.offset), piece)?;
        if (piece.len as u64) < self.layout().granule_bytes() {
            let chunk = self.allocate(piece.offset)?;
            // SAFETY: the write lock is held, and the slab is allocated.
            unsafe { chunk.fill_zero(self.layout().in_chunk(piece.offset), piece.len) };
            return Ok(());
        }
        if let Slab::Allocated(chunk) = slab {
            // SAFETY: the write lock is held, and the granule is the slab.
            unsafe { self.slabs.free(chunk, piece.offset) };
        }
        // If the host has not freed it, it holds zeros.
        match self.slabs.slab(piece.offset) {
            Slab::Allocated(_) => Ok(()),
            _ => self.slabs.mark(piece.offset, Mark::Zeros),
        }
    }

    /// How the byte at `offset` is backed.
    pub(super) fn backing(&self, offset: u64) -> Backing {
        let below = || self.base_backing(offset, self.base_len_bytes());
        let Some(chunk) = self.slabs.chunk(offset) else {
            return below();
        };
        let allocated = match chunk.slab(self.layout().slab_in_chunk(offset)) {
            Slab::Allocated(_) => true,
            Slab::Marked(_) => false,
            Slab::Vacant => below().allocated,
        };
        Backing {
            allocated,
            step_bytes: self.layout().slab_bytes(),
        }
    }

    /// How the granule of `offset` is backed in the base, of which `bound` bytes show.
    pub(super) fn base_backing(&self, offset: u64, bound: u64) -> Backing {
        match &self.base {
            Some(base) if self.layout().granule_floor(offset) < bound => {
                base.snapshot.backing(offset)
            }
            _ => Backing {
                allocated: false,
                step_bytes: self.layout().chunk_bytes(),
            },
        }
    }
}
