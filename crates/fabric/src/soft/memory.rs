//! Memory that requests name, and random numbers.

use crate::verbs::{MemoryId, MemoryRange};
use std::io;
use std::ops::Range;

use block::ByteRange;
use roce::wire::Icrc;
use roce::{AtomicOp, Backend, MemoryFault};
use rustix::rand::{GetRandomFlags, getrandom};

/// Plain memory by number, and numbers from the system's generator.
#[derive(Debug)]
pub(super) struct Memory {
    regions: Vec<Entry>,
    /// Entries without memory.
    free: Vec<u32>,
    arriving: Option<Arriving>,
    pool: [u8; POOL_BYTES],
    used: usize,
}

/// The memory that datagrams have arrived in, while they are handled.
#[derive(Debug)]
struct Arriving {
    region: MemoryId,
    /// Its first byte, and the one after its last.
    addresses: Range<usize>,
    /// Something of it is to stay there.
    stays: bool,
}

/// A place for memory.
#[derive(Debug)]
struct Entry {
    /// The current number of this place: its index, and above it how often the place was reused.
    id: u32,
    bytes: Option<Box<[u8]>>,
}

/// Bits of a region's number that are its index. The bits above count how often the index was used,
/// so a number of freed memory is recognized.
const INDEX_BITS: u32 = 20;
const INDEX_MASK: u32 = (1 << INDEX_BITS) - 1;

/// Shorter data are copied: that costs less than memory outside the processor's cache.
const STAYING_MIN_BYTES: usize = 512;

/// Random bytes that are fetched at once.
const POOL_BYTES: usize = 256;
const NUMBER_BYTES: usize = size_of::<u64>();

impl Memory {
    pub(super) fn new() -> io::Result<Self> {
        let mut memory = Self {
            regions: Vec::new(),
            free: Vec::new(),
            arriving: None,
            pool: [0; POOL_BYTES],
            used: 0,
        };
        memory.refill()?;
        Ok(memory)
    }

    /// Adds memory. There is room for a million regions, more than queue pairs and their queues
    /// need together.
    pub(super) fn insert(&mut self, bytes: Box<[u8]>) -> MemoryId {
        if let Some(index) = self.free.pop() {
            let entry = &mut self.regions[index as usize];
            entry.id = entry.id.wrapping_add(1 << INDEX_BITS);
            entry.bytes = Some(bytes);
            return MemoryId(entry.id);
        }
        let id = self.regions.len() as u32;
        assert!(id <= INDEX_MASK, "a million regions are enough");
        self.regions.push(Entry {
            id,
            bytes: Some(bytes),
        });
        MemoryId(id)
    }

    /// Removes memory and returns it.
    pub(super) fn remove(&mut self, region: MemoryId) -> Option<Box<[u8]>> {
        let index = region.0 & INDEX_MASK;
        let entry = self.regions.get_mut(index as usize)?;
        let bytes = entry.bytes.take_if(|_| entry.id == region.0)?;
        self.free.push(index);
        Some(bytes)
    }

    /// Takes memory out to receive a datagram into; [`put_back`](Self::put_back) returns it.
    pub(super) fn take_out(&mut self, region: MemoryId) -> Box<[u8]> {
        self.get_mut(region).map(std::mem::take).unwrap_or_default()
    }

    /// From now on, packets that are handled lie in the memory that was taken out.
    pub(super) fn arrived(&mut self, region: MemoryId, taken_out: &[u8]) {
        let start = taken_out.as_ptr().addr();
        self.arriving = Some(Arriving {
            region,
            addresses: start..start + taken_out.len(),
            stays: false,
        });
    }

    /// Puts memory back that was taken out. Returns whether some of its bytes must stay there.
    pub(super) fn put_back(&mut self, region: MemoryId, taken_out: Box<[u8]>) -> bool {
        if let Some(bytes) = self.get_mut(region) {
            *bytes = taken_out;
        }
        self.arriving.take().is_some_and(|arriving| arriving.stays)
    }

    pub(super) fn bytes(&self, region: MemoryId) -> &[u8] {
        self.get(region).unwrap_or_default()
    }

    pub(super) fn bytes_mut(&mut self, region: MemoryId) -> &mut [u8] {
        self.get_mut(region)
            .map(|bytes| &mut **bytes)
            .unwrap_or_default()
    }

    fn get(&self, region: MemoryId) -> Option<&[u8]> {
        let entry = self.regions.get((region.0 & INDEX_MASK) as usize)?;
        entry.bytes.as_deref().filter(|_| entry.id == region.0)
    }

    fn get_mut(&mut self, region: MemoryId) -> Option<&mut Box<[u8]>> {
        let entry = self.regions.get_mut((region.0 & INDEX_MASK) as usize)?;
        entry.bytes.as_mut().filter(|_| entry.id == region.0)
    }

