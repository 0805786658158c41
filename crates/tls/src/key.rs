//! Keys in the format `NVMeTLSkey-1:hh:BASE64:`, as `nvme gen-tls-key` prints them.
//!
//! Read first: NVMe/TCP 1.1, "PSK Interchange Format", "TLS PSK and PSK Identity Derivation".

use std::fmt;
use std::str::FromStr;

use base64ct::{Base64, Encoding};
use subtle::ConstantTimeEq;
use zeroize::{Zeroize, ZeroizeOnDrop, Zeroizing};

use crate::identity::{Derivation, Identity, Source, Version};
use crate::suite::{LABEL_PREFIX, SecretBytes, Suite};

/// A key that a user configured (the configured PSK). Nothing but [`Key::reveal`] shows it.
#[derive(Clone, Zeroize, ZeroizeOnDrop)]
pub struct Key {
    bytes: Vec<u8>,
    /// The function that makes it a key for one host; none uses the key itself.
    #[zeroize(skip)]
    transform: Option<Suite>,
    #[zeroize(skip)]
    source: Source,
}

/// Why a text is no key. The text is never part of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    /// It is not of the form.
    #[error("a TLS key has the form NVMeTLSkey-1:hh:BASE64:; generate one with {GENERATE}")]
    Form,
    /// The hash function is not known.
    #[error(
        "the TLS key names an unknown hash function; the digits behind NVMeTLSkey-1: are 00, 01 or 02"
    )]
    Hash,
    /// The base64 part is not valid.
    #[error("the TLS key is not valid base64; copy it whole, or generate one with {GENERATE}")]
    Base64,
    /// The key has a wrong length.
    #[error(
        "the TLS key has {len_bytes} bytes, but 32 with 01, 48 with 02, and either with 00; generate one with {GENERATE}"
    )]
    Length {
        /// The length of the key without its checksum.
        len_bytes: usize,
    },
    /// The checksum does not match.
    #[error("the checksum of the TLS key is wrong; copy it whole, or generate one with {GENERATE}")]
    Checksum,
}

/// The pre-shared key of a handshake, with the name that the host sends for it.
#[derive(Clone)]
pub(crate) struct Psk {
    pub(crate) identity: String,
    pub(crate) suite: Suite,
    pub(crate) secret: SecretBytes,
}

const GENERATE: &str = "`ramport host keygen --tls`";
const PREFIX: &str = "NVMeTLSkey-1:";
const CHECKSUM_BYTES: usize = 4;
/// The longest key.
const KEY_MAX_BYTES: usize = 48;

impl Key {
    /// The longest text of a key, in bytes.
    pub const TEXT_MAX_BYTES: usize =
        PREFIX.len() + 3 + (KEY_MAX_BYTES + CHECKSUM_BYTES).div_ceil(3) * 4 + 1;

    /// A key of these bytes: 32 for the suite with SHA-256, 48 for the one with SHA-384, and either
    /// without a transformation.
    pub fn new(bytes: &[u8], transform: Option<Suite>) -> Result<Self, KeyError> {
        let key = Self {
            bytes: bytes.to_vec(),
            transform,
            source: Source::Configured,
        };
        let fits = match transform {
            Some(suite) => bytes.len() == suite.hash_bytes(),
            None => Suite::ALL
                .iter()
                .any(|suite| bytes.len() == suite.hash_bytes()),
        };
        if fits {
            Ok(key)
        } else {
            Err(KeyError::Length {
                len_bytes: bytes.len(),
            })
        }
    }

    /// A key that an authentication has generated, of 32 or 48 bytes.
    pub fn generated(bytes: &[u8]) -> Result<Self, KeyError> {
        let mut key = Self::new(bytes, None)?;
        key.source = Source::Generated;
        Ok(key)
    }

    /// The key whose text is the first line of `text`.
    pub fn from_first_line(text: &str) -> Result<Self, KeyError> {
        text.lines().next().unwrap_or_default().parse()
    }

    /// Its text.
    pub fn reveal(&self) -> Zeroizing<String> {
        let mut bytes = Zeroizing::new(self.bytes.clone());
        bytes.extend_from_slice(&crc32fast::hash(&self.bytes).to_le_bytes());
        let text = Zeroizing::new(Base64::encode_string(&bytes));
        let hash = self.transform.map_or(0, Suite::hash_id);
        Zeroizing::new(format!("{PREFIX}{hash:02}:{}:", *text))
    }

    /// The suite that the key is for.
    pub fn suite(&self) -> Suite {
        if self.bytes.len() == Suite::Aes256GcmSha384.hash_bytes() {
            Suite::Aes256GcmSha384
        } else {
            Suite::Aes128GcmSha256
        }
    }

    /// The identity of a host that uses the key for a subsystem, with version 1 and the specified
    /// derivation.
    pub fn identity(&self, host_nqn: &str, subsystem_nqn: &str) -> Identity {
        let retained = self.retained(host_nqn, Derivation::Specified);
        self.named(Version::One, &retained, host_nqn, subsystem_nqn)
    }

