//! Pages that no file has any more and whose memory is not free yet.
//!
//! Freeing the memory of a large file takes long: a system call per slab. So the operation that
//! removes or cuts the file only puts its pages here, and they are freed in pieces: by a thread of
//! the program, which is notified, or by an operation that needs memory.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use crate::extents::Extents;
use crate::pages::{PAGE_BYTES, Pages};
use crate::usage::Usage;

/// Notifies a thread that [`RamTree::free_piece`](crate::RamTree::free_piece) has something to do.
/// It must not block: it is called while a file is locked.
pub type Notify = Arc<dyn Fn() + Send + Sync>;

/// The most pages that are freed at a time: 4 MiB, in 16 slabs if they are in one piece.
const PIECE_PAGES: u64 = 1024;
/// The most pages that are freed by the operation that removes them: 16 MiB.
pub(crate) const DIRECT_PAGES: u64 = 4096;

/// The pages.
#[derive(Default)]
pub(crate) struct Garbage {
    files: Mutex<Vec<Cut>>,
    notify: OnceLock<Notify>,
}

/// Pages of one file.
#[derive(Debug)]
struct Cut {
    extents: Extents,
    /// What their map is still charged, in bytes.
    map_bytes: u64,
}

impl Garbage {
    pub(crate) fn set_notify(&self, notify: Notify) {
        // Whoever came first is notified.
        let _ = self.notify.set(notify);
    }

    /// Takes pages that a file had.
    pub(crate) fn add(&self, extents: Extents, map_bytes: u64) {
        self.files().push(Cut { extents, map_bytes });
        if let Some(notify) = self.notify.get() {
            notify();
        }
    }

    /// The memory of the pages.
    pub(crate) fn bytes(&self) -> u64 {
        let pages: u64 = self.files().iter().map(|cut| cut.extents.pages()).sum();
        pages * PAGE_BYTES
    }

    /// Frees up to [`PIECE_PAGES`] pages. Returns whether there were any.
    pub(crate) fn free_piece(&self, pages: &Pages, usage: &Usage) -> bool {
        // Locked meanwhile, so that nobody finds all memory used while a piece is being freed.
        let mut files = self.files();
        let Some(Cut { extents, map_bytes }) = files.last_mut() else {
            return false;
        };
        let mut left = PIECE_PAGES;
        while left > 0
            && let Some(run) = extents.take_first(left)
        {
            pages.free_run(run);
            left -= run.count;
        }
        if extents.pages() == 0 {
            usage.refund_metadata(*map_bytes);
            files.pop();
        }
        true
    }

    fn files(&self) -> MutexGuard<'_, Vec<Cut>> {
        // Nothing panics between two changes that belong together.
        self.files.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Garbage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Garbage")
            .field("bytes", &self.bytes())
            .finish_non_exhaustive()
    }
}
