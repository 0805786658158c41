//! Which parts of a store have changed since a moment, a bit for each.
//!
//! A map is part of the chain that writers look at under the lock of their granule, like the layers
//! of snapshots. So a store without snapshots and maps pays nothing for them, and a map costs a bit
//! per unit and no copies.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::Store;
use crate::MemoryError;

/// The bits of one [`Tracker`].
#[derive(Debug)]
pub(super) struct ChangeMap {
    unit_bytes: u64,
    bits: Box<[AtomicU64]>,
    /// Anything may have changed, also beyond the bits.
    all: AtomicBool,
}

impl ChangeMap {
    fn new(unit_bytes: u64, len_bytes: u64) -> Self {
        let words = len_bytes.div_ceil(unit_bytes).div_ceil(u64::BITS.into());
        Self {
            unit_bytes,
            bits: (0..words).map(|_| AtomicU64::new(0)).collect(),
            all: AtomicBool::new(false),
        }
    }

    /// Notes that bytes are about to change. The caller holds their write lock.
    pub(super) fn note(&self, offset: u64, len: u64) {
        let last = offset.saturating_add(len.saturating_sub(1)) / self.unit_bytes;
        for unit in offset / self.unit_bytes..=last {
            let Some(word) = self.bits.get((unit / u64::from(u64::BITS)) as usize) else {
                return self.note_all();
            };
            let bit = 1 << (unit % u64::from(u64::BITS));
            // Most writes change what has changed before, and then share the cache line.
            if word.load(Ordering::Relaxed) & bit == 0 {
                word.fetch_or(bit, Ordering::Relaxed);
            }
        }
    }

    pub(super) fn note_all(&self) {
        self.all.store(true, Ordering::Relaxed);
    }
}

/// Notes what changes in a store, from its creation until it is dropped. Do not drop it on a thread
/// that must not wait.
#[derive(Debug)]
pub struct Tracker {
    store: Arc<Store>,
    map: Arc<ChangeMap>,
}

impl Tracker {
    /// The store.
    pub fn store(&self) -> &Arc<Store> {
        &self.store
    }

    /// The numbers of the units that may have changed, in ascending order; `None` if all may have.
    /// It contains all that changed before a snapshot that was taken before this call.
    pub fn changed(&self) -> Option<Vec<u64>> {
        if self.map.all.load(Ordering::Relaxed) {
            return None;
        }
        let mut units = Vec::new();
        for (word, bits) in (0..).zip(&self.map.bits) {
            let mut left = bits.load(Ordering::Relaxed);
            while left != 0 {
                units.push(word * u64::from(u64::BITS) + u64::from(left.trailing_zeros()));
                left &= left - 1;
            }
        }
        Some(units)
    }
}

impl Drop for Tracker {
    fn drop(&mut self) {
        let control = self.store.control();
        let is_other = |map: &Arc<ChangeMap>| !Arc::ptr_eq(map, &self.map);
        let maps = self.store.maps(&control).into_iter().filter(is_other);
        let (layers, maps) = (self.store.layers(&control), maps.collect());
        self.store.set_chain(&control, layers, maps);
    }
}

impl Store {
    /// Notes from now on what changes, in units of `unit_bytes`. A write that begins after this
    /// returned is noted before it changes anything. Takes a bit for each unit, which is not
    /// charged to the budget.
    ///
    /// # Errors
    /// If the store was closed.
    pub fn track_changes(self: &Arc<Self>, unit_bytes: u64) -> Result<Tracker, MemoryError> {
        let control = self.control();
        if *control == super::Life::Closed {
            return Err(MemoryError::Closed);
        }
        let map = Arc::new(ChangeMap::new(unit_bytes, self.len_bytes()));
        let mut maps = self.maps(&control);
        maps.push(Arc::clone(&map));
        self.set_chain(&control, self.layers(&control), maps);
        Ok(Tracker {
            store: Arc::clone(self),
            map,
        })
    }

    /// Anything may change without a write. The caller has control.
    pub(super) fn note_all_changed(&self, control: &super::Control<'_>) {
        for map in self.maps(control) {
            map.note_all();
        }
    }
}

#[cfg(test)]
mod tests;
