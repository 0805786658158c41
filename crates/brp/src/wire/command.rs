//! COMMAND, and the descriptors behind it.

use block::{Blocks, Extent, Lba};
use session::{RemoteBuffer, RemoteKey};
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::Kind;

/// What a command does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Operation {
    /// Blocks go to the host.
    Read = 1,
    /// Blocks come from the host.
    Write = 2,
    /// What was answered becomes durable.
    Flush = 3,
    /// Blocks read as zeros.
    WriteZeroes = 4,
    /// The memory of blocks is freed.
    Discard = 5,
    /// Blocks are compared and, if equal, written.
    CompareAndWrite = 6,
}

impl Operation {
    /// The operation of a byte. `None` if it is not known.
    pub const fn from_byte(byte: u8) -> Option<Self> {
        Some(match byte {
            1 => Self::Read,
            2 => Self::Write,
            3 => Self::Flush,
            4 => Self::WriteZeroes,
            5 => Self::Discard,
            6 => Self::CompareAndWrite,
            _ => return None,
        })
    }
}

/// Flags of a command.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flags(pub u16);

impl Flags {
    /// Force Unit Access: the effects are on stable storage when the reply is sent.
    pub const FUA: Self = Self(1);
    /// Zeroed blocks stay allocated.
    pub const KEEP: Self = Self(1 << 1);
    /// The reply may invalidate the key of the only descriptor.
    pub const INVALIDATE: Self = Self(1 << 2);

    /// Whether all bits of `other` are set.
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }
}

/// A command, 32 bytes; descriptors and data follow.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct Command {
    /// [`Kind::Command`].
    pub kind: u8,
    /// The operation as it came.
    pub operation: u8,
    /// The flags.
    pub flags: U16,
    /// The tag.
    pub tag: U16,
    /// How many descriptors follow (RDMA); 0 over TCP.
    pub descriptors: U16,
    /// The first block.
    pub lba: U64,
    /// How many blocks; 1's based.
    pub blocks: U32,
    /// Length of the data inside the command, in bytes.
    pub data_bytes: U32,
    /// The sequence number of the tag's command.
    pub sequence: U32,
    /// Reserved.
    pub reserved: U32,
}

const _: () = assert!(size_of::<Command>() == 32);
const _: () = assert!(std::mem::offset_of!(Command, lba) == 8);
const _: () = assert!(std::mem::offset_of!(Command, sequence) == 24);

impl Command {
    /// A command on `extent`, whose tag, sequence number and data are filled in when it is sent.
    pub fn new(operation: Operation, flags: Flags, extent: Extent) -> Self {
        Self {
            kind: Kind::Command as u8,
            operation: operation as u8,
            flags: U16::new(flags.0),
            tag: U16::ZERO,
            descriptors: U16::ZERO,
            lba: U64::new(extent.lba.0),
            blocks: U32::new(extent.blocks.0 as u32),
            data_bytes: U32::ZERO,
            sequence: U32::ZERO,
            reserved: U32::ZERO,
        }
    }

    /// The blocks.
    pub fn extent(&self) -> Extent {
        Extent::new(Lba(self.lba.get()), Blocks(u64::from(self.blocks.get())))
    }

    /// The flags.
    pub fn flags(&self) -> Flags {
        Flags(self.flags.get())
    }
}

/// Memory of the host, 16 bytes (RDMA).
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct Descriptor {
    /// The address of the first byte.
    pub address: U64,
    /// The key to it (R_Key).
    pub key: U32,
    /// Length in bytes.
    pub len_bytes: U32,
}

const _: () = assert!(size_of::<Descriptor>() == 16);

impl Descriptor {
    /// Of this memory.
    pub fn of(buffer: RemoteBuffer) -> Self {
        Self {
            address: U64::new(buffer.address),
            key: U32::new(buffer.key.0),
            len_bytes: U32::new(buffer.len_bytes),
        }
    }

    /// The memory.
    pub fn buffer(&self) -> RemoteBuffer {
        RemoteBuffer {
            address: self.address.get(),
            key: RemoteKey(self.key.get()),
            len_bytes: self.len_bytes.get(),
        }
    }
}
