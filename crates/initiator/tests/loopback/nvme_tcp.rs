//! Devices over loopback against the target's session core.

use std::time::{Duration, Instant};

use crate::support::{self, BLOCK, Target, pattern, request, run};
use block::{Blocks, Unmap};
use initiator::{
    CommandError, Completion, Device, DeviceOptions, Link, OnLoss, Operation, Queue, QueueError,
    Slot, WaitStrategy,
};
use nvme::wire::StatusCode;

fn options() -> DeviceOptions {
    support::options(256 * 1024)
}

fn attach(target: &Target, query: &str) -> (Device, Queue) {
    let mut device = Device::connect(&target.url(query), &options()).unwrap();
    let queue = device.take_queues().remove(0);
    (device, queue)
}

#[test]
fn every_length_and_digest_reads_back_what_was_written() {
    let target = Target::start(4096);
    for query in ["hdgst=off", "hdgst=on", "ddgst=on", "hdgst=on&ddgst=on"] {
        let (_device, mut queue) = attach(&target, query);
        for (seed, blocks) in [1, 2, 8, 15, 16, 17, 31, 32, 64, 255, 512]
            .into_iter()
            .enumerate()
        {
            let data = pattern(seed as u64, blocks as usize * BLOCK);
            queue.buffer_mut(Slot(0))[..data.len()].copy_from_slice(&data);
            let lba = seed as u64 * 7;
            assert_eq!(
                run(&mut queue, request(0, Operation::Write, lba, blocks)),
                Ok(())
            );
            queue.buffer_mut(Slot(1)).fill(0xEE);
            assert_eq!(
                run(&mut queue, request(1, Operation::Read, lba, blocks)),
                Ok(())
            );
            assert_eq!(
                queue.buffer(Slot(1))[..data.len()],
                data,
                "{query} {blocks}"
            );
            let behind = queue.buffer(Slot(1)).get(data.len());
            assert!(behind.is_none_or(|&byte| byte == 0xEE));
        }
    }
}

#[test]
fn every_operation_does_what_it_says() {
    let target = Target::start(1024);
    let (device, mut queue) = attach(&target, "");
    assert_eq!(device.geometry().blocks, Blocks(1024));
    queue.buffer_mut(Slot(0)).fill(7);
    assert_eq!(run(&mut queue, request(0, Operation::Write, 0, 64)), Ok(()));
    assert_eq!(
        run(&mut queue, request(0, Operation::Compare, 0, 64)),
        Ok(())
    );
    assert_eq!(run(&mut queue, request(1, Operation::Flush, 0, 0)), Ok(()));
    assert_eq!(
        run(&mut queue, request(1, Operation::Verify, 0, 64)),
        Ok(())
    );
    let zeroes = Operation::WriteZeroes(Unmap::Allowed);
    assert_eq!(run(&mut queue, request(1, zeroes, 0, 8)), Ok(()));
    assert_eq!(
        run(&mut queue, request(1, Operation::Deallocate, 8, 8)),
        Ok(())
    );
    assert!(
        target.volume.contents()[..16 * BLOCK]
            .iter()
            .all(|&b| b == 0)
    );
    assert!(
        target.volume.contents()[16 * BLOCK..64 * BLOCK]
            .iter()
            .all(|&b| b == 7)
    );
    let differs = run(&mut queue, request(0, Operation::Compare, 0, 64));
    let Err(CommandError::Status(status)) = differs else {
        panic!("{differs:?}");
    };
    assert_eq!(status.code(), Some(StatusCode::CompareFailure));
    let beyond = run(&mut queue, request(1, Operation::Read, 1024, 1));
    let Err(CommandError::Status(status)) = beyond else {
        panic!("{beyond:?}");
    };
    assert_eq!(status.code(), Some(StatusCode::LbaOutOfRange));
}

#[test]
fn compare_and_write_writes_only_where_equal() {
    let target = Target::start(64);
    let (_device, mut queue) = attach(&target, "");
    let buffer = queue.buffer_mut(Slot(0));
    buffer[..BLOCK].fill(0);
    buffer[BLOCK..2 * BLOCK].fill(9);
    assert_eq!(
        run(&mut queue, request(0, Operation::CompareAndWrite, 3, 1)),
        Ok(())
    );
    assert_eq!(target.volume.block(3), vec![9; BLOCK]);
    let again = run(&mut queue, request(0, Operation::CompareAndWrite, 3, 1));
    let Err(CommandError::Status(status)) = again else {
        panic!("{again:?}");
    };
    assert_eq!(status.code(), Some(StatusCode::CompareFailure));
}

