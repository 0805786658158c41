//! The host's side of DH-HMAC-CHAP.
//!
//! ```text
//!  Negotiate ─► Challenge ─► Reply ─► Success1 ─┬─► Done
//!                                               └─► Success2 ─► Done      if the controller responds
//!  a wrong message or response ─► Failure2 ─► the error
//! ```

use zerocopy::{FromBytes, IntoBytes};

use super::group::{Power, PrivateKey};
use super::hash::Digest;
use super::response::ResponseInputs;
use super::{Concatenation, DhGroup, GeneratedKey, GroupPolicy, Hash, Names, Secret, Seed};
#[cfg(doc)]
use crate::wire::auth::MESSAGE_MAX_BYTES;
use crate::wire::auth::{
    Challenge, Failure, FailureReason, MessageHeader, MessageKind, Negotiate, Reply, Success1,
    Success2,
};

/// What a host proves and requires.
#[derive(Clone, Debug)]
pub struct HostCredentials {
    /// The host's secret.
    pub secret: Secret,
    /// What the controller has to prove; without it the controller is not asked to.
    pub controller_secret: Option<Secret>,
    /// The only hash function to offer; without one all are offered.
    pub hash: Option<Hash>,
    /// The groups to offer.
    pub group: GroupPolicy,
}

/// The next thing to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AuthStep {
    /// Send this message.
    Send(Vec<u8>),
    /// Receive a message of at most [`MESSAGE_MAX_BYTES`], and hand it to
    /// [`HostAuth::handle_message`].
    Receive,
    /// Both sides have proven what they had to.
    Done,
    /// It failed.
    Failed(HostAuthError),
}

/// Why a host was not authenticated, or did not accept the controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HostAuthError {
    /// The controller rejected the host.
    #[error(
        "the controller rejected the authentication: {0}; check that its secret for this host NQN is that of dhchap-secret-file="
    )]
    Rejected(FailureReason),
    /// The controller did not prove its secret.
    #[error(
        "the controller did not prove the secret of dhchap-ctrl-secret-file=; check that it has the same one for this host"
    )]
    ControllerNotProven,
    /// The controller sent something invalid.
    #[error("the controller sent an invalid authentication message: {0}")]
    Invalid(FailureReason),
}

/// The host's side, of one queue.
#[derive(Debug)]
pub struct HostAuth {
    credentials: HostCredentials,
    names: Names,
    seed: Seed,
    transaction: u16,
    concatenation: Concatenation,
    state: State,
}

enum State {
    Negotiate,
    Challenge,
    Reply(Vec<u8>, Expected),
    Success1(Expected),
    Success2(Option<GeneratedKey>),
    Failure2(HostAuthError, FailureReason),
    Failed(HostAuthError),
    Done(Option<GeneratedKey>),
}

/// What the controller has to send in Success1.
struct Expected {
    hash: Hash,
    /// Its response (R2); none if it is not asked to prove anything.
    response: Option<Digest>,
    /// The key for TLS, if the host has requested one.
    generated: Option<GeneratedKey>,
}

impl HostAuth {
    /// Transaction `transaction`, which is not that of another one of the same association.
    pub fn new(credentials: HostCredentials, names: Names, transaction: u16, seed: Seed) -> Self {
        Self {
            credentials,
            names,
            seed,
            transaction,
            concatenation: Concatenation::Refused,
            state: State::Negotiate,
        }
    }

    /// Says whether to request a key for TLS.
    #[must_use]
    pub fn concatenating(mut self, concatenation: Concatenation) -> Self {
        self.concatenation = concatenation;
        self
    }

    /// The key for TLS, once the authentication is [`AuthStep::Done`] that has generated one.
    pub fn generated_key(&self) -> Option<&GeneratedKey> {
        match &self.state {
            State::Done(key) => key.as_ref(),
            _ => None,
        }
    }

    /// Whether the controller has to prove a secret, too.
    pub fn is_mutual(&self) -> bool {
        self.credentials.controller_secret.is_some()
    }

    /// Whether it has failed, and the controller was notified.
    pub fn is_failed(&self) -> bool {
        matches!(self.state, State::Failed(_))
    }

