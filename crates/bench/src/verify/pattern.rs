//! The contents of a block that was written for verification: its identity, then words derived from
//! that.

use crate::order::SplitMix;

/// The first bytes of every block.
const MAGIC: u64 = u64::from_le_bytes(*b"ramport\x01");
const WORD_BYTES: usize = 8;

/// Identifies a block and the write that made it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stamp {
    pub(crate) lba: u64,
    pub(crate) seed: u64,
    /// How often the block had been written then, this time included.
    pub(crate) generation: u64,
}

impl Stamp {
    /// The stamp's block, word by word, without end.
    fn words(self) -> impl Iterator<Item = u64> {
        let mut key = SplitMix(self.seed ^ self.lba.rotate_left(32));
        let mut body = SplitMix(key.next() ^ self.generation);
        let head = [MAGIC, self.lba, self.seed, self.generation];
        head.into_iter()
            .chain(std::iter::repeat_with(move || body.next()))
    }

    /// Fills a block.
    pub(crate) fn fill(self, block: &mut [u8]) {
        for (bytes, word) in block.chunks_exact_mut(WORD_BYTES).zip(self.words()) {
            bytes.copy_from_slice(&word.to_le_bytes());
        }
    }

    /// The first byte of `block` that is not what the stamp's block holds.
    pub(crate) fn first_difference(self, block: &[u8]) -> Option<usize> {
        let words = block.chunks_exact(WORD_BYTES).zip(self.words());
        for (index, (bytes, word)) in words.enumerate() {
            let expected = word.to_le_bytes();
            if bytes != expected {
                let inside = bytes.iter().zip(&expected).position(|(a, b)| a != b);
                return Some(index * WORD_BYTES + inside.unwrap_or(0));
            }
        }
        None
    }

    /// The identity in `block`, if it was written for verification.
    pub(crate) fn of(block: &[u8]) -> Option<Self> {
        let mut words = block
            .chunks_exact(WORD_BYTES)
            .map(|bytes| u64::from_le_bytes(bytes.try_into().expect("a word has 8 bytes")));
        if words.next()? != MAGIC {
            return None;
        }
        Some(Self {
            lba: words.next()?,
            seed: words.next()?,
            generation: words.next()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STAMP: Stamp = Stamp {
        lba: 77,
        seed: 5,
        generation: 3,
    };

    #[test]
    fn a_block_holds_its_identity_and_every_byte_is_checked() {
        let mut block = [0; 512];
        STAMP.fill(&mut block);
        assert_eq!(Stamp::of(&block), Some(STAMP));
        assert_eq!(STAMP.first_difference(&block), None);
        for at in 0..block.len() {
            block[at] ^= 0x10;
            assert_eq!(STAMP.first_difference(&block), Some(at));
            block[at] ^= 0x10;
        }
    }

    #[test]
    fn blocks_differ_in_lba_seed_and_generation() {
        let mut block = [0; 512];
        STAMP.fill(&mut block);
        for other in [
            Stamp { lba: 78, ..STAMP },
            Stamp { seed: 6, ..STAMP },
            Stamp {
                generation: 4,
                ..STAMP
            },
        ] {
            let mut different = [0; 512];
            other.fill(&mut different);
            assert_ne!(block[32..40], different[32..40], "{other:?}");
        }
    }
}
