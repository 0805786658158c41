//! In-band authentication: the commands that carry its messages, and the messages of DH-HMAC-CHAP.
//!
//! Read first: NVM Express Base 2.0, "Authentication Send Command", "Authentication Receive
//! Command" and "DH-HMAC-CHAP Protocol".

use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::{Cid, Sgl, Sqe};

/// The longest message: a reply with SHA-512 and a value of 8192 bits has 1168 bytes. A command may
/// have more room; the rest is sent as zeros.
pub const MESSAGE_MAX_BYTES: usize = 4096;

/// Result of Connect, DW0: Authentication and Transaction Required (ATR), of AUTHREQ.
pub const CONNECT_AUTHENTICATION_REQUIRED: u32 = 1 << 17;
/// Result of Connect, DW0: Authentication and Secure Channel Required (ASCR), of AUTHREQ.
pub const CONNECT_SECURE_CHANNEL_REQUIRED: u32 = 1 << 18;

/// Authentication Send and Authentication Receive, 64 bytes.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct AuthenticationSqe {
    /// Opcode: [`Sqe::OPCODE_FABRICS`].
    pub opcode: u8,
    /// As in [`Sqe::flags`].
    pub flags: u8,
    /// Command Identifier (CID).
    pub cid: U16,
    /// Fabrics Command Type (FCTYPE).
    pub fctype: u8,
    reserved1: [u8; 19],
    /// Where the message is, or is to be put.
    pub sgl1: Sgl,
    reserved2: u8,
    /// SP Specific 0 (SPSP0): 1.
    pub specific0: u8,
    /// SP Specific 1 (SPSP1): 1.
    pub specific1: u8,
    /// Security Protocol (SECP): [`Self::SECURITY_PROTOCOL`].
    pub security_protocol: u8,
    /// Transfer Length (TL) or Allocation Length (AL) in bytes.
    pub len_bytes: U32,
    reserved3: [u8; 16],
}

const _: () = assert!(size_of::<AuthenticationSqe>() == 64);
const _: () = assert!(std::mem::offset_of!(AuthenticationSqe, sgl1) == 24);
const _: () = assert!(std::mem::offset_of!(AuthenticationSqe, security_protocol) == 43);
const _: () = assert!(std::mem::offset_of!(AuthenticationSqe, len_bytes) == 44);

impl AuthenticationSqe {
    /// The security protocol of NVMe authentication.
    pub const SECURITY_PROTOCOL: u8 = 0xE9;

    /// A command of this FCTYPE for a message of, or room for, `len_bytes`.
    pub fn new(fctype: u8, len_bytes: u32) -> Self {
        Self {
            opcode: Sqe::OPCODE_FABRICS,
            flags: 0x40,
            cid: U16::new(Cid(0).0),
            fctype,
            reserved1: [0; 19],
            sgl1: Sgl::in_capsule(0, len_bytes),
            reserved2: 0,
            specific0: 1,
            specific1: 1,
            security_protocol: Self::SECURITY_PROTOCOL,
            len_bytes: U32::new(len_bytes),
            reserved3: [0; 16],
        }
    }

    /// Whether the fields name NVMe authentication.
    pub fn is_authentication(&self) -> bool {
        self.security_protocol == Self::SECURITY_PROTOCOL
            && self.specific0 == 1
            && self.specific1 == 1
    }
}

/// What a message is: AUTH_TYPE and AUTH_ID.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MessageKind {
    /// AUTH_Negotiate, to the controller.
    Negotiate,
    /// DH-HMAC-CHAP_Challenge, to the host.
    Challenge,
    /// DH-HMAC-CHAP_Reply, to the controller.
    Reply,
    /// DH-HMAC-CHAP_Success1, to the host.
    Success1,
    /// DH-HMAC-CHAP_Success2, to the controller.
    Success2,
    /// AUTH_Failure2, to the controller.
    Failure2,
    /// AUTH_Failure1, to the host.
    Failure1,
}

impl MessageKind {
    const COMMON: u8 = 0;
    const DH_HMAC_CHAP: u8 = 1;

