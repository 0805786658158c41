//! Figures that logs report and that only the program around the core has.

use crate::wire::Nsid;

/// Figures that logs report and that only the program around the core has. Called with the
/// subsystem locked, so it must not take a lock that is held while the subsystem's is waited for.
pub trait Statistics: Send {
    /// What the subsystem's namespaces have served since they were made.
    fn usage(&self) -> Usage;

    /// How many bytes of the namespace's volume have memory behind them.
    fn allocated_bytes(&self, nsid: Nsid) -> u64;
}

/// Totals for the SMART / Health Information log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Bytes that hosts have read.
    pub read_bytes: u64,
    /// Bytes that hosts have written.
    pub written_bytes: u64,
    /// Read commands completed (compare and verify among them).
    pub read_commands: u64,
    /// Write commands completed.
    pub write_commands: u64,
    /// Time in which commands were outstanding, in minutes.
    pub busy_minutes: u64,
    /// Time since the subsystem was made, in hours.
    pub power_on_hours: u64,
    /// Commands that failed for the medium.
    pub media_errors: u64,
    /// Part of the memory budget still free, in per cent.
    pub spare_percent: u8,
}
