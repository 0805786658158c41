//! Secrets in the format `DHHC-1:hh:BASE64:`, as `nvme gen-dhchap-key` prints them.
//!
//! Read first: NVM Express Base 2.0, "DH-HMAC-CHAP Security Requirements" and "Secret
//! Representation".

use std::fmt;
use std::str::FromStr;

use base64ct::{Base64, Encoding};
use subtle::ConstantTimeEq;
use zeroize::{Zeroize, ZeroizeOnDrop, Zeroizing};

use super::Hash;

/// The secret of a host or of a controller. Nothing but [`Secret::reveal`] shows it.
#[derive(Clone, Zeroize, ZeroizeOnDrop)]
pub struct Secret {
    key: Vec<u8>,
    /// The function that makes it a secret for one name; none uses the key itself.
    #[zeroize(skip)]
    hash: Option<Hash>,
}

/// Why a text is no secret. The text is never part of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SecretError {
    /// It is not of the form.
    #[error("a DH-HMAC-CHAP secret has the form DHHC-1:hh:BASE64:; generate one with {GENERATE}")]
    Form,
    /// The hash function is not known.
    #[error(
        "the DH-HMAC-CHAP secret names an unknown hash function; the digits behind DHHC-1: are 00, 01, 02 or 03"
    )]
    Hash,
    /// The base64 part is not valid.
    #[error(
        "the DH-HMAC-CHAP secret is not valid base64; copy it whole, or generate one with {GENERATE}"
    )]
    Base64,
    /// The key has a wrong length.
    #[error(
        "the key of the DH-HMAC-CHAP secret has {len_bytes} bytes instead of 32, 48 or 64; generate one with {GENERATE}"
    )]
    Length {
        /// The length of the key without its checksum.
        len_bytes: usize,
    },
    /// The checksum does not match.
    #[error(
        "the checksum of the DH-HMAC-CHAP secret is wrong; copy it whole, or generate one with {GENERATE}"
    )]
    Checksum,
}

const GENERATE: &str = "`ramport host keygen`";
const PREFIX: &str = "DHHC-1:";
const CHECKSUM_BYTES: usize = 4;
/// The longest key.
const KEY_MAX_BYTES: usize = 64;

impl Secret {
    /// The longest text of a secret, in bytes.
    pub const TEXT_MAX_BYTES: usize =
        PREFIX.len() + 3 + (KEY_MAX_BYTES + CHECKSUM_BYTES).div_ceil(3) * 4 + 1;

    /// The secret with this key, of 32, 48 or 64 bytes.
    pub fn new(key: &[u8], hash: Option<Hash>) -> Result<Self, SecretError> {
        if !matches!(key.len(), 32 | 48 | 64) {
            return Err(SecretError::Length {
                len_bytes: key.len(),
            });
        }
        Ok(Self {
            key: key.to_vec(),
            hash,
        })
    }

    /// The secret whose text is the first line of `text`.
    pub fn from_first_line(text: &str) -> Result<Self, SecretError> {
        text.lines().next().unwrap_or_default().parse()
    }

    /// Its text.
    pub fn reveal(&self) -> Zeroizing<String> {
        let mut bytes = Zeroizing::new(self.key.clone());
        bytes.extend_from_slice(&crc32fast::hash(&self.key).to_le_bytes());
        let text = Zeroizing::new(Base64::encode_string(&bytes));
        let hash = self.hash.map_or(0, Hash::id);
        Zeroizing::new(format!("{PREFIX}{hash:02}:{}:", *text))
    }

    /// The function that makes it a secret for one name.
    pub fn hash(&self) -> Option<Hash> {
        self.hash
    }

    /// The key of responses of the side that is called `nqn`.
    pub(super) fn key_of(&self, nqn: &str) -> Zeroizing<Vec<u8>> {
        let key = match self.hash {
            None => self.key.clone(),
            Some(hash) => hash
                .hmac(&self.key, &[nqn.as_bytes(), b"NVMe-over-Fabrics"])
                .as_bytes()
                .to_vec(),
        };
        Zeroizing::new(key)
    }
}

impl PartialEq for Secret {
    /// Takes a time that does not depend on the keys.
    fn eq(&self, other: &Self) -> bool {
        self.hash == other.hash && bool::from(self.key.ct_eq(&other.key))
    }
}

impl Eq for Secret {}

impl FromStr for Secret {
    type Err = SecretError;

    fn from_str(text: &str) -> Result<Self, SecretError> {
        let rest = text.trim().strip_prefix(PREFIX).ok_or(SecretError::Form)?;
        let rest = rest.strip_suffix(':').unwrap_or(rest);
        let (hash, base64) = rest.split_once(':').ok_or(SecretError::Form)?;
        let hash = match hash {
            "00" => None,
            "01" => Some(Hash::Sha256),
            "02" => Some(Hash::Sha384),
            "03" => Some(Hash::Sha512),
            _ => return Err(SecretError::Hash),
        };
        let mut buffer = Zeroizing::new([0; KEY_MAX_BYTES + CHECKSUM_BYTES]);
        if base64.len() > Self::TEXT_MAX_BYTES {
            return Err(SecretError::Base64);
        }
        let bytes = Base64::decode(base64, &mut *buffer).map_err(|_| SecretError::Base64)?;
        let (key, checksum) = bytes
            .split_last_chunk::<CHECKSUM_BYTES>()
            .ok_or(SecretError::Length { len_bytes: 0 })?;
        let secret = Self::new(key, hash)?;
        if crc32fast::hash(key) != u32::from_le_bytes(*checksum) {
            return Err(SecretError::Checksum);
        }
        Ok(secret)
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}
