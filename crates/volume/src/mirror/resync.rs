//! The thread of a mirror: it copies to each member what that missed, and tries absent members
//! again.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use block::{ByteRange, Status};

use super::access::{Access, PIECE_BYTES, Pace, is_hole};
use super::core::Core;
use super::standing::Missing;
use crate::members::bits;

/// How often members are tried as long as none can be used that has the contents.
const DECISION_PERIOD: Duration = Duration::from_millis(100);

/// Runs until the mirror closes.
pub(super) fn run(core: &Core) {
    if !decide(core) {
        return;
    }
    let mut copier = Copier {
        core,
        buffer: vec![0; PIECE_BYTES as usize],
        pace: Pace::new(),
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

/// Waits until a member can be used that has the contents. Returns whether the mirror goes on.
fn decide(core: &Core) -> bool {
    let is_ready = |place: &usize| core.volume(*place).is_ready();
    let ready = || {
        let ready = bits(core.standings.present()).filter(is_ready);
        ready.fold(0, |set, place| set | 1 << place)
    };
    while !core.standings.decide(ready()) {
        if !core.standings.pause(Instant::now() + DECISION_PERIOD) {
            return false;
        }
    }
    true
}

struct Copier<'a> {
    core: &'a Core,
    buffer: Vec<u8>,
    pace: Pace,
}

/// The copy cannot go on; what that means for the member is noted.
struct Stopped;

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
            if !self.pace.wait(self.core, piece.len) {
                return Err(Stopped);
            }
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
            dest.write_zeroes(self.core.extent(piece))
        } else {
            dest.write(self.core.extent(piece), &self.buffer[..piece.len as usize])
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
            let extent = self.core.extent(piece);
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
}
