//! Files that hold what a volume was at one moment: their format, a writer and a reader.
//!
//! [`write()`] stores a [`Source`] that does not change meanwhile; the file appears under its name
//! when it is complete and on stable storage. [`write_increment`] stores beside it only what has
//! changed. [`Image`] reads a complete file, and [`Chain`] one with its increments; they hand out
//! no byte that does not agree with its checksum. `docs/save-format.md` specifies the format byte
//! by byte.
//!
//! Nothing here is on the path of a byte: a thread of the control plane calls it. What this crate
//! must not know: how a volume keeps its bytes, when saves are made, who may replace them.

#![forbid(unsafe_code)]

mod chain;
mod direct;
mod error;
mod files;
mod format;
mod host_file;
mod host_reader;
mod reader;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
mod writer;

pub use chain::{Chain, IfBroken, Tail};
pub use error::{FileStep, ImageError, LinkFault, WriteError};
pub use files::{Files, HostFiles, ReadAt};
pub use format::{CHUNK_BYTES, Label};
pub use host_reader::HostReader;
pub use reader::{Chunk, ChunkBuffers, Image};
pub use writer::{Increment, Replace, Source, Written, write, write_increment};

#[cfg(test)]
mod tests;
