//! Keys for TLS that authentications generate.

use super::*;

/// Function, group, the first bytes of the host's response, and the key for TLS, computed by Python
/// as [`GOLDEN`] was, from what Linux's `nvme_auth_generate_psk` does.
#[rustfmt::skip]
const GENERATED: [(Hash, DhGroup, &str, &str); 2] = [
    (Hash::Sha256, DhGroup::Ffdhe2048, "763d87472d289e44f8687182ac6c3800", "e3e5310f760ed2d92f0a1d105ee58fa684f5a652d3940e39515a503990d8bcad"),
    (Hash::Sha384, DhGroup::Ffdhe3072, "568e16e0141c307fcfa6a9167baf6cc2", "4924e547b56d596833067c5f5ae61b13e82c45671da2091d02d2fd690e03ea815816e837240762b2ed5ed2125007653e"),
];

/// With ffdhe2048.
fn controller_that(concatenation: Concatenation) -> ControllerAuth {
    let credentials = credentials(Hash::Sha256, Some(DhGroup::Ffdhe2048));
    controller(credentials).concatenating(concatenation)
}

#[test]
fn both_sides_replace_the_key_within_tls() {
    let mut host = host(host_credentials()).concatenating(Concatenation::Replacing);
    let mut controller = controller_that(Concatenation::Replacing).proven();
    let (end, messages) = run(&mut host, &mut controller);
    assert_eq!(end, AuthStep::Done);
    assert_eq!(messages[0][6], Negotiate::REPLACE_TLS_KEY);
    let generated = controller.take_generated_key();
    assert!(generated.is_some() && host.generated_key() == generated.as_ref());
}

fn concatenating(credentials: Credentials) -> ControllerAuth {
    controller(credentials).concatenating(Concatenation::Offered)
}

#[test]
fn both_sides_generate_the_golden_key_for_tls() {
    for (hash, group, r1, key) in GENERATED {
        for controller_secret in [None, Some(secret(CONTROLLER_SECRET))] {
            let is_mutual = controller_secret.is_some();
            let mut host = host(HostCredentials {
                controller_secret,
                ..host_credentials()
            })
            .concatenating(Concatenation::Offered);
            let mut controller = concatenating(credentials(hash, Some(group)));
            let (end, messages) = run(&mut host, &mut controller);
            assert_eq!(end, AuthStep::Done);
            assert_eq!(hex(&messages[2][16..32]), r1, "{hash}");
            let generated = controller.take_generated_key().expect("generated");
            assert_eq!(hex(generated.as_bytes()), key, "{hash}");
            assert_eq!(generated.hash(), hash);
            assert_eq!(host.generated_key(), Some(&generated));
            assert_eq!(controller.take_generated_key(), None);
            if is_mutual {
                assert_eq!(messages[3], plain_success1(hash, group));
            }
            let outcome = AuthOutcome::Authenticated {
                hash,
                group: Some(group),
                is_mutual,
            };
            assert_eq!(controller.take_outcome(), Some(outcome));
        }
    }
}

/// Success1 of the same transaction without a request for a key: the controller's response is the
/// same, since it has 0 in place of SC_C.
fn plain_success1(hash: Hash, group: DhGroup) -> Vec<u8> {
    let mut controller = controller(credentials(hash, Some(group)));
    let (_, mut messages) = run(&mut host(host_credentials()), &mut controller);
    messages.swap_remove(3)
}

