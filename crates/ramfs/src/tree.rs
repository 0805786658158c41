//! The tree: locks, and the operations of the waist.

mod content;
mod extended;
mod operations;
mod ranges;

use std::fmt;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use file_tree::{FileError, FileId, Timestamp, TreeSpace};
use memory::{Budget, Charge, MemoryError};

use crate::Quota;
use crate::data::Space;
use crate::garbage::{Garbage, Notify};
use crate::inode::Inode;
use crate::limits::LINKS_MAX;
use crate::namespace::Namespace;
use crate::pages::Pages;
use crate::usage::Usage;

/// What a tree takes while it is empty, in bytes, beside its root directory.
const TREE_BYTES: u64 = 4096 + Pages::LOCK_BYTES;

/// Gives the present time.
pub type Clock = Arc<dyn Fn() -> Timestamp + Send + Sync>;

/// A file tree in memory. See the crate's documentation.
pub struct RamTree {
    namespace: RwLock<Namespace>,
    space: Space,
    budget: Arc<Budget>,
    root: FileId,
    clock: Clock,
    _tree_charge: Charge,
}

impl RamTree {
    /// A tree with an empty root directory, which root owns and all may read.
    ///
    /// # Errors
    /// If the budget has no room for it, or the quota is below one file or the bytes that it takes.
    pub fn new(budget: Arc<Budget>, quota: Quota, clock: Clock) -> Result<Self, MemoryError> {
        Self::with_links_max(budget, quota, clock, LINKS_MAX)
    }

    pub(crate) fn with_links_max(
        budget: Arc<Budget>,
        quota: Quota,
        clock: Clock,
        links_max: u32,
    ) -> Result<Self, MemoryError> {
        let tree_charge = budget.reserve(TREE_BYTES)?;
        let pages = Pages::new(Arc::clone(&budget))?;
        let usage = Usage::new(Arc::clone(&budget), Quota::UNLIMITED);
        let namespace = Namespace::new(&usage, clock(), links_max).map_err(|_no_space| {
            MemoryError::OverBudget {
                wanted_bytes: TREE_BYTES,
                free_bytes: budget.free_bytes(),
                total_bytes: budget.total_bytes(),
            }
        })?;
        usage.set_quota(quota);
        let root = namespace.root();
        Ok(Self {
            namespace: RwLock::new(namespace),
            space: Space {
                pages,
                usage,
                garbage: Garbage::default(),
            },
            budget,
            root,
            clock,
            _tree_charge: tree_charge,
        })
    }

    /// The quota.
    pub fn quota(&self) -> Quota {
        self.space.usage.quota()
    }

    /// Changes the quota. What is used stays used, even beyond a lower quota.
    pub fn set_quota(&self, quota: Quota) {
        self.space.usage.set_quota(quota);
    }

    /// Calls `notify` from now on when a large file was removed or cut off, so that a thread frees
    /// its memory by [`free_piece`](Self::free_piece). Without it the memory is freed when the tree
    /// needs some. The first notifier stays.
    pub fn set_notify(&self, notify: Notify) {
        self.space.garbage.set_notify(notify);
    }

    /// Frees some memory of large files that were removed or cut off: in well under a millisecond
    /// if it was in large pieces. Returns whether there was any.
    pub fn free_piece(&self) -> bool {
        self.space.free_piece()
    }

    /// The bytes that files take of the quota: pages of data, and what names, attributes and maps
    /// of pages are charged.
    pub fn used_bytes(&self) -> u64 {
        self.space.usage.used_bytes()
    }

    /// The number of files, with the root directory.
    pub fn files(&self) -> u64 {
        self.space.usage.files()
    }

    /// Removes everything for good and frees all memory, even while others still refer to the tree.
    /// Every identifier is stale afterwards.
    pub fn close(&self) {
        let mut files = self.namespace_mut().take();
        while let Some(inode) = files.remove_any(&self.space.usage) {
            self.free_data(&inode);
        }
        while self.free_piece() {}
        self.space.pages.close();
    }
}

impl RamTree {
    fn now(&self) -> Timestamp {
        (self.clock)()
    }

    fn namespace(&self) -> RwLockReadGuard<'_, Namespace> {
        self.namespace
            .read()
            .unwrap_or_else(PoisonError::into_inner)
    }

    fn namespace_mut(&self) -> RwLockWriteGuard<'_, Namespace> {
        self.namespace
            .write()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// The file of an identifier. The namespace is not locked any more.
    fn inode(&self, id: FileId) -> Result<Arc<Inode>, FileError> {
        self.namespace().inode(id).map(Arc::clone)
    }

    /// Frees what a file holds whose last name was removed. The namespace is not locked.
    fn free_data(&self, inode: &Inode) {
        inode.data_mut().remove(&self.space);
        inode.xattrs().remove_all(&self.space.usage);
    }

    fn tree_space(&self) -> TreeSpace {
        let usage = &self.space.usage;
        let used_bytes = usage.used_bytes();
        let unused_bytes = self.space.pages.spare_bytes() + self.space.garbage.bytes();
        let memory_bytes = self.budget.free_bytes() + unused_bytes;
        let free_bytes = usage.quota_free_bytes().min(memory_bytes);
        let files = usage.files();
        let total_files = usage.quota().files;
        TreeSpace {
            total_bytes: used_bytes.saturating_add(free_bytes),
            free_bytes,
            total_files: total_files.max(files),
            free_files: total_files.saturating_sub(files),
        }
    }
}

impl Drop for RamTree {
    fn drop(&mut self) {
        self.close();
    }
}

impl fmt::Debug for RamTree {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RamTree")
            .field("usage", &self.space.usage)
            .finish_non_exhaustive()
    }
}
