mod concatenation;
mod golden;
mod states;

use std::sync::Arc;

use proptest::prelude::*;
use zerocopy::{FromBytes, IntoBytes};

use super::group::PrivateKey;
use super::*;
use crate::wire::auth::{
    Challenge, Failure, FailureReason, MESSAGE_MAX_BYTES, MessageHeader, MessageKind, Negotiate,
    Reply, Success2,
};

const HOST_SECRET: &str = "DHHC-1:01:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh+KfiaR:";
const CONTROLLER_SECRET: &str =
    "DHHC-1:02:ZGVmZ2hpamtsbW5vcHFyc3R1dnd4eXp7fH1+f4CBgoOEhYaHiImKi4yNjo+QkZKTvGwQfg==:";
const TRANSACTION: u16 = 0x1234;

/// Function, group, and the first bytes of both responses, computed by Python's `hmac` and `pow`
/// from the secrets above, the names in [`names`] and the seeds of [`seed`].
#[rustfmt::skip]
const GOLDEN: [(Hash, Option<DhGroup>, &str, &str); 18] = [
    (Hash::Sha256, None, "95a9fbfe944bfba3fb19c3c0ec4f3009", "a3429443bee2f80002181a1a2106f0db"),
    (Hash::Sha256, Some(DhGroup::Ffdhe2048), "7c33b56ace6cd7d1738eb587eac7bc51", "611cbebadd49c8cea6fbe4956a39cd1a"),
    (Hash::Sha256, Some(DhGroup::Ffdhe3072), "5c93f5e69006c7378417de7dc8d4be97", "b4004b4e59126bce77ad30b46ac26e97"),
    (Hash::Sha256, Some(DhGroup::Ffdhe4096), "8d51b88501e25e7b3bfb3d5de7beb907", "20aecba53886dc2163ed7cdda4c281d9"),
    (Hash::Sha256, Some(DhGroup::Ffdhe6144), "2684e57126f95fa715b6b6afec779b43", "e887c53b46715b5bc1105e53a6673004"),
    (Hash::Sha256, Some(DhGroup::Ffdhe8192), "f6485f714d11a7aac8faa81ce03b219d", "8706cd4efe76a96a2c7f7ce80790341b"),
    (Hash::Sha384, None, "3e29e6041913a585f4d55c858c8e2868", "a511b55e4fa7094adbaf466ef6b5c3fd"),
    (Hash::Sha384, Some(DhGroup::Ffdhe2048), "13c6df1c6b41b991ce86ddfc6acef017", "ce1d3ee372678eca530dc06c58f1060e"),
    (Hash::Sha384, Some(DhGroup::Ffdhe3072), "372b82407fd93ddc27c90dccf8b6453a", "5ea72d9b6b69f9c81c813ffca146d087"),
    (Hash::Sha384, Some(DhGroup::Ffdhe4096), "af4f7cb9c6a3e63b65402fb1f44dda03", "4c545a4536b36a5fba33c6405068b258"),
    (Hash::Sha384, Some(DhGroup::Ffdhe6144), "95548ac87be7cce52bf560a6acf63dd0", "cdfad70097c9939cf0047c9ea62d4fbc"),
    (Hash::Sha384, Some(DhGroup::Ffdhe8192), "3079b4a4efc8b189c009eae4515f87a6", "56e94edb06b53141f0b389545a30b529"),
    (Hash::Sha512, None, "a4b894025992497cfe2caf4f3272caa6", "75091e5e582fb45c6827d61e461627de"),
    (Hash::Sha512, Some(DhGroup::Ffdhe2048), "99015bc182bdb44299a902882ff3a539", "1f03c6c126ec182c9cb1b9afb43d2479"),
    (Hash::Sha512, Some(DhGroup::Ffdhe3072), "af4f085d92a7276a542b57243d0ee004", "0753d9dfd84c878d5aca04f6c7c583c3"),
    (Hash::Sha512, Some(DhGroup::Ffdhe4096), "b2f303eaf30f8ad440d83259e457eaee", "5bf49c6138da83be3941085eea1632d3"),
    (Hash::Sha512, Some(DhGroup::Ffdhe6144), "31acb37906254099ab51e951578941e2", "b392ed986fa18abcff75ec921dc975ea"),
    (Hash::Sha512, Some(DhGroup::Ffdhe8192), "20929094cf7fc7a26d321b4f0cd558c0", "b3ac6781574b72b1f1e748be6a57d4b2"),
];

