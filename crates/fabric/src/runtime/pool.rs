//! Memory for data on their way: chunks of two lengths, shared by all connections of a runtime.
//!
//! A long chunk is reserved for each connection that holds none. Beyond that, a connection may hold
//! only a share of the free chunks. So peers that answer slowly, whose connections keep their
//! chunks, leave room to others, however many they are, and no connection waits for another's
//! chunks.
//!
//! The reserved chunks may exceed the pool's bound. As connections end, what was allocated for them
//! is freed: the memory of many connections is not kept for the few that remain.

use std::sync::Arc;

use block::ByteRange;
use memory::{Budget, Charge};

use crate::Provider;
use crate::verbs::{MemoryId, MemoryRange};

/// A piece of the pool. Given back by [`Pool::give`], or lost to it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Chunk {
    region: MemoryId,
    size: Size,
    /// Which slab of its class it is of.
    slab: u32,
    /// Which chunk of the slab.
    index: u32,
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
    /// Connections that hold no long chunk. As many free long chunks are reserved for them.
    entitled: usize,
    /// Slabs of long chunks that were allocated for connections, not for data.
    reserved_slabs: usize,
    charge: Charge,
}

/// The chunks that a connection holds.
#[derive(Debug, Default)]
pub(super) struct Holding {
    bytes: u64,
    large: usize,
}

/// The chunks of one length.
#[derive(Debug)]
struct Class {
    size: Size,
    /// `None` if the slab was freed.
    slabs: Vec<Option<Slab>>,
    /// All slabs before this one are full.
    first_open: usize,
    free_chunks: usize,
}

/// Memory that is got and given back as one.
#[derive(Debug)]
struct Slab {
    region: MemoryId,
    /// A bit for each chunk that is free.
    free: u64,
}

/// The longest data that fit one chunk, in bytes.
pub(super) const PIECE_MAX_BYTES: u32 = 64 << 10;
/// A connection may hold at most the free bytes divided by this.
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

    /// Chunks of one slab, at most as many as a [`Slab`] has bits.
    const fn slab_chunks(self) -> u32 {
        match self {
            Self::Small => u64::BITS,
            Self::Large => 16,
        }
    }

    const fn slab_bytes(self) -> u64 {
        self.bytes() * self.slab_chunks() as u64
    }

    /// The free bits of a slab whose chunks are all free.
    const fn all_free(self) -> u64 {
        u64::MAX >> (u64::BITS - self.slab_chunks())
    }
}

impl Holding {
    /// How much it is, in bytes.
    pub(super) const fn bytes(&self) -> u64 {
        self.bytes
    }
}

impl Chunk {
    /// How much of the pool it is, in bytes.
    const fn len_bytes(&self) -> u64 {
        self.size.bytes()
    }

    /// The placement of its first `len_bytes` bytes.
    pub(super) fn placement(&self, len_bytes: u32) -> MemoryRange {
        MemoryRange {
            memory: self.region,
            range: ByteRange {
                offset: self.offset(),
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
        &mut provider.bytes_mut(self.region)[self.offset() as usize..][..len_bytes as usize]
    }

    /// Its offset in its region, in bytes.
    const fn offset(&self) -> u64 {
        self.index as u64 * self.size.bytes()
    }
}

impl Class {
    const fn of(size: Size) -> Self {
        Self {
            size,
            slabs: Vec::new(),
            first_open: 0,
            free_chunks: 0,
        }
    }

    /// Adds a slab, all of it free.
    fn add(&mut self, region: MemoryId) {
        let slab = Slab {
            region,
            free: self.size.all_free(),
        };
        let vacant = self.slabs.iter().position(Option::is_none);
        let place = vacant.unwrap_or_else(|| {
            self.slabs.push(None);
            self.slabs.len() - 1
        });
        self.slabs[place] = Some(slab);
        self.first_open = self.first_open.min(place);
        self.free_chunks += self.size.slab_chunks() as usize;
    }

    /// Takes the first free chunk, so that later slabs become wholly free first.
    fn pop(&mut self) -> Option<Chunk> {
        let mut open = self.slabs.iter_mut().enumerate().skip(self.first_open);
        let (at, slab) = open.find_map(|(at, slab)| {
            let slab = slab.as_mut()?;
            (slab.free != 0).then_some((at, slab))
        })?;
        let index = slab.free.trailing_zeros();
        slab.free &= slab.free - 1;
        let region = slab.region;
        self.first_open = at;
        self.free_chunks -= 1;
        Some(Chunk {
            region,
            size: self.size,
            slab: at as u32,
            index,
        })
    }

    #[expect(
        clippy::needless_pass_by_value,
        reason = "what is given back is had no more"
    )]
    fn push(&mut self, chunk: Chunk) {
        let at = chunk.slab as usize;
        let slab = self.slabs[at].as_mut();
        slab.expect("a slab stays while chunks of it are out").free |= 1 << chunk.index;
        self.first_open = self.first_open.min(at);
        self.free_chunks += 1;
    }