#[test]
fn a_resize_is_learned_through_the_event() {
    let target = Target::start(64);
    let (device, queue) = attach(&target, "");
    target.volume.resize(128);
    target
        .subsystem
        .lock()
        .unwrap()
        .namespace_changed(nvme::wire::Nsid(1));
    let deadline = Instant::now() + Duration::from_secs(10);
    while queue.geometry().blocks != Blocks(128) {
        assert!(Instant::now() < deadline, "the event did not come");
        std::thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(device.geometry().blocks, Blocks(128));
}

#[test]
fn commands_in_flight_are_resubmitted_while_connections_are_cut() {
    let target = Target::start(4096);
    let (_device, mut queue) = attach(&target, "ddgst=on");
    let mut done = Vec::new();
    let mut expected = [0u8; 8];
    for round in 0..60u64 {
        // Each slot has 64 blocks of its own: what it wrote last must be there.
        let operation = if round % 2 == 0 {
            Operation::Write
        } else {
            Operation::Read
        };
        for slot in 0..8u16 {
            let buffer = queue.buffer_mut(Slot(slot));
            if operation == Operation::Write {
                expected[usize::from(slot)] = (round as u8).wrapping_mul(31) ^ slot as u8;
                buffer[..64 * BLOCK].fill(expected[usize::from(slot)]);
            } else {
                buffer[..64 * BLOCK].fill(0);
            }
            queue
                .submit(request(slot, operation, u64::from(slot) * 64, 64))
                .unwrap();
        }
        if round % 5 == 3 {
            queue.poll(Instant::now(), &mut done).unwrap();
            target.cut();
        }
        while done.len() < 8 {
            let patience = Duration::from_secs(20);
            let count = queue
                .wait(WaitStrategy::Sleep, patience, &mut done)
                .unwrap();
            assert!(count > 0, "round {round}: no progress");
        }
        for completion in done.drain(..) {
            assert_eq!(completion.result, Ok(()), "round {round}");
            if operation == Operation::Read {
                let data = &queue.buffer(completion.slot)[..64 * BLOCK];
                let want = expected[usize::from(completion.slot.0)];
                assert!(data.iter().all(|&b| b == want), "round {round}");
            }
        }
    }
}

#[test]
fn commands_in_flight_fail_where_the_caller_wants_to_know() {
    let target = Target::start(4096);
    target.volume.set_admission(block::Admission::NotBefore(
        Instant::now() + Duration::from_secs(3600),
    ));
    let options = DeviceOptions {
        on_loss: OnLoss::Fail,
        ..options()
    };
    let mut device = Device::connect(&target.url(""), &options).unwrap();
    let mut queue = device.take_queues().remove(0);
    queue.submit(request(3, Operation::Read, 0, 1)).unwrap();
    let mut done = Vec::new();
    queue.poll(Instant::now(), &mut done).unwrap();
    target.cut();
    let patience = Duration::from_secs(20);
    queue
        .wait(WaitStrategy::Sleep, patience, &mut done)
        .unwrap();
    let lost = Completion {
        slot: Slot(3),
        result: Err(CommandError::ConnectionLost),
    };
    assert_eq!(done, [lost]);
    target.volume.set_admission(block::Admission::Now);
    assert_eq!(run(&mut queue, request(3, Operation::Read, 0, 1)), Ok(()));
    assert_eq!(queue.link(), Link::Up);
}

#[test]
fn a_target_that_stays_away_is_given_up_and_its_commands_fail() {
    let target = Target::start(64);
    let mut options = options();
    options.backoff.give_up_after = Duration::from_millis(200);
    let mut device = Device::connect(&target.url(""), &options).unwrap();
    let mut queue = device.take_queues().remove(0);
    drop(target);
    queue.submit(request(0, Operation::Read, 0, 1)).unwrap();
    let mut done = Vec::new();
    let patience = Duration::from_secs(20);
    queue
        .wait(WaitStrategy::Sleep, patience, &mut done)
        .unwrap();
    assert_eq!(done[0].result, Err(CommandError::NotSubmitted));
    let error = queue.wait(WaitStrategy::Sleep, patience, &mut done);
    assert!(matches!(error, Err(QueueError::GaveUp { .. })), "{error:?}");
}

#[test]
fn queues_end_with_their_device() {
    let target = Target::start(64);
    let (device, mut queue) = attach(&target, "");
    drop(device);
    let mut done = Vec::new();
    let patience = Duration::from_secs(20);
    let error = queue.wait(WaitStrategy::Sleep, patience, &mut done);
    assert_eq!(error, Err(QueueError::Detached));
}

#[test]
fn a_device_shuts_its_controller_down_before_it_goes() {
    let target = Target::start(64);
    let farewells = || target.farewells.load(std::sync::atomic::Ordering::Relaxed);
    let (device, queue) = attach(&target, "");
    assert_eq!(farewells(), 0);
    drop(device);
    assert_eq!(farewells(), 1);
    drop(queue);
    // A target that does not answer holds a device up for a second, not for good.
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

#[test]
fn a_thousand_attachments_leave_no_descriptor_behind() {
    let target = Target::start(64);
    let count = || std::fs::read_dir("/proc/self/fd").unwrap().count();
    let (device, queue) = attach(&target, "");
    drop((device, queue));
    target.cut();
    let before = count();
    for round in 0..1000 {
        let (device, mut queue) = attach(&target, "");
        if round % 10 == 0 {
            assert_eq!(run(&mut queue, request(0, Operation::Read, 0, 1)), Ok(()));
        }
        drop((device, queue));
        if round % 50 == 0 {
            target.cut();
        }
    }
    target.cut();
    let deadline = Instant::now() + Duration::from_secs(10);
    // The other tests of this process come and go meanwhile.
    while count() > before + 64 {
        assert!(Instant::now() < deadline, "{} of {before}", count());
        std::thread::sleep(Duration::from_millis(20));
    }
}
