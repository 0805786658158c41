//! Times and bounds of replicated volumes. They follow from the geometry, so that all nodes have
//! the same.

use std::time::Duration;

use block::{Blocks, Geometry};
use replica::Settings;

/// How long a secondary promises not to take over. A primary that is lost is replaced after this,
/// and a read of the store. A node that stands still for as long is replaced, too.
const LEASE: Duration = Duration::from_millis(1500);
/// How long a member may leave a message unanswered.
const ANSWER_TIMEOUT: Duration = Duration::from_millis(1500);
/// Clocks are disciplined to at most 500 ppm (Linux, adjtimex(2)).
const DRIFT_PPM: u32 = 1000;
const BEACON_INTERVAL: Duration = Duration::from_millis(150);
const RESEND_AFTER: Duration = Duration::from_millis(300);
/// A change of etcd takes a few milliseconds, and a second while it elects a leader.
const STORE_TIMEOUT: Duration = Duration::from_millis(500);
const PIECE_INTERVAL: Duration = Duration::from_micros(100);
/// What one entry covers.
const PIECE_BYTES: u64 = 256 << 10;
/// With pieces of this size, at most 64 MiB are kept for a peer.
const WRITES_MAX: usize = 256;
const PIECES_MAX: usize = 16;
const UNSETTLED_MAX: usize = 1024;
const REGION_BYTES_MIN: u64 = 1 << 20;
/// The map of a volume has at most twice as many regions, of 8 bytes each.
const REGIONS_MAX: u64 = 64 << 10;

/// The settings of a volume.
pub(crate) fn settings(geometry: Geometry) -> Settings {
    let shift = geometry.block_size.shift();
    let region_bytes = geometry.len_bytes() / REGIONS_MAX;
    let region_bytes = region_bytes.next_power_of_two().max(REGION_BYTES_MIN);
    Settings {
        blocks: geometry.blocks,
        region_blocks: Blocks(region_bytes >> shift),
        piece_blocks: Blocks(PIECE_BYTES >> shift),
        lease: LEASE,
        drift_ppm: DRIFT_PPM,
        answer_timeout: ANSWER_TIMEOUT,
        beacon_interval: BEACON_INTERVAL,
        resend_after: RESEND_AFTER,
        store_timeout: STORE_TIMEOUT,
        piece_interval: PIECE_INTERVAL,
        writes_max: WRITES_MAX,
        pieces_max: PIECES_MAX,
        unsettled_max: UNSETTLED_MAX,
    }
}

#[cfg(test)]
mod tests {
    use block::BlockSize;

    use super::*;

    #[test]
    fn volumes_of_all_sizes_have_valid_settings_and_small_maps() {
        for block_size in [BlockSize::B512, BlockSize::B4096] {
            for len_bytes in [1 << 20, (1 << 30) + 4096, 600 << 30, 64 << 40] {
                let geometry = Geometry::new(block_size, Blocks(len_bytes >> block_size.shift()));
                let settings = settings(geometry);
                assert_eq!(settings.check(), Ok(()), "{len_bytes}");
                let regions = settings.blocks.0.div_ceil(settings.region_blocks.0);
                assert!(regions <= 2 * REGIONS_MAX, "{len_bytes}: {regions}");
            }
        }
    }
}
