use block::testing::{LateVolume, Lateness};
use block::{BlockSize, Blocks, DataUse, Extent, Lba, Persistence};
use proptest::prelude::*;

use super::*;

const CONNECTION: u64 = 7;

fn late() -> (Arc<LateVolume>, Arc<dyn Volume>) {
    let volume = Arc::new(LateVolume::new(BlockSize::B512, 8));
    (Arc::clone(&volume), volume)
}

fn admit(leases: &mut Leases, slot: usize, volume: &Arc<dyn Volume>, kind: OpKind) -> Admitted {
    let intent = Intent {
        kind,
        extents: &[Extent::new(Lba(0), Blocks(8))],
        len_bytes: 4096,
        data_use: DataUse::Read,
        persistence: Persistence::Volatile,
    };
    leases.admit(slot, volume, Instant::now(), &intent)
}

#[test]
fn a_write_fills_then_settles_then_is_released() {
    let (late, volume) = late();
    let mut leases = Leases::new(CONNECTION);
    assert_eq!(
        admit(&mut leases, 3, &volume, OpKind::Write),
        Admitted::Filling(None)
    );
    let ticket = late.waiting()[0];
    assert_eq!((ticket.connection, ticket.slot), (CONNECTION, 3));
    let filled = late.complete(ticket, Ok(()));
    assert_eq!(leases.complete(filled), Some((3, Resumed::Filled(Ok(())))));
    assert_eq!(leases.settle(3), Ok(Settled::Later));
    let settled = late.complete(ticket, Err(Status::WriteError));
    assert_eq!(
        leases.complete(settled),
        Some((3, Resumed::Settled(Err(Status::WriteError))))
    );
    leases.release(3);
    assert!(leases.is_empty() && late.leases() == 0);
}

#[test]
fn a_read_never_settles() {
    let (late, volume) = late();
    late.set_lateness(Lateness::Settling);
    let mut leases = Leases::new(CONNECTION);
    assert_eq!(
        admit(&mut leases, 0, &volume, OpKind::Read),
        Admitted::Leased(None)
    );
    assert_eq!(leases.settle(0), Ok(Settled::Done));
    assert!(late.waiting().is_empty());
}

#[test]
fn a_command_that_could_not_be_filled_does_not_settle() {
    let (late, volume) = late();
    let mut leases = Leases::new(CONNECTION);
    admit(&mut leases, 0, &volume, OpKind::Write);
    let failed = late.complete(late.waiting()[0], Err(Status::ReadError));
    assert_eq!(
        leases.complete(failed),
        Some((0, Resumed::Filled(Err(Status::ReadError))))
    );
    assert_eq!(leases.settle(0), Ok(Settled::Done));
}

#[test]
fn completions_of_others_change_nothing() {
    let (late, volume) = late();
    let mut leases = Leases::new(CONNECTION);
    admit(&mut leases, 0, &volume, OpKind::Write);
    let first = late.waiting()[0];
    leases.release(0);
    admit(&mut leases, 0, &volume, OpKind::Write);
    let second = late.waiting()[1];
    assert_ne!(first, second, "a released ticket is not used again");
    let result = Ok(());
    for ticket in [
        first,
        Ticket {
            connection: CONNECTION + 1,
            ..second
        },
        Ticket { slot: 1, ..second },
        Ticket {
            slot: u32::MAX,
            ..second
        },
        Ticket {
            generation: second.generation.wrapping_add(1),
            ..second
        },
    ] {
        assert_eq!(
            leases.complete(Completion { ticket, result }),
            None,
            "{ticket:?}"
        );
    }
    let ours = late.complete(second, result);
    assert!(leases.complete(ours).is_some());
    assert_eq!(leases.complete(ours), None, "nothing is awaited any more");
}

#[test]
fn a_volume_without_room_for_leases_refuses() {
    let (late, volume) = late();
    late.set_leases_max(1);
    let mut leases = Leases::new(CONNECTION);
    admit(&mut leases, 0, &volume, OpKind::Write);
    assert_eq!(
        admit(&mut leases, 1, &volume, OpKind::Write),
        Admitted::Fail(Status::Busy, None)
    );
    assert!(!leases.holds(1));
}

#[test]
fn leases_end_with_their_connection() {
    let (late, volume) = late();
    let mut leases = Leases::new(CONNECTION);
    for slot in [0, 5, 9] {
        admit(&mut leases, slot, &volume, OpKind::Write);
    }
    drop(leases);
    assert_eq!(late.leases(), 0);
}

/// What may happen to a slot.
#[derive(Clone, Copy, Debug)]
enum Event {
    Admit(OpKind),
    Complete,
    Settle,
    Release,
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        Just(Event::Admit(OpKind::Read)),
        Just(Event::Admit(OpKind::Write)),
        Just(Event::Complete),
        Just(Event::Settle),
        Just(Event::Release),
    ]
}

proptest! {
    /// Whatever the order, the volume sees each lease released once (it panics otherwise), and both
    /// sides agree on how many there are.
    #[test]
    fn leases_and_volume_agree_after_any_events(events in prop::collection::vec((0_usize..4, event()), 0..200)) {
        let (late, volume) = late();
        let mut leases = Leases::new(CONNECTION);
        for (slot, event) in events {
            match event {
                Event::Admit(kind) if !leases.holds(slot) => {
                    admit(&mut leases, slot, &volume, kind);
                }
                Event::Complete => {
                    let of_slot = late.waiting().into_iter().find(|ticket| ticket.slot == slot as u32);
                    if let Some(ticket) = of_slot {
                        let is_held = leases.holds(slot);
                        let resumed = leases.complete(late.complete(ticket, Ok(())));
                        prop_assert!(resumed.is_none() || is_held);
                    }
                }
                // Sessions settle what they have executed, which is in memory.
                Event::Settle if !late.waiting().iter().any(|ticket| ticket.slot == slot as u32) => {
                    leases.settle(slot).expect("it does not refuse");
                }
                Event::Admit(_) | Event::Settle => {}
                Event::Release => leases.release(slot),
            }
            prop_assert_eq!((0..4).filter(|&slot| leases.holds(slot)).count(), late.leases());
        }
        drop(leases);
        prop_assert_eq!(late.leases(), 0);
    }
}
