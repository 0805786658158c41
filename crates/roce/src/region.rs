//! Memory regions that peers may reach, and the keys to them.
//!
//! Read first: InfiniBand Architecture volume 1, chapter 10, "memory management".

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use crate::memory::MemoryRange;
use block::ByteRange;

use crate::backend::Backend;
use crate::wire::Rkey;

/// A protection domain: a queue pair reaches the regions of its own domain only.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct ProtectionDomain(pub u32);

/// Access rights, to a region or through a queue pair.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Access {
    /// RDMA READ.
    pub read: bool,
    /// RDMA WRITE.
    pub write: bool,
    /// Atomic operations.
    pub atomic: bool,
    /// SEND with invalidate (means nothing to a queue pair).
    pub invalidate: bool,
}

/// A region as it is registered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Region {
    /// The domain that may reach it.
    pub domain: ProtectionDomain,
    /// Its bytes.
    pub placement: MemoryRange,
    /// The address by which peers name its first byte.
    pub base_va: u64,
    /// The access that they have.
    pub access: Access,
}

/// Which right an operation needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Right {
    Read,
    Write,
    Atomic,
}

impl Access {
    pub(crate) const fn allows(self, right: Right) -> bool {
        match right {
            Right::Read => self.read,
            Right::Write => self.write,
            Right::Atomic => self.atomic,
        }
    }
}

/// The regions of an end. Keys are 32 random bits. A wrong guess ends the peer's connection.
#[derive(Debug)]
pub(crate) struct Regions {
    by_key: HashMap<u32, Region, BuildHasherDefault<KeyHasher>>,
    regions_max: usize,
}

/// The region cannot be registered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RegisterError {
    /// The bound is reached.
    #[error("{0} memory regions are registered, the maximum; raise the limit of regions")]
    TooMany(usize),
    /// The region's addresses would wrap.
    #[error("a region of {len_bytes} bytes at address {base_va:#x} exceeds the address space")]
    Wraps {
        /// The requested address.
        base_va: u64,
        /// The requested length.
        len_bytes: u64,
    },
}

/// A key that fits no region, or a region that it does not allow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Denied;

impl Regions {
    /// A table of up to `regions_max` regions.
    pub(crate) fn new(regions_max: usize) -> Self {
        Self {
            by_key: HashMap::default(),
            regions_max,
        }
    }

    /// Registers `region` for remote access. Returns its key.
    pub(crate) fn register<B: Backend>(
        &mut self,
        region: Region,
        backend: &mut B,
    ) -> Result<Rkey, RegisterError> {
        if self.by_key.len() >= self.regions_max {
            return Err(RegisterError::TooMany(self.regions_max));
        }
        let len_bytes = region.placement.range.len;
        let ends =
            [region.base_va, region.placement.range.offset].map(|v| v.checked_add(len_bytes));
        if ends.contains(&None) {
            return Err(RegisterError::Wraps {
                base_va: region.base_va,
                len_bytes,
            });
        }
        loop {
            // A random number is in use with a probability of at most regions_max / 2^32, so the
            // loop ends soon.
            let key = backend.random() as u32;
            if key != 0 && !self.by_key.contains_key(&key) {
                self.by_key.insert(key, region);
                return Ok(Rkey(key));
            }
        }
    }

    /// Invalidates a key. Returns whether it was valid. Operations of peers that are in progress
    /// fail.
    pub(crate) fn invalidate(&mut self, key: Rkey) -> bool {
        self.by_key.remove(&key.0).is_some()
    }

    /// How many regions there are.
    pub(crate) fn len(&self) -> usize {
        self.by_key.len()
    }

    /// A peer invalidates a key of its domain.
    pub(crate) fn invalidate_by_peer(
        &mut self,
        domain: ProtectionDomain,
        key: Rkey,
    ) -> Result<(), Denied> {
        match self.by_key.get(&key.0) {
            Some(region) if region.domain == domain && region.access.invalidate => {
                self.by_key.remove(&key.0);
                Ok(())
            }
            _ => Err(Denied),
        }
    }

