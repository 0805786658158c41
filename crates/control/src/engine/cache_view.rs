//! What a cache has done, as lists and the REST API show it.

use std::time::Duration;

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
    /// Reads of sequential streams, which left nothing in the cache; they count as hits or misses,
    /// too.
    pub read_bypassed: u64,
    /// Writes of sequential streams, which left nothing in the cache; they count as hits or misses,
    /// too.
    pub write_bypassed: u64,
    /// Bytes that were read from the slower volume.
    pub slower_read_bytes: u64,
    /// Bytes that were written to the slower volume.
    pub slower_written_bytes: u64,
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
            read_bypassed: of.read_bypassed,
            write_bypassed: of.write_bypassed,
            slower_read_bytes: of.slower_read_bytes,
            slower_written_bytes: of.slower_written_bytes,
            evictions: of.evictions,
            write_backs: of.write_backs,
            failed_write_backs: of.failed_write_backs,
            resident_bytes: of.resident_bytes,
            dirty_bytes: of.dirty_bytes,
        }
    }
}

/// What a cache did in an interval.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct CacheFigures {
    /// Reads of which everything was in memory, in percent of all reads; absent without reads.
    pub read_hit_percent: Option<f64>,
    /// Writes of which everything was in memory, in percent of all writes; absent without writes.
    pub write_hit_percent: Option<f64>,
    /// Blocks of the cache that made room for others, per second.
    pub evictions_per_s: f64,
    /// Bytes read from the slower volume per second.
    pub slower_read_bytes_per_s: f64,
    /// Bytes written to the slower volume per second.
    pub slower_write_bytes_per_s: f64,
    /// Memory of blocks that are in the cache now.
    pub resident_bytes: u64,
    /// Memory of blocks whose contents the slower volume does not have yet.
    pub dirty_bytes: u64,
}

impl CacheFigures {
    /// The figures of an interval of `length`. Counts that went back are those of another cache of
    /// the same name, which began at zero.
    #[expect(clippy::cast_precision_loss, reason = "52 bits are enough for rates")]
    pub(super) fn between(
        before: &CacheStatistics,
        now: &CacheStatistics,
        length: Duration,
    ) -> Self {
        let done = |count: fn(&CacheStatistics) -> u64| {
            let (before, now) = (count(before), count(now));
            now.checked_sub(before).unwrap_or(now) as f64
        };
        let per_s = |count| done(count) / length.as_secs_f64().max(f64::MIN_POSITIVE);
        let percent = |hits: f64, others: f64| {
            let all = hits + others;
            (all > 0.0).then(|| hits / all * 100.0)
        };
        Self {
            read_hit_percent: percent(
                done(|of| of.read_hits),
                done(|of| of.read_partial_hits + of.read_misses),
            ),
            write_hit_percent: percent(
                done(|of| of.write_hits),
                done(|of| of.write_partial_hits + of.write_misses),
            ),
            evictions_per_s: per_s(|of| of.evictions),
            slower_read_bytes_per_s: per_s(|of| of.slower_read_bytes),
            slower_write_bytes_per_s: per_s(|of| of.slower_written_bytes),
            resident_bytes: now.resident_bytes,
            dirty_bytes: now.dirty_bytes,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(reads: [u64; 3], evictions: u64) -> CacheStatistics {
        CacheStatistics {
            read_hits: reads[0],
            read_partial_hits: reads[1],
            read_misses: reads[2],
            evictions,
            dirty_bytes: 4096,
            ..CacheStatistics::default()
        }
    }

    #[test]
    fn shares_and_rates_are_those_of_the_interval() {
        let (before, now) = (counts([100, 0, 100], 10), counts([106, 1, 101], 14));
        let figures = CacheFigures::between(&before, &now, Duration::from_secs(2));
        assert_eq!(figures.read_hit_percent, Some(75.0));
        assert_eq!(
            (figures.write_hit_percent, figures.dirty_bytes),
            (None, 4096)
        );
        assert!((figures.evictions_per_s - 2.0).abs() < 1e-9);
        // Another cache of the same name.
        let figures = CacheFigures::between(&now, &counts([1, 0, 1], 0), Duration::from_secs(2));
        assert_eq!(figures.read_hit_percent, Some(50.0));
    }
}
