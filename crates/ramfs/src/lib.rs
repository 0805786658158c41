//! The file tree in memory: what a `ramfs` share serves.
//!
//! [`RamTree`] implements [`file_tree::FileTree`]. It knows no protocol, socket or thread, and no
//! clock but the one that it is given. The path of a byte ends here in a sparse [`memory::Store`],
//! one per tree:
//!
//! - `tree` — the operations and their locks;
//! - `namespace`, `directory`, `table` — names, and files by number;
//! - `inode` — one file: attributes and data;
//! - `data`, `extents` — which pages hold a file's bytes;
//! - `pages` — which pages of the store are free;
//! - `garbage` — pages of removed files whose memory is not free yet;
//! - `xattrs` — the extended attributes of a file;
//! - `usage` — the quota and the budget.
//!
//! # Locks
//!
//! In this order, each optional: the namespace, or the data or the extended attributes of one file;
//! then the attributes of one file; then the garbage; then the free pages; then the store's own.
//! The namespace and the data of a file are never locked by one thread at once, and neither are the
//! attributes of two files. The data of two files are locked by a clone alone, those of the file
//! with the lower number first. So no two threads wait for each other.
//!
//! Reads, and writes to pages that exist, hold the data's lock shared: they exclude each other
//! granule by granule, in the store. A write that grows a file or fills a hole, a truncation and a
//! hole hold it alone.

#![forbid(unsafe_code)]

mod data;
mod directory;
mod extents;
mod garbage;
mod inode;
mod limits;
mod namespace;
mod pages;
mod table;
mod tree;
mod usage;
mod xattrs;

#[cfg(test)]
mod tests;

pub use garbage::Notify;
pub use tree::{Clock, RamTree};

/// How much a tree may hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quota {
    /// The most bytes of data, names, attributes and maps. Without it only the budget limits them.
    pub bytes: Option<u64>,
    /// The most files of any kind, with the root directory.
    pub files: u64,
}

impl Quota {
    /// Only the budget limits the tree.
    pub const UNLIMITED: Self = Self {
        bytes: None,
        files: u64::MAX,
    };
}
