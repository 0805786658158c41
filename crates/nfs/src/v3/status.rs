//! nfsstat3: how a call ends (RFC 1813 section 2.6).

use file_tree::{FileError, NameFault};

/// nfsstat3.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum Status {
    Ok = 0,
    NotOwner = 1,
    NotFound = 2,
    Io = 5,
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
    NotSynchronized = 10_002,
    BadCookie = 10_003,
    NotSupported = 10_004,
    TooSmall = 10_005,
    BadType = 10_007,
    TryLater = 10_008,
}

impl From<FileError> for Status {
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
            FileError::NotSynchronized => Self::NotSynchronized,
            // Version 3 has no extended attributes.
            FileError::NotSupported | FileError::NoXattr | FileError::XattrTooLong => {
                Self::NotSupported
            }
            FileError::Busy => Self::TryLater,
            FileError::Io => Self::Io,
        }
    }
}

/// Of an entry's name (section 3.2). `.` and `..` mean something else in each procedure.
impl Status {
    /// The status for a name that is no name of an entry, if `.` and `..` have the status `dots`.
    pub(crate) fn of_name(fault: NameFault, dots: Self) -> Self {
        match fault {
            NameFault::Empty | NameFault::ForbiddenByte => Self::AccessDenied,
            NameFault::TooLong(_) => Self::NameTooLong,
            NameFault::Dots => dots,
        }
    }

    /// The status of an operation on data. RFC 1813 sections 3.3.6, 3.3.7 and 3.3.21 name
    /// NFS3ERR_INVAL for files that have none.
    pub(crate) fn of_data(error: FileError) -> Self {
        match error {
            FileError::IsDirectory => Self::Invalid,
            _ => error.into(),
        }
    }
}
