//! Commands of hosts that a node passes on to the primary of a volume, and their answers.

use block::{BlockSize, Extent, Lba};
use zerocopy::byteorder::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::message::{
    ExtentFields, check_shift, check_zero, shift_of, take_contents, time_fields, time_of,
};
use super::{Body, CONTENTS_BYTES_MAX, FrameKind, WireError, check, encode_frame};
use crate::contents::Contents;
use crate::ids::LocalTime;

/// A command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Command {
    /// Chosen by the sender, unique among its commands in flight.
    pub id: u64,
    /// The volume.
    pub volume: u64,
    /// The receiver's clock, as its last ping showed it. A command that took too long is rejected.
    pub heard_at: LocalTime,
    /// Block size that the sender assumes.
    pub block_size: BlockSize,
    /// Its blocks; of a copy, the source.
    pub extent: Extent,
    /// What is to be done with them.
    pub kind: CommandKind,
}

/// What a command does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CommandKind {
    /// Read; the answer has the contents.
    Read,
    /// Write these contents.
    Write(Contents),
    /// Copy to the extent that begins here.
    Copy(Lba),
}

/// The answer to a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The command's.
    pub id: u64,
    /// The volume.
    pub volume: u64,
    /// What has become of it.
    pub code: AnswerCode,
    /// What was read.
    pub contents: Option<Contents>,
}

/// What has become of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AnswerCode {
    /// It was executed, and every member in sync has its effects.
    Done,
    /// It was not executed: the receiver is not primary, or not ready, or has no place. It may be
    /// sent again.
    NotExecuted,
    /// It was executed, but the receiver is no longer primary: nobody knows whether its effects
    /// last.
    Unknown,
    /// Its blocks or its length are not valid for the volume.
    Invalid,
    /// No memory is left.
    Full,
}

/// A command; contents follow.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct CommandFields {
    /// The command's number.
    id: U64,
    /// The volume.
    volume: U64,
    /// In nanoseconds of the receiver's clock.
    heard_at: U64,
    /// 1: read; 2: write; 3: copy.
    kind: U32,
    /// log2 of the bytes of a block: 9 or 12.
    block_shift: u8,
    /// Of a write: 0: zeros; 1: bytes follow.
    has_bytes: u8,
    /// Zeros.
    reserved: [u8; 2],
    /// The blocks.
    extent: ExtentFields,
    /// Of a copy: the first block of the destination.
    to: U64,
}

/// An answer; contents follow if `blocks` is not 0 and `has_bytes` is 1.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct AnswerFields {
    /// The command's number.
    id: U64,
    /// The volume.
    volume: U64,
    /// Blocks that were read; 0: none.
    blocks: U64,
    /// 0: done; 1: not executed; 2: unknown; 3: invalid; 4: full.
    code: U32,
    /// log2 of the bytes of a block; 0 without contents.
    block_shift: u8,
    /// 0: zeros; 1: bytes follow.
    has_bytes: u8,
    /// Zeros.
    reserved: [u8; 2],
}

const _: () = assert!(size_of::<CommandFields>() == 56);
const _: () = assert!(size_of::<AnswerFields>() == 32);

impl Command {
    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        let (kind, has_bytes, to) = match &self.kind {
            CommandKind::Read => (1, 0, 0),
            CommandKind::Write(contents) => (2, contents.bytes().is_some().into(), 0),
            CommandKind::Copy(to) => (3, 0, to.0),
        };
        let fields = CommandFields {
            id: U64::new(self.id),
            volume: U64::new(self.volume),
            heard_at: time_fields(self.heard_at),
            kind: U32::new(kind),
            block_shift: shift_of(self.block_size),
            has_bytes,
            reserved: [0; 2],
            extent: self.extent.into(),
            to: U64::new(to),
        };
        encode_frame(FrameKind::Command, out, |out| {
            out.extend_from_slice(fields.as_bytes());
            if let CommandKind::Write(contents) = &self.kind {
                out.extend_from_slice(contents.bytes().unwrap_or_default());
            }
        });
    }

    pub(super) fn decode(mut body: Body<'_>) -> Result<Self, WireError> {
        let fields: CommandFields = body.take()?;
        check_zero(&fields.reserved)?;
        let block_size = check_shift(fields.block_shift)?;
        let extent = fields.extent.check()?;
        let blocks_max = (CONTENTS_BYTES_MAX as u64) >> block_size.shift();
        let kind = match fields.kind.get() {
            1 => {
                check("command blocks", extent.blocks.0, |blocks| {
                    blocks <= blocks_max
                })?;
                CommandKind::Read
            }
            2 => {
                let contents = take_contents(&mut body, block_size, extent, fields.has_bytes)?;
                CommandKind::Write(contents)
            }
            3 => CommandKind::Copy(Lba(fields.to.get())),
            kind => {
                let (field, value) = ("command kind", kind.into());
                return Err(WireError::Field { field, value });
            }
        };
        body.end()?;
        Ok(Self {
            id: fields.id.get(),
            volume: fields.volume.get(),
            heard_at: time_of(fields.heard_at),
            block_size,
            extent,
            kind,
        })
    }
}

impl Answer {
    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        let code = match self.code {
            AnswerCode::Done => 0,
            AnswerCode::NotExecuted => 1,
            AnswerCode::Unknown => 2,
            AnswerCode::Invalid => 3,
            AnswerCode::Full => 4,
        };
        let contents = self.contents.as_ref();
        let bytes = contents.and_then(Contents::bytes);
        let fields = AnswerFields {
            id: U64::new(self.id),
            volume: U64::new(self.volume),
            blocks: U64::new(contents.map_or(0, Contents::blocks)),
            code: U32::new(code),
            block_shift: contents.map_or(0, |contents| shift_of(contents.block_size())),
            has_bytes: bytes.is_some().into(),
            reserved: [0; 2],
        };
        encode_frame(FrameKind::Answer, out, |out| {
            out.extend_from_slice(fields.as_bytes());
            out.extend_from_slice(bytes.unwrap_or_default());
        });
    }

    pub(super) fn decode(mut body: Body<'_>) -> Result<Self, WireError> {
        let fields: AnswerFields = body.take()?;
        check_zero(&fields.reserved)?;
        let code = match fields.code.get() {
            0 => AnswerCode::Done,
            1 => AnswerCode::NotExecuted,
            2 => AnswerCode::Unknown,
            3 => AnswerCode::Invalid,
            4 => AnswerCode::Full,
            code => {
                let (field, value) = ("answer code", code.into());
                return Err(WireError::Field { field, value });
            }
        };
        let mut contents = None;
        if fields.blocks.get() > 0 {
            let block_size = check_shift(fields.block_shift)?;
            let blocks_max = (CONTENTS_BYTES_MAX as u64) >> block_size.shift();
            let blocks = check("answer blocks", fields.blocks.get(), |n| n <= blocks_max)?;
            let extent = Extent::new(Lba(0), block::Blocks(blocks));
            let taken = take_contents(&mut body, block_size, extent, fields.has_bytes)?;
            contents = Some(taken);
        }
        body.end()?;
        Ok(Self {
            id: fields.id.get(),
            volume: fields.volume.get(),
            code,
            contents,
        })
    }
}
