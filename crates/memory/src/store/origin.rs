//! A store as the origin of snapshots: it keeps what they show before it changes.

use std::ops::Range;
use std::sync::Arc;

use block::Status;

use super::changes::ChangeMap;
use super::layers::{Chain, Cut, Keeping, Layer, Newest};
use super::snapshot::Snapshot;
use super::{Control, Life, Store};
use crate::MemoryError;
use crate::chunk::Slab;
use crate::layout::Piece;
use crate::locks::Guard;

impl Store {
    /// The most snapshots of one store. A read of the oldest may look through all of them.
    pub const SNAPSHOTS_MAX: usize = 256;

    /// Takes a snapshot of each of `stores` at one moment, while they are in use: a write belongs
    /// to all snapshots or to none, and if it does, so does each write that had ended before it
    /// began. Each snapshot has the length that stands beside its store.
    ///
    /// # Errors
    /// If one of the stores, the index of which comes with the error, was closed or has too many
    /// snapshots. None is taken then.
    ///
    /// # Panics
    /// If a store occurs twice.
    pub fn take_snapshots(
        stores: &[(Arc<Self>, u64)],
    ) -> Result<Vec<Snapshot>, (usize, MemoryError)> {
        // Locked in one order, so that two calls do not wait for each other.
        let mut order: Vec<_> = (0..stores.len()).collect();
        order.sort_by_key(|&index| Arc::as_ptr(&stores[index].0));
        let is_once = |two: &[usize]| !Arc::ptr_eq(&stores[two[0]].0, &stores[two[1]].0);
        assert!(
            order.windows(2).all(is_once),
            "one moment, one snapshot of a store"
        );
        let mut controls: Vec<_> = order
            .into_iter()
            .map(|index| (index, stores[index].0.control()))
            .collect();
        controls.sort_by_key(|&(index, _)| index);
        let with_control = || {
            stores
                .iter()
                .zip(controls.iter().map(|(_, control)| control))
        };
        for (index, ((store, _), control)) in with_control().enumerate() {
            store.check_room(control).map_err(|error| (index, error))?;
        }
        let cut = Arc::default();
        let taken: Vec<_> = with_control()
            .map(|((store, len_bytes), control)| {
                store.begin_snapshot(control, Keeping::Always, &cut, *len_bytes)
            })
            .collect();
        cut.take();
        Ok(taken)
    }

    /// Takes a snapshot that gives way to writes, while the store is in use: when the budget would
    /// have fewer than `reserve_bytes` free with what the snapshot has to keep, the snapshot shows
    /// nothing any more ([`Status::Gone`]), and the write goes on.
    ///
    /// # Errors
    /// If the store was closed.
    pub fn take_temporary_snapshot(
        self: &Arc<Self>,
        reserve_bytes: u64,
    ) -> Result<Snapshot, MemoryError> {
        let control = self.control();
        if *control == Life::Closed {
            return Err(MemoryError::Closed);
        }
        let cut = Arc::default();
        let keeping = Keeping::WhileFree(reserve_bytes);
        let snapshot = self.begin_snapshot(&control, keeping, &cut, self.len_bytes());
        cut.take();
        Ok(snapshot)
    }

    fn check_room(&self, control: &Control<'_>) -> Result<(), MemoryError> {
        if **control == Life::Closed {
            return Err(MemoryError::Closed);
        }
        let layers = self.layers(control);
        let lasting = layers.iter().filter(|layer| !layer.is_temporary());
        if lasting.count() >= Self::SNAPSHOTS_MAX {
            return Err(MemoryError::TooManySnapshots {
                max: Self::SNAPSHOTS_MAX,
            });
        }
        Ok(())
    }

    /// Adds a layer for a snapshot that begins with `cut`.
    fn begin_snapshot(
        self: &Arc<Self>,
        control: &Control<'_>,
        keeping: Keeping,
        cut: &Arc<Cut>,
        len_bytes: u64,
    ) -> Snapshot {
        let lens = [len_bytes, self.base_len_bytes()];
        let layer = Arc::new(Layer::new(keeping, cut, lens, self.budget(), self.layout()));
        let mut layers = self.layers(control);
        layers.push(Arc::clone(&layer));
        self.set_layers(control, layers);
        Snapshot::new(Arc::clone(self), layer)
    }

    /// The layers, oldest first.
    pub(super) fn layers(&self, control: &Control<'_>) -> Vec<Arc<Layer>> {
        let chain = self.chain.get(control);
        chain.map_or_else(Vec::new, |chain| chain.layers.clone())
    }

    /// What notes changes.
    pub(super) fn maps(&self, control: &Control<'_>) -> Vec<Arc<ChangeMap>> {
        let chain = self.chain.get(control);
        chain.map_or_else(Vec::new, |chain| chain.maps.clone())
    }

    fn set_layers(&self, control: &Control<'_>, layers: Vec<Arc<Layer>>) {
        self.set_chain(control, layers, self.maps(control));
    }

