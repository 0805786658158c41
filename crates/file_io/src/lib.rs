//! Queues of requests on files and block devices.
//!
//! [`FileIo`] is one queue, for one thread: requests go out on numbered slots with buffers of their
//! own, and completions are polled or waited for. io_uring carries the requests (registered buffers
//! and file) where the system permits it, threads elsewhere. What is in flight is bounded by the
//! number of slots.
//!
//! What this crate must not know: volumes, protocols, what the bytes mean.
//!
//! # Why the unsafe code here is sound
//!
//! Memory safety rests on one rule: a slot's buffer is the engine's (the kernel's, a thread's) from
//! submission to the reaping of its completion. [`FileIo`] does not give access to a buffer whose
//! slot is in flight, and its drop waits for every request before the buffers are unmapped. If the
//! engine fails so that outstanding requests are unknown, the buffers stay mapped. Slots do not
//! overlap.

mod aligned;
mod disk;
mod event;
mod file_io;
mod open;
mod request;
mod ring;
mod threads;

#[cfg(test)]
mod tests;

use std::io;

pub use disk::{HostDisk, HostDiskError, NewFile};
pub use event::Event;
pub use file_io::{FileIo, Waker};

/// How a file is opened and how much of it can be in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileIoOptions {
    /// How many requests can be in flight.
    pub depth: u16,
    /// Bytes of each slot's buffer: the longest transfer of one request.
    pub buffer_bytes: usize,
    /// How the file will be accessed.
    pub access: FileAccess,
    /// Whether transfers bypass the page cache.
    pub caching: Caching,
    /// What carries the requests; io_uring if that is permitted, otherwise threads, if this is
    /// `None`.
    pub engine: Option<FileEngine>,
}

/// How a file may be accessed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileAccess {
    /// Read.
    ReadOnly,
    /// Read, write, discard.
    ReadWrite,
}

/// Whether transfers bypass the page cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Caching {
    /// Bypass it (`O_DIRECT`) if the file system supports that, with the alignment that it
    /// requires.
    DirectWherePossible,
    /// Use the page cache.
    Buffered,
}

/// What to do with a range of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileOp {
    /// Read into the slot's buffer.
    Read,
    /// Write from the slot's buffer.
    Write,
    /// The same, and put the bytes on stable storage (`RWF_DSYNC`).
    WriteDurable,
    /// Free the range's storage; it reads as zeros (a hole in a file).
    Discard,
    /// Make the range read as zeros, without writing them if the file system or device can do that.
    WriteZeroes,
    /// Make completed writes durable; the range is ignored.
    Flush,
}

impl FileOp {
    /// Whether bytes of the slot's buffer move.
    pub(crate) const fn has_data(self) -> bool {
        matches!(self, Self::Read | Self::Write | Self::WriteDurable)
    }
}

/// A request that has ended. Its slot and buffer are the caller's again.
#[derive(Debug)]
pub struct FileCompletion {
    /// The slot of the request.
    pub slot: u16,
    /// The result.
    pub result: Result<(), FileError>,
}

/// Why a request did not succeed.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// The operating system reported an error.
    #[error("{0}")]
    Os(#[source] io::Error),
    /// Fewer bytes were transferred than requested (the end of the file?).
    #[error("{done_bytes} of {wanted_bytes} bytes were transferred")]
    Short {
        /// The bytes that were transferred.
        done_bytes: usize,
        /// The bytes that were requested.
        wanted_bytes: usize,
    },
}

/// What carries the requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileEngine {
    /// io_uring.
    IoUring,
    /// Threads that call `pread` and `pwrite`, up to [`THREADS_MAX`](FileIo::THREADS_MAX) per
    /// queue.
    Threads,
}
