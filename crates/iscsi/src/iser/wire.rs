//! The iSER header, which precedes every message, and the header of the connection manager's
//! private data.
//!
//! Read first: RFC 7145 §9.2 to §9.4; InfiniBand Architecture volume 1, annex A12 (iSER), for the
//! private data; RFC 5046 §9.2 for the header without base offsets.

use zerocopy::big_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::wire::request;

/// Bytes of an iSER header.
pub const HEADER_LEN: usize = 28;
/// Bytes of a header of RFC 5046: one without base offsets. Hello has this length, too.
pub const SHORT_HEADER_LEN: usize = 12;
/// The version of RFC 7145 §9.3.
pub const VERSION: u8 = 10;
/// The version of RFC 5046.
const VERSION_MIN: u8 = 1;

/// Opcodes, in bits 7-4 of byte 0.
pub mod opcode {
    /// iSCSI control-type PDU.
    pub const CONTROL: u8 = 1;
    /// Hello.
    pub const HELLO: u8 = 2;
    /// HelloReply.
    pub const HELLO_REPLY: u8 = 3;
}

/// How the header of a connection's control-type PDUs is laid out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Layout {
    /// The layout of RFC 7145, with base offsets; annex A12 calls it expanded.
    #[default]
    Expanded,
    /// The layout of RFC 5046: every buffer begins at offset 0 of its key. Annex A12 allows it if
    /// both ends use zero-based addresses.
    Short,
}

impl Layout {
    /// The layout of a peer that may use either, from its first message, a Login Request. A login
    /// names no buffer, so the byte after a short header is the opcode, and the same byte of an
    /// expanded header is a zero of an address.
    pub fn of_login(message: &[u8]) -> Self {
        let behind_short = message.get(SHORT_HEADER_LEN).map(|byte| byte & OPCODE_MASK);
        if behind_short == Some(request::LOGIN) {
            Self::Short
        } else {
            Self::Expanded
        }
    }

    /// Bytes of a header.
    pub const fn header_len(self) -> usize {
        match self {
            Self::Expanded => HEADER_LEN,
            Self::Short => SHORT_HEADER_LEN,
        }
    }
}

/// The opcode in byte 0 of a basic header segment; bit 6 says whether the PDU is for immediate
/// delivery.
const OPCODE_MASK: u8 = 0x3F;

/// WSV: the write STag is valid.
const WRITE_VALID: u8 = 0x08;
/// RSV: the read STag is valid.
const READ_VALID: u8 = 0x04;
/// REJ of a HelloReply.
const REJECT: u8 = 0x01;

/// The header of a control-type PDU (RFC 7145 §9.2).
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct ControlHeader {
    /// Opcode 1, bits 7-4; WSV bit 3; RSV bit 2.
    pub flags: u8,
    /// Reserved.
    pub reserved: [u8; 3],
    /// Write STag: the key of the data-out's memory.
    pub write_stag: U32,
    /// Write Base Offset: the address of the first byte of the data-out.
    pub write_base: U64,
    /// Read STag: the key of the memory for data-in.
    pub read_stag: U32,
    /// Read Base Offset.
    pub read_base: U64,
}

const _: () = assert!(size_of::<ControlHeader>() == HEADER_LEN);

/// The header of a control-type PDU without base offsets (RFC 5046 §9.2).
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct ShortControlHeader {
    /// As in [`ControlHeader`].
    pub flags: u8,
    /// Reserved.
    pub reserved: [u8; 3],
    /// Write STag: the key of the data-out's memory, from offset 0 on.
    pub write_stag: U32,
    /// Read STag: the key of the memory for data-in, from offset 0 on.
    pub read_stag: U32,
}

const _: () = assert!(size_of::<ShortControlHeader>() == SHORT_HEADER_LEN);

impl From<ShortControlHeader> for ControlHeader {
    fn from(header: ShortControlHeader) -> Self {
        Self {
            flags: header.flags,
            reserved: header.reserved,
            write_stag: header.write_stag,
            write_base: U64::ZERO,
            read_stag: header.read_stag,
            read_base: U64::ZERO,
        }
    }
}

/// A steering tag and an address in its memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tag {
    /// The key.
    pub stag: u32,
    /// The base offset: an address, or an offset if the key is zero-based.
    pub base: u64,
}

