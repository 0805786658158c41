//! Page-aligned buffers, one per slot, in one mapping that never moves.

use std::{io, ptr, slice};

use rustix::mm::{MapFlags, ProtFlags};

/// One mapping, cut into equal slots.
#[derive(Debug)]
pub(crate) struct Buffers {
    base: *mut u8,
    /// Bytes of a slot that can be used.
    slot_bytes: usize,
    /// Bytes from one slot to the next: `slot_bytes` rounded up to whole pages.
    stride_bytes: usize,
    count: u16,
}

// SAFETY: the mapping belongs to this value alone and is not tied to a thread.
unsafe impl Send for Buffers {}

const PAGE_BYTES: usize = 4096;

impl Buffers {
    pub(crate) fn new(count: u16, slot_bytes: usize) -> io::Result<Self> {
        let stride_bytes = slot_bytes.next_multiple_of(PAGE_BYTES).max(PAGE_BYTES);
        let len = stride_bytes * usize::from(count).max(1);
        // SAFETY: an anonymous mapping at an address that the kernel chooses overlaps nothing.
        let base = unsafe {
            rustix::mm::mmap_anonymous(
                ptr::null_mut(),
                len,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::PRIVATE | MapFlags::POPULATE,
            )
        }?;
        Ok(Self {
            base: base.cast(),
            slot_bytes,
            stride_bytes,
            count,
        })
    }

    pub(crate) fn slot_bytes(&self) -> usize {
        self.slot_bytes
    }

    /// Where a slot's buffer starts. Panics where there is no such slot.
    pub(crate) fn slot_ptr(&self, slot: u16) -> *mut u8 {
        assert!(slot < self.count, "there is no slot {slot}");
        // SAFETY: `slot` is below `count`, so the result is inside the mapping.
        unsafe { self.base.add(usize::from(slot) * self.stride_bytes) }
    }

    /// A slot's bytes.
    ///
    /// # Safety
    /// While the result lives, nothing writes the slot's bytes, the kernel included.
    pub(crate) unsafe fn slot(&self, slot: u16) -> &[u8] {
        // SAFETY: the slot is inside the mapping, which is initialized (zeros); the caller keeps
        // writers away.
        unsafe { slice::from_raw_parts(self.slot_ptr(slot), self.slot_bytes) }
    }

    /// A slot's bytes, to change.
    ///
    /// # Safety
    /// While the result lives, nothing else reads or writes the slot's bytes, the kernel included.
    pub(crate) unsafe fn slot_mut(&mut self, slot: u16) -> &mut [u8] {
        // SAFETY: the slot is inside the mapping, which is initialized; the caller keeps others
        // away.
        unsafe { slice::from_raw_parts_mut(self.slot_ptr(slot), self.slot_bytes) }
    }

    /// The slots' buffers, in order, as the kernel takes them for registration.
    pub(crate) fn iovecs(&self) -> Vec<libc::iovec> {
        (0..self.count)
            .map(|slot| libc::iovec {
                iov_base: self.slot_ptr(slot).cast(),
                iov_len: self.slot_bytes,
            })
            .collect()
    }

    /// Leaves the mapping in place until the process ends.
    pub(crate) fn leak(&mut self) {
        self.base = ptr::null_mut();
    }
}

impl Drop for Buffers {
    fn drop(&mut self) {
        if self.base.is_null() {
            return;
        }
        let len = self.stride_bytes * usize::from(self.count).max(1);
        // SAFETY: the mapping is this value's own, no reference into it outlives it, and the owner
        // has waited for the kernel's requests. Unmapping one's own mapping does not fail.
        let _ = unsafe { rustix::mm::munmap(self.base.cast(), len) };
    }
}
