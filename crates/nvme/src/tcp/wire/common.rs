//! The header that every PDU starts with.

use std::ops::BitOr;

use zerocopy::little_endian::U32;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::DIGEST_LEN_BYTES;

/// PDU common header (CH), 8 bytes.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct CommonHeader {
    /// PDU type (PDU-Type): which PDU this is; see [`PduType`].
    pub pdu_type: u8,
    /// PDU-specific flags (FLAGS).
    pub flags: PduFlags,
    /// Header length (HLEN) in bytes, this common header included, header digest and padding not.
    pub hlen: u8,
    /// PDU data offset (PDO): bytes from the start of the PDU to its data; 0 if it has none or its
    /// type has no such field.
    pub pdo: u8,
    /// PDU length (PLEN) in bytes: header, digests, padding and data.
    pub plen: U32,
}

const _: () = assert!(size_of::<CommonHeader>() == 8);

/// The flags of a PDU (FLAGS), 8 bits.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    FromBytes,
    IntoBytes,
    KnownLayout,
    Immutable,
    Unaligned,
)]
#[repr(transparent)]
pub struct PduFlags(pub u8);

impl PduFlags {
    /// No flag.
    pub const NONE: Self = Self(0);
    /// Header digest flag (HDGSTF), bit 0: a header digest follows the header.
    pub const HDGST: Self = Self(1);
    /// Data digest flag (DDGSTF), bit 1: a data digest follows the data.
    pub const DDGST: Self = Self(1 << 1);
    /// Last PDU (LAST_PDU), bit 2 of H2CData and C2HData: the last data of an R2T or of a command.
    pub const LAST: Self = Self(1 << 2);
    /// Success (SUCCESS), bit 3 of C2HData: the command succeeded and no CapsuleResp follows.
    pub const SUCCESS: Self = Self(1 << 3);

    /// Whether all flags of `other` are set.
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }
}

impl BitOr for PduFlags {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

/// PDU types (PDU-Type), 8 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum PduType {
    /// Initialize connection request (ICReq), from the host.
    IcReq = 0x00,
    /// Initialize connection response (ICResp), from the controller.
    IcResp = 0x01,
    /// Terminate connection request, from the host (H2CTermReq).
    H2cTermReq = 0x02,
    /// Terminate connection request, from the controller (C2HTermReq).
    C2hTermReq = 0x03,
    /// Command capsule (CapsuleCmd), from the host.
    CapsuleCmd = 0x04,
    /// Response capsule (CapsuleResp), from the controller.
    CapsuleResp = 0x05,
    /// Data to the controller (H2CData).
    H2cData = 0x06,
    /// Data to the host (C2HData).
    C2hData = 0x07,
    /// Ready to transfer (R2T), from the controller.
    R2t = 0x09,
}

impl PduType {
    /// The type with this number, if any.
    pub const fn from_u8(number: u8) -> Option<Self> {
        Some(match number {
            0x00 => Self::IcReq,
            0x01 => Self::IcResp,
            0x02 => Self::H2cTermReq,
            0x03 => Self::C2hTermReq,
            0x04 => Self::CapsuleCmd,
            0x05 => Self::CapsuleResp,
            0x06 => Self::H2cData,
            0x07 => Self::C2hData,
            0x09 => Self::R2t,
            _ => return None,
        })
    }

    /// Which end receives such PDUs.
    pub const fn receiver(self) -> Receiver {
        match self {
            Self::IcReq | Self::H2cTermReq | Self::CapsuleCmd | Self::H2cData => {
                Receiver::Controller
            }
            Self::IcResp | Self::C2hTermReq | Self::CapsuleResp | Self::C2hData | Self::R2t => {
                Receiver::Host
            }
        }
    }

    /// The header's length in bytes (HLEN), which every type fixes. Beside each header, its size is
    /// checked to be this.
    pub const fn hlen_bytes(self) -> usize {
        match self {
            Self::IcReq | Self::IcResp => 128,
            Self::CapsuleCmd => 72,
            Self::H2cTermReq
            | Self::C2hTermReq
            | Self::CapsuleResp
            | Self::H2cData
            | Self::C2hData
            | Self::R2t => 24,
        }
    }

