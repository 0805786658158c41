//! Login, Text and Logout, requests and responses.

use zerocopy::big_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::{BHS_LEN, U24};

/// Login Request (RFC 7143 §11.12).
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct LoginRequest {
    /// 43h: always immediate.
    pub opcode: u8,
    /// T (transit) bit 7, C (continue) bit 6, CSG bits 3-2, NSG bits 1-0.
    pub flags: u8,
    /// Version-max.
    pub version_max: u8,
    /// Version-min.
    pub version_min: u8,
    /// TotalAHSLength; 0.
    pub total_ahs_words: u8,
    /// DataSegmentLength, bytes of text.
    pub data_segment_len: U24,
    /// ISID.
    pub isid: [u8; 6],
    /// TSIH: 0 for a new session, otherwise the session that the connection joins.
    pub tsih: U16,
    /// Initiator Task Tag, the same for the whole login.
    pub itt: U32,
    /// CID: the connection's number within its session.
    pub cid: U16,
    /// Reserved.
    pub reserved: U16,
    /// CmdSN: the session's first.
    pub cmd_sn: U32,
    /// ExpStatSN.
    pub exp_stat_sn: U32,
    /// Reserved.
    pub reserved_32: [u8; 16],
}

const _: () = assert!(size_of::<LoginRequest>() == BHS_LEN);

/// Login Response (RFC 7143 §11.13).
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct LoginResponse {
    /// 23h.
    pub opcode: u8,
    /// T bit 7, C bit 6, CSG bits 3-2, NSG bits 1-0.
    pub flags: u8,
    /// Version-max.
    pub version_max: u8,
    /// Version-active.
    pub version_active: u8,
    /// TotalAHSLength; 0.
    pub total_ahs_words: u8,
    /// DataSegmentLength, bytes of text.
    pub data_segment_len: U24,
    /// ISID, as in the request.
    pub isid: [u8; 6],
    /// TSIH: the session's handle, in the last response of a login that made one.
    pub tsih: U16,
    /// Initiator Task Tag.
    pub itt: U32,
    /// Reserved.
    pub reserved: U32,
    /// StatSN.
    pub stat_sn: U32,
    /// ExpCmdSN.
    pub exp_cmd_sn: U32,
    /// MaxCmdSN.
    pub max_cmd_sn: U32,
    /// Status-Class: 0 success, 1 redirection, 2 initiator error, 3 target error.
    pub status_class: u8,
    /// Status-Detail.
    pub status_detail: u8,
    /// Reserved.
    pub reserved_38: [u8; 10],
}

const _: () = assert!(size_of::<LoginResponse>() == BHS_LEN);

/// T: the sender is ready for the next stage.
pub const TRANSIT: u8 = 0x80;
/// C: the text continues in the next PDU.
pub const CONTINUE: u8 = 0x40;

/// Text Request (RFC 7143 §11.10).
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct TextRequest {
    /// 04h, with I in bit 6.
    pub opcode: u8,
    /// F bit 7, C bit 6.
    pub flags: u8,
    /// Reserved.
    pub reserved: [u8; 2],
    /// TotalAHSLength; 0.
    pub total_ahs_words: u8,
    /// DataSegmentLength, bytes of text.
    pub data_segment_len: U24,
    /// LUN, if the TTT is not all ones.
    pub lun: [u8; 8],
    /// Initiator Task Tag.
    pub itt: U32,
    /// Target Transfer Tag: all ones begins a negotiation.
    pub ttt: U32,
    /// CmdSN.
    pub cmd_sn: U32,
    /// ExpStatSN.
    pub exp_stat_sn: U32,
    /// Reserved.
    pub reserved_32: [u8; 16],
}

const _: () = assert!(size_of::<TextRequest>() == BHS_LEN);

/// Text Response (RFC 7143 §11.11).
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct TextResponse {
    /// 24h.
    pub opcode: u8,
    /// F bit 7, C bit 6.
    pub flags: u8,
    /// Reserved.
    pub reserved: [u8; 2],
    /// TotalAHSLength; 0.
    pub total_ahs_words: u8,
    /// DataSegmentLength, bytes of text.
    pub data_segment_len: U24,
    /// LUN.
    pub lun: [u8; 8],
    /// Initiator Task Tag.
    pub itt: U32,
    /// Target Transfer Tag: all ones if nothing more follows.
    pub ttt: U32,
    /// StatSN.
    pub stat_sn: U32,
    /// ExpCmdSN.
    pub exp_cmd_sn: U32,
    /// MaxCmdSN.
    pub max_cmd_sn: U32,
    /// Reserved.
    pub reserved_36: [u8; 12],
}

const _: () = assert!(size_of::<TextResponse>() == BHS_LEN);

