//! DH-HMAC-CHAP, the in-band authentication of NVMe over Fabrics: secrets, responses, and the two
//! sides as state machines that know no command and no transport.
//!
//! Read first: NVM Express Base 2.0, "DH-HMAC-CHAP Protocol".
//!
//! ```text
//!  host                                                controller
//!   Negotiate (hash functions, groups) ───────────────►
//!             ◄─────────────── Challenge (choice, C1, value of the controller)
//!   Reply (R1, C2, value of the host) ────────────────►  R1 is checked
//!             ◄─────────────── Success1 (R2)
//!   R2 is checked; Success2 ──────────────────────────►  only if R2 was requested
//! ```
//!
//! Random numbers are arguments ([`Seed`]), and the powers of the key exchange, which take
//! milliseconds, are values that the program computes where it wants ([`Exponentiation`]).

mod channel;
mod controller;
mod group;
mod hash;
mod host;
mod policy;
mod response;
mod secret;

pub use channel::{Concatenation, GeneratedKey};
pub use controller::{AuthOutcome, ControllerAuth, Credentials};
pub use group::{DhGroup, Exponentiation, Power, UnknownGroup};
pub use hash::{Hash, UnknownHash};
pub use host::{AuthStep, HostAuth, HostAuthError, HostCredentials};
pub use policy::{GroupPolicy, Names};
pub use secret::{Secret, SecretError};

use zeroize::{Zeroize, ZeroizeOnDrop};

/// The random numbers of one side of one transaction.
#[derive(Zeroize, ZeroizeOnDrop)]
pub struct Seed([u8; Self::BYTES]);

impl Seed {
    /// How many random bytes a seed has.
    pub const BYTES: usize = CHALLENGE_BYTES + EXPONENT_BYTES + 4;

    /// A seed of these random bytes.
    pub fn new(random: [u8; Self::BYTES]) -> Self {
        Self(random)
    }

    /// The challenge, of the length that the hash function has.
    fn challenge(&self, hash: Hash) -> &[u8] {
        &self.0[..hash.len_bytes()]
    }

    /// The exponent of the key exchange.
    fn exponent(&self) -> &[u8] {
        &self.0[CHALLENGE_BYTES..CHALLENGE_BYTES + EXPONENT_BYTES]
    }

    /// The sequence number, which is never 0.
    fn sequence(&self) -> u32 {
        let bytes = &self.0[CHALLENGE_BYTES + EXPONENT_BYTES..];
        bytes
            .iter()
            .fold(0, |sum, &byte| sum << 8 | u32::from(byte))
            .max(1)
    }
}

impl std::fmt::Debug for Seed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Seed")
    }
}

const CHALLENGE_BYTES: usize = hash::LEN_MAX_BYTES;
const EXPONENT_BYTES: usize = group::EXPONENT_MAX_BYTES;

#[cfg(test)]
mod tests;