fn secret(text: &str) -> Secret {
    text.parse().expect("a secret")
}

fn names() -> Names {
    Names {
        host_nqn: "nqn.2014-08.org.example:host".to_owned(),
        subsystem_nqn: "nqn.2014-08.org.example:test".to_owned(),
    }
}

fn seed(first: u8) -> Seed {
    Seed::new(std::array::from_fn(|at| {
        first.wrapping_add((at as u8).wrapping_mul(7))
    }))
}

fn policy(group: Option<DhGroup>) -> GroupPolicy {
    group.map_or(GroupPolicy::NoGroup, GroupPolicy::Only)
}

fn credentials(hash: Hash, group: Option<DhGroup>) -> Credentials {
    Credentials {
        secret: secret(HOST_SECRET),
        other_secret: None,
        controller_secret: Some(secret(CONTROLLER_SECRET)),
        hash: Some(hash),
        group: policy(group),
    }
}

fn host_credentials() -> HostCredentials {
    HostCredentials {
        secret: secret(HOST_SECRET),
        controller_secret: Some(secret(CONTROLLER_SECRET)),
        hash: None,
        group: GroupPolicy::Any,
    }
}

fn controller(credentials: Credentials) -> ControllerAuth {
    ControllerAuth::new(Arc::new(credentials), names())
}

fn host(credentials: HostCredentials) -> HostAuth {
    HostAuth::new(credentials, names(), TRANSACTION, seed(3))
}

fn small() -> ControllerAuth {
    controller(credentials(Hash::Sha256, None))
}

fn tell(controller: &mut ControllerAuth, message: &[u8]) {
    if let Some(power) = controller.handle_message(message, &seed(90)) {
        assert!(controller.is_computing());
        controller.handle_power(power.compute());
    }
    assert!(!controller.is_computing());
}

fn ask(controller: &mut ControllerAuth) -> Vec<u8> {
    controller
        .poll_message(MESSAGE_MAX_BYTES)
        .expect("room for every message")
}

fn failure(message: &[u8]) -> FailureReason {
    let failure = Failure::read_from_bytes(message).expect("a failure");
    assert_eq!(failure.header.kind(), Some(MessageKind::Failure1));
    FailureReason::from_explanation(failure.explanation)
}

/// Runs a transaction to its end. Returns the host's messages and the controller's, in order.
fn run(host: &mut HostAuth, controller: &mut ControllerAuth) -> (AuthStep, Vec<Vec<u8>>) {
    let mut messages = Vec::new();
    loop {
        match host.poll() {
            AuthStep::Send(message) => {
                tell(controller, &message);
                messages.push(message);
            }
            AuthStep::Receive => {
                let mut message = ask(controller);
                messages.push(message.clone());
                message.resize(MESSAGE_MAX_BYTES, 0);
                host.handle_message(&message);
            }
            end => return (end, messages),
        }
    }
}

fn hex(bytes: &[u8]) -> String {
    let digits: Vec<_> = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    digits.concat()
}

#[test]
fn golden_responses_of_every_hash_function_and_group() {
    for (hash, group, r1, r2) in GOLDEN {
        let mut controller = controller(credentials(hash, group));
        let (end, messages) = run(&mut host(host_credentials()), &mut controller);
        assert_eq!(end, AuthStep::Done, "{hash} {group:?}");
        let [_, challenge, reply, success1, success2] = &messages[..] else {
            panic!("{} messages", messages.len());
        };
        let challenge = Challenge::ref_from_prefix(challenge)
            .expect("long enough")
            .0;
        assert_eq!(challenge.hash, hash.id());
        assert_eq!(challenge.group, group.map_or(0, DhGroup::id));
        assert_eq!(hex(&reply[16..32]), r1, "{hash} {group:?}");
        assert_eq!(hex(&success1[16..32]), r2, "{hash} {group:?}");
        assert_eq!(success2.len(), 16);
        assert!(controller.is_proven() && !controller.is_in_progress());
        let outcome = AuthOutcome::Authenticated {
            hash,
            group,
            is_mutual: true,
        };
        assert_eq!(controller.take_outcome(), Some(outcome));
    }
}

