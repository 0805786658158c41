//! Memory in equal pieces, each of which has one owner: the frames of windows. It is in huge pages
//! if the host has them: with ordinary pages, a random access to a large cache also waits for
//! entries of the page tables.

use std::ops::{Deref, DerefMut, Range};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::mm::Advice;

use crate::chunk::{HUGE_PAGE_BYTES, advise, map_aligned};
use crate::prefetch::prefetch_at;
use crate::{MemoryError, Overcommit, PagePolicy};

/// Pieces start at multiples of this, so that each can be given back to the host.
const PAGE_BYTES: usize = 4096;

/// A piece of memory. It is zeros until its owner writes to it, and takes no memory of the host
/// before.
#[derive(Debug)]
pub struct Piece {
    /// As many bytes of the region's mapping as it says, which no other piece has.
    start: NonNull<u8>,
    region: Arc<Region>,
}

/// What pieces are made of: the address of each is known from its number.
#[derive(Debug)]
pub struct Region {
    /// Start of a mapping of `len` bytes, valid until the region drops.
    base: NonNull<u8>,
    len: usize,
    /// Bytes from the start of a piece to that of the next one.
    stride: usize,
    piece_bytes: usize,
    /// The host may use huge pages for it.
    is_huge: AtomicBool,
}

// SAFETY: the mapping is private to this value and its pieces; no thread-local state is behind it.
unsafe impl Send for Region {}
// SAFETY: through `&Region` no byte is reached: a prefetch reads nothing that the program sees.
unsafe impl Sync for Region {}
// SAFETY: a piece is the only one that reaches its bytes, as a `Box<[u8]>` is.
unsafe impl Send for Piece {}
// SAFETY: as above; `&Piece` only reads.
unsafe impl Sync for Piece {}

impl Region {
    /// Reserves address space for `count` pieces of `piece_bytes` each. No memory is allocated yet,
    /// and the budget is not charged.
    ///
    /// # Errors
    /// If the host has no address space left, or counts reserved memory and has none left.
    pub fn reserve(
        count: usize,
        piece_bytes: usize,
        pages: PagePolicy,
    ) -> Result<(Arc<Self>, Vec<Piece>), MemoryError> {
        let stride = piece_bytes.next_multiple_of(PAGE_BYTES);
        let len = stride * count;
        let is_huge = pages == PagePolicy::TransparentHuge && len >= HUGE_PAGE_BYTES as usize;
        let (align, pages) = if is_huge {
            (HUGE_PAGE_BYTES as usize, Advice::LinuxHugepage)
        } else {
            (PAGE_BYTES, Advice::LinuxNoHugepage)
        };
        let base = map_aligned(len, align, Overcommit::Allowed).map_err(MemoryError::Host)?;
        // SAFETY: the range is the mapping just made.
        unsafe { advise(base.as_ptr().cast(), len, pages) };
        let region = Arc::new(Self {
            base,
            len,
            stride,
            piece_bytes,
            is_huge: AtomicBool::new(is_huge),
        });
        let piece = |number| Piece {
            start: region.at(number),
            region: Arc::clone(&region),
        };
        let pieces = (0..count).map(piece).collect();
        Ok((region, pieces))
    }

    /// Asks the processor to bring the first bytes of a range of a piece into its cache. Changes
    /// nothing.
    pub fn prefetch(&self, piece: usize, range: Range<usize>) {
        assert!(range.end <= self.piece_bytes, "the range is in the piece");
        prefetch_at(
            self.at(piece).as_ptr().wrapping_add(range.start),
            range.len(),
        );
    }

    /// Has the host make no more huge pages: it would make one of what is left around a piece that
    /// was given back, and so take the piece's memory again.
    fn end_huge_pages(&self) {
        if self.is_huge.swap(false, Ordering::Relaxed) {
            let (start, len) = (self.base.as_ptr().cast(), self.len);
            // SAFETY: the range is the mapping, and the advice changes no contents.
            let _refused = unsafe { rustix::mm::madvise(start, len, Advice::LinuxNoHugepage) };
        }
    }

    /// Where a piece starts.
    fn at(&self, piece: usize) -> NonNull<u8> {
        let offset = piece * self.stride;
        assert!(offset < self.len, "the region has so many pieces");
        // SAFETY: the offset is inside the mapping.
        unsafe { self.base.add(offset) }
    }
}

impl Piece {
    /// Gives the memory back to the host. The piece is zeros again, unless the host refuses because
    /// its pages are locked in memory: then it keeps its contents.
    pub fn give_back(&mut self) {
        self.region.end_huge_pages();
        // SAFETY: the range is whole pages of the mapping, which this piece alone uses: the stride
        // is.
        let _refused = unsafe {
            let start = self.start.as_ptr().cast();
            rustix::mm::madvise(start, self.region.stride, Advice::LinuxDontNeed)
        };
    }
}

impl Deref for Piece {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: the mapping lives as long as the region, which this piece keeps; all its bytes
        // are initialized, as zeros; and only `&mut self` changes them.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.region.piece_bytes) }
    }
}

impl DerefMut for Piece {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above; and no other piece has these bytes.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.region.piece_bytes) }
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, and no piece is left: each keeps the region. Unmapping a
        // whole mapping of our own does not fail.
        let _ = unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), self.len) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_do_not_overlap_and_are_zeros_again_when_given_back() {
        for (piece_bytes, pages) in [
            (512, PagePolicy::Ordinary),
            (4096, PagePolicy::TransparentHuge),
            (64 << 10, PagePolicy::TransparentHuge),
        ] {
            let reserved = Region::reserve(600, piece_bytes, pages).expect("address space is left");
            let (region, mut pieces) = reserved;
            for (number, piece) in pieces.iter_mut().enumerate() {
                assert_eq!(piece.len(), piece_bytes);
                assert!(piece.iter().all(|&byte| byte == 0));
                piece.fill(number as u8);
                region.prefetch(number, 0..piece_bytes);
            }
            pieces[300].give_back();
            drop(region);
            for (number, piece) in pieces.iter().enumerate() {
                let expected = if number == 300 { 0 } else { number as u8 };
                assert!(piece.iter().all(|&byte| byte == expected), "{number}");
            }
        }
    }

    #[test]
    #[should_panic(expected = "the range is in the piece")]
    fn a_range_beyond_a_piece_is_not_prefetched() {
        let (region, _pieces) = Region::reserve(2, 4096, PagePolicy::Ordinary).expect("fits");
        region.prefetch(0, 0..4097);
    }
}
