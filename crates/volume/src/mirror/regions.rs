//! Sets of regions: equal parts of a mirror, of which each is recorded with one bit.

use block::ByteRange;

/// The smallest region.
const REGION_BYTES_MIN: u64 = 1 << 20;
/// The most regions of a volume, so that a set takes at most 128 KiB. Larger volumes have larger
/// regions.
const REGIONS_MAX: u64 = 1 << 20;

/// How a volume is divided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Division {
    len_bytes: u64,
    shift: u32,
}

impl Division {
    /// That of a volume of this length.
    pub(super) fn new(len_bytes: u64) -> Self {
        let region = len_bytes.div_ceil(REGIONS_MAX).max(REGION_BYTES_MIN);
        Self {
            len_bytes,
            shift: region.next_power_of_two().trailing_zeros(),
        }
    }

    /// The number of regions.
    pub(super) const fn count(self) -> u64 {
        self.len_bytes.div_ceil(1 << self.shift)
    }

    /// The bytes of the volume.
    pub(super) const fn len_bytes(self) -> u64 {
        self.len_bytes
    }

    /// The bytes of a region; the last one may be shorter.
    pub(super) fn range(self, region: u64) -> ByteRange {
        let offset = region << self.shift;
        ByteRange {
            offset,
            len: (self.len_bytes - offset).min(1 << self.shift),
        }
    }
}

/// A set of regions of one volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Regions {
    division: Division,
    words: Vec<u64>,
    /// How many are in the set.
    count: u64,
}

impl Regions {
    /// The empty set.
    pub(super) fn none(division: Division) -> Self {
        Self {
            division,
            words: vec![0; division.count().div_ceil(64) as usize],
            count: 0,
        }
    }

    /// The set that these words have, of which none has a bit beyond the end; `None` if they are no
    /// such set.
    pub(super) fn from_words(division: Division, words: Vec<u64>) -> Option<Self> {
        let mut all = Self::none(division);
        all.insert_all();
        let is_within = |(word, all): (&u64, &u64)| word & !all == 0;
        let fits = words.len() == all.words.len() && words.iter().zip(&all.words).all(is_within);
        fits.then(|| Self {
            division,
            count: words.iter().map(|word| u64::from(word.count_ones())).sum(),
            words,
        })
    }

    pub(super) const fn division(&self) -> Division {
        self.division
    }

    pub(super) fn words(&self) -> &[u64] {
        &self.words
    }

    /// Whether another set of the same volume has nothing else.
    pub(super) fn has_all_of(&self, other: &Self) -> bool {
        let mut both = self.words.iter().zip(&other.words);
        both.all(|(own, other)| other & !own == 0)
    }

    /// Whether it has all regions of these bytes.
    pub(super) fn covers(&self, range: ByteRange) -> bool {
        let mut bits = self.bits_of(range);
        bits.all(|(word, bits)| bits & !self.words[word] == 0)
    }

    /// The memory of a set in bytes.
    pub(super) const fn memory_bytes(division: Division) -> u64 {
        division.count().div_ceil(64) * 8
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The bytes of all regions in the set.
    pub(super) fn len_bytes(&self) -> u64 {
        let last = self.division.count() - 1;
        let whole = self.count << self.division.shift;
        if self.contains(last) {
            whole - (1 << self.division.shift) + self.division.range(last).len
        } else {
            whole
        }
    }

    fn contains(&self, region: u64) -> bool {
        self.words[(region / 64) as usize] >> (region % 64) & 1 == 1
    }

    /// Adds the regions of these bytes.
    pub(super) fn insert(&mut self, range: ByteRange) {
        for (word, bits) in self.bits_of(range) {
            self.add(word, bits);
        }
    }

    /// The words, and the bits in them, that stand for the regions of these bytes.
    fn bits_of(&self, range: ByteRange) -> impl Iterator<Item = (usize, u64)> + use<> {
        let shift = self.division.shift;
        let first = range.offset >> shift;
        let end = match range.len {
            0 => first,
            len => ((range.offset + len - 1) >> shift) + 1,
        };
        let words = if first < end {
            first / 64..end.div_ceil(64)
        } else {
            0..0
        };
        words.map(move |word| {
            let from = first.max(word * 64) - word * 64;
            let to = (end - 1).min(word * 64 + 63) - word * 64;
            (word as usize, (u64::MAX >> (63 - to)) & (u64::MAX << from))
        })
    }

    /// Adds all regions.
    pub(super) fn insert_all(&mut self) {
        self.insert(ByteRange {
            offset: 0,
            len: self.division.len_bytes,
        });
    }

    /// Adds what another set of the same volume has.
    pub(super) fn insert_set(&mut self, other: &Self) {
        for (word, bits) in other.words.iter().enumerate() {
            self.add(word, *bits);
        }
    }

    pub(super) fn remove(&mut self, region: u64) {
        if self.contains(region) {
            self.words[(region / 64) as usize] &= !(1 << (region % 64));
            self.count -= 1;
        }
    }

    pub(super) fn clear(&mut self) {
        self.words.fill(0);
        self.count = 0;
    }

    /// The first region of the set from `from` on.
    pub(super) fn next(&self, from: u64) -> Option<u64> {
        let mut word = (from / 64) as usize;
        let mut bits = self.words.get(word)? & (u64::MAX << (from % 64));
        while bits == 0 {
            word += 1;
            bits = *self.words.get(word)?;
        }
        Some(word as u64 * 64 + u64::from(bits.trailing_zeros()))
    }

    fn add(&mut self, word: usize, bits: u64) {
        let new = bits & !self.words[word];
        self.words[word] |= new;
        self.count += u64::from(new.count_ones());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(offset: u64, len: u64) -> ByteRange {
        ByteRange { offset, len }
    }

    #[test]
    fn a_volume_of_any_size_has_a_bounded_number_of_regions() {
        assert_eq!(Division::new(1 << 20).count(), 1);
        assert_eq!(Division::new((3 << 20) + 512).count(), 4);
        let largest = Division::new(64 << 40);
        assert_eq!(largest.count(), REGIONS_MAX);
        assert_eq!(largest.range(1), bytes(64 << 20, 64 << 20));
        assert_eq!(Regions::memory_bytes(largest), 128 << 10);
    }

    #[test]
    fn a_set_has_the_regions_of_what_was_inserted() {
        let division = Division::new((200 << 20) + 512);
        let mut set = Regions::none(division);
        set.insert(bytes(0, 0));
        assert_eq!(set.next(0), None);
        set.insert(bytes((63 << 20) + 7, 2 << 20));
        set.insert(bytes(200 << 20, 512));
        let all = std::iter::successors(set.next(0), |region| set.next(region + 1));
        assert_eq!(all.collect::<Vec<_>>(), [63, 64, 65, 200]);
        assert_eq!(set.len_bytes(), (3 << 20) + 512);
        set.remove(64);
        set.remove(64);
        assert_eq!(set.next(64), Some(65));
        let mut other = Regions::none(division);
        other.insert_all();
        assert_eq!(other.len_bytes(), (200 << 20) + 512);
        other.clear();
        other.insert_set(&set);
        assert_eq!(other, set);
    }
}
