//! A window that remembers: what a cache is set to, and what it counts.

use crate::s3fifo::S3Fifo;
use crate::sectors::SectorSet;
use crate::streams::Streams;
use std::collections::BTreeMap;

/// What becomes of writes to a cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CacheMode {
    /// They are answered when the slower device has them, and stay in the cache.
    #[default]
    WriteThrough,
    /// They are answered when the slower device has them, and only update what is in the cache.
    WriteAround,
    /// They are answered when they are in the cache: a volatile write cache. A flush and writes
    /// with [`Persistence::Durable`](block::Persistence::Durable) reach the slower device.
    WriteBack,
}

/// What can be changed of a cache while it is in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheOptions {
    /// What becomes of writes.
    pub mode: CacheMode,
    /// The memory of blocks that are kept, in bytes: at least one frame. It is charged to the
    /// budget as a whole.
    pub kept_bytes: u64,
    /// Commands that continue a sequential stream beyond this length in bytes leave nothing behind
    /// in the cache. 0 turns this off.
    pub bypass_bytes: u64,
}

/// What a cache has done since it was made, in commands unless something else is said.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheStatistics {
    /// Reads whose blocks were all in memory.
    pub read_hits: u64,
    /// Reads some of whose frames were in memory.
    pub read_partial_hits: u64,
    /// Reads of which nothing was in memory.
    pub read_misses: u64,
    /// Writes whose frames were all in memory.
    pub write_hits: u64,
    /// Writes some of whose frames were in memory.
    pub write_partial_hits: u64,
    /// Writes of which nothing was in memory.
    pub write_misses: u64,
    /// Reads that belonged to long sequential streams; they count as hits or misses, too.
    pub read_bypassed: u64,
    /// Writes that belonged to long sequential streams; they count as hits or misses, too.
    pub write_bypassed: u64,
    /// Bytes that were read from the slower device, also in requests that failed.
    pub slower_read_bytes: u64,
    /// Bytes that were written to the slower device, also in requests that failed.
    pub slower_written_bytes: u64,
    /// Frames whose contents made room for others.
    pub evictions: u64,
    /// Frames whose dirty blocks were written in the background.
    pub write_backs: u64,
    /// Writes in the background that failed. Their data stay in the cache and are written again.
    pub failed_write_backs: u64,
    /// Memory of frames that hold blocks now, in bytes.
    pub resident_bytes: u64,
    /// Memory of frames now whose blocks are newer than what the slower device holds, in bytes.
    pub dirty_bytes: u64,
}

/// What the state of a window has besides if it is a cache.
#[derive(Debug)]
pub(crate) struct Cache {
    pub(crate) options: CacheOptions,
    /// How many frames are kept.
    pub(crate) kept_frames: usize,
    pub(crate) policy: S3Fifo,
    pub(crate) streams: Streams,
    pub(crate) statistics: CacheStatistics,
    /// Dirty frames whose writing has not been started, by their window blocks.
    pub(crate) dirty: BTreeMap<u64, u32>,
    /// Frames that can be evicted.
    pub(crate) evictable: usize,
    /// Where the next round of background writes begins.
    pub(crate) cursor: u64,
    /// How many frames are still to be cleaned in this round.
    pub(crate) quota: usize,
    /// How many background writes are in flight.
    pub(crate) cleaning: usize,
    /// Whether the backing was notified that dirty frames are to be cleaned.
    pub(crate) is_cleaner_awake: bool,
}

impl Cache {
    pub(crate) fn new(options: CacheOptions, frame_bytes: usize) -> Self {
        Self {
            options,
            kept_frames: kept_frames(options, frame_bytes),
            policy: S3Fifo::default(),
            streams: Streams::default(),
            statistics: CacheStatistics::default(),
            dirty: BTreeMap::new(),
            evictable: 0,
            cursor: 0,
            quota: 0,
            cleaning: 0,
            is_cleaner_awake: false,
        }
    }
}

pub(crate) fn kept_frames(options: CacheOptions, frame_bytes: usize) -> usize {
    (options.kept_bytes / frame_bytes as u64).max(1) as usize
}

/// How much of a command was in memory.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Presence {
    pub(crate) pieces: u32,
    pub(crate) whole: u32,
    pub(crate) part: u32,
}

impl Presence {
    /// Counts a piece of a command: the sectors that it needs, and those that are there.
    pub(crate) fn note(&mut self, needed: SectorSet, there: SectorSet) {
        self.pieces += 1;
        self.whole += u32::from(there.has_all(needed));
        self.part += u32::from(!there.and(needed).is_empty());
    }
}
