//! The waist between file protocols and file trees.
//!
//! A protocol core (NFS) converts a peer's calls into operations on a [`FileTree`], and the
//! resulting [`FileError`] into its own status codes. A tree knows no protocol; a protocol knows
//! no kind of tree; neither knows sockets, threads or clocks. This crate has their interface:
//!
//! - [`FileId`], [`Name`] — what names a file;
//! - [`Attributes`], [`AttributeChanges`], [`Timestamp`] — what is known about a file;
//! - [`XattrName`] — what names an extended attribute;
//! - [`Caller`] — on whose behalf an operation is done;
//! - [`FileTree`] — the operations;
//! - [`permission`] — who may do what, the same for all kinds of trees.

#![forbid(unsafe_code)]

mod attributes;
mod caller;
mod error;
mod extended;
mod id;
mod name;
pub mod permission;
mod tree;

pub use attributes::{
    AttributeChanges, Attributes, BeforeChange, DeviceNumber, FileKind, Mode, TimeChange, Timestamp,
};
pub use caller::{Access, Caller};
pub use error::FileError;
pub use extended::{XATTR_BYTES_MAX, XattrMode, XattrName, XattrNameFault};
pub use id::FileId;
pub use name::{Name, NameFault};
pub use tree::{
    Changed, Cookie, Created, DirectoryEntry, DirectoryPage, ExclusiveVerifier, FileTree, Listing,
    NewFile, ReadDone, SeekDone, SeekTarget, TreeLimits, TreeSpace, WriteDone,
};
