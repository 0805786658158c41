//! Which frame of a cache is evicted: S3-FIFO (J. Yang, Y. Zhang, Z. Qiu, Y. Yue, K. V. Rashmi:
//! "FIFO Queues are All You Need for Cache Eviction", SOSP 2023).
//!
//! ```text
//!  new ──► small (a tenth) ──┬─ used again ──► main ──┬─ used since ──► main again
//!                            └─ not ──► ghosts        └─ not ──► evicted
//!  new, its block is among the ghosts ──► main
//! ```
//!
//! Blocks that are used once pass through the small queue, so a scan does not evict what is used
//! often. A frame that cannot be evicted now (a command uses it, or it is dirty) leaves its queue
//! when its turn comes and joins it again when it can.

use std::collections::{HashMap, VecDeque};

/// The share of the small queue: one in this many frames.
const SMALL_SHARE: usize = 10;
/// The highest count of uses.
const USES_MAX: u8 = 3;
/// A frame with more uses moves from the small queue to the main one.
const USES_TO_STAY: u8 = 1;

/// The queues. Frames are named by their numbers, window blocks by theirs.
#[derive(Debug, Default)]
pub(crate) struct S3Fifo {
    small: VecDeque<u32>,
    main: VecDeque<u32>,
    entries: Vec<Entry>,
    ghosts: Ghosts,
}

#[derive(Clone, Copy, Debug, Default)]
struct Entry {
    uses: u8,
    queue: Queue,
    is_queued: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Queue {
    #[default]
    Small,
    Main,
}

/// Window blocks that were evicted from the small queue, the oldest first.
#[derive(Debug, Default)]
struct Ghosts {
    order: VecDeque<(u64, u32)>,
    /// The number of each block's last entry in the order.
    last: HashMap<u64, u32>,
    next: u32,
}

impl S3Fifo {
    /// What it takes of memory for a frame, at most, besides the map of ghosts: vectors double when
    /// they grow.
    pub(crate) const FRAME_BYTES: usize =
        2 * (size_of::<Entry>() + 2 * size_of::<u32>() + size_of::<(u64, u32)>());

    /// A frame gets a window block.
    pub(crate) fn assign(&mut self, frame: u32, block: u64) {
        let frame = frame as usize;
        if self.entries.len() <= frame {
            self.entries.resize(frame + 1, Entry::default());
        }
        let queue = if self.ghosts.take(block) {
            Queue::Main
        } else {
            Queue::Small
        };
        self.entries[frame] = Entry {
            uses: 0,
            queue,
            is_queued: false,
        };
    }

    /// A command uses the block of a frame that was there.
    pub(crate) fn touch(&mut self, frame: u32) {
        let uses = &mut self.entries[frame as usize].uses;
        *uses = (*uses + 1).min(USES_MAX);
    }

    /// A frame is used soon.
    pub(crate) fn prefetch(&self, frame: u32) {
        if let Some(entry) = self.entries.get(frame as usize) {
            memory::prefetch_value(entry);
        }
    }

    /// A frame can be evicted.
    pub(crate) fn join(&mut self, frame: u32) {
        let entry = &mut self.entries[frame as usize];
        if std::mem::replace(&mut entry.is_queued, true) {
            return;
        }
        match entry.queue {
            Queue::Small => self.small.push_back(frame),
            Queue::Main => self.main.push_back(frame),
        }
    }

    /// Whether a frame is in a queue.
    pub(crate) fn is_queued(&self, frame: u32) -> bool {
        self.entries[frame as usize].is_queued
    }

