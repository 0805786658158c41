//! Pages of a sparse store: which are free, and the bytes of those that are not.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use block::ByteRange;
use file_tree::FileError;
use memory::{Budget, Layout, MemoryError, Provision, Store};

/// What a file's memory consists of.
pub(crate) const PAGE_BYTES: u64 = 4096;

/// A slab's free pages are the bits of one word.
const SLAB_PAGES: u64 = 64;
const SLAB_BYTES: u64 = SLAB_PAGES * PAGE_BYTES;
/// A chunk's table of slabs is then below a page, which the store does not charge.
const CHUNK_BYTES: u64 = 512 << 20;
const LAYOUT: Layout = Layout::new(CHUNK_BYTES, SLAB_BYTES, 64 << 10, 1024);
/// The address space of a tree's data: 32 TiB.
const STORE_BYTES: u64 = CHUNK_BYTES << 16;
const SLABS: u64 = STORE_BYTES / SLAB_BYTES;

/// What a page reads as where it was not written.
const ZEROS: [u8; PAGE_BYTES as usize] = [0; PAGE_BYTES as usize];

/// Pages of the store, one after another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Run {
    /// The number of the first.
    pub(crate) first: u64,
    /// How many, at least one.
    pub(crate) count: u64,
}

impl Run {
    /// The page behind the last.
    pub(crate) fn end(self) -> u64 {
        self.first + self.count
    }

    /// The first pages, and the others.
    pub(crate) fn split(self, count: u64) -> (Self, Self) {
        let front = Self { count, ..self };
        let rest = Self {
            first: self.first + count,
            count: self.count - count,
        };
        (front, rest)
    }
}

/// Where new pages should lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// Wherever slabs have free pages, so that small files share slabs.
    Shared,
    /// In a slab that has no other pages, so that a growing file stays in one piece.
    Apart,
}

/// The pages of a tree.
#[derive(Debug)]
pub(crate) struct Pages {
    store: Store,
    free: Mutex<FreePages>,
}

/// Which pages are free. Slabs without free pages are in neither map.
#[derive(Debug, Default)]
struct FreePages {
    /// Slabs with memory and both free and used pages, with a bit per free page.
    partial: BTreeMap<u64, u64>,
    /// Slabs without memory below `end`: first and number of each run.
    vacant: BTreeMap<u64, u64>,
    /// No slab from here on was ever used since all of them were vacant.
    end: u64,
    /// The free pages of all partial slabs.
    partial_pages: u64,
}

impl Pages {
    pub(crate) fn new(budget: Arc<Budget>) -> Result<Self, MemoryError> {
        let store = Store::new(budget, Provision::Thin, LAYOUT);
        store.resize(STORE_BYTES, &mut |_| std::ops::ControlFlow::Continue(()))?;
        Ok(Self {
            store,
            free: Mutex::default(),
        })
    }

    /// The memory of a tree's locks in bytes.
    pub(crate) const LOCK_BYTES: u64 = LAYOUT.lock_table_bytes();

    /// Bytes that can be allocated without memory from the budget.
    pub(crate) fn spare_bytes(&self) -> u64 {
        self.free().partial_pages * PAGE_BYTES
    }

    /// Allocates between one and `count` pages in one piece; at `hint` if that is free. Their
    /// contents are undefined: what is not written must be zeroed.
    pub(crate) fn allocate(&self, count: u64, hint: Option<u64>, place: Place) -> Option<Run> {
        let mut free = self.free();
        if let Some(run) = hint.and_then(|page| self.allocate_at(&mut free, page, count)) {
            return Some(run);
        }
        if place == Place::Apart || count >= SLAB_PAGES {
            self.allocate_slabs(&mut free, count, None)
                .or_else(|| free.take_shared(count))
        } else {
            free.take_shared(count)
                .or_else(|| self.allocate_slabs(&mut free, count, None))
        }
    }

    /// Frees pages. Slabs of which all pages are free give their memory back.
    pub(crate) fn free_run(&self, run: Run) {
        let first_whole = run.first.next_multiple_of(SLAB_PAGES);
        let end_whole = run.end() / SLAB_PAGES * SLAB_PAGES;
        if first_whole >= end_whole {
            let middle = first_whole.clamp(run.first, run.end());
            self.free_part(run.first, middle);
            self.free_part(middle, run.end());
            return;
        }
        self.free_part(run.first, first_whole);
        self.vacate(
            first_whole / SLAB_PAGES,
            (end_whole - first_whole) / SLAB_PAGES,
        );
        self.free_part(end_whole, run.end());
    }

    pub(crate) fn read(&self, offset: u64, dest: &mut [u8]) -> Result<(), FileError> {
        self.store
            .read(offset, dest)
            .map_err(|_status| FileError::Io)
    }

    pub(crate) fn write(&self, offset: u64, data: &[u8]) -> Result<(), FileError> {
        self.store
            .write(offset, data)
            .map_err(|_status| FileError::Io)
    }

    /// Fills a part of an allocated page, or all of it, with zeros.
    pub(crate) fn zero(&self, offset: u64, len_bytes: u64) -> Result<(), FileError> {
        if len_bytes == 0 {
            return Ok(());
        }
        if len_bytes <= PAGE_BYTES {
            return self.write(offset, &ZEROS[..len_bytes as usize]);
        }
        let range = ByteRange {
            offset,
            len: len_bytes,
        };
        self.store.zero(range).map_err(|_status| FileError::Io)
    }

