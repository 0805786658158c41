//! Errors of the host as errors of a tree.

use file_tree::FileError;
use rustix::io::Errno;

/// The error of a tree for one of the host.
pub(crate) fn of_host(error: Errno) -> FileError {
    match error {
        Errno::PERM => FileError::NotOwner,
        // Another mount and a name that changes while it is resolved: for clients nothing is there.
        Errno::NOENT | Errno::XDEV => FileError::NotFound,
        Errno::ACCESS => FileError::AccessDenied,
        Errno::EXIST => FileError::Exists,
        Errno::NOTDIR | Errno::LOOP => FileError::NotDirectory,
        Errno::ISDIR => FileError::IsDirectory,
        Errno::INVAL => FileError::Invalid,
        Errno::FBIG | Errno::OVERFLOW => FileError::TooLarge,
        Errno::NOSPC => FileError::NoSpace,
        Errno::DQUOT => FileError::QuotaExceeded,
        Errno::ROFS => FileError::ReadOnly,
        Errno::MLINK => FileError::TooManyLinks,
        Errno::NAMETOOLONG => FileError::NameTooLong,
        Errno::NOTEMPTY => FileError::NotEmpty,
        Errno::STALE => FileError::Stale,
        Errno::OPNOTSUPP | Errno::NOSYS => FileError::NotSupported,
        // Descriptors or memory of the process are used up: it may be better soon.
        Errno::MFILE | Errno::NFILE | Errno::NOMEM | Errno::AGAIN | Errno::BUSY | Errno::TXTBSY => {
            FileError::Busy
        }
        _ => FileError::Io,
    }
}
