//! A volume in memory, and a clone of a snapshot, which is one over other memory.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Instant;

use block::{
    Admission, Allocation, BlockSize, Blocks, ByteRange, Extent, Geometry, Intent, Op, OpKind,
    Pinned, RawSpan, ReadDest, Status, Ticket, Unmap, Volume,
};
use memory::{Budget, Layout, Progress, Provision, Store};

use crate::{ByteSize, Storage, VolumeError, VolumeKind, VolumeSpec};

/// A volume in memory. Its contents live as long as it does.
#[derive(Debug)]
pub struct RamVolume {
    store: Arc<Store>,
    block_size: BlockSize,
    /// The snapshot that it is a clone of.
    clone_of: Option<String>,
}

impl RamVolume {
    /// Creates a volume of zeros. A thick one allocates and fills its memory now, reports to
    /// `progress`, and ends with an error if `progress` cancels it.
    ///
    /// # Errors
    /// If memory could not be allocated.
    pub fn new(
        geometry: Geometry,
        provision: Provision,
        budget: &Arc<Budget>,
        progress: &mut dyn FnMut(Progress) -> ControlFlow<()>,
    ) -> Result<Self, VolumeError> {
        let store = Store::new(Arc::clone(budget), provision, Layout::DEFAULT);
        store.resize(geometry.len_bytes(), progress)?;
        Ok(Self {
            store: Arc::new(store),
            block_size: geometry.block_size,
            clone_of: None,
        })
    }

    /// The clone that `spec` says, of an empty store over a snapshot.
    pub(crate) fn over_snapshot(store: Store, spec: &VolumeSpec) -> Result<Self, VolumeError> {
        store.resize(spec.size.0, &mut |_| ControlFlow::Continue(()))?;
        Ok(Self {
            store: Arc::new(store),
            block_size: spec.block_size,
            clone_of: spec.kind.parents().first().cloned(),
        })
    }

    fn read(&self, extent: Extent, dest: ReadDest<'_>) -> Result<(), Status> {
        match dest {
            ReadDest::Copy(buffer) => {
                let range = self.data_range(extent, buffer.len())?;
                self.store.read(range.offset, buffer)
            }
            ReadDest::InPlace => self.check(extent),
        }
    }

    fn check(&self, extent: Extent) -> Result<(), Status> {
        self.geometry().byte_range(extent).map(drop)
    }

    fn range(&self, extent: Extent) -> ByteRange {
        unchecked_range(self.block_size, extent)
    }

    fn data_range(&self, extent: Extent, data_len: usize) -> Result<ByteRange, Status> {
        byte_range(self.block_size, extent, data_len)
    }
}

/// The bytes of `extent`. The store checks that they exist: an extent beyond all numbers of bytes
/// stays beyond its end.
fn unchecked_range(block_size: BlockSize, extent: Extent) -> ByteRange {
    let block_bytes = block_size.bytes();
    ByteRange {
        offset: extent.lba.0.saturating_mul(block_bytes),
        len: extent.blocks.0.saturating_mul(block_bytes),
    }
}

/// The bytes of `extent`, whose data have `data_len` bytes; the store checks that they exist.
pub(crate) fn byte_range(
    block_size: BlockSize,
    extent: Extent,
    data_len: usize,
) -> Result<ByteRange, Status> {
    let range = unchecked_range(block_size, extent);
    if range.len != data_len as u64 {
        return Err(Status::Invalid);
    }
    Ok(range)
}

impl Volume for RamVolume {
    fn geometry(&self) -> Geometry {
        let blocks = self.store.len_bytes() >> self.block_size.shift();
        Geometry::new(self.block_size, Blocks(blocks))
    }

    fn is_read_only(&self) -> bool {
        false
    }

    fn admit(&self, _now: Instant, _intent: &Intent<'_>, _ticket: Ticket) -> Admission {
        Admission::Now
    }

    fn execute(&self, op: Op<'_>) -> Result<(), Status> {
        match op {
            Op::Read { extent, dest } => self.read(extent, dest),
            Op::Write { extent, data } => {
                let range = self.data_range(extent, data.len())?;
                self.store.write(range.offset, data)
            }
            Op::WriteZeroes { extent, unmap } => match unmap {
                Unmap::Allowed => self.store.discard(self.range(extent)),
                Unmap::Forbidden => self.store.zero(self.range(extent)),
            },
            Op::Discard { extent } => self.store.discard(self.range(extent)),
            Op::Flush => Ok(()),
            Op::Verify { extent } => self.check(extent),
            Op::Compare { extent, data } => {
                let range = self.data_range(extent, data.len())?;
                self.store.compare(range.offset, data)
            }
            Op::CompareAndWrite {
                extent,
                compare,
                write,
            } => {
                let range = self.data_range(extent, compare.len())?;
                self.store.compare_and_write(range.offset, compare, write)
            }
            Op::Copy { from, to } => {
                let dest = self.range(Extent::new(to, from.blocks));
                self.store.copy(self.range(from), dest.offset)
            }
        }
    }

    fn allocation(&self, range: ByteRange) -> Allocation {
        self.store.allocation(range)
    }

    fn copies_discarded(&self) -> bool {
        self.store.has_snapshots()
    }

    fn prefetch(&self, _kind: OpKind, extent: Extent) {
        self.store.prefetch(self.range(extent));
    }

    fn pinned(&self) -> Option<&dyn Pinned> {
        // What a clone shows may be in the memory of its snapshot, under other locks.
        (!self.store.is_clone()).then_some(self)
    }
}

impl Pinned for RamVolume {
    fn pin(&self, range: ByteRange, each: &mut dyn FnMut(RawSpan)) {
        self.store.pin(range, each);
    }

    fn unpin(&self, range: ByteRange) {
        self.store.unpin(range);
    }
}

impl Storage for RamVolume {
    fn spec(&self) -> VolumeSpec {
        VolumeSpec {
            size: ByteSize(self.store.len_bytes()),
            block_size: self.block_size,
            kind: match &self.clone_of {
                Some(of) => VolumeKind::Clone { of: of.clone() },
                None => VolumeKind::Ram {
                    provision: self.store.provision(),
                },
            },
        }
    }

    fn used_bytes(&self) -> u64 {
        self.store.allocated_bytes()
    }

    fn resize(
        &self,
        size: ByteSize,
        progress: &mut dyn FnMut(Progress) -> ControlFlow<()>,
    ) -> Result<(), VolumeError> {
        Ok(self.store.resize(size.0, progress)?)
    }

    fn erase(&self) -> Result<(), VolumeError> {
        Ok(self.store.erase()?)
    }

    fn close(&self) {
        self.store.close();
    }

    fn outlives_program(&self) -> bool {
        false
    }

    fn store(&self) -> Option<&Arc<Store>> {
        Some(&self.store)
    }
}

#[cfg(test)]
mod tests;
