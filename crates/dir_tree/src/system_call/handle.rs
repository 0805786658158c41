//! The file system's own handle of a file, which differs between files that had the same number.

use std::ffi::CStr;
use std::os::fd::{AsRawFd as _, BorrowedFd};

use rustix::io::Errno;

/// The longest handle that the kernel makes (`MAX_HANDLE_SZ`).
const HANDLE_BYTES_MAX: usize = 128;

/// `struct file_handle` with room for the longest handle.
#[derive(Debug)]
#[repr(C)]
struct FileHandle {
    /// The length of `bytes`: that of the room before the call, that of the handle after it.
    len_bytes: u32,
    /// How the file system interprets the bytes.
    kind: i32,
    bytes: [u8; HANDLE_BYTES_MAX],
}

const _: () = assert!(size_of::<FileHandle>() == 8 + HANDLE_BYTES_MAX);

/// A number made of the file system's handle of the entry `name` of `directory`, or of the file
/// `directory` itself if the name is empty. It is the same for as long as the file exists, also
/// after a restart, and another one for a later file of the same number. A symbolic link is not
/// followed.
pub(crate) fn generation(directory: BorrowedFd<'_>, name: &CStr) -> Result<u64, Errno> {
    let mut handle = FileHandle {
        len_bytes: HANDLE_BYTES_MAX as u32,
        kind: 0,
        bytes: [0; HANDLE_BYTES_MAX],
    };
    let mut mount: libc::c_int = 0;
    let flags = if name.is_empty() {
        libc::AT_EMPTY_PATH
    } else {
        0
    };
    // SAFETY: `directory` is an open descriptor and `name` ends with NUL. `handle` begins with the
    // fields of `struct file_handle` and has room for as many bytes as it says. The kernel writes
    // no more than that, and an int to `mount`. Both outlive the call.
    let result = unsafe {
        libc::name_to_handle_at(
            directory.as_raw_fd(),
            name.as_ptr(),
            (&raw mut handle).cast(),
            &raw mut mount,
            flags,
        )
    };
    if result != 0 {
        let error = std::io::Error::last_os_error();
        return Err(Errno::from_io_error(&error).unwrap_or(Errno::IO));
    }
    let len = (handle.len_bytes as usize).min(HANDLE_BYTES_MAX);
    let kind = handle.kind.to_le_bytes();
    Ok(hash(kind.iter().chain(&handle.bytes[..len])))
}

/// FNV-1a with 64 bits. It must never change: clients keep the result in their handles.
fn hash<'a>(bytes: impl Iterator<Item = &'a u8>) -> u64 {
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hash_is_that_of_its_definition() {
        assert_eq!(hash([].iter()), 0xcbf2_9ce4_8422_2325);
        assert_eq!(hash(b"a".iter()), 0xaf63_dc4c_8601_ec8c);
        assert_eq!(hash(b"foobar".iter()), 0x8594_4171_f739_67e8);
    }
}
