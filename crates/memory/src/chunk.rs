//! One chunk of a store: a mapping, and the states of its slabs.

use std::ffi::c_void;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, MprotectFlags, ProtFlags};

use crate::locks::spin_until;
use crate::prefetch::prefetch_at;
use crate::{Budget, Charge, Layout, MemoryError, Overcommit, PagePolicy};

/// The slab has no memory and reads as zeros.
const VACANT: u8 = 0;
/// A thread is allocating the slab; it finishes without waiting for anyone.
const ALLOCATING: u8 = 1;
/// The slab has memory, charged to the budget.
const ALLOCATED: u8 = 2;
/// The slab has no memory and is marked [`Mark::Zeros`].
const MARKED_ZEROS: u8 = 3;
/// The slab has no memory and is marked [`Mark::Inherited`].
const MARKED_INHERITED: u8 = 4;

/// Huge pages need slabs of their size, so that the host allocates what the budget was charged.
pub(crate) const HUGE_PAGE_BYTES: u64 = 2 << 20;

/// The longest span of bytes that were never written.
pub(crate) const ZEROS_BYTES: usize = 64 << 10;
/// What bytes that were never written read as.
pub(crate) static ZEROS: [u8; ZEROS_BYTES] = [0; ZEROS_BYTES];

/// What is known about a slab that has no memory. What a vacant slab reads as depends on its store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mark {
    /// It reads as zeros.
    Zeros,
    /// It reads as what lies below the store.
    Inherited,
}

/// What a slab holds.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Slab<'a> {
    /// Nothing.
    Vacant,
    /// Nothing but a mark.
    Marked(Mark),
    /// Memory of this chunk.
    Allocated(&'a Chunk),
}

/// Address space for one chunk, and which of its slabs have memory.
#[derive(Debug)]
pub(crate) struct Chunk {
    /// Start of a mapping of `len` bytes, aligned to a slab, valid until the chunk drops.
    base: NonNull<u8>,
    len: usize,
    slab_bytes: usize,
    states: Box<[AtomicU8]>,
    pages: Advice,
    overcommit: Overcommit,
    /// The memory of `states`, if it is worth a charge.
    _table_charge: Charge,
}

/// What the host took of a slab that is no longer needed.
enum TakenBack {
    /// Its memory.
    Memory,
    /// Its contents, which are zeros now; the slab still counts as memory in use.
    Contents,
    /// Nothing.
    Nothing,
}

// SAFETY: `base` is an address of a private mapping that this value alone owns; no thread-local
// state is behind it.
unsafe impl Send for Chunk {}
// SAFETY: through `&Chunk` bytes are reached only by the unsafe functions below, whose callers hold
// the locks that exclude races; the states are atomics.
unsafe impl Sync for Chunk {}

impl Chunk {
    /// Reserves address space. No memory is allocated yet.
    pub(crate) fn reserve(layout: Layout, budget: &Arc<Budget>) -> Result<Self, MemoryError> {
        let table_charge = budget.reserve(layout.table_charge_bytes())?;
        let len = layout.chunk_bytes() as usize;
        let overcommit = budget.overcommit();
        let base = map_aligned(len, layout.slab_bytes() as usize, overcommit)
            .map_err(MemoryError::Host)?;
        let huge = budget.pages() == PagePolicy::TransparentHuge
            && layout.slab_bytes().is_multiple_of(HUGE_PAGE_BYTES);
        let pages = if huge {
            Advice::LinuxHugepage
        } else {
            Advice::LinuxNoHugepage
        };
        // SAFETY: the range is the mapping just made.
        unsafe { advise(base.as_ptr().cast(), len, pages) };
        Ok(Self {
            base,
            len,
            slab_bytes: layout.slab_bytes() as usize,
            states: vacant_states(layout.slabs_per_chunk()),
            pages,
            overcommit,
            _table_charge: table_charge,
        })
    }

    /// Whether the slab is allocated. It is not freed while any of its granules is locked.
    pub(crate) fn is_allocated(&self, slab: usize) -> bool {
        self.states[slab].load(Ordering::Acquire) == ALLOCATED
    }

