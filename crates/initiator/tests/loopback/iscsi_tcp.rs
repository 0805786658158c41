//! iSCSI devices over loopback against the target's session core.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use crate::support::{self, BLOCK, IscsiTarget, PATIENCE, pattern, request, run};
use block::{Admission, Blocks, Unmap};
use initiator::{
    CommandError, ConnectError, Device, DeviceOptions, OnLoss, Operation, Queue, Slot,
    WaitStrategy, discover_targets,
};
use iscsi::testing::TestTarget;
use iscsi::{Authentication, Credentials};
use scsi::host::CommandFailure;

fn options() -> DeviceOptions {
    support::options(1 << 20)
}

fn attach(target: &IscsiTarget, lun: u16, query: &str) -> (Device, Vec<Queue>) {
    let mut device = Device::connect(&target.url(lun, query), &options()).unwrap();
    let queues = device.take_queues();
    (device, queues)
}

#[test]
fn every_length_and_digest_reads_back_what_was_written() {
    let target = IscsiTarget::start(8192);
    for query in ["", "hdgst=on", "ddgst=on", "hdgst=on&ddgst=on"] {
        let (_device, mut queues) = attach(&target, 1, query);
        let queue = &mut queues[0];
        for (seed, blocks) in [1, 2, 8, 15, 16, 17, 31, 32, 64, 255, 512, 513, 1024, 2048]
            .into_iter()
            .enumerate()
        {
            let data = pattern(seed as u64, blocks as usize * BLOCK);
            queue.buffer_mut(Slot(0))[..data.len()].copy_from_slice(&data);
            let lba = seed as u64 * 7;
            assert_eq!(
                run(queue, request(0, Operation::Write, lba, blocks)),
                Ok(())
            );
            queue.buffer_mut(Slot(1)).fill(0xEE);
            assert_eq!(run(queue, request(1, Operation::Read, lba, blocks)), Ok(()));
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
    let target = IscsiTarget::start(1024);
    let (device, mut queues) = attach(&target, 0, "");
    let queue = &mut queues[0];
    let volume = target.target.volume(0);
    assert_eq!(device.geometry().blocks, Blocks(1024));
    assert_eq!(device.info().target, TestTarget::NAME);
    assert_eq!(device.info().serial, "test0");
    queue.buffer_mut(Slot(0)).fill(7);
    assert_eq!(run(queue, request(0, Operation::Write, 0, 64)), Ok(()));
    assert_eq!(run(queue, request(0, Operation::Compare, 0, 64)), Ok(()));
    assert_eq!(run(queue, request(1, Operation::Flush, 0, 0)), Ok(()));
    assert_eq!(run(queue, request(1, Operation::Verify, 0, 64)), Ok(()));
    let zeroes = Operation::WriteZeroes(Unmap::Allowed);
    assert_eq!(run(queue, request(1, zeroes, 0, 8)), Ok(()));
    assert_eq!(run(queue, request(1, Operation::Deallocate, 8, 8)), Ok(()));
    assert!(
        volume.contents()[..16 * BLOCK]
            .iter()
            .all(|&byte| byte == 0)
    );
    assert!(
        volume.contents()[16 * BLOCK..64 * BLOCK]
            .iter()
            .all(|&byte| byte == 7)
    );
    // Compare and write: the first half is what is expected.
    let buffer = queue.buffer_mut(Slot(2));
    buffer[..BLOCK].fill(7);
    buffer[BLOCK..2 * BLOCK].fill(9);
    assert_eq!(
        run(queue, request(2, Operation::CompareAndWrite, 16, 1)),
        Ok(())
    );
    assert_eq!(volume.block(16), [9; BLOCK]);
    let again = run(queue, request(2, Operation::CompareAndWrite, 16, 1));
    let error = again.unwrap_err().to_string();
    assert!(error.contains("miscompare"), "{error}");
    let beyond = run(queue, request(1, Operation::Read, 1024, 1));
    assert!(beyond.unwrap_err().to_string().contains("beyond the end"));
}

#[test]
fn a_resize_is_learned_by_a_command_that_meets_it() {
    let target = IscsiTarget::start(1024);
    let (device, mut queues) = attach(&target, 0, "");
    let queue = &mut queues[0];
    assert_eq!(run(queue, request(0, Operation::Read, 0, 1)), Ok(()));
    target.target.volume(0).resize(2048);
    target.target.device().capacity_changed(0);
    // The command meets the unit attention, and is executed all the same.
    assert_eq!(run(queue, request(0, Operation::Read, 0, 1)), Ok(()));
    let until = Instant::now() + PATIENCE;
    while device.geometry().blocks != Blocks(2048) {
        assert!(Instant::now() < until, "the new capacity is learned");
        run(queue, request(0, Operation::Read, 0, 1)).unwrap();
    }
    assert_eq!(run(queue, request(0, Operation::Write, 2047, 1)), Ok(()));
}

#[test]
fn sessions_are_independent_and_a_lost_one_is_restored_with_its_commands() {
    let target = IscsiTarget::start(4096);
    let (_device, mut queues) = attach(&target, 0, "sessions=2");
    assert_eq!(queues.len(), 2);
    let until = Instant::now() + PATIENCE;
    for round in 0..50u64 {
        for (queue, index) in queues.iter_mut().zip(0u64..) {
            let mut done = Vec::new();
            for slot in 0..queue.depth() {
                let lba = index * 2048 + u64::from(slot) * 100;
                let fill = pattern(round + lba, 64 * BLOCK);
                queue.buffer_mut(Slot(slot))[..fill.len()].copy_from_slice(&fill);
                queue
                    .submit(request(slot, Operation::Write, lba, 64))
                    .unwrap();
            }
            if round % 5 == index * 2 {
                queue.poll(Instant::now(), &mut done).unwrap();
                target.cut();
            }
            while done.len() < queue.depth().into() {
                assert!(Instant::now() < until, "progress");
                queue
                    .wait(WaitStrategy::Sleep, PATIENCE, &mut done)
                    .unwrap();
            }
            for completion in done {
                assert_eq!(completion.result, Ok(()), "round {round}");
                let lba = index * 2048 + u64::from(completion.slot.0) * 100;
                let want = pattern(round + lba, 64 * BLOCK);
                let start = lba as usize * BLOCK;
                let have = &target.target.volume(0).contents()[start..start + want.len()];
                assert!(have == want, "round {round}, LBA {lba}");
            }
        }
    }
    assert!(target.accepted.load(Ordering::Relaxed) > 10);
}

#[test]
fn commands_fail_with_the_connection_where_that_is_wanted() {
    let target = IscsiTarget::start(64);
    let options = DeviceOptions {
        on_loss: OnLoss::Fail,
        ..options()
    };
    let mut device = Device::connect(&target.url(0, ""), &options).unwrap();
    let mut queue = device.take_queues().remove(0);
    let until = Instant::now() + Duration::from_millis(300);
    target
        .target
        .volume(0)
        .set_admission(Admission::NotBefore(until));
    queue.submit(request(0, Operation::Read, 0, 1)).unwrap();
    let mut done = Vec::new();
    queue.poll(Instant::now(), &mut done).unwrap();
    target.cut();
    queue
        .wait(WaitStrategy::Sleep, PATIENCE, &mut done)
        .unwrap();
    assert_eq!(done[0].result, Err(CommandError::ConnectionLost));
    target.target.volume(0).set_admission(Admission::Now);
    assert_eq!(run(&mut queue, request(0, Operation::Read, 0, 1)), Ok(()));
}

#[test]
fn a_command_that_takes_too_long_is_aborted_and_the_session_lives_on() {
    let target = IscsiTarget::start(64);
    let options = DeviceOptions {
        command_timeout: Duration::from_millis(1500),
        ..options()
    };
    let mut device = Device::connect(&target.url(0, ""), &options).unwrap();
    let mut queue = device.take_queues().remove(0);
    let forever = Instant::now() + Duration::from_secs(3600);
    let volume = target.target.volume(0);
    volume.set_admission(Admission::NotBefore(forever));
    let aborted = run(&mut queue, request(0, Operation::Read, 0, 1));
    assert_eq!(aborted, Err(CommandError::Scsi(CommandFailure::Aborted)));
    volume.set_admission(Admission::Now);
    assert_eq!(run(&mut queue, request(0, Operation::Read, 0, 1)), Ok(()));
    assert_eq!(target.accepted.load(Ordering::Relaxed), 1);
}

#[test]
fn a_command_that_a_busy_target_puts_off_is_sent_again_until_it_is_taken() {
    let target = IscsiTarget::start(64);
    target.room.store(0, Ordering::Relaxed);
    let (_device, mut queues) = attach(&target, 0, "");
    let queue = &mut queues[0];
    queue.buffer_mut(Slot(0))[..BLOCK].fill(7);
    queue.submit(request(0, Operation::Write, 5, 1)).unwrap();
    let mut done = Vec::new();
    let moment = Duration::from_millis(300);
    queue.wait(WaitStrategy::Sleep, moment, &mut done).unwrap();
    assert_eq!(done, [], "TASK SET FULL is no reason to give up");
    assert_eq!(queue.in_flight(), 1);
    // What needs no room continues meanwhile.
    assert_eq!(run(queue, request(1, Operation::Read, 5, 1)), Ok(()));
    target.room.store(u64::MAX, Ordering::Relaxed);
    queue
        .wait(WaitStrategy::Sleep, PATIENCE, &mut done)
        .unwrap();
    assert_eq!((done.len(), done[0].result), (1, Ok(())));
    assert_eq!(target.target.volume(0).block(5), [7; BLOCK]);
}

#[test]
fn commands_that_are_put_off_outlive_their_session() {
    let target = IscsiTarget::start(64);
    target.room.store(0, Ordering::Relaxed);
    let (_device, mut queues) = attach(&target, 0, "");
    let queue = &mut queues[0];
    queue.submit(request(0, Operation::Write, 5, 1)).unwrap();
    let mut done = Vec::new();
    let moment = Duration::from_millis(300);
    queue.wait(WaitStrategy::Sleep, moment, &mut done).unwrap();
    target.cut();
    target.room.store(u64::MAX, Ordering::Relaxed);
    queue
        .wait(WaitStrategy::Sleep, PATIENCE, &mut done)
        .unwrap();
    assert_eq!((done.len(), done[0].result), (1, Ok(())));
}

#[test]
fn an_idle_session_is_kept_and_one_whose_target_is_silent_is_made_again() {
    let target = IscsiTarget::start(64);
    let options = DeviceOptions {
        keep_alive: Duration::from_millis(1200),
        ..options()
    };
    let mut device = Device::connect(&target.url(0, ""), &options).unwrap();
    let mut queue = device.take_queues().remove(0);
    let mut done = Vec::new();
    let mut idle_for = |queue: &mut Queue, time| {
        let waited = queue.wait(WaitStrategy::Sleep, time, &mut done);
        assert_eq!(waited.unwrap(), 0);
    };
    idle_for(&mut queue, 3 * options.keep_alive);
    assert_eq!(target.accepted.load(Ordering::Relaxed), 1);
    target.deaf_below.store(1, Ordering::Relaxed);
    let until = Instant::now() + PATIENCE;
    while target.accepted.load(Ordering::Relaxed) == 1 {
        assert!(Instant::now() < until, "its silence is noticed");
        idle_for(&mut queue, Duration::from_millis(100));
    }
    assert_eq!(run(&mut queue, request(0, Operation::Write, 0, 1)), Ok(()));
    target.deaf_below.store(0, Ordering::Relaxed);
}

#[test]
fn chap_secrets_come_from_the_url_or_a_file() {
    let credentials = |name: &str, secret: &str| {
        Some(Credentials {
            name: name.into(),
            secret: secret.as_bytes().to_vec().into(),
        })
    };
    let volume = std::sync::Arc::new(block::testing::VecVolume::new(block::BlockSize::B4096, 64));
    let target = IscsiTarget::of(TestTarget::new(vec![volume]).with_authentication(
        Authentication {
            initiator: credentials("alice", "initiator secret"),
            target: credentials("bob", "target's own secret"),
        },
    ));
    let connect = |user: &str, query: &str| {
        let (address, name) = (target.address, TestTarget::NAME);
        let text = format!("iscsi://{user}{address}/{name}/0{query}");
        Device::connect(&text.parse().unwrap(), &options())
    };
    let device = connect("alice%initiator secret@", "").unwrap();
    assert_eq!(device.geometry().block_size.bytes(), 4096);
    let path = std::env::temp_dir().join(format!("mutual-{}", std::process::id()));
    let lines = "alice\ninitiator secret\nbob\ntarget's own secret\n";
    std::fs::write(&path, lines).unwrap();
    connect("", &format!("?chap={}", path.display())).unwrap();
    std::fs::remove_file(&path).unwrap();
    for (user, hint) in [
        ("", "check user and secret"),
        ("alice%wrong@", "check user and secret"),
        ("alice@", "LIBISCSI_CHAP_PASSWORD"),
    ] {
        let error = connect(user, "").unwrap_err().to_string();
        assert!(error.contains(hint), "{user}: {error}");
    }
}

#[test]
fn mistakes_are_named() {
    let target = IscsiTarget::start(64);
    let error = Device::connect(&target.url(5, ""), &options()).unwrap_err();
    assert!(matches!(error, ConnectError::Unit { .. }));
    assert!(error.to_string().contains("it has LUNs 0, 1"), "{error}");
    let other = target.url(0, "").with_target("iqn.2026-11.com.example:no");
    let error = Device::connect(&other, &options()).unwrap_err();
    assert!(error.to_string().contains("`discover` lists"), "{error}");
    let nothing = target.url(0, "").service();
    let error = Device::connect(&nothing, &options()).unwrap_err();
    assert!(error.to_string().contains("iqn.2026-11.com.example:rd0"));
}

#[test]
fn discovery_lists_targets_with_their_portals() {
    let target = IscsiTarget::start(64);
    let records = discover_targets(&target.url(0, "").service(), PATIENCE).unwrap();
    assert_eq!(records.len(), 1);
    assert_eq!(records[0].target, TestTarget::NAME);
    assert_eq!((records[0].port, records[0].portal_group), (3260, Some(1)));
}
