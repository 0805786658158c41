//! What a queue is asked to do, and what it answers.

use block::{Extent, Unmap};
use nvme::wire::Status;
use scsi::host::CommandFailure;

/// One of a queue's places for a command in flight, with a buffer of its own: from 0 to the queue's
/// depth less one. A slot takes its next request when its last one has completed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Slot(pub u16);

/// What to do with the blocks of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Read into the slot's buffer.
    Read,
    /// Write from the slot's buffer.
    Write,
    /// Make what was acknowledged durable; the extent is not looked at.
    Flush,
    /// Make the blocks read as zeros.
    WriteZeroes(Unmap),
    /// Give the blocks' memory back (dataset management, deallocate).
    Deallocate,
    /// Check that the blocks can be read.
    Verify,
    /// Compare the blocks with the slot's buffer.
    Compare,
    /// Compare the blocks with the first half of the slot's data and, where equal, write the second
    /// half: the buffer holds twice the extent's bytes. Fused compare and write; never resubmitted
    /// after a lost connection, since its outcome is unknown then.
    CompareAndWrite,
}

/// A command to submit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// The slot that carries it; its buffer's first bytes are the command's data.
    pub slot: Slot,
    /// What to do.
    pub operation: Operation,
    /// The blocks, in the namespace's block size.
    pub extent: Extent,
}

/// A command that has ended. Its slot and buffer are the caller's again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completion {
    /// The slot of the request.
    pub slot: Slot,
    /// What became of it.
    pub result: Result<(), CommandError>,
}

/// Why a command did not succeed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CommandError {
    /// The controller says so.
    #[error("{0}")]
    Status(Status),
    /// The target says so.
    #[error("{0}")]
    Scsi(CommandFailure),
    /// The connection was lost while the command was in flight; whether it was executed is unknown.
    #[error("the connection was lost while the command was in flight")]
    ConnectionLost,
    /// There was no connection to submit the command on; it was not executed.
    #[error("no connection was available for the command")]
    NotSubmitted,
}
