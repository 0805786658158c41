//! The first bytes of a connection: TLS with a key of ours, plain, or rejected.
//!
//! ```text
//!            first byte is not 22, plain is allowed
//!  Header ─────────────────────────────────────────► plain
//!     │ record of 22
//!     ▼     a key is proven              client's Finished
//!  Hello ──────────────────► Negotiating ─────────────────► secured
//! ```
//!
//! Whole records are taken from the socket, one at a time, so that nothing of what follows the
//! handshake is received before its keys are known.
//!
//! Read first: RFC 8446, 2.2 "Resumption and Pre-Shared Key", 4.2.11.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use crate::client_hello::{ClientHello, ClientHelloError};
use crate::identity::{Derivation, Identity, Version};
use crate::key::Key;
use crate::openssl::{Negotiation, Provider, Side};
use crate::record::{CONTENTS_MAX_BYTES, HANDSHAKE, HEADER_BYTES, Records};

/// Whether connections that are accepted use TLS.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Policy {
    /// They do not.
    #[default]
    Off,
    /// The host decides.
    Allowed,
    /// They do.
    Required,
}

/// Where the keys of hosts are.
pub trait KeySource: Send + Sync {
    /// The keys that the host of an identity may use for its subsystem. Called for an identity that
    /// nobody has proven yet.
    fn keys(&self, identity: &Identity) -> Vec<Arc<Key>>;
}

/// What connections need that are to use TLS.
#[derive(Clone)]
pub struct Server {
    /// Carries out handshakes.
    pub provider: Provider,
    /// Where the keys are.
    pub keys: Arc<dyn KeySource>,
}

/// Why a connection is rejected before its session begins.
#[derive(Clone, Debug, thiserror::Error)]
pub enum EntryError {
    /// TLS on a portal without it.
    #[error(
        "the host started TLS, which this portal does not offer; set the portal's tls to allowed or required"
    )]
    NotOffered,
    /// Plain where TLS is required.
    #[error(
        "the host did not start TLS, which this portal requires; connect with `nvme connect --tls`"
    )]
    Required,
    /// A record that does not belong to a handshake.
    #[error("the host sent an invalid TLS record")]
    Record,
    /// The first message is invalid.
    #[error(transparent)]
    ClientHello(#[from] ClientHelloError),
    /// No key of that name.
    #[error(
        "no TLS key is known for identity {identity:?}; define one with `ramport host set HOSTNQN --tls-psk-file FILE`"
    )]
    UnknownIdentity {
        /// The name, with what is not text replaced.
        identity: Box<str>,
    },
    /// The host has another key than we.
    #[error("host {host} has another TLS key than the one defined here")]
    WrongKey {
        /// The host's NQN.
        host: Box<str>,
    },
    /// The host's proof is by another hash function than its key is for.
    #[error(
        "host {host} proves its TLS key with {given_bytes} bytes, but this key needs the hash function with {proof_bytes}; update tlshd (ktls-utils) on the host, or use a key for SHA-256"
    )]
    Proof {
        /// The host's NQN.
        host: Box<str>,
        /// The length of its proof.
        given_bytes: usize,
        /// That of the hash function of the key.
        proof_bytes: usize,
    },
    /// OpenSSL ended the handshake.
    #[error("the TLS handshake failed: {0}")]
    Handshake(Box<str>),
}

/// What a connection has become.
#[derive(Debug)]
pub enum Progress {
    /// More input is needed.
    Pending,
    /// It is plain. The bytes that were given belong to the session.
    Plain,
    /// Its handshake is done.
    Secured(Box<Secured>),
}

/// A connection whose handshake is done.
#[derive(Debug)]
pub struct Secured {
    /// Its records.
    pub records: Records,
    /// What the client has proven.
    pub proven: Proven,
}

/// A client that has proven to have a key.
#[derive(Clone, Debug)]
pub struct Proven {
    /// Whose key it is, and for which subsystem.
    pub identity: Identity,
    /// The key.
    pub key: Arc<Key>,
}

