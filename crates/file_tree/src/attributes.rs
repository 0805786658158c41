//! What is known about a file.

use crate::FileId;

/// What a file is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileKind {
    /// Bytes.
    Regular,
    /// Entries.
    Directory,
    /// A path.
    SymbolicLink,
    /// A block device of the client that opens it.
    BlockDevice(DeviceNumber),
    /// A character device of the client that opens it.
    CharacterDevice(DeviceNumber),
    /// A named pipe of the client that opens it.
    Fifo,
    /// A socket of the client that opens it.
    Socket,
}

/// The number of a device. The server never opens it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceNumber {
    /// The driver.
    pub major: u32,
    /// The driver's device.
    pub minor: u32,
}

/// Permission bits: read, write and execute of owner, group and others, set-user-ID, set-group-ID
/// and the sticky bit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mode(u16);

impl Mode {
    /// Set-user-ID on execution.
    pub const SET_UID: u16 = 0o4000;
    /// Set-group-ID on execution; on a directory, new entries inherit the group.
    pub const SET_GID: u16 = 0o2000;
    /// On a directory: only owners remove or rename entries.
    pub const STICKY: u16 = 0o1000;
    /// All bits of a mode.
    pub const ALL: u16 = 0o7777;

    /// The bits of `bits` that are those of a mode; others are ignored.
    pub const fn new(bits: u32) -> Self {
        Self((bits & Self::ALL as u32) as u16)
    }

    /// The bits.
    pub const fn bits(self) -> u16 {
        self.0
    }
}

/// An instant, in seconds and nanoseconds since 1970-01-01 00:00 UTC.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Timestamp {
    /// Seconds, negative before 1970.
    pub seconds: i64,
    /// Nanoseconds, below 1,000,000,000.
    pub nanoseconds: u32,
}

/// The attributes of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attributes {
    /// The file.
    pub id: FileId,
    /// What it is.
    pub kind: FileKind,
    /// Permission bits.
    pub mode: Mode,
    /// Hard links.
    pub links: u32,
    /// The owner.
    pub uid: u32,
    /// The group.
    pub gid: u32,
    /// The length in bytes; of a symbolic link, that of its path.
    pub size_bytes: u64,
    /// The memory or disk space that it takes.
    pub used_bytes: u64,
    /// When data were last read.
    pub accessed: Timestamp,
    /// When data or entries were last changed.
    pub modified: Timestamp,
    /// When data, entries or attributes were last changed.
    pub changed: Timestamp,
    /// A number that differs after each change of data, entries or attributes.
    pub change: u64,
}

impl Attributes {
    /// What a client compares with its cache.
    pub fn before_change(&self) -> BeforeChange {
        BeforeChange {
            size_bytes: self.size_bytes,
            modified: self.modified,
            changed: self.changed,
            change: self.change,
        }
    }
}

/// Attributes as they were immediately before an operation, so that a client learns whether only
/// its own operation changed the file (wcc_attr, RFC 1813 section 2.6).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BeforeChange {
    /// See [`Attributes::size_bytes`].
    pub size_bytes: u64,
    /// See [`Attributes::modified`].
    pub modified: Timestamp,
    /// See [`Attributes::changed`].
    pub changed: Timestamp,
    /// See [`Attributes::change`].
    pub change: u64,
}

/// How a change of attributes sets a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimeChange {
    /// To the tree's present time. A caller who may write the file may ask for that.
    Now,
    /// To this instant. Only the owner may ask for that.
    To(Timestamp),
}

/// Which attributes to change; `None` leaves one as it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AttributeChanges {
    /// Permission bits.
    pub mode: Option<Mode>,
    /// The owner.
    pub uid: Option<u32>,
    /// The group.
    pub gid: Option<u32>,
    /// The length in bytes, of a regular file: it is cut off, or extended by bytes that read as
    /// zeros.
    pub size_bytes: Option<u64>,
    /// When data were last read.
    pub accessed: Option<TimeChange>,
    /// When data were last changed.
    pub modified: Option<TimeChange>,
}
