//! Every message in every state, whole and damaged, at both sides: which failure it gets.
//!
//! Read first: NVM Express Base 2.0, "AUTH_Failure1 Message": a message that is not due is an
//! incorrect protocol message, and one that is due with invalid contents an incorrect payload.

use super::*;

use FailureReason::{Failed, IncorrectMessage, IncorrectPayload};

/// What becomes of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    /// It is taken, and nothing fails yet.
    Taken,
    /// It is rejected with this reason.
    Rejected(FailureReason),
    /// The peer is believed that it has failed, and gets no answer.
    Ended,
}

use Fate::{Ended, Rejected, Taken};

/// How a message is changed.
#[derive(Clone, Copy, Debug)]
enum Damage {
    Whole,
    /// It ends within its header.
    NoHeader,
    /// It ends behind its header.
    HeaderOnly,
    /// Its last byte is missing.
    Cut,
    /// Bytes follow that are not zero.
    Followed,
    /// It is of another transaction, such as one that is replayed.
    OtherTransaction,
    /// The length of the hash function is another one.
    OtherLength,
}

impl Damage {
    const ALL: [Self; 7] = [
        Self::Whole,
        Self::NoHeader,
        Self::HeaderOnly,
        Self::Cut,
        Self::Followed,
        Self::OtherTransaction,
        Self::OtherLength,
    ];

    fn apply(self, message: &[u8]) -> Vec<u8> {
        let mut message = message.to_vec();
        match self {
            Self::Whole => {}
            Self::NoHeader => message.truncate(size_of::<MessageHeader>() - 1),
            Self::HeaderOnly => message.truncate(size_of::<MessageHeader>()),
            Self::Cut => message.truncate(message.len() - 1),
            Self::Followed => message.resize(MESSAGE_MAX_BYTES, 0xA5),
            Self::OtherTransaction => message[4] ^= 1,
            // NAPD of AUTH_Negotiate is one byte later.
            Self::OtherLength if message[..2] == [0, 0] => message[7] ^= 2,
            Self::OtherLength => message[6] ^= 1,
        }
        message
    }
}

/// The messages in the order of [`KINDS`].
fn all_messages() -> Vec<Vec<u8>> {
    let (_, mut messages) = run(&mut host(host_credentials()), &mut small());
    for kind in [MessageKind::Failure1, MessageKind::Failure2] {
        messages.push(Failure::new(kind, TRANSACTION, Failed).as_bytes().to_vec());
    }
    messages
}

const KINDS: [MessageKind; 7] = [
    MessageKind::Negotiate,
    MessageKind::Challenge,
    MessageKind::Reply,
    MessageKind::Success1,
    MessageKind::Success2,
    MessageKind::Failure1,
    MessageKind::Failure2,
];

/// States of a controller that wait for the host, as numbers of messages that were exchanged, and
/// what is due.
const CONTROLLER_STATES: [(usize, Option<MessageKind>); 5] = [
    (0, Some(MessageKind::Negotiate)),
    // The challenge is to be asked for.
    (1, None),
    (2, Some(MessageKind::Reply)),
    // The verdict is to be asked for.
    (3, None),
    (4, Some(MessageKind::Success2)),
];

/// What the controller makes of it.
#[expect(clippy::match_same_arms, reason = "a table in the order of the checks")]
fn fate_at_controller(due: Option<MessageKind>, kind: MessageKind, damage: Damage) -> Fate {
    match (damage, kind) {
        // The message cannot be identified.
        (Damage::NoHeader, _) => Rejected(IncorrectPayload),
        (_, MessageKind::Failure2) => Ended,
        _ if due != Some(kind) => Rejected(IncorrectMessage),
        (Damage::Whole, _) => Taken,
        (Damage::HeaderOnly | Damage::Cut, _) => Rejected(IncorrectPayload),
        // The host chooses the transaction in AUTH_Negotiate.
        (Damage::OtherTransaction, MessageKind::Negotiate) => Taken,
        (Damage::OtherTransaction, _) => Rejected(IncorrectPayload),
        // AUTH_Negotiate ends with its list; the others say how long they are, and what follows is
        // ignored, as Linux's target does.
        (Damage::Followed, MessageKind::Negotiate) => Rejected(IncorrectPayload),
        (Damage::Followed, _) => Taken,
        // The field is reserved in Success2.
        (Damage::OtherLength, MessageKind::Success2) => Taken,
        (Damage::OtherLength, _) => Rejected(IncorrectPayload),
    }
}

#[test]
fn every_message_in_every_state_of_a_controller_fails_with_its_reason() {
    let messages = all_messages();
    for (exchanged, due) in CONTROLLER_STATES {
        for (kind, message) in KINDS.into_iter().zip(&messages) {
            for damage in Damage::ALL {
                let mut controller = in_state(exchanged, &messages);
                tell(&mut controller, &damage.apply(message));
                let case = format!("{exchanged} {kind:?} {damage:?}");
                let is_proven = controller.is_proven();
                let found = if controller.is_failed() {
                    let outcome = controller.take_outcome();
                    let is_told = matches!(outcome, Some(AuthOutcome::RejectedByHost(_)));
                    assert!(is_told, "{case}: {outcome:?}");
                    Ended
                } else if format!("{controller:?}").contains("state: Failure,") {
                    let reason = failure(&ask(&mut controller));
                    assert!(controller.is_failed(), "{case}");
                    Rejected(reason)
                } else {
                    Taken
                };
                assert_eq!(found, fate_at_controller(due, kind, damage), "{case}");
                // Only the last message of a genuine authentication proves anything.
                let is_last = due == Some(MessageKind::Success2) && found == Taken;
                assert_eq!(is_proven, is_last, "{case}");
            }
        }
    }
}

/// What the host makes of it.
fn fate_at_host(due: MessageKind, kind: MessageKind, damage: Damage) -> Fate {
    match (damage, kind) {
        (Damage::NoHeader, _) => Rejected(IncorrectPayload),
        (_, MessageKind::Failure1) => Ended,
        (Damage::OtherTransaction, _) => Rejected(IncorrectPayload),
        _ if due != kind => Rejected(IncorrectMessage),
        // Its buffer is longer than the message, and what follows is ignored.
        (Damage::Whole | Damage::Followed, _) => Taken,
        (Damage::HeaderOnly | Damage::Cut | Damage::OtherLength, _) => Rejected(IncorrectPayload),
    }
}

#[test]
fn every_message_in_every_state_of_a_host_fails_with_its_reason() {
    let messages = all_messages();
    for due in [MessageKind::Challenge, MessageKind::Success1] {
        for (kind, message) in KINDS.into_iter().zip(&messages) {
            for damage in Damage::ALL {
                let mut host = host(host_credentials());
                host.poll();
                if due == MessageKind::Success1 {
                    host.handle_message(&messages[1]);
                    host.poll();
                }
                host.handle_message(&damage.apply(message));
                let case = format!("{due:?} is due: {kind:?} {damage:?}");
                let found = match host.poll() {
                    AuthStep::Failed(HostAuthError::Rejected(_)) => Ended,
                    AuthStep::Send(message) if message.starts_with(&[0, 0xF0]) => {
                        let reason = FailureReason::from_explanation(message[7]);
                        let error = HostAuthError::Invalid(reason);
                        assert_eq!(host.poll(), AuthStep::Failed(error), "{case}");
                        Rejected(reason)
                    }
                    AuthStep::Send(_) => Taken,
                    other => panic!("{case}: {other:?}"),
                };
                assert_eq!(found, fate_at_host(due, kind, damage), "{case}");
            }
        }
    }
}