    /// The next step. A message counts as sent.
    pub fn poll(&mut self) -> AuthStep {
        let transaction = self.transaction;
        match std::mem::replace(&mut self.state, State::Done(None)) {
            State::Negotiate => {
                self.state = State::Challenge;
                AuthStep::Send(self.negotiate())
            }
            State::Reply(message, expected) => {
                self.state = State::Success1(expected);
                AuthStep::Send(message)
            }
            State::Success2(key) => {
                self.state = State::Done(key);
                AuthStep::Send(Success2::new(transaction).as_bytes().to_vec())
            }
            State::Failure2(error, reason) => {
                self.state = State::Failed(error);
                let message = Failure::new(MessageKind::Failure2, transaction, reason);
                AuthStep::Send(message.as_bytes().to_vec())
            }
            State::Failed(error) => {
                self.state = State::Failed(error);
                AuthStep::Failed(error)
            }
            State::Done(key) => {
                self.state = State::Done(key);
                AuthStep::Done
            }
            waiting @ (State::Challenge | State::Success1(_)) => {
                self.state = waiting;
                AuthStep::Receive
            }
        }
    }

    /// Handles a message of the controller, which may be followed by other bytes.
    pub fn handle_message(&mut self, message: &[u8]) {
        let state = std::mem::replace(&mut self.state, State::Done(None));
        let next = self
            .check_header(message)
            .and_then(|kind| match (state, kind) {
                (State::Challenge, MessageKind::Challenge) => self.on_challenge(message),
                (State::Success1(expected), MessageKind::Success1) => {
                    on_success1(expected, message)
                }
                _ => Err(invalid(FailureReason::IncorrectMessage)),
            });
        self.state = next.unwrap_or_else(|error| match error {
            // There is nobody to tell.
            HostAuthError::Rejected(_) => State::Failed(error),
            HostAuthError::ControllerNotProven => State::Failure2(error, FailureReason::Failed),
            HostAuthError::Invalid(reason) => State::Failure2(error, reason),
        });
    }

    /// What to offer.
    fn offers(&self) -> (Vec<Hash>, Vec<Option<DhGroup>>) {
        let hashes = match self.credentials.hash {
            None => Hash::ALL.to_vec(),
            Some(hash) => vec![hash],
        };
        let groups = match self.credentials.group {
            GroupPolicy::Any => DhGroup::ALL.map(Some).into_iter().chain([None]).collect(),
            GroupPolicy::NoGroup => vec![None],
            GroupPolicy::Only(group) => vec![Some(group)],
        };
        match self.concatenation {
            Concatenation::Refused => (hashes, groups),
            // TLS has no cipher suite with SHA-512, and keys are generated with a group only.
            Concatenation::Offered | Concatenation::Replacing => (
                hashes
                    .into_iter()
                    .filter(|&hash| hash != Hash::Sha512)
                    .collect(),
                groups.into_iter().flatten().map(Some).collect(),
            ),
        }
    }

    /// SC_C.
    fn secure_channel(&self) -> u8 {
        match self.concatenation {
            Concatenation::Refused => Negotiate::NO_SECURE_CHANNEL,
            Concatenation::Offered => Negotiate::NEW_TLS_KEY,
            Concatenation::Replacing => Negotiate::REPLACE_TLS_KEY,
        }
    }

    /// S2; 0 says that the challenge is only for the key.
    fn sequence(&self) -> u32 {
        match (self.concatenation, self.is_mutual()) {
            (Concatenation::Offered | Concatenation::Replacing, false) => 0,
            _ => self.seed.sequence(),
        }
    }

    fn negotiate(&self) -> Vec<u8> {
        let (hashes, groups) = self.offers();
        let hashes: Vec<u8> = hashes.into_iter().map(Hash::id).collect();
        let groups: Vec<u8> = groups
            .into_iter()
            .map(|group| group.map_or(DhGroup::NONE_ID, DhGroup::id))
            .collect();
        let mut message = Negotiate::new(self.transaction, &hashes, &groups);
        message.secure_channel = self.secure_channel();
        message.as_bytes().to_vec()
    }

    fn check_header(&self, message: &[u8]) -> Result<MessageKind, HostAuthError> {
        let (header, _) = MessageHeader::ref_from_prefix(message)
            .map_err(|_| invalid(FailureReason::IncorrectPayload))?;
        match header.kind() {
            Some(MessageKind::Failure1) => {
                let failure = Failure::ref_from_prefix(message);
                let reason = failure.map_or(FailureReason::Failed, |(failure, _)| {
                    FailureReason::from_explanation(failure.explanation)
                });
                Err(HostAuthError::Rejected(reason))
            }
            Some(_) if header.transaction.get() != self.transaction => {
                Err(invalid(FailureReason::IncorrectPayload))
            }
            Some(kind) => Ok(kind),
            None => Err(invalid(FailureReason::IncorrectMessage)),
        }
    }

