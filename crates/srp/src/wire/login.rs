//! The login: SRP_LOGIN_REQ as the RDMA connection manager carries it, and its answers.
//!
//! Read first: SRP_LOGIN_REQ, SRP_LOGIN_RSP, SRP_LOGIN_REJ. The private data of a connection
//! request by the RDMA connection manager have 56 bytes, so initiators send the fields without the
//! reserved ones.

use std::fmt;
use std::str::FromStr;

use uuid::Uuid;
use zerocopy::big_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::{Tag, opcode};

/// A port identifier: an identifier extension and a GUID of 8 bytes each.
#[derive(
    Clone,
    Copy,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    FromBytes,
    IntoBytes,
    Immutable,
    KnownLayout,
    Unaligned,
)]
#[repr(C)]
pub struct PortId(pub [u8; 16]);

impl PortId {
    /// The identifier extension: Linux's `id_ext` of a target port, `initiator_ext` of an
    /// initiator port.
    pub fn extension(&self) -> u64 {
        (u128::from_be_bytes(self.0) >> 64) as u64
    }

    /// The GUID: Linux's `ioc_guid` of a target port.
    pub fn guid(&self) -> u64 {
        u128::from_be_bytes(self.0) as u64
    }

    /// The identifier that ramport derives from a target's name, on each machine the same.
    pub fn of_target(name: &str) -> Self {
        let name = format!("srp:{name}");
        Self(Uuid::new_v5(&Uuid::NAMESPACE_URL, name.as_bytes()).into_bytes())
    }
}

/// A text that is not a port identifier.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a port identifier is 0x and 32 hexadecimal digits")]
pub struct NotAPortId;

impl FromStr for PortId {
    type Err = NotAPortId;

    fn from_str(text: &str) -> Result<Self, NotAPortId> {
        let digits = text.strip_prefix("0x").filter(|digits| {
            digits.len() == 32 && digits.bytes().all(|byte| byte.is_ascii_hexdigit())
        });
        let number = digits.and_then(|digits| u128::from_str_radix(digits, 16).ok());
        number
            .map(|number| Self(number.to_be_bytes()))
            .ok_or(NotAPortId)
    }
}

impl fmt::Display for PortId {
    /// `0x` and 32 hexadecimal digits.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#034x}", u128::from_be_bytes(self.0))
    }
}

impl fmt::Debug for PortId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// SRP_LOGIN_REQ in the private data of an RDMA connection manager's request.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct Login {
    /// Echoed in the answer.
    pub tag: Tag,
    /// Required buffer formats, REQUIRED BUFFER FORMATS: bit 1 direct, bit 2 indirect.
    pub formats: U16,
    /// REQ_FLAGS: bits 0 and 1 are the multi-channel action, bit 7 requests immediate data.
    pub flags: u8,
    /// [`opcode::LOGIN_REQ`].
    pub opcode: u8,
    /// REQUESTED INITIATOR TO TARGET IU LENGTH: the longest message of the initiator, bytes.
    pub request_len_bytes: U32,
    /// INITIATOR PORT IDENTIFIER.
    pub initiator: PortId,
    /// TARGET PORT IDENTIFIER.
    pub target: PortId,
    /// IMMEDIATE DATA OFFSET (SRP-2): where immediate data begin in a message, bytes.
    pub immediate_offset: U16,
    /// Reserved.
    pub reserved: [u8; 6],
}

const _: () = assert!(size_of::<Login>() == LOGIN_BYTES);

/// Bytes of a login.
pub const LOGIN_BYTES: usize = 56;

/// Bits of the login's flags, and of the answer's.
pub struct ChannelFlags;

impl ChannelFlags {
    /// The login adds a channel to those of its nexus; without it, the login ends them.
    pub const MULTI: u8 = 0x01;
    /// The initiator asks for immediate data; the target supports them.
    pub const IMMEDIATE: u8 = 0x80;
    /// Channels of the nexus existed, and were ended.
    pub const ENDED: u8 = 0x01;
    /// Channels of the nexus existed, and go on.
    pub const MAINTAINED: u8 = 0x02;
}

/// Bits of REQUIRED and SUPPORTED BUFFER FORMATS.
pub mod format_bit {
    /// Direct descriptors.
    pub const DIRECT: u16 = 1 << 1;
    /// Indirect descriptors.
    pub const INDIRECT: u16 = 1 << 2;
}

/// Buffer formats that the target supports.
const FORMATS: u16 = format_bit::DIRECT | format_bit::INDIRECT;

impl Login {
    /// The login in the private data of a connection request, which may be padded; `None` if it is
    /// none.
    pub fn parse(private_data: &[u8]) -> Option<&Self> {
        let (login, _) = Self::ref_from_prefix(private_data).ok()?;
        (login.opcode == opcode::LOGIN_REQ).then_some(login)
    }

