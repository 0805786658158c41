//! The daemon is killed while a host writes: what the volume holds afterwards is what the host was
//! promised.

use std::process::Child;
use std::thread;
use std::time::{Duration, Instant};

use block::{Blocks, Extent, Lba};
use initiator::{Operation, Queue, Request, Slot};

use crate::daemon::Daemon;
use crate::disk::{self, BLOCK_BYTES};

/// Blocks of the volume: more than the cache has room for.
const BLOCKS: u64 = (2 << 20) / BLOCK_BYTES as u64;
/// The longest command, in blocks: across several blocks of the cache.
const COMMAND_BLOCKS_MAX: u64 = (disk::BUFFER_BYTES / BLOCK_BYTES) as u64;
const DEPTH: u16 = 8;
const KILLS: u64 = 6;

#[test]
fn a_kill_loses_only_what_a_write_back_cache_was_not_told_to_flush() {
    let daemon = Daemon::start("crash-write-back");
    create_cache(&daemon, "write-back");
    survive_kills(daemon, Safe::WhenFlushed, 1);
}

#[test]
fn a_kill_loses_nothing_that_a_write_through_cache_has_acknowledged() {
    let daemon = Daemon::start("crash-write-through");
    create_cache(&daemon, "write-through");
    survive_kills(daemon, Safe::WhenAcknowledged, 2);
}

#[test]
fn a_kill_loses_nothing_that_a_file_volume_has_acknowledged() {
    let daemon = Daemon::start("crash-file");
    create_file(&daemon, "v0");
    daemon.ok(&["target", "create", disk::TARGET, "--volume", "v0"]);
    survive_kills(daemon, Safe::WhenAcknowledged, 3);
}

fn create_file(daemon: &Daemon, name: &str) {
    let file = daemon.folder.join("disk");
    let path = file.to_str().expect("text");
    daemon.ok(&["volume", "create", name, "--file", path, "--size", "2M"]);
}

fn create_cache(daemon: &Daemon, mode: &str) {
    create_file(daemon, "slow");
    let create = ["volume", "create", "c0", "--cache-of", "slow"];
    // Streams are no exception.
    let settings = ["--cache-mode", mode, "--sequential-bypass", "0"];
    daemon.ok(&[&create[..], &["--cache-size", "1M"], &settings].concat());
    daemon.ok(&["target", "create", disk::TARGET, "--volume", "c0"]);
}

/// From when on a kill of the daemon does not lose a write.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Safe {
    /// A flush that was submitted after its completion has completed, or it was durable (FUA).
    WhenFlushed,
    /// It has completed. The system has its data, which only an end of the system could lose.
    WhenAcknowledged,
}

fn survive_kills(mut daemon: Daemon, safe: Safe, seed: u64) {
    let mut model = Model::new(safe, seed);
    for kill in 0..KILLS {
        let (_device, mut queue) = disk::host_with(&daemon, DEPTH);
        model.write_and_kill(&mut queue, &mut daemon.child);
        daemon.kill_and_restart();
        model.check(&daemon, kill);
    }
    assert!(model.flushes > 0, "some was safe");
}

/// What each block may hold.
struct Model {
    safe: Safe,
    random: Random,
    /// The number of the last write.
    version: u64,
    blocks: Vec<History>,
    flushes: u64,
}

/// The writes of a block, by their numbers.
#[derive(Clone, Default)]
struct History {
    /// Submitted since the one that is safe, and that one: in ascending order. 0 stands for zeros.
    written: Vec<u64>,
    acknowledged: u64,
}

impl History {
    /// Older versions than this one do not come back.
    fn secure(&mut self, version: u64) {
        self.written.retain(|written| *written >= version);
    }
}

/// A command in flight.
struct InFlight {
    request: Request,
    version: u64,
    /// For a flush: what was acknowledged of each block when it was submitted.
    covers: Vec<u64>,
}

impl Model {
    fn new(safe: Safe, seed: u64) -> Self {
        let untouched = History {
            written: vec![0],
            acknowledged: 0,
        };
        Self {
            safe,
            random: Random(seed),
            version: 0,
            blocks: vec![untouched; BLOCKS as usize],
            flushes: 0,
        }
    }

