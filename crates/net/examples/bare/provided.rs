//! Buffers that the kernel receives into: the kernel takes the next buffer of a ring and names it
//! in the completion; after use the buffer returns to the ring (io_uring_register_buf_ring(3)).
//!
//! Memory safety: one mapping holds the ring's entries and the buffers. The kernel writes a buffer
//! only between its return to the ring and the completion that names it. The owner of this value
//! reads the buffer only after that, and unmaps nothing before the last receive has ended.

use std::{
    io, ptr,
    sync::atomic::{AtomicU16, Ordering},
};

use io_uring::{Submitter, types::BufRingEntry};
use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};

/// Buffers of a ring, a power of two.
const BUFFERS: u16 = 16;
const BUFFER_BYTES: usize = 64 << 10;
/// Bytes before the buffers: the entries, in a page of their own.
const ENTRIES_BYTES: usize = 4096;
const MAPPING_BYTES: usize = ENTRIES_BYTES + BUFFERS as usize * BUFFER_BYTES;

const _: () = assert!(BUFFERS.is_power_of_two());
const _: () = assert!(BUFFERS as usize * size_of::<BufRingEntry>() <= ENTRIES_BYTES);

/// The ring and its buffers.
pub struct ProvidedBuffers {
    /// The start of the mapping.
    entries: *mut BufRingEntry,
    /// Buffers given to the kernel since the beginning, modulo 2^16: the ring's tail.
    given: u16,
}

impl ProvidedBuffers {
    /// The group's number, which receives name.
    pub const GROUP: u16 = 0;

    /// All buffers are with the kernel once they are registered.
    pub fn new() -> io::Result<Self> {
        // SAFETY: a new mapping, at no address that is in use.
        let mapping = unsafe {
            mmap_anonymous(
                ptr::null_mut(),
                MAPPING_BYTES,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::PRIVATE | MapFlags::POPULATE,
            )
        }?;
        let mut buffers = Self {
            entries: mapping.cast(),
            given: 0,
        };
        for id in 0..BUFFERS {
            buffers.give(id);
        }
        Ok(buffers)
    }

    /// Registers the ring.
    ///
    /// # Safety
    ///
    /// This value must live until the io_uring is gone or no receive that names the group is in
    /// flight any more.
    pub unsafe fn register(&self, submitter: &Submitter<'_>) -> io::Result<()> {
        // SAFETY: the entries lie at the start of the mapping, aligned to a page and initialized;
        // the caller keeps them.
        unsafe {
            submitter.register_buf_ring_with_flags(self.entries as u64, BUFFERS, Self::GROUP, 0)
        }
    }

    /// The first `len` bytes of a buffer that a completion named; the exclusive borrow keeps it
    /// from being given back meanwhile.
    pub fn bytes(&mut self, id: u16, len: usize) -> &[u8] {
        assert!(id < BUFFERS && len <= BUFFER_BYTES);
        // SAFETY: within the mapping, which is initialized, and the kernel no longer uses the
        // buffer.
        unsafe { std::slice::from_raw_parts(self.buffer(id), len) }
    }

    /// Gives a buffer to the kernel, which may write it from now on.
    pub fn give(&mut self, id: u16) {
        assert!(id < BUFFERS);
        let address = self.buffer(id) as u64;
        // SAFETY: the entry lies in the mapping's first page, aligned. The kernel reads it only
        // below the tail, and no buffer is given twice, so the entry at the tail is free.
        let entry = unsafe { &mut *self.entries.add(usize::from(self.given % BUFFERS)) };
        entry.set_addr(address);
        entry.set_len(BUFFER_BYTES as u32);
        entry.set_bid(id);
        self.given = self.given.wrapping_add(1);
        // SAFETY: the tail is a field of the first entry, aligned to two bytes, written by this
        // thread alone; the setters above do not touch it, and no reference to the entry is used
        // any more.
        let tail = unsafe { AtomicU16::from_ptr(BufRingEntry::tail(self.entries).cast_mut()) };
        tail.store(self.given, Ordering::Release);
    }

    fn buffer(&self, id: u16) -> *mut u8 {
        // SAFETY: callers check that the number is that of a buffer, so this stays inside the
        // mapping.
        unsafe {
            self.entries
                .cast::<u8>()
                .add(ENTRIES_BYTES + usize::from(id) * BUFFER_BYTES)
        }
    }
}

impl Drop for ProvidedBuffers {
    fn drop(&mut self) {
        // SAFETY: the mapping is this value's own, and no reference to it exists.
        let unmapped = unsafe { munmap(self.entries.cast(), MAPPING_BYTES) };
        debug_assert!(unmapped.is_ok(), "a whole mapping can be unmapped");
    }
}
