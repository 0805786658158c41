//! The thread of a mirror: it copies to each member what that missed, and tries absent members again.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use block::{Blocks, ByteRange, Extent, Lba, Op, Persistence, ReadDest, Status, Unmap};

use super::core::{Core, Engine};
use super::standing::Missing;
use crate::members::bits;
use crate::{DriveError, Driver, ManagedVolume};

/// What is copied while changes of the same bytes wait.
const PIECE_BYTES: u64 = 64 << 10;
/// How long a command of a copy may take on a member.
const PATIENCE: Duration = Duration::from_secs(60);

/// Runs until the mirror closes.
pub(super) fn run(core: &Core) {
    let mut copier = Copier {
        core,
        buffer: vec![0; PIECE_BYTES as usize],
        next_piece: Instant::now(),
    };
    loop {
        let now = Instant::now();
        let work = core.standings.work(now);
        for member in bits(work.due) {
            let volume = core.volume(member);
            if volume.is_ready() && !volume.is_read_only() {
                core.standings.begin_return(member);
            } else {
                core.standings.postpone(member, now);
            }
        }
        for member in bits(work.resyncing) {
            copier.resync(member);
        }
        if work.resyncing | work.due == 0 && !core.standings.wait(&work) {
            return;
        }
        if core.standings.is_closing() {
            return;
        }
    }
}

struct Copier<'a> {
    core: &'a Core,
    buffer: Vec<u8>,
    /// When the rate permits the next piece.
    next_piece: Instant,
}

/// The copy cannot go on; what that means for the member is noted.
struct Stopped;

/// How commands of a copy reach a member.
enum Access {
    /// It is memory: commands are executed at once, so that no change waits for a filter of it.
    Direct(Arc<dyn ManagedVolume>),
    /// It may make them wait.
    Driven(Driver),
}

impl Copier<'_> {
    /// Copies what a member misses, until it misses nothing and is in sync, or fails.
    fn resync(&mut self, member: usize) {
        let standings = &self.core.standings;
        let mut dest = Access::to(self.core, member);
        loop {
            let mut from = 0;
            while let Some(missing) = standings.next_missing(member, from) {
                if self.copy_region(member, &mut dest, missing).is_err() {
                    return;
                }
                standings.copied(member, missing);
                from = missing.region + 1;
            }
            if from > 0 {
                // Something may have been missed again meanwhile.
                continue;
            }
            match dest.flush() {
                Ok(()) => standings.finish(member),
                Err(status) => {
                    standings.fail(member, status, None);
                }
            }
            if standings.next_missing(member, 0).is_none() {
                return;
            }
        }
    }

    fn copy_region(
        &mut self,
        member: usize,
        dest: &mut Access,
        missing: Missing,
    ) -> Result<(), Stopped> {
        let range = missing.range;
        if self.is_unused(member, range) {
            return Ok(());
        }
        let mut done = 0;
        while done < range.len {
            let piece = ByteRange {
                offset: range.offset + done,
                len: PIECE_BYTES.min(range.len - done),
            };
            self.pace(piece.len)?;
            self.core
                .exclude(piece, || self.copy_piece(member, dest, piece))?;
            done += piece.len;
        }
        Ok(())
    }

    /// Whether neither a good copy nor the member holds anything in a range.
    fn is_unused(&self, member: usize, range: ByteRange) -> bool {
        let source = bits(self.core.standings.in_sync()).next();
        self.core.exclude(range, || {
            source.is_some_and(|source| is_hole(self.core.volume(source), range))
                && is_hole(self.core.volume(member), range)
        })
    }

    fn copy_piece(
        &mut self,
        member: usize,
        dest: &mut Access,
        piece: ByteRange,
    ) -> Result<(), Stopped> {
        let is_zero = self.read_piece(member, piece)?;
        let written = if is_zero && is_hole(dest.volume(), piece) {
            Ok(())
        } else if is_zero {
            dest.write_zeroes(self.extent(piece))
        } else {
            dest.write(self.extent(piece), &self.buffer[..piece.len as usize])
        };
        self.core
            .copied_bytes
            .fetch_add(piece.len, Ordering::Relaxed);
        written.map_err(|status| {
            self.core.standings.fail(member, status, Some(piece));
            Stopped
        })
    }

    /// Reads a piece of a good copy. Returns whether it is all zeros.
    fn read_piece(&mut self, member: usize, piece: ByteRange) -> Result<bool, Stopped> {
        let standings = &self.core.standings;
        let mut tried = 0;
        while let Some(source) = bits(standings.in_sync() & !tried).next() {
            tried |= 1 << source;
            if is_hole(self.core.volume(source), piece) {
                return Ok(true);
            }
            let extent = self.extent(piece);
            let buffer = &mut self.buffer[..piece.len as usize];
            match Access::to(self.core, source).read(extent, buffer) {
                Ok(()) => return Ok(buffer.iter().all(|byte| *byte == 0)),
                Err(status) => standings.fail(source, status, Some(piece)),
            };
        }
        // No copy can be read here: the member is tried again later.
        standings.fail(member, Status::ReadError, None);
        Err(Stopped)
    }

    /// Waits until the rate permits another piece.
    fn pace(&mut self, len_bytes: u64) -> Result<(), Stopped> {
        let rate = self.core.resync_rate.load(Ordering::Relaxed);
        let now = Instant::now();
        self.next_piece = self.next_piece.max(now);
        if self.next_piece > now && !self.core.standings.pause(self.next_piece) {
            return Err(Stopped);
        }
        if let Some(nanos) = len_bytes.saturating_mul(1_000_000_000).checked_div(rate) {
            self.next_piece += Duration::from_nanos(nanos);
        }
        if self.core.standings.is_closing() {
            return Err(Stopped);
        }
        Ok(())
    }

    fn extent(&self, piece: ByteRange) -> Extent {
        let shift = self.core.geometry.block_size.shift();
        Extent::new(Lba(piece.offset >> shift), Blocks(piece.len >> shift))
    }
}

