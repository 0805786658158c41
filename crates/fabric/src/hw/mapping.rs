//! Pages of memory that adapters reach.

use std::ffi::c_void;
use std::ptr::NonNull;

use crate::HwError;

/// The unit of registration. Adapters require equal offsets of addresses in it.
pub(super) const PAGE_BYTES: u64 = 4096;

/// Zeroed pages. They are unmapped when the last registration of them is gone.
pub(super) struct Mapping {
    start: NonNull<u8>,
    len_bytes: usize,
    mapped_bytes: usize,
}

// SAFETY: the pages are plain memory that nothing else owns; any thread may map or unmap them.
unsafe impl Send for Mapping {}
// SAFETY: through a shared reference they can only be read.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Zeroed memory of `len_bytes`, at least one page.
    pub(super) fn new(len_bytes: usize) -> Result<Self, HwError> {
        let unit = PAGE_BYTES as usize;
        let mapped_bytes = len_bytes.max(1).checked_next_multiple_of(unit);
        let pages = mapped_bytes.and_then(|mapped_bytes| {
            // SAFETY: a new private mapping at an address that the system chooses touches nothing
            // that exists.
            let start = unsafe {
                libc::mmap(
                    std::ptr::null_mut(),
                    mapped_bytes,
                    libc::PROT_READ | libc::PROT_WRITE,
                    libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                    -1,
                    0,
                )
            };
            let start = (start != libc::MAP_FAILED).then(|| NonNull::new(start.cast::<u8>()));
            Some((start??, mapped_bytes))
        });
        let (start, mapped_bytes) = pages.ok_or_else(|| HwError::Pin {
            len_bytes: len_bytes as u64,
            error: std::io::Error::last_os_error(),
        })?;
        // A child process must not share pages that the adapter writes: copy-on-write would
        // separate this process from them. SAFETY: the range is the mapping that was just made. If
        // the system refuses, only this protection is missing.
        unsafe {
            libc::madvise(start.as_ptr().cast(), mapped_bytes, libc::MADV_DONTFORK);
        }
        Ok(Self {
            start,
            len_bytes,
            mapped_bytes,
        })
    }

    pub(super) fn address(&self) -> *mut c_void {
        self.start.as_ptr().cast()
    }

    pub(super) const fn len_bytes(&self) -> usize {
        self.len_bytes
    }

    pub(super) fn bytes(&self) -> &[u8] {
        // SAFETY: the mapping has that many initialized bytes as long as `self` lives. Adapters may
        // write some of them meanwhile, as another process may write a shared file's mapping: they
        // are plain numbers, and `Provider::bytes` tells its caller to copy them before checking
        // them.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len_bytes) }
    }

    /// # Safety
    /// No other slice of the mapping is used at the same time.
    #[expect(
        clippy::mut_from_ref,
        reason = "registrations share the mapping, slices of it do not"
    )]
    pub(super) unsafe fn bytes_mut(&self) -> &mut [u8] {
        // SAFETY: as in `bytes`, and the caller promises that this slice is alone.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.len_bytes) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the mapping was made with this length, slices of it borrow `self`, and each
        // registration holds it, so no adapter can reach it any more.
        unsafe {
            libc::munmap(self.start.as_ptr().cast(), self.mapped_bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mappings_are_zeroed_and_of_the_length_asked_for() {
        let mapping = Mapping::new(5000).expect("there is memory");
        assert_eq!(mapping.mapped_bytes, 8192);
        assert_eq!(mapping.address().addr() % 4096, 0);
        assert!(mapping.bytes().len() == 5000 && mapping.bytes().iter().all(|byte| *byte == 0));
        // SAFETY: no other slice of it is used.
        let bytes = unsafe { mapping.bytes_mut() };
        bytes[4999] = 7;
        assert_eq!(mapping.bytes()[4999], 7);
        assert_eq!(Mapping::new(0).expect("a page").bytes(), [0_u8; 0]);
    }

    #[test]
    fn impossible_sizes_are_errors() {
        let error = Mapping::new(usize::MAX)
            .err()
            .expect("more than any machine has");
        assert!(error.to_string().contains("ulimit -l"), "{error}");
        let error = Mapping::new(1 << 62)
            .err()
            .expect("more than any machine has");
        assert!(error.to_string().contains("ulimit -l"), "{error}");
    }
}
