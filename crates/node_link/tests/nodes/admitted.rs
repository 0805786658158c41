//! Commands of which several are admitted before they are executed.

use std::sync::atomic::Ordering;
use std::thread::sleep;
use std::time::{Duration, Instant};

use block::{
    Admission, Blocks, DataUse, Extent, Intent, Lba, Op, OpKind, Persistence, ReadDest, Ticket,
    Volume as _,
};

use crate::cluster::{Cluster, PATIENCE};

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

#[test]
fn what_was_fetched_before_a_node_became_primary_is_not_read() {
    let mut cluster = Cluster::start();
    cluster.await_copies(0, 3);
    let (old, new) = (vec![1; 4096], vec![2; 4096]);
    assert_eq!(cluster.host(0).write(9, &old, PATIENCE), Ok(()));
    // Its block is fetched at node 1, and its host does not go on.
    let volume = cluster.machines[1].volume.clone().expect("runs");
    let read = intent(OpKind::Read, &[block(9)]);
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
    let extent = block(9);
    let read = volume.execute(Op::Read { extent, dest });
    assert!(read.is_err() || buffer == new, "stale: {}", buffer[0]);
}
