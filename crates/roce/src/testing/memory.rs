//! Memory that is a vector.

use crate::memory::{MemoryId, MemoryRange};
use block::ByteRange;

use crate::backend::{AtomicOp, Backend, MemoryFault};
use crate::wire::Icrc;

/// One region, number 0, of plain memory, and pseudo-random numbers.
#[derive(Clone, Debug)]
pub struct TestMemory {
    /// The bytes.
    pub bytes: Vec<u8>,
    /// Whether every access fails.
    pub is_broken: bool,
    /// Data left in place, if that is enabled: parts of region 1, by number.
    pub stayed: Option<Vec<Vec<u8>>>,
    state: u64,
}

impl TestMemory {
    /// No bytes; numbers follow from `seed`.
    pub const fn new(seed: u64) -> Self {
        Self {
            bytes: Vec::new(),
            is_broken: false,
            stayed: None,
            state: seed,
        }
    }

    /// `len_bytes` zeros; numbers follow from `seed`.
    pub fn zeroed(seed: u64, len_bytes: usize) -> Self {
        let mut memory = Self::new(seed);
        memory.bytes.resize(len_bytes, 0);
        memory
    }

    /// The placement of some of the bytes.
    pub const fn place(offset: u64, len: u64) -> MemoryRange {
        MemoryRange {
            memory: MemoryId(0),
            range: ByteRange { offset, len },
        }
    }

    /// The bytes of a placement.
    pub fn at(&self, place: MemoryRange) -> &[u8] {
        let start = place.range.offset as usize;
        &self.bytes[start..start + place.range.len as usize]
    }

    fn access(&self, region: MemoryId) -> Result<(), MemoryFault> {
        if self.is_broken || region != MemoryId(0) {
            return Err(MemoryFault);
        }
        Ok(())
    }
}

impl Backend for TestMemory {
    fn write(&mut self, region: MemoryId, offset: u64, bytes: &[u8]) -> Result<(), MemoryFault> {
        self.access(region)?;
        let start = offset as usize;
        self.bytes[start..start + bytes.len()].copy_from_slice(bytes);
        Ok(())
    }

    fn leave(&mut self, bytes: &[u8]) -> Option<MemoryRange> {
        let stayed = self.stayed.as_mut()?;
        stayed.push(bytes.to_vec());
        Some(MemoryRange {
            memory: MemoryId(1),
            range: ByteRange {
                offset: stayed.len() as u64 - 1,
                len: bytes.len() as u64,
            },
        })
    }

    fn hash(&mut self, placement: MemoryRange, icrc: &mut Icrc) -> Result<(), MemoryFault> {
        self.access(placement.memory)?;
        icrc.update(self.at(placement));
        Ok(())
    }

    fn atomic(&mut self, region: MemoryId, offset: u64, op: AtomicOp) -> Result<u64, MemoryFault> {
        self.access(region)?;
        let start = offset as usize;
        let slot = &mut self.bytes[start..start + 8];
        let original = u64::from_ne_bytes(slot.try_into().map_err(|_| MemoryFault)?);
        slot.copy_from_slice(&op.apply(original).to_ne_bytes());
        Ok(original)
    }

    /// The splitmix64 generator.
    fn random(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }
}
