//! Snapshots and clones, served while their volume is used.

use std::sync::atomic::{AtomicBool, Ordering};

use block::testing::{assert_not_delayed, timed};
use server::{NewSnapshot, VolumeKind};

use super::*;

impl Fixture {
    /// Attaches a snapshot of rd0 as namespace 2, and a clone of it as namespace 3.
    fn snapshot_and_clone(&self, snapshot: &VolumeName, clone: &VolumeName) {
        let new = NewSnapshot {
            name: snapshot.clone(),
            identity: VolumeIdentity::default(),
            of: volume("rd0"),
        };
        let twice = self.server.create_snapshots(&[new.clone(), new.clone()]);
        assert!(matches!(twice, Err(ServerError::SnapshotTwice(_))));
        let specs = self.server.create_snapshots(&[new]).expect("taken");
        let of = snapshot.to_string();
        let spec = VolumeSpec {
            kind: VolumeKind::Clone { of },
            ..specs[0].clone()
        };
        let created = self.server.create_volume(clone.clone(), &spec, &mut |_| {});
        created.expect("of a snapshot");
        for (name, nsid) in [(snapshot, 2), (clone, 3)] {
            let attached = self.server.attach_volume(&target(), name, Some(nsid));
            attached.expect("a free number");
        }
    }
}

#[test]
fn a_snapshot_and_a_clone_are_served_while_their_volume_is_written_and_rolled_back() {
    let fixture = Fixture::new(256 * MIB);
    let server = &fixture.server;
    let [rd0, s1, c1] = ["rd0", "s1", "c1"].map(volume);
    let (_device, mut queue) = fixture.attach("ns=1");
    fill(&mut queue, 1, MIB as usize);
    run(&mut queue, Operation::Write, 0, 2048).expect("written");
    fixture.snapshot_and_clone(&s1, &c1);
    let is_done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for seed in 2.. {
                fill(&mut queue, seed, MIB as usize);
                run(&mut queue, Operation::Write, 0, 2048).expect("written");
                run(&mut queue, Operation::WriteZeroes(Unmap::Allowed), 512, 512).expect("zeroed");
                if is_done.load(Ordering::Relaxed) {
                    return;
                }
            }
        });
        let (_of_snapshot, mut snapshot) = fixture.attach("ns=2");
        let (_of_clone, mut clone) = fixture.attach("ns=3");
        fill(&mut clone, 99, 4096);
        run(&mut clone, Operation::Write, 8, 8).expect("a clone is written");
        for _ in 0..20 {
            run(&mut snapshot, Operation::Read, 0, 2048).expect("read");
            check(&snapshot, 1, MIB as usize);
            for (lba, seed) in [(8, 99), (0, 1)] {
                run(&mut clone, Operation::Read, lba, 8).expect("read");
                check(&clone, seed, 4096);
            }
        }
        let refused = run(&mut snapshot, Operation::Write, 0, 8);
        let protected = StatusCode::NamespaceWriteProtected;
        assert!(has_failed_with(refused, protected));
        is_done.store(true, Ordering::Relaxed);
    });
    for (parent, child) in [(&rd0, "s1"), (&s1, "c1")] {
        let kept = server.remove_volume(parent, Force::Yes);
        let names = |children: &str| children == child;
        assert!(matches!(kept, Err(ServerError::HasChildren { children, .. }) if names(&children)));
    }
    assert_eq!(server.changed_bytes(&s1).expect("a snapshot"), MIB);
    let back = server.roll_back_volume(&rd0, &s1, &mut |_| {});
    back.expect("it is of this volume");
    let (_again, mut queue) = fixture.attach("ns=1");
    run(&mut queue, Operation::Read, 0, 2048).expect("online again");
    check(&queue, 1, MIB as usize);
    for name in [c1, s1, rd0] {
        server.remove_volume(&name, Force::Yes).expect("removed");
    }
}

/// What a snapshot keeps of a volume that is discarded as a whole: a multiple of what one turn
/// discards without a snapshot.
const KEPT_BYTES: u64 = 256 * MIB;

#[test]
fn a_discard_of_blocks_that_a_snapshot_keeps_delays_no_other_host() {
    let turn = Turn::alone();
    let spec = VolumeSpec::thin(ByteSize(KEPT_BYTES));
    let server = fixture::start(fixture::config(1, 3 * KEPT_BYTES), "rd0", &spec);
    fixture::offer(&server, NQN, "rd0", HostPolicy::Local);
    let portal = server.add_portal(loopback()).expect("a free port");
    let fixture = Fixture {
        server,
        portal,
        _turn: turn,
    };
    let (_device, mut discarding) = fixture.attach("ns=1");
    for part in 0..KEPT_BYTES / MIB {
        run(&mut discarding, Operation::Write, part * 2048, 2048).expect("written");
    }
    let new = NewSnapshot {
        name: volume("s1"),
        identity: VolumeIdentity::default(),
        of: volume("rd0"),
    };
    fixture.server.create_snapshots(&[new]).expect("taken");
    let (_other, mut queue) = fixture.attach("ns=1");
    let mut read = || run(&mut queue, Operation::Read, 0, 8).expect("read");
    let discard = Request {
        slot: Slot(0),
        operation: Operation::Deallocate,
        extent: Extent::new(Lba(0), Blocks(KEPT_BYTES >> 9)),
    };
    discarding.submit(discard).expect("the slot is free");
    let (mut reads, mut done) = (Vec::new(), Vec::new());
    while done.is_empty() {
        let polled = discarding.poll(Instant::now(), &mut done);
        polled.expect("the queue lives");
        reads.push(timed(&mut read));
    }
    done[0].result.expect("discarded");
    let kept = fixture.server.changed_bytes(&volume("s1"));
    assert_eq!(kept.expect("a snapshot"), KEPT_BYTES);
    assert!(reads.len() >= 12, "{} reads beside it", reads.len());
    assert_not_delayed(&reads, read);
}