    /// What the slab holds. This does not change while any of its granules is locked.
    pub(crate) fn slab(&self, slab: usize) -> Slab<'_> {
        match self.states[slab].load(Ordering::Acquire) {
            ALLOCATED => Slab::Allocated(self),
            MARKED_ZEROS => Slab::Marked(Mark::Zeros),
            MARKED_INHERITED => Slab::Marked(Mark::Inherited),
            _ => Slab::Vacant,
        }
    }

    /// Marks the slab, which is not allocated. The caller holds the write lock of all of it.
    pub(crate) fn mark(&self, slab: usize, mark: Mark) {
        let marked = match mark {
            Mark::Zeros => MARKED_ZEROS,
            Mark::Inherited => MARKED_INHERITED,
        };
        let before = self.states[slab].swap(marked, Ordering::Release);
        assert!(before != ALLOCATED && before != ALLOCATING);
    }

    /// Allocates the slab if it is not allocated, and charges it by `charge`. Returns whether this
    /// call allocated it. The caller holds the write lock of a granule of this slab, or owns the
    /// slab otherwise.
    pub(crate) fn allocate(
        &self,
        slab: usize,
        charge: impl Fn() -> Result<(), MemoryError>,
        refund: impl Fn(),
    ) -> Result<bool, MemoryError> {
        let state = &self.states[slab];
        let before = loop {
            match state.load(Ordering::Acquire) {
                ALLOCATED => return Ok(false),
                ALLOCATING => spin_until(|| state.load(Ordering::Relaxed) != ALLOCATING),
                vacant => {
                    let (success, failure) = (Ordering::Acquire, Ordering::Relaxed);
                    let taken = state.compare_exchange(vacant, ALLOCATING, success, failure);
                    if taken.is_ok() {
                        break vacant;
                    }
                }
            }
        };
        let made = charge().and_then(|()| {
            self.make_accessible(slab).inspect_err(|_| refund())?;
            Ok(true)
        });
        let after = if made.is_ok() { ALLOCATED } else { before };
        state.store(after, Ordering::Release);
        made
    }

    /// Frees the slab. Returns whether it was allocated and is free now. If the host does not free
    /// its pages, because they are locked in memory, the slab is zeroed and stays allocated.
    ///
    /// # Safety
    ///
    /// The caller holds the write locks of all granules of the slab.
    pub(crate) unsafe fn free(&self, slab: usize) -> bool {
        if !self.is_allocated(slab) {
            return false;
        }
        let offset = slab * self.slab_bytes;
        // SAFETY: the range is whole pages of the mapping, and the caller excludes everyone from
        // it.
        match unsafe { self.take_back(offset, self.slab_bytes) } {
            TakenBack::Memory => {}
            TakenBack::Contents => return false,
            TakenBack::Nothing => {
                // SAFETY: the caller holds the write locks.
                unsafe { self.fill_zero(offset, self.slab_bytes) };
                return false;
            }
        }
        self.states[slab].store(VACANT, Ordering::Release);
        true
    }

    /// Frees all slabs. Returns how many were allocated and are free now. If the host does not free
    /// the memory, all stay allocated.
    ///
    /// # Safety
    ///
    /// Nobody else uses the chunk.
    pub(crate) unsafe fn free_all(&self) -> u64 {
        // SAFETY: the range is the mapping, and the caller excludes everyone from it.
        if let TakenBack::Nothing = unsafe { self.take_back(0, self.len) } {
            return 0;
        }
        let states = self.states.iter();
        let freed = states.filter(|state| state.swap(VACANT, Ordering::Release) == ALLOCATED);
        freed.count() as u64
    }

    /// Makes the host allocate the pages of an allocated slab now, so that later writes do not
    /// fault.
    pub(crate) fn populate(&self, slab: usize) -> Result<(), MemoryError> {
        assert!(self.is_allocated(slab));
        let start = self.at(slab * self.slab_bytes, self.slab_bytes).cast();
        // SAFETY: the range is inside the mapping and, being allocated, writable; the call changes
        // no byte.
        match unsafe { rustix::mm::madvise(start, self.slab_bytes, Advice::LinuxPopulateWrite) } {
            // Before Linux 5.14 this advice does not exist: pages are allocated by the first write
            // instead.
            Ok(()) | Err(Errno::INVAL) => Ok(()),
            Err(errno) => Err(MemoryError::Host(errno.into())),
        }
    }

    /// Copies bytes from `offset` on into `dest`.
    ///
    /// # Safety
    ///
    /// The caller holds read or write locks of these bytes, and their slabs are allocated.
    pub(crate) unsafe fn copy_out(&self, offset: usize, dest: &mut [u8]) {
        let from = self.at(offset, dest.len());
        // SAFETY: `from` is valid for `dest.len()` bytes, nobody writes them (the caller's locks),
        // and a caller's buffer is never inside a mapping, since no reference into one is ever
        // made.
        unsafe { std::ptr::copy_nonoverlapping(from, dest.as_mut_ptr(), dest.len()) };
    }

    /// Copies `data` to `offset`.
    ///
    /// # Safety
    ///
    /// The caller holds the write locks of these bytes, and their slabs are allocated.
    pub(crate) unsafe fn copy_in(&self, offset: usize, data: &[u8]) {
        let to = self.at(offset, data.len());
        // SAFETY: as in `copy_out`, and nobody else reads or writes them.
        unsafe { std::ptr::copy_nonoverlapping(data.as_ptr(), to, data.len()) };
    }

    /// Copies `len` bytes from `offset` on in `from` to the same place here.
    ///
    /// # Safety
    ///
    /// The caller holds locks of these bytes that exclude writes to `from` and everything else
    /// here, and their slabs are allocated.
    pub(crate) unsafe fn copy_from(&self, from: &Self, offset: usize, len: usize) {
        let (from, to) = (from.at(offset, len), self.at(offset, len));
        // SAFETY: both are valid for `len` bytes and in different mappings.
        unsafe { std::ptr::copy_nonoverlapping(from, to, len) };
    }

    /// Zeroes bytes.
    ///
    /// # Safety
    ///
    /// The caller holds the write locks of these bytes, and their slabs are allocated.
    pub(crate) unsafe fn fill_zero(&self, offset: usize, len: usize) {
        let to = self.at(offset, len);
        // SAFETY: `to` is valid for `len` bytes that nobody else reads or writes.
        unsafe { std::ptr::write_bytes(to, 0, len) };
    }

    /// Whether `len` bytes from `offset` on are zeros.
    ///
    /// # Safety
    ///
    /// The caller holds read or write locks of these bytes, and their slabs are allocated.
    pub(crate) unsafe fn is_zero(&self, offset: usize, len: usize) -> bool {
        let parts = (0..len).step_by(ZEROS_BYTES);
        let is_zero = |start: usize| {
            let len = (len - start).min(ZEROS_BYTES);
            let from = self.at(offset + start, len);
            // SAFETY: both are valid for `len` bytes, and nobody writes either.
            unsafe { libc::memcmp(from.cast(), ZEROS.as_ptr().cast(), len) == 0 }
        };
        parts.into_iter().all(is_zero)
    }

    /// The first byte, counted from `offset`, that differs from `data`.
    ///
    /// # Safety
    ///
    /// The caller holds read or write locks of these bytes, and their slabs are allocated.
    pub(crate) unsafe fn first_difference(&self, offset: usize, data: &[u8]) -> Option<usize> {
        let from = self.at(offset, data.len());
        // SAFETY: both are valid for `data.len()` bytes, and nobody writes either.
        if unsafe { libc::memcmp(from.cast(), data.as_ptr().cast(), data.len()) } == 0 {
            return None;
        }
        // SAFETY: `i` stays below `data.len()`.
        (0..data.len()).find(|&i| unsafe { from.add(i).read() } != data[i])
    }

    /// Asks the processor to bring the first bytes from `offset` on into its cache.
    pub(crate) fn prefetch(&self, offset: usize, len: usize) {
        prefetch_at(self.at(offset, len), len);
    }

    /// The address of `len` bytes from `offset` on.
    pub(crate) fn at(&self, offset: usize, len: usize) -> *mut u8 {
        assert!(offset <= self.len && len <= self.len - offset);
        // SAFETY: `offset` is inside the mapping or at its end.
        unsafe { self.base.as_ptr().add(offset) }
    }

    /// Gives the memory of slabs back to the host.
    ///
    /// # Safety
    ///
    /// No other thread uses these bytes, which are whole slabs, meanwhile.
    unsafe fn take_back(&self, offset: usize, len: usize) -> TakenBack {
        let start: *mut c_void = self.at(offset, len).cast();
        // SAFETY: the caller's; private anonymous pages read as zeros afterwards.
        let drop_pages = || unsafe { rustix::mm::madvise(start, len, Advice::LinuxDontNeed) };
        if self.overcommit == Overcommit::Allowed {
            return match drop_pages() {
                Ok(()) => TakenBack::Memory,
                Err(_) => TakenBack::Nothing,
            };
        }
        // A new inaccessible mapping also returns the commit charge, which dropping pages does
        // not.
        let flags = MapFlags::PRIVATE | MapFlags::FIXED;
        // SAFETY: it replaces a part of our own mapping that nobody uses.
        let replaced = unsafe { rustix::mm::mmap_anonymous(start, len, ProtFlags::empty(), flags) };
        if replaced.is_ok() {
            // SAFETY: the range is a part of our mapping.
            unsafe { advise(start, len, self.pages) };
            return TakenBack::Memory;
        }
        match drop_pages() {
            Ok(()) => TakenBack::Contents,
            // The failed replacement left nothing there; a later allocation fails, which is an
            // answer, too.
            Err(Errno::NOMEM) => TakenBack::Memory,
            Err(_) => TakenBack::Nothing,
        }
    }

    fn make_accessible(&self, slab: usize) -> Result<(), MemoryError> {
        if self.overcommit == Overcommit::Allowed {
            return Ok(());
        }
        let start = self.at(slab * self.slab_bytes, self.slab_bytes).cast();
        let access = MprotectFlags::READ | MprotectFlags::WRITE;
        // SAFETY: the range is inside our mapping, and giving access invalidates nothing.
        unsafe { rustix::mm::mprotect(start, self.slab_bytes, access) }
            .map_err(|errno| MemoryError::Host(errno.into()))
    }
}

