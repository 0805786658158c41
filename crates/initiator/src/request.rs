//! Requests to a queue, and their completions.

use block::{Extent, Unmap};
use brp::wire::Status as BrpStatus;
use nvme::wire::Status;
use scsi::host::CommandFailure;

/// An entry of a queue for a command in flight, with a buffer of its own: from 0 to the queue's
/// depth minus one. A slot accepts the next request when its last one has completed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Slot(pub u16);

/// What to do with the blocks of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Read into the slot's buffer.
    Read,
    /// Write from the slot's buffer.
    Write,
    /// Write from the slot's buffer onto stable storage (FUA).
    WriteDurable,
    /// Make acknowledged writes durable; the extent is ignored.
    Flush,
    /// Make the blocks read as zeros.
    WriteZeroes(Unmap),
    /// Free the blocks' memory (dataset management, deallocate).
    Deallocate,
    /// Check that the blocks can be read.
    Verify,
    /// Compare the blocks with the slot's buffer.
    Compare,
    /// Compare the blocks with the first half of the slot's data and, if equal, write the second
    /// half: the buffer holds twice the extent's bytes. Fused compare and write. Resubmitted after
    /// a lost connection only with BRP, whose target knows whether it was executed.
    CompareAndWrite,
}

/// A command to submit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// The slot that carries it; its buffer's first bytes are the command's data.
    pub slot: Slot,
    /// The operation.
    pub operation: Operation,
    /// The blocks, in the namespace's block size.
    pub extent: Extent,
}

/// A command that has ended. Its slot and buffer are the caller's again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completion {
    /// The slot of the request.
    pub slot: Slot,
    /// The result.
    pub result: Result<(), CommandError>,
}

/// Why a command did not succeed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CommandError {
    /// The controller returned this status.
    #[error("{0}")]
    Status(Status),
    /// The target reported this failure.
    #[error("{0}")]
    Scsi(CommandFailure),
    /// The target returned this status over BRP.
    #[error("{0}")]
    Brp(BrpStatus),
    /// The connection was lost while the command was in flight; whether it was executed is unknown.
    #[error("the connection was lost while the command was in flight")]
    ConnectionLost,
    /// There was no connection to submit the command on; it was not executed.
    #[error("no connection was available for the command")]
    NotSubmitted,
}