    /// Whether a header digest follows the header once header digests are negotiated.
    pub(super) const fn takes_header_digest(self) -> bool {
        !matches!(
            self,
            Self::IcReq | Self::IcResp | Self::H2cTermReq | Self::C2hTermReq
        )
    }

    /// Whether data may or must follow at the offset that PDO names.
    pub(super) const fn takes_data(self) -> bool {
        matches!(self, Self::CapsuleCmd | Self::H2cData | Self::C2hData)
    }
}

/// The end of the connection that a PDU goes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Receiver {
    /// The controller.
    Controller,
    /// The host.
    Host,
}

/// Which digests are in use (DGST), 8 bits in ICReq and ICResp.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    FromBytes,
    IntoBytes,
    KnownLayout,
    Immutable,
    Unaligned,
)]
#[repr(transparent)]
pub struct Dgst(pub u8);

impl Dgst {
    /// No digest.
    pub const NONE: Self = Self(0);
    /// Header digest enable (HDGST_ENABLE), bit 0.
    pub const HEADER: Self = Self(1);
    /// Data digest enable (DDGST_ENABLE), bit 1.
    pub const DATA: Self = Self(1 << 1);

    /// Whether headers carry a digest.
    pub const fn header(self) -> bool {
        self.0 & Self::HEADER.0 != 0
    }

    /// Whether data carry a digest.
    pub const fn data(self) -> bool {
        self.0 & Self::DATA.0 != 0
    }

    /// Whether a reserved bit is set.
    pub const fn has_reserved(self) -> bool {
        self.0 & !(Self::HEADER.0 | Self::DATA.0) != 0
    }
}

impl BitOr for Dgst {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

/// PDU data alignment (HPDA, CPDA), 8 bits, 0's-based, in dwords: where the data of a PDU may
/// start. The receiver of the data requests it: HPDA applies to C2HData, CPDA to CapsuleCmd and
/// H2CData.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialOrd,
    Ord,
    PartialEq,
    Eq,
    FromBytes,
    IntoBytes,
    KnownLayout,
    Immutable,
    Unaligned,
)]
#[repr(transparent)]
pub struct Pda(pub u8);

impl Pda {
    /// The largest value that the specification allows: 128 bytes.
    pub const MAX: Self = Self(31);

    /// The alignment in bytes.
    pub const fn bytes(self) -> usize {
        (self.0 as usize + 1) * 4
    }
}

/// Digests and alignment of the PDUs of one direction, as ICReq and ICResp negotiated them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Layout {
    /// Digests in use.
    pub dgst: Dgst,
    /// The alignment that the receiver requested.
    pub pda: Pda,
}

impl Layout {
    /// Where data start in a PDU of this type: behind header and header digest, aligned.
    pub const fn data_offset_bytes(self, pdu_type: PduType) -> usize {
        self.header_bytes(pdu_type)
            .next_multiple_of(self.pda.bytes())
    }

    /// Header and header digest in bytes.
    pub const fn header_bytes(self, pdu_type: PduType) -> usize {
        let digest = if self.dgst.header() && pdu_type.takes_header_digest() {
            DIGEST_LEN_BYTES
        } else {
            0
        };
        pdu_type.hlen_bytes() + digest
    }

    /// The common header of a PDU to be sent with `data_len_bytes` bytes of data. `flags` are those
    /// besides the digests' flags, which this adds.
    pub fn common_header(
        self,
        pdu_type: PduType,
        flags: PduFlags,
        data_len_bytes: u32,
    ) -> CommonHeader {
        let mut flags = flags;
        if self.dgst.header() && pdu_type.takes_header_digest() {
            flags = flags | PduFlags::HDGST;
        }
        let (mut pdo, mut plen) = (0, self.header_bytes(pdu_type) as u32);
        if data_len_bytes > 0 {
            pdo = self.data_offset_bytes(pdu_type) as u8;
            plen = u32::from(pdo) + data_len_bytes;
            if self.dgst.data() {
                flags = flags | PduFlags::DDGST;
                plen += DIGEST_LEN_BYTES as u32;
            }
        }
        CommonHeader {
            pdu_type: pdu_type as u8,
            flags,
            hlen: pdu_type.hlen_bytes() as u8,
            pdo,
            plen: U32::new(plen),
        }
    }
}
