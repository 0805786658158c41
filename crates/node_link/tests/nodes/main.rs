//! Three nodes over TCP on loopback addresses, which are killed, cut off and return under verified
//! writes.

mod admitted;
mod cluster;
mod load;
mod paths;
mod security;
mod strangers;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{JoinHandle, sleep};
use std::time::{Duration, Instant};

use block::{Blocks, Extent, Lba, Op, Status, Unmap};
use node_link::Role;

use cluster::{BLOCKS, Cluster, Failed, Host, PATIENCE, REPLACED};
use load::{Load, Model};

const OLD: [u8; 4096] = [0; 4096];
const NEW: [u8; 4096] = [5; 4096];

#[test]
fn what_one_node_writes_every_node_reads() {
    let cluster = Cluster::start();
    cluster.await_copies(0, 3);
    let mut hosts: Vec<_> = (0..3).map(|place| cluster.host(place)).collect();
    for (writer, byte) in [(0, 1), (2, 2), (1, 3)] {
        let data = vec![byte; 100 * 4096];
        assert_eq!(hosts[writer].write(50, &data, PATIENCE), Ok(()));
        for reader in &mut hosts {
            assert_eq!(reader.read(50, 100, PATIENCE), Ok(data.clone()));
        }
    }
    let beyond = hosts[1].read(BLOCKS, 1, PATIENCE);
    assert_eq!(beyond, Err(Failed::Status(Status::LbaOutOfRange)));
}

#[test]
fn zeros_and_copies_reach_every_copy_from_every_node() {
    let mut cluster = Cluster::start();
    cluster.await_copies(0, 3);
    let zeroed = Extent::new(Lba(0), Blocks(BLOCKS));
    for place in [0, 1] {
        let mut host = cluster.host(place);
        let data: Vec<u8> = (1..=40).flat_map(|byte| [byte; 4096]).collect();
        assert_eq!(host.write(10, &data, PATIENCE), Ok(()));
        let from = Extent::new(Lba(10), Blocks(40));
        let copied = host.change(from, || Op::Copy { from, to: Lba(30) });
        assert_eq!(copied, Ok(()));
        assert_eq!(host.read(30, 40, PATIENCE).as_deref(), Ok(&data[..]));
        if place == 0 {
            let unmap = Unmap::Allowed;
            let extent = zeroed;
            let zeroes = || Op::WriteZeroes { extent, unmap };
            assert_eq!(host.change(zeroed, zeroes), Ok(()));
            assert_eq!(host.read(10, 40, PATIENCE), Ok(vec![0; 40 * 4096]));
        }
    }
    let held = cluster.host(0).read(0, 128, PATIENCE).expect("read");
    for copies in [2, 1] {
        let primary = cluster.await_primary(copies + 1);
        cluster.kill(primary);
        let primary = cluster.await_primary(copies);
        let copy = cluster.host(primary).read(0, 128, PATIENCE);
        assert_eq!(copy, Ok(held.clone()));
    }
}

#[test]
fn a_copy_that_finds_memory_for_a_part_only_fails_and_is_the_same_everywhere() {
    let mut cluster = Cluster::start();
    cluster.await_copies(0, 3);
    let data = vec![1; 64 * 4096];
    assert_eq!(cluster.host(0).write(0, &data, PATIENCE), Ok(()));
    let budget = &cluster.machines[0].budget;
    budget.set_total_bytes(budget.used_bytes());
    // Half of the destination is in the memory of the first 2 MiB. That part is executed last.
    let from = Extent::new(Lba(0), Blocks(64));
    for place in [0, 1] {
        let copied = cluster
            .host(place)
            .change(from, || Op::Copy { from, to: Lba(480) });
        assert_eq!(copied, Err(Failed::Status(Status::CapacityExceeded)));
    }
    // Its effects are seen when every member has them.
    let since = Instant::now();
    let held = loop {
        let held = cluster.host(0).read(480, 64, PATIENCE).expect("read");
        if held[..32 * 4096].iter().all(|byte| *byte == 1) {
            break held;
        }
        assert!(since.elapsed() < PATIENCE, "the first half is not copied");
        sleep(Duration::from_millis(5));
    };
    assert!(held[32 * 4096..].iter().all(|byte| *byte == 0));
    cluster.kill(0);
    let primary = cluster.await_primary(2);
    let copy = cluster.host(primary).read(480, 64, PATIENCE);
    assert!(copy.is_ok_and(|copy| copy == held));
}

