//! The file tree in a directory of the host: what a `dir` share serves.
//!
//! [`DirTree`] implements [`file_tree::FileTree`]. It knows no protocol, socket or thread. Its
//! operations wait for the host's file system, so sessions have them executed by threads that may
//! wait ([`file_tree::FileTree::may_wait`]). The path of a byte ends here in the host's page cache.
//!
//! - `tree` — the operations and their locks;
//! - `resolve` — from a path to a descriptor, confined to the directory;
//! - `places` — which directory has which file under which name, as far as that is known;
//! - `search` — from a file's identifier to a descriptor, also if its place is not known, after a
//!   restart for example;
//! - `identity` — the identifier and the attributes of a file;
//! - `system_call` — the file system's own handle of a file, and files that share blocks;
//! - `errors` — errors of the host as errors of a tree.
//!
//! # Confinement
//!
//! Every file is opened from the root's descriptor by a path of names that the tree has found
//! itself, with `openat2`: no `..`, no symbolic link, no other mount. Operations on names use the
//! descriptor of a directory that was opened in this way and one name, and follow no link either.
//! What was opened is used only if it is the file that the identifier names.
//!
//! # Safety
//!
//! Two system calls have no safe interface. `name_to_handle_at`, in `system_call::handle`, writes
//! into a buffer of ours whose length we state, and nothing of it outlives the call. The ioctl
//! FICLONERANGE, in `system_call::clone`, reads a structure of ours and writes no memory.

#![deny(unsafe_code)]

mod errors;
mod identity;
mod places;
mod resolve;
mod search;
#[expect(unsafe_code, reason = "system calls, see the safety argument above")]
mod system_call;
mod tree;

#[cfg(test)]
mod tests;

pub use tree::{DirTree, OpenError};
