//! Memory that requests name, and random numbers.

use std::collections::HashMap;
use std::io;

use block::{Placement, RegionId};
use roce::wire::Icrc;
use roce::{AtomicOp, Backend, MemoryFault};
use rustix::rand::{GetRandomFlags, getrandom};

/// Plain memory by number, and numbers from the system's generator.
#[derive(Debug)]
pub(super) struct Memory {
    regions: HashMap<u32, Box<[u8]>>,
    next: u32,
    pool: [u8; POOL_BYTES],
    used: usize,
}

/// Random bytes that are fetched at once.
const POOL_BYTES: usize = 256;
const NUMBER_BYTES: usize = size_of::<u64>();

impl Memory {
    pub(super) fn new() -> io::Result<Self> {
        let mut memory = Self {
            regions: HashMap::new(),
            next: 0,
            pool: [0; POOL_BYTES],
            used: 0,
        };
        memory.refill()?;
        Ok(memory)
    }

    pub(super) fn allocate(&mut self, len_bytes: usize) -> RegionId {
        while self.regions.contains_key(&self.next) {
            self.next = self.next.wrapping_add(1);
        }
        let id = self.next;
        self.regions
            .insert(id, vec![0; len_bytes].into_boxed_slice());
        self.next = id.wrapping_add(1);
        RegionId(id)
    }

    pub(super) fn release(&mut self, region: RegionId) {
        self.regions.remove(&region.0);
    }

    pub(super) fn bytes(&self, region: RegionId) -> &[u8] {
        self.regions.get(&region.0).map_or(&[], |bytes| bytes)
    }

    pub(super) fn bytes_mut(&mut self, region: RegionId) -> &mut [u8] {
        self.regions
            .get_mut(&region.0)
            .map_or(&mut [], |bytes| bytes)
    }

    /// The bytes of a placement; `None` where there are none.
    pub(super) fn slice(&self, place: Placement) -> Option<&[u8]> {
        let bytes = self.regions.get(&place.region.0)?;
        let start = usize::try_from(place.range.offset).ok()?;
        let len = usize::try_from(place.range.len).ok()?;
        bytes.get(start..)?.get(..len)
    }

    fn slice_mut(
        &mut self,
        region: RegionId,
        offset: u64,
        len: usize,
    ) -> Result<&mut [u8], MemoryFault> {
        let bytes = self.regions.get_mut(&region.0).ok_or(MemoryFault)?;
        let start = usize::try_from(offset).map_err(|_| MemoryFault)?;
        let rest = bytes.get_mut(start..).ok_or(MemoryFault)?;
        rest.get_mut(..len).ok_or(MemoryFault)
    }

    fn refill(&mut self) -> io::Result<()> {
        // Up to 256 bytes come whole once the generator is ready (getrandom(2)).
        let got = getrandom(&mut self.pool, GetRandomFlags::empty())?;
        if got < POOL_BYTES {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.used = 0;
        Ok(())
    }
}

impl Backend for Memory {
    fn write(&mut self, region: RegionId, offset: u64, bytes: &[u8]) -> Result<(), MemoryFault> {
        self.slice_mut(region, offset, bytes.len())?
            .copy_from_slice(bytes);
        Ok(())
    }

    fn hash(&mut self, placement: Placement, icrc: &mut Icrc) -> Result<(), MemoryFault> {
        icrc.update(self.slice(placement).ok_or(MemoryFault)?);
        Ok(())
    }

    fn atomic(&mut self, region: RegionId, offset: u64, op: AtomicOp) -> Result<u64, MemoryFault> {
        let slot = self.slice_mut(region, offset, NUMBER_BYTES)?;
        let original = u64::from_ne_bytes(*slot.first_chunk().ok_or(MemoryFault)?);
        slot.copy_from_slice(&op.apply(original).to_ne_bytes());
        Ok(original)
    }

    fn random(&mut self) -> u64 {
        if self.used + NUMBER_BYTES > POOL_BYTES {
            self.refill()
                .expect("a generator that gave numbers at the start goes on giving them");
        }
        let rest = &mut self.pool[self.used..self.used + NUMBER_BYTES];
        let number = u64::from_ne_bytes(*rest.first_chunk().expect("8 bytes are left"));
        // Numbers that were given out are keys: they do not stay here.
        rest.fill(0);
        self.used += NUMBER_BYTES;
        number
    }
}
