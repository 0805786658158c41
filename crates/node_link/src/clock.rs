//! The clock of the replication protocol.

use std::time::Duration;

use replica::LocalTime;
use rustix::time::{ClockId, clock_gettime};

/// The time of this machine, which goes on while the machine is suspended.
pub(crate) fn now() -> LocalTime {
    let time = clock_gettime(ClockId::Boottime);
    let secs = u64::try_from(time.tv_sec).unwrap_or(0);
    let ns = u32::try_from(time.tv_nsec).unwrap_or(0);
    LocalTime(Duration::new(secs, ns))
}
