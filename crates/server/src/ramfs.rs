//! Stands in for crate `ramfs` until it exists.
#![expect(missing_docs, dead_code, reason = "it goes with crate ramfs")]
use file_tree::{FileError, FileTree, Timestamp};
use std::sync::Arc;
pub(crate) struct Quota {
    pub(crate) bytes: Option<u64>,
    pub(crate) files: u64,
}
pub(crate) struct RamTree(Arc<dyn FileTree>);
impl RamTree {
    pub(crate) fn new(
        _: Arc<volume::Budget>,
        _: Quota,
        _: Arc<dyn Fn() -> Timestamp + Send + Sync>,
    ) -> Result<Self, FileError> {
        Err(FileError::NoSpace)
    }
    pub(crate) fn set_quota(&self, _: Quota) {}
    pub(crate) fn close(&self) {}
    pub(crate) fn used_bytes(&self) -> u64 {
        0
    }
}
impl RamTree {
    pub(crate) fn as_tree(&self) -> Arc<dyn FileTree> {
        Arc::clone(&self.0)
    }
}