#[test]
fn compare_and_write_is_atomic_at_the_primary_alone() {
    let cluster = Cluster::start();
    cluster.await_copies(0, 3);
    let extent = Extent::new(Lba(3), Blocks(1));
    let swap = || Op::CompareAndWrite {
        extent,
        compare: &OLD,
        write: &NEW,
    };
    let elsewhere = cluster.host(1).change(extent, swap);
    assert_eq!(elsewhere, Err(Failed::Status(Status::Busy)));
    assert_eq!(cluster.host(0).change(extent, swap), Ok(()));
    let differs = Status::Miscompare { offset_bytes: 0 };
    let again = cluster.host(0).change(extent, swap);
    assert_eq!(again, Err(Failed::Status(differs)));
}

#[test]
fn a_killed_member_is_removed_and_returns_empty_as_another_one_under_writes() {
    let mut cluster = Cluster::start();
    cluster.await_copies(0, 3);
    let load = Load::start(Model::new(), cluster.host(0), 1);
    load.work();
    cluster.kill(2);
    cluster.await_copies(0, 2);
    load.work();
    cluster.restart(2);
    cluster.await_copies(0, 3);
    load.work();
    let mut model = load.stop();
    // Its copy alone has everything.
    cluster.kill(0);
    cluster.await_primary(2);
    cluster.kill(1);
    assert_eq!(cluster.await_primary(1), 2);
    model.check_all(&mut cluster.host(2));
}

#[test]
fn a_killed_primary_is_replaced_under_writes_through_another_node() {
    let mut cluster = Cluster::start();
    cluster.await_copies(0, 3);
    let load = Load::start(Model::new(), cluster.host(1), 2);
    load.work();
    cluster.kill(0);
    cluster.await_primary(2);
    load.work();
    cluster.restart(0);
    cluster.await_primary(3);
    load.work();
    let mut model = load.stop();
    for place in 0..3 {
        model.check_all(&mut cluster.host(place));
    }
}

#[test]
fn the_primary_moves_from_drained_nodes_under_load_without_an_error() {
    let cluster = Cluster::start();
    cluster.await_copies(0, 3);
    let mut model = Model::new();
    for place in 0..3 {
        let load = Load::start(model, cluster.host(place), place as u64);
        for _ in 0..5 {
            load.work();
            let former = cluster.await_primary(3);
            let begin = Instant::now();
            cluster.drain(&[former]);
            let primary = cluster.await_another_primary(former);
            println!("moved from {former} to {primary} in {:?}", begin.elapsed());
            load.work();
            cluster.drain(&[]);
        }
        assert_eq!(load.failures(), 0);
        model = load.stop();
        for reader in 0..3 {
            model.check_all(&mut cluster.host(reader));
        }
    }
    // Nodes that are all drained serve on.
    cluster.drain(&[0, 1, 2]);
    let primary = cluster.await_primary(3);
    sleep(REPLACED);
    assert_eq!(cluster.await_primary(3), primary);
}

