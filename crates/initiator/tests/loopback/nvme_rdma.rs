//! Devices over loopback against the session core of NVMe/RDMA targets, over RoCEv2 in software.

mod target;

use std::time::{Duration, Instant};

use initiator::{ConnectError, Device, Operation, RdmaError, Slot, WaitStrategy};

use crate::nvme::{self, NvmeTarget as _, attach, options};
use crate::support::{PATIENCE, finish, request, run};
use target::RdmaTarget;

#[test]
fn every_length_and_digest_reads_back_what_was_written() {
    nvme::every_length_and_digest_reads_back_what_was_written::<RdmaTarget>();
}

#[test]
fn a_verify_is_as_long_as_the_controller_allows() {
    nvme::a_verify_is_as_long_as_the_controller_allows::<RdmaTarget>();
}

#[test]
fn every_operation_does_what_it_says() {
    nvme::every_operation_does_what_it_says::<RdmaTarget>();
}

#[test]
fn compare_and_write_writes_only_where_equal() {
    nvme::compare_and_write_writes_only_where_equal::<RdmaTarget>();
}

#[test]
fn a_resize_is_learned_through_the_event() {
    nvme::a_resize_is_learned_through_the_event::<RdmaTarget>();
}

#[test]
fn commands_in_flight_are_resubmitted_while_connections_are_cut() {
    nvme::commands_in_flight_are_resubmitted_while_connections_are_cut::<RdmaTarget>();
}

#[test]
fn commands_in_flight_fail_where_the_caller_wants_to_know() {
    nvme::commands_in_flight_fail_where_the_caller_wants_to_know::<RdmaTarget>();
}

#[test]
fn a_target_that_does_not_return_is_given_up_and_its_commands_fail() {
    nvme::a_target_that_does_not_return_is_given_up_and_its_commands_fail::<RdmaTarget>();
}

#[test]
fn queues_end_with_their_device() {
    nvme::queues_end_with_their_device::<RdmaTarget>();
}

#[test]
fn a_thousand_attachments_leave_no_descriptor_behind() {
    nvme::a_thousand_attachments_leave_no_descriptor_behind::<RdmaTarget>();
}

#[test]
fn several_queues_carry_commands_at_once() {
    let target = RdmaTarget::start(4096);
    let mut device = Device::connect(&target.url("queues=3"), &options()).unwrap();
    let mut done = Vec::new();
    for (index, queue) in device.take_queues().iter_mut().enumerate() {
        queue.buffer_mut(Slot(0)).fill(index as u8 + 1);
        let write = request(0, Operation::Write, index as u64 * 512, 512);
        queue.submit(write).unwrap();
        queue.wait(WaitStrategy::Spin, PATIENCE, &mut done).unwrap();
    }
    assert!(done.iter().all(|it| it.result.is_ok()), "{done:?}");
    for index in 0..3 {
        assert_eq!(
            target.volume().block(index * 512 + 511),
            [index as u8 + 1; 512]
        );
    }
}

#[test]
fn queues_that_share_an_address_share_its_socket() {
    let target = RdmaTarget::start(4096);
    let local = target.address.to_string().replace("127.", "127.1");
    let url = target.url(&format!("queues=3&local={local}"));
    let mut device = Device::connect(&url, &options()).unwrap();
    std::thread::scope(|scope| {
        for (index, mut queue) in device.take_queues().into_iter().enumerate() {
            scope.spawn(move || {
                for round in 0..100u8 {
                    let fill = round ^ (index as u8 + 1);
                    queue.buffer_mut(Slot(0))[..8192].fill(fill);
                    let lba = index as u64 * 16;
                    let write = request(0, Operation::Write, lba, 16);
                    assert_eq!(run(&mut queue, write), Ok(()));
                    assert_eq!(
                        run(&mut queue, request(1, Operation::Read, lba, 16)),
                        Ok(())
                    );
                    assert!(queue.buffer(Slot(1))[..8192].iter().all(|b| *b == fill));
                }
            });
        }
    });
    // The same address serves a second device only once the first is gone.
    let error = Device::connect(&url, &options()).unwrap_err();
    let in_use = match &error {
        ConnectError::Rdma { source, .. } => matches!(**source, RdmaError::Bind { .. }),
        _ => false,
    };
    assert!(in_use && error.to_string().contains("local="), "{error}");
    drop(device);
    Device::connect(&url, &options()).unwrap();
}