/// Logout Request (RFC 7143 §11.14).
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct LogoutRequest {
    /// 06h, with I in bit 6.
    pub opcode: u8,
    /// 1 in bit 7; reason, bits 6-0: 0 close the session, 1 close the connection, 2 remove for
    /// recovery.
    pub reason: u8,
    /// Reserved.
    pub reserved: [u8; 2],
    /// TotalAHSLength; 0.
    pub total_ahs_words: u8,
    /// DataSegmentLength; 0.
    pub data_segment_len: U24,
    /// Reserved.
    pub reserved_8: [u8; 8],
    /// Initiator Task Tag.
    pub itt: U32,
    /// CID, if the reason names a connection.
    pub cid: U16,
    /// Reserved.
    pub reserved_22: U16,
    /// CmdSN.
    pub cmd_sn: U32,
    /// ExpStatSN.
    pub exp_stat_sn: U32,
    /// Reserved.
    pub reserved_32: [u8; 16],
}

const _: () = assert!(size_of::<LogoutRequest>() == BHS_LEN);

/// Logout Response (RFC 7143 §11.15).
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct LogoutResponse {
    /// 26h.
    pub opcode: u8,
    /// 1 in bit 7.
    pub flags: u8,
    /// Response: 0 closed, 1 CID not found, 2 recovery not supported, 3 clean-up failed.
    pub response: u8,
    /// Reserved.
    pub reserved: u8,
    /// TotalAHSLength; 0.
    pub total_ahs_words: u8,
    /// DataSegmentLength; 0.
    pub data_segment_len: U24,
    /// Reserved.
    pub reserved_8: [u8; 8],
    /// Initiator Task Tag.
    pub itt: U32,
    /// Reserved.
    pub reserved_20: U32,
    /// StatSN.
    pub stat_sn: U32,
    /// ExpCmdSN.
    pub exp_cmd_sn: U32,
    /// MaxCmdSN.
    pub max_cmd_sn: U32,
    /// Reserved.
    pub reserved_36: U32,
    /// Time2Wait, seconds.
    pub time2wait_s: U16,
    /// Time2Retain, seconds.
    pub time2retain_s: U16,
    /// Reserved.
    pub reserved_44: U32,
}

const _: () = assert!(size_of::<LogoutResponse>() == BHS_LEN);

/// Status-Class and Status-Detail of a Login Response (RFC 7143 §11.13.5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoginStatus(pub u8, pub u8);

impl LoginStatus {
    /// Success.
    pub const SUCCESS: Self = Self(0, 0);
    /// Initiator error, miscellaneous.
    pub const INITIATOR_ERROR: Self = Self(2, 0);
    /// Authentication failure.
    pub const AUTHENTICATION_FAILURE: Self = Self(2, 1);
    /// Authorization failure.
    pub const AUTHORIZATION_FAILURE: Self = Self(2, 2);
    /// Not found.
    pub const NOT_FOUND: Self = Self(2, 3);
    /// Unsupported version.
    pub const UNSUPPORTED_VERSION: Self = Self(2, 5);
    /// Too many connections.
    pub const TOO_MANY_CONNECTIONS: Self = Self(2, 6);
    /// Missing parameter.
    pub const MISSING_PARAMETER: Self = Self(2, 7);
    /// Session type not supported.
    pub const SESSION_TYPE: Self = Self(2, 9);
    /// Session does not exist.
    pub const NO_SESSION: Self = Self(2, 10);
    /// Service unavailable.
    pub const UNAVAILABLE: Self = Self(3, 1);
    /// Out of resources.
    pub const OUT_OF_RESOURCES: Self = Self(3, 2);

    /// The meaning in words.
    fn meaning(self) -> &'static str {
        match self {
            Self::SUCCESS => "success",
            Self::AUTHENTICATION_FAILURE => {
                "the host did not prove that it knows its CHAP secret, or cannot do CHAP"
            }
            Self::AUTHORIZATION_FAILURE => "the host is not allowed to use the target",
            Self::NOT_FOUND => "there is no such target",
            Self::UNSUPPORTED_VERSION => "the host speaks another version of iSCSI",
            Self::TOO_MANY_CONNECTIONS => {
                "the session already has the negotiated number of connections"
            }
            Self::MISSING_PARAMETER => "the host did not give its name or the target's",
            Self::SESSION_TYPE => "the host asks for a kind of session that does not exist",
            Self::NO_SESSION => "there is no session that the connection could join",
            Self::UNAVAILABLE => "the target is being removed",
            Self::OUT_OF_RESOURCES => "there is no room for another session",
            _ => "the host's login is malformed",
        }
    }
}

impl std::fmt::Display for LoginStatus {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self(class, detail) = *self;
        write!(f, "{} ({class:02x}{detail:02x}h)", self.meaning())
    }
}
