//! The controller's side of DH-HMAC-CHAP.
//!
//! ```text
//!         Negotiate            Challenge is sent       Reply                 Success1 is sent
//!  Idle ────────────► Challenge ──────────────► Reply ───────► Verdict ────────────────────► Idle
//!                                                                 │ with R2        Success2    ▲
//!                                                                 └──────────► Success2 ───────┘
//!  any state: a wrong message ─► Failure ── Failure1 is sent ─► Failed;  Failure2 ─► Failed
//! ```
//!
//! `Challenge` and `Verdict` wait for a power before their message can be sent, if there is a
//! group. A queue that has been authenticated stays so during a re-authentication. When one fails,
//! its connection is closed.

use std::sync::Arc;

use subtle::Choice;
use zerocopy::little_endian::U32;
use zerocopy::{FromBytes, IntoBytes};

use super::group::{Exponentiation, Power, PrivateKey};
use super::hash::Digest;
use super::response::ResponseInputs;
use super::{Concatenation, DhGroup, GeneratedKey, GroupPolicy, Hash, Names, Secret, Seed};
use crate::wire::auth::{
    Challenge, Failure, FailureReason, MessageHeader, MessageKind, Negotiate, ProtocolDescriptor,
    Reply, Success1, Success2,
};

/// What one host has to prove, and what controllers prove to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Credentials {
    /// The host's secret.
    pub secret: Secret,
    /// A secret that the host may use in its place, while it is being changed.
    pub other_secret: Option<Secret>,
    /// What controllers prove if the host requests it.
    pub controller_secret: Option<Secret>,
    /// The only hash function to accept. Without one the first of the host's list is used.
    pub hash: Option<Hash>,
    /// The groups to accept.
    pub group: GroupPolicy,
}

/// How an authentication ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AuthOutcome {
    /// The host has proven its secret.
    Authenticated {
        /// The hash function.
        hash: Hash,
        /// The group, if one was used.
        group: Option<DhGroup>,
        /// Whether the controller has proven its secret, too.
        is_mutual: bool,
    },
    /// The controller rejected the host.
    Rejected(FailureReason),
    /// The host rejected the controller, or gave up.
    RejectedByHost(FailureReason),
    /// It took too long.
    TimedOut,
}

/// The command has less room than the message needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NoRoom;

/// The controller's side, of one queue.
#[derive(Debug)]
pub struct ControllerAuth {
    /// `None` if the host has no secret any more.
    credentials: Option<Arc<Credentials>>,
    names: Names,
    state: State,
    is_proven: bool,
    outcome: Option<AuthOutcome>,
    concatenation: Concatenation,
    generated: Option<GeneratedKey>,
}

enum State {
    Idle,
    /// The challenge is to be sent, once the value is computed.
    Challenge(Transaction),
    /// The challenge was sent.
    Reply(Transaction),
    /// The verdict is to be sent, once the shared secret is computed.
    Verdict(Transaction, Answer),
    /// The controller's response was sent.
    Success2(Transaction),
    /// The host has to be notified of the failure.
    Failure {
        transaction: u16,
        reason: FailureReason,
    },
    Failed,
}

/// What was agreed on and drawn.
struct Transaction {
    id: u16,
    hash: Hash,
    key_exchange: Option<KeyExchange>,
    /// C1.
    challenge: Vec<u8>,
    /// S1.
    sequence: u32,
    is_mutual: bool,
    /// SC_C.
    secure_channel: u8,
    /// C2, once the host has replied.
    host_challenge: Vec<u8>,
}

struct KeyExchange {
    group: DhGroup,
    key: PrivateKey,
    /// The value of the controller.
    public: Option<Power>,
    /// What both sides computed.
    shared: Option<Power>,
}

/// What the host replied.
struct Answer {
    response: Vec<u8>,
    /// S2.
    sequence: u32,
}

impl ControllerAuth {
    /// Of a queue that has just connected.
    pub fn new(credentials: Arc<Credentials>, names: Names) -> Self {
        Self {
            credentials: Some(credentials),
            names,
            state: State::Idle,
            is_proven: false,
            outcome: None,
            concatenation: Concatenation::Refused,
            generated: None,
        }
    }

    /// Says whether hosts may have a key for TLS generated.
    #[must_use]
    pub fn concatenating(mut self, concatenation: Concatenation) -> Self {
        self.concatenation = concatenation;
        self
    }

