//! Secure channel concatenation: a key for TLS that an authentication generates.
//!
//! Read first: NVM Express Base 2.1, "Secure Channel Concatenation" and "Generated PSK for TLS".

use zeroize::{Zeroize, ZeroizeOnDrop};

use super::Hash;

/// Whether an authentication may generate a key for TLS.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Concatenation {
    /// It may not.
    #[default]
    Refused,
    /// It does if the host requests it, at a connection without TLS (NEWTLSPSK).
    Offered,
    /// It does if the host requests it, over TLS: the new key replaces the one that the connection
    /// was set up with (REPLACETLSPSK).
    Replacing,
}

/// A key for TLS that both sides have computed from one authentication (the generated PSK).
#[derive(Clone, PartialEq, Eq, Zeroize, ZeroizeOnDrop)]
pub struct GeneratedKey {
    #[zeroize(skip)]
    hash: Hash,
    bytes: Vec<u8>,
}

impl GeneratedKey {
    pub(super) fn new(hash: Hash, bytes: &[u8]) -> Self {
        Self {
            hash,
            bytes: bytes.to_vec(),
        }
    }

    /// The hash function of the authentication, SHA-256 or SHA-384, which is also that of TLS.
    pub fn hash(&self) -> Hash {
        self.hash
    }

    /// The key.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }
}

impl std::fmt::Debug for GeneratedKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("GeneratedKey(hidden)")
    }
}
