//! The hash functions of DH-HMAC-CHAP.

use std::fmt;
use std::str::FromStr;

use hmac::{Hmac, Mac};
use sha2::{Digest as _, Sha256, Sha384, Sha512};
use subtle::{Choice, ConstantTimeEq};
use zeroize::{Zeroize, ZeroizeOnDrop};

/// The longest digest in bytes.
pub(super) const LEN_MAX_BYTES: usize = 64;

/// A hash function.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Hash {
    /// SHA-256.
    Sha256,
    /// SHA-384.
    Sha384,
    /// SHA-512.
    Sha512,
}

impl Hash {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Sha256, Self::Sha384, Self::Sha512];

    /// Its identifier (HashID).
    pub const fn id(self) -> u8 {
        match self {
            Self::Sha256 => 1,
            Self::Sha384 => 2,
            Self::Sha512 => 3,
        }
    }

    /// The function with this identifier.
    pub fn from_id(id: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|hash| hash.id() == id)
    }

    /// The length of a digest in bytes.
    pub const fn len_bytes(self) -> usize {
        match self {
            Self::Sha256 => 32,
            Self::Sha384 => 48,
            Self::Sha512 => 64,
        }
    }

    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Sha256 => "sha256",
            Self::Sha384 => "sha384",
            Self::Sha512 => "sha512",
        }
    }

    /// The digest of `bytes`.
    pub(super) fn digest(self, bytes: &[u8]) -> Digest {
        match self {
            Self::Sha256 => Digest::new(&Sha256::digest(bytes)),
            Self::Sha384 => Digest::new(&Sha384::digest(bytes)),
            Self::Sha512 => Digest::new(&Sha512::digest(bytes)),
        }
    }

    /// The HMAC of `parts`, one after another.
    pub(super) fn hmac(self, key: &[u8], parts: &[&[u8]]) -> Digest {
        match self {
            Self::Sha256 => Digest::new(&mac::<Hmac<Sha256>>(key, parts)),
            Self::Sha384 => Digest::new(&mac::<Hmac<Sha384>>(key, parts)),
            Self::Sha512 => Digest::new(&mac::<Hmac<Sha512>>(key, parts)),
        }
    }
}

impl fmt::Display for Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A name that no hash function has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("is not supported; use sha256, sha384 or sha512")]
pub struct UnknownHash;

impl FromStr for Hash {
    type Err = UnknownHash;

    fn from_str(text: &str) -> Result<Self, UnknownHash> {
        let named = Self::ALL.into_iter().find(|hash| hash.name() == text);
        named.ok_or(UnknownHash)
    }
}

/// The output of a hash function or of HMAC.
#[derive(Clone, Zeroize, ZeroizeOnDrop)]
pub(super) struct Digest {
    bytes: [u8; LEN_MAX_BYTES],
    len: usize,
}

impl Digest {
    fn new(output: &[u8]) -> Self {
        let mut bytes = [0; LEN_MAX_BYTES];
        bytes[..output.len()].copy_from_slice(output);
        Self {
            bytes,
            len: output.len(),
        }
    }

    pub(super) fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }

    /// Compares in a time that does not depend on the bytes.
    pub(super) fn matches(&self, other: &[u8]) -> Choice {
        self.as_bytes().ct_eq(other)
    }
}

fn mac<M: Mac + hmac::digest::KeyInit>(key: &[u8], parts: &[&[u8]]) -> Vec<u8> {
    let mut mac = <M as Mac>::new_from_slice(key).expect("HMAC has keys of any length");
    for part in parts {
        mac.update(part);
    }
    mac.finalize().into_bytes().to_vec()
}
