//! A host that reads and writes the volume, checks what it reads, and comes back when it is cut
//! off.

use std::collections::BTreeMap;
use std::time::Instant;

use block::{Blocks, Completion, Extent, Lba, Unmap};
use rand::Rng;
use rand::rngs::SmallRng;

use crate::model::{Model, NEVER_WRITTEN, ReadId, Swap, WriteId, ZEROS, fill, lbas};
use crate::path::{AfterCut, BLOCK_BYTES, DEPTH, End, Path, Request, TRANSFER_BLOCKS_MAX};

/// Blocks of the part of the volume that a host uses.
pub(crate) const PART_BLOCKS: u64 = 1024;

/// The longest compare-and-write, in blocks: NVMe's Atomic Compare & Write Unit.
const SWAP_BLOCKS_MAX: u64 = 8;

#[derive(Debug)]
enum Job {
    Read(ReadId, Extent),
    Write(WriteId, Extent),
    Swap(Swap),
    /// What is flushed is known as that which a read sees that begins with the flush.
    Flush(ReadId),
}

impl Job {
    fn extent(&self) -> Option<Extent> {
        match self {
            Self::Read(_, extent) | Self::Write(_, extent) => Some(*extent),
            Self::Swap(swap) => Some(swap.extent),
            Self::Flush(_) => None,
        }
    }

    /// Its outcome is unknown.
    fn lose(self, model: &mut Model) {
        match self {
            Self::Read(read, _) | Self::Flush(read) => model.forget_read(read),
            Self::Write(write, extent) => model.end_write(write, extent, false),
            Self::Swap(swap) => model.lose_swap(&swap),
        }
    }
}

/// One host of the world.
pub(crate) struct Host {
    /// The first block of its part.
    start: u64,
    path: Option<Box<dyn Path>>,
    jobs: BTreeMap<u16, Job>,
    next_mark: u64,
    pub(crate) reads_checked: u64,
    pub(crate) writes_done: u64,
    pub(crate) swaps_done: u64,
    pub(crate) miscompares: u64,
    pub(crate) flushes_done: u64,
    pub(crate) failures: u64,
    pub(crate) cuts: u64,
}

impl Host {
    /// The host of this number, which uses the part from `start` on.
    pub(crate) fn new(index: u64, start: u64) -> Self {
        Self {
            start,
            path: None,
            jobs: BTreeMap::new(),
            next_mark: index << 48 | 1,
            reads_checked: 0,
            writes_done: 0,
            swaps_done: 0,
            miscompares: 0,
            flushes_done: 0,
            failures: 0,
            cuts: 0,
        }
    }

    /// Takes a random step of this host, possibly none. `connect` creates a path if it has none.
    pub(crate) fn step(
        &mut self,
        now: Instant,
        rng: &mut SmallRng,
        model: &mut Model,
        connect: &mut dyn FnMut() -> Box<dyn Path>,
    ) {
        let is_up = self.path.get_or_insert_with(connect).is_up(now);
        if is_up {
            self.finish(model);
            if rng.random_bool(0.5) {
                self.submit(rng, model);
            }
        }
    }

    /// Moves something between this host and the target.
    pub(crate) fn shuffle(&mut self, now: Instant, rng: &mut SmallRng) {
        if let Some(path) = &mut self.path {
            path.shuffle(now, rng);
        }
    }

    /// The volume is done with a command, which may be one of this host's.
    pub(crate) fn complete(&mut self, now: Instant, completion: Completion) {
        if let Some(path) = &mut self.path {
            path.complete(now, completion);
        }
    }

    /// The network breaks for this host: the outcomes of writes in flight are unknown, unless its
    /// path goes on.
    pub(crate) fn cut(&mut self, now: Instant, model: &mut Model) {
        let Some(mut path) = self.path.take() else {
            return;
        };
        self.cuts += 1;
        if path.cut(now) == AfterCut::GoesOn {
            self.path = Some(path);
            return;
        }
        for job in std::mem::take(&mut self.jobs).into_values() {
            job.lose(model);
        }
    }

