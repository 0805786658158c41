//! The table of locks against a model, bounds, and queues.

use std::net::{IpAddr, Ipv4Addr};
use std::time::Instant;

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;
use crate::clients::ClientCounts;

const HERE: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
const KEY: FileKey = FileKey([1; 32]);
/// Bytes of the model's file.
const LEN: usize = 12;

fn caller<'a>(name: &'a [u8], owner: &'a [u8]) -> NlmCaller<'a> {
    NlmCaller {
        address: HERE,
        name,
        owner,
    }
}

fn range(offset: u64, len: u64) -> LockRange {
    LockRange::new(offset, len).expect("valid")
}

fn lock(clients: &mut Clients, name: &[u8], range: LockRange, wait: bool) -> Locked {
    let wait = wait.then_some(HERE);
    clients.nlm_lock(caller(name, b"owner"), &KEY, LockKind::Write, range, wait)
}

fn unlock(clients: &mut Clients, name: &[u8], range: LockRange) {
    assert!(clients.nlm_unlock(caller(name, b"owner"), &KEY, range));
}

fn is_empty(clients: &Clients) -> bool {
    clients.files.is_empty()
        && clients.lockers.is_empty()
        && clients.grants.is_empty()
        && clients.fresh_grants.is_empty()
        && clients.used_bytes == 0
        && clients.count() == ClientCounts::default()
}

/// What is done with bytes of the file, by which of three owners.
#[derive(Clone, Copy, Debug)]
enum Step {
    Lock(usize, bool, usize, usize),
    Unlock(usize, usize, usize),
    Test(usize, bool, usize, usize),
    Free(usize),
}

fn step() -> impl Strategy<Value = Step> {
    let range = || (0..LEN, 1..=LEN).prop_map(|(begin, len)| (begin, (begin + len).min(LEN)));
    prop_oneof![
        4 => (0..3_usize, any::<bool>(), range()).prop_map(|(who, write, (a, b))| Step::Lock(who, write, a, b)),
        3 => (0..3_usize, range()).prop_map(|(who, (a, b))| Step::Unlock(who, a, b)),
        2 => (0..3_usize, any::<bool>(), range()).prop_map(|(who, write, (a, b))| Step::Test(who, write, a, b)),
        1 => (0..3_usize).prop_map(Step::Free),
    ]
}

proptest! {
    #[test]
    fn locks_are_those_of_a_model_of_bytes(steps in vec(step(), 1..60)) {
        let names: [&[u8]; 3] = [b"a", b"b", b"c"];
        let mut clients = Clients::new(1);
        // What each owner has locked of each byte: whether it is exclusive.
        let mut model = [[None; LEN]; 3];
        let excluded = |model: &[[Option<bool>; LEN]; 3], who, write, a, b| {
            (0..3).filter(|&other| other != who).any(|other| {
                model[other][a..b].iter().flatten().any(|&held| held || write)
            })
        };
        let kind = |write| if write { LockKind::Write } else { LockKind::Read };
        for step in steps {
            match step {
                Step::Lock(who, write, a, b) => {
                    let expected = if excluded(&model, who, write, a, b) {
                        Locked::Denied
                    } else {
                        model[who][a..b].fill(Some(write));
                        Locked::Granted
                    };
                    let range = range(a as u64, (b - a) as u64);
                    let caller = caller(names[who], b"owner");
                    prop_assert_eq!(clients.nlm_lock(caller, &KEY, kind(write), range, None), expected);
                }
                Step::Unlock(who, a, b) => {
                    model[who][a..b].fill(None);
                    unlock(&mut clients, names[who], range(a as u64, (b - a) as u64));
                }
                Step::Test(who, write, a, b) => {
                    let caller = caller(names[who], b"owner");
                    let range = range(a as u64, (b - a) as u64);
                    let conflict = clients.nlm_test(caller, &KEY, kind(write), range);
                    prop_assert_eq!(conflict.is_some(), excluded(&model, who, write, a, b));
                }
                Step::Free(who) => {
                    model[who] = [None; LEN];
                    clients.nlm_free(HERE, Some(names[who]));
                }
            }
            let held = model.iter().any(|owner| owner.iter().any(Option::is_some));
            prop_assert_eq!(is_empty(&clients), !held);
        }
        clients.nlm_free(HERE, None);
        prop_assert!(is_empty(&clients));
    }
}

