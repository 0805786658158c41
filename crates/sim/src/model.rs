//! What each block may hold.

use std::collections::{BTreeMap, BTreeSet};

use block::{Extent, Lba};

/// The mark of blocks that hold zeros.
pub(crate) const ZEROS: u64 = 0;

/// A write that has begun, by the time at which it did.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct WriteId(u64);

/// A read that has begun, by the time at which it did.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ReadId(u64);

/// A mark that no host writes.
pub(crate) const NEVER_WRITTEN: u64 = u64::MAX;

/// A compare-and-write in flight.
#[derive(Debug)]
pub(crate) struct Swap {
    read: ReadId,
    write: WriteId,
    pub(crate) extent: Extent,
    /// The mark that each block must hold for the write.
    expected: Vec<u64>,
}

/// What the blocks of a volume may hold, whichever hosts write them at the same time: a block holds
/// the mark of a write that was not followed by another. A write follows another if it began after
/// the other had ended, and was acknowledged. A read may see what the block held at any time while
/// the read was in flight.
#[derive(Debug, Default)]
pub(crate) struct Model {
    blocks: BTreeMap<u64, Vec<Candidate>>,
    /// Counts what begins and ends.
    clock: u64,
    /// Reads in flight, and what has the same claims on the past.
    reads: BTreeSet<ReadId>,
    /// The last flush that was acknowledged, by its begin.
    flushed: Option<ReadId>,
    /// Blocks with the marks that a compare-and-write has found and replaced. As each mark is
    /// written once, no other one can find it.
    swapped: BTreeSet<(u64, u64)>,
}

/// A write that a block may show.
#[derive(Clone, Copy, Debug)]
struct Candidate {
    mark: u64,
    begun: u64,
    /// When it was answered, or its connection was cut.
    ended: Option<u64>,
    /// When a write that followed it was acknowledged.
    replaced: Option<u64>,
    /// Whether a read has returned it.
    is_seen: bool,
}

impl Candidate {
    /// Whether a block may have held it at some time since `read` began.
    fn was_there(&self, ReadId(begun): ReadId) -> bool {
        self.replaced.is_none_or(|at| at > begun)
    }
}

/// What a block holds at first.
const INITIAL: Candidate = Candidate {
    mark: ZEROS,
    begun: 0,
    ended: Some(0),
    replaced: None,
    is_seen: false,
};

impl Model {
    fn tick(&mut self) -> u64 {
        self.clock += 1;
        self.clock
    }

    /// A write of `mark` was sent.
    pub(crate) fn begin_write(&mut self, extent: Extent, mark: u64) -> WriteId {
        let begun = self.tick();
        for lba in lbas(extent) {
            let block = self.blocks.entry(lba).or_insert_with(|| vec![INITIAL]);
            block.push(Candidate {
                mark,
                begun,
                ended: None,
                replaced: None,
                is_seen: false,
            });
        }
        WriteId(begun)
    }

    /// A write was acknowledged, or its outcome will never be known: it failed, or its connection
    /// was cut.
    pub(crate) fn end_write(&mut self, write: WriteId, extent: Extent, is_acknowledged: bool) {
        let now = self.tick();
        let WriteId(begun) = write;
        let oldest = self.reads.first().map_or(now, |ReadId(begun)| *begun);
        for lba in lbas(extent) {
            let Some(block) = self.blocks.get_mut(&lba) else {
                continue;
            };
            for candidate in block.iter_mut() {
                if candidate.begun == begun {
                    candidate.ended = Some(now);
                } else if is_acknowledged && candidate.ended.is_some_and(|ended| ended < begun) {
                    candidate.replaced.get_or_insert(now);
                }
            }
            block.retain(|candidate| candidate.replaced.is_none_or(|at| at > oldest));
        }
    }

    /// A read was sent.
    pub(crate) fn begin_read(&mut self) -> ReadId {
        let read = ReadId(self.tick());
        self.reads.insert(read);
        read
    }

    /// A read is over.
    pub(crate) fn forget_read(&mut self, read: ReadId) {
        self.reads.remove(&read);
    }

