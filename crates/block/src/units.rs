//! Logical blocks and bytes, kept apart by type.

use crate::Status;

/// A logical block address: the number of a block, from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Lba(pub u64);

/// A count of logical blocks. Always 1's-based: 0's-based wire fields are converted where they are
/// parsed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Blocks(pub u64);

/// The size of a logical block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BlockSize {
    /// 512 bytes.
    B512,
    /// 4096 bytes.
    B4096,
}

impl BlockSize {
    /// The block size of `len_bytes` bytes. `None` if volumes do not support it.
    pub const fn from_bytes(len_bytes: u64) -> Option<Self> {
        match len_bytes {
            512 => Some(Self::B512),
            4096 => Some(Self::B4096),
            _ => None,
        }
    }

    /// Bytes in a block.
    pub const fn bytes(self) -> u64 {
        1 << self.shift()
    }

    /// log2 of the bytes in a block.
    pub const fn shift(self) -> u32 {
        match self {
            Self::B512 => 9,
            Self::B4096 => 12,
        }
    }
}

/// A run of logical blocks. May be empty; may lie outside of every volume until
/// [`Geometry::byte_range`] has said otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// The first block.
    pub lba: Lba,
    /// How many blocks.
    pub blocks: Blocks,
}

impl Extent {
    /// The extent of `blocks` blocks from `lba` on.
    pub const fn new(lba: Lba, blocks: Blocks) -> Self {
        Self { lba, blocks }
    }

    /// Whether the two share a block.
    pub fn overlaps(self, other: Self) -> bool {
        let end = |e: Self| e.lba.0.saturating_add(e.blocks.0);
        self.lba.0 < end(other) && other.lba.0 < end(self)
    }
}

/// A run of bytes inside a volume, checked against its geometry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ByteRange {
    /// Bytes from the start of the volume.
    pub offset: u64,
    /// Length in bytes.
    pub len: u64,
}

/// Block size and capacity of a volume at one moment (a resize changes it).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// The size of a logical block.
    pub block_size: BlockSize,
    /// How many blocks the volume has.
    pub blocks: Blocks,
}

impl Geometry {
    /// A volume of `blocks` blocks.
    pub const fn new(block_size: BlockSize, blocks: Blocks) -> Self {
        Self { block_size, blocks }
    }

    /// Capacity in bytes.
    pub const fn len_bytes(self) -> u64 {
        self.blocks.0 << self.block_size.shift()
    }

    /// The bytes of `extent`, or [`Status::LbaOutOfRange`] where any block of it is beyond the
    /// end.
    pub fn byte_range(self, extent: Extent) -> Result<ByteRange, Status> {
        let end = extent
            .lba
            .0
            .checked_add(extent.blocks.0)
            .ok_or(Status::LbaOutOfRange)?;
        if end > self.blocks.0 {
            return Err(Status::LbaOutOfRange);
        }
        let shift = self.block_size.shift();
        Ok(ByteRange {
            offset: extent.lba.0 << shift,
            len: extent.blocks.0 << shift,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_extent_whose_end_wraps_is_out_of_range() {
        let g = Geometry::new(BlockSize::B4096, Blocks(10));
        let wraps = Extent::new(Lba(u64::MAX), Blocks(2));
        assert_eq!(g.byte_range(wraps), Err(Status::LbaOutOfRange));
        assert_eq!(
            g.byte_range(Extent::new(Lba(10), Blocks(1))),
            Err(Status::LbaOutOfRange)
        );
        assert_eq!(
            g.byte_range(Extent::new(Lba(9), Blocks(1))),
            Ok(ByteRange {
                offset: 9 * 4096,
                len: 4096
            })
        );
    }

    #[test]
    fn extents_that_touch_do_not_overlap() {
        let a = Extent::new(Lba(0), Blocks(8));
        assert!(!a.overlaps(Extent::new(Lba(8), Blocks(1))));
        assert!(a.overlaps(Extent::new(Lba(7), Blocks(1))));
    }
}
