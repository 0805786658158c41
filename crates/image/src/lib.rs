//! Files that hold what a volume was at one moment: their format, a writer and a reader.
//!
//! [`write()`] stores a [`Source`] that does not change meanwhile; the file appears under its name
//! when it is complete and on stable storage. [`Image`] reads a file, and hands out no byte that
//! does not agree with its checksum. `docs/save-format.md` specifies the format byte by byte.
//!
//! Nothing here is on the path of a byte: a thread of the control plane calls it. What this crate
//! must not know: how a volume keeps its bytes, when saves are made, who may replace them.

#![forbid(unsafe_code)]

mod error;
mod files;
mod format;
mod reader;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
mod writer;

pub use error::{FileStep, ImageError, WriteError};
pub use files::{Files, HostFiles, ReadAt};
pub use format::{CHUNK_BYTES, Label};
pub use reader::{Chunk, ChunkBuffers, Image};
pub use writer::{Replace, Source, Written, write};

#[cfg(test)]
mod tests;
