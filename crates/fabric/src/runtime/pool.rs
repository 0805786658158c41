//! Memory for data on their way: chunks of two lengths, shared by all connections of a runtime.
//!
//! A long chunk is kept for each connection that holds none. Beyond it, a connection may hold a share of what is free only. So whoever
//! keeps its chunks (a peer that answers slowly) leaves room to others, however many do so, and none waits for chunks of another.

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
    /// Connections that hold no long chunk: so many free ones are theirs.
    entitled: usize,
    charge: Charge,
}

/// What a connection holds of the pool.
#[derive(Debug, Default)]
pub(super) struct Holding {
    bytes: u64,
    large: usize,
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
    const fn len_bytes(&self) -> u64 {
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

    /// Its first `len_bytes` bytes, for writing.
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
            entitled: 0,
            charge: budget.overdraw(0),
        }
    }

    /// Keeps a long chunk for one more connection, beyond the bound where needed. Returns whether memory was there for it.
    pub(super) fn enter<P: Provider>(&mut self, provider: &mut P) -> bool {
        if self.small.slabs.is_empty() && !self.grow(Size::Small, provider) {
            return false;
        }
        let has_room =
            self.large.free.len() > self.entitled || self.add_slab(Size::Large, provider);
        self.entitled += usize::from(has_room);
        has_room
    }

    /// A connection that has entered and holds nothing leaves.
    pub(super) fn leave(&mut self) {
        self.entitled -= 1;
    }

    /// A chunk for `len_bytes` bytes, at most [`PIECE_MAX_BYTES`], for a connection with this holding. One that holds nothing gets it.
    pub(super) fn take<P: Provider>(
        &mut self,
        len_bytes: u32,
        holding: &mut Holding,
        provider: &mut P,
    ) -> Option<Chunk> {
        let size = Size::of(len_bytes);
        let chunk = self
            .take_share(size, holding, provider)
            .or_else(|| self.take_own(holding))?;
        self.out_bytes += chunk.len_bytes();
        holding.bytes += chunk.len_bytes();
        if chunk.size == Size::Large {
            self.entitled -= usize::from(holding.large == 0);
            holding.large += 1;
        }
        Some(chunk)
    }

    /// A chunk that is kept for nobody.
    fn take_share<P: Provider>(
        &mut self,
        size: Size,
        holding: &Holding,
        provider: &mut P,
    ) -> Option<Chunk> {
        let free_bytes = self.max_bytes.saturating_sub(self.out_bytes);
        if holding.bytes > 0 && holding.bytes + size.bytes() > free_bytes / SHARE {
            return None;
        }
        let kept = match size {
            Size::Small => 0,
            Size::Large => self.entitled,
        };
        if self.class(size).free.len() <= kept && !self.grow(size, provider) {
            return None;
        }
        self.class(size).free.pop()
    }

    /// The long chunk that is kept for a connection, where it holds none yet.
    fn take_own(&mut self, holding: &Holding) -> Option<Chunk> {
        (holding.large == 0).then(|| self.large.free.pop())?
    }

    /// Takes a chunk back.
    pub(super) fn give(&mut self, chunk: Chunk, holding: &mut Holding) {
        self.out_bytes -= chunk.len_bytes();
        holding.bytes -= chunk.len_bytes();
        if chunk.size == Size::Large {
            holding.large -= 1;
            self.entitled += usize::from(holding.large == 0);
        }
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
        self.charge.len_bytes() + size.slab_bytes() <= self.max_bytes
            && self.add_slab(size, provider)
    }

    /// One more slab, where the budget allows.
    fn add_slab<P: Provider>(&mut self, size: Size, provider: &mut P) -> bool {
        let before_bytes = self.charge.len_bytes();
        let len_bytes = before_bytes + size.slab_bytes();
        if self.charge.resize(len_bytes).is_err() {
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

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;
    use crate::{Soft, SoftOptions};

    #[test]
    fn whoever_holds_nothing_gets_a_chunk_whatever_others_keep() {
        let local = (Ipv4Addr::new(127, 38, 3, 2), 37_022).into();
        let mut provider = Soft::bind(&SoftOptions::at(local)).expect("a port of loopback is free");
        // A slab of each length: 16 long chunks and 64 short ones.
        let budget = Arc::new(Budget::new(2304 << 10));
        let mut pool = Pool::new(1280 << 10, &budget);
        let mut holdings: Vec<Holding> = Vec::new();
        while pool.enter(&mut provider) {
            holdings.push(Holding::default());
        }
        assert_eq!(holdings.len(), 32, "the budget has room for two slabs");
        let mut kept: Vec<Vec<Chunk>> = Vec::new();
        for (index, holding) in holdings.iter_mut().enumerate() {
            // Some take what is short first, some what is long, and all as much as they get.
            let lens_bytes = if index % 2 == 0 {
                [1, 65_536]
            } else {
                [65_536, 1]
            };
            let mut take = |len_bytes| pool.take(len_bytes, holding, &mut provider);
            let mut chunks = vec![take(lens_bytes[0]).expect("it holds nothing")];
            for len_bytes in lens_bytes {
                chunks.extend(std::iter::from_fn(|| take(len_bytes)));
            }
            kept.push(chunks);
        }
        for (holding, chunks) in holdings.iter_mut().zip(kept) {
            for chunk in chunks {
                pool.give(chunk, holding);
            }
            let own = pool.take(65_536, holding, &mut provider).expect("its own");
            pool.give(own, holding);
        }
        for _ in &holdings {
            pool.leave();
        }
        pool.clear(&mut provider);
        assert_eq!(budget.used_bytes(), 0);
    }
}
