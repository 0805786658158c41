//! A snapshot: what a store was at one moment, and what clones are made over.

use std::sync::Arc;

use block::{Allocation, ByteRange, Status};

use super::Store;
use super::backing::Backing;
use super::layers::{Chain, Layer};
use crate::chunk::{Chunk, Mark, Slab};
use crate::locks::ReadGuard;
use crate::slabs::Slabs;
use crate::{Layout, MemoryError, Progress};

/// What a store was at one moment. It is read while the store is in use; each read waits for a
/// write to the same granule, as reads of the store do.
#[derive(Debug)]
pub struct Snapshot {
    origin: Arc<Store>,
    layer: Arc<Layer>,
}

/// Where the bytes of a copy are, while a lock of its granule is held.
pub(super) struct Source<'a> {
    /// Their memory, which is allocated, at the same place as in the store; `None` for zeros.
    memory: Option<&'a Chunk>,
    layout: Layout,
    /// Bytes from here on are zeros.
    end: u64,
}

impl Snapshot {
    pub(super) fn new(origin: Arc<Store>, layer: Arc<Layer>) -> Self {
        Self { origin, layer }
    }

    /// The length in bytes.
    pub fn len_bytes(&self) -> u64 {
        self.layer.len_bytes
    }

    /// Whether the length is 0.
    pub fn is_empty(&self) -> bool {
        self.len_bytes() == 0
    }

    /// The memory in bytes that it holds of its own, since the store has changed.
    pub fn allocated_bytes(&self) -> u64 {
        self.layer.slabs.allocated_bytes()
    }

    /// Whether it was removed, or gave way to writes.
    pub fn is_gone(&self) -> bool {
        self.layer.is_retired()
    }

    /// The store.
    pub fn origin(&self) -> &Arc<Store> {
        &self.origin
    }

    /// How many snapshots lie below one another, with this one.
    pub(super) fn depth(&self) -> usize {
        1 + self.origin.depth()
    }

    /// Copies the bytes from `offset` on into `dest`.
    ///
    /// # Errors
    /// If the range reaches beyond the end, or the snapshot was removed.
    pub fn read(&self, offset: u64, dest: &mut [u8]) -> Result<(), Status> {
        self.check(offset, dest.len() as u64)?;
        let mut rest = dest;
        for piece in self.layout().pieces(offset, rest.len() as u64) {
            let (dest, later) = rest.split_at_mut(piece.len);
            self.with_source(piece.offset, &mut |source| source.read(piece.offset, dest))?;
            rest = later;
        }
        Ok(())
    }

    /// Compares `data` with the bytes from `offset` on.
    ///
    /// # Errors
    /// If they differ; otherwise those of [`read`](Self::read).
    pub fn compare(&self, offset: u64, data: &[u8]) -> Result<(), Status> {
        self.check(offset, data.len() as u64)?;
        for piece in self.layout().pieces(offset, data.len() as u64) {
            let at = (piece.offset - offset) as usize;
            let data = &data[at..at + piece.len];
            let mut difference = None;
            self.with_source(piece.offset, &mut |source| {
                difference = source.first_difference(piece.offset, data);
            })?;
            if let Some(byte) = difference {
                let offset_bytes = (at + byte) as u64;
                return Err(Status::Miscompare { offset_bytes });
            }
        }
        Ok(())
    }

    /// Whether the start of `range` has memory, and for at least how many bytes that holds. If the
    /// snapshot [is gone](Self::is_gone) afterwards, it means nothing.
    pub fn allocation(&self, range: ByteRange) -> Allocation {
        Backing::of(range, |at| self.backing(at))
    }

    /// How much of the store has changed since, in bytes; whole copies.
    pub fn changed_bytes(&self) -> u64 {
        let control = self.origin.control();
        let layers = self.origin.layers(&control);
        let held_bytes = self.changed(&layers).count() as u64 * self.layout().granule_bytes();
        // What an erased or shortened clone no longer shows of its base.
        held_bytes
            + self
                .layer
                .base_len_bytes
                .abs_diff(self.origin.base_len_bytes())
    }

