//! The bytes of a regular file.

use file_tree::FileError;

use crate::extents::{Extents, Segment};
use crate::garbage::{DIRECT_PAGES, Garbage};
use crate::pages::{PAGE_BYTES, Pages, Place, Run};
use crate::usage::Usage;

/// The most runs that a search for a hole passes. What is behind them is taken for data.
const SEEK_RUNS_MAX: usize = 1024;
/// What a clone copies at a time.
const COPY_BYTES: u64 = 64 << 10;
/// Files from this size on grow in slabs of their own.
const APART_PAGES: u64 = 16;

/// What holds the data of a tree's files.
#[derive(Debug)]
pub(crate) struct Space {
    pub(crate) pages: Pages,
    pub(crate) usage: Usage,
    pub(crate) garbage: Garbage,
}

impl Space {
    /// Allocates pages. If no memory is left, pages that no file has any more are freed for them.
    fn allocate(&self, count: u64, hint: Option<u64>, place: Place) -> Option<Run> {
        // A piece is more than an allocation needs; others may take it.
        const TRIES: usize = 4;
        (0..TRIES).find_map(|_| {
            let run = self.pages.allocate(count, hint, place);
            if run.is_none() {
                self.free_piece();
            }
            run
        })
    }

    /// Frees some pages that no file has any more. Returns whether there were any.
    pub(crate) fn free_piece(&self) -> bool {
        self.garbage.free_piece(&self.pages, &self.usage)
    }
}

/// The pages of a file. Bytes of a mapped page beyond the file's end are zeros, so a file grows
/// without touching memory.
#[derive(Debug, Default)]
pub(crate) struct FileData {
    extents: Extents,
    is_removed: bool,
}

impl FileData {
    /// Refuses a file whose last link was removed meanwhile.
    pub(crate) fn check(&self) -> Result<(), FileError> {
        if self.is_removed {
            return Err(FileError::Stale);
        }
        Ok(())
    }

    /// The memory of the mapped pages.
    pub(crate) fn used_bytes(&self) -> u64 {
        self.extents.pages() * PAGE_BYTES
    }

    /// Copies bytes into `dest`; holes are zeros.
    pub(crate) fn read(
        &self,
        space: &Space,
        offset: u64,
        dest: &mut [u8],
    ) -> Result<(), FileError> {
        let mut done = 0;
        while done < dest.len() {
            let at = offset + done as u64;
            let rest = &mut dest[done..];
            let (segment, len) = self.segment(at, rest.len());
            match segment {
                Segment::Mapped(run) => space.pages.read(address(run, at), &mut rest[..len])?,
                Segment::Hole(_) => rest[..len].fill(0),
            }
            done += len;
        }
        Ok(())
    }

    /// Writes `data` if all of its pages are mapped. Returns whether it did.
    pub(crate) fn overwrite(
        &self,
        space: &Space,
        offset: u64,
        data: &[u8],
    ) -> Result<bool, FileError> {
        if !self.is_mapped(offset, data.len()) {
            return Ok(false);
        }
        let mut done = 0;
        while done < data.len() {
            let at = offset + done as u64;
            let (segment, len) = self.segment(at, data.len() - done);
            let Segment::Mapped(run) = segment else {
                return Ok(false);
            };
            let part = &data[done..done + len];
            space.pages.write(address(run, at), part)?;
            done += len;
        }
        Ok(true)
    }

    /// Writes `data` and allocates what it needs. Returns how many bytes were written: fewer only
    /// if space was used up.
    ///
    /// # Errors
    /// If space was used up before the first byte. Nothing was changed then.
    pub(crate) fn write(
        &mut self,
        space: &Space,
        offset: u64,
        data: &[u8],
    ) -> Result<usize, FileError> {
        let mut done = 0;
        while done < data.len() {
            match self.write_part(space, offset + done as u64, &data[done..]) {
                Ok(len) => done += len,
                Err(error) if done == 0 => return Err(error),
                Err(_used_up) => break,
            }
        }
        Ok(done)
    }