/// A connection that was accepted and that has no session yet.
pub struct Entry {
    policy: Policy,
    server: Option<Server>,
    reader: Reader,
    negotiation: Option<(Negotiation, Proven)>,
}

impl Entry {
    /// A connection to a portal without TLS.
    pub fn off() -> Self {
        Self::with(Policy::Off, None)
    }

    /// A connection to a portal with this policy.
    pub fn new(policy: Policy, server: Server) -> Self {
        Self::with(policy, Some(server))
    }

    fn with(policy: Policy, server: Option<Server>) -> Self {
        Self {
            policy,
            server,
            reader: Reader::default(),
            negotiation: None,
        }
    }

    /// How many bytes to receive at most before the next call of
    /// [`handle_bytes`](Self::handle_bytes).
    pub fn wanted_bytes(&self) -> usize {
        self.reader.wanted_bytes()
    }

    /// Takes all of `input`, which is at most [`wanted_bytes`](Self::wanted_bytes) long, and
    /// appends what is to be sent to `output`, after an error, too.
    pub fn handle_bytes(
        &mut self,
        input: &[u8],
        output: &mut Vec<u8>,
    ) -> Result<Progress, EntryError> {
        let is_begun = !self.reader.is_empty() || self.negotiation.is_some();
        let is_tls = is_begun || input.first() == Some(&HANDSHAKE);
        let server = match (self.policy, &self.server) {
            (Policy::Required, _) if !is_tls => return Err(EntryError::Required),
            _ if !is_tls => return Ok(Progress::Plain),
            (Policy::Allowed | Policy::Required, Some(server)) => server,
            _ => return Err(EntryError::NotOffered),
        };
        let Some(record) = self.reader.push(input)? else {
            return Ok(Progress::Pending);
        };
        let (mut negotiation, proven) = match self.negotiation.take() {
            Some(negotiation) => negotiation,
            None => begin(server, &record).inspect_err(|_| output.extend(HANDSHAKE_FAILURE))?,
        };
        let step = negotiation.step(&record, output);
        if let Some(records) = step.map_err(EntryError::Handshake)? {
            return Ok(Progress::Secured(Box::new(Secured { records, proven })));
        }
        self.negotiation = Some((negotiation, proven));
        Ok(Progress::Pending)
    }
}

/// The record of a fatal alert. It is the same for every reason, so that strangers learn nothing of
/// which hosts there are.
const HANDSHAKE_FAILURE: [u8; 7] = [21, 3, 3, 0, 2, 2, 40];

/// Begins a handshake if the client proves that it has a key of ours.
fn begin(server: &Server, record: &[u8]) -> Result<(Negotiation, Proven), EntryError> {
    let hello = ClientHello::parse(record)?;
    let mut fault = EntryError::ClientHello(ClientHelloError::NoKey);
    for (name, binder) in hello.offers() {
        let identity = std::str::from_utf8(name)
            .ok()
            .and_then(|name| name.parse().ok());
        let keys = identity
            .iter()
            .flat_map(|identity| server.keys.keys(identity));
        let (mut is_known, mut proof_bytes) = (false, 0);
        let psks = keys.flat_map(|key| {
            let psks = identity.as_ref().map_or(Vec::new(), |name| key.psks(name));
            psks.into_iter().map(move |psk| (Arc::clone(&key), psk))
        });
        for (key, psk) in psks {
            is_known = true;
            proof_bytes = psk.suite.hash_bytes();
            if psk.identity.as_bytes() != name || !hello.proves(&psk, binder) {
                continue;
            }
            let negotiation = Negotiation::new(&server.provider, Side::Server, psk);
            let negotiation = negotiation.map_err(EntryError::Handshake)?;
            let identity = identity.expect("keys were looked up for it");
            return Ok((negotiation, Proven { identity, key }));
        }
        fault = match &identity {
            Some(identity) if is_known && binder.len() != proof_bytes => EntryError::Proof {
                host: identity.host_nqn.as_str().into(),
                given_bytes: binder.len(),
                proof_bytes,
            },
            Some(identity) if is_known => EntryError::WrongKey {
                host: identity.host_nqn.as_str().into(),
            },
            _ => EntryError::UnknownIdentity {
                identity: String::from_utf8_lossy(&name[..name.len().min(Identity::MAX_BYTES)])
                    .into(),
            },
        };
    }
    Err(fault)
}

