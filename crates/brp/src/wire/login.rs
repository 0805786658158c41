//! LOGIN and its reply, and what connection requests over RDMA carry.

use std::fmt;

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::{Kind, MAGIC, TAGS_MAX, VERSION};

/// The longest name of a host or target in bytes.
pub const NAME_BYTES_MAX: usize = 223;
/// The length of LOGIN before its names, in bytes.
pub const HOST_FIELDS_BYTES: usize = 64;

/// Identifies a session; zeros: none. Nobody can predict it, and nothing prints it.
#[derive(
    Clone,
    Copy,
    Default,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    FromBytes,
    IntoBytes,
    KnownLayout,
    Immutable,
    Unaligned,
)]
#[repr(C)]
pub struct SessionId(pub [u8; 16]);

impl SessionId {
    /// No session: a new one is asked for.
    pub const NONE: Self = Self([0; 16]);
}

impl fmt::Debug for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if *self == Self::NONE {
            "SessionId(none)"
        } else {
            "SessionId(hidden)"
        })
    }
}

/// Features that both ends may agree on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Features(pub u32);

impl Features {
    /// Replies in any order (step 2).
    pub const ANY_ORDER: Self = Self(1);
    /// Several replies in one message (step 3).
    pub const MERGE: Self = Self(1 << 1);
    /// With [`MERGE`](Self::MERGE): the target keeps each reply for others, whatever the load.
    pub const MERGE_ALWAYS: Self = Self(1 << 4);

    /// The features of one or both.
    #[must_use]
    pub const fn or(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// The features of both.
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    /// Whether all of `other` are there.
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }
}

/// The steps of the protocol; each includes those before. An end asks for, or grants, the features
/// of its step, so that the lower step of both ends is the one that is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Step {
    /// Replies in the order of the commands (step 1).
    InOrder,
    /// Replies in any order (step 2).
    Parallel,
    /// Replies that are joined (step 3).
    Merge,
}

impl Step {
    /// Every step, in order.
    pub const ALL: [Self; 3] = [Self::InOrder, Self::Parallel, Self::Merge];

    /// Its number, from 1.
    pub const fn number(self) -> u8 {
        self as u8 + 1
    }

    /// The features of the step.
    pub const fn features(self) -> Features {
        match self {
            Self::InOrder => Features(0),
            Self::Parallel => Features::ANY_ORDER,
            Self::Merge => Features::ANY_ORDER.or(Features::MERGE),
        }
    }
}

/// A name, padded with zeros to 224 bytes.
#[derive(Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct NameField([u8; NAME_BYTES_MAX + 1]);

impl NameField {
    /// The field of a name. `None` if the name is empty, too long, or holds a zero.
    pub fn new(name: &str) -> Option<Self> {
        let bytes = name.as_bytes();
        if bytes.is_empty() || bytes.len() > NAME_BYTES_MAX || bytes.contains(&0) {
            return None;
        }
        let mut field = [0; NAME_BYTES_MAX + 1];
        field[..bytes.len()].copy_from_slice(bytes);
        Some(Self(field))
    }

    /// The name. `None` if it breaks BRP-7.
    pub fn name(&self) -> Option<&str> {
        let len = self.0.iter().position(|&byte| byte == 0)?;
        let (name, padding) = self.0.split_at(len);
        if name.is_empty() || padding.iter().any(|&byte| byte != 0) {
            return None;
        }
        std::str::from_utf8(name).ok()
    }
}

impl fmt::Debug for NameField {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("NameField").field(&self.name()).finish()
    }
}

/// LOGIN, 512 bytes.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct Login {
    /// [`Kind::Login`].
    pub kind: u8,
    /// Reserved.
    pub reserved1: [u8; 3],
    /// [`MAGIC`].
    pub magic: [u8; 4],
    /// The highest version that the host supports.
    pub version: U16,
    /// Tags that it asks for.
    pub tags: U16,
    /// Features that it asks for.
    pub features: U32,
    /// The unit.
    pub unit: U32,
    /// The keep-alive time in ms; 0: none.
    pub keep_alive_ms: U32,
    /// How long the target is to keep the record of the session without a connection, in ms.
    pub hold_ms: U32,
    /// The longest transfer that the host uses, in bytes.
    pub transfer_max_bytes: U32,
    /// The most data of a REPLY in bytes (RDMA).
    pub reply_data_max_bytes: U32,
    /// Reserved.
    pub reserved2: [u8; 12],
    /// The session; [`SessionId::NONE`]: a new one.
    pub session: SessionId,
    /// The host's name.
    pub host: NameField,
    /// The target's name.
    pub target: NameField,
}

const _: () = assert!(size_of::<Login>() == 512);
const _: () = assert!(std::mem::offset_of!(Login, session) == 48);
const _: () = assert!(std::mem::offset_of!(Login, host) == HOST_FIELDS_BYTES);
const _: () = assert!(std::mem::offset_of!(Login, target) == 288);

impl Login {
    /// A login as `host` to unit `unit` of `target`, with nothing asked for. `None` if a name is
    /// not one.
    pub fn new(host: &str, target: &str, unit: u32) -> Option<Self> {
        Some(Self {
            kind: Kind::Login as u8,
            reserved1: [0; 3],
            magic: MAGIC,
            version: U16::new(VERSION),
            tags: U16::ZERO,
            features: U32::ZERO,
            unit: U32::new(unit),
            keep_alive_ms: U32::ZERO,
            hold_ms: U32::ZERO,
            transfer_max_bytes: U32::ZERO,
            reply_data_max_bytes: U32::ZERO,
            reserved2: [0; 12],
            session: SessionId::NONE,
            host: NameField::new(host)?,
            target: NameField::new(target)?,
        })
    }

