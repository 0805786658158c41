//! The memory budget, its use, and what objects cost.

use memory::Layout;
use net::Reactors;
use volume::Budget;

/// The memory budget, its use, and what objects cost, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capacity {
    /// The budget.
    pub budget_bytes: u64,
    /// What is used: volumes' memory and tables, connections, buffers.
    pub used_bytes: u64,
    /// The number of writes that failed because too little was free.
    pub failed_writes: u64,
    /// The number of connections that were rejected because too little was free, or had not logged
    /// in and made room for others.
    pub rejected_connections: u64,
    /// What one idle connection costs, with a queue of 128 entries.
    pub connection_idle_bytes: u64,
    /// What one connection costs at most: if its host does not read its replies.
    pub connection_max_bytes: u64,
    /// What one empty thin volume costs.
    pub volume_bytes: u64,
    /// The unit in which the memory of a volume is allocated.
    pub slab_bytes: u64,
}

/// What a connection is charged: its memory with the longest possible queue. Measured as the growth
/// of the process over 65 connections with queues of 1,000 entries, 159 KiB each, rounded up.
pub(crate) const CONNECTION_BYTES: u64 = 192 << 10;
/// The same with queues of 32 entries: 21 KiB; each entry takes about 140 bytes more.
const CONNECTION_IDLE_BYTES: u64 = 36 << 10;
/// What a volume is charged besides its memory: its entry, directory and totals, rounded up.
pub(crate) const VOLUME_BYTES: u64 = 8 << 10;
/// What a share is charged besides its files: its entry and totals, rounded up.
pub(crate) const SHARE_BYTES: u64 = 40 << 10;

pub(crate) fn report(budget: &Budget, rejected_connections: u64) -> Capacity {
    Capacity {
        failed_writes: budget.failed_writes(),
        rejected_connections,
        budget_bytes: budget.total_bytes(),
        used_bytes: budget.used_bytes(),
        connection_idle_bytes: CONNECTION_IDLE_BYTES,
        connection_max_bytes: CONNECTION_BYTES + Reactors::UNDRAINED_MAX_BYTES as u64,
        volume_bytes: VOLUME_BYTES,
        slab_bytes: Layout::DEFAULT.slab_bytes(),
    }
}