    /// Makes the store what it was. Someone who uses it meanwhile reads a mixture of old and new
    /// blocks. Later snapshots stay as they are.
    ///
    /// # Errors
    /// If the budget is used up: some blocks are old then, and some are new. If the store has not
    /// the length of the snapshot, or one of them was removed: nothing has changed then.
    pub fn roll_back(&self, progress: &mut dyn FnMut(Progress)) -> Result<(), Status> {
        // No snapshot is taken or removed meanwhile.
        let control = self.origin.control();
        if self.origin.len_bytes() != self.len_bytes() {
            return Err(Status::Invalid);
        }
        let layers = self.origin.layers(&control);
        let copy_bytes = self.layout().granule_bytes();
        let total_bytes = self.changed(&layers).count() as u64 * copy_bytes;
        let mut buffer = vec![0; copy_bytes as usize];
        if self.origin.is_clone() {
            // More or less of its base shows, without a write.
            self.origin.note_all_changed(&control);
        }
        // What no layer holds is as it was, except for how much of a clone's base shows.
        self.origin.set_base_len(self.layer.base_len_bytes);
        for (done, offset) in self.changed(&layers).enumerate() {
            progress(Progress {
                done_bytes: done as u64 * copy_bytes,
                total_bytes,
            });
            let len = copy_bytes.min(self.len_bytes() - offset);
            self.roll_back_copy(offset, &mut buffer[..len as usize])?;
        }
        Ok(())
    }

    fn roll_back_copy(&self, offset: u64, buffer: &mut [u8]) -> Result<(), Status> {
        let len = buffer.len() as u64;
        let range = ByteRange { offset, len };
        let told = self.allocation(range);
        if !told.allocated && told.len_bytes == len {
            return self.origin.discard(range);
        }
        self.read(offset, buffer)?;
        self.origin.write(offset, buffer)
    }

    /// The starts of the copies that this layer or a newer one of `layers` holds.
    fn changed(&self, layers: &[Arc<Layer>]) -> impl Iterator<Item = u64> {
        let layers = Chain::since(layers, &self.layer);
        (0..layers.len()).flat_map(move |index| {
            let slabs = layers[index].slabs.existing(0..self.len_bytes());
            slabs.map(|(offset, _)| offset).filter(move |&offset| {
                let is_first = !layers[..index].iter().any(|layer| layer.holds(offset));
                is_first && layers[index].holds(offset)
            })
        })
    }

    /// Removes the snapshot: it shows nothing any more, and its memory is freed, or moved to older
    /// snapshots that need it. This may take seconds; do not call it on a thread that must not
    /// wait.
    ///
    /// # Errors
    /// If the host refused memory that is moved; the snapshot's memory is then freed with that of
    /// the next snapshot of the store that is removed.
    pub fn remove(&self) -> Result<(), MemoryError> {
        self.origin.remove_layer(&self.layer)
    }

    /// That of its copies.
    fn layout(&self) -> Layout {
        self.layer.slabs.layout()
    }

    fn check(&self, offset: u64, len: u64) -> Result<(), Status> {
        if self.layer.is_retired() {
            return Err(Status::Gone);
        }
        match offset.checked_add(len) {
            Some(end) if end <= self.len_bytes() => Ok(()),
            _ => Err(Status::LbaOutOfRange),
        }
    }

