//! Limits of every tree.

use file_tree::Timestamp;

/// The largest length of a file.
pub(crate) const FILE_BYTES_MAX: u64 = 8 << 40;
/// The most links of a file, and of a directory, each of whose subdirectories has one to it.
pub(crate) const LINKS_MAX: u32 = 1 << 20;
/// The longest path of a symbolic link (MNTPATHLEN of RFC 1813, which is what clients of version 3
/// expect to handle).
pub(crate) const LINK_BYTES_MAX: usize = 1024;
/// Times are kept as precisely as they can be expressed.
pub(crate) const TIME_STEP: Timestamp = Timestamp {
    seconds: 0,
    nanoseconds: 1,
};
/// The most extended attributes of a file. The names of all fit into the list of a system call
/// (`XATTR_LIST_MAX` of Linux), with their prefix and NUL.
pub(crate) const XATTRS_MAX: usize = 256;
/// The most bytes that are reserved at a time, so that other connections of the thread do not wait
/// for long.
pub(crate) const ALLOCATE_BYTES_MAX: u64 = 256 << 20;
/// The most bytes that are cloned. They are copied, at once.
pub(crate) const CLONE_BYTES_MAX: u64 = 64 << 20;