    /// The bytes of a placement; `None` if it is not inside.
    pub(super) fn slice(&self, place: MemoryRange) -> Option<&[u8]> {
        let bytes = self.get(place.memory)?;
        let start = usize::try_from(place.range.offset).ok()?;
        let len = usize::try_from(place.range.len).ok()?;
        bytes.get(start..)?.get(..len)
    }

    fn slice_mut(
        &mut self,
        region: MemoryId,
        offset: u64,
        len: usize,
    ) -> Result<&mut [u8], MemoryFault> {
        let bytes = self.get_mut(region).ok_or(MemoryFault)?;
        let start = usize::try_from(offset).map_err(|_| MemoryFault)?;
        let rest = bytes.get_mut(start..).ok_or(MemoryFault)?;
        rest.get_mut(..len).ok_or(MemoryFault)
    }

    fn refill(&mut self) -> io::Result<()> {
        // Up to 256 bytes are returned whole once the generator is ready (getrandom(2)).
        let got = getrandom(&mut self.pool, GetRandomFlags::empty())?;
        if got < POOL_BYTES {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.used = 0;
        Ok(())
    }
}

impl Backend for Memory {
    fn write(&mut self, region: MemoryId, offset: u64, bytes: &[u8]) -> Result<(), MemoryFault> {
        self.slice_mut(region, offset, bytes.len())?
            .copy_from_slice(bytes);
        Ok(())
    }

    fn leave(&mut self, bytes: &[u8]) -> Option<MemoryRange> {
        let arriving = self.arriving.as_mut()?;
        let start = bytes.as_ptr().addr();
        let offset = start.checked_sub(arriving.addresses.start)?;
        if bytes.len() < STAYING_MIN_BYTES || start + bytes.len() > arriving.addresses.end {
            return None;
        }
        arriving.stays = true;
        Some(MemoryRange {
            memory: arriving.region,
            range: ByteRange {
                offset: offset as u64,
                len: bytes.len() as u64,
            },
        })
    }

    fn hash(&mut self, placement: MemoryRange, icrc: &mut Icrc) -> Result<(), MemoryFault> {
        icrc.update(self.slice(placement).ok_or(MemoryFault)?);
        Ok(())
    }

    fn atomic(&mut self, region: MemoryId, offset: u64, op: AtomicOp) -> Result<u64, MemoryFault> {
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

#[cfg(test)]
mod tests {
    use super::*;

    const OTHER: [u8; NUMBER_BYTES] = [0xAB; NUMBER_BYTES];

    /// Memory of three numbers, of which that in the middle is 4.
    fn memory() -> (Memory, MemoryId) {
        let mut memory = Memory::new().expect("the system has a generator");
        let bytes = [OTHER, 4u64.to_ne_bytes(), OTHER].concat();
        let region = memory.insert(bytes.into_boxed_slice());
        (memory, region)
    }

    #[test]
    fn atomics_give_what_was_there_and_change_no_other_bytes() {
        let swap = |compare, swap| AtomicOp::CompareSwap { compare, swap };
        let add = |add| AtomicOp::FetchAdd { add };
        for (op, after) in [
            (add(3), 7),
            (add(u64::MAX), 3),
            (swap(4, 9), 9),
            (swap(5, 9), 4),
        ] {
            let (mut memory, region) = memory();
            assert_eq!(memory.atomic(region, 8, op), Ok(4), "{op:?}");
            let bytes = [OTHER, u64::to_ne_bytes(after), OTHER].concat();
            assert_eq!(memory.bytes(region), bytes, "{op:?}");
            assert_eq!(memory.atomic(region, 8, add(0)), Ok(after), "{op:?}");
        }
    }

    #[test]
    fn atomics_outside_of_memory_fail_and_change_nothing() {
        let (mut memory, region) = memory();
        let before = memory.bytes(region).to_vec();
        let op = AtomicOp::FetchAdd { add: 1 };
        for offset in [17, 24, u64::MAX - 7, u64::MAX] {
            assert_eq!(memory.atomic(region, offset, op), Err(MemoryFault));
        }
        let other = MemoryId(region.0 + 1);
        assert_eq!(memory.atomic(other, 8, op), Err(MemoryFault));
        assert_eq!(memory.bytes(region), before);
        memory.remove(region).expect("it is memory");
        assert_eq!(memory.atomic(region, 8, op), Err(MemoryFault));
        let successor = memory.insert(before.into_boxed_slice());
        assert_eq!(
            memory.atomic(region, 8, op),
            Err(MemoryFault),
            "a name of earlier memory"
        );
        assert_eq!(memory.atomic(successor, 8, op), Ok(4));
    }
}