#[test]
fn an_idle_queue_keeps_its_connection() {
    let target = RdmaTarget::start(64);
    let (_device, mut queue) = attach(&target, "");
    assert_eq!(run(&mut queue, request(0, Operation::Read, 0, 1)), Ok(()));
    std::thread::sleep(Duration::from_secs(2));
    let before = Instant::now();
    assert_eq!(run(&mut queue, request(0, Operation::Read, 0, 1)), Ok(()));
    assert!(before.elapsed() < Duration::from_secs(1));
}

#[test]
fn refusals_say_why() {
    let target = RdmaTarget::start(64);
    let at = |text: String| Device::connect(&text.parse().unwrap(), &options()).unwrap_err();
    let error = at(format!("nvme+rdma://{}:4421/rd0", target.address));
    assert!(
        error.is_mistake() && error.to_string().contains("no RDMA portal"),
        "{error}"
    );
    let error = at(format!("nvme+rdma://{}/rd0?rdma=hw", target.address));
    assert!(
        error.is_mistake() && error.to_string().contains("rdma=soft"),
        "{error}"
    );
    let error = at(format!(
        "nvme+rdma://{}/rd0?local=192.0.2.1",
        target.address
    ));
    assert!(error.is_mistake(), "{error}");
    let deep = initiator::DeviceOptions {
        depth: 2000,
        ..options()
    };
    let device = Device::connect(&target.url(""), &deep).unwrap();
    assert!(
        device.info().queue_depth_max < 2000,
        "the depth is the controller's"
    );
}

#[test]
fn an_absent_peer_is_detected_in_time() {
    let mut options = options();
    options.connect_timeout = Duration::from_millis(300);
    let url = "nvme+rdma://127.31.99.1/rd0".parse().unwrap();
    let began = Instant::now();
    let error = Device::connect(&url, &options).unwrap_err();
    assert!(began.elapsed() < PATIENCE);
    assert!(error.to_string().contains("no response"), "{error}");
}

#[test]
fn data_stay_whole_where_packets_get_lost() {
    // What eight writes bring at once is many times as much.
    let target = RdmaTarget::with_recv_buffer(8192, 16 << 10);
    let (_device, mut queue) = attach(&target, "");
    let (len, blocks) = (256 * 1024, 512);
    let mut done = Vec::new();
    for round in 0..200u8 {
        // How much is lost is a matter of who runs when.
        if round >= 12 && target.drops() > 0 {
            break;
        }
        for operation in [Operation::Write, Operation::Read] {
            for slot in 0..8u16 {
                let fill = round.wrapping_mul(29) ^ slot as u8;
                let wanted = operation == Operation::Write;
                let buffer = &mut queue.buffer_mut(Slot(slot))[..len];
                buffer.fill(if wanted { fill } else { !fill });
                let lba = u64::from(slot) * blocks;
                queue.submit(request(slot, operation, lba, blocks)).unwrap();
            }
            finish(&mut queue, 8, &mut done, &format!("round {round}"));
            for completion in done.drain(..) {
                assert_eq!(completion.result, Ok(()), "round {round}");
                let fill = round.wrapping_mul(29) ^ completion.slot.0 as u8;
                let buffer = &queue.buffer(completion.slot)[..len];
                assert!(buffer.iter().all(|byte| *byte == fill), "round {round}");
            }
        }
    }
    assert!(target.drops() > 0, "nothing was lost, so nothing was shown");
}
