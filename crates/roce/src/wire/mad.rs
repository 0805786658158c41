//! Management datagrams (MADs).

use zerocopy::big_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// The length of every management datagram.
pub const MAD_LEN_BYTES: usize = 256;

/// The common header of a management datagram, 24 bytes.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct MadHeader {
    /// Version of the format: 1.
    pub base_version: u8,
    /// Management class: 7 is communication management.
    pub class: u8,
    /// Version of the class: 2.
    pub class_version: u8,
    /// Method: 3 is Send.
    pub method: u8,
    /// Status: 0 in a Send.
    pub status: U16,
    /// Class-specific; 0 here.
    pub class_specific: U16,
    /// Transaction identifier (TID): a reply has its request's.
    pub tid: U64,
    /// Which message of the class.
    pub attribute: U16,
    /// Reserved.
    pub reserved: U16,
    /// Attribute modifier.
    pub modifier: U32,
}

const _: () = assert!(size_of::<MadHeader>() == 24);
const _: () = assert!(std::mem::offset_of!(MadHeader, attribute) == 16);

impl MadHeader {
    const BASE_VERSION: u8 = 1;
    const CLASS_COMMUNICATION: u8 = 7;
    const CLASS_VERSION: u8 = 2;
    const METHOD_SEND: u8 = 3;

    /// The header of a message of communication management.
    pub const fn communication(attribute: u16, tid: u64) -> Self {
        Self {
            base_version: Self::BASE_VERSION,
            class: Self::CLASS_COMMUNICATION,
            class_version: Self::CLASS_VERSION,
            method: Self::METHOD_SEND,
            status: U16::ZERO,
            class_specific: U16::ZERO,
            tid: U64::new(tid),
            attribute: U16::new(attribute),
            reserved: U16::ZERO,
            modifier: U32::ZERO,
        }
    }

    /// Whether it opens a message of communication management in the version that this crate
    /// speaks.
    pub const fn is_communication(&self) -> bool {
        self.base_version == Self::BASE_VERSION
            && self.class == Self::CLASS_COMMUNICATION
            && self.class_version == Self::CLASS_VERSION
            && self.method == Self::METHOD_SEND
    }
}
