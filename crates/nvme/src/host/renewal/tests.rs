use std::sync::Arc;

use super::*;
use crate::auth::{
    Concatenation, ControllerAuth, Credentials, DhGroup, GroupPolicy, HostAuth, HostCredentials,
    Names, Secret, Seed,
};
use crate::host::Transfer;
use crate::wire::StatusCode;
use crate::wire::auth::MESSAGE_MAX_BYTES;

const INTERVAL: Duration = Duration::from_secs(600);
const TIMEOUT: Duration = Duration::from_secs(10);

fn names() -> Names {
    Names {
        host_nqn: "nqn.2014-08.org.example:host".to_owned(),
        subsystem_nqn: "nqn.2014-08.org.example:test".to_owned(),
    }
}

fn secret(byte: u8) -> Secret {
    Secret::new(&[byte; 32], None).expect("32 bytes")
}

fn authenticator(byte: u8) -> Authenticator {
    let credentials = HostCredentials {
        secret: secret(byte),
        controller_secret: None,
        hash: None,
        group: GroupPolicy::Any,
    };
    let seed = Seed::new([3; Seed::BYTES]);
    let auth = HostAuth::new(credentials, names(), 7, seed);
    Authenticator::new(auth.concatenating(Concatenation::Replacing))
}

fn controller() -> ControllerAuth {
    let credentials = Credentials {
        secret: secret(1),
        other_secret: None,
        controller_secret: None,
        hash: None,
        group: GroupPolicy::Only(DhGroup::Ffdhe2048),
    };
    ControllerAuth::new(Arc::new(credentials), names())
        .concatenating(Concatenation::Replacing)
        .proven()
}

/// Carries out what is submitted, until there is nothing more. Returns the key, if one was
/// generated.
fn run(
    renewal: &mut Renewal,
    controller: &mut ControllerAuth,
    now: Instant,
) -> Result<Option<GeneratedKey>, RenewalError> {
    let mut buffers = Buffers::new(Renewal::KEYS, Renewal::BUFFER_BYTES);
    loop {
        let command = match renewal.poll(now, &mut buffers)? {
            RenewalStep::Submit(command) => command,
            RenewalStep::Done(key) => return Ok(key),
            RenewalStep::Idle => panic!("it is in progress"),
        };
        assert_eq!(renewal.poll(now, &mut buffers), Ok(RenewalStep::Idle));
        match command.transfer {
            Transfer::ToController(range) => {
                let seed = Seed::new([90; Seed::BYTES]);
                let message = buffers.range_mut(range).to_vec();
                if let Some(power) = controller.handle_message(&message, &seed) {
                    controller.handle_power(power.compute());
                }
            }
            Transfer::ToHost(range) => {
                let message = controller.poll_message(MESSAGE_MAX_BYTES).expect("room");
                buffers.range_mut(range)[..message.len()].copy_from_slice(&message);
            }
            Transfer::None => panic!("every message has bytes"),
        }
        renewal.handle_outcome(&ended(Status::SUCCESS), &buffers)?;
    }
}

fn ended(status: Status) -> Outcome {
    Outcome {
        key: Renewal::KEY,
        status,
        result: 0,
    }
}

#[test]
fn a_queue_authenticates_again_each_time_the_interval_has_passed() {
    let begin = Instant::now();
    let mut renewal = Renewal::new(begin, Some(INTERVAL));
    let mut controller = controller();
    let mut keys = Vec::new();
    for round in 1..=2 {
        let due = begin + INTERVAL * round;
        assert_eq!(renewal.poll_timeout(), Some(due));
        let before = begin + (INTERVAL * round).saturating_sub(Duration::from_nanos(1));
        assert!(!renewal.is_due(before) && renewal.is_due(due));
        renewal.begin(due, authenticator(1), TIMEOUT);
        assert!(!renewal.is_due(due));
        keys.push(run(&mut renewal, &mut controller, due).expect("proven"));
        assert_eq!(keys.last(), Some(&controller.take_generated_key()));
    }
    assert!(keys.iter().all(Option::is_some));
}

#[test]
fn without_an_interval_it_never_does() {
    let now = Instant::now();
    let mut renewal = Renewal::new(now, None);
    assert!(!renewal.is_due(now + INTERVAL) && renewal.poll_timeout().is_none());
    let mut buffers = Buffers::new(Renewal::KEYS, Renewal::BUFFER_BYTES);
    assert_eq!(renewal.poll(now, &mut buffers), Ok(RenewalStep::Idle));
}

#[test]
fn a_failure_a_rejected_command_and_silence_end_the_association() {
    let now = Instant::now();
    let begun = |byte| {
        let mut renewal = Renewal::new(now, Some(INTERVAL));
        renewal.begin(now, authenticator(byte), TIMEOUT);
        renewal
    };
    let wrong = run(&mut begun(9), &mut controller(), now);
    assert!(
        matches!(wrong, Err(RenewalError::Authentication(_))),
        "{wrong:?}"
    );

    let mut buffers = Buffers::new(Renewal::KEYS, Renewal::BUFFER_BYTES);
    let mut renewal = begun(1);
    let step = renewal.poll(now, &mut buffers);
    assert!(matches!(step, Ok(RenewalStep::Submit(_))), "{step:?}");
    let status = Status::from(StatusCode::InvalidOpcode);
    let refused = renewal.handle_outcome(&ended(status), &buffers);
    assert_eq!(refused, Err(RenewalError::Refused { status }));

    let mut renewal = begun(1);
    let step = renewal.poll(now, &mut buffers);
    assert!(matches!(step, Ok(RenewalStep::Submit(_))), "{step:?}");
    assert_eq!(renewal.poll_timeout(), Some(now + TIMEOUT));
    assert_eq!(
        renewal.poll(now + TIMEOUT, &mut buffers),
        Err(RenewalError::Silent { timeout: TIMEOUT })
    );
}
