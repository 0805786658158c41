//! Volumes without connections.

use block::{BlockSize, Blocks, Completion, Completions, Lba};
use memory::Budget;
use replica::testing::settings;

use super::lease::{Lease, Stage};
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
