//! The sizes in which a store works.

use std::sync::atomic::AtomicU32;

/// The sizes in which a store reserves address space, allocates, locks and copies. All are powers
/// of two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    chunk_shift: u32,
    slab_shift: u32,
    granule_shift: u32,
    copy_shift: u32,
    locks: u32,
}

/// A run of bytes inside one granule.
pub(crate) struct Piece {
    pub(crate) offset: u64,
    pub(crate) len: usize,
}

impl Layout {
    /// What volumes use; `docs/design/0002-volume-memory.md` has the measurements.
    pub const DEFAULT: Self = Self::new(1 << 30, 2 << 20, 64 << 10, 1024);

    /// The smallest granule, so that every block lies inside one granule and slabs consist of whole
    /// pages.
    pub const GRANULE_BYTES_MIN: u64 = 4096;

    /// A layout that reserves `chunk_bytes` of address space at a time, allocates `slab_bytes` at a
    /// time and locks `granule_bytes` at a time, with a table of `locks` locks over which granules
    /// are spread.
    ///
    /// # Panics
    ///
    /// If a size is not a power of two, or a granule is larger than a slab or a slab than a chunk,
    /// or a granule smaller than [`GRANULE_BYTES_MIN`](Self::GRANULE_BYTES_MIN). A slab must
    /// consist of the host's pages.
    pub const fn new(chunk_bytes: u64, slab_bytes: u64, granule_bytes: u64, locks: u32) -> Self {
        assert!(chunk_bytes.is_power_of_two() && slab_bytes.is_power_of_two());
        assert!(granule_bytes.is_power_of_two() && locks.is_power_of_two());
        assert!(chunk_bytes >= slab_bytes && slab_bytes >= granule_bytes);
        assert!(granule_bytes >= Self::GRANULE_BYTES_MIN);
        Self {
            chunk_shift: chunk_bytes.trailing_zeros(),
            slab_shift: slab_bytes.trailing_zeros(),
            granule_shift: granule_bytes.trailing_zeros(),
            copy_shift: Self::GRANULE_BYTES_MIN.trailing_zeros(),
            locks,
        }
    }

    /// The same, with snapshots that copy `copy_bytes` at a time, and at least a page of the host.
    /// The default is [`GRANULE_BYTES_MIN`](Self::GRANULE_BYTES_MIN).
    ///
    /// # Panics
    ///
    /// If that is not a power of two, is smaller than the default, or larger than a granule.
    #[must_use]
    pub const fn copying(self, copy_bytes: u64) -> Self {
        assert!(copy_bytes.is_power_of_two() && copy_bytes >= Self::GRANULE_BYTES_MIN);
        assert!(copy_bytes <= self.granule_bytes());
        Self {
            copy_shift: copy_bytes.trailing_zeros(),
            ..self
        }
    }

    /// Address space reserved at a time.
    pub const fn chunk_bytes(self) -> u64 {
        1 << self.chunk_shift
    }

    /// Memory allocated and freed at a time.
    pub const fn slab_bytes(self) -> u64 {
        1 << self.slab_shift
    }

    /// The bytes that one lock covers.
    pub const fn granule_bytes(self) -> u64 {
        1 << self.granule_shift
    }

    /// The memory of a store's locks in bytes, allocated with the store.
    pub const fn lock_table_bytes(self) -> u64 {
        self.locks as u64 * size_of::<AtomicU32>() as u64
    }

    /// The layout of what consists of copies: layers of snapshots, and clones. Slabs and granules
    /// are what is copied at a time.
    pub(crate) fn of_copies(self) -> Self {
        let page_shift = rustix::param::page_size().trailing_zeros();
        let shift = self.copy_shift.max(page_shift).min(self.granule_shift);
        Self {
            slab_shift: shift,
            granule_shift: shift,
            copy_shift: shift,
            ..self
        }
    }

    /// The run of bytes, cut at granules.
    pub(crate) fn pieces(self, offset: u64, len: u64) -> impl Iterator<Item = Piece> {
        let granule_bytes = self.granule_bytes();
        let end = offset.saturating_add(len);
        let mut at = offset;
        std::iter::from_fn(move || {
            if at >= end {
                return None;
            }
            let next = ((at | (granule_bytes - 1)).saturating_add(1)).min(end);
            let piece = Piece {
                offset: at,
                len: (next - at) as usize,
            };
            at = next;
            Some(piece)
        })
    }

    /// What the table of a chunk's slabs is charged to the budget, in bytes. Tables of less than a
    /// page are part of what a volume is charged anyway.
    pub(crate) const fn table_charge_bytes(self) -> u64 {
        self.slabs_per_chunk() as u64 & !(Self::GRANULE_BYTES_MIN - 1)
    }

    pub(crate) const fn locks(self) -> u32 {
        self.locks
    }

    pub(crate) const fn slabs_per_chunk(self) -> usize {
        1 << (self.chunk_shift - self.slab_shift)
    }

    pub(crate) const fn granules_per_slab(self) -> u64 {
        1 << (self.slab_shift - self.granule_shift)
    }

    /// The granule that holds the byte at `offset`.
    pub(crate) const fn granule(self, offset: u64) -> u64 {
        offset >> self.granule_shift
    }

    /// The chunk that holds the byte at `offset`.
    pub(crate) const fn chunk(self, offset: u64) -> u64 {
        offset >> self.chunk_shift
    }

    /// The byte at `offset`, counted from the start of its chunk.
    pub(crate) const fn in_chunk(self, offset: u64) -> usize {
        (offset & (self.chunk_bytes() - 1)) as usize
    }

    /// The slab that holds the byte at `offset`, counted from the first of its chunk.
    pub(crate) const fn slab_in_chunk(self, offset: u64) -> usize {
        self.in_chunk(offset) >> self.slab_shift
    }

    /// `offset`, rounded down to a granule's start.
    pub(crate) const fn granule_floor(self, offset: u64) -> u64 {
        offset & !(self.granule_bytes() - 1)
    }

    /// `offset`, rounded up to a slab's start.
    pub(crate) const fn slab_ceil(self, offset: u64) -> u64 {
        offset.next_multiple_of(self.slab_bytes())
    }

    /// `offset`, rounded down to a slab's start.
    pub(crate) const fn slab_floor(self, offset: u64) -> u64 {
        offset & !(self.slab_bytes() - 1)
    }
}
