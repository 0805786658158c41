//! How an operation fails.

/// Why a tree refuses an operation. Each has the meaning of the POSIX error in its comment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FileError {
    /// The caller is neither the owner nor root (EPERM).
    #[error("the caller does not own the file")]
    NotOwner,
    /// No entry has the name (ENOENT).
    #[error("no such file")]
    NotFound,
    /// Permission bits forbid it (EACCES).
    #[error("permission denied")]
    AccessDenied,
    /// An entry has the name already (EEXIST).
    #[error("the name exists")]
    Exists,
    /// The file is not a directory (ENOTDIR).
    #[error("not a directory")]
    NotDirectory,
    /// The file is a directory (EISDIR).
    #[error("a directory")]
    IsDirectory,
    /// The operation is not for this kind of file, or an argument is out of range (EINVAL).
    #[error("invalid argument")]
    Invalid,
    /// The size or offset is beyond the largest that the tree takes (EFBIG).
    #[error("larger than the largest file")]
    TooLarge,
    /// Memory or the share's quota is used up (ENOSPC).
    #[error("no space left in the share")]
    NoSpace,
    /// The share's quota of files or bytes is used up (EDQUOT).
    #[error("the quota of the share is used up")]
    QuotaExceeded,
    /// The tree is read-only at present (EROFS).
    #[error("the share is read-only")]
    ReadOnly,
    /// The file has the most hard links that it may have (EMLINK).
    #[error("too many links")]
    TooManyLinks,
    /// A name is longer than the tree takes (ENAMETOOLONG).
    #[error("the name is too long")]
    NameTooLong,
    /// The directory has entries (ENOTEMPTY).
    #[error("the directory is not empty")]
    NotEmpty,
    /// The identifier names no file of this tree, or not any more (ESTALE).
    #[error("the file does not exist any more")]
    Stale,
    /// The cookie or its verifier names no place in the directory.
    #[error("the position in the directory is invalid")]
    BadCookie,
    /// The guard of a change of attributes does not match (NFS3ERR_NOT_SYNC, RFC 1813 section 2.6).
    #[error("the file was changed meanwhile")]
    NotSynchronized,
    /// The file has no extended attribute of this name (ENODATA).
    #[error("no such extended attribute")]
    NoXattr,
    /// The value of an extended attribute is longer than the tree takes (E2BIG).
    #[error("the value of the extended attribute is too long")]
    XattrTooLong,
    /// The tree has no such operation (EOPNOTSUPP).
    #[error("not supported by the share")]
    NotSupported,
    /// The tree cannot answer now; the same call may succeed later (EAGAIN).
    #[error("busy; try again later")]
    Busy,
    /// What stores the tree failed (EIO).
    #[error("input or output error")]
    Io,
}
