//! nfsstat4: how an operation of NFS version 4 ends.
//!
//! Read first: RFC 8881 section 15.1, and RFC 8276 section 8.5 for extended attributes.

use file_tree::{FileError, NameFault, XattrNameFault};

use crate::xdr::Malformed;

/// nfsstat4, as far as this server returns it. The names are the specification's, with words
/// spelled out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum Status4 {
    Ok = 0,
    NotOwner = 1,
    NotFound = 2,
    Io = 5,
    NoSuchOffset = 6,
    AccessDenied = 13,
    Exists = 17,
    OtherDevice = 18,
    NotDirectory = 20,
    IsDirectory = 21,
    Invalid = 22,
    TooLarge = 27,
    NoSpace = 28,
    ReadOnly = 30,
    TooManyLinks = 31,
    NameTooLong = 63,
    NotEmpty = 66,
    QuotaExceeded = 69,
    Stale = 70,
    BadHandle = 10_001,
    BadCookie = 10_003,
    NotSupported = 10_004,
    TooSmall = 10_005,
    ServerFault = 10_006,
    BadType = 10_007,
    Delay = 10_008,
    Same = 10_009,
    Denied = 10_010,
    Expired = 10_011,
    Locked = 10_012,
    Grace = 10_013,
    ShareDenied = 10_015,
    ClientIdInUse = 10_017,
    Resource = 10_018,
    NoFileHandle = 10_020,
    MinorVersionMismatch = 10_021,
    StaleClientId = 10_022,
    StaleStateId = 10_023,
    OldStateId = 10_024,
    BadStateId = 10_025,
    BadSequence = 10_026,
    NotSame = 10_027,
    SymbolicLink = 10_029,
    NoSavedHandle = 10_030,
    AttributeNotSupported = 10_032,
    NoGrace = 10_033,
    ReclaimBad = 10_034,
    BadXdr = 10_036,
    LocksHeld = 10_037,
    OpenMode = 10_038,
    BadOwner = 10_039,
    BadChar = 10_040,
    BadName = 10_041,
    IllegalOperation = 10_044,
    BadSession = 10_052,
    BadSlot = 10_053,
    CompleteAlready = 10_054,
    MisorderedSequence = 10_063,
    SequencePosition = 10_064,
    RequestTooBig = 10_065,
    ReplyTooBig = 10_066,
    ReplyTooBigToCache = 10_067,
    RetryUncachedReply = 10_068,
    TooManyOperations = 10_070,
    NotInSession = 10_071,
    ClientIdBusy = 10_074,
    FalseRetry = 10_076,
    NotOnlyOperation = 10_081,
    WrongType = 10_083,
    DelegationRevoked = 10_087,
    UnionNotSupported = 10_090,
    NoXattr = 10_095,
    XattrTooBig = 10_096,
}

impl Status4 {
    /// Whether a request of an owner with this status takes its number (RFC 7530 section 9.1.7).
    /// After the other errors the client uses the number again.
    pub(crate) const fn counts_for_owner(self) -> bool {
        !matches!(
            self,
            Self::StaleClientId
                | Self::StaleStateId
                | Self::BadStateId
                | Self::BadSequence
                | Self::BadXdr
                | Self::Resource
                | Self::NoFileHandle
        )
    }

    /// The status that minor version 0 has instead of one that came later (RFC 7530 section 13.1).
    pub(crate) const fn of_version_0(self) -> Self {
        match self {
            Self::WrongType => Self::Invalid,
            Self::ReplyTooBig | Self::TooManyOperations => Self::Resource,
            status => status,
        }
    }
}

impl From<Malformed> for Status4 {
    fn from(Malformed: Malformed) -> Self {
        Self::BadXdr
    }
}

impl From<FileError> for Status4 {
    fn from(error: FileError) -> Self {
        match error {
            FileError::NotOwner => Self::NotOwner,
            FileError::NotFound => Self::NotFound,
            FileError::AccessDenied => Self::AccessDenied,
            FileError::Exists => Self::Exists,
            FileError::NotDirectory => Self::NotDirectory,
            FileError::IsDirectory => Self::IsDirectory,
            FileError::Invalid => Self::Invalid,
            FileError::TooLarge => Self::TooLarge,
            FileError::NoSpace => Self::NoSpace,
            FileError::QuotaExceeded => Self::QuotaExceeded,
            FileError::ReadOnly => Self::ReadOnly,
            FileError::TooManyLinks => Self::TooManyLinks,
            FileError::NameTooLong => Self::NameTooLong,
            FileError::NotEmpty => Self::NotEmpty,
            FileError::Stale => Self::Stale,
            FileError::BadCookie => Self::BadCookie,
            FileError::NoXattr => Self::NoXattr,
            FileError::XattrTooLong => Self::XattrTooBig,
            FileError::NotSupported => Self::NotSupported,
            // No operation of this version has a guard.
            FileError::NotSynchronized => Self::ServerFault,
            FileError::Busy => Self::Delay,
            FileError::Io => Self::Io,
        }
    }
}

impl From<NameFault> for Status4 {
    fn from(fault: NameFault) -> Self {
        match fault {
            NameFault::Empty => Self::Invalid,
            NameFault::TooLong(_) => Self::NameTooLong,
            NameFault::Dots => Self::BadName,
            NameFault::ForbiddenByte => Self::BadChar,
        }
    }
}

impl From<XattrNameFault> for Status4 {
    fn from(fault: XattrNameFault) -> Self {
        match fault {
            XattrNameFault::Empty => Self::Invalid,
            XattrNameFault::TooLong(_) => Self::NameTooLong,
            XattrNameFault::ForbiddenByte => Self::BadChar,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_those_of_rfc_8881() {
        for (status, number) in [
            (Status4::ServerFault, 10_006),
            (Status4::Denied, 10_010),
            (Status4::ClientIdInUse, 10_017),
            (Status4::BadStateId, 10_025),
            (Status4::AttributeNotSupported, 10_032),
            (Status4::BadXdr, 10_036),
            (Status4::IllegalOperation, 10_044),
            (Status4::BadSession, 10_052),
            (Status4::FalseRetry, 10_076),
            (Status4::WrongType, 10_083),
            (Status4::NoXattr, 10_095),
            (Status4::XattrTooBig, 10_096),
        ] {
            assert_eq!(status as u32, number);
        }
    }
}