    /// Frees everything for good.
    pub(crate) fn close(&self) {
        self.store.close();
    }

    fn free(&self) -> MutexGuard<'_, FreePages> {
        // Nothing panics between two changes that belong together.
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn allocate_at(&self, free: &mut FreePages, page: u64, count: u64) -> Option<Run> {
        match page % SLAB_PAGES {
            0 => self.allocate_slabs(free, count, Some(page / SLAB_PAGES)),
            _ => free.take_partial(page, count),
        }
    }

    /// Allocates up to `count` pages from the start of slabs that have no memory.
    fn allocate_slabs(&self, free: &mut FreePages, count: u64, at: Option<u64>) -> Option<Run> {
        let (slab, slabs) = free.take_vacant(count.div_ceil(SLAB_PAGES), at)?;
        let has_memory = |slab: u64| {
            // One byte makes the store allocate the slab.
            let touched = self.store.write(slab * SLAB_BYTES, &[0]);
            touched.is_ok()
        };
        let got = (slab..slab + slabs)
            .take_while(|&slab| has_memory(slab))
            .count() as u64;
        if got < slabs {
            free.put_vacant(slab + got, slabs - got);
        }
        if got == 0 {
            return None;
        }
        let taken = count.min(got * SLAB_PAGES);
        let run = Run {
            first: slab * SLAB_PAGES,
            count: taken,
        };
        let rest = got * SLAB_PAGES - taken;
        if rest > 0 {
            free.partial
                .insert(slab + got - 1, u64::MAX << (SLAB_PAGES - rest));
            free.partial_pages += rest;
        }
        Some(run)
    }

    /// Frees pages of one slab, which has others.
    fn free_part(&self, first: u64, end: u64) {
        if first == end {
            return;
        }
        let slab = first / SLAB_PAGES;
        if self.free().put_partial(first, end - first) {
            self.vacate(slab, 1);
        }
    }

    /// Gives the memory of slabs back of which the caller owns all pages.
    fn vacate(&self, slab: u64, slabs: u64) {
        // Without the mutex, since this takes long. If the store cannot free a slab, its old
        // contents are never seen: a page is filled completely before a file has it.
        let _freed = self.store.discard(ByteRange {
            offset: slab * SLAB_BYTES,
            len: slabs * SLAB_BYTES,
        });
        self.free().put_vacant(slab, slabs);
    }
}

impl FreePages {
    /// Takes up to `count` free pages from `page` on, in its slab.
    fn take_partial(&mut self, page: u64, count: u64) -> Option<Run> {
        let slab = page / SLAB_PAGES;
        let bits = self.partial.get_mut(&slab)?;
        let shift = page % SLAB_PAGES;
        let free = u64::from((*bits >> shift).trailing_ones());
        let count = count.min(free);
        if count == 0 {
            return None;
        }
        *bits &= !mask(shift, count);
        if *bits == 0 {
            self.partial.remove(&slab);
        }
        self.partial_pages -= count;
        Some(Run { first: page, count })
    }

    /// Takes up to `count` free pages in the first slab that has some.
    fn take_shared(&mut self, count: u64) -> Option<Run> {
        let (&slab, &bits) = self.partial.first_key_value()?;
        let page = slab * SLAB_PAGES + u64::from(bits.trailing_zeros());
        self.take_partial(page, count)
    }

    /// Puts back pages of one slab. Returns whether all of it is free now; the caller owns it then.
    fn put_partial(&mut self, first: u64, count: u64) -> bool {
        let slab = first / SLAB_PAGES;
        let bits = self.partial.entry(slab).or_insert(0);
        let freed = mask(first % SLAB_PAGES, count);
        assert!(*bits & freed == 0, "a page was freed twice");
        *bits |= freed;
        self.partial_pages += count;
        if *bits != u64::MAX {
            return false;
        }
        self.partial.remove(&slab);
        self.partial_pages -= SLAB_PAGES;
        true
    }

    /// Takes up to `slabs` vacant slabs in one piece; only from `at` on, if that is given.
    fn take_vacant(&mut self, slabs: u64, at: Option<u64>) -> Option<(u64, u64)> {
        let found = match at {
            None => self.vacant.first_key_value(),
            Some(slab) => self.vacant.get_key_value(&slab),
        };
        let Some((&first, &free)) = found else {
            if at.is_some_and(|slab| slab != self.end) {
                return None;
            }
            let first = self.end;
            let slabs = slabs.min(SLABS - first);
            self.end += slabs;
            return (slabs > 0).then_some((first, slabs));
        };
        self.vacant.remove(&first);
        if free > slabs {
            self.vacant.insert(first + slabs, free - slabs);
        }
        Some((first, slabs.min(free)))
    }

    fn put_vacant(&mut self, slab: u64, slabs: u64) {
        let mut first = slab;
        let mut count = slabs;
        if let Some((&before, &len)) = self.vacant.range(..slab).next_back() {
            assert!(before + len <= slab, "a slab was freed twice");
            if before + len == slab {
                self.vacant.remove(&before);
                first = before;
                count += len;
            }
        }
        if let Some(len) = self.vacant.remove(&(slab + slabs)) {
            count += len;
        }
        if first + count == self.end {
            self.end = first;
        } else {
            self.vacant.insert(first, count);
        }
    }
}

/// `count` bits from `shift` on, all within a word.
fn mask(shift: u64, count: u64) -> u64 {
    (u64::MAX >> (SLAB_PAGES - count)) << shift
}