#[test]
fn without_a_choice_the_first_hash_function_and_the_smallest_group_are_used() {
    let mut credentials = credentials(Hash::Sha256, None);
    credentials.hash = None;
    credentials.group = GroupPolicy::Any;
    let mut controller = controller(credentials);
    let (end, _) = run(&mut host(host_credentials()), &mut controller);
    assert_eq!(end, AuthStep::Done);
    let outcome = AuthOutcome::Authenticated {
        hash: Hash::Sha256,
        group: Some(DhGroup::Ffdhe2048),
        is_mutual: true,
    };
    assert_eq!(controller.take_outcome(), Some(outcome));
}

#[test]
fn one_way_ends_with_success1() {
    let mut one_way = host_credentials();
    one_way.controller_secret = None;
    let mut controller = small();
    let (end, messages) = run(&mut host(one_way), &mut controller);
    assert_eq!((end, messages.len()), (AuthStep::Done, 4));
    assert!(controller.is_proven());
}

#[test]
fn either_of_two_secrets_is_accepted_while_one_replaces_the_other() {
    let mut both = credentials(Hash::Sha256, None);
    both.other_secret = Some(both.secret.clone());
    both.secret = Secret::new(&[9; 32], None).expect("32 bytes");
    let mut controller = controller(both);
    let (end, _) = run(&mut host(host_credentials()), &mut controller);
    assert_eq!(end, AuthStep::Done);
}

#[test]
fn a_wrong_host_secret_is_rejected() {
    let mut wrong = host_credentials();
    wrong.secret = Secret::new(&[9; 32], Some(Hash::Sha256)).expect("32 bytes");
    let mut controller = small();
    let (end, _) = run(&mut host(wrong), &mut controller);
    let error = HostAuthError::Rejected(FailureReason::Failed);
    assert_eq!(end, AuthStep::Failed(error));
    assert!(controller.is_failed() && !controller.is_proven());
    let outcome = AuthOutcome::Rejected(FailureReason::Failed);
    assert_eq!(controller.take_outcome(), Some(outcome));
}

#[test]
fn a_wrong_controller_secret_is_rejected_by_the_host() {
    let mut wrong = credentials(Hash::Sha512, None);
    wrong.controller_secret = Some(Secret::new(&[9; 48], None).expect("48 bytes"));
    let mut controller = controller(wrong);
    let (end, _) = run(&mut host(host_credentials()), &mut controller);
    assert_eq!(end, AuthStep::Failed(HostAuthError::ControllerNotProven));
    assert!(controller.is_failed() && !controller.is_proven());
    let outcome = AuthOutcome::RejectedByHost(FailureReason::Failed);
    assert_eq!(controller.take_outcome(), Some(outcome));
}

#[test]
fn a_controller_without_a_secret_fails_if_the_host_asks_for_its_proof() {
    let mut none = credentials(Hash::Sha256, None);
    none.controller_secret = None;
    let mut controller = controller(none);
    let (end, _) = run(&mut host(host_credentials()), &mut controller);
    let error = HostAuthError::Rejected(FailureReason::Failed);
    assert_eq!(end, AuthStep::Failed(error));
    assert!(!controller.is_proven());
}

#[test]
fn a_queue_stays_authenticated_while_it_authenticates_again() {
    let mut controller = small();
    run(&mut host(host_credentials()), &mut controller);
    let mut again = host(host_credentials());
    let AuthStep::Send(negotiate) = again.poll() else {
        panic!("a message");
    };
    tell(&mut controller, &negotiate);
    assert!(controller.is_proven() && controller.is_in_progress());
    ask(&mut controller);
    let (end, _) = run(&mut host(host_credentials()), &mut small());
    assert_eq!(end, AuthStep::Done);
    tell(&mut controller, &negotiate);
    assert_eq!(
        failure(&ask(&mut controller)),
        FailureReason::IncorrectMessage
    );
    assert!(controller.is_failed());
}

