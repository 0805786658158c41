//! A host that reads and writes the volume, checks what it reads, and comes back when it is cut
//! off.

use std::collections::BTreeMap;
use std::time::Instant;

use block::{Blocks, Completion, Extent, Lba, Unmap};
use rand::Rng;
use rand::rngs::SmallRng;

use crate::model::{Model, ReadId, WriteId, ZEROS, fill};
use crate::path::{AfterCut, BLOCK_BYTES, DEPTH, Path, Request, TRANSFER_BLOCKS_MAX};

/// Blocks of the part of the volume that a host uses.
pub(crate) const PART_BLOCKS: u64 = 1024;

#[derive(Debug)]
enum Job {
    Read(ReadId, Extent),
    Write(WriteId, Extent),
}

impl Job {
    fn extent(&self) -> Extent {
        match self {
            Self::Read(_, extent) | Self::Write(_, extent) => *extent,
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

    /// The network breaks for this host: the outcomes of writes in flight are unknown, unless its path goes on.
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
            match job {
                Job::Read(read, _) => model.forget_read(read),
                Job::Write(write, extent) => model.end_write(write, extent, false),
            }
        }
    }

    /// Checks what has come back.
    fn finish(&mut self, model: &mut Model) {
        let Some(path) = &mut self.path else { return };
        for done in path.take_done() {
            let job = self.jobs.remove(&done.key);
            let job = job.expect("an outcome belongs to a job");
            self.failures += u64::from(!done.is_success);
            match job {
                Job::Write(write, extent) => {
                    model.end_write(write, extent, done.is_success);
                    self.writes_done += u64::from(done.is_success);
                }
                Job::Read(read, extent) => {
                    if done.is_success {
                        let blocks = path.buffer(done.key).chunks_exact(BLOCK_BYTES);
                        for (i, block) in (0..extent.blocks.0).zip(blocks) {
                            model.check(read, Lba(extent.lba.0 + i), block);
                        }
                        self.reads_checked += 1;
                    }
                    model.forget_read(read);
                }
            }
        }
    }

    /// Submits a command on blocks on which this host has none in flight.
    fn submit(&mut self, rng: &mut SmallRng, model: &mut Model) {
        let Some(path) = &mut self.path else { return };
        let Some(key) = (0..DEPTH).find(|key| !self.jobs.contains_key(key)) else {
            return;
        };
        let blocks = match rng.random_range(0..4) {
            0 => rng.random_range(1..=TRANSFER_BLOCKS_MAX),
            _ => rng.random_range(1..=16),
        };
        let start = self.start + rng.random_range(0..=PART_BLOCKS - blocks);
        let extent = Extent::new(Lba(start), Blocks(blocks));
        if self.jobs.values().any(|job| job.extent().overlaps(extent)) {
            return;
        }
        let (request, mark) = match rng.random_range(0..10) {
            0 if rng.random_bool(0.5) => {
                (Request::WriteZeroes(extent, Unmap::Allowed), Some(ZEROS))
            }
            0 => (Request::WriteZeroes(extent, Unmap::Forbidden), Some(ZEROS)),
            1 => (Request::Discard(extent), Some(ZEROS)),
            2..6 => {
                let mark = self.next_mark;
                self.next_mark += 1;
                let blocks = path.buffer(key).chunks_exact_mut(BLOCK_BYTES);
                for (lba, block) in (start..start + extent.blocks.0).zip(blocks) {
                    fill(Lba(lba), mark, block);
                }
                (Request::Write(extent), Some(mark))
            }
            _ => (Request::Read(extent), None),
        };
        if path.submit(key, request) {
            let job = match mark {
                Some(mark) => Job::Write(model.begin_write(extent, mark), extent),
                None => Job::Read(model.begin_read(), extent),
            };
            self.jobs.insert(key, job);
        }
    }
}
