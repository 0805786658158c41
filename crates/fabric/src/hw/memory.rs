//! Memory that adapters reach: allocations and their registrations.

use std::sync::Arc;

use rustc_hash::FxHashMap;

use super::mapping::{Mapping, PAGE_BYTES};
use super::sys::{access, ibv_sge};
use super::verbs::{Mr, Pd};
use crate::HwError;
use crate::verbs::{MemoryId, MemoryRange, ProtectionDomain};

/// One allocation.
struct Allocation {
    mapping: Arc<Mapping>,
    /// The address by which requests name its first byte. It is not the address in this process,
    /// which stays private.
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
    ) -> Result<MemoryId, HwError> {
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
        Ok(MemoryId(id))
    }

    pub(super) fn release(&mut self, memory: MemoryId) {
        self.allocations.remove(&memory.0);
    }

    pub(super) fn bytes(&self, memory: MemoryId) -> &[u8] {
        self.allocations
            .get(&memory.0)
            .map_or(&[], |allocation| allocation.mapping.bytes())
    }

    pub(super) fn bytes_mut(&mut self, memory: MemoryId) -> &mut [u8] {
        let Some(allocation) = self.allocations.get_mut(&memory.0) else {
            return &mut [];
        };
        // SAFETY: slices are given out here and in `bytes` only, and borrow the whole of `self`.
        unsafe { allocation.mapping.bytes_mut() }
    }

    /// The mapping, and the offset of `place` in it; `None` if `place` is not inside.
    pub(super) fn locate(&self, place: MemoryRange) -> Option<(&Arc<Mapping>, usize)> {
        let allocation = self.allocations.get(&place.memory.0)?;
        let end = place.range.offset.checked_add(place.range.len)?;
        let start = usize::try_from(place.range.offset).ok()?;
        (end <= allocation.mapping.len_bytes() as u64).then_some((&allocation.mapping, start))
    }

    /// The name of `place` in a request in `domain`. Registers the memory there if it is not
    /// registered yet.
    pub(super) fn local(
        &mut self,
        place: MemoryRange,
        domain: ProtectionDomain,
        pd: &Arc<Pd>,
    ) -> Option<ibv_sge> {
        self.locate(place)?;
        let Allocation {
            mapping,
            iova,
            local,
        } = self.allocations.get_mut(&place.memory.0)?;
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