#[test]
fn negotiations_that_cannot_succeed_have_their_reasons() {
    let offer = |hashes: &[u8], groups: &[u8]| Negotiate::new(1, hashes, groups);
    let with = |change: fn(&mut Negotiate)| {
        let mut message = offer(&[1], &[0]);
        change(&mut message);
        message
    };
    let cases = [
        (offer(&[2, 3, 77], &[0]), FailureReason::HashNotUsable),
        (offer(&[], &[0]), FailureReason::HashNotUsable),
        (offer(&[1], &[1, 2]), FailureReason::GroupNotUsable),
        (offer(&[1], &[]), FailureReason::GroupNotUsable),
        (
            with(|message| message.secure_channel = 1),
            FailureReason::SecureChannelMismatch,
        ),
        (
            with(|message| message.protocols = 0),
            FailureReason::IncorrectPayload,
        ),
        (
            with(|message| message.first.protocol = 2),
            FailureReason::ProtocolNotUsable,
        ),
        (
            with(|message| message.first.hashes_len = 31),
            FailureReason::IncorrectPayload,
        ),
        (
            with(|message| message.first.groups_len = 255),
            FailureReason::IncorrectPayload,
        ),
    ];
    for (message, reason) in cases {
        let mut controller = small();
        tell(&mut controller, message.as_bytes());
        assert_eq!(failure(&ask(&mut controller)), reason);
        assert!(controller.is_failed());
    }
}

#[test]
fn a_negotiation_carries_as_many_protocols_as_it_announces_and_nothing_more() {
    let usable = Negotiate::new(1, &[1], &[0]);
    let first = usable.first.as_bytes();
    let mut other = usable.first;
    other.protocol = 0xC8;
    let other = other.as_bytes();
    let cut = &first[..first.len() - 1];
    let zeros = &[0; 24][..];
    let incorrect = Some(FailureReason::IncorrectPayload);
    for (protocols, descriptors, reason) in [
        (1, vec![first], None),
        (1, vec![first, zeros], None),
        (2, vec![other, first], None),
        (3, vec![other, other, first], None),
        (
            2,
            vec![other, other],
            Some(FailureReason::ProtocolNotUsable),
        ),
        (2, vec![first], incorrect),
        (255, vec![first, first], incorrect),
        (2, vec![first, cut], incorrect),
        (1, vec![first, first], incorrect),
        (1, vec![first, zeros, &[1]], incorrect),
        (0, vec![first], incorrect),
    ] {
        let mut header = usable.as_bytes()[..8].to_vec();
        header[7] = protocols;
        let message = [header, descriptors.concat()].concat();
        let mut controller = small();
        tell(&mut controller, &message);
        let answer = ask(&mut controller);
        match reason {
            Some(reason) => assert_eq!(failure(&answer), reason, "{protocols}"),
            None => assert_eq!(answer[..2], [1, 1], "a challenge: {protocols}"),
        }
    }
}

#[test]
fn the_secrets_count_that_are_valid_when_the_response_is_checked() {
    let old = || credentials(Hash::Sha256, None);
    let new = || Credentials {
        secret: Secret::new(&[9; 32], None).expect("32 bytes"),
        ..old()
    };
    let both = || Credentials {
        other_secret: Some(old().secret),
        ..new()
    };
    for (now, is_accepted) in [
        (Some(old()), true),
        (Some(both()), true),
        (Some(new()), false),
        (None, false),
    ] {
        let (mut host, mut controller) = (host(host_credentials()), small());
        for _ in 0..2 {
            let AuthStep::Send(message) = host.poll() else {
                panic!("a message");
            };
            tell(&mut controller, &message);
            if !controller.is_deciding() {
                host.handle_message(&ask(&mut controller));
            }
        }
        assert!(controller.is_deciding());
        controller.renew_credentials(now.map(Arc::new));
        let verdict = ask(&mut controller);
        if is_accepted {
            assert_eq!(verdict[..2], [1, 3], "Success1");
        } else {
            assert_eq!(failure(&verdict), FailureReason::Failed);
            assert!(!controller.is_proven());
        }
    }
    // Without a secret none can begin.
    let mut controller = small();
    controller.renew_credentials(None);
    tell(&mut controller, Negotiate::new(1, &[1], &[0]).as_bytes());
    assert_eq!(failure(&ask(&mut controller)), FailureReason::Failed);
}