/// A name that no policy has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("is not supported; use off, allowed or required")]
pub struct UnknownPolicy;

impl FromStr for Policy {
    type Err = UnknownPolicy;

    fn from_str(text: &str) -> Result<Self, UnknownPolicy> {
        let mut all = [Self::Off, Self::Allowed, Self::Required].into_iter();
        all.find(|policy| policy.name() == text)
            .ok_or(UnknownPolicy)
    }
}

impl Policy {
    const fn name(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Allowed => "allowed",
            Self::Required => "required",
        }
    }
}

impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Server")
    }
}

impl fmt::Debug for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Entry")
            .field("policy", &self.policy)
            .finish_non_exhaustive()
    }
}

/// The handshake of a host that connects.
pub struct ClientHandshake {
    negotiation: Negotiation,
    reader: Reader,
}

impl ClientHandshake {
    /// Begins a handshake; what is to be sent is appended to `output`.
    pub fn new(
        provider: &Provider,
        key: &Key,
        version: Version,
        derivation: Derivation,
        (host_nqn, subsystem_nqn): (&str, &str),
        output: &mut Vec<u8>,
    ) -> Result<Self, EntryError> {
        let psk = key.psk(version, derivation, host_nqn, subsystem_nqn);
        let negotiation = Negotiation::new(provider, Side::Client, psk);
        let mut negotiation = negotiation.map_err(EntryError::Handshake)?;
        negotiation
            .step(&[], output)
            .map_err(EntryError::Handshake)?;
        Ok(Self {
            negotiation,
            reader: Reader::default(),
        })
    }

    /// See [`Entry::wanted_bytes`].
    pub fn wanted_bytes(&self) -> usize {
        self.reader.wanted_bytes()
    }

    /// See [`Entry::handle_bytes`]. Returns the connection's records when the handshake is done.
    pub fn handle_bytes(
        &mut self,
        input: &[u8],
        output: &mut Vec<u8>,
    ) -> Result<Option<Records>, EntryError> {
        let Some(record) = self.reader.push(input)? else {
            return Ok(None);
        };
        let step = self.negotiation.step(&record, output);
        step.map_err(EntryError::Handshake)
    }
}

impl fmt::Debug for ClientHandshake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ClientHandshake")
    }
}

/// Collects one record at a time.
#[derive(Default)]
struct Reader {
    bytes: Vec<u8>,
}

/// What encryption adds to a handshake's messages at most (RFC 8446, 5.2).
const RECORD_MAX_BYTES: usize = CONTENTS_MAX_BYTES + 256;

impl Reader {
    fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    fn wanted_bytes(&self) -> usize {
        self.whole_bytes() - self.bytes.len()
    }

    /// The length of the record as far as it is known.
    fn whole_bytes(&self) -> usize {
        match self.bytes.first_chunk::<HEADER_BYTES>() {
            Some(&[_, _, _, high, low]) => {
                HEADER_BYTES + usize::from(u16::from_be_bytes([high, low]))
            }
            None => HEADER_BYTES,
        }
    }

    /// Adds bytes, and returns the record if that makes it whole.
    fn push(&mut self, input: &[u8]) -> Result<Option<Vec<u8>>, EntryError> {
        assert!(
            input.len() <= self.wanted_bytes(),
            "no more than was wanted"
        );
        self.bytes.extend_from_slice(input);
        let whole = self.whole_bytes();
        if self.bytes.len() < HEADER_BYTES {
            return Ok(None);
        }
        if whole == HEADER_BYTES || whole > HEADER_BYTES + RECORD_MAX_BYTES {
            return Err(EntryError::Record);
        }
        Ok((self.bytes.len() == whole).then(|| std::mem::take(&mut self.bytes)))
    }
}

#[cfg(test)]
mod tests;