    /// Of a queue whose host has proven who it is by TLS.
    #[must_use]
    pub(crate) fn proven(mut self) -> Self {
        self.is_proven = true;
        self
    }

    /// The key for TLS that the last authentication has generated, once.
    pub fn take_generated_key(&mut self) -> Option<GeneratedKey> {
        self.generated.take()
    }

    /// Replaces the credentials: before a transaction, and before the host's response is checked.
    /// Without any the host is rejected.
    pub(crate) fn renew_credentials(&mut self, credentials: Option<Arc<Credentials>>) {
        self.credentials = credentials;
    }

    /// Whether the next message says how the host's response was found.
    pub(crate) fn is_deciding(&self) -> bool {
        matches!(self.state, State::Verdict(..))
    }

    /// Whether the host has proven its secret.
    pub fn is_proven(&self) -> bool {
        self.is_proven
    }

    /// Whether a transaction is in progress.
    pub fn is_in_progress(&self) -> bool {
        !matches!(self.state, State::Idle | State::Failed)
    }

    /// Whether the connection is to be closed.
    pub fn is_failed(&self) -> bool {
        matches!(self.state, State::Failed)
    }

    /// How the last transaction ended, once.
    pub fn take_outcome(&mut self) -> Option<AuthOutcome> {
        self.outcome.take()
    }

    /// Whether the next message cannot be sent before a power is computed.
    pub fn is_computing(&self) -> bool {
        match &self.state {
            State::Challenge(transaction) => transaction.waits_for(|keys| &keys.public),
            State::Verdict(transaction, _) => transaction.waits_for(|keys| &keys.shared),
            _ => false,
        }
    }

    /// Handles a message of the host. `seed` is used if it starts a transaction. Returns a power
    /// whose result [`Self::handle_power`] needs.
    pub fn handle_message(&mut self, message: &[u8], seed: &Seed) -> Option<Exponentiation> {
        if self.is_failed() {
            return None;
        }
        let Ok((header, _)) = MessageHeader::ref_from_prefix(message) else {
            self.fail(0, FailureReason::IncorrectPayload);
            return None;
        };
        let id = header.transaction.get();
        let kind = header.kind();
        match (std::mem::replace(&mut self.state, State::Idle), kind) {
            (_, Some(MessageKind::Failure2)) => self.on_failure2(message),
            (State::Idle, Some(MessageKind::Negotiate)) => {
                return self.or_fail(id, |auth| auth.on_negotiate(message, seed));
            }
            (State::Reply(transaction), Some(MessageKind::Reply)) => {
                return self.or_fail(id, |auth| auth.on_reply(transaction, message));
            }
            (State::Success2(transaction), Some(MessageKind::Success2)) => {
                self.or_fail(id, |auth| {
                    auth.on_success2(&transaction, message).map(|()| None)
                });
            }
            _ => self.fail(id, FailureReason::IncorrectMessage),
        }
        None
    }

    /// Handles the result of the power that [`Self::handle_message`] returned.
    pub fn handle_power(&mut self, power: Power) {
        match &mut self.state {
            State::Challenge(Transaction {
                key_exchange: Some(keys),
                ..
            }) => keys.public = Some(power),
            State::Verdict(
                Transaction {
                    key_exchange: Some(keys),
                    ..
                },
                _,
            ) => keys.shared = Some(power),
            // The transaction has failed in the meantime.
            _ => {}
        }
    }

    /// The power will not be computed.
    pub(crate) fn handle_no_power(&mut self) {
        if let State::Challenge(transaction) | State::Verdict(transaction, _) = &self.state {
            let id = transaction.id;
            self.fail(id, FailureReason::Failed);
        }
    }

    /// The next message to the host, for a command that has room for `room_bytes`. Not to be called
    /// while it [is computing](Self::is_computing).
    pub(crate) fn poll_message(&mut self, room_bytes: usize) -> Result<Vec<u8>, NoRoom> {
        assert!(!self.is_computing(), "the message needs the power");
        if room_bytes < self.message_bytes() {
            return Err(NoRoom);
        }
        Ok(match std::mem::replace(&mut self.state, State::Idle) {
            State::Challenge(transaction) => {
                let message = transaction.challenge_message();
                self.state = State::Reply(transaction);
                message
            }
            State::Verdict(transaction, answer) => self.verdict(transaction, &answer),
            State::Failure {
                transaction,
                reason,
            } => self.failure1(transaction, reason),
            State::Reply(transaction) | State::Success2(transaction) => {
                self.failure1(transaction.id, FailureReason::IncorrectMessage)
            }
            State::Idle | State::Failed => self.failure1(0, FailureReason::IncorrectMessage),
        })
    }