    const fn bytes(self) -> (u8, u8) {
        match self {
            Self::Negotiate => (Self::COMMON, 0x00),
            Self::Challenge => (Self::DH_HMAC_CHAP, 0x01),
            Self::Reply => (Self::DH_HMAC_CHAP, 0x02),
            Self::Success1 => (Self::DH_HMAC_CHAP, 0x03),
            Self::Success2 => (Self::DH_HMAC_CHAP, 0x04),
            Self::Failure2 => (Self::COMMON, 0xF0),
            Self::Failure1 => (Self::COMMON, 0xF1),
        }
    }
}

/// What every message begins with, 6 bytes.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct MessageHeader {
    /// Authentication Type (AUTH_TYPE): 0 common, 1 DH-HMAC-CHAP.
    pub auth_type: u8,
    /// Authentication Identifier (AUTH_ID): the message.
    pub auth_id: u8,
    reserved: [u8; 2],
    /// Transaction Identifier (T_ID), which the host chooses in AUTH_Negotiate.
    pub transaction: U16,
}

const _: () = assert!(size_of::<MessageHeader>() == 6);

impl MessageHeader {
    /// The header of a message of `kind`.
    pub fn new(kind: MessageKind, transaction: u16) -> Self {
        let (auth_type, auth_id) = kind.bytes();
        Self {
            auth_type,
            auth_id,
            reserved: [0; 2],
            transaction: U16::new(transaction),
        }
    }

    /// What the message is; `None` if that is not known.
    pub fn kind(&self) -> Option<MessageKind> {
        [
            MessageKind::Negotiate,
            MessageKind::Challenge,
            MessageKind::Reply,
            MessageKind::Success1,
            MessageKind::Success2,
            MessageKind::Failure2,
            MessageKind::Failure1,
        ]
        .into_iter()
        .find(|kind| kind.bytes() == (self.auth_type, self.auth_id))
    }
}

/// AUTH_Negotiate with its first protocol, 72 bytes. More descriptors may follow.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct Negotiate {
    /// The header.
    pub header: MessageHeader,
    /// Secure Channel Concatenation (SC_C): 0 is none.
    pub secure_channel: u8,
    /// Number of Authentication Protocol Descriptors (NAPD).
    pub protocols: u8,
    /// The first Authentication Protocol Descriptor.
    pub first: ProtocolDescriptor,
}

/// An Authentication Protocol Descriptor, 64 bytes, with the fields of DH-HMAC-CHAP.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct ProtocolDescriptor {
    /// Authentication Protocol Identifier (AUTHID).
    pub protocol: u8,
    reserved: u8,
    /// Hash Length List (HALEN): entries of [`Self::hashes`].
    pub hashes_len: u8,
    /// Diffie-Hellman Length List (DHLEN): entries of [`Self::groups`].
    pub groups_len: u8,
    /// Hash functions of the host, in order of preference.
    pub hashes: [u8; 30],
    /// Diffie-Hellman groups of the host, in order of preference.
    pub groups: [u8; 30],
}

const _: () = assert!(size_of::<Negotiate>() == 72);
const _: () = assert!(size_of::<ProtocolDescriptor>() == 64);
const _: () = assert!(std::mem::offset_of!(Negotiate, first) == 8);
const _: () = assert!(std::mem::offset_of!(ProtocolDescriptor, hashes) == 4);

impl ProtocolDescriptor {
    /// [`Self::protocol`] of DH-HMAC-CHAP.
    pub const DH_HMAC_CHAP: u8 = 1;
}

impl Negotiate {
    /// [`Self::secure_channel`]: no secure channel is concatenated (NOSC).
    pub const NO_SECURE_CHANNEL: u8 = 0;
    /// [`Self::secure_channel`]: a new key for TLS is generated (NEWTLSPSK).
    pub const NEW_TLS_KEY: u8 = 2;
    /// [`Self::secure_channel`]: a key for TLS is generated over TLS, in place of the connection's
    /// own (REPLACETLSPSK).
    pub const REPLACE_TLS_KEY: u8 = 3;
    /// A message that offers these functions and groups. There are at most 30 of each.
    pub fn new(transaction: u16, hashes: &[u8], groups: &[u8]) -> Self {
        let list = |entries: &[u8]| {
            let mut field = [0; 30];
            field[..entries.len()].copy_from_slice(entries);
            field
        };
        Self {
            header: MessageHeader::new(MessageKind::Negotiate, transaction),
            secure_channel: Self::NO_SECURE_CHANNEL,
            protocols: 1,
            first: ProtocolDescriptor {
                protocol: ProtocolDescriptor::DH_HMAC_CHAP,
                reserved: 0,
                hashes_len: hashes.len() as u8,
                groups_len: groups.len() as u8,
                hashes: list(hashes),
                groups: list(groups),
            },
        }
    }
}

