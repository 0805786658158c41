//! Devices over loopback against the session core of NVMe/TCP targets.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::nvme::{self, NvmeTarget, attach};
use crate::support::Target;
use ::nvme::controller::Subsystem;
use block::testing::VecVolume;
use initiator::Url;

impl NvmeTarget for Target {
    const QUERIES: &'static [&'static str] =
        &["hdgst=off", "hdgst=on", "hdgst=on&ddgst=on", "ddgst=on"];

    fn start(blocks: u64) -> Self {
        Self::start(blocks)
    }

    fn url(&self, query: &str) -> Url {
        self.url(query)
    }

    fn volume(&self) -> &Arc<VecVolume> {
        &self.volume
    }

    fn subsystem(&self) -> &Arc<Mutex<Subsystem>> {
        &self.subsystem
    }

    fn cut(&self) {
        (**self).cut();
    }
}

#[test]
fn every_length_and_digest_reads_back_what_was_written() {
    nvme::every_length_and_digest_reads_back_what_was_written::<Target>();
}

#[test]
fn a_verify_is_as_long_as_the_controller_allows() {
    nvme::a_verify_is_as_long_as_the_controller_allows::<Target>();
}

#[test]
fn every_operation_does_what_it_says() {
    nvme::every_operation_does_what_it_says::<Target>();
}

#[test]
fn compare_and_write_writes_only_where_equal() {
    nvme::compare_and_write_writes_only_where_equal::<Target>();
}

#[test]
fn a_resize_is_learned_through_the_event() {
    nvme::a_resize_is_learned_through_the_event::<Target>();
}

#[test]
fn commands_in_flight_are_resubmitted_while_connections_are_cut() {
    nvme::commands_in_flight_are_resubmitted_while_connections_are_cut::<Target>();
}

#[test]
fn commands_in_flight_fail_where_the_caller_wants_to_know() {
    nvme::commands_in_flight_fail_where_the_caller_wants_to_know::<Target>();
}

#[test]
fn a_target_that_does_not_return_is_given_up_and_its_commands_fail() {
    nvme::a_target_that_does_not_return_is_given_up_and_its_commands_fail::<Target>();
}

#[test]
fn queues_end_with_their_device() {
    nvme::queues_end_with_their_device::<Target>();
}

#[test]
fn a_thousand_attachments_leave_no_descriptor_behind() {
    nvme::a_thousand_attachments_leave_no_descriptor_behind::<Target>();
}

#[test]
fn a_dropped_device_shuts_its_controller_down() {
    let target = Target::start(64);
    let farewells = || target.farewells.load(std::sync::atomic::Ordering::Relaxed);
    let (device, queue) = attach(&target, "");
    assert_eq!(farewells(), 0);
    drop(device);
    assert_eq!(farewells(), 1);
    drop(queue);
    // A target that does not answer holds a device up for a second, not permanently.
    let (device, _queue) = attach(&target, "");
    let stalled = target.subsystem.lock().expect("unpoisoned");
    let begin = Instant::now();
    drop(device);
    assert!(
        begin.elapsed() < Duration::from_secs(10),
        "{:?}",
        begin.elapsed()
    );
    drop(stalled);
}
