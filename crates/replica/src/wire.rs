//! What nodes send each other, as bytes.
//!
//! Read first: `docs/design/0029-replication.md`, "Frames", which has the byte maps. All integers
//! are little-endian.

mod command;
mod config;
mod message;
mod packet;

pub use command::{Answer, AnswerCode, Command, CommandKind};
pub use config::{decode_config, encode_config};
pub use packet::{Hello, Packet, Ping};

use zerocopy::byteorder::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// The version of the protocol.
pub const VERSION: u16 = 1;
/// The first bytes of each frame.
pub const MAGIC: [u8; 4] = *b"RPN1";
/// The longest contents of blocks in one frame, in bytes.
pub const CONTENTS_BYTES_MAX: usize = 1 << 20;
/// The longest frame after its header, in bytes: contents and the fields before them.
pub const BODY_BYTES_MAX: usize = CONTENTS_BYTES_MAX + (4 << 10);
/// The most extents of a report.
pub const EXTENTS_MAX: usize = 4096;

/// What a frame is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum FrameKind {
    /// The first frame of a connection.
    Hello = 0x01,
    /// Regularly, with the sender's clock.
    Ping = 0x02,
    /// A primary's beacon.
    Beacon = 0x10,
    /// Grants the lease.
    BeaconAck = 0x11,
    /// What a copy holds.
    Report = 0x12,
    /// An entry of a stream.
    Entry = 0x13,
    /// The last entry that was executed.
    EntryAck = 0x14,
    /// A newer configuration.
    Newer = 0x15,
    /// A command that the primary is to execute.
    Command = 0x20,
    /// Its answer.
    Answer = 0x21,
}

impl FrameKind {
    const ALL: [Self; 10] = [
        Self::Hello,
        Self::Ping,
        Self::Beacon,
        Self::BeaconAck,
        Self::Report,
        Self::Entry,
        Self::EntryAck,
        Self::Newer,
        Self::Command,
        Self::Answer,
    ];

    fn from_byte(byte: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| *kind as u8 == byte)
    }
}

/// The header of a frame.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct FrameHeader {
    /// [`MAGIC`].
    magic: [u8; 4],
    /// Bytes that follow this header; at most [`BODY_BYTES_MAX`].
    body_bytes: U32,
    /// [`VERSION`].
    version: U16,
    /// A [`FrameKind`].
    kind: u8,
    /// Zeros.
    reserved: [u8; 5],
}

const _: () = assert!(size_of::<FrameHeader>() == 16);

/// Why bytes are no frame. The connection ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WireError {
    /// The frame does not begin with [`MAGIC`].
    #[error("a frame begins with {0:02x?} instead of \"RPN1\"")]
    Magic([u8; 4]),
    /// Another version.
    #[error("a frame has version {0} instead of {VERSION}; run the same version on all nodes")]
    Version(u16),
    /// No such kind.
    #[error("a frame has the unknown kind {0:#04x}")]
    Kind(u8),
    /// The frame is longer than allowed.
    #[error("a frame has {0} bytes; at most {BODY_BYTES_MAX} are allowed")]
    TooLong(u32),
    /// A frame ends within a field, or goes on after the last one.
    #[error("a frame of kind {kind:?} has {given} bytes, which do not end with its last field")]
    Length {
        /// Its kind.
        kind: FrameKind,
        /// Bytes after its header.
        given: usize,
    },
    /// A field has a value that the protocol does not allow.
    #[error("field {field} of a frame has the invalid value {value:#x}")]
    Field {
        /// The field.
        field: &'static str,
        /// What was received.
        value: u64,
    },
}

impl FrameHeader {
    /// Bytes of the header.
    pub const LEN_BYTES: usize = size_of::<Self>();

    /// The kind of the frame that begins with `bytes`, and the bytes after the header.
    pub fn decode(bytes: &[u8; Self::LEN_BYTES]) -> Result<(FrameKind, usize), WireError> {
        let header: Self = zerocopy::transmute!(*bytes);
        if header.magic != MAGIC {
            return Err(WireError::Magic(header.magic));
        }
        if header.version.get() != VERSION {
            return Err(WireError::Version(header.version.get()));
        }
        let kind = FrameKind::from_byte(header.kind).ok_or(WireError::Kind(header.kind))?;
        let body_bytes = header.body_bytes.get();
        if body_bytes as usize > BODY_BYTES_MAX {
            return Err(WireError::TooLong(body_bytes));
        }
        check(
            "reserved",
            header.reserved.iter().copied().map(u64::from).sum(),
            |sum| sum == 0,
        )?;
        Ok((kind, body_bytes as usize))
    }
}

/// Writes a frame: a header, then what `write_body` appends.
fn encode_frame(kind: FrameKind, out: &mut Vec<u8>, write_body: impl FnOnce(&mut Vec<u8>)) {
    let start = out.len();
    out.resize(start + FrameHeader::LEN_BYTES, 0);
    write_body(out);
    let body_bytes = out.len() - start - FrameHeader::LEN_BYTES;
    assert!(body_bytes <= BODY_BYTES_MAX, "our frames obey the limit");
    let header = FrameHeader {
        magic: MAGIC,
        body_bytes: U32::new(body_bytes as u32),
        version: U16::new(VERSION),
        kind: kind as u8,
        reserved: [0; 5],
    };
    out[start..start + FrameHeader::LEN_BYTES].copy_from_slice(header.as_bytes());
}

/// The rest of a frame's body.
#[derive(Clone, Copy)]
struct Body<'a> {
    kind: FrameKind,
    len_bytes: usize,
    rest: &'a [u8],
}

impl<'a> Body<'a> {
    fn new(kind: FrameKind, body: &'a [u8]) -> Self {
        Self {
            kind,
            len_bytes: body.len(),
            rest: body,
        }
    }

    fn wrong_length(&self) -> WireError {
        WireError::Length {
            kind: self.kind,
            given: self.len_bytes,
        }
    }

    /// The fields of the next structure.
    fn take<T: FromBytes + KnownLayout + Immutable + Unaligned>(&mut self) -> Result<T, WireError> {
        let (fields, rest) = T::read_from_prefix(self.rest).map_err(|_| self.wrong_length())?;
        self.rest = rest;
        Ok(fields)
    }

    /// All that is left, which has this many bytes.
    fn take_all(&mut self, len_bytes: u64) -> Result<&'a [u8], WireError> {
        if self.rest.len() as u64 != len_bytes {
            return Err(self.wrong_length());
        }
        Ok(std::mem::take(&mut self.rest))
    }

    /// Nothing is left.
    fn end(&self) -> Result<(), WireError> {
        if self.rest.is_empty() {
            Ok(())
        } else {
            Err(self.wrong_length())
        }
    }
}

/// `value` if it is allowed.
fn check(
    field: &'static str,
    value: u64,
    is_allowed: impl FnOnce(u64) -> bool,
) -> Result<u64, WireError> {
    if is_allowed(value) {
        Ok(value)
    } else {
        Err(WireError::Field { field, value })
    }
}

#[cfg(test)]
mod tests;
