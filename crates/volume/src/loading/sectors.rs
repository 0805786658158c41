//! Which 512-byte sectors of one chunk hosts have changed.

use std::ops::Range;

use block::ByteRange;
use image::CHUNK_BYTES;

/// Bytes in a sector: the smallest block.
const SECTOR_BYTES: u64 = 512;
const SECTORS: usize = (CHUNK_BYTES / SECTOR_BYTES) as usize;

/// Some sectors of a chunk.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Sectors([u64; SECTORS / 64]);

impl Sectors {
    /// Adds the sectors of a range of bytes of the chunk, which consists of whole sectors.
    pub(super) fn insert(&mut self, bytes: &Range<u64>) {
        for sector in sectors_of(bytes) {
            self.0[sector / 64] |= 1 << (sector % 64);
        }
    }

    /// Whether all sectors of a range of bytes are there.
    pub(super) fn has_all(&self, bytes: &Range<u64>) -> bool {
        sectors_of(bytes).all(|sector| self.has(sector))
    }

    /// The ranges among the first `len_bytes` of the chunk whose sectors are not there, in order.
    pub(super) fn gaps(&self, len_bytes: u64) -> impl Iterator<Item = ByteRange> + '_ {
        let end = sectors_of(&(0..len_bytes)).end;
        let mut at = 0;
        std::iter::from_fn(move || {
            let first = (at..end).find(|&sector| !self.has(sector))?;
            let next = (first..end).find(|&sector| self.has(sector));
            at = next.unwrap_or(end);
            Some(ByteRange {
                offset: first as u64 * SECTOR_BYTES,
                len: (at - first) as u64 * SECTOR_BYTES,
            })
        })
    }

    fn has(&self, sector: usize) -> bool {
        self.0[sector / 64] & 1 << (sector % 64) != 0
    }
}

/// The sectors of a range of bytes of a chunk.
fn sectors_of(bytes: &Range<u64>) -> Range<usize> {
    let sector = |at: u64| (at / SECTOR_BYTES) as usize;
    sector(bytes.start)..sector(bytes.end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gaps_are_what_was_not_inserted() {
        let mut sectors = Sectors::default();
        let gaps = |sectors: &Sectors, len: u64| -> Vec<_> {
            let gaps = sectors.gaps(len);
            gaps.map(|gap| (gap.offset, gap.len)).collect()
        };
        assert_eq!(gaps(&sectors, CHUNK_BYTES), [(0, CHUNK_BYTES)]);
        sectors.insert(&(512..1024));
        sectors.insert(&(32768..CHUNK_BYTES));
        assert_eq!(gaps(&sectors, CHUNK_BYTES), [(0, 512), (1024, 31744)]);
        assert_eq!(gaps(&sectors, 1536), [(0, 512), (1024, 512)]);
        assert!(sectors.has_all(&(512..1024)) && !sectors.has_all(&(512..1536)));
        sectors.insert(&(0..32768));
        assert_eq!(gaps(&sectors, CHUNK_BYTES), []);
    }
}
