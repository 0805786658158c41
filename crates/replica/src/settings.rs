//! Times and bounds of a volume's replication, the same on all nodes.

use std::time::Duration;

use block::{Blocks, Extent, Lba};

use crate::wire::EXTENTS_MAX;

/// How a volume is replicated.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Blocks of the volume.
    pub blocks: Blocks,
    /// Blocks per region; the generation map has one epoch for each region.
    pub region_blocks: Blocks,
    /// Blocks per copied piece, and the most that one write covers, except a write of zeros. At
    /// most a region.
    pub piece_blocks: Blocks,
    /// How long a secondary that answers a beacon promises not to take over, counted by the primary
    /// from the time it sent the beacon.
    pub lease: Duration,
    /// How far a node's clock may be wrong, in parts per million: one that shows `t` has run for
    /// `t / (1 + d)` to `t / (1 - d)`.
    pub drift_ppm: u32,
    /// How long a member may leave a message unanswered before it is removed.
    pub answer_timeout: Duration,
    /// Time between beacons to a peer, and between requests to return.
    pub beacon_interval: Duration,
    /// How long an entry is unacknowledged before it is sent again.
    pub resend_after: Duration,
    /// How long a request to the store is awaited before it is repeated.
    pub store_timeout: Duration,
    /// Least time between two pieces that are copied to a returning member: the bound on the rate.
    pub piece_interval: Duration,
    /// The most writes in flight at a primary.
    pub writes_max: usize,
    /// The most pieces in flight to one returning member.
    pub pieces_max: usize,
    /// The most extents that a member remembers as unsettled, at least those of a whole stream;
    /// beyond, neighbours are joined.
    pub unsettled_max: usize,
}

/// Settings that break an invariant of the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InvalidSettings {
    /// Blocks, regions or pieces are empty, or a piece is larger than a region.
    Geometry,
    /// A clock may not be wrong by all of its time.
    Drift,
    /// The lease does not outlast the time between two beacons.
    LeaseTooShort,
    /// A queue can hold nothing.
    Queue,
    /// A member remembers fewer unsettled extents than a stream may leave, or more than a report
    /// holds.
    Unsettled,
}

impl Settings {
    /// The largest drift: 10 %. Real clocks stay below 500 ppm.
    pub const DRIFT_PPM_MAX: u32 = 100_000;
    /// How many members a primary copies to at a time.
    pub const LEARNERS_MAX: usize = 4;
    /// How many pieces one write of zeros covers at most: memory is freed while others wait for the
    /// member.
    pub const ZEROS_PIECES_MAX: u64 = 64;

    /// Whether the protocol works with these settings.
    pub fn check(&self) -> Result<(), InvalidSettings> {
        let is_empty = self.blocks.0 == 0 || self.piece_blocks.0 == 0;
        if is_empty || self.piece_blocks > self.region_blocks {
            return Err(InvalidSettings::Geometry);
        }
        if self.drift_ppm > Self::DRIFT_PPM_MAX {
            return Err(InvalidSettings::Drift);
        }
        if self.lease <= self.beacon_interval {
            return Err(InvalidSettings::LeaseTooShort);
        }
        let queues = [self.writes_max, self.pieces_max, self.unsettled_max];
        if queues.contains(&0) {
            return Err(InvalidSettings::Queue);
        }
        let extents = self.stream_max()..=EXTENTS_MAX;
        if !extents.contains(&self.unsettled_max) {
            return Err(InvalidSettings::Unsettled);
        }
        Ok(())
    }

    /// How long a secondary hears nothing from its primary, by its own clock, before it takes over:
    /// `lease * (1 + d) / (1 - d)`, rounded up, plus a nanosecond.
    ///
    /// The primary's lease ends at most `lease / (1 - d)` after it sent the beacon. The secondary
    /// starts to count no earlier, and `grace` takes at least `grace / (1 + d)`.
    pub fn grace(&self) -> Duration {
        let million = 1_000_000;
        let drift = u128::from(self.drift_ppm);
        let ns = (self.lease.as_nanos() * (million + drift)).div_ceil(million - drift) + 1;
        Duration::from_nanos(u64::try_from(ns).unwrap_or(u64::MAX))
    }

    /// How many entries a stream to a peer holds.
    pub(crate) fn stream_max(&self) -> usize {
        // The one more marks the end of a copy.
        self.writes_max + self.pieces_max + 1
    }

    /// Whether a command that moves the contents of blocks may cover `extent`.
    pub(crate) fn allows(&self, extent: Extent) -> bool {
        extent.blocks <= self.piece_blocks && self.has(extent)
    }

    /// Whether a write of contents that take no memory may cover `extent`.
    pub(crate) fn allows_zeros(&self, extent: Extent) -> bool {
        extent.blocks.0.div_ceil(self.piece_blocks.0) <= Self::ZEROS_PIECES_MAX && self.has(extent)
    }