impl ControlHeader {
    /// The header of a PDU that names these buffers.
    pub fn new(write: Option<Tag>, read: Option<Tag>) -> Self {
        let valid = |tag: Option<Tag>, bit| if tag.is_some() { bit } else { 0 };
        let none = Tag { stag: 0, base: 0 };
        let (to_write, to_read) = (write.unwrap_or(none), read.unwrap_or(none));
        Self {
            flags: opcode::CONTROL << 4 | valid(write, WRITE_VALID) | valid(read, READ_VALID),
            reserved: [0; 3],
            write_stag: U32::new(to_write.stag),
            write_base: U64::new(to_write.base),
            read_stag: U32::new(to_read.stag),
            read_base: U64::new(to_read.base),
        }
    }

    /// The buffer of the data-out, if one is named.
    pub fn write(&self) -> Option<Tag> {
        (self.flags & WRITE_VALID != 0).then(|| Tag {
            stag: self.write_stag.get(),
            base: self.write_base.get(),
        })
    }

    /// The buffer for data-in, if one is named.
    pub fn read(&self) -> Option<Tag> {
        (self.flags & READ_VALID != 0).then(|| Tag {
            stag: self.read_stag.get(),
            base: self.read_base.get(),
        })
    }
}

/// Hello: an initiator's first message in full feature phase, if it announced one (RFC 7145 §9.3).
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct Hello {
    /// Opcode 2, bits 7-4.
    pub opcode: u8,
    /// MaxVer, bits 7-4; MinVer, bits 3-0.
    pub versions: u8,
    /// iSER-IRD: how many outstanding RDMA READs the initiator accepts.
    pub reads_max: U16,
    /// Reserved.
    pub reserved: [u8; 24],
}

const _: () = assert!(size_of::<Hello>() == HEADER_LEN);

/// HelloReply (RFC 7145 §9.4).
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct HelloReply {
    /// Opcode 3, bits 7-4; REJ bit 0.
    pub opcode: u8,
    /// MaxVer, bits 7-4; CurVer, bits 3-0.
    pub versions: u8,
    /// iSER-ORD: the most RDMA READs that the target has outstanding.
    pub reads_max: U16,
    /// Reserved.
    pub reserved: [u8; 24],
}

const _: () = assert!(size_of::<HelloReply>() == HEADER_LEN);

impl Hello {
    /// A Hello of the version that this crate supports.
    pub fn new(reads_max: u16) -> Self {
        Self {
            opcode: opcode::HELLO << 4,
            versions: VERSION << 4 | VERSION_MIN,
            reads_max: U16::new(reads_max),
            reserved: [0; 24],
        }
    }

    /// The answer of a target that has at most `reads_max` reads outstanding. It rejects the
    /// connection if no version is common.
    pub fn reply(&self, reads_max: u16) -> HelloReply {
        let (theirs_max, theirs_min) = (self.versions >> 4, self.versions & 0x0F);
        let current = theirs_max.min(VERSION);
        let is_common = current >= theirs_min.max(VERSION_MIN);
        HelloReply {
            opcode: opcode::HELLO_REPLY << 4 | if is_common { 0 } else { REJECT },
            versions: VERSION << 4 | current,
            reads_max: U16::new(reads_max.min(self.reads_max.get())),
            reserved: [0; 24],
        }
    }
}

impl HelloReply {
    /// REJ: no version is common, and the connection ends.
    pub fn is_rejection(&self) -> bool {
        self.opcode & REJECT != 0
    }
}

/// A message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Message<'a> {
    /// A control-type PDU.
    Control(ControlHeader, &'a [u8]),
    /// Hello.
    Hello(Hello),
    /// HelloReply.
    HelloReply(HelloReply),
}

/// Why a message is malformed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    /// Too short for its iSER header.
    #[error("a message of {0} bytes is shorter than its iSER header")]
    Length(usize),
    /// The opcode is unknown.
    #[error("iSER opcode {0} does not exist")]
    Opcode(u8),
}