#[test]
fn a_stripped_offer_is_a_downgrade_that_is_rejected() {
    let mut controller = controller(credentials(Hash::Sha512, Some(DhGroup::Ffdhe2048)));
    tell(&mut controller, Negotiate::new(1, &[3], &[0]).as_bytes());
    assert_eq!(
        failure(&ask(&mut controller)),
        FailureReason::GroupNotUsable
    );
}

#[test]
fn a_host_rejects_what_it_has_not_offered() {
    let mut strict = host_credentials();
    strict.hash = Some(Hash::Sha512);
    strict.group = GroupPolicy::Only(DhGroup::Ffdhe2048);
    for (hash, group, reason) in [
        (Hash::Sha256, 1, FailureReason::HashNotUsable),
        (Hash::Sha512, 0, FailureReason::GroupNotUsable),
        (Hash::Sha512, 9, FailureReason::GroupNotUsable),
    ] {
        let mut host = host(strict.clone());
        host.poll();
        let fixed = Challenge::new(TRANSACTION, (hash.id(), hash.len_bytes() as u8), group, 0);
        let message = [fixed.as_bytes(), &[0; 400]].concat();
        host.handle_message(&message);
        let AuthStep::Send(told) = host.poll() else {
            panic!("a message");
        };
        assert_eq!(told[..8], [0, 0xF0, 0, 0, 0x34, 0x12, 1, reason as u8]);
        assert_eq!(
            host.poll(),
            AuthStep::Failed(HostAuthError::Invalid(reason))
        );
    }
}

#[test]
fn values_that_are_none_of_the_group_are_rejected_by_both_sides() {
    let group = DhGroup::Ffdhe2048;
    let ones = |last: u8| {
        let mut value = vec![0; group.value_bytes()];
        value[group.value_bytes() - 1] = last;
        value
    };
    let above = vec![0xFF; group.value_bytes()];
    let own = PrivateKey::new(group, seed(90).exponent())
        .public()
        .compute();
    let own = own.as_bytes().to_vec();
    for value in [ones(0), ones(1), above, vec![2], own] {
        let mut controller = controller(credentials(Hash::Sha256, Some(group)));
        tell(&mut controller, Negotiate::new(1, &[1], &[1]).as_bytes());
        ask(&mut controller);
        let reply = Reply::new(1, 32, value.len() as u16, 1);
        tell(
            &mut controller,
            &[reply.as_bytes(), &[5; 64], &value].concat(),
        );
        assert_eq!(
            failure(&ask(&mut controller)),
            FailureReason::IncorrectPayload
        );
        let mut host = host(host_credentials());
        host.poll();
        let fixed = Challenge::new(TRANSACTION, (1, 32), 1, value.len() as u16);
        host.handle_message(&[fixed.as_bytes(), &[5; 32], &value].concat());
        assert!(matches!(host.poll(), AuthStep::Send(_)) || value[0] > 1);
    }
}

#[test]
fn a_challenge_that_comes_back_is_a_reflection() {
    let mut controller = small();
    tell(&mut controller, Negotiate::new(1, &[1], &[0]).as_bytes());
    let challenge = ask(&mut controller);
    let mut reply = Reply::new(1, 32, 0, 1);
    reply.challenge_valid = 1;
    let message = [reply.as_bytes(), &[5; 32], &challenge[16..48]].concat();
    tell(&mut controller, &message);
    assert_eq!(failure(&ask(&mut controller)), FailureReason::Failed);
}

#[test]
fn a_replayed_reply_is_rejected() {
    let mut controller = small();
    let (_, messages) = run(&mut host(host_credentials()), &mut controller);
    let mut victim = small();
    let other = seed(91);
    assert!(victim.handle_message(&messages[0], &other).is_none());
    ask(&mut victim);
    tell(&mut victim, &messages[2]);
    assert_eq!(failure(&ask(&mut victim)), FailureReason::Failed);
    assert!(!victim.is_proven());
}

