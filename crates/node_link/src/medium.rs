//! A copy in memory.

use std::iter;
use std::sync::Arc;

use block::{BlockSize, ByteRange, Extent};
use memory::Store;
use replica::{Contents, Medium, Unwritten};

/// The memory of a copy, as the replication protocol uses it. Extents are inside of the volume.
#[derive(Debug)]
pub(crate) struct StoreMedium {
    pub store: Arc<Store>,
    pub block_size: BlockSize,
}

impl StoreMedium {
    fn range(&self, extent: Extent) -> ByteRange {
        byte_range(self.block_size, extent)
    }
}

/// The bytes of an extent that is inside of the volume.
pub(crate) fn byte_range(block_size: BlockSize, extent: Extent) -> ByteRange {
    let shift = block_size.shift();
    ByteRange {
        offset: extent.lba.0 << shift,
        len: extent.blocks.0 << shift,
    }
}

impl Medium for StoreMedium {
    type Data = Contents;

    /// A closed store reads as zeros: nobody is served from it any more.
    fn read(&self, extent: Extent) -> Contents {
        let range = self.range(extent);
        let allocation = self.store.allocation(range);
        let zeros = || Contents::zeros(self.block_size, extent.blocks.0);
        if !allocation.allocated && allocation.len_bytes >= range.len {
            return zeros();
        }
        let mut bytes: Arc<[u8]> = iter::repeat_n(0, range.len as usize).collect();
        let buffer = Arc::get_mut(&mut bytes).expect("nobody else has it yet");
        match self.store.read(range.offset, buffer) {
            Ok(()) => Contents::of_bytes(self.block_size, bytes).unwrap_or_else(zeros),
            Err(_) => zeros(),
        }
    }

    fn write(&mut self, extent: Extent, data: &Contents) -> Result<(), Unwritten> {
        let range = self.range(extent);
        let written = match data.bytes() {
            Some(bytes) => self.store.write(range.offset, bytes),
            None => self.store.discard(range),
        };
        written.map_err(|_| Unwritten)
    }

    fn blocks(data: &Contents) -> u64 {
        data.blocks()
    }

    fn needs_memory(data: &Contents) -> bool {
        data.bytes().is_some()
    }
}
