//! Reads of what every member in sync has, while writes are in flight.
//!
//! A primary writes to its own memory first, so its memory may hold what a failover could take
//! back. Until a write is committed, what it has overwritten is kept beside it, and reads see that.
//! A read without a write in flight near its blocks takes no lock: it compares a word per stripe
//! before and afterwards.

use std::sync::atomic::{AtomicU64, Ordering, fence};

use block::{BlockSize, Blocks, ByteRange, Extent, Lba, Status};
use memory::Store;
use replica::{Contents, Overwritten};

/// Words of one volume.
const STRIPES: u64 = 1024;
/// log2 of the bytes of a stripe; those `STRIPES` times as far away share its word.
const STRIPE_SHIFT: u32 = 16;
/// A write that began, in the upper half of a word.
const BEGUN: u64 = 1 << 32;
/// The writes in flight, in the lower half.
const IN_FLIGHT: u64 = BEGUN - 1;

/// For each stripe how many writes began, and how many are in flight.
#[derive(Debug)]
pub(crate) struct Stripes {
    words: Box<[AtomicU64]>,
}

impl Stripes {
    pub fn new() -> Self {
        Self {
            words: (0..STRIPES).map(|_| AtomicU64::new(0)).collect(),
        }
    }

    /// A write to `range` begins. Before memory changes.
    pub fn begin(&self, range: ByteRange) {
        for place in places(range) {
            self.words[place].fetch_add(BEGUN + 1, Ordering::SeqCst);
        }
        // No byte changes before.
        fence(Ordering::SeqCst);
    }

    /// It is committed, or has failed.
    pub fn end(&self, range: ByteRange) {
        for place in places(range) {
            self.words[place].fetch_sub(1, Ordering::SeqCst);
        }
    }

    /// Calls `read` for the bytes of a stripe. Returns whether no write was in flight meanwhile.
    fn read_quietly(
        &self,
        range: ByteRange,
        read: impl FnOnce() -> Result<(), Status>,
    ) -> Result<bool, Status> {
        let word = &self.words[place(range.offset)];
        let before = word.load(Ordering::SeqCst);
        if before & IN_FLIGHT != 0 {
            return Ok(false);
        }
        read()?;
        // No byte is read after.
        fence(Ordering::SeqCst);
        Ok(word.load(Ordering::SeqCst) == before)
    }

    /// Reads `range` into `dest`, as long, without a lock. Returns how many of its first bytes were
    /// read.
    pub fn read(&self, store: &Store, offset: u64, dest: &mut [u8]) -> Result<usize, Status> {
        let mut done = 0;
        while done < dest.len() {
            let start = offset + done as u64;
            let left_of_stripe = (1 << STRIPE_SHIFT) - (start & ((1 << STRIPE_SHIFT) - 1));
            let len = left_of_stripe.min((dest.len() - done) as u64);
            let part = &mut dest[done..done + len as usize];
            let range = ByteRange { offset: start, len };
            if !self.read_quietly(range, || store.read(start, part))? {
                break;
            }
            done += len as usize;
        }
        Ok(done)
    }
}

/// Reads what is committed, while no write begins: memory, with what the writes in flight have
/// overwritten, the newest first. `dest` begins and ends with a block.
///
/// # Errors
/// [`Status::Busy`] if a write in flight has overwritten more than was kept.
pub(crate) fn read_committed<'a>(
    store: &Store,
    in_flight: impl DoubleEndedIterator<Item = &'a Overwritten<Contents>>,
    block_size: BlockSize,
    offset: u64,
    dest: &mut [u8],
) -> Result<(), Status> {
    store.read(offset, dest)?;
    let shift = block_size.shift();
    let extent = Extent::new(Lba(offset >> shift), Blocks(dest.len() as u64 >> shift));
    for write in in_flight
        .rev()
        .filter(|write| write.extent.overlaps(extent))
    {
        let old = write.old.as_ref().ok_or(Status::Busy)?;
        copy_shared(write.extent, old, extent, dest);
    }
    Ok(())
}

/// Copies the blocks that two extents share: from `contents`, which has those of `of`, to `dest`,
/// which has those of `extent`.
pub(crate) fn copy_shared(of: Extent, contents: &Contents, extent: Extent, dest: &mut [u8]) {
    let from = of.lba.max(extent.lba).0;
    let blocks = end(of).min(end(extent)).saturating_sub(from);
    if blocks == 0 {
        return;
    }
    let shift = contents.block_size().shift();
    let len = (blocks << shift) as usize;
    let source = ((from - of.lba.0) << shift) as usize;
    let target = ((from - extent.lba.0) << shift) as usize;
    let target = &mut dest[target..target + len];
    match contents.bytes() {
        Some(bytes) => target.copy_from_slice(&bytes[source..source + len]),
        None => target.fill(0),
    }
}