    /// Frees pages behind `size_bytes`, and zeroes the rest of the last page.
    pub(crate) fn truncate(&mut self, space: &Space, size_bytes: u64) -> Result<(), FileError> {
        let end = size_bytes.next_multiple_of(PAGE_BYTES);
        self.zero_mapped(space, size_bytes, end)?;
        self.unmap(space, end / PAGE_BYTES..u64::MAX);
        Ok(())
    }

    /// Makes bytes zeros and frees whole pages.
    ///
    /// # Errors
    /// If the map needs another entry and space is used up. Nothing was changed then.
    pub(crate) fn punch_hole(
        &mut self,
        space: &Space,
        start: u64,
        end: u64,
    ) -> Result<(), FileError> {
        let first = start.next_multiple_of(PAGE_BYTES);
        let last = end / PAGE_BYTES * PAGE_BYTES;
        if first >= last {
            let middle = first.clamp(start, end);
            self.zero_mapped(space, start, middle)?;
            return self.zero_mapped(space, middle, end);
        }
        let pages = first / PAGE_BYTES..last / PAGE_BYTES;
        if self.extents.would_split(&pages) {
            space.usage.charge_metadata(self.extents.entry_bytes())?;
        }
        self.unmap(space, pages);
        self.zero_mapped(space, start, first)?;
        self.zero_mapped(space, last, end)
    }

    /// Maps pages of zeros where there are holes between `start` and `end`, at most `count_max`
    /// pages. Returns whether no hole is left.
    ///
    /// # Errors
    /// If space is used up. Nothing was changed then.
    pub(crate) fn fill_holes(
        &mut self,
        space: &Space,
        (start, end): (u64, u64),
        count_max: u64,
    ) -> Result<bool, FileError> {
        let mut new = Self::default();
        let (mut page, last) = (start / PAGE_BYTES, end.div_ceil(PAGE_BYTES));
        while page < last && new.extents.pages() < count_max {
            let count = match self.extents.at(page) {
                Segment::Mapped(run) => run.count,
                Segment::Hole(count) => {
                    let count = count.min(last - page).min(count_max - new.extents.pages());
                    if let Err(error) = new.fill(space, page, count) {
                        new.remove(space);
                        return Err(error);
                    }
                    count
                }
            };
            page = page.saturating_add(count);
        }
        self.absorb(space, new);
        Ok(page >= last)
    }

    /// Whether more than `max_bytes` between `start` and `end` are in pages.
    pub(crate) fn maps_more_than(&self, (start, end): (u64, u64), max_bytes: u64) -> bool {
        let (mut page, last) = (start / PAGE_BYTES, end.div_ceil(PAGE_BYTES));
        let mut left = max_bytes / PAGE_BYTES;
        while page < last {
            let segment = self.extents.at(page);
            let (Segment::Mapped(Run { count, .. }) | Segment::Hole(count)) = segment;
            let count = count.min(last - page);
            if let Segment::Mapped(_) = segment {
                let Some(rest) = left.checked_sub(count) else {
                    return true;
                };
                left = rest;
            }
            page += count;
        }
        false
    }

    /// A copy of what is between `start` and `end`, at `offset` of a file that has nothing else.
    /// All three are multiples of a page, unless the file ends at `end`.
    ///
    /// # Errors
    /// If space is used up.
    pub(crate) fn copy(
        &self,
        space: &Space,
        (start, end): (u64, u64),
        offset: u64,
    ) -> Result<Self, FileError> {
        let mut new = Self::default();
        let mut part = vec![0; COPY_BYTES.min(end - start) as usize];
        let mut at = start;
        while at < end {
            let (segment, len) = self.segment(at, (end - at).min(COPY_BYTES) as usize);
            if let Segment::Hole(count) = segment {
                at = (at / PAGE_BYTES)
                    .saturating_add(count)
                    .saturating_mul(PAGE_BYTES);
                continue;
            }
            let part = &mut part[..len];
            let to = offset + (at - start);
            let copied = self
                .read(space, at, part)
                .and_then(|()| new.write(space, to, part));
            match copied {
                Ok(written) if written == len => at += len as u64,
                failed => {
                    new.remove(space);
                    return Err(failed.err().unwrap_or(FileError::NoSpace));
                }
            }
        }
        Ok(new)
    }

