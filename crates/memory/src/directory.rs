//! Where a store finds its chunks.

use std::sync::OnceLock;

use crate::chunk::Chunk;

/// Segments; segment `n` has 2^n chunks, so a small store has a small directory and none is ever
/// moved.
const SEGMENTS: usize = 17;

/// The chunks of a store that exist, by number. Chunks are added and never removed.
#[derive(Debug, Default)]
pub(crate) struct Directory {
    segments: [OnceLock<Segment>; SEGMENTS],
}

type Segment = Box<[OnceLock<Chunk>]>;

impl Directory {
    /// The most chunks that a directory holds.
    pub(crate) const CHUNKS_MAX: u64 = 1 << (SEGMENTS - 1);

    /// The chunk, if it exists.
    pub(crate) fn get(&self, chunk: u64) -> Option<&Chunk> {
        if chunk >= Self::CHUNKS_MAX {
            return None;
        }
        let (segment, index) = locate(chunk);
        self.segments[segment].get()?[index].get()
    }

    /// The chunk. `make` creates it if it does not exist.
    pub(crate) fn get_or_try_make<E>(
        &self,
        chunk: u64,
        make: impl FnOnce() -> Result<Chunk, E>,
    ) -> Result<&Chunk, E> {
        assert!(
            chunk < Self::CHUNKS_MAX,
            "a store has at most CHUNKS_MAX chunks"
        );
        let (segment, index) = locate(chunk);
        let segment = self.segments[segment]
            .get_or_init(|| (0..1 << segment).map(|_| OnceLock::new()).collect());
        if let Some(found) = segment[index].get() {
            return Ok(found);
        }
        // If two threads make the same chunk at once, one of the two mappings is dropped unused.
        let made = make()?;
        Ok(segment[index].get_or_init(|| made))
    }

    /// The numbers of the chunks that exist, from `first` on, in order.
    pub(crate) fn existing_from(&self, first: u64) -> impl Iterator<Item = (u64, &Chunk)> {
        let first = first.min(Self::CHUNKS_MAX);
        let (segment, _) = locate(first);
        let segments = self.segments.iter().enumerate().skip(segment);
        segments
            .filter_map(|(n, segment)| Some(((1_u64 << n) - 1, segment.get()?)))
            .flat_map(|(start, segment)| (start..).zip(segment.iter()))
            .filter_map(|(number, chunk)| Some((number, chunk.get()?)))
            .filter(move |&(number, _)| number >= first)
    }
}

/// Segment and index inside it: chunk 0 | 1 2 | 3 4 5 6 | …
fn locate(chunk: u64) -> (usize, usize) {
    let number = chunk + 1;
    let segment = number.ilog2();
    (segment as usize, (number - (1 << segment)) as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_chunk_has_one_place() {
        let places: Vec<_> = (0..7).map(locate).collect();
        let expected = [(0, 0), (1, 0), (1, 1), (2, 0), (2, 1), (2, 2), (2, 3)];
        assert_eq!(places, expected);
        assert_eq!(
            locate(Directory::CHUNKS_MAX - 1),
            (SEGMENTS - 1, 0),
            "the last segment has room for more"
        );
    }
}
