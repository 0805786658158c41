//! Asking the processor for memory before it is needed.

/// What one prefetch asks for: the processor follows a longer copy by itself.
const PREFETCH_BYTES_MAX: usize = 1024;
const CACHE_LINE_BYTES: usize = 64;

/// Asks the processor to bring a value, which others may be changing, into its cache. Changes
/// nothing.
pub fn prefetch_value<T>(value: &T) {
    prefetch_at(std::ptr::from_ref(value).cast(), size_of::<T>());
}

/// The same for the first line of a value that is longer.
pub fn prefetch_line<T>(value: &T) {
    let len = size_of::<T>().min(CACHE_LINE_BYTES);
    prefetch_at(std::ptr::from_ref(value).cast(), len);
}

/// The same for bytes that others may be changing.
pub(crate) fn prefetch_at(from: *const u8, len: usize) {
    for line in (0..len.min(PREFETCH_BYTES_MAX)).step_by(CACHE_LINE_BYTES) {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: a prefetch reads nothing that the program sees and never faults, whatever the
        // address.
        unsafe {
            use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
            _mm_prefetch::<_MM_HINT_T0>(from.wrapping_add(line).cast());
        }
        #[cfg(not(target_arch = "x86_64"))]
        let _no_such_instruction = (from, line);
    }
}
