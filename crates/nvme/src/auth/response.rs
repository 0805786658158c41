//! The responses to challenges.
//!
//! Read first: NVM Express Base 2.0, "DH-HMAC-CHAP_Reply Message" and "DH-HMAC-CHAP_Success1
//! Message".

use super::group::Power;
use super::hash::Digest;
use super::{GeneratedKey, Hash, Secret};
use crate::wire::auth::Negotiate;

/// What a response proves knowledge for.
#[derive(Clone, Copy)]
pub(super) struct ResponseInputs<'a> {
    /// The function that was chosen.
    pub(super) hash: Hash,
    /// The secret that both sides computed; none without a group.
    pub(super) shared: Option<&'a Power>,
    /// C1 or C2.
    pub(super) challenge: &'a [u8],
    /// S1 or S2.
    pub(super) sequence: u32,
    /// SC_C.
    pub(super) secure_channel: u8,
    /// T_ID.
    pub(super) transaction: u16,
    pub(super) host_nqn: &'a str,
    pub(super) subsystem_nqn: &'a str,
}

impl ResponseInputs<'_> {
    /// What the host responds with (R1).
    pub(super) fn of_host(&self, secret: &Secret) -> Digest {
        let key = secret.key_of(self.host_nqn);
        self.response(&key, b"HostHost", self.host_nqn, self.subsystem_nqn)
    }

    /// What the controller responds with (R2). Linux's host and target compute it with 0 where the
    /// host's response has SC_C, and R1 has already proven that SC_C was not changed.
    pub(super) fn of_controller(&self, secret: &Secret) -> Digest {
        let key = secret.key_of(self.subsystem_nqn);
        let proof = ResponseInputs {
            secure_channel: Negotiate::NO_SECURE_CHANNEL,
            ..*self
        };
        proof.response(&key, b"Controller", self.subsystem_nqn, self.host_nqn)
    }

    fn response(&self, key: &[u8], role: &[u8], own: &str, other: &str) -> Digest {
        let augmented = self.augmented_challenge();
        let challenge = augmented.as_ref().map_or(self.challenge, Digest::as_bytes);
        let parts = [
            challenge,
            &self.sequence.to_le_bytes(),
            &self.transaction.to_le_bytes(),
            &[self.secure_channel],
            role,
            own.as_bytes(),
            &[0],
            other.as_bytes(),
        ];
        self.hash.hmac(key, &parts)
    }

    /// The challenge under the session key, if a key was exchanged.
    fn augmented_challenge(&self) -> Option<Digest> {
        let session_key = self.session_key()?;
        Some(self.hash.hmac(session_key.as_bytes(), &[self.challenge]))
    }

    /// The key for TLS, where `challenge` is C1 and `host_challenge` C2. `None` without a group.
    pub(super) fn generated_key(&self, host_challenge: &[u8]) -> Option<GeneratedKey> {
        let session_key = self.session_key()?;
        let challenges = [self.challenge, host_challenge];
        Some(generate(self.hash, session_key.as_bytes(), challenges))
    }

    /// KS.
    fn session_key(&self) -> Option<Digest> {
        Some(self.hash.digest(self.shared?.as_bytes()))
    }
}

/// The key for TLS of a session key and both challenges, C1 first.
pub(super) fn generate(hash: Hash, session_key: &[u8], challenges: [&[u8]; 2]) -> GeneratedKey {
    let key = hash.hmac(session_key, &challenges);
    GeneratedKey::new(hash, key.as_bytes())
}