    /// The placement of `len_bytes` bytes at `va`, if `key` allows a peer in `domain` this access.
    pub(crate) fn resolve(
        &self,
        domain: ProtectionDomain,
        right: Right,
        key: Rkey,
        va: u64,
        len_bytes: u32,
    ) -> Result<MemoryRange, Denied> {
        let region = self.by_key.get(&key.0).ok_or(Denied)?;
        if region.domain != domain || !region.access.allows(right) {
            return Err(Denied);
        }
        let len = u64::from(len_bytes);
        let from_base = va.checked_sub(region.base_va).ok_or(Denied)?;
        let end = from_base.checked_add(len).ok_or(Denied)?;
        if end > region.placement.range.len {
            return Err(Denied);
        }
        Ok(MemoryRange {
            memory: region.placement.memory,
            range: ByteRange {
                offset: region.placement.range.offset + from_base,
                len,
            },
        })
    }
}

/// Keys are random already: spreading them by a multiplication is enough, whatever keys peers ask
/// for.
#[derive(Debug, Default)]
struct KeyHasher(u64);

impl Hasher for KeyHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u32(u32::from(*byte));
        }
    }

    fn write_u32(&mut self, key: u32) {
        self.0 = (self.0 ^ u64::from(key)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    }
}

#[cfg(test)]
mod tests {
    use crate::memory::MemoryId;

    use super::*;
    use crate::testing::TestMemory;

    const HOME: ProtectionDomain = ProtectionDomain(1);

    fn region(access: Access) -> Region {
        Region {
            domain: HOME,
            placement: MemoryRange {
                memory: MemoryId(3),
                range: ByteRange {
                    offset: 100,
                    len: 1000,
                },
            },
            base_va: 0x1_0000,
            access,
        }
    }

    fn readable() -> (Regions, Rkey) {
        let mut regions = Regions::new(2);
        let access = Access {
            read: true,
            ..Access::default()
        };
        let key = regions
            .register(region(access), &mut TestMemory::new(7))
            .unwrap();
        (regions, key)
    }

    #[test]
    fn a_key_opens_exactly_its_region() {
        let (regions, key) = readable();
        let at = |va, len| regions.resolve(HOME, Right::Read, key, va, len);
        let whole = at(0x1_0000, 1000).unwrap();
        assert_eq!((whole.range.offset, whole.range.len), (100, 1000));
        assert_eq!(at(0x1_0000 + 999, 1).unwrap().range.offset, 1099);
        assert_eq!(at(0x1_0000 + 1000, 1), Err(Denied));
        assert_eq!(at(0x1_0000, 1001), Err(Denied));
        assert_eq!(at(0xFFFF, 1), Err(Denied));
        assert_eq!(at(u64::MAX, u32::MAX), Err(Denied));
        assert_eq!(whole.memory, MemoryId(3));
    }

    #[test]
    fn other_domains_rights_and_keys_are_denied() {
        let (mut regions, key) = readable();
        let other = ProtectionDomain(2);
        let deny = |r: &Regions, domain, right, key| r.resolve(domain, right, key, 0x1_0000, 1);
        assert_eq!(deny(&regions, other, Right::Read, key), Err(Denied));
        assert_eq!(deny(&regions, HOME, Right::Write, key), Err(Denied));
        assert_eq!(deny(&regions, HOME, Right::Atomic, key), Err(Denied));
        let guess = Rkey(key.0 ^ 1);
        assert_eq!(deny(&regions, HOME, Right::Read, guess), Err(Denied));
        assert_eq!(regions.invalidate_by_peer(HOME, key), Err(Denied));
        assert!(regions.invalidate(key));
        assert!(!regions.invalidate(key));
        assert_eq!(deny(&regions, HOME, Right::Read, key), Err(Denied));
    }

    #[test]
    fn a_peer_invalidates_only_what_it_may() {
        let mut regions = Regions::new(1);
        let access = Access {
            invalidate: true,
            ..Access::default()
        };
        let key = regions
            .register(region(access), &mut TestMemory::new(7))
            .unwrap();
        let stranger = ProtectionDomain(9);
        assert_eq!(regions.invalidate_by_peer(stranger, key), Err(Denied));
        assert_eq!(regions.invalidate_by_peer(HOME, key), Ok(()));
        assert_eq!(regions.len(), 0);
    }

    #[test]
    fn registration_is_bounded_and_checked() {
        let mut memory = TestMemory::new(7);
        let (mut regions, _) = readable();
        let mut wraps = region(Access::default());
        wraps.base_va = u64::MAX - 10;
        assert!(matches!(
            regions.register(wraps, &mut memory),
            Err(RegisterError::Wraps { .. })
        ));
        regions
            .register(region(Access::default()), &mut memory)
            .unwrap();
        assert_eq!(
            regions.register(region(Access::default()), &mut memory),
            Err(RegisterError::TooMany(2))
        );
        assert_eq!(regions.len(), 2);
    }
}
