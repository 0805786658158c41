//! A host of the daemon's only target, with one queue.

use std::time::Duration;

use initiator::{Device, DeviceOptions, Operation, Queue, Request, Slot, WaitStrategy};

use crate::daemon::Daemon;

/// The only target.
pub(crate) const TARGET: &str = "nqn.2026-11.com.example:disk";
const PATIENCE: Duration = Duration::from_secs(60);

/// The only queue of a host of the daemon's target; and the host.
pub(crate) fn host(daemon: &Daemon) -> (Device, Queue) {
    let portals = daemon.json(&["portal", "list"]);
    let portal = portals[0]["url"].as_str().expect("a portal").to_owned();
    let url = format!("{portal}/{TARGET}?ns=1").parse().expect("a URL");
    let options = DeviceOptions {
        depth: 1,
        buffer_bytes: 4096,
        ..DeviceOptions::default()
    };
    let mut device = Device::connect(&url, &options).expect("attaches");
    let queue = device.take_queues().remove(0);
    (device, queue)
}

/// Runs a command of 8 blocks.
pub(crate) fn run(queue: &mut Queue, operation: Operation, lba: u64) {
    let request = Request {
        slot: Slot(0),
        operation,
        extent: block::Extent::new(block::Lba(lba), block::Blocks(8)),
    };
    queue.submit(request).expect("the slot is free");
    let mut done = Vec::new();
    while done.is_empty() {
        let waited = queue.wait(WaitStrategy::Sleep, PATIENCE, &mut done);
        assert!(waited.expect("the queue lives") > 0, "no outcome");
    }
    assert_eq!(done[0].result, Ok(()), "{operation:?}");
}