    /// Keeps the queue full, kills the daemon after some commands, and goes on until the connection
    /// is lost.
    fn write_and_kill(&mut self, queue: &mut Queue, daemon: &mut Child) {
        let mut left = 30 + self.random.below(200);
        let mut flying: Vec<Option<InFlight>> = (0..DEPTH).map(|_| None).collect();
        let deadline = Instant::now() + disk::PATIENCE;
        let mut done = Vec::new();
        loop {
            assert!(Instant::now() < deadline, "the daemon is not killed");
            for slot in 0..DEPTH {
                if flying[usize::from(slot)].is_none()
                    && let Some(next) = self.next(Slot(slot), &flying)
                {
                    let buffer = queue.buffer_mut(Slot(slot));
                    for (block, bytes) in blocks_of(next.request.extent).zip(chunks(buffer)) {
                        stamp(bytes, block, next.version);
                    }
                    queue.submit(next.request).expect("the slot is free");
                    flying[usize::from(slot)] = Some(next);
                }
            }
            let waited = queue.wait(disk::SLEEP, disk::PATIENCE, &mut done);
            let is_lost = waited.is_err() || done.iter().any(|one| one.result.is_err());
            for one in done.drain(..).filter(|one| one.result.is_ok()) {
                let flown = flying[usize::from(one.slot.0)].take();
                self.complete(&flown.expect("it was in flight"));
                left = left.saturating_sub(1);
            }
            if is_lost {
                return;
            }
            if left == 0 {
                // Other commands are anywhere between their arrival and their reply.
                thread::sleep(Duration::from_micros(self.random.below(500)));
                daemon.kill().expect("killed");
            }
        }
    }

    /// The next command, unless its blocks are those of a write in flight: the order of both would
    /// be open.
    fn next(&mut self, slot: Slot, flying: &[Option<InFlight>]) -> Option<InFlight> {
        let operation = match self.random.below(16) {
            0 => Operation::Flush,
            1 | 2 => Operation::WriteDurable,
            _ => Operation::Write,
        };
        let len = 1 + self.random.below(COMMAND_BLOCKS_MAX);
        let first = self.random.below(BLOCKS - len);
        let mut extent = Extent::new(Lba(first), Blocks(len));
        let mut covers = Vec::new();
        if operation == Operation::Flush {
            extent = Extent::new(Lba(0), Blocks(0));
            covers = self.blocks.iter().map(|block| block.acknowledged).collect();
        }
        let mut in_flight = flying.iter().flatten();
        if in_flight.any(|it| it.request.extent.overlaps(extent)) {
            return None;
        }
        self.version += 1;
        for block in blocks_of(extent) {
            self.blocks[block as usize].written.push(self.version);
        }
        Some(InFlight {
            request: Request {
                slot,
                operation,
                extent,
            },
            version: self.version,
            covers,
        })
    }

    fn complete(&mut self, flown: &InFlight) {
        self.flushes += u64::from(flown.request.operation == Operation::Flush);
        for (block, version) in self.blocks.iter_mut().zip(&flown.covers) {
            block.secure(*version);
        }
        let is_safe = flown.request.operation == Operation::WriteDurable
            || self.safe == Safe::WhenAcknowledged;
        for block in blocks_of(flown.request.extent) {
            let block = &mut self.blocks[block as usize];
            block.acknowledged = flown.version;
            if is_safe {
                block.secure(flown.version);
            }
        }
    }

    /// Reads everything. Each block is whole, and a version that was written to it and not before
    /// the last safe one. What was found stays from now on.
    fn check(&mut self, daemon: &Daemon, kill: u64) {
        let (_device, mut queue) = disk::host_with(daemon, 1);
        for first in (0..BLOCKS).step_by(COMMAND_BLOCKS_MAX as usize) {
            let extent = Extent::new(Lba(first), Blocks(COMMAND_BLOCKS_MAX.min(BLOCKS - first)));
            disk::run_on(&mut queue, Operation::Read, extent);
            let buffer = queue.buffer_mut(Slot(0));
            for (block, bytes) in blocks_of(extent).zip(chunks(buffer)) {
                let history = &mut self.blocks[block as usize];
                let version = u64::from_le_bytes(bytes[8..16].try_into().expect("eight bytes"));
                let mut whole = vec![0; BLOCK_BYTES];
                if version > 0 {
                    stamp(&mut whole, block, version);
                }
                assert!(bytes == whole, "kill {kill}: block {block} is no version");
                assert!(
                    history.written.contains(&version),
                    "kill {kill}: block {block} is version {version}, not one of {:?}",
                    history.written
                );
                history.written = vec![version];
                history.acknowledged = version;
            }
        }
    }
}

fn blocks_of(extent: Extent) -> std::ops::Range<u64> {
    extent.lba.0..extent.lba.0 + extent.blocks.0
}

fn chunks(buffer: &mut [u8]) -> impl Iterator<Item = &mut [u8]> {
    buffer.chunks_mut(BLOCK_BYTES)
}

/// Fills a block with its number and a version.
fn stamp(bytes: &mut [u8], block: u64, version: u64) {
    for (number, bytes) in bytes.chunks_mut(8).enumerate() {
        let value = if number % 2 == 0 { block } else { version };
        bytes.copy_from_slice(&value.to_le_bytes());
    }
}

/// SplitMix64.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % bound
    }
}