/// Whether a volume knows that a range takes nothing, and so reads as zeros.
fn is_hole(volume: &dyn ManagedVolume, range: ByteRange) -> bool {
    let first = volume.allocation(range);
    !first.allocated && first.len_bytes >= range.len
}

impl Access {
    fn to(core: &Core, member: usize) -> Self {
        let volume = Arc::clone(&core.members.get(member).volume);
        match core.engine {
            Engine::Memory(_) => Self::Direct(volume),
            Engine::Window { .. } => Self::Driven(Driver::new(&core.relay, volume, PATIENCE)),
        }
    }

    fn volume(&self) -> &dyn ManagedVolume {
        match self {
            Self::Direct(volume) => &**volume,
            Self::Driven(driver) => &**driver.volume(),
        }
    }

    fn read(&mut self, extent: Extent, buffer: &mut [u8]) -> Result<(), Status> {
        match self {
            Self::Direct(volume) => {
                let dest = ReadDest::Copy(buffer);
                volume.execute(Op::Read { extent, dest })
            }
            Self::Driven(driver) => driver.read(extent, buffer).map_err(status_of),
        }
    }

    fn write(&mut self, extent: Extent, data: &[u8]) -> Result<(), Status> {
        match self {
            Self::Direct(volume) => volume.execute(Op::Write { extent, data }),
            Self::Driven(driver) => driver
                .write(extent, data, Persistence::Volatile)
                .map_err(status_of),
        }
    }

    fn write_zeroes(&mut self, extent: Extent) -> Result<(), Status> {
        let unmap = Unmap::Allowed;
        match self {
            Self::Direct(volume) => volume.execute(Op::WriteZeroes { extent, unmap }),
            Self::Driven(driver) => driver.write_zeroes(extent, unmap).map_err(status_of),
        }
    }

    fn flush(&mut self) -> Result<(), Status> {
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
