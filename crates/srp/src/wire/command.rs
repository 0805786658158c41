//! Requests of initiators: SRP_CMD with its data buffer descriptors, SRP_TSK_MGMT, SRP_I_LOGOUT;
//! and SRP_CRED_RSP.
//!
//! Read first: SRP, "Data buffers"; SRP_CMD, SRP_TSK_MGMT.

use session::{RemoteBuffer, RemoteKey};
use zerocopy::big_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::{DESCRIPTORS_MAX, Violation};

/// What an initiator names a request by, in the initiator's own byte order.
pub type Tag = [u8; 8];

/// SRP_CMD, without what follows: an additional CDB and descriptors.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct Command {
    /// [`super::opcode::CMD`].
    pub opcode: u8,
    /// Solicited notification: bit 1 UCSOLNT, bit 2 SCSOLNT.
    pub solicited: u8,
    /// Reserved.
    pub reserved: [u8; 3],
    /// DATA-OUT (high four bits) and DATA-IN (low four bits) BUFFER DESCRIPTOR FORMAT.
    pub formats: u8,
    /// DATA-OUT BUFFER DESCRIPTOR COUNT.
    pub data_out_descriptors: u8,
    /// DATA-IN BUFFER DESCRIPTOR COUNT.
    pub data_in_descriptors: u8,
    /// TAG.
    pub tag: Tag,
    /// Reserved.
    pub reserved2: [u8; 4],
    /// LOGICAL UNIT NUMBER.
    pub lun: [u8; 8],
    /// Reserved.
    pub reserved3: u8,
    /// TASK ATTRIBUTE in bits 0 to 2: [`attribute`].
    pub task_attribute: u8,
    /// Reserved.
    pub reserved4: u8,
    /// ADDITIONAL CDB LENGTH in bits 2 to 7: words of 4 bytes.
    pub additional_cdb: u8,
    /// CDB.
    pub cdb: [u8; 16],
}

const _: () = assert!(size_of::<Command>() == 48);

/// TASK ATTRIBUTE.
pub mod attribute {
    /// HEAD OF QUEUE.
    pub const HEAD: u8 = 1;
    /// ORDERED.
    pub const ORDERED: u8 = 2;
}

/// A memory descriptor.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct Descriptor {
    /// VIRTUAL ADDRESS.
    pub address: U64,
    /// MEMORY HANDLE: an R_Key.
    pub key: U32,
    /// DATA LENGTH, bytes.
    pub len_bytes: U32,
}

const _: () = assert!(size_of::<Descriptor>() == 16);

impl Descriptor {
    /// The memory.
    pub fn buffer(&self) -> RemoteBuffer {
        RemoteBuffer {
            address: self.address.get(),
            key: RemoteKey(self.key.get()),
            len_bytes: self.len_bytes.get(),
        }
    }

    /// The descriptor of some memory.
    pub fn of(buffer: RemoteBuffer) -> Self {
        Self {
            address: U64::new(buffer.address),
            key: U32::new(buffer.key.0),
            len_bytes: U32::new(buffer.len_bytes),
        }
    }
}

/// An indirect data buffer descriptor, without the partial memory descriptor list
/// that follows.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct IndirectTable {
    /// INDIRECT TABLE MEMORY DESCRIPTOR: where the whole table is.
    pub table: Descriptor,
    /// TOTAL LENGTH of the data, bytes.
    pub len_bytes: U32,
}

const _: () = assert!(size_of::<IndirectTable>() == 20);

/// Which way data move.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// To the initiator.
    In,
    /// From the initiator.
    Out,
}

impl Direction {
    /// The field of both formats, for data of this direction alone.
    pub const fn formats(self, format: u8) -> u8 {
        match self {
            Self::In => format,
            Self::Out => format << 4,
        }
    }
}

/// Where the data of a command are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Data<'a> {
    /// It has none.
    None,
    /// In the initiator's memory.
    Memory {
        /// Which way they move.
        direction: Direction,
        /// The first descriptors, or all.
        descriptors: &'a [Descriptor],
        /// The rest of the table, if the message does not hold all of it.
        table: Option<RemoteBuffer>,
        /// Their length.
        len_bytes: u32,
    },
    /// Data-out in the message itself (SRP-2).
    Immediate(&'a [u8]),
}

/// An SRP_CMD.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request<'a> {
    /// Its fixed part.
    pub command: &'a Command,
    /// Where its data are.
    pub data: Data<'a>,
}

/// DATA-OUT and DATA-IN BUFFER DESCRIPTOR FORMAT.
pub mod data_format {
    /// No data.
    pub const NONE: u8 = 0;
    /// One memory descriptor.
    pub const DIRECT: u8 = 1;
    /// A table of memory descriptors.
    pub const INDIRECT: u8 = 2;
    /// The data are in the message (SRP-2).
    pub const IMMEDIATE: u8 = 3;
}