    /// Removes the last slab that is wholly free.
    fn remove_idle(&mut self) -> Option<MemoryId> {
        let all_free = self.size.all_free();
        let mut slabs = self.slabs.iter_mut();
        let idle = slabs.rfind(|slab| slab.as_ref().is_some_and(|slab| slab.free == all_free))?;
        let region = idle.take()?.region;
        self.free_chunks -= self.size.slab_chunks() as usize;
        Some(region)
    }

    /// Removes everything.
    fn drain(&mut self) -> impl Iterator<Item = MemoryId> {
        (self.first_open, self.free_chunks) = (0, 0);
        self.slabs.drain(..).flatten().map(|slab| slab.region)
    }
}

impl Pool {
    /// An empty pool of up to `max_bytes`, charged to `budget` as it grows.
    pub(super) fn new(max_bytes: u64, budget: &Arc<Budget>) -> Self {
        Self {
            small: Class::of(Size::Small),
            large: Class::of(Size::Large),
            max_bytes,
            out_bytes: 0,
            entitled: 0,
            reserved_slabs: 0,
            charge: budget.overdraw(0),
        }
    }

    /// Reserves a long chunk for one more connection, beyond the bound if necessary. Returns
    /// whether memory was available.
    pub(super) fn add_connection<P: Provider>(&mut self, provider: &mut P) -> bool {
        if self.small.slabs.is_empty() && !self.grow(Size::Small, provider) {
            return false;
        }
        if self.large.free_chunks <= self.entitled {
            if !self.add_slab(Size::Large, provider) {
                return false;
            }
            self.reserved_slabs += 1;
        }
        self.entitled += 1;
        true
    }

    /// Removes a connection that holds nothing. Frees the memory that it was allocated, and what is
    /// beyond the bound.
    pub(super) fn remove_connection<P: Provider>(&mut self, provider: &mut P) {
        self.entitled -= 1;
        // One slab more than needed stays, so that connections that open and close at the edge of a
        // slab do not allocate and free it each time.
        let kept = self.entitled + 2 * Size::Large.slab_chunks() as usize;
        while self.large.free_chunks >= kept
            && (self.reserved_slabs > 0 || self.charge.len_bytes() > self.max_bytes)
        {
            let Some(region) = self.large.remove_idle() else {
                break;
            };
            self.reserved_slabs = self.reserved_slabs.saturating_sub(1);
            provider.release(region);
            self.shrink_to(self.charge.len_bytes() - Size::Large.slab_bytes());
        }
    }

    /// A chunk for `len_bytes` bytes, at most [`PIECE_MAX_BYTES`], for a connection with this
    /// holding. One that holds nothing gets it.
    pub(super) fn take<P: Provider>(
        &mut self,
        len_bytes: u32,
        holding: &mut Holding,
        provider: &mut P,
    ) -> Option<Chunk> {
        let size = Size::of(len_bytes);
        let chunk = self
            .take_unreserved(size, holding, provider)
            .or_else(|| self.take_reserved(holding))?;
        self.out_bytes += chunk.len_bytes();
        holding.bytes += chunk.len_bytes();
        if chunk.size == Size::Large {
            self.entitled -= usize::from(holding.large == 0);
            holding.large += 1;
        }
        Some(chunk)
    }

    /// A chunk that is not reserved.
    fn take_unreserved<P: Provider>(
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
        if self.class(size).free_chunks <= kept && !self.grow(size, provider) {
            return None;
        }
        self.class(size).pop()
    }

    /// The long chunk that is reserved for a connection, if it holds none yet.
    fn take_reserved(&mut self, holding: &Holding) -> Option<Chunk> {
        (holding.large == 0).then(|| self.large.pop())?
    }

    /// Takes a chunk back from a connection.
    pub(super) fn give(&mut self, chunk: Chunk, holding: &mut Holding) {
        self.out_bytes -= chunk.len_bytes();
        holding.bytes -= chunk.len_bytes();
        if chunk.size == Size::Large {
            holding.large -= 1;
            self.entitled += usize::from(holding.large == 0);
        }
        self.class(chunk.size).push(chunk);
    }