#[test]
fn a_wrong_transaction_is_rejected() {
    let mut controller = small();
    tell(&mut controller, Negotiate::new(1, &[1], &[0]).as_bytes());
    ask(&mut controller);
    tell(
        &mut controller,
        &[Reply::new(2, 32, 0, 1).as_bytes(), &[5; 64]].concat(),
    );
    assert_eq!(
        failure(&ask(&mut controller)),
        FailureReason::IncorrectPayload
    );
}

#[test]
fn messages_that_are_too_short_are_rejected_in_every_state() {
    let (_, messages) = run(&mut host(host_credentials()), &mut small());
    let [negotiate, _, reply, _, success2] = &messages[..] else {
        panic!("five messages");
    };
    for at in [negotiate, reply, success2] {
        for len in 0..at.len() {
            let mut controller = small();
            for message in [negotiate, reply, success2] {
                if std::ptr::eq(message, at) {
                    break;
                }
                tell(&mut controller, message);
                ask(&mut controller);
            }
            tell(&mut controller, &at[..len]);
            assert_eq!(
                failure(&ask(&mut controller)),
                FailureReason::IncorrectPayload
            );
            assert!(!controller.is_proven());
        }
    }
}

/// A controller in each state, in the order of the diagram.
const STATES: [&str; 7] = [
    "Idle",
    "Challenge",
    "Reply",
    "Verdict",
    "Success2",
    "Failure",
    "Failed",
];

/// What becomes of each state with Negotiate, Challenge, Reply, Success1, Success2, Failure1 and
/// Failure2, as the index of a state.
const TRANSITIONS: [[usize; 7]; 7] = [
    [1, 5, 5, 5, 5, 5, 6],
    [5, 5, 5, 5, 5, 5, 6],
    [5, 5, 3, 5, 5, 5, 6],
    [5, 5, 5, 5, 5, 5, 6],
    [5, 5, 5, 5, 0, 5, 6],
    [5, 5, 5, 5, 5, 5, 6],
    [6, 6, 6, 6, 6, 6, 6],
];

/// A controller in the state of this index.
fn in_state(state: usize, messages: &[Vec<u8>]) -> ControllerAuth {
    let mut controller = small();
    if state > 4 {
        tell(&mut controller, &messages[4]);
        if state == 6 {
            ask(&mut controller);
        }
        return controller;
    }
    for (step, message) in messages.iter().enumerate().take(state) {
        if step % 2 == 0 {
            tell(&mut controller, message);
        } else {
            ask(&mut controller);
        }
    }
    controller
}

#[test]
fn the_table_of_transitions() {
    let (_, mut messages) = run(&mut host(host_credentials()), &mut small());
    for kind in [MessageKind::Failure1, MessageKind::Failure2] {
        let failure = Failure::new(kind, TRANSACTION, FailureReason::Failed);
        messages.push(failure.as_bytes().to_vec());
    }
    let is_in = |controller: &ControllerAuth, state: usize| {
        format!("{controller:?}").contains(&format!("state: {},", STATES[state]))
    };
    for (state, row) in TRANSITIONS.iter().enumerate() {
        for (message, &next) in messages.iter().zip(row) {
            let mut controller = in_state(state, &messages);
            assert!(is_in(&controller, state), "{controller:?}");
            tell(&mut controller, message);
            assert!(
                is_in(&controller, next),
                "{state} {message:?}: {controller:?}"
            );
        }
    }
}

#[test]
fn asking_out_of_turn_ends_with_failure1() {
    let mut controller = small();
    assert_eq!(
        failure(&ask(&mut controller)),
        FailureReason::IncorrectMessage
    );
    let mut controller = small();
    tell(&mut controller, Negotiate::new(1, &[1], &[0]).as_bytes());
    ask(&mut controller);
    assert_eq!(
        failure(&ask(&mut controller)),
        FailureReason::IncorrectMessage
    );
    assert!(controller.is_failed());
}

