//! The two cipher suites of NVMe/TCP, with the functions of their key schedules.
//!
//! Read first: RFC 8446, 7.1 "Key Schedule"; RFC 5869.

use std::fmt;

use ring::aead::{AES_128_GCM, AES_256_GCM, Algorithm};
use ring::{digest, hmac};
use zeroize::Zeroizing;

/// Bytes that are erased when they are dropped.
pub(crate) type SecretBytes = Zeroizing<Vec<u8>>;

/// A cipher suite of TLS 1.3. Its hash function is also that of pre-shared keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Suite {
    /// TLS_AES_128_GCM_SHA256.
    Aes128GcmSha256,
    /// TLS_AES_256_GCM_SHA384.
    Aes256GcmSha384,
}

impl Suite {
    /// Both of them.
    pub const ALL: [Self; 2] = [Self::Aes128GcmSha256, Self::Aes256GcmSha384];

    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Aes128GcmSha256 => "TLS_AES_128_GCM_SHA256",
            Self::Aes256GcmSha384 => "TLS_AES_256_GCM_SHA384",
        }
    }

    /// Its number on the wire (RFC 8446, B.4).
    pub(crate) const fn code(self) -> [u8; 2] {
        match self {
            Self::Aes128GcmSha256 => [0x13, 0x01],
            Self::Aes256GcmSha384 => [0x13, 0x02],
        }
    }

    /// The number of its hash function in keys and identities of NVMe.
    pub(crate) const fn hash_id(self) -> u8 {
        match self {
            Self::Aes128GcmSha256 => 1,
            Self::Aes256GcmSha384 => 2,
        }
    }

    pub(crate) fn from_hash_id(id: &str) -> Option<Self> {
        match id {
            "01" => Some(Self::Aes128GcmSha256),
            "02" => Some(Self::Aes256GcmSha384),
            _ => None,
        }
    }

    /// The length of a digest, and of a pre-shared key, in bytes.
    pub const fn hash_bytes(self) -> usize {
        match self {
            Self::Aes128GcmSha256 => 32,
            Self::Aes256GcmSha384 => 48,
        }
    }

    pub(crate) fn aead(self) -> &'static Algorithm {
        match self {
            Self::Aes128GcmSha256 => &AES_128_GCM,
            Self::Aes256GcmSha384 => &AES_256_GCM,
        }
    }

    fn mac(self) -> hmac::Algorithm {
        match self {
            Self::Aes128GcmSha256 => hmac::HMAC_SHA256,
            Self::Aes256GcmSha384 => hmac::HMAC_SHA384,
        }
    }

    /// The digest of `bytes`.
    pub(crate) fn digest(self, bytes: &[u8]) -> digest::Digest {
        digest::digest(self.mac().digest_algorithm(), bytes)
    }

    /// HMAC of `parts`, one after another.
    pub(crate) fn hmac(self, key: &[u8], parts: &[&[u8]]) -> SecretBytes {
        let mut context = hmac::Context::with_key(&hmac::Key::new(self.mac(), key));
        for part in parts {
            context.update(part);
        }
        Zeroizing::new(context.sign().as_ref().to_vec())
    }

    /// Whether `tag` is the HMAC of `bytes`. Takes a time that does not depend on the tag's bytes.
    pub(crate) fn verifies(self, key: &[u8], bytes: &[u8], tag: &[u8]) -> bool {
        hmac::verify(&hmac::Key::new(self.mac(), key), bytes, tag).is_ok()
    }

    /// HKDF-Extract without salt.
    pub(crate) fn extract(self, input: &[u8]) -> SecretBytes {
        let no_salt = [0; 48];
        self.hmac(&no_salt[..self.hash_bytes()], &[input])
    }

    /// HKDF-Expand to as many bytes as one digest has at most.
    pub(crate) fn expand(self, secret: &[u8], info: &[&[u8]], len_bytes: usize) -> SecretBytes {
        assert!(
            len_bytes <= self.hash_bytes(),
            "keys are not longer than a digest"
        );
        let mut parts = info.to_vec();
        parts.push(&[1]);
        let mut block = self.hmac(secret, &parts);
        block.truncate(len_bytes);
        block
    }

    /// HKDF-Expand-Label (RFC 8446, 7.1); `label` without its prefix.
    pub(crate) fn expand_label(
        self,
        secret: &[u8],
        label: &str,
        context: &[u8],
        len_bytes: usize,
    ) -> SecretBytes {
        let len = (len_bytes as u16).to_be_bytes();
        let label_len = [(LABEL_PREFIX.len() + label.len()) as u8];
        let context_len = [u8::try_from(context.len()).expect("contexts have at most 255 bytes")];
        let info: [&[u8]; 6] = [
            &len,
            &label_len,
            LABEL_PREFIX.as_bytes(),
            label.as_bytes(),
            &context_len,
            context,
        ];
        self.expand(secret, &info, len_bytes)
    }
}

/// What begins each label.
pub(crate) const LABEL_PREFIX: &str = "tls13 ";

impl fmt::Display for Suite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
