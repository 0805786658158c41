//! A host of the daemon's only target, with one queue.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use initiator::{
    Backoff, Device, DeviceOptions, OnLoss, Operation, Queue, Request, Slot, WaitStrategy,
};

use crate::daemon::Daemon;

/// The only target.
pub(crate) const TARGET: &str = "nqn.2026-11.com.example:disk";
/// How long a command may take: far more than it needs.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);
/// How to wait for outcomes.
pub(crate) const SLEEP: WaitStrategy = WaitStrategy::Sleep;
/// Bytes of a slot's buffer: the longest transfer.
pub(crate) const BUFFER_BYTES: usize = 4 << 10;
/// Bytes of a block of the volume.
pub(crate) const BLOCK_BYTES: usize = 512;

/// The only queue of a host of the daemon's target; and the host.
pub(crate) fn host(daemon: &Daemon) -> (Device, Queue) {
    host_with(daemon, 1)
}

/// As [`host`], with so many slots. A connection that is lost is not made again.
pub(crate) fn host_with(daemon: &Daemon, depth: u16) -> (Device, Queue) {
    let portals = daemon.json(&["portal", "list"]);
    let portal = portals[0]["url"].as_str().expect("a portal").to_owned();
    let url = format!("{portal}/{TARGET}?ns=1").parse().expect("a URL");
    let options = DeviceOptions {
        depth,
        buffer_bytes: BUFFER_BYTES,
        on_loss: OnLoss::Fail,
        backoff: Backoff {
            give_up_after: Duration::ZERO,
            ..Backoff::default()
        },
        ..DeviceOptions::default()
    };
    let mut device = Device::connect(&url, &options).expect("attaches");
    let queue = device.take_queues().remove(0);
    (device, queue)
}

/// Runs a command of 8 blocks.
pub(crate) fn run(queue: &mut Queue, operation: Operation, lba: u64) {
    let extent = block::Extent::new(block::Lba(lba), block::Blocks(8));
    run_on(queue, operation, extent);
}

/// Runs a command.
pub(crate) fn run_on(queue: &mut Queue, operation: Operation, extent: block::Extent) {
    let request = Request {
        slot: Slot(0),
        operation,
        extent,
    };
    queue.submit(request).expect("the slot is free");
    let mut done = Vec::new();
    while done.is_empty() {
        let waited = queue.wait(SLEEP, PATIENCE, &mut done);
        assert!(waited.expect("the queue lives") > 0, "no outcome");
    }
    assert_eq!(done[0].result, Ok(()), "{operation:?}");
}

/// Blocks of a write of [`under_io`].
const PLACE_BLOCKS: u64 = (BUFFER_BYTES / BLOCK_BYTES) as u64;
/// Places that [`under_io`] writes: 1 MiB of the volume.
const PLACES: u64 = 256;

/// How many writes of [`under_io`] were answered.
pub(crate) struct Written(AtomicU64);

impl Written {
    /// Waits until hosts have written some more.
    pub(crate) fn goes_on(&self) {
        let (count, end) = (self.0.load(Ordering::Relaxed), Instant::now() + PATIENCE);
        while self.0.load(Ordering::Relaxed) < count + 20 {
            assert!(Instant::now() < end, "writes are not answered");
            thread::sleep(Duration::from_millis(5));
        }
    }
}

/// Calls `act` while another thread writes to the daemon's target, one write after the other. None
/// of them may fail, and afterwards each place holds what was written to it last.
pub(crate) fn under_io(daemon: &Daemon, act: impl FnOnce(&Written)) {
    struct StopOnDrop<'a>(&'a AtomicBool);
    impl Drop for StopOnDrop<'_> {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Relaxed);
        }
    }
    let (stop, written) = (AtomicBool::new(false), Written(AtomicU64::new(0)));
    let last = thread::scope(|scope| {
        let stops = StopOnDrop(&stop);
        let writer = scope.spawn(|| {
            let (_device, mut queue) = host(daemon);
            let mut last = [0; PLACES as usize];
            while !stop.load(Ordering::Relaxed) {
                let version = written.0.load(Ordering::Relaxed) + 1;
                // A stride that visits all places, and none twice in a row.
                let place = version * 37 % PLACES;
                queue.buffer_mut(Slot(0)).copy_from_slice(&stamp(version));
                run(&mut queue, Operation::Write, place * PLACE_BLOCKS);
                last[place as usize] = version;
                written.0.store(version, Ordering::Relaxed);
            }
            last
        });
        written.goes_on();
        act(&written);
        drop(stops);
        writer.join().expect("no write fails")
    });
    let (_device, mut queue) = host(daemon);
    for (place, version) in (0..).zip(last) {
        run(&mut queue, Operation::Read, place * PLACE_BLOCKS);
        let is_last = *queue.buffer(Slot(0)) == stamp(version);
        assert!(is_last, "place {place} does not hold version {version}");
    }
}

/// What a place holds after the write with this number.
fn stamp(version: u64) -> Vec<u8> {
    version.to_le_bytes().repeat(BUFFER_BYTES / 8)
}
