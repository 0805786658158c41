//! Memory that adapters reach: pages of our own, and their registrations.

use std::ffi::c_void;
use std::ptr::NonNull;
use std::sync::Arc;

use rustc_hash::FxHashMap;
use session::{Placement, RegionId};

use super::HwError;
use super::sys::{access, ibv_sge};
use super::verbs::{Mr, Pd};
use crate::verbs::ProtectionDomain;

/// The unit of registration, and of what adapters ask of addresses: equal offsets in it.
pub(super) const PAGE_BYTES: u64 = 4096;

/// Zeroed pages of their own. They are unmapped when the last registration of them is gone, however long that takes.
pub(super) struct Mapping {
    start: NonNull<u8>,
    len_bytes: usize,
    mapped_bytes: usize,
}

// SAFETY: the pages are plain memory that belongs to nobody else; which thread maps or unmaps them does not matter.
unsafe impl Send for Mapping {}
// SAFETY: through a shared reference they can only be read.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Zeroed memory of `len_bytes`, at least one page.
    pub(super) fn new(len_bytes: usize) -> Result<Self, HwError> {
        let unit = PAGE_BYTES as usize;
        let mapped_bytes = len_bytes.max(1).checked_next_multiple_of(unit);
        let pages = mapped_bytes.and_then(|mapped_bytes| {
            // SAFETY: a new private mapping at an address that the system chooses touches nothing that exists.
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
        // A child process must not share pages that the adapter writes: copying on write would part us from them.
        // SAFETY: the range is the mapping that was just made. Where the system refuses, nothing is lost but that.
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
        // SAFETY: the mapping has that many initialized bytes as long as `self` lives. Adapters may write some of them meanwhile,
        // as another process may write a shared file's mapping: they are plain numbers, and `Provider::bytes` tells its caller to
        // copy before judging where that can be.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len_bytes) }
    }

    /// # Safety
    /// No other slice of the mapping is used meanwhile.
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
        // SAFETY: the mapping was made with this length, slices of it borrow `self`, and each registration holds it, so that no
        // adapter reaches it any more.
        unsafe {
            libc::munmap(self.start.as_ptr().cast(), self.mapped_bytes);
        }
    }
}

/// One allocation.
struct Allocation {
    mapping: Arc<Mapping>,
    /// The address by which requests name its first byte: not that in this process, which is nobody's business.
    iova: u64,
    /// Its registrations for requests of ours, by protection domain.
    local: Vec<(ProtectionDomain, Mr)>,
}

/// All allocations.
pub(super) struct Memory {
    allocations: FxHashMap<u32, Allocation>,
    next: u32,
    next_iova: u64,
}

impl Default for Memory {
    fn default() -> Self {
        Self {
            allocations: FxHashMap::default(),
            next: 0,
            next_iova: 1 << 32,
        }
    }
}

impl Memory {
    /// Between allocations lie addresses that none has.
    const GUARD_BYTES: u64 = 1 << 20;

    /// Allocates memory and registers it in `domain`.
    pub(super) fn allocate(
        &mut self,
        len_bytes: usize,
        domain: ProtectionDomain,
        pd: &Arc<Pd>,
    ) -> Result<RegionId, HwError> {
        let mapping = Arc::new(Mapping::new(len_bytes)?);
        while self.allocations.contains_key(&self.next) {
            self.next = self.next.wrapping_add(1);
        }
        let id = self.next;
        let iova = self.next_iova;
        let mr = register_whole(pd, &mapping, iova)?;
        let span_bytes = (len_bytes as u64).next_multiple_of(PAGE_BYTES) + Self::GUARD_BYTES;
        self.next_iova += span_bytes.next_multiple_of(Self::GUARD_BYTES);
        self.next = id.wrapping_add(1);
        let allocation = Allocation {
            mapping,
            iova,
            local: vec![(domain, mr)],
        };
        self.allocations.insert(id, allocation);
        Ok(RegionId(id))
    }

    pub(super) fn release(&mut self, memory: RegionId) {
        self.allocations.remove(&memory.0);
    }

    pub(super) fn bytes(&self, memory: RegionId) -> &[u8] {
        self.allocations
            .get(&memory.0)
            .map_or(&[], |allocation| allocation.mapping.bytes())
    }

    pub(super) fn bytes_mut(&mut self, memory: RegionId) -> &mut [u8] {
        let Some(allocation) = self.allocations.get_mut(&memory.0) else {
            return &mut [];
        };
        // SAFETY: slices are given out here and in `bytes` only, and borrow the whole of `self`.
        unsafe { allocation.mapping.bytes_mut() }
    }

    /// The mapping, and where in it `place` starts; `None` where it is not inside.
    pub(super) fn locate(&self, place: Placement) -> Option<(&Arc<Mapping>, usize)> {
        let allocation = self.allocations.get(&place.region.0)?;
        let end = place.range.offset.checked_add(place.range.len)?;
        let start = usize::try_from(place.range.offset).ok()?;
        (end <= allocation.mapping.len_bytes() as u64).then_some((&allocation.mapping, start))
    }

    /// What a request in `domain` names `place` by; registers the memory there if that was not needed before.
    pub(super) fn local(
        &mut self,
        place: Placement,
        domain: ProtectionDomain,
        pd: &Arc<Pd>,
    ) -> Option<ibv_sge> {
        self.locate(place)?;
        let Allocation {
            mapping,
            iova,
            local,
        } = self.allocations.get_mut(&place.region.0)?;
        if !local.iter().any(|(of, _)| *of == domain) {
            local.push((domain, register_whole(pd, mapping, *iova).ok()?));
        }
        let (_, mr) = local.iter().find(|(of, _)| *of == domain)?;
        Some(ibv_sge {
            addr: *iova + place.range.offset,
            length: u32::try_from(place.range.len).ok()?,
            lkey: mr.lkey(),
        })
    }
}

/// Registers an allocation for requests of ours.
fn register_whole(pd: &Arc<Pd>, mapping: &Arc<Mapping>, iova: u64) -> Result<Mr, HwError> {
    let len_bytes = mapping.len_bytes();
    Mr::register(pd, mapping, 0, len_bytes, iova, access::LOCAL_WRITE)
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
    fn what_can_not_be_had_is_an_error() {
        let error = Mapping::new(usize::MAX)
            .err()
            .expect("nobody has that much");
        assert!(error.to_string().contains("ulimit -l"), "{error}");
        let error = Mapping::new(1 << 62).err().expect("nobody has that much");
        assert!(error.to_string().contains("ulimit -l"), "{error}");
    }
}