impl Drop for Chunk {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, and `&mut self` says that nobody uses it. Unmapping a whole
        // mapping of our own does not fail, so there is no answer to look at.
        let _ = unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), self.len) };
    }
}

/// The states of `count` slabs, without a write to each: a snapshot has a large table, which is
/// made in the middle of a host's write.
fn vacant_states(count: usize) -> Box<[AtomicU8]> {
    let zeros = Box::into_raw(vec![VACANT; count].into_boxed_slice());
    // SAFETY: an atomic has the layout of its integer, and the box is handed on as a whole.
    unsafe { Box::from_raw(zeros as *mut [AtomicU8]) }
}

/// Says which pages a mapping should have, and keeps it out of core dumps.
///
/// # Safety
///
/// The range is a mapping of the caller.
pub(crate) unsafe fn advise(start: *mut c_void, len: usize, pages: Advice) {
    for advice in [pages, Advice::LinuxDontDump] {
        // SAFETY: the caller's; neither advice changes contents. A kernel built without huge pages
        // refuses the first, which changes nothing either, so the answer does not matter.
        let _refused = unsafe { rustix::mm::madvise(start, len, advice) };
    }
}

/// Maps `len` bytes at a multiple of `align`.
pub(crate) fn map_aligned(
    len: usize,
    align: usize,
    overcommit: Overcommit,
) -> Result<NonNull<u8>, std::io::Error> {
    let access = match overcommit {
        Overcommit::Allowed => ProtFlags::READ | ProtFlags::WRITE,
        // What cannot be accessed is not counted against the host's commit limit.
        Overcommit::Strict => ProtFlags::empty(),
    };
    let map = |len| {
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        // SAFETY: a new mapping at an address of the kernel's choice touches nothing that exists.
        unsafe { rustix::mm::mmap_anonymous(std::ptr::null_mut(), len, access, flags) }
    };
    let not_null = |base: *mut c_void| {
        NonNull::new(base.cast()).expect("the kernel maps nothing at address 0 by itself")
    };
    // Mappings without gaps between them become one for the kernel, which bounds their number.
    let exact = map(len)?;
    if exact.align_offset(align) == 0 {
        return Ok(not_null(exact));
    }
    // SAFETY: nobody knows this mapping yet.
    let _refused = unsafe { rustix::mm::munmap(exact, len) };
    let room = len + align;
    let start = map(room)?;
    let head = start.align_offset(align);
    let tail = room - head - len;
    for (offset, surplus) in [(0, head), (head + len, tail)] {
        if surplus > 0 {
            // SAFETY: both parts lie inside the mapping just made and outside of what is returned.
            // Should the kernel refuse (too many mappings), unused address space stays reserved,
            // and nothing else happens.
            let _refused = unsafe { rustix::mm::munmap(start.byte_add(offset), surplus) };
        }
    }
    // SAFETY: `head` is at most `align`, so inside the mapping.
    Ok(not_null(unsafe { start.byte_add(head) }))
}
