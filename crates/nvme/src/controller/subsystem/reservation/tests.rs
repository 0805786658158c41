use super::*;
use ReservationNotice::{RegistrationPreempted, ReservationPreempted, ReservationReleased};
use ReservationType::{
    ExclusiveAccess, ExclusiveAccessAllRegistrants, WriteExclusive, WriteExclusiveAllRegistrants,
    WriteExclusiveRegistrantsOnly,
};

const A: HostId = [0xA; 16];
const B: HostId = [0xB; 16];
const C: HostId = [0xC; 16];
const KEY_A: u64 = 0xAAAA;
const KEY_B: u64 = 0xBBBB;
const KEY_C: u64 = 0xCCCC;
const CONFLICT: StatusCode = StatusCode::ReservationConflict;

/// A, B and C are registered.
fn registered() -> Reservations {
    let mut state = Reservations::default();
    for (host, key) in [(A, KEY_A), (B, KEY_B), (C, KEY_C)] {
        state.register(host, key).expect("free");
    }
    state
}

/// A, B and C are registered; A has acquired.
fn held(kind: ReservationType) -> Reservations {
    let mut state = registered();
    state.acquire(A, KEY_A, kind).expect("free");
    state
}

#[test]
fn register_again_with_the_same_key_is_no_change_and_with_another_conflicts() {
    let mut state = registered();
    assert_eq!(state.generation, 3);
    assert_eq!(state.register(A, KEY_A), Ok(()));
    assert_eq!(state.register(A, 1), Err(CONFLICT));
    assert_eq!(state.generation, 3);
}

#[test]
fn registrants_are_bounded() {
    let mut state = Reservations::default();
    for n in 0..REGISTRANTS_MAX as u128 {
        state
            .register((n + 1).to_le_bytes(), 1)
            .expect("below the bound");
    }
    assert_eq!(state.register(A, 1), Err(StatusCode::InternalError));
}

#[test]
fn replace_needs_the_current_key_or_ignores_it() {
    let mut state = registered();
    assert_eq!(state.replace(A, KeyCheck::Current(KEY_B), 1), Err(CONFLICT));
    assert_eq!(state.replace(A, KeyCheck::Current(KEY_A), 1), Ok(()));
    assert_eq!(state.replace(A, KeyCheck::Skip, 2), Ok(()));
    assert_eq!(state.keys[&A], 2);
    let newcomer = [0xD; 16];
    assert_eq!(
        state.replace(newcomer, KeyCheck::Current(0), 3),
        Err(CONFLICT)
    );
    assert_eq!(state.replace(newcomer, KeyCheck::Skip, 3), Ok(()));
    assert_eq!(state.keys[&newcomer], 3);
    assert_eq!(state.generation, 6);
}

#[test]
fn unregister_needs_registration_and_key() {
    let mut state = registered();
    assert_eq!(state.unregister(A, KeyCheck::Current(1)), Err(CONFLICT));
    assert_eq!(state.unregister(A, KeyCheck::Current(KEY_A)), Ok(vec![]));
    assert_eq!(state.unregister(A, KeyCheck::Current(KEY_A)), Err(CONFLICT));
    assert_eq!(state.unregister(B, KeyCheck::Skip), Ok(vec![]));
}

#[test]
fn unregistering_the_holder_notifies_registrants_that_had_access() {
    let mut state = held(WriteExclusive);
    assert_eq!(state.unregister(A, KeyCheck::Current(KEY_A)), Ok(vec![]));
    assert_eq!(state.held, None);
    let mut state = held(WriteExclusiveRegistrantsOnly);
    let told = vec![(B, ReservationReleased), (C, ReservationReleased)];
    assert_eq!(state.unregister(A, KeyCheck::Current(KEY_A)), Ok(told));
    assert_eq!(state.held, None);
}

#[test]
fn a_reservation_of_all_registrants_ends_with_the_last() {
    let mut state = held(ExclusiveAccessAllRegistrants);
    for (host, key) in [(A, KEY_A), (B, KEY_B)] {
        assert_eq!(state.unregister(host, KeyCheck::Current(key)), Ok(vec![]));
        assert!(state.held.is_some());
    }
    assert!(state.is_holder(C));
    assert_eq!(state.unregister(C, KeyCheck::Current(KEY_C)), Ok(vec![]));
    assert_eq!(state.held, None);
}

#[test]
fn acquire_needs_registration_key_and_a_free_reservation() {
    let mut state = registered();
    assert_eq!(state.acquire([0xD; 16], 0, WriteExclusive), Err(CONFLICT));
    assert_eq!(state.acquire(A, KEY_B, WriteExclusive), Err(CONFLICT));
    let generation = state.generation;
    assert_eq!(state.acquire(A, KEY_A, WriteExclusive), Ok(()));
    assert_eq!(state.generation, generation, "acquire does not count");
    assert_eq!(
        state.acquire(A, KEY_A, WriteExclusive),
        Ok(()),
        "the holder may repeat it"
    );
    assert_eq!(
        state.acquire(A, KEY_A, ExclusiveAccess),
        Err(CONFLICT),
        "but not change it"
    );
    assert_eq!(state.acquire(B, KEY_B, WriteExclusive), Err(CONFLICT));
    let mut state = held(WriteExclusiveAllRegistrants);
    assert_eq!(
        state.acquire(B, KEY_B, WriteExclusiveAllRegistrants),
        Ok(()),
        "B holds it too"
    );
}

