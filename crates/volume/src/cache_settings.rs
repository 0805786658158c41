//! What a cache is set to, and what people call its modes.

use std::fmt;
use std::str::FromStr;

use window::WindowOptions;

pub use window::{CacheMode, CacheStatistics};

use crate::size::ByteSize;

/// What a cache is set to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheSettings {
    /// Its memory.
    pub size: ByteSize,
    /// What becomes of writes.
    pub mode: CacheMode,
    /// The unit in which it keeps and evicts: a power of two from 4 KiB to 64 KiB.
    pub block: ByteSize,
    /// Commands that continue a sequential stream beyond this length leave nothing in the cache; 0
    /// turns that off.
    pub bypass: ByteSize,
}

impl CacheSettings {
    /// The smallest cache.
    pub const SIZE_MIN: ByteSize = ByteSize(1 << 20);
    /// The largest cache.
    pub const SIZE_MAX: ByteSize = ByteSize(WindowOptions::CACHE_BYTES_MAX);
    /// The smallest unit.
    pub const BLOCK_MIN: ByteSize = ByteSize(WindowOptions::FRAME_BYTES_MIN as u64);
    /// The largest unit.
    pub const BLOCK_MAX: ByteSize = ByteSize(WindowOptions::FRAME_BYTES_MAX as u64);
    /// The unit that is used if none is given.
    pub const BLOCK_DEFAULT: ByteSize = ByteSize(4 << 10);
    /// The length of streams that is used if none is given.
    pub const BYPASS_DEFAULT: ByteSize = ByteSize(1 << 20);
}

/// A mode of a cache that does not exist.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("cache mode {0:?} does not exist; choose write-through, write-around or write-back")]
pub struct NoSuchMode(String);

/// A mode by the name that people use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheModeName(pub CacheMode);

impl fmt::Display for CacheModeName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0 {
            CacheMode::WriteThrough => "write-through",
            CacheMode::WriteAround => "write-around",
            CacheMode::WriteBack => "write-back",
        })
    }
}

impl FromStr for CacheModeName {
    type Err = NoSuchMode;

    fn from_str(text: &str) -> Result<Self, NoSuchMode> {
        let modes = [
            CacheMode::WriteThrough,
            CacheMode::WriteAround,
            CacheMode::WriteBack,
        ];
        let mode = modes
            .map(Self)
            .into_iter()
            .find(|mode| mode.to_string() == text);
        mode.ok_or_else(|| NoSuchMode(text.to_owned()))
    }
}
