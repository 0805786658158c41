//! Whether a connection is plain, encrypted, or not decided yet, and bytes for its socket that are
//! encrypted already.

use std::io;
use std::os::fd::BorrowedFd;

use rustix::io::Errno;
use rustix::net::SendFlags;
use tls::{Entry, Output, Records};

/// How the bytes of a socket become those of a session.
pub(crate) enum Channel {
    /// They are the same.
    Plain,
    /// The first bytes decide.
    Entering(Box<Entry>),
    /// They are in records.
    Secured(Box<Records>),
}

impl Channel {
    /// What a new connection has, whose acceptor has this to decide.
    pub(crate) fn new(entry: Option<Entry>) -> Self {
        entry.map_or(Self::Plain, |entry| Self::Entering(Box::new(entry)))
    }

    /// Whether the session has begun.
    pub(crate) fn is_open(&self) -> bool {
        !matches!(self, Self::Entering(_))
    }

    /// The most bytes to receive, where the session takes `turn_bytes`.
    pub(crate) fn turn_bytes(&self, turn_bytes: usize) -> usize {
        match self {
            Self::Plain => turn_bytes,
            Self::Entering(entry) => entry.wanted_bytes(),
            // Less than a record gives the session nothing.
            Self::Secured(_) if turn_bytes > 0 => turn_bytes.max(Records::RECORD_MAX_BYTES),
            Self::Secured(_) => 0,
        }
    }
}

/// Bytes for a socket, as they are sent: handshakes and records.
#[derive(Default)]
pub(crate) struct Outbox {
    bytes: Vec<u8>,
    sent: usize,
}

impl Outbox {
    /// The most bytes of records that are kept while the socket takes none.
    pub(crate) const MAX_BYTES: usize = Output::SEALED_MAX_BYTES;

    pub(crate) fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Where more bytes may be added.
    pub(crate) fn bytes_mut(&mut self) -> &mut Vec<u8> {
        &mut self.bytes
    }

    /// Sends as much as the socket takes. Returns the number of bytes, and whether it takes no more.
    pub(crate) fn send(&mut self, socket: BorrowedFd<'_>) -> io::Result<(u64, bool)> {
        let mut total = 0;
        while self.sent < self.bytes.len() {
            let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
            match rustix::net::send(socket, &self.bytes[self.sent..], flags) {
                Ok(sent) => {
                    self.sent += sent;
                    total += sent as u64;
                }
                Err(Errno::AGAIN) => return Ok((total, true)),
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        self.bytes.clear();
        self.sent = 0;
        Ok((total, false))
    }

    /// Gives the memory of an empty box away.
    pub(crate) fn take_memory(&mut self) -> Vec<u8> {
        assert!(self.is_empty(), "what was not sent is kept");
        std::mem::take(&mut self.bytes)
    }
}