    fn on_challenge(&self, message: &[u8]) -> Result<State, HostAuthError> {
        let (fixed, rest) = Challenge::ref_from_prefix(message)
            .map_err(|_| invalid(FailureReason::IncorrectPayload))?;
        let (hashes, groups) = self.offers();
        let hash = Hash::from_id(fixed.hash)
            .filter(|hash| hashes.contains(hash))
            .ok_or(invalid(FailureReason::HashNotUsable))?;
        let group = DhGroup::from_id(fixed.group);
        if group.is_none() && fixed.group != DhGroup::NONE_ID || !groups.contains(&group) {
            return Err(invalid(FailureReason::GroupNotUsable));
        }
        let value_bytes = group.map_or(0, DhGroup::value_bytes);
        if usize::from(fixed.hash_bytes) != hash.len_bytes()
            || usize::from(fixed.value_bytes.get()) != value_bytes
            || rest.len() < hash.len_bytes() + value_bytes
        {
            return Err(invalid(FailureReason::IncorrectPayload));
        }
        let (challenge, rest) = rest.split_at(hash.len_bytes());
        let keys = match group {
            Some(group) => Some(self.exchange_keys(group, &rest[..value_bytes])?),
            None => None,
        };
        let proof = ResponseInputs {
            hash,
            shared: keys.as_ref().map(|(_, shared)| shared),
            challenge,
            sequence: fixed.sequence.get(),
            secure_channel: self.secure_channel(),
            transaction: self.transaction,
            host_nqn: &self.names.host_nqn,
            subsystem_nqn: &self.names.subsystem_nqn,
        };
        let response = proof.of_host(&self.credentials.secret);
        let expected = self.credentials.controller_secret.as_ref().map(|secret| {
            let proof = ResponseInputs {
                challenge: self.seed.challenge(hash),
                sequence: self.seed.sequence(),
                ..proof
            };
            proof.of_controller(secret)
        });
        let generated = match self.concatenation {
            Concatenation::Refused => None,
            Concatenation::Offered | Concatenation::Replacing => {
                proof.generated_key(self.seed.challenge(hash))
            }
        };
        let public = keys.as_ref().map(|(public, _)| public);
        Ok(State::Reply(
            self.reply(hash, &response, public),
            Expected {
                hash,
                response: expected,
                generated,
            },
        ))
    }

    /// The value to send, and the shared secret. The controller's value must be one of the group,
    /// and not the host's own.
    fn exchange_keys(&self, group: DhGroup, value: &[u8]) -> Result<(Power, Power), HostAuthError> {
        let key = PrivateKey::new(group, self.seed.exponent());
        let public = key.public().compute();
        match group.check_value(value) {
            Some(value) if public.as_bytes() != value => {
                let shared = key.shared(value).compute();
                Ok((public, shared))
            }
            _ => Err(invalid(FailureReason::IncorrectPayload)),
        }
    }

    fn reply(&self, hash: Hash, response: &Digest, public: Option<&Power>) -> Vec<u8> {
        let value = public.map_or(&[][..], Power::as_bytes);
        let mut fixed = Reply::new(
            self.transaction,
            hash.len_bytes() as u8,
            value.len() as u16,
            self.sequence(),
        );
        let mut challenge = vec![0; hash.len_bytes()];
        if self.is_mutual() || self.concatenation != Concatenation::Refused {
            fixed.challenge_valid = 1;
            challenge.copy_from_slice(self.seed.challenge(hash));
        }
        [fixed.as_bytes(), response.as_bytes(), &challenge, value].concat()
    }
}

fn on_success1(expected: Expected, message: &[u8]) -> Result<State, HostAuthError> {
    let (fixed, rest) =
        Success1::ref_from_prefix(message).map_err(|_| invalid(FailureReason::IncorrectPayload))?;
    let hash_bytes = expected.hash.len_bytes();
    if usize::from(fixed.hash_bytes) != hash_bytes || rest.len() < hash_bytes {
        return Err(invalid(FailureReason::IncorrectPayload));
    }
    let Some(response) = &expected.response else {
        return Ok(State::Done(expected.generated));
    };
    let is_right = response.matches(&rest[..hash_bytes]);
    if fixed.response_valid == 1 && bool::from(is_right) {
        Ok(State::Success2(expected.generated))
    } else {
        Err(HostAuthError::ControllerNotProven)
    }
}

const fn invalid(reason: FailureReason) -> HostAuthError {
    HostAuthError::Invalid(reason)
}

impl std::fmt::Debug for State {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Negotiate => "Negotiate",
            Self::Challenge => "Challenge",
            Self::Reply(..) => "Reply",
            Self::Success1(_) => "Success1",
            Self::Success2(_) => "Success2",
            Self::Failure2(..) => "Failure2",
            Self::Failed(_) => "Failed",
            Self::Done(_) => "Done",
        })
    }
}
