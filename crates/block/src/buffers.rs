//! The memory of a queue's commands: one buffer per slot, taken once.

use std::fmt;

/// As many buffers of the same length as a queue has slots. They belong to the host's own program alone, so plain
/// slices are given out; whoever owns the queue sees to it that nobody fills a buffer while its command is in flight.
pub struct Buffers {
    bytes: Box<[u8]>,
    stride_bytes: usize,
    slot_bytes: usize,
}

/// Bytes of one slot's buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BufferRange {
    /// The slot.
    pub slot: u16,
    /// Bytes from the start of the slot's buffer.
    pub offset: u32,
    /// Length in bytes.
    pub len_bytes: u32,
}

impl BufferRange {
    /// The first `len_bytes` bytes of a slot's buffer.
    pub const fn first(slot: u16, len_bytes: u32) -> Self {
        Self {
            slot,
            offset: 0,
            len_bytes,
        }
    }
}

impl Buffers {
    /// Slots do not start at the same place of a page, so that they do not fall on the same lines of a cache.
    const STRIDE_SKEW_BYTES: usize = 64;

    /// `slots` buffers of `slot_bytes` bytes of zeros. Memory that is not used is not touched.
    pub fn new(slots: u16, slot_bytes: usize) -> Self {
        let stride_bytes = slot_bytes.next_multiple_of(64) + Self::STRIDE_SKEW_BYTES;
        Self {
            bytes: vec![0; stride_bytes * usize::from(slots)].into_boxed_slice(),
            stride_bytes,
            slot_bytes,
        }
    }

    /// How many buffers there are.
    pub fn slots(&self) -> u16 {
        (self.bytes.len() / self.stride_bytes) as u16
    }

    /// The length of each buffer in bytes.
    pub fn slot_bytes(&self) -> usize {
        self.slot_bytes
    }

    /// The buffer of a slot. Panics where there is no such slot.
    pub fn slot(&self, slot: u16) -> &[u8] {
        let start = usize::from(slot) * self.stride_bytes;
        &self.bytes[start..start + self.slot_bytes]
    }

    /// The buffer of a slot, to be written. Panics where there is no such slot.
    pub fn slot_mut(&mut self, slot: u16) -> &mut [u8] {
        let start = usize::from(slot) * self.stride_bytes;
        &mut self.bytes[start..start + self.slot_bytes]
    }

    /// The bytes of a range. Panics where it lies outside of its slot.
    pub fn range(&self, range: BufferRange) -> &[u8] {
        let offset = range.offset as usize;
        &self.slot(range.slot)[offset..offset + range.len_bytes as usize]
    }

    /// The bytes of a range, to be written. Panics where it lies outside of its slot.
    pub fn range_mut(&mut self, range: BufferRange) -> &mut [u8] {
        let offset = range.offset as usize;
        &mut self.slot_mut(range.slot)[offset..offset + range.len_bytes as usize]
    }

    /// Where a range is in the memory of all buffers: placements of data to be sent name it by this offset.
    pub fn offset(&self, range: BufferRange) -> u64 {
        (usize::from(range.slot) * self.stride_bytes) as u64 + u64::from(range.offset)
    }

    /// The `len_bytes` bytes at what [`offset`](Self::offset) gave.
    pub fn at(&self, offset: u64, len_bytes: u64) -> &[u8] {
        let start = offset as usize;
        &self.bytes[start..start + len_bytes as usize]
    }

    /// Whether a range lies inside of its slot's buffer.
    pub fn contains(&self, range: BufferRange) -> bool {
        range.slot < self.slots()
            && u64::from(range.offset) + u64::from(range.len_bytes) <= self.slot_bytes as u64
    }
}

impl fmt::Debug for Buffers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Buffers")
            .field("slots", &self.slots())
            .field("slot_bytes", &self.slot_bytes)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_do_not_overlap_and_offsets_find_them() {
        let mut buffers = Buffers::new(3, 100);
        for slot in 0..3 {
            buffers.slot_mut(slot).fill(slot as u8 + 1);
        }
        for slot in 0..3 {
            assert_eq!(buffers.slot(slot), [slot as u8 + 1; 100]);
            let range = BufferRange {
                slot,
                offset: 10,
                len_bytes: 90,
            };
            assert!(buffers.contains(range));
            let at = buffers.offset(range);
            assert_eq!(buffers.at(at, 90), buffers.range(range));
        }
        assert!(!buffers.contains(BufferRange::first(3, 1)));
        assert!(!buffers.contains(BufferRange::first(0, 101)));
    }
}