/// Parses an SRP_CMD. `immediate_offset` is where immediate data begin, if they were agreed on.
///
/// # Errors
/// If it is none, or supports another use of buffers than this target does.
pub fn parse_command(
    message: &[u8],
    immediate_offset: Option<u16>,
) -> Result<Request<'_>, Violation> {
    let truncated = Violation::Length(message.len());
    let (command, rest) = Command::ref_from_prefix(message).map_err(|_| truncated)?;
    let additional_bytes = usize::from(command.additional_cdb & !3);
    let rest = rest.get(additional_bytes..).ok_or(truncated)?;
    let (direction, format, count) = match (command.formats >> 4, command.formats & 0xF) {
        (data_format::NONE, data_format::NONE) => {
            return Ok(Request {
                command,
                data: Data::None,
            });
        }
        (format, data_format::NONE) => (Direction::Out, format, command.data_out_descriptors),
        (data_format::NONE, format) => (Direction::In, format, command.data_in_descriptors),
        _ => return Err(Violation::Format(command.formats)),
    };
    let data = match (format, immediate_offset) {
        (data_format::DIRECT, _) => {
            let (descriptors, _) =
                <[Descriptor]>::ref_from_prefix_with_elems(rest, 1).map_err(|_| truncated)?;
            Data::Memory {
                direction,
                descriptors,
                table: None,
                len_bytes: descriptors[0].len_bytes.get(),
            }
        }
        (data_format::INDIRECT, _) => parse_indirect(rest, direction, count, truncated)?,
        (data_format::IMMEDIATE, Some(offset)) if direction == Direction::Out => {
            let (len, _) = U32::ref_from_prefix(rest).map_err(|_| truncated)?;
            let begin_min = size_of::<Command>() + additional_bytes + size_of::<U32>();
            let offset = usize::from(offset);
            if offset < begin_min {
                return Err(Violation::Table);
            }
            let data = message.get(offset..).unwrap_or_default();
            Data::Immediate(data.get(..len.get() as usize).ok_or(truncated)?)
        }
        _ => return Err(Violation::Format(command.formats)),
    };
    Ok(Request { command, data })
}

fn parse_indirect(
    rest: &[u8],
    direction: Direction,
    count: u8,
    truncated: Violation,
) -> Result<Data<'_>, Violation> {
    const DESCRIPTOR_BYTES: u32 = size_of::<Descriptor>() as u32;
    let (header, rest) = IndirectTable::ref_from_prefix(rest).map_err(|_| truncated)?;
    let table = header.table.buffer();
    let all = table.len_bytes / DESCRIPTOR_BYTES;
    let listed = u32::from(count).min(all);
    if table.len_bytes % DESCRIPTOR_BYTES != 0 || all > DESCRIPTORS_MAX {
        return Err(Violation::Table);
    }
    let (descriptors, _) =
        <[Descriptor]>::ref_from_prefix_with_elems(rest, listed as usize).map_err(|_| truncated)?;
    let table = if listed < all {
        let left_bytes = table.len_bytes - listed * DESCRIPTOR_BYTES;
        let left = table.piece(listed * DESCRIPTOR_BYTES, left_bytes);
        Some(left.ok_or(Violation::Table)?)
    } else {
        None
    };
    Ok(Data::Memory {
        direction,
        descriptors,
        table,
        len_bytes: header.len_bytes.get(),
    })
}

/// SRP_TSK_MGMT.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct ManagementRequest {
    /// [`super::opcode::TSK_MGMT`].
    pub opcode: u8,
    /// Solicited notification, as in SRP_CMD.
    pub solicited: u8,
    /// Reserved.
    pub reserved: [u8; 6],
    /// TAG.
    pub tag: Tag,
    /// Reserved.
    pub reserved2: [u8; 4],
    /// LOGICAL UNIT NUMBER.
    pub lun: [u8; 8],
    /// Reserved.
    pub reserved3: [u8; 2],
    /// TASK MANAGEMENT FUNCTION: [`function`].
    pub function: u8,
    /// Reserved.
    pub reserved4: u8,
    /// TAG OF TASK TO BE MANAGED (ABORT TASK).
    pub task_tag: Tag,
    /// Reserved.
    pub reserved5: [u8; 8],
}

const _: () = assert!(size_of::<ManagementRequest>() == 48);

impl ManagementRequest {
    /// The request of a message.
    ///
    /// # Errors
    /// If the message is shorter.
    pub fn parse(message: &[u8]) -> Result<&Self, Violation> {
        let parsed = Self::ref_from_prefix(message);
        let (request, _) = parsed.map_err(|_| Violation::Length(message.len()))?;
        Ok(request)
    }
}

/// TASK MANAGEMENT FUNCTION.
pub mod function {
    /// ABORT TASK.
    pub const ABORT_TASK: u8 = 0x01;
    /// ABORT TASK SET.
    pub const ABORT_TASK_SET: u8 = 0x02;
    /// CLEAR TASK SET.
    pub const CLEAR_TASK_SET: u8 = 0x04;
    /// LOGICAL UNIT RESET.
    pub const LUN_RESET: u8 = 0x08;
}

/// SRP_CRED_RSP.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct CreditResponse {
    /// [`super::opcode::CRED_RSP`].
    pub opcode: u8,
    /// Reserved.
    pub reserved: [u8; 7],
    /// TAG of the SRP_CRED_REQ. The target has one unanswered at most, and does not check it.
    pub tag: Tag,
}

const _: () = assert!(size_of::<CreditResponse>() == 16);

impl CreditResponse {
    /// Checks the length of a message.
    ///
    /// # Errors
    /// If the message is shorter.
    pub fn parse(message: &[u8]) -> Result<&Self, Violation> {
        let parsed = Self::ref_from_prefix(message);
        let (response, _) = parsed.map_err(|_| Violation::Length(message.len()))?;
        Ok(response)
    }
}

/// SRP_I_LOGOUT.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct LogoutRequest {
    /// [`super::opcode::I_LOGOUT`].
    pub opcode: u8,
    /// Reserved.
    pub reserved: [u8; 7],
    /// TAG.
    pub tag: Tag,
}

const _: () = assert!(size_of::<LogoutRequest>() == 16);
