//! Which frame holds a window block: a hash table of eight bytes per entry, so that a look-up
//! touches one cache line. The table knows blocks by a hash of 32 bits alone; who looks one up
//! checks the frame itself, which is needed next in any case.

use std::hash::{BuildHasher as _, RandomState};

/// The least places of a table that is not empty.
const PLACES_MIN: usize = 16;
/// At most [`LOAD_MAX`] of this many places are taken.
const LOAD_OF: usize = 4;
/// The most of [`LOAD_OF`] places that are taken.
const LOAD_MAX: usize = 3;

/// Frames by their window blocks. Collisions go to the next free place.
#[derive(Debug)]
pub(crate) struct FrameIndex {
    places: Box<[Option<Entry>]>,
    len: usize,
    hashing: Hashing,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    hash: u32,
    frame: Frame,
}

/// The number of a frame and one, so that an empty place takes no room of its own.
type Frame = std::num::NonZeroU32;

/// Multipliers that no peer knows, so that none can choose blocks that collide.
#[derive(Debug)]
struct Hashing {
    first: u64,
    second: u64,
}

impl Hashing {
    fn new() -> Self {
        let random = RandomState::new();
        // Odd, so that no bit of a block is lost.
        Self {
            first: random.hash_one(1) | 1,
            second: random.hash_one(2) | 1,
        }
    }

    fn hash(&self, block: u64) -> u32 {
        let mut mixed = block.wrapping_add(self.first);
        for _ in 0..2 {
            mixed = (mixed ^ mixed >> 32).wrapping_mul(self.second);
        }
        (mixed >> 32) as u32
    }
}

impl FrameIndex {
    /// What an entry takes of memory at most: a table that has just doubled is less than half full.
    pub(crate) const ENTRY_BYTES: usize =
        2 * LOAD_OF * size_of::<Option<Entry>>() / LOAD_MAX + size_of::<Entry>();

    pub(crate) fn new() -> Self {
        Self {
            places: Box::default(),
            len: 0,
            hashing: Hashing::new(),
        }
    }

    /// How many window blocks have frames.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// The frame of a window block. `holds` says whether a frame holds it.
    pub(crate) fn get(&self, block: u64, holds: impl Fn(u32) -> bool) -> Option<u32> {
        if self.len == 0 {
            return None;
        }
        let hash = self.hashing.hash(block);
        let mut at = self.home(hash);
        while let Some(entry) = self.places[at] {
            let frame = entry.frame.get() - 1;
            if entry.hash == hash && holds(frame) {
                return Some(frame);
            }
            at = self.after(at);
        }
        None
    }

    /// A window block is looked up soon.
    pub(crate) fn prefetch(&self, block: u64) {
        if self.len > 0 {
            let at = self.home(self.hashing.hash(block));
            memory::prefetch_value(&self.places[at]);
        }
    }

    /// A frame holds a window block that no frame has held.
    pub(crate) fn insert(&mut self, block: u64, frame: u32) {
        if (self.len + 1) * LOAD_OF > self.places.len() * LOAD_MAX {
            self.grow();
        }
        self.len += 1;
        self.put(Entry {
            hash: self.hashing.hash(block),
            frame: Frame::new(frame + 1).expect("numbers of frames are far below the largest"),
        });
    }

    /// A frame does not hold its window block any more.
    pub(crate) fn remove(&mut self, block: u64, frame: u32) {
        let mut hole = self.home(self.hashing.hash(block));
        while self.places[hole].is_some_and(|entry| entry.frame.get() - 1 != frame) {
            hole = self.after(hole);
        }
        if self.places[hole].take().is_none() {
            return;
        }
        self.len -= 1;
        // What follows moves closer to its home, so that no search ends at the hole.
        let mut at = self.after(hole);
        while let Some(entry) = self.places[at] {
            let mask = self.places.len() - 1;
            let from_home = at.wrapping_sub(self.home(entry.hash)) & mask;
            let from_hole = at.wrapping_sub(hole) & mask;
            if from_home >= from_hole {
                self.places[hole] = self.places[at].take();
                hole = at;
            }
            at = self.after(at);
        }
    }

    /// Every frame that holds a window block.
    pub(crate) fn frames(&self) -> impl Iterator<Item = u32> {
        let taken = self.places.iter().flatten();
        taken.map(|entry| entry.frame.get() - 1)
    }

    fn put(&mut self, entry: Entry) {
        let mut at = self.home(entry.hash);
        while self.places[at].is_some() {
            at = self.after(at);
        }
        self.places[at] = Some(entry);
    }

    fn grow(&mut self) {
        let count = (self.places.len() * 2).max(PLACES_MIN);
        let before = std::mem::replace(&mut self.places, vec![None; count].into());
        for entry in before.into_iter().flatten() {
            self.put(entry);
        }
    }

    fn home(&self, hash: u32) -> usize {
        hash as usize & (self.places.len() - 1)
    }

    fn after(&self, at: usize) -> usize {
        (at + 1) & (self.places.len() - 1)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn an_entry_takes_eight_bytes() {
        assert_eq!(size_of::<Option<Entry>>(), 8);
    }

    #[test]
    fn neighbours_and_strides_are_spread() {
        const COUNT: u64 = 3000;
        for stride in [1, 8, 64, 1 << 20, 1 << 40] {
            let mut index = FrameIndex::new();
            for number in 0..COUNT {
                index.insert(number * stride, number as u32);
            }
            let mask = index.places.len() - 1;
            let entries = index.places.iter().enumerate();
            let from_home = entries.filter_map(|(at, entry)| {
                entry.map(|entry| at.wrapping_sub(index.home(entry.hash)) & mask)
            });
            // 1.4 each are expected of random places where 73 % are taken.
            let total: usize = from_home.sum();
            assert!(total < 5 * COUNT as usize, "a stride of {stride}: {total}");
        }
    }

    proptest! {
        #[test]
        fn it_is_a_map(
            // Few blocks, so that they come again, and hashes that collide.
            steps in proptest::collection::vec((0..60_u64, any::<bool>()), 1..400),
            collides in any::<bool>(),
        ) {
            let mut index = FrameIndex::new();
            if collides {
                // All homes are the last few places.
                index.hashing = Hashing { first: 1, second: u64::MAX << 30 };
            }
            let mut model = HashMap::new();
            let mut blocks = Vec::new();
            for (block, is_insert) in steps {
                match model.get(&block).copied() {
                    None if is_insert => {
                        let frame = blocks.len() as u32;
                        blocks.push(block);
                        index.insert(block, frame);
                        model.insert(block, frame);
                    }
                    Some(frame) if !is_insert => {
                        index.remove(block, frame);
                        model.remove(&block);
                    }
                    _ => {}
                }
                prop_assert_eq!(index.len(), model.len());
                for block in 0..60 {
                    let found = index.get(block, |frame| blocks[frame as usize] == block);
                    prop_assert_eq!(found, model.get(&block).copied());
                }
                let mut frames: Vec<u32> = index.frames().collect();
                let mut expected: Vec<u32> = model.values().copied().collect();
                frames.sort_unstable();
                expected.sort_unstable();
                prop_assert_eq!(frames, expected);
            }
        }
    }
}
