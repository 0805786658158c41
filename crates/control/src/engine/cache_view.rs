//! What a cache has done, as lists and the REST API show it.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use volume::CacheStatistics;

/// What a cache has done since it was made, in commands unless something else is said.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CacheView {
    /// Reads of which everything was in memory.
    pub read_hits: u64,
    /// Reads of which a part was in memory.
    pub read_partial_hits: u64,
    /// Reads of which nothing was in memory.
    pub read_misses: u64,
    /// Writes of which everything was in memory.
    pub write_hits: u64,
    /// Writes of which a part was in memory.
    pub write_partial_hits: u64,
    /// Writes of which nothing was in memory.
    pub write_misses: u64,
    /// Commands of sequential streams that left nothing in the cache.
    pub bypassed: u64,
    /// Blocks of the cache that made room for others.
    pub evictions: u64,
    /// Blocks of the cache that were written in the background.
    pub write_backs: u64,
    /// Writes in the background that failed; they are tried again.
    pub failed_write_backs: u64,
    /// Memory of blocks that are in the cache now.
    pub resident_bytes: u64,
    /// Memory of blocks whose contents the slower volume does not have yet.
    pub dirty_bytes: u64,
}

impl From<CacheStatistics> for CacheView {
    fn from(of: CacheStatistics) -> Self {
        Self {
            read_hits: of.read_hits,
            read_partial_hits: of.read_partial_hits,
            read_misses: of.read_misses,
            write_hits: of.write_hits,
            write_partial_hits: of.write_partial_hits,
            write_misses: of.write_misses,
            bypassed: of.bypassed,
            evictions: of.evictions,
            write_backs: of.write_backs,
            failed_write_backs: of.failed_write_backs,
            resident_bytes: of.resident_bytes,
            dirty_bytes: of.dirty_bytes,
        }
    }
}
