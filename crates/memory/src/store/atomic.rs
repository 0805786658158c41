//! Operations that are atomic as a whole, on one store or over several.

use std::array;

use block::{ByteRange, Status};

use super::Store;
use crate::locks::WriteAllGuard;

/// The most stores of one [`compare_and_write_across`].
pub const STORES_MAX: usize = 64;

/// A run of bytes of a [`compare_and_write_across`].
#[derive(Clone, Copy, Debug)]
pub struct Part {
    /// The index of its store.
    pub store: usize,
    /// Where it starts there.
    pub offset: u64,
    /// Where its data start in what is compared and written.
    pub at: usize,
    /// Its length in bytes.
    pub len: usize,
}

impl Store {
    /// If the bytes from `offset` on equal `compare`, writes `write` there: all or nothing, and
    /// atomic towards every other operation. Both must have the same length.
    pub fn compare_and_write(
        &self,
        offset: u64,
        compare: &[u8],
        write: &[u8],
    ) -> Result<(), Status> {
        let len = compare.len();
        let range = ByteRange {
            offset,
            len: len as u64,
        };
        let part = Part {
            store: 0,
            offset,
            at: 0,
            len,
        };
        let parts = || std::iter::once(part).filter(|part| part.len > 0);
        compare_and_write_across(&[(self, range)], parts, compare, write)
    }

    fn lock_range(&self, range: ByteRange) -> WriteAllGuard<'_> {
        let (first, count) = self.granules(range);
        self.locks.write_all(first, count)
    }

    fn try_lock_range(&self, range: ByteRange) -> Option<WriteAllGuard<'_>> {
        let (first, count) = self.granules(range);
        self.locks.try_write_all(first, count)
    }

    /// The first granule of a range that is not empty, and how many it touches.
    fn granules(&self, range: ByteRange) -> (u64, u64) {
        let first = self.layout().granule(range.offset);
        let last = self.layout().granule(range.offset + range.len.max(1) - 1);
        (first, last - first + 1)
    }

    fn compare_run(&self, part: Part, compare: &[u8]) -> Result<(), Status> {
        for piece in self.pieces(part.offset, part.len as u64) {
            let at = part.at + (piece.offset - part.offset) as usize;
            self.compare_locked(piece.offset, &compare[at..at + piece.len], at)?;
        }
        Ok(())
    }

    fn prepare_run(&self, locks: &WriteAllGuard<'_>, part: Part) -> Result<(), Status> {
        let newest = self.newest(locks, part.offset);
        for piece in self.pieces(part.offset, part.len as u64) {
            self.prepare(newest, &piece)?;
        }
        Ok(())
    }

    fn write_run(&self, locks: &WriteAllGuard<'_>, part: Part, write: &[u8]) -> Result<(), Status> {
        let newest = self.newest(locks, part.offset);
        for piece in self.pieces(part.offset, part.len as u64) {
            let at = part.at + (piece.offset - part.offset) as usize;
            let chunk = self.prepare(newest, &piece)?;
            let data = &write[at..at + piece.len];
            // SAFETY: the write locks of all pieces are held, and the slab is allocated.
            unsafe { chunk.copy_in(self.layout().in_chunk(piece.offset), data) };
        }
        Ok(())
    }
}

/// [`Store::compare_and_write`] over several stores, at most [`STORES_MAX`]: each once, with the
/// range that contains its parts.
pub fn compare_and_write_across<P: Iterator<Item = Part>>(
    ranges: &[(&Store, ByteRange)],
    parts: impl Fn() -> P,
    compare: &[u8],
    write: &[u8],
) -> Result<(), Status> {
    if compare.len() != write.len() {
        return Err(Status::Invalid);
    }
    check(ranges)?;
    let locks = lock_all(ranges);
    let lock_of = |part: Part| locks[part.store].as_ref().expect("each store is locked");
    check(ranges)?;
    for part in parts() {
        ranges[part.store].0.compare_run(part, compare)?;
    }
    // Preserve and allocate everything first, so that a full budget leaves every block old.
    for part in parts() {
        ranges[part.store].0.prepare_run(lock_of(part), part)?;
    }
    for part in parts() {
        ranges[part.store].0.write_run(lock_of(part), part, write)?;
    }
    Ok(())
}

fn check(ranges: &[(&Store, ByteRange)]) -> Result<(), Status> {
    let check = |(store, range): &(&Store, ByteRange)| store.check(range.offset, range.len);
    ranges.iter().try_for_each(check)
}

/// Locks the granules of every range. Like [`write_all`](crate::locks::LockTable::write_all), it
/// never waits for a lock while it holds another.
fn lock_all<'a>(ranges: &[(&'a Store, ByteRange)]) -> [Option<WriteAllGuard<'a>>; STORES_MAX] {
    let mut awaited = 0;
    loop {
        let mut locks = array::from_fn(|_| None);
        let (store, range) = ranges[awaited];
        locks[awaited] = Some(store.lock_range(range));
        let failed = (0..ranges.len())
            .filter(|&index| index != awaited)
            .find(|&index| {
                let (store, range) = ranges[index];
                locks[index] = store.try_lock_range(range);
                locks[index].is_none()
            });
        match failed {
            None => return locks,
            Some(index) => awaited = index,
        }
    }
}

#[cfg(test)]
mod tests;