    /// The length of the next message.
    fn message_bytes(&self) -> usize {
        match &self.state {
            State::Challenge(transaction) => {
                size_of::<Challenge>() + transaction.hash.len_bytes() + transaction.value_bytes()
            }
            State::Verdict(transaction, _) => size_of::<Success1>() + transaction.hash.len_bytes(),
            _ => size_of::<Failure>(),
        }
    }

    fn on_negotiate(
        &mut self,
        message: &[u8],
        seed: &Seed,
    ) -> Result<Option<Exponentiation>, FailureReason> {
        let (negotiate, others) =
            Negotiate::ref_from_prefix(message).map_err(|_| FailureReason::IncorrectPayload)?;
        let is_concatenated = match (negotiate.secure_channel, self.concatenation) {
            (Negotiate::NO_SECURE_CHANNEL, _) => false,
            (Negotiate::NEW_TLS_KEY, Concatenation::Offered)
            | (Negotiate::REPLACE_TLS_KEY, Concatenation::Replacing) => true,
            _ => return Err(FailureReason::SecureChannelMismatch),
        };
        let offer = find_offer(negotiate, others)?;
        let hashes = offer.hashes.get(..usize::from(offer.hashes_len));
        let groups = offer.groups.get(..usize::from(offer.groups_len));
        let (Some(hashes), Some(groups)) = (hashes, groups) else {
            return Err(FailureReason::IncorrectPayload);
        };
        let credentials = self.credentials.as_ref().ok_or(FailureReason::Failed)?;
        let hash = choose_hash(credentials.hash, hashes, is_concatenated)?;
        let group = choose_group(credentials.group, groups)?;
        // Without a group there is no session key to derive one from.
        if is_concatenated && group.is_none() {
            return Err(FailureReason::SecureChannelMismatch);
        }
        let key_exchange = group.map(|group| KeyExchange {
            group,
            key: PrivateKey::new(group, seed.exponent()),
            public: None,
            shared: None,
        });
        let power = key_exchange.as_ref().map(|keys| keys.key.public());
        self.state = State::Challenge(Transaction {
            id: negotiate.header.transaction.get(),
            hash,
            key_exchange,
            challenge: seed.challenge(hash).to_vec(),
            sequence: seed.sequence(),
            is_mutual: false,
            secure_channel: negotiate.secure_channel,
            host_challenge: Vec::new(),
        });
        Ok(power)
    }

    fn on_reply(
        &mut self,
        mut transaction: Transaction,
        message: &[u8],
    ) -> Result<Option<Exponentiation>, FailureReason> {
        let (reply, rest) =
            Reply::ref_from_prefix(message).map_err(|_| FailureReason::IncorrectPayload)?;
        transaction.check_id(reply.header)?;
        let hash_bytes = transaction.hash.len_bytes();
        let value_bytes = transaction.value_bytes();
        if usize::from(reply.hash_bytes) != hash_bytes
            || usize::from(reply.value_bytes.get()) != value_bytes
            || reply.challenge_valid > 1
            || rest.len() < 2 * hash_bytes + value_bytes
        {
            return Err(FailureReason::IncorrectPayload);
        }
        let (response, rest) = rest.split_at(hash_bytes);
        let (challenge, rest) = rest.split_at(hash_bytes);
        let is_concatenated = transaction.is_concatenated();
        // A key for TLS needs the host's challenge.
        if is_concatenated && reply.challenge_valid == 0 {
            return Err(FailureReason::IncorrectPayload);
        }
        // Sequence number 0 says that the challenge is for that key alone.
        let is_for_key = is_concatenated && reply.sequence.get() == 0;
        transaction.is_mutual = reply.challenge_valid == 1 && !is_for_key;
        // A challenge that comes back is the mark of a reflection.
        if reply.challenge_valid == 1 && challenge == transaction.challenge {
            return Err(FailureReason::Failed);
        }
        transaction.host_challenge = challenge.to_vec();
        let answer = Answer {
            response: response.to_vec(),
            sequence: reply.sequence.get(),
        };
        let power = match &transaction.key_exchange {
            Some(keys) => Some(keys.with_peer(&rest[..value_bytes])?),
            None => None,
        };
        self.state = State::Verdict(transaction, answer);
        Ok(power)
    }

