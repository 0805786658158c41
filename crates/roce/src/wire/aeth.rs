//! Acknowledgements: the syndrome and its meaning.

use std::time::Duration;

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::U24;

/// Acknowledge extended transport header (AETH), 4 bytes.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct Aeth {
    /// Bits 6:5 what kind of acknowledgement, bits 4:0 its value; see [`Syndrome`].
    pub syndrome: u8,
    /// Message sequence number (MSN): messages that the responder has completed.
    pub msn: U24,
}

const _: () = assert!(size_of::<Aeth>() == 4);

impl Aeth {
    /// The header.
    pub const fn new(syndrome: Syndrome, msn: u32) -> Self {
        Self {
            syndrome: syndrome.to_wire(),
            msn: U24::new(msn),
        }
    }

    /// The meaning of the syndrome; `None` if it is reserved.
    pub fn syndrome(&self) -> Option<Syndrome> {
        Syndrome::from_wire(self.syndrome)
    }
}

/// The meaning of an acknowledgement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Syndrome {
    /// Positive. Its credit count is sent as "no limit" and ignored on receipt: a responder
    /// without receives sends a receiver-not-ready NAK.
    Ack,
    /// Receiver not ready (RNR): retransmit after this time.
    RnrNak(RnrTimer),
    /// Negative.
    Nak(NakCode),
}

impl Syndrome {
    /// The credit count that means "no limit".
    const NO_CREDIT_LIMIT: u8 = 0x1F;

    const fn to_wire(self) -> u8 {
        match self {
            Self::Ack => Self::NO_CREDIT_LIMIT,
            Self::RnrNak(timer) => 0x20 | timer.0,
            Self::Nak(code) => 0x60 | code as u8,
        }
    }

    fn from_wire(syndrome: u8) -> Option<Self> {
        let value = syndrome & 0x1F;
        match syndrome >> 5 & 3 {
            0 => Some(Self::Ack),
            1 => Some(Self::RnrNak(RnrTimer(value))),
            3 => NakCode::from_wire(value).map(Self::Nak),
            _ => None,
        }
    }
}

/// Why a responder rejects a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum NakCode {
    /// A packet is missing: retransmit from the NAK's PSN on.
    PsnSequenceError = 0,
    /// Wrong opcode, length, sequence of packets, or a right that the queue pair does not have.
    InvalidRequest = 1,
    /// Wrong key, or outside of the region.
    RemoteAccessError = 2,
    /// The responder failed.
    RemoteOperationalError = 3,
}

impl NakCode {
    fn from_wire(value: u8) -> Option<Self> {
        match value {
            0 => Some(Self::PsnSequenceError),
            1 => Some(Self::InvalidRequest),
            2 => Some(Self::RemoteAccessError),
            3 => Some(Self::RemoteOperationalError),
            _ => None,
        }
    }
}

/// How long a requester waits after a receiver-not-ready NAK: 5 bits that name a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RnrTimer(u8);

impl RnrTimer {
    /// The shortest time of at least `wait`, or the longest if `wait` is longer than that.
    pub fn at_least(wait: Duration) -> Self {
        let code = (1..32)
            .chain([0])
            .find(|code| Self(*code).duration() >= wait);
        Self(code.unwrap_or(0))
    }

    /// The 5 bits.
    pub const fn code(self) -> u8 {
        self.0
    }

    /// The time.
    pub fn duration(self) -> Duration {
        let index = usize::from(self.0 & 0x1F);
        Duration::from_micros(u64::from(RNR_TIMES_10US[index]) * 10)
    }
}

/// The times of the RNR NAK timer field, in units of 10 µs. Code 0 is the longest.
const RNR_TIMES_10US: [u32; 32] = [
    65_536, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536,
    2048, 3072, 4096, 6144, 8192, 12_288, 16_384, 24_576, 32_768, 49_152,
];