#[test]
fn a_key_for_tls_needs_a_request_a_group_and_a_hash_function_of_tls() {
    let offer = |secure_channel, hash: Hash, group| {
        let mut message = Negotiate::new(1, &[hash.id()], &[group]);
        message.secure_channel = secure_channel;
        message
    };
    let cases = [
        (
            offer(1, Hash::Sha256, 1),
            FailureReason::SecureChannelMismatch,
        ),
        (
            offer(3, Hash::Sha256, 1),
            FailureReason::SecureChannelMismatch,
        ),
        (
            offer(2, Hash::Sha256, 0),
            FailureReason::SecureChannelMismatch,
        ),
        (offer(2, Hash::Sha512, 1), FailureReason::HashNotUsable),
    ];
    for (message, reason) in cases {
        let mut controller = concatenating(Credentials {
            hash: None,
            group: GroupPolicy::Any,
            ..credentials(Hash::Sha256, None)
        });
        tell(&mut controller, message.as_bytes());
        assert_eq!(failure(&ask(&mut controller)), reason);
    }
    // Not even where a setting says that no group is used.
    let mut controller = concatenating(credentials(Hash::Sha256, None));
    tell(&mut controller, offer(2, Hash::Sha256, 0).as_bytes());
    let reason = failure(&ask(&mut controller));
    assert_eq!(reason, FailureReason::SecureChannelMismatch);
    // Within TLS a key is replaced, and no new one added.
    for (secure_channel, reason) in [(2, Some(FailureReason::SecureChannelMismatch)), (3, None)] {
        let mut controller = controller_that(Concatenation::Replacing);
        tell(
            &mut controller,
            offer(secure_channel, Hash::Sha256, 1).as_bytes(),
        );
        let answer = ask(&mut controller);
        assert_eq!(reason.is_none(), answer[..2] == [1, 1]);
        if let Some(reason) = reason {
            assert_eq!(failure(&answer), reason);
        }
    }
    // Without a request nothing is generated.
    let mut controller = concatenating(credentials(Hash::Sha256, None));
    let (end, _) = run(&mut host(host_credentials()), &mut controller);
    assert_eq!(end, AuthStep::Done);
    assert_eq!(controller.take_generated_key(), None);
}

#[test]
fn a_wrong_secret_or_a_missing_challenge_generates_no_key() {
    let credentials = || credentials(Hash::Sha256, Some(DhGroup::Ffdhe2048));
    let wrong = HostCredentials {
        secret: secret(CONTROLLER_SECRET),
        ..host_credentials()
    };
    let mut controller = concatenating(credentials());
    let mut peer = host(wrong).concatenating(Concatenation::Offered);
    let (end, _) = run(&mut peer, &mut controller);
    assert!(matches!(end, AuthStep::Failed(_)), "{end:?}");
    assert!(controller.take_generated_key().is_none() && peer.generated_key().is_none());

    let mut controller = concatenating(credentials());
    let mut peer = host(host_credentials()).concatenating(Concatenation::Offered);
    let AuthStep::Send(negotiate) = peer.poll() else {
        panic!("a host begins");
    };
    tell(&mut controller, &negotiate);
    peer.handle_message(&ask(&mut controller));
    let AuthStep::Send(mut reply) = peer.poll() else {
        panic!("a challenge is answered");
    };
    Reply::mut_from_prefix(&mut reply)
        .expect("long enough")
        .0
        .challenge_valid = 0;
    tell(&mut controller, &reply);
    assert_eq!(
        failure(&ask(&mut controller)),
        FailureReason::IncorrectPayload
    );
    assert!(controller.take_generated_key().is_none());
}

#[test]
fn a_stripped_request_for_a_key_is_noticed() {
    // The request is part of what both sides sign.
    let mut controller = concatenating(credentials(Hash::Sha256, Some(DhGroup::Ffdhe2048)));
    let mut peer = host(host_credentials()).concatenating(Concatenation::Offered);
    let AuthStep::Send(mut negotiate) = peer.poll() else {
        panic!("a host begins");
    };
    let offer = Negotiate::mut_from_prefix(&mut negotiate)
        .expect("long enough")
        .0;
    offer.secure_channel = Negotiate::NO_SECURE_CHANNEL;
    tell(&mut controller, &negotiate);
    peer.handle_message(&ask(&mut controller));
    let AuthStep::Send(reply) = peer.poll() else {
        panic!("a challenge is answered");
    };
    tell(&mut controller, &reply);
    assert_eq!(failure(&ask(&mut controller)), FailureReason::Failed);
}
