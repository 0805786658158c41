//! Names of memory that requests and packets refer to.

use block::ByteRange;

/// Names memory that the program above has allocated. A [`Region`](crate::Region) makes a part of
/// it accessible to peers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct MemoryId(pub u32);

/// A byte range of allocated memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryRange {
    /// The memory.
    pub memory: MemoryId,
    /// The bytes inside it.
    pub range: ByteRange,
}

impl MemoryRange {
    /// No bytes: a placeholder in arrays of fixed length.
    pub(crate) const EMPTY: Self = Self {
        memory: MemoryId(0),
        range: ByteRange { offset: 0, len: 0 },
    };
}