#[test]
fn owners_that_wait_are_granted_in_their_order() {
    let mut clients = Clients::new(1);
    assert_eq!(
        lock(&mut clients, b"a", range(0, 10), true),
        Locked::Granted
    );
    assert_eq!(lock(&mut clients, b"b", range(0, 5), true), Locked::Blocked);
    assert_eq!(lock(&mut clients, b"c", range(3, 5), true), Locked::Blocked);
    assert_eq!(lock(&mut clients, b"d", range(5, 5), true), Locked::Blocked);
    assert!(!clients.has_grants());
    unlock(&mut clients, b"a", range(0, 10));
    let first = clients.next_grant().expect("b");
    assert_eq!((&*first.name, first.range), (&b"b"[..], range(0, 5)));
    // What excludes one that waits does not hold another up.
    let second = clients.next_grant().expect("d");
    assert_eq!((&*second.name, second.range), (&b"d"[..], range(5, 5)));
    assert_eq!(clients.next_grant(), None);
    clients.end_grant(&first, true);
    assert_eq!(lock(&mut clients, b"a", range(0, 1), false), Locked::Denied);
    clients.end_grant(&second, false);
    unlock(&mut clients, b"b", range(0, 5));
    let third = clients.next_grant().expect("c");
    assert_eq!(&*third.name, b"c");
    clients.end_grant(&third, false);
    assert!(is_empty(&clients));
}

#[test]
fn a_client_that_asks_again_is_not_called_and_a_late_refusal_releases_nothing() {
    let mut clients = Clients::new(1);
    let all = range(0, 10);
    assert_eq!(lock(&mut clients, b"a", all, false), Locked::Granted);
    assert_eq!(lock(&mut clients, b"b", all, true), Locked::Blocked);
    assert_eq!(
        lock(&mut clients, b"b", all, true),
        Locked::Blocked,
        "one wait"
    );
    unlock(&mut clients, b"a", all);
    let grant = clients.next_grant().expect("b");
    assert!(clients.is_pending(&grant));
    assert_eq!(lock(&mut clients, b"b", all, true), Locked::Granted);
    assert!(!clients.is_pending(&grant));
    clients.end_grant(&grant, false);
    assert_eq!(lock(&mut clients, b"a", all, false), Locked::Denied);
    unlock(&mut clients, b"b", all);
    assert!(is_empty(&clients));
}

#[test]
fn a_wait_is_cancelled_before_and_after_the_lock_is_granted() {
    let mut clients = Clients::new(1);
    let all = range(0, 10);
    let b = caller(b"b", b"owner");
    for is_granted in [false, true] {
        assert_eq!(lock(&mut clients, b"a", all, false), Locked::Granted);
        assert_eq!(lock(&mut clients, b"b", all, true), Locked::Blocked);
        if is_granted {
            unlock(&mut clients, b"a", all);
        }
        assert!(clients.nlm_cancel(b, &KEY, all));
        assert!(!clients.nlm_cancel(b, &KEY, all), "it is cancelled");
        unlock(&mut clients, b"a", all);
        assert_eq!(clients.next_grant(), None);
        assert!(is_empty(&clients));
    }
}