    /// The tags asked for. `None` if that is none or too many.
    pub fn tags(&self) -> Option<u16> {
        let tags = self.tags.get();
        (1..=TAGS_MAX).contains(&tags).then_some(tags)
    }
}

/// Flags of LOGIN_REPLY.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReplyFlags(pub u8);

impl ReplyFlags {
    /// The session existed: its record decides about replays.
    pub const RESUMED: Self = Self(1);
    /// The host may not write.
    pub const READ_ONLY: Self = Self(1 << 1);
    /// The unit has a volatile write cache.
    pub const WRITE_CACHE: Self = Self(1 << 2);

    /// Whether all bits of `other` are set.
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }
}

/// LOGIN_REPLY, 128 bytes.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct LoginReply {
    /// [`Kind::LoginReply`].
    pub kind: u8,
    /// [`ReplyFlags`].
    pub flags: u8,
    /// [`LoginStatus`](super::LoginStatus) as it came.
    pub status: U16,
    /// The version that is spoken from now on.
    pub version: U16,
    /// Tags that are granted.
    pub tags: U16,
    /// Features that are granted.
    pub features: U32,
    /// Commands that the host may have in flight for now.
    pub credits: U16,
    /// log2 of the block size in bytes.
    pub block_shift: u8,
    /// The most descriptors of a command (RDMA).
    pub descriptors_max: u8,
    /// Blocks of the unit.
    pub blocks: U64,
    /// The longest transfer in bytes.
    pub transfer_max_bytes: U32,
    /// The most data inside a WRITE command in bytes.
    pub command_data_max_bytes: U32,
    /// The most data of one side of a COMPARE_AND_WRITE in bytes.
    pub compare_max_bytes: U32,
    /// The most data inside a READ's reply in bytes (RDMA).
    pub reply_data_max_bytes: U32,
    /// The keep-alive time in ms; 0: none.
    pub keep_alive_ms: U32,
    /// How long the record is kept without a connection, in ms.
    pub hold_ms: U32,
    /// The session.
    pub session: SessionId,
    /// The identifier of the volume.
    pub volume: [u8; 16],
    /// Reserved.
    pub reserved: [u8; 48],
}

const _: () = assert!(size_of::<LoginReply>() == 128);
const _: () = assert!(std::mem::offset_of!(LoginReply, blocks) == 16);
const _: () = assert!(std::mem::offset_of!(LoginReply, session) == 48);
const _: () = assert!(std::mem::offset_of!(LoginReply, volume) == 64);

impl LoginReply {
    /// A reply with this status that grants nothing.
    pub fn rejected(status: super::LoginStatus) -> Self {
        Self {
            kind: Kind::LoginReply as u8,
            flags: 0,
            status: U16::new(status as u16),
            version: U16::new(VERSION),
            tags: U16::ZERO,
            features: U32::ZERO,
            credits: U16::ZERO,
            block_shift: 0,
            descriptors_max: 0,
            blocks: U64::ZERO,
            transfer_max_bytes: U32::ZERO,
            command_data_max_bytes: U32::ZERO,
            compare_max_bytes: U32::ZERO,
            reply_data_max_bytes: U32::ZERO,
            keep_alive_ms: U32::ZERO,
            hold_ms: U32::ZERO,
            session: SessionId::NONE,
            volume: [0; 16],
            reserved: [0; 48],
        }
    }
}

/// The private data of a connection request over RDMA, 16 bytes.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct ConnectionRequest {
    /// [`MAGIC`].
    pub magic: [u8; 4],
    /// The version.
    pub version: U16,
    /// Tags that the host will ask for.
    pub tags: U16,
    /// Reserved.
    pub reserved: [u8; 8],
}

const _: () = assert!(size_of::<ConnectionRequest>() == 16);

impl ConnectionRequest {
    /// A request for this many tags.
    pub const fn new(tags: u16) -> Self {
        Self {
            magic: MAGIC,
            version: U16::new(VERSION),
            tags: U16::new(tags),
            reserved: [0; 8],
        }
    }

    /// The record at the start of a request's private data. `None` if it is not one: another magic,
    /// a version below 1, no tags or more than [`TAGS_MAX`].
    pub fn parse(private_data: &[u8]) -> Option<Self> {
        let (request, _) = Self::read_from_prefix(private_data).ok()?;
        let is_valid = request.magic == MAGIC
            && request.version.get() >= VERSION
            && (1..=TAGS_MAX).contains(&request.tags.get());
        is_valid.then_some(request)
    }
}

/// The private data of the reply, 16 bytes.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct ConnectionReply {
    /// [`MAGIC`].
    pub magic: [u8; 4],
    /// The version.
    pub version: U16,
    /// Tags for which receives are posted.
    pub tags: U16,
    /// The length of each receive in bytes.
    pub receive_bytes: U32,
    /// Reserved.
    pub reserved: [u8; 4],
}

const _: () = assert!(size_of::<ConnectionReply>() == 16);

impl ConnectionReply {
    /// A reply: receives of `receive_bytes` bytes each are posted for this many tags.
    pub const fn new(tags: u16, receive_bytes: u32) -> Self {
        Self {
            magic: MAGIC,
            version: U16::new(VERSION),
            tags: U16::new(tags),
            receive_bytes: U32::new(receive_bytes),
            reserved: [0; 4],
        }
    }

    /// The record at the start of a reply's private data. `None` if it is not one.
    pub fn parse(private_data: &[u8]) -> Option<Self> {
        let (reply, _) = Self::read_from_prefix(private_data).ok()?;
        let is_valid =
            reply.magic == MAGIC && reply.version.get() == VERSION && reply.tags.get() > 0;
        is_valid.then_some(reply)
    }
}
