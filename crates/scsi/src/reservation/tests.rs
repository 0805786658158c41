use super::*;

fn ports(name: &str) -> NexusPorts {
    NexusPorts {
        initiator: name.into(),
        target_port: 1,
    }
}

fn registered(names: &[(&str, u64)]) -> Reservations {
    let mut state = Reservations::default();
    for (name, key) in names {
        let ask = Register {
            key: Some(0),
            new_key: *key,
            all_target_ports: false,
            persist: false,
            others: Vec::new(),
        };
        state
            .register(&ports(name), &ask)
            .expect("a first registration is accepted");
    }
    state
}

#[test]
fn who_may_do_what_under_each_type() {
    use ReservationType::{
        ExclusiveAccess, ExclusiveAccessAllRegistrants, ExclusiveAccessRegistrantsOnly,
        WriteExclusive, WriteExclusiveAllRegistrants, WriteExclusiveRegistrantsOnly,
    };
    // For each type: (registrant reads, registrant writes, stranger reads, stranger writes) is a
    // conflict.
    let table = [
        (WriteExclusive, [false, true, false, true]),
        (ExclusiveAccess, [true, true, true, true]),
        (WriteExclusiveRegistrantsOnly, [false, false, false, true]),
        (ExclusiveAccessRegistrantsOnly, [false, false, true, true]),
        (WriteExclusiveAllRegistrants, [false, false, false, true]),
        (ExclusiveAccessAllRegistrants, [false, false, true, true]),
    ];
    for (kind, want) in table {
        let mut state = registered(&[("holder", 1), ("registrant", 2)]);
        state
            .reserve(&ports("holder"), 1, kind as u8)
            .expect("free");
        let conflicts = |who, class| state.conflicts(&ports(who), class);
        let got = [
            conflicts("registrant", AccessClass::Read),
            conflicts("registrant", AccessClass::Write),
            conflicts("stranger", AccessClass::Read),
            conflicts("stranger", AccessClass::Write),
        ];
        assert_eq!(got, want, "{kind:?}");
        assert!(!conflicts("holder", AccessClass::Write), "{kind:?}");
        assert!(!conflicts("stranger", AccessClass::Always), "{kind:?}");
    }
}

#[test]
fn a_wrong_key_conflicts_everywhere() {
    let mut state = registered(&[("a", 1)]);
    let a = ports("a");
    assert_eq!(state.reserve(&a, 2, 1), Err(Refusal::Conflict));
    assert_eq!(state.release(&a, 2, 1), Err(Refusal::Conflict));
    assert_eq!(state.clear(&a, 2), Err(Refusal::Conflict));
    assert_eq!(state.preempt(&a, 2, 1, 1), Err(Refusal::Conflict));
    assert_eq!(
        state.reserve(&ports("stranger"), 0, 1),
        Err(Refusal::Conflict)
    );
}

#[test]
fn unregistering_the_holder_releases_and_notifies_registrants() {
    let mut state = registered(&[("a", 1), ("b", 2)]);
    state.reserve(&ports("a"), 1, 5).expect("free");
    let ask = Register {
        key: Some(1),
        new_key: 0,
        all_target_ports: false,
        persist: false,
        others: Vec::new(),
    };
    let outcome = state.register(&ports("a"), &ask).expect("unregister");
    assert_eq!(state.reservation, None);
    assert_eq!(outcome.notices.len(), 1);
    assert_eq!(outcome.notices[0].asc, Asc::RESERVATIONS_RELEASED);
}

#[test]
fn all_registrants_stay_holders_until_the_last_leaves() {
    let mut state = registered(&[("a", 1), ("b", 2)]);
    state.reserve(&ports("a"), 1, 7).expect("free");
    let leave = |key| Register {
        key: Some(key),
        new_key: 0,
        all_target_ports: false,
        persist: false,
        others: Vec::new(),
    };
    state.register(&ports("a"), &leave(1)).expect("unregister");
    assert!(state.reservation.is_some() && state.holds(&ports("b")));
    state.register(&ports("b"), &leave(2)).expect("unregister");
    assert_eq!(state.reservation, None);
}

#[test]
fn preempt_takes_the_reservation_and_removes_the_victims() {
    let mut state = registered(&[("a", 1), ("b", 2), ("c", 1)]);
    state.reserve(&ports("a"), 1, 1).expect("free");
    let outcome = state.preempt(&ports("b"), 2, 1, 3).expect("preempt");
    assert_eq!(state.registrations.len(), 1);
    assert!(state.holds(&ports("b")));
    assert_eq!(
        state.reservation.as_ref().map(|r| r.kind),
        Some(ReservationType::ExclusiveAccess)
    );
    assert_eq!(outcome.abort.len(), 2);
    assert!(
        outcome
            .notices
            .iter()
            .all(|n| n.asc == Asc::REGISTRATIONS_PREEMPTED)
    );
    assert_eq!(state.preempt(&ports("b"), 2, 99, 3), Err(Refusal::Conflict));
}

#[test]
fn release_with_another_type_is_an_invalid_release() {
    let mut state = registered(&[("a", 1)]);
    state.reserve(&ports("a"), 1, 1).expect("free");
    let refused = Refusal::Check(Sense::illegal(Asc::INVALID_RELEASE));
    assert_eq!(state.release(&ports("a"), 1, 3), Err(refused));
    assert!(state.release(&ports("a"), 1, 1).is_ok());
}

#[test]
fn a_registration_for_all_target_ports_matches_each() {
    let mut state = Reservations::default();
    let ask = Register {
        key: Some(0),
        new_key: 7,
        all_target_ports: true,
        persist: true,
        others: Vec::new(),
    };
    state.register(&ports("a"), &ask).expect("register");
    let elsewhere = NexusPorts {
        initiator: "a".into(),
        target_port: 9,
    };
    assert_eq!(state.find(&elsewhere).map(|r| r.key), Some(7));
    assert!(state.persist);
}

#[test]
fn registrations_are_bounded() {
    let mut state = Reservations::default();
    for i in 0..=REGISTRATIONS_MAX {
        let ask = Register {
            key: Some(0),
            new_key: 1,
            all_target_ports: false,
            persist: false,
            others: Vec::new(),
        };
        let result = state.register(&ports(&format!("host{i}")), &ask);
        assert_eq!(result.is_ok(), i < REGISTRATIONS_MAX, "registration {i}");
    }
}