    /// Frees all memory. No chunk may be in use.
    pub(super) fn clear<P: Provider>(&mut self, provider: &mut P) {
        assert_eq!(self.out_bytes, 0, "chunks are given back first");
        for class in [&mut self.small, &mut self.large] {
            for region in class.drain() {
                provider.release(region);
            }
        }
        self.reserved_slabs = 0;
        self.shrink_to(0);
    }

    fn shrink_to(&mut self, len_bytes: u64) {
        self.charge
            .resize(len_bytes)
            .expect("a charge can always become smaller");
    }

    fn class(&mut self, size: Size) -> &mut Class {
        match size {
            Size::Small => &mut self.small,
            Size::Large => &mut self.large,
        }
    }

    /// Adds a slab, if bound and budget allow.
    fn grow<P: Provider>(&mut self, size: Size, provider: &mut P) -> bool {
        self.charge.len_bytes() + size.slab_bytes() <= self.max_bytes
            && self.add_slab(size, provider)
    }

    /// Adds a slab, if the budget allows.
    fn add_slab<P: Provider>(&mut self, size: Size, provider: &mut P) -> bool {
        let before_bytes = self.charge.len_bytes();
        let len_bytes = before_bytes + size.slab_bytes();
        if self.charge.resize(len_bytes).is_err() {
            return false;
        }
        let Ok(region) = provider.allocate(size.slab_bytes() as usize) else {
            self.shrink_to(before_bytes);
            return false;
        };
        self.class(size).add(region);
        true
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;
    use crate::ports::free_udp_port;
    use crate::{Soft, SoftOptions};

    #[test]
    fn a_connection_without_chunks_gets_one_whatever_others_hold() {
        let local = (Ipv4Addr::new(127, 38, 3, 2), free_udp_port()).into();
        let mut provider = Soft::bind(&SoftOptions::at(local)).expect("a port of loopback is free");
        // A slab of each length: 16 long chunks and 64 short ones.
        let budget = Arc::new(Budget::new(2304 << 10));
        let mut pool = Pool::new(1280 << 10, &budget);
        let mut holdings: Vec<Holding> = Vec::new();
        while pool.add_connection(&mut provider) {
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
            pool.remove_connection(&mut provider);
        }
        pool.clear(&mut provider);
        assert_eq!(budget.used_bytes(), 0);
    }

    #[test]
    fn memory_of_many_connections_is_freed_as_they_disconnect() {
        const MIB: u64 = 1 << 20;
        const BOUND_BYTES: u64 = 4 * MIB;
        const CONNECTIONS: usize = 512;
        let local = (Ipv4Addr::new(127, 38, 3, 3), free_udp_port()).into();
        let mut provider = Soft::bind(&SoftOptions::at(local)).expect("a port of loopback is free");
        let budget = Arc::new(Budget::new(64 * MIB));
        let mut pool = Pool::new(BOUND_BYTES, &budget);
        let mut holdings: Vec<_> = (0..CONNECTIONS)
            .map(|_| {
                assert!(pool.add_connection(&mut provider));
                Holding::default()
            })
            .collect();
        let needed_bytes = CONNECTIONS as u64 * Size::Large.bytes();
        assert!(budget.used_bytes() >= needed_bytes);
        // Two keep what they have.
        let mut stay = [holdings.remove(CONNECTIONS - 1), holdings.remove(0)];
        let kept = stay.each_mut().map(|holding| {
            let chunk = pool.take(65_536, holding, &mut provider).expect("its own");
            chunk.bytes_mut(&mut provider, 65_536).fill(0xA5);
            chunk
        });
        let mut connections = CONNECTIONS as u64;
        for mut holding in holdings {
            let own = pool.take(65_536, &mut holding, &mut provider);
            pool.give(own.expect("its own"), &mut holding);
            pool.remove_connection(&mut provider);
            connections -= 1;
            // Two slabs may be spare, and one is begun.
            let needed_bytes = connections * Size::Large.bytes() + 3 * Size::Large.slab_bytes();
            assert!(budget.used_bytes() <= needed_bytes.max(BOUND_BYTES));
        }
        for (chunk, holding) in kept.into_iter().zip(&mut stay) {
            let bytes = chunk.bytes_mut(&mut provider, 65_536);
            assert!(bytes.iter().all(|byte| *byte == 0xA5));
            pool.give(chunk, holding);
        }
        // It grows again.
        (2..CONNECTIONS).for_each(|_| assert!(pool.add_connection(&mut provider)));
        assert!(budget.used_bytes() >= needed_bytes);
        (0..CONNECTIONS).for_each(|_| pool.remove_connection(&mut provider));
        pool.clear(&mut provider);
        assert_eq!(budget.used_bytes(), 0);
    }
}