    pub(super) fn set_chain(
        &self,
        _control: &Control<'_>,
        layers: Vec<Arc<Layer>>,
        maps: Vec<Arc<ChangeMap>>,
    ) {
        let replaced = self.chain.replace(Chain::new(layers, maps));
        self.locks.await_all();
        // SAFETY: all locks were released once, and `control`, which the others who read the chain
        // hold, is the caller's.
        unsafe { replaced.drop_unused() };
    }

    /// Removes every layer. Snapshots show nothing any more.
    pub(super) fn drop_layers(&self, control: &Control<'_>) {
        for layer in self.layers(control) {
            layer.retire();
        }
        self.set_layers(control, Vec::new());
    }

    /// Removes the layer of a snapshot. What older snapshots need of it is moved to them, copy by
    /// copy. If the layer is not there, nothing happens.
    ///
    /// # Errors
    /// If the host refused memory. The snapshot is removed, and its memory is freed when another
    /// snapshot of this store is removed.
    pub(super) fn remove_layer(&self, layer: &Layer) -> Result<(), MemoryError> {
        let control = self.control();
        layer.retire();
        let mut layers = self.layers(&control);
        // A temporary snapshot that gives way later waits for the next call.
        let is_retired = |layer: &&Arc<Layer>| layer.is_retired();
        let retired: Vec<_> = layers.iter().filter(is_retired).cloned().collect();
        // Writers that took one of these for the newest have ended after this.
        self.locks.await_writers();
        for layer in retired {
            let is_it = |other: &Arc<Layer>| Arc::ptr_eq(other, &layer);
            let index = layers.iter().position(is_it);
            let index = index.expect("who has control alone removes layers");
            let retired = layers.remove(index);
            if let Some(older) = index.checked_sub(1).map(|index| &layers[index]) {
                for (offset, _) in retired.slabs.existing(0..u64::MAX) {
                    if retired.holds(offset) {
                        let _lock = self.locks.write(self.layout().granule(offset));
                        retired.give(offset, older)?;
                    }
                }
            }
            self.set_layers(&control, layers.clone());
            // SAFETY: it is not in the chain, and all locks were released once since.
            unsafe { retired.slabs.clear() };
        }
        Ok(())
    }

    /// Keeps a piece for the newest snapshot, as far as it is not kept already, and notes that it
    /// changes. The caller is about to change the piece, holds the write lock of its granule, and
    /// calls this for each piece of an operation with the same snapshot.
    #[inline]
    pub(super) fn preserve(&self, newest: Newest<'_>, piece: &Piece) -> Result<(), MemoryError> {
        if newest.is_idle() {
            return Ok(());
        }
        self.preserve_in(newest, piece)
    }

    #[cold]
    fn preserve_in(&self, mut newest: Newest<'_>, piece: &Piece) -> Result<(), MemoryError> {
        newest.note(piece.offset, piece.len as u64);
        while let Some(layer) = newest.layer() {
            match self.keep(layer, newest, piece) {
                Err(_) if layer.is_temporary() => {
                    // Under the write lock: who reads the changed bytes sees it retired.
                    layer.retire();
                    newest = newest.older();
                }
                kept => return kept,
            }
        }
        Ok(())
    }

    fn keep(&self, layer: &Layer, newest: Newest<'_>, piece: &Piece) -> Result<(), MemoryError> {
        let layout = layer.slabs.layout();
        for copy in layout.pieces(piece.offset, piece.len as u64) {
            let offset = layout.granule_floor(copy.offset);
            if !newest.holds(offset) {
                layer.keep(offset, self.slabs.slab(offset))?;
            }
        }
        Ok(())
    }

    /// The newest snapshot of what an operation from `offset` on changes; see [`Chain::newest`].
    #[inline]
    pub(super) fn newest<'a>(&'a self, lock: &'a impl Guard, offset: u64) -> Newest<'a> {
        match self.chain.get(lock) {
            Some(chain) => chain.newest(offset),
            None => Newest::NONE,
        }
    }

    /// Keeps all memory of `range` for the newest snapshot, granule by granule, before much of it
    /// is freed: nobody waits for more than a granule's copy.
    pub(super) fn preserve_range(&self, range: Range<u64>) -> Result<(), MemoryError> {
        if self.chain.is_empty() {
            return Ok(());
        }
        let start = self.layout().slab_floor(range.start);
        for (slab, _) in self.slabs.existing(start..range.end) {
            let end = range.end.min(slab + self.layout().slab_bytes());
            let start = range.start.max(slab);
            for piece in self.pieces(start, end - start) {
                let lock = self.locks.write(self.layout().granule(piece.offset));
                if matches!(self.slabs.slab(piece.offset), Slab::Allocated(_)) {
                    self.preserve(self.newest(&lock, piece.offset), &piece)?;
                }
            }
        }
        Ok(())
    }

    /// The status of a write that got no memory.
    pub(super) fn refused(&self, error: &MemoryError) -> Status {
        match error {
            MemoryError::OverBudget { .. } => {
                self.budget().note_failed_write();
                Status::CapacityExceeded
            }
            MemoryError::Closed => Status::Gone,
            _ => Status::CapacityExceeded,
        }
    }
}