#[test]
fn a_primary_that_is_cut_off_neither_writes_nor_serves_stale_reads() {
    let cluster = Cluster::start();
    cluster.await_copies(0, 3);
    let (old, new) = (vec![1; 4096], vec![2; 4096]);
    let mut former = cluster.host(0);
    assert_eq!(former.write(9, &old, PATIENCE), Ok(()));
    let reader = StaleReads::start(cluster.host(0), &old);
    cluster.cut_off(0);
    cluster.await_status(1, |status| status.epoch.0 > 1 && status.in_sync.len() == 2);
    let mut host = cluster.host(1);
    let written = (0..100).find_map(|_| host.write(9, &new, PATIENCE).ok());
    assert_eq!(written, Some(()));
    reader.is_replaced.store(true, Ordering::SeqCst);
    assert_eq!(
        cluster.status(0).role,
        Role::Primary,
        "it does not know better"
    );
    assert!(!cluster.status(0).is_serving);
    assert_eq!(former.read(9, 1, REPLACED), Err(Failed::TimedOut));
    assert_eq!(former.write(9, &old, REPLACED), Err(Failed::TimedOut));
    assert_eq!(host.read(9, 1, PATIENCE), Ok(new.clone()));
    cluster.reconnect(0);
    cluster.await_status(0, |status| status.in_sync.len() == 3);
    assert_eq!(former.read(9, 1, PATIENCE), Ok(new.clone()));
    assert_eq!(host.read(9, 1, PATIENCE), Ok(new));
    assert!(
        reader.stop() > 0,
        "the primary served before it was cut off"
    );
}

/// Reads a block again and again, and fails if a read that began after it was written elsewhere
/// returns what it held before.
struct StaleReads {
    is_replaced: Arc<AtomicBool>,
    is_over: Arc<AtomicBool>,
    thread: JoinHandle<u64>,
}

impl StaleReads {
    fn start(mut host: Host, old: &[u8]) -> Self {
        let (is_replaced, is_over) = (Arc::<AtomicBool>::default(), Arc::<AtomicBool>::default());
        let (replaced, over) = (Arc::clone(&is_replaced), Arc::clone(&is_over));
        let old = old.to_vec();
        let thread = std::thread::spawn(move || {
            let mut served = 0;
            while !over.load(Ordering::SeqCst) {
                let was_replaced = replaced.load(Ordering::SeqCst);
                let Ok(held) = host.read(9, 1, Duration::from_millis(20)) else {
                    continue;
                };
                assert!(!was_replaced || held != old, "a stale read");
                served += 1;
            }
            served
        });
        Self {
            is_replaced,
            is_over,
            thread,
        }
    }

    /// Returns how many reads were answered.
    fn stop(self) -> u64 {
        self.is_over.store(true, Ordering::SeqCst);
        self.thread.join().expect("no read was stale")
    }
}

#[test]
fn a_member_that_was_cut_off_gets_only_what_it_missed() {
    let cluster = Cluster::start();
    cluster.await_copies(0, 3);
    let mut host = cluster.host(0);
    for lba in (0..BLOCKS).step_by(32) {
        assert_eq!(host.write(lba, &vec![1; 32 * 4096], PATIENCE), Ok(()));
    }
    cluster.cut_off(2);
    cluster.await_copies(0, 2);
    let copied = cluster.status(0).copied_bytes;
    assert_eq!(host.write(100, &[2; 4096], PATIENCE), Ok(()));
    cluster.reconnect(2);
    cluster.await_copies(0, 3);
    // Besides the region that was written, only what was in flight when it was cut off.
    let copied = cluster.status(0).copied_bytes - copied;
    let region = 64 * 4096;
    assert!((4096..=4 * region).contains(&copied), "{copied} bytes");
    assert_eq!(cluster.host(2).read(100, 1, PATIENCE), Ok(vec![2; 4096]));
}

#[test]
fn nodes_that_restart_empty_never_serve_the_volume() {
    let mut cluster = Cluster::start();
    cluster.await_copies(0, 3);
    assert_eq!(cluster.host(0).write(1, &[1; 4096], PATIENCE), Ok(()));
    for place in 0..3 {
        cluster.kill(place);
    }
    for place in 0..3 {
        cluster.restart(place);
    }
    sleep(REPLACED);
    for place in 0..3 {
        assert_eq!(cluster.status(place).role, Role::Returning);
        let read = cluster.host(place).read(1, 1, Duration::from_millis(300));
        assert_eq!(read, Err(Failed::TimedOut));
    }
}