    /// Checks a block that was read. If no write was in flight during the read, the contents are
    /// final.
    ///
    /// # Panics
    /// Where the block holds anything but what it may hold.
    pub(crate) fn check(&mut self, read: ReadId, lba: Lba, data: &[u8]) {
        let now = self.tick();
        let ReadId(begun) = read;
        let block = self.blocks.entry(lba.0).or_insert_with(|| vec![INITIAL]);
        let seen = read_mark(lba, data);
        let is_seen = |candidate: &Candidate| Some(candidate.mark) == seen;
        assert!(
            block
                .iter()
                .any(|candidate| candidate.was_there(read) && is_seen(candidate)),
            "block {} holds {seen:x?} for the read begun at {begun}; it may hold {block:x?}",
            lba.0
        );
        for candidate in block.iter_mut().filter(|candidate| is_seen(candidate)) {
            candidate.is_seen = true;
        }
        let is_quiet = |candidate: &Candidate| candidate.ended.is_some_and(|ended| ended < begun);
        if block.iter().all(is_quiet) {
            for candidate in block.iter_mut().filter(|candidate| !is_seen(candidate)) {
                candidate.replaced.get_or_insert(now);
            }
        }
    }
}

impl Model {
    /// The mark that a block holds if the write that was sent last took effect.
    pub(crate) fn newest(&self, lba: Lba) -> u64 {
        let newest = self.blocks.get(&lba.0).and_then(|block| block.last());
        newest.map_or(ZEROS, |candidate| candidate.mark)
    }

    /// A compare-and-write of `mark` was sent.
    pub(crate) fn begin_swap(&mut self, extent: Extent, expected: Vec<u64>, mark: u64) -> Swap {
        Swap {
            read: self.begin_read(),
            write: self.begin_write(extent, mark),
            extent,
            expected,
        }
    }

    /// A compare-and-write succeeded: at one moment while it was in flight, its blocks held what it
    /// expected.
    ///
    /// # Panics
    /// If a block cannot have held that, or another compare-and-write has found the same.
    pub(crate) fn end_swap(&mut self, swap: &Swap) {
        let now = self.tick();
        for (lba, &expected) in lbas(swap.extent).zip(&swap.expected) {
            let block = self.blocks.get_mut(&lba).expect("it was written");
            let mut found = block
                .iter_mut()
                .filter(|candidate| candidate.mark == expected && candidate.was_there(swap.read));
            let Some(found) = found.next() else {
                panic!("{swap:x?}: block {lba} may hold {block:x?}");
            };
            if expected != ZEROS {
                found.replaced.get_or_insert(now);
                let is_first = self.swapped.insert((lba, expected));
                assert!(is_first, "{swap:x?}: block {lba} was swapped twice");
            }
        }
        self.end_write(swap.write, swap.extent, true);
        self.forget_read(swap.read);
    }

    /// A compare-and-write found something else than it expected: it has written nothing.
    ///
    /// # Panics
    /// If its blocks held what it expected all the time, or a read has returned what it was to
    /// write.
    pub(crate) fn withdraw_swap(&mut self, swap: &Swap) {
        let WriteId(begun) = swap.write;
        let mut may_differ = false;
        for (lba, &expected) in lbas(swap.extent).zip(&swap.expected) {
            let block = self.blocks.get_mut(&lba).expect("it was sent");
            block.retain(|candidate| {
                let is_own = candidate.begun == begun;
                assert!(!is_own || !candidate.is_seen, "{swap:x?}: block {lba}");
                may_differ |=
                    !is_own && candidate.mark != expected && candidate.was_there(swap.read);
                !is_own
            });
        }
        assert!(may_differ, "{swap:x?}: each block holds what it expects");
        self.forget_read(swap.read);
    }

    /// The outcome of a compare-and-write will never be known.
    pub(crate) fn lose_swap(&mut self, swap: &Swap) {
        self.end_write(swap.write, swap.extent, false);
        self.forget_read(swap.read);
    }

    /// A flush that began with `read` was acknowledged.
    pub(crate) fn end_flush(&mut self, read: ReadId) {
        let last = self.flushed.map_or(read, |last| last.max(read));
        let older = self
            .flushed
            .replace(last)
            .map_or(read, |before| before.min(read));
        if older != last {
            self.forget_read(older);
        }
    }

    /// Checks a block as the last flush has made it durable, or a later one that was not
    /// acknowledged: it holds no older write than the one that was acknowledged when the flush
    /// began.
    ///
    /// # Panics
    /// If it does.
    pub(crate) fn check_flushed(&mut self, lba: Lba, data: &[u8]) {
        if let Some(read) = self.flushed {
            self.check(read, lba, data);
        }
    }
}

pub(crate) fn lbas(extent: Extent) -> std::ops::Range<u64> {
    extent.lba.0..extent.lba.0 + extent.blocks.0
}

/// Fills a block with `mark`, of which [`ZEROS`] is zeros, so that a block torn anywhere or put at
/// another place is noticed.
pub(crate) fn fill(lba: Lba, mark: u64, block: &mut [u8]) {
    if mark == ZEROS {
        block.fill(0);
        return;
    }
    for (i, word) in block.chunks_exact_mut(8).enumerate() {
        word.copy_from_slice(&word_of(lba, mark, i).to_le_bytes());
    }
}

