//! What snapshots keep of their origin, and in which order they were taken.
//!
//! ```text
//!  oldest ──► … ──► newest ──► the origin as it is now
//!  layer            layer      Store
//! ```
//!
//! A layer consists of copies: each is what some bytes were, a part of a granule of the origin,
//! before their first change after the snapshot. Bytes that a layer does not hold have not changed
//! before the next snapshot, so they are looked up in the next newer layer, and at last in the
//! origin. The locks of the origin's granules guard its layers, too.

use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

use super::changes::ChangeMap;
use crate::chunk::{Mark, Slab};
use crate::locks::Guard;
use crate::slabs::{SlabCharge, Slabs};
use crate::{Budget, Layout, MemoryError};

/// The moment of one or several snapshots, of one or several stores: all begin at once.
///
/// Why this is consistent: each write looks at the cut of the newest layer while it holds its
/// granule's lock, and belongs to the snapshot if the cut is not taken yet. If write A has ended
/// before write B begins, A has looked before B. So if B belongs to the snapshots, A does too,
/// whichever stores they change.
#[derive(Debug, Default)]
pub(super) struct Cut(AtomicBool);

impl Cut {
    /// Begins all snapshots of this cut.
    pub(super) fn take(&self) {
        // A thread that sees the cut taken sees all its layers, too, which were published before.
        self.0.store(true, Ordering::Release);
    }
}

/// Who fails if the budget has no room for what a snapshot has to keep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Keeping {
    /// The write: the snapshot stays what it is.
    Always,
    /// The snapshot: it is retired, already when fewer bytes than these are free.
    WhileFree(u64),
}

/// What one snapshot keeps.
#[derive(Debug)]
pub(super) struct Layer {
    keeping: Keeping,
    cut: Arc<Cut>,
    /// The snapshot was removed. The layer stays until older ones hold what they need of it.
    retired: AtomicBool,
    /// The length of the snapshot.
    pub(super) len_bytes: u64,
    /// How much of its base the origin showed at the cut.
    pub(super) base_len_bytes: u64,
    /// The copies. A vacant one is looked up in newer layers. [`Mark::Inherited`]: the origin held
    /// nothing, so its base shows, or zeros.
    pub(super) slabs: Slabs,
}

impl Layer {
    pub(super) fn new(
        keeping: Keeping,
        cut: &Arc<Cut>,
        [len_bytes, base_len_bytes]: [u64; 2],
        budget: &Arc<Budget>,
        layout: Layout,
    ) -> Self {
        Self {
            keeping,
            cut: Arc::clone(cut),
            retired: AtomicBool::new(false),
            len_bytes,
            base_len_bytes,
            slabs: Slabs::new(Arc::clone(budget), layout.of_copies()),
        }
    }

    /// Whether it holds what stood at `offset` at the cut.
    pub(super) fn holds(&self, offset: u64) -> bool {
        !matches!(self.slabs.slab(offset), Slab::Vacant)
    }

    pub(super) fn is_retired(&self) -> bool {
        self.retired.load(Ordering::Relaxed)
    }

    pub(super) fn retire(&self) {
        self.retired.store(true, Ordering::Relaxed);
    }

    fn is_live(&self) -> bool {
        self.cut.0.load(Ordering::Acquire) && !self.is_retired()
    }

    /// Whether it is given up rather than that a write fails.
    pub(super) fn is_temporary(&self) -> bool {
        self.keeping != Keeping::Always
    }

    /// Keeps the copy of `offset`, which is part of a slab of the origin. The caller holds its
    /// write lock.
    pub(super) fn keep(&self, offset: u64, origin: Slab<'_>) -> Result<(), MemoryError> {
        if let Keeping::WhileFree(reserve_bytes) = self.keeping {
            self.slabs.budget().check_free(reserve_bytes)?;
        }
        let layout = self.slabs.layout();
        let (at, len) = (layout.in_chunk(offset), layout.granule_bytes() as usize);
        match origin {
            Slab::Vacant => self.slabs.mark(offset, Mark::Inherited),
            Slab::Marked(mark) => self.slabs.mark(offset, mark),
            // SAFETY: the caller holds a lock of the bytes, and they are allocated.
            Slab::Allocated(from) if unsafe { from.is_zero(at, len) } => {
                self.slabs.mark(offset, Mark::Zeros)
            }
            Slab::Allocated(from) => {
                let to = self.slabs.allocate(offset, SlabCharge::Due)?;
                // SAFETY: the caller holds the write lock, which guards the layer, too.
                unsafe { to.copy_from(from, at, len) };
                Ok(())
            }
        }
    }

    /// Gives a copy that it holds to the next older layer, if that needs it. Nothing is charged for
    /// that. The caller holds its write lock.
    ///
    /// # Errors
    /// If the host refused memory. Nothing was given then.
    pub(super) fn give(&self, offset: u64, older: &Self) -> Result<(), MemoryError> {
        if older.holds(offset) {
            return Ok(());
        }
        match self.slabs.slab(offset) {
            Slab::Vacant => Ok(()),
            Slab::Marked(mark) => older.slabs.mark(offset, mark),
            // SAFETY: the caller holds the write lock of the copy, which is the slab.
            Slab::Allocated(_) => unsafe { self.slabs.transfer(offset, &older.slabs) },
        }
    }
}