#[test]
fn a_client_that_restarts_loses_locks_and_waits_and_others_get_them() {
    let mut clients = Clients::new(1);
    let all = range(0, 10);
    assert_eq!(lock(&mut clients, b"a", all, false), Locked::Granted);
    assert_eq!(lock(&mut clients, b"b", all, true), Locked::Blocked);
    clients.nlm_free([192, 0, 2, 1].into(), None);
    clients.nlm_free(HERE, Some(b"other"));
    assert!(
        !clients.has_grants(),
        "neither address nor name are those of a"
    );
    clients.nlm_free(HERE, Some(b"a"));
    let grant = clients.next_grant().expect("b");
    clients.nlm_free(HERE, None);
    assert!(!clients.is_pending(&grant));
    assert!(is_empty(&clients));
}

#[test]
fn locks_on_files_of_a_removed_share_are_removed() {
    let mut clients = Clients::new(1);
    let all = range(0, 10);
    assert_eq!(lock(&mut clients, b"a", all, false), Locked::Granted);
    assert_eq!(lock(&mut clients, b"b", all, true), Locked::Blocked);
    clients.keep_exports(|id| id == ExportId([1; 16]));
    assert_eq!(clients.count().locks, 1);
    clients.keep_exports(|_| false);
    assert!(is_empty(&clients));
}

#[test]
fn what_a_client_holds_and_waits_for_is_bounded() {
    let mut clients = Clients::new(1);
    let mut held = 0;
    while lock(&mut clients, b"greedy", range(2 * held, 1), false) == Locked::Granted {
        held += 1;
    }
    assert_eq!(held as usize, RANGES_MAX - 1);
    // A bound does not keep the client from unlocking, unless that adds ranges.
    unlock(&mut clients, b"greedy", range(0, 1));
    assert_eq!(
        lock(&mut clients, b"greedy", range(0, 1), false),
        Locked::Granted
    );
    let mut waits = 0;
    while lock(&mut clients, b"patient", range(0, waits + 1), true) == Locked::Blocked {
        waits += 1;
    }
    assert_eq!(waits as usize, CLIENT_WAITS_MAX);
    let before = clients.used_bytes;
    for name in 0..1000_u32 {
        let locked = lock(&mut clients, &name.to_be_bytes(), range(0, 1), false);
        assert_eq!(locked, Locked::Denied);
        assert_eq!(
            clients.used_bytes, before,
            "a client without a lock is forgotten"
        );
    }
    clients.nlm_free(HERE, None);
    assert!(is_empty(&clients));
}

#[test]
fn many_names_at_one_address_do_not_keep_others_out() {
    let mut clients = Clients::new(1);
    let mut names = 0_u32;
    while lock(
        &mut clients,
        &names.to_be_bytes(),
        range(names.into(), 1),
        false,
    ) == Locked::Granted
    {
        names += 1;
    }
    assert_eq!(names as usize, ADDRESS_CLIENTS_MAX);
    let other = NlmCaller {
        address: [192, 0, 2, 1].into(),
        ..caller(b"a", b"owner")
    };
    let locked = clients.nlm_lock(other, &KEY, LockKind::Read, range(100, 1), None);
    assert_eq!(locked, Locked::Granted);
}

#[test]
fn a_lease_of_version_4_that_expires_passes_its_locks_on() {
    let (mut clients, now) = (Clients::new(1), Instant::now());
    let id = crate::clients::tests::confirmed(&mut clients, now, b"v4");
    let modes = crate::clients::ShareModes { access: 3, deny: 0 };
    let open = clients.open(id, b"opener", KEY, modes).expect("room").id;
    let all = range(0, 10);
    let locker = crate::clients::Locker::New {
        open,
        owner: b"locker",
    };
    clients
        .lock(id, &KEY, locker, LockKind::Write, all)
        .expect("free");
    assert_eq!(lock(&mut clients, b"a", all, true), Locked::Blocked);
    clients.expire(now + crate::clients::LEASE);
    let grant = clients.next_grant().expect("a");
    clients.end_grant(&grant, true);
    unlock(&mut clients, b"a", all);
    assert!(is_empty(&clients));
}
