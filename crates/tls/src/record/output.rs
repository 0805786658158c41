//! Memory for records that are sent: filled by the caller, encrypted in place, given back when the
//! socket has taken them.

use super::{CONTENTS_MAX_BYTES, HEADER_BYTES, OVERHEAD_BYTES};

/// The longest record of ours.
const RECORD_BYTES: usize = CONTENTS_MAX_BYTES + OVERHEAD_BYTES;
/// Records that are filled at once.
const RECORDS_MAX: usize = 4;
/// A record that asks for another key.
const UPDATE_BYTES: usize = OVERHEAD_BYTES + 5;
/// Memory kept for the next connection whose socket takes no more.
const SPARES_MAX: usize = 4;

/// Records that are being filled. The caller puts at most [`Output::CONTENTS_MAX_BYTES`] into them.
#[derive(Default)]
pub struct Output {
    /// Empty before the first use. It is never cleared, since that would cost as much as a copy:
    /// what lies behind `filled` was sent, encrypted, by some connection.
    bytes: Vec<u8>,
    filled: usize,
    /// Where the record that is being filled begins.
    start: usize,
    spares: Vec<Vec<u8>>,
}

/// Encrypted records that the socket has not taken yet.
#[derive(Default)]
pub struct Sealed {
    bytes: Vec<u8>,
    sent: usize,
    end: usize,
}

impl Output {
    /// The most contents at once. What a peer does not read is kept, so it is not much, but it is
    /// enough for a system call to cost little beside encryption.
    pub const CONTENTS_MAX_BYTES: usize = RECORDS_MAX * CONTENTS_MAX_BYTES;
    /// The memory of [`Sealed`] records, in bytes.
    pub const SEALED_MAX_BYTES: usize = RECORDS_MAX * RECORD_BYTES + UPDATE_BYTES;

    /// Whether nothing was put into it.
    pub fn is_empty(&self) -> bool {
        self.filled == 0
    }

    /// Room for up to `len_bytes` bytes of contents, for the caller to fill at once: as many as fit
    /// into the record that is being filled. What it holds before is of no meaning.
    pub fn room(&mut self, len_bytes: usize) -> &mut [u8] {
        if self.filled == 0 {
            self.begin_record();
        }
        let mut contents = self.filled - self.start - HEADER_BYTES;
        if contents == CONTENTS_MAX_BYTES {
            self.end_record();
            self.begin_record();
            contents = 0;
        }
        let at = self.filled;
        self.filled += len_bytes.min(CONTENTS_MAX_BYTES - contents);
        &mut self.bytes[at..self.filled]
    }

    /// Puts a copy of `bytes` into it.
    pub fn push(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let room = self.room(bytes.len());
            let (head, rest) = bytes.split_at(room.len());
            room.copy_from_slice(head);
            bytes = rest;
        }
    }

    /// Takes memory back.
    pub fn reuse(&mut self, sealed: Sealed) {
        if sealed.bytes.len() < Self::SEALED_MAX_BYTES {
            return;
        }
        if self.bytes.is_empty() {
            self.bytes = sealed.bytes;
        } else if self.spares.len() < SPARES_MAX {
            self.spares.push(sealed.bytes);
        }
    }

    /// Gives the records away, to be encrypted.
    pub(super) fn take(&mut self) -> Sealed {
        if self.filled == 0 {
            return Sealed::default();
        }
        self.end_record();
        self.start = 0;
        let spare = self.spares.pop().unwrap_or_default();
        Sealed {
            bytes: std::mem::replace(&mut self.bytes, spare),
            sent: 0,
            end: std::mem::take(&mut self.filled),
        }
    }

    fn begin_record(&mut self) {
        if self.bytes.is_empty() {
            self.bytes = vec![0; Self::SEALED_MAX_BYTES];
        }
        self.start = self.filled;
        self.filled += HEADER_BYTES;
    }

    /// Room for the type and the tag of the record that is being filled.
    fn end_record(&mut self) {
        self.filled += OVERHEAD_BYTES - HEADER_BYTES;
    }
}

impl Sealed {
    /// Whether the socket has taken all.
    pub fn is_empty(&self) -> bool {
        self.sent == self.end
    }

    /// What the socket has not taken.
    pub fn unsent(&self) -> &[u8] {
        &self.bytes[self.sent..self.end]
    }

    /// The socket has taken `len_bytes` more.
    pub fn consume(&mut self, len_bytes: usize) {
        assert!(
            len_bytes <= self.end - self.sent,
            "no more than there was is sent"
        );
        self.sent += len_bytes;
    }

    /// The records that are to be encrypted, each with room for the type and the tag.
    pub(super) fn records_mut(&mut self) -> impl Iterator<Item = &mut [u8]> {
        self.bytes[..self.end].chunks_mut(RECORD_BYTES)
    }

    /// Adds a record that is encrypted already.
    pub(super) fn push(&mut self, record: &[u8]) {
        let len = self.bytes.len().max(self.end + record.len());
        self.bytes.resize(len, 0);
        let at = self.end;
        self.end += record.len();
        self.bytes[at..self.end].copy_from_slice(record);
    }
}

impl std::fmt::Debug for Output {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Output")
    }
}

impl std::fmt::Debug for Sealed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Sealed")
    }
}
