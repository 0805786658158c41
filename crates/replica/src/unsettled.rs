//! Extents in which a copy may differ from others.

use block::{Blocks, Extent};

/// Extents of writes of which a member does not know whether every member in sync has them.
/// Bounded: beyond its limit neighbours become one extent, those with the fewest blocks between
/// them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Unsettled {
    /// In ascending order of their first blocks.
    extents: Vec<Extent>,
}

impl Unsettled {
    /// Adds `extent`; afterwards at most `max` extents are held.
    pub(crate) fn add(&mut self, extent: Extent, max: usize) {
        if self.extents.contains(&extent) {
            return;
        }
        let place = self.extents.partition_point(|other| other.lba < extent.lba);
        self.extents.insert(place, extent);
        if self.extents.len() > max {
            self.join_nearest();
        }
    }

    fn join_nearest(&mut self) {
        let gap = |place: &usize| {
            let (first, next) = (self.extents[*place], self.extents[place + 1]);
            next.lba.0.saturating_sub(end(first))
        };
        let Some(place) = (0..self.extents.len() - 1).min_by_key(gap) else {
            return;
        };
        let next = self.extents.remove(place + 1);
        let first = &mut self.extents[place];
        first.blocks = Blocks(end(*first).max(end(next)) - first.lba.0);
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
    use block::Lba;

    use super::*;

    #[test]
    fn more_extents_than_fit_become_fewer_that_cover_them() {
        let extent = |lba, blocks| Extent::new(Lba(lba), Blocks(blocks));
        let mut unsettled = Unsettled::default();
        for added in [extent(20, 1), extent(4, 2), extent(4, 2)] {
            unsettled.add(added, 2);
        }
        assert_eq!(unsettled.as_slice(), [extent(4, 2), extent(20, 1)]);
        unsettled.add(extent(9, 1), 2);
        assert_eq!(unsettled.as_slice(), [extent(4, 6), extent(20, 1)]);
        // It covers both.
        unsettled.add(extent(0, 40), 2);
        unsettled.add(extent(1, 1), 2);
        assert_eq!(unsettled.as_slice(), [extent(0, 40), extent(20, 1)]);
        unsettled.add(extent(50, 1), 1);
        assert!(unsettled.as_slice().len() <= 2);
    }
}