#[test]
fn release_is_the_holders_and_must_name_the_type() {
    let mut state = held(WriteExclusive);
    assert_eq!(state.release(B, KEY_B, Some(WriteExclusive)), Ok(vec![]));
    assert!(state.held.is_some(), "no effect from another registrant");
    assert_eq!(
        state.release([0xD; 16], 0, Some(WriteExclusive)),
        Err(CONFLICT)
    );
    assert_eq!(state.release(A, KEY_B, Some(WriteExclusive)), Err(CONFLICT));
    for wrong in [Some(ExclusiveAccess), None] {
        assert_eq!(
            state.release(A, KEY_A, wrong),
            Err(StatusCode::InvalidField)
        );
    }
    assert_eq!(state.release(A, KEY_A, Some(WriteExclusive)), Ok(vec![]));
    assert_eq!(state.held, None);
    let mut state = held(WriteExclusiveAllRegistrants);
    let told = vec![(A, ReservationReleased), (C, ReservationReleased)];
    assert_eq!(
        state.release(B, KEY_B, Some(WriteExclusiveAllRegistrants)),
        Ok(told)
    );
}

#[test]
fn clear_removes_everything_and_notifies_the_others() {
    let mut state = held(WriteExclusive);
    let generation = state.generation;
    assert_eq!(state.clear(B, KEY_A), Err(CONFLICT));
    let told = vec![(A, ReservationPreempted), (C, ReservationPreempted)];
    assert_eq!(state.clear(B, KEY_B), Ok(told));
    assert_eq!((state.keys.len(), state.held), (0, None));
    assert_eq!(state.generation, generation + 1);
}

#[test]
fn preempting_the_holder_takes_reservation_and_registration() {
    let mut state = held(WriteExclusive);
    let generation = state.generation;
    let told = vec![(A, ReservationPreempted), (A, RegistrationPreempted)];
    assert_eq!(state.preempt(B, KEY_B, KEY_A, ExclusiveAccess), Ok(told));
    assert_eq!(
        state.held,
        Some(Held {
            kind: ExclusiveAccess,
            by: B
        })
    );
    assert!(!state.keys.contains_key(&A) && state.keys.contains_key(&C));
    assert_eq!(state.generation, generation + 1);
}

#[test]
fn preempting_a_holder_whose_type_favoured_registrants_notifies_the_others() {
    let mut state = held(WriteExclusiveRegistrantsOnly);
    let told = vec![
        (A, ReservationPreempted),
        (A, RegistrationPreempted),
        (C, ReservationReleased),
    ];
    assert_eq!(state.preempt(B, KEY_B, KEY_A, WriteExclusive), Ok(told));
}

#[test]
fn preempting_another_registrant_leaves_the_reservation() {
    let mut state = held(WriteExclusive);
    let told = vec![(C, RegistrationPreempted)];
    assert_eq!(state.preempt(B, KEY_B, KEY_C, ExclusiveAccess), Ok(told));
    assert_eq!(
        state.held,
        Some(Held {
            kind: WriteExclusive,
            by: A
        })
    );
    assert_eq!(
        state.preempt(B, KEY_B, KEY_C, ExclusiveAccess),
        Err(CONFLICT),
        "nobody has it"
    );
}

#[test]
fn a_holder_that_preempts_itself_changes_the_type_and_stays() {
    let mut state = held(WriteExclusive);
    assert_eq!(state.preempt(A, KEY_A, KEY_A, ExclusiveAccess), Ok(vec![]));
    assert_eq!(
        state.held,
        Some(Held {
            kind: ExclusiveAccess,
            by: A
        })
    );
    assert_eq!(state.keys.len(), 3);
}

#[test]
fn preempt_by_key_zero_takes_all_only_from_all_registrants() {
    let mut state = held(WriteExclusive);
    let result = state.preempt(B, KEY_B, 0, ExclusiveAccess);
    assert_eq!(result, Err(StatusCode::InvalidField));
    let mut state = held(WriteExclusiveAllRegistrants);
    let told = vec![(A, RegistrationPreempted), (C, RegistrationPreempted)];
    assert_eq!(state.preempt(B, KEY_B, 0, ExclusiveAccess), Ok(told));
    assert_eq!(
        state.held,
        Some(Held {
            kind: ExclusiveAccess,
            by: B
        })
    );
    assert_eq!(state.keys.len(), 1);
}

#[test]
fn preempt_by_key_under_all_registrants_removes_that_registrant_only() {
    let mut state = held(WriteExclusiveAllRegistrants);
    let told = vec![(A, RegistrationPreempted)];
    assert_eq!(state.preempt(B, KEY_B, KEY_A, ExclusiveAccess), Ok(told));
    assert_eq!(
        state.held.map(|held| held.kind),
        Some(WriteExclusiveAllRegistrants)
    );
    assert!(!state.is_holder(A) && state.is_holder(B) && state.is_holder(C));
}

#[test]
fn preempt_without_a_holder_unregisters_by_key() {
    let mut state = registered();
    let told = vec![(A, RegistrationPreempted)];
    assert_eq!(state.preempt(B, KEY_B, KEY_A, ExclusiveAccess), Ok(told));
    assert_eq!(state.held, None, "nothing is acquired");
    assert_eq!(
        state.preempt(B, KEY_A, KEY_C, ExclusiveAccess),
        Err(CONFLICT),
        "wrong key"
    );
}

#[test]
fn permits_follow_standing() {
    use crate::controller::CommandClass::{Read, Write};
    let state = held(WriteExclusiveRegistrantsOnly);
    assert_eq!(state.permit(B).check(Write), Ok(()));
    assert_eq!(state.permit([0xD; 16]).check(Read), Ok(()));
    assert_eq!(state.permit([0xD; 16]).check(Write), Err(CONFLICT));
    assert_eq!(registered().permit([0xD; 16]), Permit::ALL);
}
