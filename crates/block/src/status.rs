//! The result of operations on volumes.

/// Why an operation failed. Each protocol has a code of its own for each variant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Status {
    /// A block is beyond the end of the volume.
    #[error("the extent reaches beyond the end of the volume")]
    LbaOutOfRange,
    /// The volume is locked against writes.
    #[error("the volume is locked read-only")]
    WriteProtected,
    /// The memory budget has no room for another slab, or the disk below has no space left.
    #[error(
        "no space is left: free space, raise --memory, or enlarge the file system of the volume's file"
    )]
    CapacityExceeded,
    /// Compare found the first different byte at this offset from the start of the extent.
    #[error("the data differ from byte {offset_bytes} of the extent on")]
    Miscompare {
        /// Bytes from the start of the extent.
        offset_bytes: u64,
    },
    /// Reading failed (a fault filter; slower volumes).
    #[error("unrecovered read error")]
    ReadError,
    /// Writing failed (a fault filter; slower volumes).
    #[error("write fault")]
    WriteError,
    /// The volume cannot execute commands at the moment.
    #[error("the volume is busy; try again")]
    Busy,
    /// The volume's contents were lost, and the loss has not been acknowledged; or its file could
    /// not be opened, or is gone.
    #[error("the volume is offline because its contents were lost or its file is missing")]
    NotReady,
    /// The volume was removed.
    #[error("the volume was removed")]
    Gone,
    /// The data length does not match the extent, or the volume does not support the operation.
    #[error("the operation is not valid for this volume")]
    Invalid,
}