    fn on_success2(
        &mut self,
        transaction: &Transaction,
        message: &[u8],
    ) -> Result<(), FailureReason> {
        let (success, _) =
            Success2::ref_from_prefix(message).map_err(|_| FailureReason::IncorrectPayload)?;
        transaction.check_id(success.header)?;
        self.authenticated(transaction);
        Ok(())
    }

    fn on_failure2(&mut self, message: &[u8]) {
        let reason = Failure::ref_from_prefix(message)
            .map_or(FailureReason::Failed, |(failure, _)| {
                FailureReason::from_explanation(failure.explanation)
            });
        self.outcome = Some(AuthOutcome::RejectedByHost(reason));
        self.state = State::Failed;
    }

    /// Checks the host's response, and makes the message that says how that ended.
    fn verdict(&mut self, transaction: Transaction, answer: &Answer) -> Vec<u8> {
        match self.check(&transaction, answer) {
            Ok(response) => {
                let mut message = Success1::new(
                    transaction.id,
                    transaction.hash.len_bytes() as u8,
                    response.is_some().into(),
                )
                .as_bytes()
                .to_vec();
                if let Some(response) = response {
                    message.extend_from_slice(response.as_bytes());
                    self.state = State::Success2(transaction);
                } else {
                    message.resize(message.len() + transaction.hash.len_bytes(), 0);
                    self.authenticated(&transaction);
                }
                message
            }
            Err(reason) => self.failure1(transaction.id, reason),
        }
    }

    /// The controller's response, if the host's is right.
    fn check(
        &self,
        transaction: &Transaction,
        answer: &Answer,
    ) -> Result<Option<Digest>, FailureReason> {
        let proof = self.proof(transaction);
        let credentials = self.credentials.as_ref().ok_or(FailureReason::Failed)?;
        let secrets = [Some(&credentials.secret), credentials.other_secret.as_ref()];
        let is_right = secrets
            .into_iter()
            .flatten()
            .fold(Choice::from(0), |any, secret| {
                any | proof.of_host(secret).matches(&answer.response)
            });
        if !bool::from(is_right) {
            return Err(FailureReason::Failed);
        }
        if !transaction.is_mutual {
            return Ok(None);
        }
        let Some(secret) = &credentials.controller_secret else {
            return Err(FailureReason::Failed);
        };
        let proof = ResponseInputs {
            challenge: &transaction.host_challenge,
            sequence: answer.sequence,
            ..proof
        };
        Ok(Some(proof.of_controller(secret)))
    }

    /// What the host's response proves.
    fn proof<'a>(&'a self, transaction: &'a Transaction) -> ResponseInputs<'a> {
        let shared = transaction.key_exchange.as_ref();
        ResponseInputs {
            hash: transaction.hash,
            shared: shared.and_then(|keys| keys.shared.as_ref()),
            challenge: &transaction.challenge,
            sequence: transaction.sequence,
            secure_channel: transaction.secure_channel,
            transaction: transaction.id,
            host_nqn: &self.names.host_nqn,
            subsystem_nqn: &self.names.subsystem_nqn,
        }
    }

    fn authenticated(&mut self, transaction: &Transaction) {
        self.is_proven = true;
        if transaction.is_concatenated() {
            let proof = self.proof(transaction);
            self.generated = proof.generated_key(&transaction.host_challenge);
        }
        self.outcome = Some(AuthOutcome::Authenticated {
            hash: transaction.hash,
            group: transaction.key_exchange.as_ref().map(|keys| keys.group),
            is_mutual: transaction.is_mutual,
        });
        self.state = State::Idle;
    }

    fn or_fail(
        &mut self,
        id: u16,
        step: impl FnOnce(&mut Self) -> Result<Option<Exponentiation>, FailureReason>,
    ) -> Option<Exponentiation> {
        step(self).unwrap_or_else(|reason| {
            self.fail(id, reason);
            None
        })
    }

    fn fail(&mut self, transaction: u16, reason: FailureReason) {
        self.state = State::Failure {
            transaction,
            reason,
        };
    }

    fn failure1(&mut self, transaction: u16, reason: FailureReason) -> Vec<u8> {
        self.outcome = Some(AuthOutcome::Rejected(reason));
        self.state = State::Failed;
        Failure::new(MessageKind::Failure1, transaction, reason)
            .as_bytes()
            .to_vec()
    }
}

