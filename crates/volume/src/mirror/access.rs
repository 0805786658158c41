//! How copies and comparisons reach members: piece by piece, at a rate.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use block::{ByteRange, Extent, Op, Persistence, ReadDest, Status, Unmap};

use super::core::{Core, Way};
use crate::{DriveError, Driver, ManagedVolume};

/// What is copied or compared while changes of the same bytes wait.
pub(super) const PIECE_BYTES: u64 = 64 << 10;
/// How long a command may take on a member.
const PATIENCE: Duration = Duration::from_secs(60);

/// How commands of a copy or comparison reach a member.
pub(super) enum Access {
    /// It is memory: commands are executed at once, so that no change waits for a filter of it.
    Direct(Arc<dyn ManagedVolume>),
    /// It may make them wait.
    Driven(Driver),
}

/// Keeps to the rate of the mirror.
pub(super) struct Pace {
    /// When the rate permits the next piece.
    next: Instant,
}

impl Pace {
    pub(super) fn new() -> Self {
        Self {
            next: Instant::now(),
        }
    }

    /// Waits until the rate permits another piece. Returns whether the mirror goes on.
    pub(super) fn wait(&mut self, core: &Core, len_bytes: u64) -> bool {
        let now = Instant::now();
        if self.next > now && !core.standings.pause(self.next) {
            return false;
        }
        let rate = core.resync_rate.load(Ordering::Relaxed);
        self.next = self.next.max(now);
        if let Some(nanos) = len_bytes.saturating_mul(1_000_000_000).checked_div(rate) {
            self.next += Duration::from_nanos(nanos);
        }
        !core.standings.is_closing()
    }
}

/// Whether a volume knows that a range takes nothing, and so reads as zeros.
pub(super) fn is_hole(volume: &dyn ManagedVolume, range: ByteRange) -> bool {
    let first = volume.allocation(range);
    !first.allocated && first.len_bytes >= range.len
}

impl Access {
    pub(super) fn to(core: &Core, member: usize) -> Self {
        let volume = Arc::clone(&core.members.get(member).volume);
        match core.engine.way() {
            Way::Memory(_) => Self::Direct(volume),
            Way::Window(_) => Self::Driven(Driver::new(&core.platform.relay, volume, PATIENCE)),
        }
    }

    pub(super) fn volume(&self) -> &dyn ManagedVolume {
        match self {
            Self::Direct(volume) => &**volume,
            Self::Driven(driver) => &**driver.volume(),
        }
    }

    pub(super) fn read(&mut self, extent: Extent, buffer: &mut [u8]) -> Result<(), Status> {
        match self {
            Self::Direct(volume) => {
                let dest = ReadDest::Copy(buffer);
                volume.execute(Op::Read { extent, dest })
            }
            Self::Driven(driver) => driver.read(extent, buffer).map_err(status_of),
        }
    }

    pub(super) fn write(&mut self, extent: Extent, data: &[u8]) -> Result<(), Status> {
        match self {
            Self::Direct(volume) => volume.execute(Op::Write { extent, data }),
            Self::Driven(driver) => driver
                .write(extent, data, Persistence::Volatile)
                .map_err(status_of),
        }
    }

    pub(super) fn write_zeroes(&mut self, extent: Extent) -> Result<(), Status> {
        let unmap = Unmap::Allowed;
        match self {
            Self::Direct(volume) => volume.execute(Op::WriteZeroes { extent, unmap }),
            Self::Driven(driver) => driver.write_zeroes(extent, unmap).map_err(status_of),
        }
    }

    pub(super) fn flush(&mut self) -> Result<(), Status> {
        match self {
            Self::Direct(_) => Ok(()),
            Self::Driven(driver) => driver.flush().map_err(status_of),
        }
    }
}

/// A member that does not answer is as good as gone, until it answers again.
fn status_of(error: DriveError) -> Status {
    match error {
        DriveError::Status(status) => status,
        DriveError::TimedOut(_) => Status::Gone,
    }
}
