//! A host of the daemon's only target, with one queue.

use std::time::Duration;

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
