//! Whether a connection is plain, encrypted, or not decided yet, and bytes for its socket that are
//! encrypted already.

use std::io;
use std::os::fd::BorrowedFd;

use rustix::io::Errno;
use rustix::net::SendFlags;
use tls::{Entry, Output, Records, Sealed};

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

/// Bytes for a socket, as they are sent.
#[derive(Default)]
pub(crate) struct Outbox {
    /// Of handshakes and the farewell; they are sent first.
    messages: Vec<u8>,
    sent: usize,
    records: Sealed,
}

impl Outbox {
    /// The most bytes of records that are kept while the socket takes none.
    pub(crate) const MAX_BYTES: usize = Output::SEALED_MAX_BYTES;

    pub(crate) fn is_empty(&self) -> bool {
        self.messages.is_empty() && self.records.is_empty()
    }

    /// Where messages may be added.
    pub(crate) fn messages_mut(&mut self) -> &mut Vec<u8> {
        &mut self.messages
    }

    /// Adds records, where it has none.
    pub(crate) fn put(&mut self, records: Sealed) {
        assert!(self.records.is_empty(), "what was not sent is kept");
        self.records = records;
    }

    /// Sends as much as the socket takes. Returns the number of bytes, and whether it takes no
    /// more.
    pub(crate) fn send(&mut self, socket: BorrowedFd<'_>) -> io::Result<(u64, bool)> {
        let mut total = 0;
        loop {
            let message = &self.messages[self.sent..];
            let unsent = if message.is_empty() {
                self.records.unsent()
            } else {
                message
            };
            if unsent.is_empty() {
                break;
            }
            let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
            match rustix::net::send(socket, unsent, flags) {
                Ok(sent) => {
                    self.consume(sent);
                    total += sent as u64;
                }
                Err(Errno::AGAIN) => return Ok((total, true)),
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        self.messages.clear();
        self.sent = 0;
        Ok((total, false))
    }

    fn consume(&mut self, sent: usize) {
        if self.sent < self.messages.len() {
            self.sent += sent;
        } else {
            self.records.consume(sent);
        }
    }

    /// Gives the memory of records away, which were sent.
    pub(crate) fn take_records(&mut self) -> Sealed {
        assert!(self.records.is_empty(), "what was not sent is kept");
        std::mem::take(&mut self.records)
    }
}
