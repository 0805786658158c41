//! What devices do over loopback against an NVMe target's session core, whatever the transport.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::support::{self, BLOCK, finish, pattern, request, run};
use block::testing::VecVolume;
use block::{Blocks, Unmap};
use initiator::{
    CommandError, Completion, Device, DeviceOptions, Link, OnLoss, Operation, Queue, QueueError,
    Slot, SubmitError, Url, WaitStrategy,
};
use nvme::controller::Subsystem;
use nvme::wire::StatusCode;

/// A target that serves one volume as namespace 1 until it is dropped.
pub trait NvmeTarget {
    /// What is written behind URLs, one after the other, to see all kinds of data arrive whole.
    const QUERIES: &'static [&'static str];

    fn start(blocks: u64) -> Self;
    fn url(&self, query: &str) -> Url;
    fn volume(&self) -> &Arc<VecVolume>;
    fn subsystem(&self) -> &Arc<Mutex<Subsystem>>;
    /// Ends every connection.
    fn cut(&self);
}

pub fn options() -> DeviceOptions {
    support::options(256 * 1024)
}

pub fn attach<T: NvmeTarget>(target: &T, query: &str) -> (Device, Queue) {
    let mut device = Device::connect(&target.url(query), &options()).unwrap();
    let queue = device.take_queues().remove(0);
    (device, queue)
}

pub fn every_length_and_digest_reads_back_what_was_written<T: NvmeTarget>() {
    let target = T::start(4096);
    for query in T::QUERIES {
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

/// Our controller verifies at most as much as it transfers (VSL): 1 MiB.
pub fn a_verify_is_as_long_as_the_controller_allows<T: NvmeTarget>() {
    const MAX: u64 = (1 << 20) / BLOCK as u64;
    let target = T::start(2 * MAX);
    let (_device, mut queue) = attach(&target, "");
    let longest = run(&mut queue, request(0, Operation::Verify, 0, MAX));
    assert_eq!(longest, Ok(()));
    assert_eq!(
        queue.submit(request(0, Operation::Verify, 0, MAX + 1)),
        Err(SubmitError::BlockCount {
            blocks: MAX + 1,
            max: MAX,
        })
    );
}

pub fn every_operation_does_what_it_says<T: NvmeTarget>() {
    let target = T::start(1024);
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
        target.volume().contents()[..16 * BLOCK]
            .iter()
            .all(|&b| b == 0)
    );
    assert!(
        target.volume().contents()[16 * BLOCK..64 * BLOCK]
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

pub fn compare_and_write_writes_only_where_equal<T: NvmeTarget>() {
    let target = T::start(64);
    let (_device, mut queue) = attach(&target, "");
    let buffer = queue.buffer_mut(Slot(0));
    buffer[..BLOCK].fill(0);
    buffer[BLOCK..2 * BLOCK].fill(9);
    assert_eq!(
        run(&mut queue, request(0, Operation::CompareAndWrite, 3, 1)),
        Ok(())
    );
    assert_eq!(target.volume().block(3), vec![9; BLOCK]);
    let again = run(&mut queue, request(0, Operation::CompareAndWrite, 3, 1));
    let Err(CommandError::Status(status)) = again else {
        panic!("{again:?}");
    };
    assert_eq!(status.code(), Some(StatusCode::CompareFailure));
}

pub fn a_resize_is_learned_through_the_event<T: NvmeTarget>() {
    let target = T::start(64);
    let (device, queue) = attach(&target, "");
    target.volume().resize(128);
    target
        .subsystem()
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

pub fn commands_in_flight_are_resubmitted_while_connections_are_cut<T: NvmeTarget>() {
    let target = T::start(4096);
    let query = T::QUERIES[T::QUERIES.len() - 1];
    let (_device, mut queue) = attach(&target, query);
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
        finish(&mut queue, 8, &mut done, &format!("round {round}"));
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

pub fn commands_in_flight_fail_where_the_caller_wants_to_know<T: NvmeTarget>() {
    let target = T::start(4096);
    target.volume().set_admission(block::Admission::NotBefore(
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
    target.volume().set_admission(block::Admission::Now);
    assert_eq!(run(&mut queue, request(3, Operation::Read, 0, 1)), Ok(()));
    assert_eq!(queue.link(), Link::Up);
}

pub fn a_target_that_does_not_return_is_given_up_and_its_commands_fail<T: NvmeTarget>() {
    let target = T::start(64);
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

pub fn queues_end_with_their_device<T: NvmeTarget>() {
    let target = T::start(64);
    let (device, mut queue) = attach(&target, "");
    drop(device);
    let mut done = Vec::new();
    let patience = Duration::from_secs(20);
    let error = queue.wait(WaitStrategy::Sleep, patience, &mut done);
    assert!(matches!(error, Err(QueueError::Detached)), "{error:?}");
}

pub fn a_thousand_attachments_leave_no_descriptor_behind<T: NvmeTarget>() {
    let target = T::start(64);
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
