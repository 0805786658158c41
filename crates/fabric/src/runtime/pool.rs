//! Memory for data on their way: chunks of two lengths, shared by all connections of a runtime.
//!
//! A connection may hold a share of what is free only, so whoever keeps its chunks (a peer that answers slowly) leaves some to
//! others, however many do so.

use std::sync::Arc;

use block::{ByteRange, Placement, RegionId};
use memory::{Budget, Charge};

use crate::Provider;

/// A piece of the pool. Given back by [`Pool::give`], or lost to it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Chunk {
    region: RegionId,
    offset: u64,
    size: Size,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Size {
    Small,
    Large,
}

/// The pool.
#[derive(Debug)]
pub(super) struct Pool {
    small: Class,
    large: Class,
    max_bytes: u64,
    /// Bytes of chunks that are given out.
    out_bytes: u64,
    charge: Charge,
}

#[derive(Debug, Default)]
struct Class {
    slabs: Vec<RegionId>,
    free: Vec<Chunk>,
}

/// The longest data that one chunk takes, in bytes.
pub(super) const PIECE_MAX_BYTES: u32 = 64 << 10;
/// A connection may hold at most one part in so many of what is free.
const SHARE: u64 = 4;

impl Size {
    fn of(len_bytes: u32) -> Self {
        if u64::from(len_bytes) <= Self::Small.bytes() {
            Self::Small
        } else {
            Self::Large
        }
    }

    const fn bytes(self) -> u64 {
        match self {
            Self::Small => 4 << 10,
            Self::Large => PIECE_MAX_BYTES as u64,
        }
    }

    /// Chunks of one slab.
    const fn slab_chunks(self) -> u64 {
        match self {
            Self::Small => 64,
            Self::Large => 16,
        }
    }

    const fn slab_bytes(self) -> u64 {
        self.bytes() * self.slab_chunks()
    }
}

impl Chunk {
    /// How much of the pool it is, in bytes.
    pub(super) const fn len_bytes(&self) -> u64 {
        self.size.bytes()
    }

    /// Where its first `len_bytes` bytes are.
    pub(super) fn placement(&self, len_bytes: u32) -> Placement {
        Placement {
            region: self.region,
            range: ByteRange {
                offset: self.offset,
                len: u64::from(len_bytes),
            },
        }
    }

    /// Its first `len_bytes` bytes.
    pub(super) fn bytes<'p, P: Provider>(&self, provider: &'p P, len_bytes: u32) -> &'p [u8] {
        &provider.bytes(self.region)[self.offset as usize..][..len_bytes as usize]
    }

    /// The same, for writing.
    pub(super) fn bytes_mut<'p, P: Provider>(
        &self,
        provider: &'p mut P,
        len_bytes: u32,
    ) -> &'p mut [u8] {
        &mut provider.bytes_mut(self.region)[self.offset as usize..][..len_bytes as usize]
    }
}

impl Pool {
    /// An empty pool of up to `max_bytes`, charged to `budget` as it grows.
    pub(super) fn new(max_bytes: u64, budget: &Arc<Budget>) -> Self {
        Self {
            small: Class::default(),
            large: Class::default(),
            max_bytes,
            out_bytes: 0,
            charge: budget.overdraw(0),
        }
    }

    /// Whether there are chunks of either length, so that whoever waits for one gets it some time.
    pub(super) fn is_ready<P: Provider>(&mut self, provider: &mut P) -> bool {
        [Size::Small, Size::Large]
            .into_iter()
            .all(|size| !self.class(size).slabs.is_empty() || self.grow(size, provider))
    }

    /// A chunk for `len_bytes` bytes, at most [`PIECE_MAX_BYTES`], for a connection that holds `held_bytes` of the pool.
    pub(super) fn take<P: Provider>(
        &mut self,
        len_bytes: u32,
        held_bytes: u64,
        provider: &mut P,
    ) -> Option<Chunk> {
        let size = Size::of(len_bytes);
        let free_bytes = self.max_bytes.saturating_sub(self.out_bytes);
        if held_bytes > 0 && held_bytes + size.bytes() > free_bytes / SHARE {
            return None;
        }
        if self.class(size).free.is_empty() && !self.grow(size, provider) {
            return None;
        }
        let chunk = self.class(size).free.pop()?;
        self.out_bytes += size.bytes();
        Some(chunk)
    }

    /// Takes a chunk back.
    pub(super) fn give(&mut self, chunk: Chunk) {
        self.out_bytes -= chunk.len_bytes();
        self.class(chunk.size).free.push(chunk);
    }

    /// Gives all memory back; no chunk is out.
    pub(super) fn clear<P: Provider>(&mut self, provider: &mut P) {
        assert_eq!(self.out_bytes, 0, "chunks are given back first");
        for class in [&mut self.small, &mut self.large] {
            class.free.clear();
            for slab in class.slabs.drain(..) {
                provider.release(slab);
            }
        }
        self.charge
            .resize(0)
            .expect("a charge can always become smaller");
    }

    fn class(&mut self, size: Size) -> &mut Class {
        match size {
            Size::Small => &mut self.small,
            Size::Large => &mut self.large,
        }
    }

    /// One more slab, where bound and budget allow.
    fn grow<P: Provider>(&mut self, size: Size, provider: &mut P) -> bool {
        let before_bytes = self.charge.len_bytes();
        let len_bytes = before_bytes + size.slab_bytes();
        if len_bytes > self.max_bytes || self.charge.resize(len_bytes).is_err() {
            return false;
        }
        let Ok(region) = provider.allocate(size.slab_bytes() as usize) else {
            self.charge
                .resize(before_bytes)
                .expect("a charge can always become smaller");
            return false;
        };
        let class = self.class(size);
        class.slabs.push(region);
        class
            .free
            .extend((0..size.slab_chunks()).map(|index| Chunk {
                region,
                offset: index * size.bytes(),
                size,
            }));
        true
    }
}
