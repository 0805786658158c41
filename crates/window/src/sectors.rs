//! Sets of sectors of one frame. A sector is one block of the volume.

/// The most sectors of a frame.
pub(crate) const SECTORS_MAX: u32 = u128::BITS;

/// Some sectors of a frame.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct SectorSet(u128);

impl SectorSet {
    pub(crate) const EMPTY: Self = Self(0);

    /// `count` sectors from `first` on, all below [`SECTORS_MAX`].
    pub(crate) const fn span(first: u32, count: u32) -> Self {
        assert!(first + count <= SECTORS_MAX, "a frame has so many sectors");
        if count == 0 {
            return Self::EMPTY;
        }
        Self(u128::MAX >> (SECTORS_MAX - count) << first)
    }

    pub(crate) const fn is_empty(self) -> bool {
        self.0 == 0
    }

    pub(crate) const fn and(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    pub(crate) const fn or(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    pub(crate) const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// Whether every sector of `other` is in the set.
    pub(crate) const fn has_all(self, other: Self) -> bool {
        other.without(self).is_empty()
    }

    /// The first run of adjacent sectors, as first sector and count.
    pub(crate) const fn first_run(self) -> Option<(u32, u32)> {
        if self.is_empty() {
            return None;
        }
        let first = self.0.trailing_zeros();
        Some((first, (self.0 >> first).trailing_ones()))
    }

    /// Every run of adjacent sectors.
    pub(crate) fn runs(self) -> impl Iterator<Item = (u32, u32)> {
        let mut left = self;
        std::iter::from_fn(move || {
            let (first, count) = left.first_run()?;
            left = left.without(Self::span(first, count));
            Some((first, count))
        })
    }

    /// The shortest run that contains the set, as first sector and count.
    pub(crate) const fn hull(self) -> (u32, u32) {
        if self.is_empty() {
            return (0, 0);
        }
        let first = self.0.trailing_zeros();
        (first, SECTORS_MAX - self.0.leading_zeros() - first)
    }
}

impl std::fmt::Debug for SectorSet {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.runs()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_and_hull_reach_both_ends() {
        let all = SectorSet::span(0, SECTORS_MAX);
        assert_eq!(all.first_run(), Some((0, SECTORS_MAX)));
        let ends = SectorSet::span(0, 1).or(SectorSet::span(SECTORS_MAX - 2, 2));
        assert_eq!(
            ends.runs().collect::<Vec<_>>(),
            [(0, 1), (SECTORS_MAX - 2, 2)]
        );
        assert_eq!(ends.hull(), (0, SECTORS_MAX));
        assert!(all.has_all(ends) && !ends.has_all(all));
        assert_eq!(all.without(ends), SectorSet::span(1, SECTORS_MAX - 3));
        assert_eq!(SectorSet::EMPTY.first_run(), None);
        assert_eq!(SectorSet::span(5, 0), SectorSet::EMPTY);
    }
}