#[test]
fn a_message_without_room_stays() {
    let mut controller = small();
    tell(&mut controller, Negotiate::new(1, &[1], &[0]).as_bytes());
    assert!(controller.poll_message(47).is_err());
    assert_eq!(
        controller
            .poll_message(48)
            .map(|message| message.len())
            .ok(),
        Some(48)
    );
}

#[test]
fn a_host_accepts_only_the_message_that_is_due() {
    let (_, messages) = run(&mut host(host_credentials()), &mut small());
    let header = |kind| MessageHeader::new(kind, TRANSACTION).as_bytes().to_vec();
    let wrong = [
        (vec![], FailureReason::IncorrectPayload),
        (vec![9; 64], FailureReason::IncorrectMessage),
        (
            header(MessageKind::Challenge),
            FailureReason::IncorrectPayload,
        ),
        (
            header(MessageKind::Negotiate),
            FailureReason::IncorrectMessage,
        ),
        (messages[3].clone(), FailureReason::IncorrectMessage),
        (
            Success2::new(9).as_bytes().to_vec(),
            FailureReason::IncorrectPayload,
        ),
    ];
    for (message, reason) in wrong {
        let mut host = host(host_credentials());
        host.poll();
        host.handle_message(&message);
        assert!(matches!(host.poll(), AuthStep::Send(_)));
        assert_eq!(
            host.poll(),
            AuthStep::Failed(HostAuthError::Invalid(reason))
        );
    }
}

#[test]
fn secrets_of_other_programs_are_read_and_printed() {
    for (text, len, hash) in [
        (HOST_SECRET, 32, Some(Hash::Sha256)),
        (CONTROLLER_SECRET, 48, Some(Hash::Sha384)),
        (
            "DHHC-1:00:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh+KfiaR:",
            32,
            None,
        ),
        (
            "DHHC-1:03:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAADZjjXU=:",
            64,
            Some(Hash::Sha512),
        ),
    ] {
        let read = secret(text);
        assert_eq!((read.hash(), read.reveal().as_str()), (hash, text));
        assert!(text.len() <= Secret::TEXT_MAX_BYTES, "{len}");
        assert_eq!(format!("{read:?}"), "Secret");
        assert_eq!(read, secret(text.trim_end_matches(':')));
    }
}

#[test]
fn texts_that_are_no_secrets_are_rejected_without_being_shown() {
    let short = "DHHC-1:01:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBk=:";
    for (text, error) in [
        (String::new(), SecretError::Form),
        ("DHHC-1:01".to_owned(), SecretError::Form),
        (HOST_SECRET.replace(":01:", ":04:"), SecretError::Hash),
        (HOST_SECRET.replace("AAEC", "AA*C"), SecretError::Base64),
        (HOST_SECRET.replace("AAEC", "AAED"), SecretError::Checksum),
        (short.to_owned(), SecretError::Length { len_bytes: 22 }),
        (
            format!("DHHC-1:00:{}:", "A".repeat(4000)),
            SecretError::Base64,
        ),
    ] {
        let found = text.parse::<Secret>().expect_err(&text);
        assert_eq!(found, error, "{text}");
        assert!(!found.to_string().contains("AAEC"));
    }
}

proptest! {
    #[test]
    fn no_input_proves_anything_or_panics(
        messages in proptest::collection::vec(
            (0..7_usize, proptest::collection::vec(any::<u8>(), 0..120)), 1..8),
    ) {
        let kinds = [
            MessageKind::Negotiate, MessageKind::Challenge, MessageKind::Reply,
            MessageKind::Success1, MessageKind::Success2, MessageKind::Failure1,
            MessageKind::Failure2,
        ];
        let mut controller = small();
        let mut host = host(host_credentials());
        for (kind, body) in messages {
            let header = MessageHeader::new(kinds[kind], TRANSACTION);
            let message = [header.as_bytes(), &body].concat();
            tell(&mut controller, &message);
            ask(&mut controller);
            host.poll();
            host.handle_message(&message);
            prop_assert!(!controller.is_proven());
            prop_assert_ne!(host.poll(), AuthStep::Done);
        }
    }
}
