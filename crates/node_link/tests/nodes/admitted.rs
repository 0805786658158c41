//! Commands of which several are admitted before they are executed.

use std::sync::atomic::Ordering;
use std::thread::sleep;
use std::time::{Duration, Instant};

use block::{
    Admission, Blocks, DataUse, Extent, Intent, Lba, Op, OpKind, Persistence, ReadDest, Settled,
    Status, Ticket, Volume as _,
};

use crate::cluster::{BLOCKS, Cluster, PATIENCE};

/// A command of one block.
fn intent(kind: OpKind, extents: &[Extent]) -> Intent<'_> {
    let data_use = match kind {
        OpKind::Read => DataUse::Read,
        _ => DataUse::Overwrite,
    };
    Intent {
        kind,
        extents,
        len_bytes: 4096,
        data_use,
        persistence: Persistence::Volatile,
    }
}

/// Tickets of connections that no host of a test has.
fn ticket(number: u64) -> Ticket {
    Ticket {
        connection: Ticket::CONNECTIONS_MIN + 1000 + number,
        slot: 0,
        generation: 0,
    }
}

const fn block(lba: u64) -> Extent {
    Extent::new(Lba(lba), Blocks(1))
}

/// The block that is read and written.
const NINTH: Extent = block(9);

#[test]
fn what_was_fetched_before_a_node_became_primary_is_not_read() {
    let mut cluster = Cluster::start();
    cluster.await_copies(0, 3);
    let (old, new) = (vec![1; 4096], vec![2; 4096]);
    assert_eq!(cluster.host(0).write(9, &old, PATIENCE), Ok(()));
    // Its block is fetched at node 1, and its host does not go on.
    let volume = cluster.machines[1].volume.clone().expect("runs");
    let read = intent(OpKind::Read, &[NINTH]);
    let admitted = volume.admit(Instant::now(), &read, ticket(1));
    assert_eq!(admitted, Admission::Later(None));
    sleep(Duration::from_millis(500));
    // Node 1 becomes primary, since node 2 does not reach the store.
    cluster.machines[2].is_cut_off.store(true, Ordering::SeqCst);
    cluster.kill(0);
    cluster.await_status(1, |status| status.is_serving && status.in_sync.len() == 2);
    let mut host = cluster.host(1);
    let written = (0..100).find_map(|_| host.write(9, &new, PATIENCE).ok());
    assert_eq!(written, Some(()));
    // Admitted while node 1 serves; the lease ends before it is executed.
    let admitted = volume.admit(Instant::now(), &read, ticket(2));
    assert_eq!(admitted, Admission::Now);
    cluster.cut_off(1);
    cluster.await_status(1, |status| !status.is_serving);
    let mut buffer = vec![0; 4096];
    let dest = ReadDest::Copy(&mut buffer);
    let extent = NINTH;
    let read = volume.execute(Op::Read { extent, dest });
    assert!(read.is_err() || buffer == new, "stale: {}", buffer[0]);
}

#[test]
fn a_write_without_memory_fails_alone() {
    let cluster = Cluster::start();
    cluster.await_copies(0, 3);
    let data = vec![7; 4096];
    assert_eq!(cluster.host(0).write(9, &[1; 4096], PATIENCE), Ok(()));
    let budget = &cluster.machines[0].budget;
    budget.set_total_bytes(budget.used_bytes());
    let volume = cluster.machines[0].volume.clone().expect("runs");
    let (good, bad) = (NINTH, block(4000));
    for (number, extent) in [(1, good), (2, bad)] {
        let admitted = volume.admit(
            Instant::now(),
            &intent(OpKind::Write, &[extent]),
            ticket(number),
        );
        assert_eq!(admitted, Admission::NowThenSettle(None));
    }
    let write = |extent| {
        let data = &data;
        volume.execute(Op::Write { extent, data })
    };
    assert_eq!(write(good), Ok(()));
    assert_eq!(write(bad), Err(Status::CapacityExceeded));
    volume.release(ticket(2));
    let since = Instant::now();
    while volume.settle(ticket(1)) != Ok(Settled::Done) {
        assert_eq!(volume.settle(ticket(1)), Ok(Settled::Later));
        assert!(since.elapsed() < PATIENCE, "it does not settle");
        sleep(Duration::from_millis(5));
    }
    volume.release(ticket(1));
    for place in 0..3 {
        let mut host = cluster.host(place);
        assert_eq!(host.read(9, 1, PATIENCE), Ok(data.clone()));
        assert_eq!(host.read(4000, 1, PATIENCE), Ok(vec![0; 4096]));
    }
}

#[test]
fn writes_wait_for_a_member_that_cannot_keep_up_while_it_is_copied_to() {
    let mut cluster = Cluster::start();
    cluster.await_copies(0, 3);
    let mut host = cluster.host(0);
    for lba in (0..BLOCKS).step_by(32) {
        assert_eq!(host.write(lba, &vec![1; 32 * 4096], PATIENCE), Ok(()));
    }
    cluster.kill(2);
    cluster.await_copies(0, 2);
    // It has memory for the first pieces, acknowledges none that follows, and is given up.
    cluster.machines[2].budget.set_total_bytes(3 << 20);
    let copied = cluster.status(0).copied_bytes;
    cluster.restart(2);
    let since = Instant::now();
    while cluster.status(0).copied_bytes < copied + (1 << 20) {
        assert!(since.elapsed() < PATIENCE, "nothing is copied");
        sleep(Duration::from_millis(1));
    }
    for round in 0..1000 {
        let written = host.write(round % 8, &[2; 4096], PATIENCE);
        assert_eq!(written, Ok(()), "write {round}");
    }
}