    /// Whether the channel is to be added to those of its nexus.
    pub const fn is_multi(&self) -> bool {
        self.flags & 0x03 == ChannelFlags::MULTI
    }

    /// Where immediate data begin, if the initiator sends any.
    pub fn immediate_offset(&self) -> Option<u16> {
        (self.flags & ChannelFlags::IMMEDIATE != 0).then(|| self.immediate_offset.get())
    }

    /// Whether all formats that the initiator needs are supported.
    pub fn has_known_formats(&self) -> bool {
        self.formats.get() & !FORMATS == 0
    }
}

/// SRP_LOGIN_RSP.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct LoginResponse {
    /// [`opcode::LOGIN_RSP`].
    pub opcode: u8,
    /// Reserved.
    pub reserved: [u8; 3],
    /// REQUEST LIMIT DELTA: how many requests the initiator may have in progress.
    pub request_limit: U32,
    /// Of the login.
    pub tag: Tag,
    /// MAXIMUM INITIATOR TO TARGET IU LENGTH, bytes.
    pub request_len_max_bytes: U32,
    /// MAXIMUM TARGET TO INITIATOR IU LENGTH, bytes.
    pub response_len_max_bytes: U32,
    /// SUPPORTED BUFFER FORMATS.
    pub formats: U16,
    /// MULTI-CHANNEL RESULT in bits 0 and 1; bit 7: immediate data are supported.
    pub flags: u8,
    /// Reserved.
    pub reserved2: [u8; 25],
}

const _: () = assert!(size_of::<LoginResponse>() == 52);

impl LoginResponse {
    /// The answer in the private data of a connection reply, which may be padded; `None` if it is
    /// none.
    pub fn parse(private_data: &[u8]) -> Option<&Self> {
        let (response, _) = Self::ref_from_prefix(private_data).ok()?;
        (response.opcode == opcode::LOGIN_RSP).then_some(response)
    }

    /// The answer to a login that was accepted.
    pub fn new(login: &Login, request_limit: u16, lens: [u32; 2], flags: u8) -> Self {
        let [request_len_max_bytes, response_len_max_bytes] = lens;
        Self {
            opcode: opcode::LOGIN_RSP,
            reserved: [0; 3],
            request_limit: U32::new(request_limit.into()),
            tag: login.tag,
            request_len_max_bytes: U32::new(request_len_max_bytes),
            response_len_max_bytes: U32::new(response_len_max_bytes),
            formats: U16::new(FORMATS),
            flags,
            reserved2: [0; 25],
        }
    }
}

/// Why a login is rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum RejectReason {
    /// No reason that the other codes name.
    Unspecified = 0x0001_0000,
    /// No room.
    Resources = 0x0001_0001,
    /// The initiator's messages are longer than the target receives.
    RequestLength = 0x0001_0002,
    /// The target port does not exist, or is not for this initiator.
    Association = 0x0001_0003,
    /// A descriptor format is not supported.
    Formats = 0x0001_0004,
    /// The nexus has as many channels as it may have.
    Channels = 0x0001_0006,
}

impl RejectReason {
    const ALL: [Self; 6] = [
        Self::Unspecified,
        Self::Resources,
        Self::RequestLength,
        Self::Association,
        Self::Formats,
        Self::Channels,
    ];

    /// The reason of a code; `None` if it has no name here.
    pub fn from_code(code: u32) -> Option<Self> {
        Self::ALL.into_iter().find(|reason| *reason as u32 == code)
    }
}

/// SRP_LOGIN_REJ.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct LoginReject {
    /// [`opcode::LOGIN_REJ`].
    pub opcode: u8,
    /// Reserved.
    pub reserved: [u8; 3],
    /// REASON.
    pub reason: U32,
    /// Of the login.
    pub tag: Tag,
    /// Reserved.
    pub reserved2: [u8; 8],
    /// SUPPORTED BUFFER FORMATS.
    pub formats: U16,
    /// Reserved.
    pub reserved3: [u8; 6],
}

const _: () = assert!(size_of::<LoginReject>() == 32);

impl LoginReject {
    /// The answer in the private data of a rejected connection, which may be padded; `None` if it
    /// is none.
    pub fn parse(private_data: &[u8]) -> Option<&Self> {
        let (reject, _) = Self::ref_from_prefix(private_data).ok()?;
        (reject.opcode == opcode::LOGIN_REJ).then_some(reject)
    }

    /// The answer to a login that is rejected.
    pub fn new(tag: Tag, reason: RejectReason) -> Self {
        Self {
            opcode: opcode::LOGIN_REJ,
            reserved: [0; 3],
            reason: U32::new(reason as u32),
            tag,
            reserved2: [0; 8],
            formats: U16::new(FORMATS),
            reserved3: [0; 6],
        }
    }
}
