//! What a client offers in its first message, and the proof that it has one of our keys.
//!
//! The proof (the binder) is checked here, before OpenSSL gets the message: strangers never reach a
//! library in C, nor do they make it allocate. It also tells which key a host uses where several
//! have the same identity: two while a key is being changed, and the two derivations.
//!
//! Read first: RFC 8446, 4.1.2 "Client Hello", 4.2.11 "Pre-Shared Key Extension".

use crate::key::Psk;
use crate::record::HEADER_BYTES;

/// A client's first message, which offers pre-shared keys.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct ClientHello<'a> {
    /// Up to the binders: what they sign.
    signed: &'a [u8],
    identities: &'a [u8],
    binders: &'a [u8],
}

/// Why a message offers no pre-shared key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ClientHelloError {
    /// It is no ClientHello, or its lengths contradict each other.
    #[error("the first message is not a valid ClientHello")]
    Malformed,
    /// It wants to prove itself by a certificate, or not at all.
    #[error("the host offered no pre-shared key; connect with `nvme connect --tls`")]
    NoKey,
}

/// Handshake type of ClientHello.
const CLIENT_HELLO: u8 = 1;
/// Extension type of pre_shared_key.
const PRE_SHARED_KEY: u16 = 41;
/// The most identities that are looked at. Linux's host sends one.
const OFFERS_MAX: usize = 8;

impl<'a> ClientHello<'a> {
    /// Parses a whole record.
    pub(crate) fn parse(record: &'a [u8]) -> Result<Self, ClientHelloError> {
        let message = record
            .get(HEADER_BYTES..)
            .ok_or(ClientHelloError::Malformed)?;
        let extension = pre_shared_key(message)
            .ok_or(ClientHelloError::Malformed)?
            .ok_or(ClientHelloError::NoKey)?;
        let (identities, binders) = parts(extension).ok_or(ClientHelloError::Malformed)?;
        // The extension is the last one, and the list of binders is the last part of it.
        let signed_bytes = message.len() - (2 + binders.len());
        Ok(Self {
            signed: &message[..signed_bytes],
            identities,
            binders,
        })
    }

    /// The identities, each with its binder.
    pub(crate) fn offers(&self) -> impl Iterator<Item = (&'a [u8], &'a [u8])> {
        let (mut identities, mut binders) = (Input(self.identities), Input(self.binders));
        std::iter::from_fn(move || {
            let identity = identities.vector16()?;
            // The age of a ticket.
            identities.take(4)?;
            Some((identity, binders.vector8()?))
        })
        .take(OFFERS_MAX)
    }

    /// Whether `binder` proves that the client has the key.
    pub(crate) fn proves(&self, psk: &Psk, binder: &[u8]) -> bool {
        let suite = psk.suite;
        let len = suite.hash_bytes();
        let early = suite.extract(&psk.secret);
        let nothing = suite.digest(&[]);
        let key = suite.expand_label(&early, "ext binder", nothing.as_ref(), len);
        let finished = suite.expand_label(&key, "finished", &[], len);
        suite.verifies(&finished, suite.digest(self.signed).as_ref(), binder)
    }
}

/// The contents of the extension; the outer `None` for an invalid message, the inner one if it has
/// no such extension.
#[expect(
    clippy::option_option,
    reason = "two outcomes that callers name differently"
)]
fn pre_shared_key(message: &[u8]) -> Option<Option<&[u8]>> {
    let mut input = Input(message);
    let kind = input.take(4)?;
    let len = u32::from_be_bytes([0, kind[1], kind[2], kind[3]]) as usize;
    if kind[0] != CLIENT_HELLO || len != input.0.len() {
        return None;
    }
    // Version and random number, session ID, suites, compression.
    input.take(2 + 32)?;
    input.vector8()?;
    input.vector16()?;
    input.vector8()?;
    let mut extensions = Input(input.vector16()?);
    if !input.0.is_empty() {
        return None;
    }
    while !extensions.0.is_empty() {
        let kind = extensions.number()?;
        let contents = extensions.vector16()?;
        if kind == PRE_SHARED_KEY {
            return extensions.0.is_empty().then_some(Some(contents));
        }
    }
    Some(None)
}

/// Identities and binders.
fn parts(extension: &[u8]) -> Option<(&[u8], &[u8])> {
    let mut input = Input(extension);
    let parts = (input.vector16()?, input.vector16()?);
    input.0.is_empty().then_some(parts)
}

/// Bytes that are left to read.
struct Input<'a>(&'a [u8]);

impl<'a> Input<'a> {
    fn take(&mut self, len: usize) -> Option<&'a [u8]> {
        let (head, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(head)
    }

    fn number(&mut self) -> Option<u16> {
        let bytes = self.take(2)?;
        Some(u16::from_be_bytes([bytes[0], bytes[1]]))
    }

    /// Bytes after their length in one byte.
    fn vector8(&mut self) -> Option<&'a [u8]> {
        let len = self.take(1)?[0];
        self.take(usize::from(len))
    }

    /// Bytes after their length in two bytes.
    fn vector16(&mut self) -> Option<&'a [u8]> {
        let len = self.number()?;
        self.take(usize::from(len))
    }
}
