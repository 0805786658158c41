//! Contents of blocks as real members hold and send them.

use std::sync::Arc;

use block::BlockSize;

/// The contents of an extent, shared by all that hold them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Contents {
    block_size: BlockSize,
    blocks: u64,
    /// `None`: zeros.
    bytes: Option<Arc<[u8]>>,
}

impl Contents {
    /// Blocks of these bytes. `None` if they are not whole blocks, or none.
    pub fn of_bytes(block_size: BlockSize, bytes: Arc<[u8]>) -> Option<Self> {
        let len_bytes = bytes.len() as u64;
        let is_whole = len_bytes > 0 && len_bytes.is_multiple_of(block_size.bytes());
        is_whole.then(|| Self {
            block_size,
            blocks: len_bytes >> block_size.shift(),
            bytes: Some(bytes),
        })
    }

    /// Blocks that read as zeros and need no memory.
    pub fn zeros(block_size: BlockSize, blocks: u64) -> Self {
        Self {
            block_size,
            blocks,
            bytes: None,
        }
    }

    /// The size of a block.
    pub fn block_size(&self) -> BlockSize {
        self.block_size
    }

    /// How many blocks.
    pub fn blocks(&self) -> u64 {
        self.blocks
    }

    /// The bytes; `None` for zeros.
    pub fn bytes(&self) -> Option<&[u8]> {
        self.bytes.as_deref()
    }
}