impl<'a> Message<'a> {
    /// Parses a message.
    pub fn parse(bytes: &'a [u8], layout: Layout) -> Result<Self, Malformed> {
        let short = Malformed::Length(bytes.len());
        let opcode = bytes.first().ok_or(short)? >> 4;
        match opcode {
            opcode::CONTROL => {
                let (header, pdu) = control(bytes, layout).ok_or(short)?;
                Ok(Self::Control(header, pdu))
            }
            opcode::HELLO => Ok(Self::Hello(padded(bytes).ok_or(short)?)),
            opcode::HELLO_REPLY => Ok(Self::HelloReply(padded(bytes).ok_or(short)?)),
            other => Err(Malformed::Opcode(other)),
        }
    }
}

fn control(bytes: &[u8], layout: Layout) -> Option<(ControlHeader, &[u8])> {
    match layout {
        Layout::Expanded => ControlHeader::read_from_prefix(bytes).ok(),
        Layout::Short => {
            let (header, pdu) = ShortControlHeader::read_from_prefix(bytes).ok()?;
            Some((header.into(), pdu))
        }
    }
}

/// A header whose reserved part may be absent.
fn padded<T: FromBytes>(bytes: &[u8]) -> Option<T> {
    let mut whole = [0; HEADER_LEN];
    let len = bytes.len().min(HEADER_LEN);
    whole[..len].copy_from_slice(&bytes[..len]);
    (len >= SHORT_HEADER_LEN)
        .then(|| T::read_from_bytes(&whole).ok())
        .flatten()
}

/// The private data of the connection manager's request and reply (annex A12).
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    FromBytes,
    IntoBytes,
    Immutable,
    KnownLayout,
    Unaligned,
)]
#[repr(C)]
pub struct CmHeader {
    /// Bit 7: zero-based addresses are not supported (request) or not used (reply). Bit 6: the same
    /// of messages that invalidate a key.
    pub flags: u8,
    /// Reserved.
    pub reserved: [u8; 3],
}

const _: () = assert!(size_of::<CmHeader>() == 4);

/// Flag: no zero-based addresses.
const NO_ZERO_BASED: u8 = 0x80;
/// Flag: no messages that invalidate a key.
const NO_INVALIDATE: u8 = 0x40;

impl CmHeader {
    /// The private data of either side with these flags.
    pub fn new(zero_based: bool, invalidates: bool) -> Self {
        let unless = |yes, bit| if yes { 0 } else { bit };
        Self {
            flags: unless(zero_based, NO_ZERO_BASED) | unless(invalidates, NO_INVALIDATE),
            reserved: [0; 3],
        }
    }

    /// Parses private data; `None` if they are too short.
    pub fn parse(private_data: &[u8]) -> Option<Self> {
        Some(Self::read_from_prefix(private_data).ok()?.0)
    }

    /// Whether keys may be zero-based.
    pub fn zero_based(self) -> bool {
        self.flags & NO_ZERO_BASED == 0
    }

    /// Whether messages may invalidate a key.
    pub fn invalidates(self) -> bool {
        self.flags & NO_INVALIDATE == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Captured: the header of a read of Linux 6.12's ib_iser: RSV, key 3ECh at FFFF8CBF_27635700h.
    const READ: [u8; HEADER_LEN] = [
        0x14, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x03, 0xEC, 0xFF, 0xFF, 0x8C,
        0xBF, 0x27, 0x63, 0x57, 0,
    ];

    fn parse(bytes: &[u8]) -> Result<Message<'_>, Malformed> {
        Message::parse(bytes, Layout::Expanded)
    }

    #[test]
    fn the_control_header_reads_and_writes_as_linux_lays_it_out() {
        let tag = Tag {
            stag: 0x03EC,
            base: 0xFFFF_8CBF_2763_5700,
        };
        let header = ControlHeader::new(None, Some(tag));
        assert_eq!(header.as_bytes(), READ);
        assert_eq!(parse(&READ), Ok(Message::Control(header, &[])));
        assert_eq!((header.write(), header.read()), (None, Some(tag)));
        let mut bytes = READ.to_vec();
        bytes.push(0x2A);
        assert_eq!(parse(&bytes), Ok(Message::Control(header, &[0x2A])));
        let both = ControlHeader::new(Some(tag), Some(tag));
        assert_eq!(both.flags, 0x1C);
        assert_eq!(both.as_bytes()[4..16], both.as_bytes()[16..28]);
        assert_eq!(both.write(), Some(tag));
    }