/// The fixed part of DH-HMAC-CHAP_Challenge, 16 bytes. The challenge (C1) and the value of the
/// controller follow.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct Challenge {
    /// The header.
    pub header: MessageHeader,
    /// Hash Length (HL) in bytes.
    pub hash_bytes: u8,
    reserved1: u8,
    /// Hash Identifier (HashID).
    pub hash: u8,
    /// Diffie-Hellman group identifier (DHgID); 0 is none.
    pub group: u8,
    /// DH Value Length (DHVLEN) in bytes.
    pub value_bytes: U16,
    /// Sequence Number (S1).
    pub sequence: U32,
}

const _: () = assert!(size_of::<Challenge>() == 16);
const _: () = assert!(std::mem::offset_of!(Challenge, sequence) == 12);

impl Challenge {
    /// The fixed part of a message of transaction `transaction`.
    pub fn new(
        transaction: u16,
        (hash, hash_bytes): (u8, u8),
        group: u8,
        value_bytes: u16,
    ) -> Self {
        Self {
            header: MessageHeader::new(MessageKind::Challenge, transaction),
            hash_bytes,
            reserved1: 0,
            hash,
            group,
            value_bytes: U16::new(value_bytes),
            sequence: U32::ZERO,
        }
    }
}

/// The fixed part of DH-HMAC-CHAP_Reply, 16 bytes. The response (R1), the challenge (C2) and the
/// value of the host follow.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct Reply {
    /// The header.
    pub header: MessageHeader,
    /// Hash Length (HL) in bytes.
    pub hash_bytes: u8,
    reserved1: u8,
    /// Challenge Valid (CVALID): 1 if the controller is to authenticate itself.
    pub challenge_valid: u8,
    reserved2: u8,
    /// DH Value Length (DHVLEN) in bytes.
    pub value_bytes: U16,
    /// Sequence Number (S2).
    pub sequence: U32,
}

const _: () = assert!(size_of::<Reply>() == 16);
const _: () = assert!(std::mem::offset_of!(Reply, sequence) == 12);

impl Reply {
    /// The fixed part of a message of transaction `transaction`.
    pub fn new(transaction: u16, hash_bytes: u8, value_bytes: u16, sequence: u32) -> Self {
        Self {
            header: MessageHeader::new(MessageKind::Reply, transaction),
            hash_bytes,
            reserved1: 0,
            challenge_valid: 0,
            reserved2: 0,
            value_bytes: U16::new(value_bytes),
            sequence: U32::new(sequence),
        }
    }
}

/// The fixed part of DH-HMAC-CHAP_Success1, 16 bytes. The response (R2) follows.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct Success1 {
    /// The header.
    pub header: MessageHeader,
    /// Hash Length (HL) in bytes.
    pub hash_bytes: u8,
    reserved1: u8,
    /// Response Valid (RVALID): 1 if the controller authenticates itself.
    pub response_valid: u8,
    reserved2: [u8; 7],
}

const _: () = assert!(size_of::<Success1>() == 16);

impl Success1 {
    /// The fixed part of a message of transaction `transaction`.
    pub fn new(transaction: u16, hash_bytes: u8, response_valid: u8) -> Self {
        Self {
            header: MessageHeader::new(MessageKind::Success1, transaction),
            hash_bytes,
            reserved1: 0,
            response_valid,
            reserved2: [0; 7],
        }
    }
}

/// DH-HMAC-CHAP_Success2, 16 bytes.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct Success2 {
    /// The header.
    pub header: MessageHeader,
    reserved: [u8; 10],
}

const _: () = assert!(size_of::<Success2>() == 16);

impl Success2 {
    /// The message of transaction `transaction`.
    pub fn new(transaction: u16) -> Self {
        Self {
            header: MessageHeader::new(MessageKind::Success2, transaction),
            reserved: [0; 10],
        }
    }
}

