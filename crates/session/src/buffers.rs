//! The memory of a queue's commands: one buffer per slot, taken once.

use std::fmt;

/// One buffer per slot of a queue, all of the same length. Only the host's own program uses them,
/// so they are plain slices. The owner of the queue must not fill a buffer while its command is in
/// flight.
pub struct Buffers {
    slots: Box<[Slot]>,
    /// log2 of the distance of buffers in what [`offset`](Self::offset) gives.
    stride_shift: u32,
    slot_bytes: usize,
}

/// The memory of one slot.
#[derive(Default)]
struct Slot {
    bytes: Box<[u8]>,
    /// Where the buffer begins in it.
    start: usize,
}

/// The memory of a slot that was taken out ([`Buffers::take`]).
#[derive(Debug)]
pub struct SlotMemory {
    /// The memory; the buffer is a part of it.
    pub bytes: Box<[u8]>,
    /// Where the buffer begins.
    pub start: usize,
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
    /// Slots start at the beginning of a line of the cache, and not all at the same place of a
    /// page, so that they do not fall on the same lines.
    const LINE_BYTES: usize = 64;
    const SKEWS: usize = 32;

    /// `slots` buffers of `slot_bytes` bytes of zeros. Memory that is not used is not touched.
    pub fn new(slots: u16, slot_bytes: usize) -> Self {
        let slot = |index: usize| {
            let skew = index % Self::SKEWS * Self::LINE_BYTES;
            let bytes = vec![0; slot_bytes + skew + Self::LINE_BYTES].into_boxed_slice();
            // If the alignment is unknown, any offset is valid.
            let aligned = bytes.as_ptr().align_offset(Self::LINE_BYTES);
            let start = skew + aligned.min(Self::LINE_BYTES);
            Slot { bytes, start }
        };
        Self {
            slots: (0..usize::from(slots)).map(slot).collect(),
            stride_shift: slot_bytes.next_power_of_two().trailing_zeros(),
            slot_bytes,
        }
    }

    /// How many buffers there are.
    pub fn slots(&self) -> u16 {
        self.slots.len() as u16
    }

    /// Takes the memory of a slot, for example to register it with a provider. Until it is [put
    /// back](Self::put_back), access to the slot's buffer panics. Panics if the memory is taken
    /// already.
    pub fn take(&mut self, slot: u16) -> SlotMemory {
        let Slot { bytes, start } = std::mem::take(&mut self.slots[usize::from(slot)]);
        assert!(
            !bytes.is_empty(),
            "the buffer of slot {slot} is out already"
        );
        SlotMemory { bytes, start }
    }

    /// Puts the memory back that was taken out.
    pub fn put_back(&mut self, slot: u16, memory: SlotMemory) {
        let SlotMemory { bytes, start } = memory;
        self.slots[usize::from(slot)] = Slot { bytes, start };
    }

    /// The length of each buffer in bytes.
    pub fn slot_bytes(&self) -> usize {
        self.slot_bytes
    }

    /// The buffer of a slot. Panics if there is no such slot.
    pub fn slot(&self, slot: u16) -> &[u8] {
        let Slot { bytes, start } = &self.slots[usize::from(slot)];
        &bytes[*start..start + self.slot_bytes]
    }

    /// The buffer of a slot, to be written. Panics if there is no such slot.
    pub fn slot_mut(&mut self, slot: u16) -> &mut [u8] {
        let Slot { bytes, start } = &mut self.slots[usize::from(slot)];
        &mut bytes[*start..*start + self.slot_bytes]
    }

    /// The bytes of a range. Panics if it is outside of its slot.
    pub fn range(&self, range: BufferRange) -> &[u8] {
        let offset = range.offset as usize;
        &self.slot(range.slot)[offset..offset + range.len_bytes as usize]
    }

    /// The bytes of a range, to be written. Panics if it is outside of its slot.
    pub fn range_mut(&mut self, range: BufferRange) -> &mut [u8] {
        let offset = range.offset as usize;
        &mut self.slot_mut(range.slot)[offset..offset + range.len_bytes as usize]
    }

    /// The offset of a range if all buffers were one. Placements of outgoing data refer to it.
    pub fn offset(&self, range: BufferRange) -> u64 {
        (u64::from(range.slot) << self.stride_shift) + u64::from(range.offset)
    }

    /// The `len_bytes` bytes at what [`offset`](Self::offset) gave.
    pub fn at(&self, offset: u64, len_bytes: u64) -> &[u8] {
        let slot = (offset >> self.stride_shift) as u16;
        let start = (offset - (u64::from(slot) << self.stride_shift)) as usize;
        &self.slot(slot)[start..start + len_bytes as usize]
    }

    /// Whether a range is inside of its slot's buffer.
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
        let memory = buffers.take(1);
        assert_eq!(memory.bytes[memory.start..][..100], [2; 100]);
        buffers.put_back(1, memory);
        assert_eq!(buffers.slot(1), [2; 100]);
        assert!(!buffers.contains(BufferRange::first(3, 1)));
        assert!(!buffers.contains(BufferRange::first(0, 101)));
    }
}
