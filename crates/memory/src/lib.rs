//! The memory of volumes: sparse stores, their locks, and the budget that they share.
//!
//! This crate is the end of the data path: `volume` turns blocks into byte offsets, and a [`Store`]
//! copies bytes into and out of memory, or gives their addresses so that the operating system can
//! send them. It knows no block sizes, protocols, sockets or files.
//!
//! A store reserves address space in *chunks* (1 GiB) when a chunk is first written. It allocates
//! memory in *slabs* (2 MiB), which are charged to the [`Budget`]. It locks *granules* (64 KiB) for
//! readers and writers. See [`Layout`].
//!
//! ```
//! use std::ops::ControlFlow;
//! use std::sync::Arc;
//! use memory::{Budget, Layout, Provision, Store};
//!
//! let budget = Arc::new(Budget::new(64 << 20));
//! let store = Store::new(Arc::clone(&budget), Provision::Thin, Layout::DEFAULT);
//! store.resize(1 << 40, &mut |_| ControlFlow::Continue(()))?; // a terabyte, nothing of it allocated
//! store.write(1 << 39, b"hello").unwrap();
//! assert_eq!(store.allocated_bytes(), 2 << 20);
//! let mut read = [0; 6];
//! store.read((1 << 39) - 1, &mut read).unwrap();
//! assert_eq!(&read, b"\0hello");
//! # Ok::<(), memory::MemoryError>(())
//! ```
//!
//! # Why the unsafe code here is sound
//!
//! Unsafe code is only in `chunk` (mappings and raw copies), in `store` (which calls them) and in
//! `pieces`. A [`Piece`] owns its bytes as a `Box<[u8]>` does, and its region's mapping lives as
//! long as it. For stores, the argument has three parts:
//!
//! 1. **The addresses are valid.** A chunk's mapping is made once and unmapped only when its store
//!    drops, which needs `&mut` and so cannot happen while any operation borrows the store. Each
//!    copy checks its range against the chunk's length. Under strict overcommit a slab is
//!    accessible only while its state is *allocated*; the state changes under the locks of part 2.
//! 2. **There are no data races.** Bytes of a granule are read under its read lock and changed
//!    under its write lock (`locks`). A slab is freed under the write locks of all its granules.
//!    `pin` holds read locks until `unpin`; meanwhile the operating system, or the pinning thread
//!    through raw pointers, reads the bytes, and no thread writes them. Filling a slab's pages in
//!    advance (`MADV_POPULATE_WRITE`) changes no byte.
//! 3. **No reference to volume bytes is ever made.** Bytes move between a mapping and a caller's
//!    buffer by raw copies; what leaves this crate is a `block::RawSpan`. So a span that its holder
//!    keeps too long can show newer bytes of the same store, but not break the language's aliasing
//!    rules; and since a chunk stays mapped as long as the store lives, it cannot show another
//!    volume's bytes.

mod budget;
mod chunk;
mod directory;
mod error;
mod host;
mod layout;
mod locks;
mod pieces;
mod prefetch;
mod slabs;
mod store;

pub use budget::{Budget, Charge};
pub use error::MemoryError;
pub use host::{HostMemory, Overcommit, PagePolicy, huge_bytes_in_use};
pub use layout::Layout;
pub use pieces::{Piece, Region};
pub use prefetch::{prefetch_line, prefetch_value};
pub use store::{
    NoSuchProvision, Part, Progress, Provision, STORES_MAX, Snapshot, Store, Tracker,
    compare_and_write_across,
};
