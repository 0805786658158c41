//! Verified writes: each block holds which of its writes it was, and no block loses an acknowledged
//! one.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{JoinHandle, sleep};
use std::time::{Duration, Instant};

use rand::rngs::SmallRng;
use rand::{Rng as _, SeedableRng as _};

use crate::cluster::{BLOCKS, Host, PATIENCE};

/// What a block may hold.
#[derive(Clone, Copy, Debug, Default)]
pub struct Block {
    /// The last write that was acknowledged; 0: none.
    acknowledged: u64,
    /// The last one that was tried.
    tried: u64,
}

/// Blocks, and what they may hold.
pub struct Model {
    blocks: Vec<Block>,
}

impl Model {
    /// Nothing was written.
    pub fn new() -> Self {
        Self {
            blocks: vec![Block::default(); BLOCKS as usize],
        }
    }

    /// Writes and reads single blocks until `is_over`.
    fn run(&mut self, host: &mut Host, progress: &Progress, rng: &mut SmallRng) {
        while !progress.is_over.load(Ordering::SeqCst) {
            let lba = rng.random_range(0..BLOCKS);
            if rng.random_bool(0.3) {
                self.check(host, lba);
                continue;
            }
            let block = &mut self.blocks[lba as usize];
            block.tried += 1;
            let data = contents(lba, block.tried);
            if host.write(lba, &data, PATIENCE).is_ok() {
                block.acknowledged = block.tried;
                progress.writes.fetch_add(1, Ordering::SeqCst);
            } else {
                progress.failures.fetch_add(1, Ordering::SeqCst);
            }
        }
    }

    /// Reads a block, again if the volume is busy. What was read is not taken back.
    fn check(&mut self, host: &mut Host, lba: u64) {
        let held = (0..1000).find_map(|_| host.read(lba, 1, PATIENCE).ok());
        self.take(lba, &held.expect("the volume is read in the end"));
    }

    fn take(&mut self, lba: u64, held: &[u8]) {
        let block = &mut self.blocks[lba as usize];
        let write = u64::from_le_bytes(held[..8].try_into().expect("8 bytes"));
        let is_allowed = (block.acknowledged..=block.tried).contains(&write);
        assert!(is_allowed, "block {lba} holds write {write} of {block:?}");
        assert_eq!(held, contents(lba, write), "block {lba} is torn");
        block.acknowledged = write;
    }

    /// Reads all.
    pub fn check_all(&mut self, host: &mut Host) {
        let at_once = 64;
        for lba in (0..BLOCKS).step_by(at_once) {
            let held = (0..1000).find_map(|_| host.read(lba, at_once as u64, PATIENCE).ok());
            let held = held.expect("the volume is read in the end");
            for (place, block) in held.chunks(4096).enumerate() {
                self.take(lba + place as u64, block);
            }
        }
    }
}

fn contents(lba: u64, write: u64) -> Vec<u8> {
    if write == 0 {
        return vec![0; 4096];
    }
    let words = [write, lba].map(u64::to_le_bytes).concat();
    words.repeat(4096 / 16)
}

/// What a host and a test share.
#[derive(Default)]
struct Progress {
    is_over: AtomicBool,
    /// How many were acknowledged.
    writes: AtomicU64,
    /// How many writes have failed.
    failures: AtomicU64,
}

/// A host on a thread of its own.
pub struct Load {
    progress: Arc<Progress>,
    thread: JoinHandle<Model>,
}

impl Load {
    pub fn start(mut model: Model, mut host: Host, seed: u64) -> Self {
        let progress = Arc::<Progress>::default();
        let of_thread = Arc::clone(&progress);
        let thread = std::thread::spawn(move || {
            let mut rng = SmallRng::seed_from_u64(seed);
            model.run(&mut host, &of_thread, &mut rng);
            model
        });
        Self { progress, thread }
    }

    /// Lets the host work until further writes were acknowledged.
    pub fn work(&self) {
        let acknowledged = || self.progress.writes.load(Ordering::SeqCst);
        let (since, goal) = (Instant::now(), acknowledged() + 100);
        while acknowledged() < goal {
            assert!(!self.thread.is_finished(), "the host has failed");
            assert!(since.elapsed() < PATIENCE, "no progress");
            sleep(Duration::from_millis(5));
        }
    }

    /// How many writes have failed until now.
    pub fn failures(&self) -> u64 {
        self.progress.failures.load(Ordering::SeqCst)
    }

    pub fn stop(self) -> Model {
        self.progress.is_over.store(true, Ordering::SeqCst);
        self.thread.join().expect("the contents are right")
    }
}