    /// Replaces everything between `start` and `end` by the pages of `new`, which are all there.
    ///
    /// # Errors
    /// If the map needs another entry and space is used up. Nothing was changed then.
    pub(crate) fn replace(
        &mut self,
        space: &Space,
        (start, end): (u64, u64),
        mut new: Self,
    ) -> Result<(), FileError> {
        let pages = start / PAGE_BYTES..end.div_ceil(PAGE_BYTES);
        if self.extents.would_split(&pages)
            && let Err(error) = space.usage.charge_metadata(self.extents.entry_bytes())
        {
            new.remove(space);
            return Err(error);
        }
        self.unmap(space, pages);
        self.absorb(space, new);
        Ok(())
    }

    /// Frees everything, when the last link was removed.
    pub(crate) fn remove(&mut self, space: &Space) {
        self.is_removed = true;
        self.unmap(space, 0..u64::MAX);
    }

    /// Where the next mapped page begins, or `offset` if it is in one.
    pub(crate) fn next_data(&self, offset: u64) -> Option<u64> {
        let page = offset / PAGE_BYTES;
        match self.extents.at(page) {
            Segment::Mapped(_) => Some(offset),
            Segment::Hole(count) => page.checked_add(count)?.checked_mul(PAGE_BYTES),
        }
    }

    /// Where the next hole begins, or `offset` if it is in one; at most `end`.
    pub(crate) fn next_hole(&self, offset: u64, end: u64) -> u64 {
        let mut at = offset;
        for _ in 0..SEEK_RUNS_MAX {
            let page = at / PAGE_BYTES;
            match self.extents.at(page) {
                Segment::Mapped(run) if at < end => at = (page + run.count) * PAGE_BYTES,
                _ => return at.min(end),
            }
        }
        end
    }

    /// What is at `offset`, and how many of `len` bytes from there on.
    fn segment(&self, offset: u64, len: usize) -> (Segment, usize) {
        let segment = self.extents.at(offset / PAGE_BYTES);
        let (Segment::Mapped(Run { count, .. }) | Segment::Hole(count)) = segment;
        let bytes = count.saturating_mul(PAGE_BYTES) - offset % PAGE_BYTES;
        (segment, bytes.min(len as u64) as usize)
    }

    fn is_mapped(&self, offset: u64, len: usize) -> bool {
        let mut done = 0;
        while done < len {
            let (segment, part) = self.segment(offset + done as u64, len - done);
            if let Segment::Hole(_) = segment {
                return false;
            }
            done += part;
        }
        true
    }

    /// Writes the first bytes of `data`, as far as they are in one run of pages.
    fn write_part(&mut self, space: &Space, offset: u64, data: &[u8]) -> Result<usize, FileError> {
        let (segment, len) = self.segment(offset, data.len());
        if let Segment::Mapped(run) = segment {
            space.pages.write(address(run, offset), &data[..len])?;
            return Ok(len);
        }
        let page = offset / PAGE_BYTES;
        let skip = offset % PAGE_BYTES;
        let run = self.allocate(space, page, (skip + len as u64).div_ceil(PAGE_BYTES))?;
        let room = run.count * PAGE_BYTES - skip;
        let len = room.min(len as u64);
        let start = run.first * PAGE_BYTES;
        let filled = space
            .pages
            .zero(start, skip)
            .and_then(|()| space.pages.write(start + skip, &data[..len as usize]))
            .and_then(|()| space.pages.zero(start + skip + len, room - len));
        if let Err(error) = filled {
            space.pages.free_run(run);
            space.usage.refund_quota(run.count * PAGE_BYTES);
            return Err(error);
        }
        self.map(space, page, run)?;
        Ok(len as usize)
    }