/// The block after the last.
pub(crate) fn end(extent: Extent) -> u64 {
    extent.lba.0 + extent.blocks.0
}

fn place(offset: u64) -> usize {
    ((offset >> STRIPE_SHIFT) % STRIPES) as usize
}

/// The places of the words of `range`, which is not empty; each once.
fn places(range: ByteRange) -> impl Iterator<Item = usize> {
    let first = range.offset >> STRIPE_SHIFT;
    let last = (range.offset + range.len - 1) >> STRIPE_SHIFT;
    let count = (last - first + 1).min(STRIPES);
    (first..first + count).map(|stripe| (stripe % STRIPES) as usize)
}

#[cfg(test)]
mod tests {
    use std::ops::ControlFlow;
    use std::sync::Arc;

    use memory::{Budget, Layout, Provision};

    use super::*;

    fn store() -> Store {
        let budget = Arc::new(Budget::new(16 << 20));
        let store = Store::new(budget, Provision::Thin, Layout::DEFAULT);
        let grown = store.resize(1 << 20, &mut |_| ControlFlow::Continue(()));
        grown.expect("the budget has room");
        store
    }

    const fn range(offset: u64, len: u64) -> ByteRange {
        ByteRange { offset, len }
    }

    #[test]
    fn a_read_without_a_lock_ends_before_a_stripe_with_a_write_in_flight() {
        let (store, stripes) = (store(), Stripes::new());
        let mut dest = vec![0; 3 << 16];
        stripes.begin(range(1 << 16, 512));
        assert_eq!(stripes.read(&store, 512, &mut dest), Ok((1 << 16) - 512));
        stripes.end(range(1 << 16, 512));
        assert_eq!(stripes.read(&store, 512, &mut dest), Ok(3 << 16));
    }

    #[test]
    fn a_write_that_begins_during_a_read_is_noticed() {
        let stripes = Stripes::new();
        let read = stripes.read_quietly(range(0, 512), || {
            stripes.begin(range(0, 512));
            stripes.end(range(0, 512));
            Ok(())
        });
        assert_eq!(read, Ok(false));
    }

    #[test]
    fn reads_see_what_writes_in_flight_have_overwritten() {
        let store = store();
        store.write(0, &[3; 4096]).expect("room");
        let old = |lba, blocks, byte: u8| Overwritten {
            extent: Extent::new(Lba(lba), Blocks(blocks)),
            old: Contents::of_bytes(BlockSize::B512, vec![byte; blocks as usize * 512].into()),
        };
        let read = |in_flight: &[Overwritten<Contents>], dest: &mut [u8]| {
            read_committed(&store, in_flight.iter(), BlockSize::B512, 512, dest)
        };
        let mut dest = [0; 2048];
        let in_flight = [old(0, 3, 1), old(2, 2, 2)];
        assert_eq!(read(&in_flight, &mut dest), Ok(()));
        assert!(dest[..1024].iter().all(|byte| *byte == 1));
        assert!(dest[1024..1536].iter().all(|byte| *byte == 2));
        assert!(dest[1536..].iter().all(|byte| *byte == 3));
        let zeros = Overwritten {
            extent: Extent::new(Lba(4), Blocks(1)),
            old: Some(Contents::zeros(BlockSize::B512, 1)),
        };
        assert_eq!(read(&[zeros], &mut dest), Ok(()));
        assert!(dest[..1536].iter().all(|byte| *byte == 3));
        assert!(dest[1536..].iter().all(|byte| *byte == 0));
        let long = |lba| Overwritten {
            extent: Extent::new(Lba(lba), Blocks(600)),
            old: None,
        };
        assert_eq!(read(&[long(5)], &mut dest), Ok(()));
        assert_eq!(read(&[long(4)], &mut dest), Err(Status::Busy));
    }

    #[test]
    fn a_range_has_each_of_its_words_once() {
        let of = |offset, len| places(range(offset, len)).collect::<Vec<_>>();
        assert_eq!(of(0, 1), [0]);
        assert_eq!(of(65_535, 2), [0, 1]);
        assert_eq!(of(1023 << 16, 2 << 16), [1023, 0]);
        assert_eq!(of(0, 1 << 40).len(), 1024);
    }
}