    /// Takes the frame to evict out of its queue. At least one frame that can be evicted is in a
    /// queue. `block_of` is the window block of a frame, or `None` if it cannot be evicted now.
    /// `ghosts_max` bounds what is remembered of evicted blocks.
    pub(crate) fn evict(
        &mut self,
        ghosts_max: usize,
        block_of: impl Fn(u32) -> Option<u64>,
    ) -> Option<u32> {
        // Each turn takes a frame out of the queues, moves it to the main one or lowers its uses.
        loop {
            let queued = self.small.len() + self.main.len();
            let is_small = self.small.len() * SMALL_SHARE >= queued || self.main.is_empty();
            let queue = if is_small {
                &mut self.small
            } else {
                &mut self.main
            };
            let frame = queue.pop_front()?;
            let entry = &mut self.entries[frame as usize];
            let Some(block) = block_of(frame) else {
                entry.is_queued = false;
                continue;
            };
            if is_small && entry.uses > USES_TO_STAY {
                entry.queue = Queue::Main;
                entry.uses = 0;
                self.main.push_back(frame);
            } else if !is_small && entry.uses > 0 {
                entry.uses -= 1;
                self.main.push_back(frame);
            } else {
                entry.is_queued = false;
                if is_small {
                    self.ghosts.insert(block, ghosts_max);
                }
                return Some(frame);
            }
        }
    }
}

impl Ghosts {
    fn insert(&mut self, block: u64, max: usize) {
        self.next = self.next.wrapping_add(1);
        self.order.push_back((block, self.next));
        self.last.insert(block, self.next);
        while self.order.len() > max {
            if let Some((block, number)) = self.order.pop_front()
                && self.last.get(&block) == Some(&number)
            {
                self.last.remove(&block);
            }
        }
    }

    /// Whether the block is remembered; it is not any more.
    fn take(&mut self, block: u64) -> bool {
        self.last.remove(&block).is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A cache of window blocks that counts hits.
    struct Cache {
        policy: S3Fifo,
        frames: HashMap<u64, u32>,
        blocks: Vec<u64>,
        size: usize,
    }

    impl Cache {
        fn new(size: usize) -> Self {
            Self {
                policy: S3Fifo::default(),
                frames: HashMap::new(),
                blocks: Vec::new(),
                size,
            }
        }

        /// Whether the block was there.
        fn access(&mut self, block: u64) -> bool {
            if let Some(&frame) = self.frames.get(&block) {
                self.policy.touch(frame);
                return true;
            }
            let frame = if self.blocks.len() < self.size {
                self.blocks.push(block);
                self.blocks.len() as u32 - 1
            } else {
                let blocks = &self.blocks;
                let evicted = self.policy.evict(self.size, |it| Some(blocks[it as usize]));
                let evicted = evicted.expect("all can be evicted");
                self.frames.remove(&self.blocks[evicted as usize]);
                self.blocks[evicted as usize] = block;
                evicted
            };
            self.frames.insert(block, frame);
            self.policy.assign(frame, block);
            self.policy.join(frame);
            false
        }
    }

    #[test]
    fn a_scan_does_not_evict_what_is_used_often() {
        const SIZE: usize = 1000;
        let mut cache = Cache::new(SIZE);
        let hot = SIZE as u64 * 8 / 10;
        for _ in 0..5 {
            for block in 0..hot {
                cache.access(block);
            }
        }
        // A scan ten times as long as the cache runs beside the hot set.
        let (mut hits, mut scanned) = (0, 1_000_000);
        for round in 0..10 {
            for block in 0..hot {
                hits += u64::from(cache.access((block * 7 + round) % hot));
                cache.access(scanned);
                scanned += 1;
            }
        }
        // Least-recently-used would have none: between two uses of a block lie 1600 others.
        assert!(hits * 100 >= hot * 10 * 95, "{hits} of {}", hot * 10);
    }

    #[test]
    fn what_cannot_be_evicted_is_passed_over_and_joins_again() {
        let mut policy = S3Fifo::default();
        for frame in 0..4 {
            policy.assign(frame, u64::from(frame));
            policy.join(frame);
        }
        let only = |wanted: u32| move |frame: u32| (frame == wanted).then_some(u64::from(frame));
        assert_eq!(policy.evict(8, only(2)), Some(2));
        assert!(!policy.is_queued(0) && !policy.is_queued(1) && policy.is_queued(3));
        assert_eq!(policy.evict(8, only(0)), None);
        policy.join(0);
        assert_eq!(policy.evict(8, only(0)), Some(0));
    }

    #[test]
    fn ghosts_are_bounded() {
        let mut ghosts = Ghosts::default();
        for block in 0..100 {
            ghosts.insert(block % 10, 5);
        }
        assert!(ghosts.order.len() <= 5 && ghosts.last.len() <= 5);
        assert!(ghosts.take(9) && !ghosts.take(9) && !ghosts.take(4));
    }
}