    /// What the key may be for an identity: none if it is of another kind.
    pub(crate) fn psks(&self, identity: &Identity) -> Vec<Psk> {
        if identity.suite != self.suite() || identity.source != self.source {
            return Vec::new();
        }
        let derivations = match self.source {
            Source::Configured => &Derivation::ALL[..],
            Source::Generated => &[Derivation::Specified],
        };
        let (host, subsystem) = (&identity.host_nqn, &identity.subsystem_nqn);
        let psk = |&derivation| self.psk(identity.version, derivation, host, subsystem);
        derivations.iter().map(psk).collect()
    }

    /// What the key becomes for one host: the retained PSK.
    fn retained(&self, host_nqn: &str, derivation: Derivation) -> SecretBytes {
        match self.transform {
            None => Zeroizing::new(self.bytes.clone()),
            Some(suite) => derive(suite, derivation, &self.bytes, "HostNQN", host_nqn),
        }
    }

    /// The pre-shared key of a host for a subsystem, with its identity.
    pub(crate) fn psk(
        &self,
        version: Version,
        derivation: Derivation,
        host_nqn: &str,
        subsystem_nqn: &str,
    ) -> Psk {
        let suite = self.suite();
        let retained = self.retained(host_nqn, derivation);
        let identity = self.named(version, &retained, host_nqn, subsystem_nqn);
        let context = identity
            .digest
            .as_ref()
            .map(|digest| format!("{:02} {digest}", suite.hash_id()));
        let identity = identity.to_string();
        let context = context.as_deref().unwrap_or(&identity);
        let secret = derive(suite, derivation, &retained, "nvme-tls-psk", context);
        Psk {
            identity,
            suite,
            secret,
        }
    }

    /// The identity of a retained PSK.
    fn named(
        &self,
        version: Version,
        retained: &[u8],
        host_nqn: &str,
        subsystem_nqn: &str,
    ) -> Identity {
        let suite = self.suite();
        let digest = (version == Version::One).then(|| {
            let seed: [&[u8]; 5] = [
                host_nqn.as_bytes(),
                b" ",
                subsystem_nqn.as_bytes(),
                b" ",
                b"NVMe-over-Fabrics",
            ];
            Base64::encode_string(&suite.hmac(retained, &seed))
        });
        Identity {
            version,
            source: self.source,
            suite,
            host_nqn: host_nqn.to_owned(),
            subsystem_nqn: subsystem_nqn.to_owned(),
            digest,
        }
    }
}

/// A key of the same length as `key`, derived from it.
fn derive(
    suite: Suite,
    derivation: Derivation,
    key: &[u8],
    label: &str,
    context: &str,
) -> SecretBytes {
    let secret = suite.extract(key);
    match derivation {
        Derivation::Specified => suite.expand_label(&secret, label, context.as_bytes(), key.len()),
        // The parts have no lengths before them, and the first number has the other byte order.
        Derivation::Legacy => {
            let len = (key.len() as u16).to_le_bytes();
            let info: [&[u8]; 4] = [
                &len,
                LABEL_PREFIX.as_bytes(),
                label.as_bytes(),
                context.as_bytes(),
            ];
            suite.expand(&secret, &info, key.len())
        }
    }
}

impl PartialEq for Key {
    /// Takes a time that does not depend on the keys.
    fn eq(&self, other: &Self) -> bool {
        self.transform == other.transform && bool::from(self.bytes.ct_eq(&other.bytes))
    }
}

impl Eq for Key {}

impl FromStr for Key {
    type Err = KeyError;

    fn from_str(text: &str) -> Result<Self, KeyError> {
        let rest = text.trim().strip_prefix(PREFIX).ok_or(KeyError::Form)?;
        let rest = rest.strip_suffix(':').unwrap_or(rest);
        let (hash, base64) = rest.split_once(':').ok_or(KeyError::Form)?;
        let transform = match hash {
            "00" => None,
            _ => Some(Suite::from_hash_id(hash).ok_or(KeyError::Hash)?),
        };
        let mut buffer = Zeroizing::new([0; KEY_MAX_BYTES + CHECKSUM_BYTES]);
        if base64.len() > Self::TEXT_MAX_BYTES {
            return Err(KeyError::Base64);
        }
        let bytes = Base64::decode(base64, &mut *buffer).map_err(|_| KeyError::Base64)?;
        let (key, checksum) = bytes
            .split_last_chunk::<CHECKSUM_BYTES>()
            .ok_or(KeyError::Length { len_bytes: 0 })?;
        let made = Self::new(key, transform)?;
        if crc32fast::hash(key) != u32::from_le_bytes(*checksum) {
            return Err(KeyError::Checksum);
        }
        Ok(made)
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key(hidden)")
    }
}

impl fmt::Debug for Psk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Psk")
            .field("identity", &self.identity)
            .field("suite", &self.suite)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
