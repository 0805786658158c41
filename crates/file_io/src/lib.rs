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
//! submission to the reaping of its completion. [`FileIo`] refuses to lend a buffer whose slot is in
//! flight, and its drop waits for every request before the buffers are unmapped. If the engine
//! fails so that this cannot be known, the buffers stay mapped. Slots do not overlap.

mod aligned;
mod file_io;
mod open;
mod request;
mod ring;
mod threads;

#[cfg(test)]
mod tests;

use std::io;

pub use file_io::FileIo;

/// How a file is opened and how much of it can be in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileIoOptions {
    /// How many requests can be in flight.
    pub depth: u16,
    /// Bytes of each slot's buffer: the longest transfer of one request.
    pub buffer_bytes: usize,
    /// What will be done with the file.
    pub access: FileAccess,
    /// Whether the page cache is passed by.
    pub caching: Caching,
    /// What carries the requests; io_uring if that is permitted, otherwise threads, if this is
    /// `None`.
    pub engine: Option<FileEngine>,
}

/// What may be done with a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileAccess {
    /// Read.
    ReadOnly,
    /// Read, write, discard.
    ReadWrite,
}

/// Whether transfers pass by the page cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Caching {
    /// Pass it by (`O_DIRECT`) where the file system can and the transfers are aligned as it wants.
    DirectWherePossible,
    /// Use it.
    Buffered,
}

/// What to do with a range of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileOp {
    /// Read into the slot's buffer.
    Read,
    /// Write from the slot's buffer.
    Write,
    /// Free the range's storage; it reads as zeros (a hole in a file).
    Discard,
    /// Make what was written durable; the range is not looked at.
    Flush,
}

/// A request that has ended. Its slot and buffer are the caller's again.
#[derive(Debug)]
pub struct FileCompletion {
    /// The slot of the request.
    pub slot: u16,
    /// What became of it.
    pub result: Result<(), FileError>,
}

/// Why a request did not succeed.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// The operating system says so.
    #[error("{0}")]
    Os(#[source] io::Error),
    /// Fewer bytes were transferred than asked for (the end of the file?).
    #[error("{done_bytes} of {wanted_bytes} bytes were transferred")]
    Short {
        /// What was transferred.
        done_bytes: usize,
        /// What was asked for.
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