    /// Calls `then` with the bytes of the copy of `offset`, while they do not change.
    pub(super) fn with_source(
        &self,
        offset: u64,
        then: &mut dyn FnMut(Source<'_>),
    ) -> Result<(), Status> {
        let origin = &*self.origin;
        let lock = origin.locks.read(origin.layout().granule(offset));
        if self.layer.is_retired() {
            // A temporary snapshot: its layer may lack what changed since.
            return Err(Status::Gone);
        }
        let memory = match self.find(&lock, offset)? {
            Slab::Allocated(chunk) => Some(chunk),
            Slab::Marked(Mark::Zeros) => None,
            Slab::Marked(Mark::Inherited) | Slab::Vacant => {
                let bound = self.layer.base_len_bytes;
                return origin.with_base(offset, bound, then);
            }
        };
        then(Source {
            memory,
            ..Source::zeros(origin.layout())
        });
        Ok(())
    }

    /// What holds the copy of `offset`: this layer, the next newer one that does, or the store.
    fn find<'a>(&'a self, lock: &'a ReadGuard<'_>, offset: u64) -> Result<Slab<'a>, Status> {
        let chain = self.origin.chain.get(lock).ok_or(Status::Gone)?;
        let layers = Chain::since(&chain.layers, &self.layer);
        if layers.is_empty() {
            return Err(Status::Gone);
        }
        let held = layers.iter().map(|layer| layer.slabs.slab(offset));
        let mut held = held.filter(|slab| !matches!(slab, Slab::Vacant));
        Ok(held
            .next()
            .unwrap_or_else(|| self.origin.slabs.slab(offset)))
    }

    /// How the byte at `offset` is backed. A removed snapshot has no memory.
    pub(super) fn backing(&self, offset: u64) -> Backing {
        let origin = &*self.origin;
        let lock = origin.locks.read(origin.layout().granule(offset));
        let below = || origin.base_backing(offset, self.layer.base_len_bytes);
        let step_bytes = self.layout().granule_bytes();
        let allocated = match self.find(&lock, offset) {
            Ok(Slab::Allocated(_)) => true,
            Ok(Slab::Vacant) if self.is_chunk_vacant(&lock, offset) => return below(),
            Ok(Slab::Marked(Mark::Inherited) | Slab::Vacant) => below().allocated,
            Ok(Slab::Marked(Mark::Zeros)) | Err(_) => false,
        };
        Backing {
            allocated,
            step_bytes,
        }
    }

    /// Whether neither the store nor a layer that counts holds anything in the chunk of `offset`.
    fn is_chunk_vacant(&self, lock: &ReadGuard<'_>, offset: u64) -> bool {
        let chain = self.origin.chain.get(lock);
        let layers = chain.map_or(&[][..], |chain| Chain::since(&chain.layers, &self.layer));
        let mut slabs = layers.iter().map(|layer| &layer.slabs);
        let has_chunk = |slabs: &Slabs| slabs.chunk(offset).is_some();
        !has_chunk(&self.origin.slabs) && !slabs.any(has_chunk)
    }
}

impl Source<'_> {
    pub(super) fn zeros(layout: Layout) -> Self {
        Self {
            memory: None,
            layout,
            end: u64::MAX,
        }
    }

    /// The same, with zeros from `end` on.
    pub(super) fn up_to(self, end: u64) -> Self {
        Self {
            end: self.end.min(end),
            ..self
        }
    }

    /// Copies the bytes from `offset` on into `dest`; all are of this copy.
    pub(super) fn read(&self, offset: u64, dest: &mut [u8]) {
        let (shown, zeros) = dest.split_at_mut(self.shown(offset, dest.len()));
        if let Some(memory) = self.memory.filter(|_| !shown.is_empty()) {
            // SAFETY: the caller that made the source holds a lock of the granule, and it is
            // allocated.
            unsafe { memory.copy_out(self.layout.in_chunk(offset), shown) };
        }
        zeros.fill(0);
    }

    /// Copies `len` bytes from `offset` on into `to`, which has zeros there.
    ///
    /// # Safety
    ///
    /// The caller holds the write lock of these bytes of `to`, and their slab is allocated.
    pub(super) unsafe fn copy_to(&self, to: &Chunk, offset: u64, len: usize) {
        let shown = self.shown(offset, len);
        if let Some(memory) = self.memory {
            // SAFETY: the caller that made the source holds a lock of the granule, and it is
            // allocated; the rest is the caller's.
            unsafe { to.copy_from(memory, self.layout.in_chunk(offset), shown) };
        }
    }

    /// The first byte, counted from `offset`, that differs from `data`.
    pub(super) fn first_difference(&self, offset: u64, data: &[u8]) -> Option<usize> {
        let (shown, zeros) = data.split_at(self.shown(offset, data.len()));
        let at = self.layout.in_chunk(offset);
        // SAFETY: the caller that made the source holds a lock of the granule, and it is allocated.
        let of_memory = |memory: &Chunk| unsafe { memory.first_difference(at, shown) };
        self.memory.and_then(of_memory).or_else(|| {
            let nonzero = zeros.iter().position(|&byte| byte != 0)?;
            Some(shown.len() + nonzero)
        })
    }

    /// How many of `len` bytes from `offset` on are in memory.
    fn shown(&self, offset: u64, len: usize) -> usize {
        match self.memory {
            Some(_) => self.end.saturating_sub(offset).min(len as u64) as usize,
            None => 0,
        }
    }
}

#[cfg(test)]
mod tests;
