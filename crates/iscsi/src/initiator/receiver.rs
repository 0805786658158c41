//! The PDU that is arriving, as far as it has arrived.

use session::BufferRange;

use super::table::BULK_MIN_BYTES;
use crate::params::Digest;
use crate::wire::{BHS_LEN, Bhs, DIGEST_LEN};

/// The most bytes that are kept of a header that has not fully arrived.
const STASH_BYTES: usize = BHS_LEN + DIGEST_LEN;
/// Padding and digest behind a data segment.
pub(super) const TRAILER_BYTES: usize = 3 + DIGEST_LEN;

/// The PDU that is arriving.
#[derive(Debug)]
pub(super) struct Inbound {
    pub(super) stash: [u8; STASH_BYTES],
    pub(super) stash_len: usize,
    pub(super) segment: Option<Segment>,
    /// Data segments that belong to no command's buffer.
    pub(super) gathered: Vec<u8>,
}

/// A data segment that is arriving.
#[derive(Debug)]
pub(super) struct Segment {
    /// The header of its PDU.
    pub(super) bhs: Bhs,
    pub(super) sink: Sink,
    /// How much of the data is missing.
    pub(super) left_bytes: usize,
    pub(super) crc: u32,
    pub(super) trailer: [u8; TRAILER_BYTES],
    pub(super) trailer_len: usize,
    /// Length of padding and digest.
    pub(super) trailer_bytes: usize,
}

/// Where a data segment goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sink {
    /// Into a command's buffer. `dest` is the place of the rest.
    Place { key: u16, dest: BufferRange },
    /// It is kept, up to `max_bytes`.
    Gather { max_bytes: usize },
}

impl Default for Inbound {
    fn default() -> Self {
        Self {
            stash: [0; STASH_BYTES],
            stash_len: 0,
            segment: None,
            gathered: Vec::new(),
        }
    }
}

impl Inbound {
    pub(super) fn in_segment(&self) -> bool {
        self.segment.is_some()
    }

    pub(super) fn direct(&self) -> Option<BufferRange> {
        match self.segment.as_ref()?.sink {
            Sink::Place { dest, .. } if dest.len_bytes >= BULK_MIN_BYTES / 4 => Some(dest),
            _ => None,
        }
    }
}

impl Segment {
    /// `data` have been put in their place.
    pub(super) fn take(&mut self, data: &[u8], digest: Digest) {
        if digest == Digest::Crc32c {
            self.crc = crc32c::crc32c_append(self.crc, data);
        }
        self.left_bytes -= data.len();
        if let Sink::Place { dest, .. } = &mut self.sink {
            dest.offset += data.len() as u32;
            dest.len_bytes -= data.len() as u32;
        }
    }

    /// Whether the data digest, which covers the padding, is right.
    pub(super) fn is_sound(&self, digest: Digest) -> bool {
        if digest == Digest::None {
            return true;
        }
        let trailer = &self.trailer[..self.trailer_bytes];
        let (padding, came) = trailer.split_at(trailer.len() - DIGEST_LEN);
        crc32c::crc32c_append(self.crc, padding).to_le_bytes() == came
    }
}
