//! Registering memory for remote access, by memory region or memory window.

use std::ffi::c_uint;

use roce::RegisterError;

use super::adapter::Hw;
use super::mapping::PAGE_BYTES;
use super::regions::{Grant, Regions, remote_rights};
use super::sys::access;
use super::verbs::{Mr, Mw};
use crate::FabricError;
use crate::HwError;
use crate::verbs::{Region, Remote, Rkey};

impl Hw {
    pub(super) fn register_region(&mut self, region: Region) -> Result<Remote, FabricError> {
        if self.regions.by_key.len() >= Regions::KEYS_MAX {
            return Err(RegisterError::TooMany(Regions::KEYS_MAX).into());
        }
        if self.memory.locate(region.placement).is_none() {
            return Err(FabricError::NotAllocated);
        }
        if region.access.invalidate {
            self.bind_window(&region)
        } else {
            self.register_memory(&region)
        }
    }

    fn register_memory(&mut self, region: &Region) -> Result<Remote, FabricError> {
        let rights = remote_rights(region.access);
        let (mr, va) = self.register_part(region, rights)?;
        let rkey = Rkey(mr.rkey());
        self.keep(rkey, region, Grant::Region { _mr: mr });
        Ok(Remote { va, rkey })
    }

    fn bind_window(&mut self, region: &Region) -> Result<Remote, FabricError> {
        if !self.context.caps.has_windows {
            return Err(HwError::Windows.into());
        }
        let owner = self.pairs.only_connected_in(region.domain);
        let owner = owner.ok_or(HwError::WindowOwner)?;
        // A memory region for this window alone: rdma_rxe checks the bounds of the region below a
        // window, not the window's.
        let (mr, va) = self.register_part(region, access::MW_BIND)?;
        let mw = Mw::new(mr)?;
        let rkey = Rkey(mw.next_rkey());
        // The adapter executes requests in the order of the calls.
        self.post_held_of(owner);
        let range = (va, region.placement.range.len);
        self.pairs
            .bind(owner, &mw, range, remote_rights(region.access))?;
        self.keep(rkey, region, Grant::Window { _mw: mw, owner });
        Ok(Remote { va, rkey })
    }

    /// Registers exactly the bytes of a region, and the address of its first.
    fn register_part(&mut self, region: &Region, rights: c_uint) -> Result<(Mr, u64), FabricError> {
        let pd = self.pd(region.domain)?;
        let (mapping, start) = self
            .memory
            .locate(region.placement)
            .ok_or(FabricError::NotAllocated)?;
        let len_bytes = region.placement.range.len;
        // Mappings start with a page.
        let offset = start as u64 % PAGE_BYTES;
        let va = (region.base_va - region.base_va % PAGE_BYTES).checked_add(offset);
        let va = va.filter(|va| va.checked_add(len_bytes).is_some());
        let va = va.ok_or(RegisterError::Wraps {
            base_va: region.base_va,
            len_bytes,
        })?;
        // Remote write access requires local write access.
        let rights = rights | access::LOCAL_WRITE;
        let mr = Mr::register(&pd, mapping, start, len_bytes as usize, va, rights)?;
        Ok((mr, va))
    }

    fn keep(&mut self, key: Rkey, region: &Region, grant: Grant) {
        let memory = region.placement.memory;
        self.regions.by_key.insert(key.0, (memory, grant));
    }
}