/// The layers of a store, oldest first, and what notes its changes; at least one of either.
#[derive(Debug)]
pub(super) struct Chain {
    pub(super) layers: Vec<Arc<Layer>>,
    /// The longest of them: nothing beyond is kept.
    len_bytes: u64,
    pub(super) maps: Vec<Arc<ChangeMap>>,
}

impl Chain {
    /// `None` for neither layers nor maps.
    pub(super) fn new(layers: Vec<Arc<Layer>>, maps: Vec<Arc<ChangeMap>>) -> Option<Self> {
        let len_bytes = layers.iter().map(|layer| layer.len_bytes).max();
        (len_bytes.is_some() || !maps.is_empty()).then(|| Self {
            layers,
            len_bytes: len_bytes.unwrap_or(0),
            maps,
        })
    }

    /// Of `layers`, `layer` and all newer ones; none if the layer was removed.
    pub(super) fn since<'a>(layers: &'a [Arc<Layer>], layer: &Layer) -> &'a [Arc<Layer>] {
        let is_it = |other: &Arc<Layer>| ptr::eq(&raw const **other, layer);
        let index = layers.iter().position(is_it);
        index.map_or(&[], |index| &layers[index..])
    }

    /// The newest snapshot that has to keep what is about to change from `offset` on.
    pub(super) fn newest(&self, offset: u64) -> Newest<'_> {
        let newest = if offset < self.len_bytes {
            Newest::of(&self.layers, self.layers.len())
        } else {
            Newest::NONE
        };
        Newest {
            maps: &self.maps,
            ..newest
        }
    }
}

/// The newest snapshot of a store as an operation found it.
#[derive(Clone, Copy)]
pub(super) struct Newest<'a> {
    /// All layers, oldest first.
    layers: &'a [Arc<Layer>],
    /// Its index; that of no layer if no snapshot keeps anything.
    index: usize,
    /// What notes changes.
    maps: &'a [Arc<ChangeMap>],
}

impl<'a> Newest<'a> {
    /// No snapshot keeps anything, and no map notes anything.
    pub(super) const NONE: Self = Self {
        layers: &[],
        index: 0,
        maps: &[],
    };

    /// The newest of the first `end` layers that keeps anything.
    fn of(layers: &'a [Arc<Layer>], end: usize) -> Self {
        let newest = layers[..end].iter().rposition(|layer| layer.is_live());
        newest.map_or(Self::NONE, |index| Self {
            layers,
            index,
            maps: &[],
        })
    }

    /// Whether a write has nothing to do before it changes bytes.
    pub(super) fn is_idle(self) -> bool {
        self.layers.is_empty() && self.maps.is_empty()
    }

    /// Notes that bytes are about to change.
    pub(super) fn note(self, offset: u64, len: u64) {
        for map in self.maps {
            map.note(offset, len);
        }
    }

    /// Its layer.
    pub(super) fn layer(self) -> Option<&'a Layer> {
        self.layers.get(self.index).map(|layer| &**layer)
    }

    /// The newest of those before it.
    pub(super) fn older(self) -> Self {
        Self::of(self.layers, self.index)
    }

    /// Whether its layer, or that of a removed snapshot behind it, holds what stood at `offset`.
    pub(super) fn holds(self, offset: u64) -> bool {
        let mut layers = self.layers[self.index..].iter();
        layers.any(|layer| layer.holds(offset))
    }
}

/// The chain of a store. Who reads it holds a lock of the store. Who replaces it is the only one,
/// and waits until all locks were released once before the former chain is dropped.
#[derive(Debug, Default)]
pub(super) struct ChainCell(AtomicPtr<Chain>);

/// A chain that was replaced. It may still be in use until all locks were released once.
pub(super) struct Replaced(*mut Chain);

impl ChainCell {
    /// The chain, while a lock of the store is held.
    #[inline]
    pub(super) fn get<'a>(&'a self, _lock: &'a impl Guard) -> Option<&'a Chain> {
        // SAFETY: null, or a chain that is not dropped while a lock is held that was taken before
        // the chain was replaced.
        unsafe { self.0.load(Ordering::Acquire).as_ref() }
    }

    /// Whether there is no chain at this moment.
    pub(super) fn is_empty(&self) -> bool {
        self.0.load(Ordering::Relaxed).is_null()
    }

    /// Replaces the chain.
    pub(super) fn replace(&self, chain: Option<Chain>) -> Replaced {
        let new = chain.map_or(ptr::null_mut(), |chain| Box::into_raw(Box::new(chain)));
        Replaced(self.0.swap(new, Ordering::AcqRel))
    }
}

impl Drop for ChainCell {
    fn drop(&mut self) {
        let last = *self.0.get_mut();
        // SAFETY: nobody else refers to the store any more.
        unsafe { Replaced(last).drop_unused() };
    }
}

impl Replaced {
    /// Drops the chain.
    ///
    /// # Safety
    ///
    /// Each lock of the store was released once since the chain was replaced.
    pub(super) unsafe fn drop_unused(self) {
        if !self.0.is_null() {
            // SAFETY: the pointer came from a box, and nobody uses it any more.
            drop(unsafe { Box::from_raw(self.0) });
        }
    }
}