/// AUTH_Failure1 and AUTH_Failure2, 8 bytes.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct Failure {
    /// The header.
    pub header: MessageHeader,
    /// Reason Code (RCODE): 1 is authentication failure.
    pub reason: u8,
    /// Reason Code Explanation (RCE).
    pub explanation: u8,
}

const _: () = assert!(size_of::<Failure>() == 8);

impl Failure {
    /// [`Self::reason`]: authentication failed.
    pub const AUTHENTICATION_FAILURE: u8 = 1;

    /// A message of this kind, which is one of the two.
    pub fn new(kind: MessageKind, transaction: u16, explanation: FailureReason) -> Self {
        Self {
            header: MessageHeader::new(kind, transaction),
            reason: Self::AUTHENTICATION_FAILURE,
            explanation: explanation as u8,
        }
    }
}

/// Why an authentication failed: Reason Code Explanation (RCE).
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[repr(u8)]
pub enum FailureReason {
    /// A response is wrong.
    #[error("authentication failed")]
    Failed = 0x01,
    /// The authentication protocol is not usable.
    #[error("the authentication protocol is not usable")]
    ProtocolNotUsable = 0x02,
    /// Secure channel concatenation is required, or not supported.
    #[error("secure channel concatenation mismatch")]
    SecureChannelMismatch = 0x03,
    /// None of the hash functions is usable.
    #[error("no hash function is usable")]
    HashNotUsable = 0x04,
    /// None of the groups is usable.
    #[error("no Diffie-Hellman group is usable")]
    GroupNotUsable = 0x05,
    /// A message has invalid contents.
    #[error("incorrect payload")]
    IncorrectPayload = 0x06,
    /// A message is not the one that is due.
    #[error("incorrect protocol message")]
    IncorrectMessage = 0x07,
}

impl FailureReason {
    /// The reason in RCE; [`Self::Failed`] for values that are not known.
    pub fn from_explanation(explanation: u8) -> Self {
        match explanation {
            0x02 => Self::ProtocolNotUsable,
            0x03 => Self::SecureChannelMismatch,
            0x04 => Self::HashNotUsable,
            0x05 => Self::GroupNotUsable,
            0x06 => Self::IncorrectPayload,
            0x07 => Self::IncorrectMessage,
            _ => Self::Failed,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::fabrics::fctype;

    #[test]
    fn golden_commands_both_ways() {
        let sqe = AuthenticationSqe::new(fctype::AUTHENTICATION_SEND, 72);
        let mut golden = [0; 64];
        golden[..2].copy_from_slice(&[0x7F, 0x40]);
        golden[4] = 0x05;
        golden[32] = 72;
        golden[39] = 0x01; // in capsule
        golden[41..45].copy_from_slice(&[1, 1, 0xE9, 72]);
        assert_eq!(sqe.as_bytes(), golden);
        let parsed = AuthenticationSqe::read_from_bytes(&golden).expect("64 bytes");
        assert!(parsed.is_authentication());
    }

    #[test]
    fn golden_negotiate_both_ways() {
        let message = Negotiate::new(0x0102, &[1, 2, 3], &[0, 1]);
        let mut golden = [0; 72];
        golden[4..6].copy_from_slice(&[0x02, 0x01]);
        golden[7..12].copy_from_slice(&[1, 1, 0, 3, 2]);
        golden[12..15].copy_from_slice(&[1, 2, 3]);
        golden[43] = 1;
        assert_eq!(message.as_bytes(), golden);
        assert_eq!(Negotiate::read_from_bytes(&golden), Ok(message));
    }

    #[test]
    fn golden_failures_both_ways() {
        let message = Failure::new(MessageKind::Failure1, 5, FailureReason::HashNotUsable);
        assert_eq!(message.as_bytes(), [0, 0xF1, 0, 0, 5, 0, 1, 4]);
        assert_eq!(message.header.kind(), Some(MessageKind::Failure1));
        for value in 1..=7 {
            assert_eq!(FailureReason::from_explanation(value) as u8, value);
        }
        assert_eq!(
            MessageHeader::new(MessageKind::Reply, 0).as_bytes()[..2],
            [1, 2]
        );
    }
}