    #[test]
    fn a_header_without_base_offsets_names_buffers_from_offset_0_on() {
        let bytes = [0x1C, 0, 0, 0, 0, 0, 0x12, 0x34, 0, 0, 0x56, 0x78, 0x2A];
        let Ok(Message::Control(header, pdu)) = Message::parse(&bytes, Layout::Short) else {
            panic!("a control-type PDU");
        };
        let tag = |stag| Some(Tag { stag, base: 0 });
        assert_eq!((header.write(), header.read()), (tag(0x1234), tag(0x5678)));
        assert_eq!(pdu, [0x2A]);
        for len in 0..SHORT_HEADER_LEN {
            let cut = Message::parse(&bytes[..len], Layout::Short);
            assert_eq!(cut, Err(Malformed::Length(len)));
        }
    }

    #[test]
    fn a_login_tells_the_layout_of_its_header() {
        for layout in [Layout::Expanded, Layout::Short] {
            let mut login = vec![opcode::CONTROL << 4];
            login.resize(layout.header_len(), 0);
            for first in [request::LOGIN, request::LOGIN | 0x40] {
                login.truncate(layout.header_len());
                login.push(first);
                login.resize(layout.header_len() + 48, 0);
                assert_eq!(Layout::of_login(&login), layout);
            }
        }
        assert_eq!(Layout::of_login(&[0x10; 12]), Layout::Expanded);
    }

    #[test]
    fn a_tag_that_is_not_valid_is_not_read() {
        let mut bytes = READ;
        bytes[0] = 0x10;
        let Ok(Message::Control(header, _)) = parse(&bytes) else {
            panic!("a control-type PDU");
        };
        assert_eq!((header.write(), header.read()), (None, None));
    }

    #[test]
    fn short_messages_and_other_opcodes_are_refused() {
        for len in 0..HEADER_LEN {
            assert_eq!(parse(&READ[..len]), Err(Malformed::Length(len)));
        }
        for other in (0..16).filter(|other| !(1..=3).contains(other)) {
            let mut bytes = READ;
            bytes[0] = other << 4;
            assert_eq!(parse(&bytes), Err(Malformed::Opcode(other)));
        }
        assert_eq!(
            parse(&[0x20; 11]),
            Err(Malformed::Length(11)),
            "a Hello has 12 bytes at the least"
        );
    }

    #[test]
    fn hello_agrees_on_the_highest_common_version() {
        let cases = [
            // MaxVer and MinVer; REJ; CurVer.
            (0xAA, false, 10),
            (0xFA, false, 10),
            (0x11, false, 1),
            (0xA1, false, 10),
            (0xFB, true, 10),
            (0x00, true, 0),
        ];
        for (versions, rejects, current) in cases {
            let mut hello = Hello::new(4);
            hello.versions = versions;
            let reply = hello.reply(16);
            assert_eq!(reply.is_rejection(), rejects, "{versions:#x}");
            assert_eq!(reply.versions, VERSION << 4 | current, "{versions:#x}");
            assert_eq!(
                reply.reads_max.get(),
                4,
                "no more than the initiator answers"
            );
            assert_eq!(parse(reply.as_bytes()), Ok(Message::HelloReply(reply)));
        }
        let hello = Hello::new(4);
        assert_eq!(hello.as_bytes()[..4], [0x20, 0xA1, 0, 4]);
        let short = &hello.as_bytes()[..12];
        assert_eq!(parse(short), Ok(Message::Hello(hello)));
    }

    #[test]
    fn the_private_data_say_what_is_not_done() {
        // Captured, Linux 6.12's ib_iser: no zero-based addresses; messages may invalidate.
        let linux = CmHeader::parse(&[0x80, 0, 0, 0]).expect("long enough");
        assert!(!linux.zero_based() && linux.invalidates());
        assert_eq!(CmHeader::parse(&[0x80, 0, 0]), None);
        for flags in [0x00, 0x40, 0x80, 0xC0] {
            let header = CmHeader::parse(&[flags; 56]).expect("long enough");
            let again = CmHeader::new(header.zero_based(), header.invalidates());
            assert_eq!(again.flags, flags);
        }
    }
}