    /// Allocates up to `count` pages for `page` of the file, charged to the quota.
    fn allocate(&self, space: &Space, page: u64, count: u64) -> Result<Run, FileError> {
        let charged = space.usage.charge_units(count, PAGE_BYTES)?;
        let hint = self.extents.hint(page);
        // A page in the middle of a hole takes no slab of its own, or a sparse file would take a
        // slab per page.
        let grows = hint.is_some() && self.extents.pages() + charged >= APART_PAGES;
        let place = if grows { Place::Apart } else { Place::Shared };
        let run = space.allocate(charged, hint, place);
        let got = run.map_or(0, |run| run.count);
        space.usage.refund_quota((charged - got) * PAGE_BYTES);
        run.ok_or(FileError::NoSpace)
    }

    /// Maps allocated pages, or frees them if there is no space for the map.
    fn map(&mut self, space: &Space, page: u64, run: Run) -> Result<(), FileError> {
        let before = self.extents.map_bytes();
        let charge = self.extents.entry_bytes();
        if let Err(error) = space.usage.charge_metadata(charge) {
            space.pages.free_run(run);
            space.usage.refund_quota(run.count * PAGE_BYTES);
            return Err(error);
        }
        self.extents.insert(page, run);
        let unused = before + charge - self.extents.map_bytes();
        space.usage.refund_metadata(unused);
        Ok(())
    }

    /// Unmaps and frees pages; many of them later. If that splits a run, its entry was charged.
    fn unmap(&mut self, space: &Space, pages: std::ops::Range<u64>) {
        let map_before = self.extents.map_bytes();
        let mut cut = self.extents.cut(pages);
        let unused = map_before.saturating_sub(self.extents.map_bytes());
        space.usage.refund_quota(cut.pages() * PAGE_BYTES);
        if cut.pages() > DIRECT_PAGES {
            return space.garbage.add(cut, unused);
        }
        while let Some(run) = cut.take_first(DIRECT_PAGES) {
            space.pages.free_run(run);
        }
        space.usage.refund_metadata(unused);
    }

    /// Maps `count` pages of zeros from `page` on.
    fn fill(&mut self, space: &Space, page: u64, count: u64) -> Result<(), FileError> {
        let (mut page, end) = (page, page + count);
        while page < end {
            let run = self.allocate(space, page, end - page)?;
            let zeroed = space
                .pages
                .zero(run.first * PAGE_BYTES, run.count * PAGE_BYTES);
            if let Err(error) = zeroed {
                space.pages.free_run(run);
                space.usage.refund_quota(run.count * PAGE_BYTES);
                return Err(error);
            }
            self.map(space, page, run)?;
            page += run.count;
        }
        Ok(())
    }

    /// Takes the pages of `new`, where this file has none.
    fn absorb(&mut self, space: &Space, new: Self) {
        // Two maps take at least what one takes that has the entries of both.
        let charged = self.extents.map_bytes() + new.extents.map_bytes();
        self.extents.absorb(new.extents);
        space
            .usage
            .refund_metadata(charged - self.extents.map_bytes());
    }

    /// Zeroes bytes of one page, if it is mapped.
    fn zero_mapped(&self, space: &Space, start: u64, end: u64) -> Result<(), FileError> {
        match self.extents.at(start / PAGE_BYTES) {
            Segment::Mapped(run) => space.pages.zero(address(run, start), end - start),
            Segment::Hole(_) => Ok(()),
        }
    }
}

/// Where the byte at `offset` of a file is, whose page is the first of `run`.
fn address(run: Run, offset: u64) -> u64 {
    run.first * PAGE_BYTES + offset % PAGE_BYTES
}
