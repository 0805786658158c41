//! Extents in which a copy may differ from others.

use block::{Blocks, Extent, Lba};

/// Extents of writes of which a member does not know whether every member in sync has them.
/// Bounded: beyond its limit one extent covers all.
#[derive(Clone, Debug, Default)]
pub(crate) struct Unsettled {
    extents: Vec<Extent>,
}

impl Unsettled {
    /// Adds `extent`; afterwards at most `max` extents are held.
    pub(crate) fn add(&mut self, extent: Extent, max: usize) {
        if self.extents.contains(&extent) {
            return;
        }
        self.extents.push(extent);
        if self.extents.len() > max {
            let start = self.extents.iter().map(|extent| extent.lba.0).min();
            let ends = self.extents.iter().map(|extent| end(*extent));
            let (start, end) = (start.unwrap_or(0), ends.max().unwrap_or(0));
            self.extents = vec![Extent::new(Lba(start), Blocks(end - start))];
        }
    }

    pub(crate) fn as_slice(&self) -> &[Extent] {
        &self.extents
    }

    pub(crate) fn clear(&mut self) {
        self.extents.clear();
    }
}

fn end(extent: Extent) -> u64 {
    extent.lba.0 + extent.blocks.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_extents_than_fit_become_one_that_covers_them() {
        let extent = |lba, blocks| Extent::new(Lba(lba), Blocks(blocks));
        let mut unsettled = Unsettled::default();
        for added in [extent(4, 2), extent(4, 2), extent(20, 1)] {
            unsettled.add(added, 2);
        }
        assert_eq!(unsettled.as_slice(), [extent(4, 2), extent(20, 1)]);
        unsettled.add(extent(9, 1), 2);
        assert_eq!(unsettled.as_slice(), [extent(4, 17)]);
    }
}
