//! What each block may hold.

use std::collections::BTreeMap;

use block::{Extent, Lba};

/// The mark of blocks that hold zeros.
const ZEROS: u64 = 0;

/// What the blocks of a volume may hold: the last acknowledged write, or any write whose outcome is
/// unknown because its connection was cut. At most one write to a block is under way at a time.
#[derive(Debug, Default)]
pub struct Model {
    blocks: BTreeMap<u64, Content>,
}

#[derive(Clone, Debug, Default)]
struct Content {
    settled: u64,
    /// Marks that may have been written instead.
    maybe: Vec<u64>,
}

impl Model {
    /// A write of `mark` (0 for zeros) was acknowledged.
    pub fn acknowledge(&mut self, extent: Extent, mark: u64) {
        for lba in lbas(extent) {
            self.blocks.insert(
                lba,
                Content {
                    settled: mark,
                    maybe: Vec::new(),
                },
            );
        }
    }

    /// A write of `mark` was sent, and its connection cut before an answer came.
    pub fn lose(&mut self, extent: Extent, mark: u64) {
        for lba in lbas(extent) {
            self.blocks.entry(lba).or_default().maybe.push(mark);
        }
    }

    /// Checks a block that was read. What is seen once is settled: nothing else is under way.
    ///
    /// # Panics
    /// Where the block holds anything but what it may hold.
    pub fn check(&mut self, lba: Lba, data: &[u8]) {
        let content = self.blocks.entry(lba.0).or_default();
        let seen = read_mark(lba, data);
        let allowed =
            seen.is_some_and(|mark| mark == content.settled || content.maybe.contains(&mark));
        assert!(
            allowed,
            "block {} holds {seen:x?}; it may hold {:x} or one of {:x?}",
            lba.0, content.settled, content.maybe
        );
        content.settled = seen.expect("just found allowed");
        content.maybe.clear();
    }
}

fn lbas(extent: Extent) -> std::ops::Range<u64> {
    extent.lba.0..extent.lba.0 + extent.blocks.0
}

/// Fills a block with `mark`, so that a block torn anywhere or put at another place is noticed.
pub(crate) fn fill(lba: Lba, mark: u64, block: &mut [u8]) {
    for (i, word) in block.chunks_exact_mut(8).enumerate() {
        word.copy_from_slice(&word_of(lba, mark, i).to_le_bytes());
    }
}

/// The mark of a block; `None` where its words disagree.
fn read_mark(lba: Lba, block: &[u8]) -> Option<u64> {
    if block.iter().all(|byte| *byte == 0) {
        return Some(ZEROS);
    }
    let mut words = block
        .chunks_exact(8)
        .map(|word| u64::from_le_bytes(word.try_into().expect("8")));
    let mark = words.next()? ^ place_key(lba, 0);
    let same = words
        .enumerate()
        .all(|(i, word)| word == word_of(lba, mark, i + 1));
    same.then_some(mark)
}

fn word_of(lba: Lba, mark: u64, index: usize) -> u64 {
    mark ^ place_key(lba, index)
}

/// Differs by block and by word.
fn place_key(lba: Lba, index: usize) -> u64 {
    (lba.0 << 8 | index as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15)
}

#[cfg(test)]
mod tests {
    use super::*;
    use block::Blocks;

    const ONE: Extent = Extent::new(Lba(7), Blocks(1));

    fn block(mark: u64) -> Vec<u8> {
        let mut block = vec![0; 512];
        fill(Lba(7), mark, &mut block);
        block
    }

    #[test]
    fn a_lost_write_may_be_seen_or_not_but_not_both_in_turn() {
        let mut model = Model::default();
        model.acknowledge(ONE, 1);
        model.lose(ONE, 2);
        model.check(Lba(7), &block(2));
        let back = std::panic::catch_unwind(move || model.check(Lba(7), &block(1)));
        assert!(back.is_err(), "an old block must not come back");
    }

    #[test]
    fn torn_and_misplaced_blocks_are_noticed() {
        let mut torn = block(1);
        torn[256..].copy_from_slice(&block(2)[256..]);
        assert_eq!(read_mark(Lba(7), &torn), None);
        assert_ne!(read_mark(Lba(8), &block(1)), Some(1));
        assert_eq!(read_mark(Lba(7), &block(1)), Some(1));
        assert_eq!(read_mark(Lba(7), &[0; 512]), Some(ZEROS));
    }
}
