//! Names that hosts send for pre-shared keys.
//!
//! Read first: NVMe/TCP 1.1, "TLS PSK and PSK Identity Derivation".

use std::fmt;
use std::str::FromStr;

use crate::suite::Suite;

/// A PSK identity: `NVMe0R01 HOSTNQN SUBNQN`, `NVMe1R01 HOSTNQN SUBNQN DIGEST`, or `NVMe1G01` with
/// the same parts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Its version.
    pub version: Version,
    /// Where its key comes from.
    pub source: Source,
    /// The suite that it is for.
    pub suite: Suite,
    /// The host's NQN.
    pub host_nqn: String,
    /// The subsystem's NQN.
    pub subsystem_nqn: String,
    /// The digest of the key, in base64; of version 1 only.
    pub(crate) digest: Option<String>,
}

/// The version of an identity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Version {
    /// Without a digest.
    Zero,
    /// With a digest, which names one of several keys of a host.
    One,
}

/// Where a key comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Source {
    /// A user configured it: the letter R, since the key that is derived of it is retained.
    Configured,
    /// An authentication generated it (secure channel concatenation): the letter G, with version 1.
    Generated,
}

/// How keys are derived from keys. Hosts differ: nvme-cli has used its own form for years.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Derivation {
    /// HKDF-Expand-Label of RFC 8446, as the specification says: nvme-cli 2.16 and later.
    Specified,
    /// The same parts without their lengths: earlier nvme-cli, and later with `--compat`.
    Legacy,
}

impl Derivation {
    /// Both of them.
    pub const ALL: [Self; 2] = [Self::Specified, Self::Legacy];
}

/// Why a text is no identity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "is not of the form NVMe0Rhh HOSTNQN SUBNQN, NVMe1Rhh HOSTNQN SUBNQN DIGEST or NVMe1Ghh HOSTNQN SUBNQN DIGEST"
)]
pub struct IdentityFault;

impl Identity {
    /// The longest identity: two names and a digest.
    pub(crate) const MAX_BYTES: usize = 8 + 3 + 2 * 223 + 64;
}

impl FromStr for Identity {
    type Err = IdentityFault;

    fn from_str(text: &str) -> Result<Self, IdentityFault> {
        if text.len() > Self::MAX_BYTES {
            return Err(IdentityFault);
        }
        let mut parts = text.split(' ');
        let mut next = || parts.next().filter(|part| !part.is_empty());
        let head = next().ok_or(IdentityFault)?;
        let host_nqn = next().ok_or(IdentityFault)?.to_owned();
        let subsystem_nqn = next().ok_or(IdentityFault)?.to_owned();
        let digest = next().map(str::to_owned);
        let (kind, hash) = head.split_at_checked(6).ok_or(IdentityFault)?;
        let (version, source) = match kind {
            "NVMe0R" => (Version::Zero, Source::Configured),
            "NVMe1R" => (Version::One, Source::Configured),
            "NVMe1G" => (Version::One, Source::Generated),
            _ => return Err(IdentityFault),
        };
        let suite = Suite::from_hash_id(hash).ok_or(IdentityFault)?;
        if digest.is_some() != (version == Version::One) || parts.next().is_some() {
            return Err(IdentityFault);
        }
        Ok(Self {
            version,
            source,
            suite,
            host_nqn,
            subsystem_nqn,
            digest,
        })
    }
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let version = match self.version {
            Version::Zero => 0,
            Version::One => 1,
        };
        let letter = match self.source {
            Source::Configured => 'R',
            Source::Generated => 'G',
        };
        let (hash, host, subsystem) = (self.suite.hash_id(), &self.host_nqn, &self.subsystem_nqn);
        write!(f, "NVMe{version}{letter}{hash:02} {host} {subsystem}")?;
        match &self.digest {
            Some(digest) => write!(f, " {digest}"),
            None => Ok(()),
        }
    }
}
