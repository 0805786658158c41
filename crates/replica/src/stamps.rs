//! The generation map: in which epoch each region was last written.

use block::{Blocks, Extent, Lba};

use crate::ids::Epoch;

/// For each region the latest epoch in which a write to it was in flight. 0: never written, so the
/// region holds zeros.
///
/// It replaces one dirty map per absent member: the primary finds from it what any member
/// missed since the epoch up to which that member has everything.
#[derive(Clone, Debug)]
pub(crate) struct Stamps {
    region_blocks: u64,
    epochs: Vec<Epoch>,
}

impl Stamps {
    pub(crate) fn new(blocks: Blocks, region_blocks: Blocks) -> Self {
        let regions = blocks.0.div_ceil(region_blocks.0) as usize;
        Self {
            region_blocks: region_blocks.0,
            epochs: vec![Epoch::default(); regions],
        }
    }

    /// Records that `extent`, which is inside of the volume and not empty, was written in `epoch`.
    /// Stamps never become older.
    pub(crate) fn stamp(&mut self, extent: Extent, epoch: Epoch) {
        let first = extent.lba.0 / self.region_blocks;
        let last = (extent.lba.0 + extent.blocks.0 - 1) / self.region_blocks;
        for stamp in &mut self.epochs[first as usize..=last as usize] {
            *stamp = epoch.max(*stamp);
        }
    }

    /// The stamp of the region that holds `lba`.
    pub(crate) fn at(&self, lba: Lba) -> Epoch {
        self.epochs[(lba.0 / self.region_blocks) as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stamp_covers_all_regions_of_an_extent_and_never_ages() {
        let mut stamps = Stamps::new(Blocks(20), Blocks(8));
        stamps.stamp(Extent::new(Lba(7), Blocks(2)), Epoch(3));
        stamps.stamp(Extent::new(Lba(0), Blocks(1)), Epoch(2));
        let at = |lba| stamps.at(Lba(lba)).0;
        assert_eq!((at(0), at(8), at(19)), (3, 3, 0));
    }
}