impl Transaction {
    fn is_concatenated(&self) -> bool {
        self.secure_channel != Negotiate::NO_SECURE_CHANNEL
    }

    fn value_bytes(&self) -> usize {
        let keys = self.key_exchange.as_ref();
        keys.map_or(0, |keys| keys.group.value_bytes())
    }

    fn waits_for(&self, power: impl Fn(&KeyExchange) -> &Option<Power>) -> bool {
        let keys = self.key_exchange.as_ref();
        keys.is_some_and(|keys| power(keys).is_none())
    }

    fn check_id(&self, header: MessageHeader) -> Result<(), FailureReason> {
        if header.transaction.get() == self.id {
            Ok(())
        } else {
            Err(FailureReason::IncorrectPayload)
        }
    }

    fn challenge_message(&self) -> Vec<u8> {
        let keys = self.key_exchange.as_ref();
        let mut fixed = Challenge::new(
            self.id,
            (self.hash.id(), self.hash.len_bytes() as u8),
            keys.map_or(DhGroup::NONE_ID, |keys| keys.group.id()),
            self.value_bytes() as u16,
        );
        fixed.sequence = U32::new(self.sequence);
        let mut message = fixed.as_bytes().to_vec();
        message.extend_from_slice(&self.challenge);
        if let Some(public) = keys.and_then(|keys| keys.public.as_ref()) {
            message.extend_from_slice(public.as_bytes());
        }
        message
    }
}

impl KeyExchange {
    /// What computes the shared secret. The peer's value must be one of the group, and not the
    /// controller's own.
    fn with_peer(&self, value: &[u8]) -> Result<Exponentiation, FailureReason> {
        let own = self.public.as_ref().map(Power::as_bytes);
        match self.group.check_value(value) {
            Some(value) if own != Some(&value) => Ok(self.key.shared(value)),
            _ => Err(FailureReason::IncorrectPayload),
        }
    }
}

/// What the host offers for DH-HMAC-CHAP. The message has to carry as many protocols as it
/// announces, and nothing but zeros after them.
fn find_offer<'a>(
    negotiate: &'a Negotiate,
    others: &'a [u8],
) -> Result<&'a ProtocolDescriptor, FailureReason> {
    let others_len = usize::from(negotiate.protocols).checked_sub(1);
    let others_len = others_len.ok_or(FailureReason::IncorrectPayload)?;
    let (others, padding) = <[ProtocolDescriptor]>::ref_from_prefix_with_elems(others, others_len)
        .map_err(|_| FailureReason::IncorrectPayload)?;
    if padding.iter().any(|&byte| byte != 0) {
        return Err(FailureReason::IncorrectPayload);
    }
    std::iter::once(&negotiate.first)
        .chain(others)
        .find(|offer| offer.protocol == ProtocolDescriptor::DH_HMAC_CHAP)
        .ok_or(FailureReason::ProtocolNotUsable)
}

/// The first function of the host's list that may be used. No cipher suite of TLS has SHA-512.
fn choose_hash(
    only: Option<Hash>,
    offered: &[u8],
    is_concatenated: bool,
) -> Result<Hash, FailureReason> {
    offered
        .iter()
        .filter_map(|&id| Hash::from_id(id))
        .filter(|&hash| !is_concatenated || hash != Hash::Sha512)
        .find(|&hash| only.is_none_or(|only| only == hash))
        .ok_or(FailureReason::HashNotUsable)
}

fn choose_group(policy: GroupPolicy, offered: &[u8]) -> Result<Option<DhGroup>, FailureReason> {
    let smallest = || {
        let groups = offered.iter().filter_map(|&id| DhGroup::from_id(id));
        groups.min()
    };
    let chosen = match policy {
        GroupPolicy::Any => smallest(),
        GroupPolicy::NoGroup => None,
        GroupPolicy::Only(group) => Some(group),
    };
    let id = chosen.map_or(DhGroup::NONE_ID, DhGroup::id);
    if offered.contains(&id) {
        Ok(chosen)
    } else {
        Err(FailureReason::GroupNotUsable)
    }
}

impl std::fmt::Debug for State {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Idle => "Idle",
            Self::Challenge(_) => "Challenge",
            Self::Reply(_) => "Reply",
            Self::Verdict(..) => "Verdict",
            Self::Success2(_) => "Success2",
            Self::Failure { .. } => "Failure",
            Self::Failed => "Failed",
        })
    }
}
