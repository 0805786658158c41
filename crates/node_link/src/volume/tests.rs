//! Volumes without connections.

use block::{BlockSize, Blocks, Completion, Completions, Lba};
use memory::Budget;
use replica::testing::settings;

use super::lease::{Lease, Stage, span};
use super::*;
use crate::agreement::MemoryAgreement;

const TICKET: Ticket = Ticket {
    connection: Ticket::CONNECTIONS_MIN,
    slot: 0,
    generation: 0,
};

struct Nobody;

impl Completions for Nobody {
    fn done(&self, _completion: Completion) {}
}

/// A volume on a node that has no copy and no peer.
fn volume() -> Arc<ReplicatedVolume> {
    let agreement = Arc::<MemoryAgreement>::default();
    let links = Arc::new(Links::new(1, agreement, Arc::new(Nobody)));
    let options = VolumeOptions {
        geometry: Geometry::new(BlockSize::B512, Blocks(64)),
        settings: settings(),
        member: None,
        budget: Arc::new(Budget::new(1 << 20)),
    };
    let volume = ReplicatedVolume::new(VolumeId(1), options, &links);
    volume.expect("the options are valid")
}

/// A read of two pieces that waits for them.
fn fetch(volume: &ReplicatedVolume, state: &mut State) {
    let mut lease = Lease::new(OpKind::Read, Stage::Parked, now(), 1);
    lease.extents = vec![Extent::new(Lba(0), Blocks(8))];
    state.leases.insert(TICKET, lease);
    state.parked += 1;
    volume.fetch(state, now(), TICKET);
    assert!(!state.forwards.is_empty());
}

#[test]
fn the_clock_does_not_wait_for_a_volume_that_is_busy_now() {
    let volume = volume();
    let held = volume.lock();
    for _ in 0..ReplicatedVolume::TICKS_SKIPPED_MAX {
        volume.handle_tick();
    }
    drop(held);
    volume.handle_tick();
    assert_eq!(volume.ticks_skipped.load(Ordering::Relaxed), 0);
}

#[test]
fn reads_of_a_command_that_was_released_are_not_sent_again() {
    let volume = volume();
    let mut state = volume.lock();
    fetch(&volume, &mut state);
    state.release(TICKET);
    assert!(state.forwards.is_empty());
    fetch(&volume, &mut state);
    assert_eq!(state.forwards.changes(), 0, "reads are bounded by leases");
}

#[test]
fn a_command_of_which_several_parts_fail_is_reported_once() {
    let volume = volume();
    let mut state = volume.lock();
    fetch(&volume, &mut state);
    for _ in 0..2 {
        state.grant(TICKET, Err(Status::Busy));
    }
    assert_eq!(state.completions.len(), 1);
    assert!(state.forwards.is_empty(), "the other part is not needed");
}

#[test]
fn a_write_that_fails_later_fails_the_commands_of_its_blocks_alone() {
    let volume = volume();
    let mut state = volume.lock();
    let extent = |lba| Extent::new(Lba(lba), Blocks(4));
    let ticket = |slot| Ticket { slot, ..TICKET };
    let first = state.next_id();
    for (slot, extents) in [
        (1, &[extent(0)][..]),
        (2, &[extent(8)]),
        (3, &[extent(0), extent(20)]),
    ] {
        let mut lease = Lease::new(OpKind::Write, Stage::Granted, now(), first);
        lease.span = span(extents);
        state.leases.insert(ticket(slot), lease);
    }
    let flush = Lease::new(OpKind::Flush, Stage::Granted, now(), first);
    state.leases.insert(ticket(4), flush);
    state.finish(first, extent(10), Err(Status::Busy));
    assert_eq!(state.settle(ticket(1)), Ok(Settled::Done));
    assert_eq!(state.settle(ticket(2)), Err(Status::Busy));
    assert_eq!(
        state.settle(ticket(3)),
        Err(Status::Busy),
        "it lies between"
    );
    assert_eq!(state.settle(ticket(4)), Err(Status::Busy), "it is flushed");
}

fn await_service(volume: &ReplicatedVolume) {
    let since = Instant::now();
    while !volume.status().is_serving {
        let is_late = since.elapsed() > Duration::from_secs(10);
        assert!(!is_late, "it does not serve");
        volume.handle_tick();
    }
}

#[test]
fn a_copy_begins_and_ends_while_the_volume_is_open_and_is_empty_when_it_begins_again() {
    let volume = volume();
    let options = |incarnation: Option<u64>| VolumeOptions {
        geometry: volume.geometry(),
        settings: settings(),
        member: incarnation.map(|incarnation| MemberId {
            node: 1,
            incarnation,
        }),
        budget: Arc::new(Budget::new(16 << 20)),
    };
    for incarnation in [1, 2] {
        let placed = options(Some(incarnation));
        let own = placed.member.expect("a copy");
        assert!(volume.place(placed).is_ok());
        volume.see(Config {
            epoch: Epoch(2 * incarnation - 1),
            primary: own,
            in_sync: vec![own],
        });
        assert_eq!(volume.status().role, Role::Primary);
        // A primary that follows another one waits until the lease of that has ended.
        await_service(&volume);
        let mut held = [9; 512];
        let extent = Extent::new(Lba(3), Blocks(1));
        let read = |held: &mut [u8]| {
            let dest = ReadDest::Copy(held);
            volume.execute(Op::Read { extent, dest })
        };
        assert_eq!(read(&mut held), Ok(()));
        assert_eq!(held, [0; 512], "the copy is empty");
        let data = &[incarnation as u8; 512];
        assert_eq!(volume.execute(Op::Write { extent, data }), Ok(()));
        assert_eq!(read(&mut held), Ok(()));
        assert_eq!(&held, data);
        assert!(volume.used_bytes() > 0);
        assert!(matches!(
            volume.place(options(None)),
            Err(NodeError::Serving)
        ));
        let other = MemberId {
            node: 2,
            incarnation: 1,
        };
        volume.see(Config {
            epoch: Epoch(2 * incarnation),
            primary: other,
            in_sync: vec![other],
        });
        assert!(volume.place(options(None)).is_ok());
        assert_eq!(volume.status().role, Role::Absent);
        assert_eq!(volume.used_bytes(), 0);
        assert_eq!(read(&mut held), Err(Status::Busy));
    }
}