/// The mark of a block; `None` if its words disagree.
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
    use std::panic::AssertUnwindSafe;

    use super::*;
    use block::Blocks;

    const ONE: Extent = Extent::new(Lba(7), Blocks(1));

    fn block(mark: u64) -> Vec<u8> {
        let mut block = vec![0; 512];
        fill(Lba(7), mark, &mut block);
        block
    }

    fn write(model: &mut Model, mark: u64) {
        let write = model.begin_write(ONE, mark);
        model.end_write(write, ONE, true);
    }

    fn read(model: &mut Model, mark: u64) {
        let read = model.begin_read();
        model.check(read, Lba(7), &block(mark));
        model.forget_read(read);
    }

    fn fails(call: impl FnOnce() + std::panic::UnwindSafe) -> bool {
        std::panic::catch_unwind(call).is_err()
    }

    #[test]
    fn a_lost_write_may_be_seen_or_not_but_not_both_in_turn() {
        let mut model = Model::default();
        write(&mut model, 1);
        let lost = model.begin_write(ONE, 2);
        model.end_write(lost, ONE, false);
        read(&mut model, 2);
        assert!(
            fails(move || read(&mut model, 1)),
            "an old block must not come back"
        );
    }

    #[test]
    fn a_block_keeps_the_last_acknowledged_write() {
        let mut model = Model::default();
        write(&mut model, 1);
        write(&mut model, 2);
        read(&mut model, 2);
        assert!(fails(move || read(&mut model, 1)));
    }

    #[test]
    fn writes_at_the_same_time_may_take_effect_in_either_order() {
        for seen in [1, 2] {
            let mut model = Model::default();
            let first = model.begin_write(ONE, 1);
            write(&mut model, 2);
            model.end_write(first, ONE, true);
            read(&mut model, seen);
        }
    }

    #[test]
    fn a_read_may_see_what_was_replaced_while_it_was_in_flight() {
        for seen in [1, 2] {
            let mut model = Model::default();
            write(&mut model, 1);
            let read = model.begin_read();
            write(&mut model, 2);
            model.check(read, Lba(7), &block(seen));
        }
    }

    #[test]
    fn a_block_is_swapped_once() {
        let mut model = Model::default();
        write(&mut model, 1);
        let both = [2, 3].map(|new| model.begin_swap(ONE, vec![1], new));
        model.end_swap(&both[0]);
        assert!(fails(AssertUnwindSafe(|| model.end_swap(&both[1]))));
    }

    #[test]
    fn a_swap_needs_what_it_expects_and_replaces_it() {
        let mut model = Model::default();
        write(&mut model, 1);
        let swap = model.begin_swap(ONE, vec![1], 2);
        model.end_swap(&swap);
        assert!(fails(AssertUnwindSafe(|| read(&mut model, 1))));
        read(&mut model, 2);
        let late = model.begin_swap(ONE, vec![1], 3);
        assert!(fails(AssertUnwindSafe(|| model.end_swap(&late))));
    }

    #[test]
    fn a_swap_that_finds_something_else_writes_nothing() {
        let mut model = Model::default();
        write(&mut model, 1);
        let swap = model.begin_swap(ONE, vec![NEVER_WRITTEN], 2);
        model.withdraw_swap(&swap);
        read(&mut model, 1);
        assert!(fails(AssertUnwindSafe(|| read(&mut model, 2))));
        let seen = model.begin_swap(ONE, vec![NEVER_WRITTEN], 3);
        read(&mut model, 3);
        assert!(fails(AssertUnwindSafe(|| model.withdraw_swap(&seen))));
    }

    #[test]
    fn a_swap_that_finds_what_it_expects_does_not_fail() {
        let mut model = Model::default();
        write(&mut model, 1);
        let swap = model.begin_swap(ONE, vec![1], 2);
        assert!(fails(AssertUnwindSafe(|| model.withdraw_swap(&swap))));
    }

    #[test]
    fn what_was_acknowledged_before_a_flush_is_durable_after_it() {
        let mut model = Model::default();
        write(&mut model, 1);
        let flush = model.begin_read();
        write(&mut model, 2);
        model.end_flush(flush);
        for mark in [1, 2] {
            model.check_flushed(Lba(7), &block(mark));
        }
        let zeros = AssertUnwindSafe(|| model.check_flushed(Lba(7), &[0; 512]));
        assert!(fails(zeros), "the first write was flushed");
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