    /// Checks what has come back.
    fn finish(&mut self, model: &mut Model) {
        let Some(path) = &mut self.path else { return };
        for done in path.take_done() {
            let job = self.jobs.remove(&done.key);
            let job = job.expect("an outcome belongs to a job");
            match (job, done.end) {
                (Job::Read(read, extent), End::Success) => {
                    let blocks = path.buffer(done.key).chunks_exact(BLOCK_BYTES);
                    for (lba, block) in lbas(extent).zip(blocks) {
                        model.check(read, Lba(lba), block);
                    }
                    model.forget_read(read);
                    self.reads_checked += 1;
                }
                (Job::Write(write, extent), End::Success) => {
                    model.end_write(write, extent, true);
                    self.writes_done += 1;
                }
                (Job::Swap(swap), End::Success) => {
                    model.end_swap(&swap);
                    self.swaps_done += 1;
                }
                (Job::Swap(swap), End::Miscompare) => {
                    model.withdraw_swap(&swap);
                    self.miscompares += 1;
                }
                (Job::Flush(read), End::Success) => {
                    model.end_flush(read);
                    self.flushes_done += 1;
                }
                (job, End::Failure) => {
                    job.lose(model);
                    self.failures += 1;
                }
                (job, End::Miscompare) => panic!("{job:?} compares nothing"),
            }
        }
    }

    /// Submits a command on blocks on which this host has none in flight.
    fn submit(&mut self, rng: &mut SmallRng, model: &mut Model) {
        let Some(key) = (0..DEPTH).find(|key| !self.jobs.contains_key(key)) else {
            return;
        };
        let kind = rng.random_range(0..12);
        let blocks_max = match rng.random_range(0..4) {
            _ if kind == SWAP => SWAP_BLOCKS_MAX,
            0 => TRANSFER_BLOCKS_MAX,
            _ => 16,
        };
        let blocks = rng.random_range(1..=blocks_max);
        let start = self.start + rng.random_range(0..=PART_BLOCKS - blocks);
        let extent = Extent::new(Lba(start), Blocks(blocks));
        let is_free = |job: &Job| job.extent().is_none_or(|other| !other.overlaps(extent));
        if !self.jobs.values().all(is_free) {
            return;
        }
        let Some(path) = &mut self.path else { return };
        let (request, expected) = match kind {
            0 if rng.random_bool(0.5) => (Request::WriteZeroes(extent, Unmap::Allowed), vec![]),
            0 => (Request::WriteZeroes(extent, Unmap::Forbidden), vec![]),
            1 => (Request::Discard(extent), vec![]),
            2..6 => (Request::Write(extent), vec![]),
            SWAP => (Request::CompareAndWrite(extent), guess(extent, rng, model)),
            FLUSH => (Request::Flush, vec![]),
            _ => (Request::Read(extent), vec![]),
        };
        let new = self.next_mark;
        let (compared, written) = path.buffer(key).split_at_mut(expected.len() * BLOCK_BYTES);
        fill_all(compared, extent, expected.iter().copied());
        if matches!(request, Request::Write(_) | Request::CompareAndWrite(_)) {
            self.next_mark += 1;
            fill_all(written, extent, std::iter::repeat(new));
        }
        if path.submit(key, request) {
            let job = match request {
                Request::Read(_) => Job::Read(model.begin_read(), extent),
                Request::Write(_) => Job::Write(model.begin_write(extent, new), extent),
                Request::WriteZeroes(..) | Request::Discard(_) => {
                    Job::Write(model.begin_write(extent, ZEROS), extent)
                }
                Request::CompareAndWrite(_) => Job::Swap(model.begin_swap(extent, expected, new)),
                Request::Flush => Job::Flush(model.begin_read()),
            };
            self.jobs.insert(key, job);
        }
    }
}

/// Two of the kinds of commands, by number.
const SWAP: u32 = 10;
const FLUSH: u32 = 11;

/// What a compare-and-write expects of each block: mostly what was written last, sometimes what
/// nobody has written.
fn guess(extent: Extent, rng: &mut SmallRng, model: &Model) -> Vec<u64> {
    if rng.random_bool(0.1) {
        return lbas(extent).map(|_| NEVER_WRITTEN).collect();
    }
    lbas(extent).map(|lba| model.newest(Lba(lba))).collect()
}

/// Fills a buffer with the blocks of `extent`, each with its mark.
fn fill_all(buffer: &mut [u8], extent: Extent, marks: impl Iterator<Item = u64>) {
    let blocks = buffer.chunks_exact_mut(BLOCK_BYTES);
    for (lba, (block, mark)) in lbas(extent).zip(blocks.zip(marks)) {
        fill(Lba(lba), mark, block);
    }
}
