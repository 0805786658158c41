//! Why memory is not there.

/// Why an allocation failed.
#[derive(Debug, thiserror::Error)]
pub enum MemoryError {
    /// The budget has no room.
    #[error(
        "{wanted_bytes} bytes are needed, but only {free_bytes} of {total_bytes} bytes of the memory budget are free; \
         remove or shrink volumes, or raise --memory"
    )]
    OverBudget {
        /// The requested bytes.
        wanted_bytes: u64,
        /// The free bytes.
        free_bytes: u64,
        /// The limit in bytes.
        total_bytes: u64,
    },
    /// The host refused memory or address space.
    #[error(
        "the system refused to allocate memory: {0}; check vm.overcommit_memory, vm.max_map_count and ulimit -v"
    )]
    Host(#[source] std::io::Error),
    /// A store cannot be this long.
    #[error("{wanted_bytes} bytes are too many; a volume has at most {max_bytes} bytes")]
    TooLong {
        /// The requested bytes.
        wanted_bytes: u64,
        /// The longest store in bytes.
        max_bytes: u64,
    },
    /// The store was closed.
    #[error("the volume was removed")]
    Closed,
    /// The store has the most snapshots.
    #[error("the volume has {max} snapshots, the most possible; remove one first")]
    TooManySnapshots {
        /// The limit.
        max: usize,
    },
    /// A clone of a clone of …
    #[error(
        "the snapshot lies {max} snapshots deep, the most possible; copy it into a volume of its own instead"
    )]
    TooDeep {
        /// The limit.
        max: usize,
    },
    /// The progress callback cancelled the allocation.
    #[error("allocation was cancelled")]
    Cancelled,
}
