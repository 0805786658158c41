//! Files that share blocks (reflinks), as some file systems have them.

use std::os::fd::{AsRawFd as _, OwnedFd};

use rustix::io::Errno;

/// Lets a range of `target` share the blocks of a range of `source`, at once: ioctl FICLONERANGE. A
/// length of 0 means up to the end of the source.
pub(crate) fn clone_range(
    (source, from): (&OwnedFd, u64),
    (target, to): (&OwnedFd, u64),
    len_bytes: u64,
) -> Result<(), Errno> {
    let range = libc::file_clone_range {
        src_fd: i64::from(source.as_raw_fd()),
        src_offset: from,
        src_length: len_bytes,
        dest_offset: to,
    };
    // SAFETY: `target` is an open descriptor, and `range` is what FICLONERANGE reads. It names an
    // open descriptor and outlives the call, which writes no memory of this process.
    let result = unsafe { libc::ioctl(target.as_raw_fd(), libc::FICLONERANGE, &raw const range) };
    if result == 0 {
        return Ok(());
    }
    let error = std::io::Error::last_os_error();
    Err(Errno::from_io_error(&error).unwrap_or(Errno::IO))
}
