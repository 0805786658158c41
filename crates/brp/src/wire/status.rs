//! Status codes and violations.

use std::fmt;

use block::Status as VolumeStatus;

/// How a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[repr(u16)]
pub enum Status {
    /// Success.
    #[default]
    Success = 0,
    /// A field of the command is not valid.
    Invalid = 1,
    /// A block is beyond the end of the unit.
    LbaOutOfRange = 2,
    /// The unit, or the host's access to it, is read-only.
    WriteProtected = 3,
    /// The target has no space left.
    CapacityExceeded = 4,
    /// The data differ.
    Miscompare = 5,
    /// Reading failed.
    ReadError = 6,
    /// Writing failed.
    WriteError = 7,
    /// The target cannot execute the command at present.
    Busy = 8,
    /// The unit cannot be used until someone acts at the target.
    NotReady = 9,
    /// The unit has been removed.
    Gone = 10,
    /// The host has given the command up.
    Aborted = 11,
    /// A reservation of another host excludes the command.
    Conflict = 12,
    /// The operation is not supported.
    Unsupported = 13,
    /// The host may do nothing with the unit any more.
    Denied = 14,
}

impl Status {
    const ALL: [Self; 15] = [
        Self::Success,
        Self::Invalid,
        Self::LbaOutOfRange,
        Self::WriteProtected,
        Self::CapacityExceeded,
        Self::Miscompare,
        Self::ReadError,
        Self::WriteError,
        Self::Busy,
        Self::NotReady,
        Self::Gone,
        Self::Aborted,
        Self::Conflict,
        Self::Unsupported,
        Self::Denied,
    ];

    /// The status of a number. `None` if it is not known.
    pub fn from_number(number: u16) -> Option<Self> {
        Self::ALL.get(usize::from(number)).copied()
    }
}

impl From<VolumeStatus> for Status {
    fn from(status: VolumeStatus) -> Self {
        match status {
            VolumeStatus::LbaOutOfRange => Self::LbaOutOfRange,
            VolumeStatus::WriteProtected => Self::WriteProtected,
            VolumeStatus::CapacityExceeded => Self::CapacityExceeded,
            VolumeStatus::Miscompare { .. } => Self::Miscompare,
            VolumeStatus::ReadError => Self::ReadError,
            VolumeStatus::WriteError => Self::WriteError,
            VolumeStatus::Busy => Self::Busy,
            VolumeStatus::NotReady => Self::NotReady,
            VolumeStatus::Gone => Self::Gone,
            VolumeStatus::Invalid => Self::Invalid,
        }
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Success => "success",
            Self::Invalid => "a field of the command is invalid",
            Self::LbaOutOfRange => "a block is beyond the end of the unit",
            Self::WriteProtected => "the unit is read-only",
            Self::CapacityExceeded => "the target has no space left",
            Self::Miscompare => "the data differ",
            Self::ReadError => "unrecovered read error",
            Self::WriteError => "write fault",
            Self::Busy => "the target is busy",
            Self::NotReady => "the unit is not ready",
            Self::Gone => "the unit was removed",
            Self::Aborted => "the command was aborted",
            Self::Conflict => "another host holds a reservation",
            Self::Unsupported => "the target does not support the operation",
            Self::Denied => "the host has no access any more",
        })
    }
}

/// How a login ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u16)]
pub enum LoginStatus {
    /// It is granted.
    Ok = 0,
    /// The target supports only higher versions.
    Version = 1,
    /// A field is not valid.
    Malformed = 2,
    /// The target does not exist.
    NoTarget = 3,
    /// The target has no such unit.
    NoUnit = 4,
    /// The host may not use the target.
    Denied = 5,
    /// The target takes no more connections at present.
    Busy = 6,
    /// The session does not exist, or is not this host's.
    NoSession = 7,
}

impl LoginStatus {
    /// The status of a number. `None` if it is not known.
    pub const fn from_number(number: u16) -> Option<Self> {
        Some(match number {
            0 => Self::Ok,
            1 => Self::Version,
            2 => Self::Malformed,
            3 => Self::NoTarget,
            4 => Self::NoUnit,
            5 => Self::Denied,
            6 => Self::Busy,
            7 => Self::NoSession,
            _ => return None,
        })
    }
}

impl fmt::Display for LoginStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ok => "the login is granted",
            Self::Version => "the target supports only other versions of BRP",
            Self::Malformed => "the login is malformed",
            Self::NoTarget => "no such target",
            Self::NoUnit => "the target has no volume of this number",
            Self::Denied => "the target does not admit this host",
            Self::Busy => "the target accepts no more connections at present",
            Self::NoSession => "no such session",
        })
    }
}

/// How an end has broken the protocol (FAULT).
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[repr(u8)]
pub enum Violation {
    /// A message of a kind that does not exist or that this end may not send.
    #[error("a message of an unknown kind")]
    Kind = 1,
    /// A length that is not possible.
    #[error("a length that is not possible")]
    Length = 2,
    /// A tag that was not granted.
    #[error("a tag that was not granted")]
    Tag = 3,
    /// A command with a tag whose command is in flight.
    #[error("a tag that is in use")]
    TagInUse = 4,
    /// A sequence number lower than the last.
    #[error("a sequence number below the last one of its tag")]
    OldSequence = 5,
    /// A replay of another command than the recorded one.
    #[error("a replay that differs from the command")]
    ReplayDiffers = 6,
    /// Data that were not asked for.
    #[error("data that were not asked for")]
    UnexpectedData = 7,
    /// Something else than LOGIN at the start, or a second LOGIN.
    #[error("a login is missing or not expected")]
    Login = 8,
    /// The other end was silent for too long.
    #[error("silence beyond the keep-alive time")]
    Silence = 9,
    /// The session has a newer connection.
    #[error("the session has a newer connection")]
    Replaced = 10,
    /// A key was invalidated that is not the command's (RDMA).
    #[error("a key was invalidated that does not belong to the command")]
    Key = 11,
}

impl Violation {
    const ALL: [Self; 11] = [
        Self::Kind,
        Self::Length,
        Self::Tag,
        Self::TagInUse,
        Self::OldSequence,
        Self::ReplayDiffers,
        Self::UnexpectedData,
        Self::Login,
        Self::Silence,
        Self::Replaced,
        Self::Key,
    ];

    /// The violation of a FAULT's code. `None` if it is not known.
    pub fn from_byte(byte: u8) -> Option<Self> {
        let index = usize::from(byte).checked_sub(1)?;
        Self::ALL.get(index).copied()
    }
}