    /// Whether `extent` is not empty and inside of the volume.
    pub(crate) fn has(&self, extent: Extent) -> bool {
        let end = extent.lba.0.checked_add(extent.blocks.0);
        extent.blocks.0 > 0 && end.is_some_and(|end| end <= self.blocks.0)
    }

    /// The piece that starts at `lba`: it ends at the latest with its region, and with the volume.
    /// `None` at the end of the volume.
    pub(crate) fn piece_at(&self, lba: Lba) -> Option<Extent> {
        if lba.0 >= self.blocks.0 {
            return None;
        }
        let region_end = (lba.0 / self.region_blocks.0 + 1) * self.region_blocks.0;
        let end = (lba.0 + self.piece_blocks.0)
            .min(region_end)
            .min(self.blocks.0);
        Some(Extent::new(lba, Blocks(end - lba.0)))
    }

    /// Cuts `extent` at the boundaries of pieces.
    pub(crate) fn pieces(&self, extent: Extent) -> impl Iterator<Item = Extent> + '_ {
        let end = extent.lba.0 + extent.blocks.0;
        let mut next = extent.lba;
        std::iter::from_fn(move || {
            let piece = self.piece_at(next).filter(|piece| piece.lba.0 < end)?;
            let blocks = Blocks(piece.blocks.0.min(end - next.0));
            next = Lba(next.0 + blocks.0);
            Some(Extent::new(piece.lba, blocks))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::settings;

    #[test]
    fn the_slowest_primary_ends_before_the_fastest_secondary_takes_over() {
        for drift_ppm in [0, 1, 500, 50_000, Settings::DRIFT_PPM_MAX] {
            let settings = Settings {
                drift_ppm,
                ..settings()
            };
            let million = 1_000_000;
            let drift = u128::from(drift_ppm);
            let lease_ends = settings.lease.as_nanos() * million * (million + drift);
            let grace_ends = settings.grace().as_nanos() * million * (million - drift);
            assert!(lease_ends < grace_ends, "{drift_ppm}");
        }
    }

    #[test]
    fn pieces_end_with_their_region_and_the_volume() {
        let settings = Settings {
            blocks: Blocks(13),
            region_blocks: Blocks(6),
            ..settings()
        };
        let piece = |lba| settings.piece_at(Lba(lba)).map(|piece| piece.blocks.0);
        assert_eq!(piece(0), Some(4));
        assert_eq!(piece(4), Some(2));
        assert_eq!(piece(12), Some(1));
        assert_eq!(piece(13), None);
        let extent = Extent::new(Lba(3), Blocks(9));
        let pieces: Vec<_> = settings.pieces(extent).collect();
        let expected = [(3, 3), (6, 4), (10, 2)];
        let expected = expected.map(|(lba, blocks)| Extent::new(Lba(lba), Blocks(blocks)));
        assert_eq!(pieces, expected);
    }

    #[test]
    fn settings_that_break_the_protocol_are_refused() {
        let check = |change: fn(&mut Settings)| {
            let mut settings = settings();
            change(&mut settings);
            settings.check()
        };
        assert_eq!(check(|_| ()), Ok(()));
        let geometry = check(|settings| settings.piece_blocks = Blocks(9));
        assert_eq!(geometry, Err(InvalidSettings::Geometry));
        let drift = check(|settings| settings.drift_ppm = 100_001);
        assert_eq!(drift, Err(InvalidSettings::Drift));
        let lease = check(|settings| settings.lease = settings.beacon_interval);
        assert_eq!(lease, Err(InvalidSettings::LeaseTooShort));
        let queue = check(|settings| settings.pieces_max = 0);
        assert_eq!(queue, Err(InvalidSettings::Queue));
        // A stream holds 8 writes, 4 pieces and the end of a copy.
        let unsettled = check(|settings| settings.unsettled_max = 12);
        assert_eq!(unsettled, Err(InvalidSettings::Unsettled));
        assert_eq!(check(|settings| settings.unsettled_max = 13), Ok(()));
        let unsettled = check(|settings| settings.unsettled_max = EXTENTS_MAX + 1);
        assert_eq!(unsettled, Err(InvalidSettings::Unsettled));
    }

    #[test]
    fn extents_beyond_the_volume_or_a_piece_are_not_allowed() {
        let settings = settings();
        let allows = |lba, blocks| settings.allows(Extent::new(Lba(lba), Blocks(blocks)));
        assert!(allows(60, 4));
        assert!(!allows(61, 4));
        assert!(!allows(0, 5));
        assert!(!allows(0, 0));
        assert!(!allows(u64::MAX, 2));
        let settings = Settings {
            blocks: Blocks(1000),
            ..settings
        };
        let allows = |lba, blocks| settings.allows_zeros(Extent::new(Lba(lba), Blocks(blocks)));
        assert!(allows(0, 256));
        assert!(!allows(0, 257));
        assert!(!allows(900, 101));
    }
}
