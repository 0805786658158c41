//! Comparing the members of a mirror with each other while hosts use it.

use std::ops::ControlFlow;

use block::{ByteRange, Status};
use memory::Progress;

use super::access::{Access, PIECE_BYTES, Pace, is_hole};
use super::core::Core;
use crate::members::bits;
use crate::mirror_info::{Repair, ScrubReport};

/// Ranges that a report lists; it counts all.
const RANGES_MAX: usize = 64;

/// Compares what members in sync hold. Differing bytes are those of the first member in sync
/// afterwards if they are to be repaired. `progress` may end the comparison; the report is then of
/// a part.
///
/// # Errors
/// If no member can be read at some place.
pub(super) fn scrub(
    core: &Core,
    repair: Repair,
    progress: &mut dyn FnMut(Progress) -> ControlFlow<()>,
) -> Result<ScrubReport, Status> {
    let mut scrubber = Scrubber {
        core,
        members: bits(core.standings.in_sync())
            .map(|place| {
                (
                    place,
                    Access::to(core, place),
                    vec![0; PIECE_BYTES as usize],
                )
            })
            .collect(),
        pace: Pace::new(),
        repair,
        report: ScrubReport::default(),
    };
    let total_bytes = core.geometry.len_bytes();
    let mut done_bytes = 0;
    while done_bytes < total_bytes {
        let piece = ByteRange {
            offset: done_bytes,
            len: PIECE_BYTES.min(total_bytes - done_bytes),
        };
        scrubber.compare(piece)?;
        done_bytes += piece.len;
        let at = Progress {
            done_bytes,
            total_bytes,
        };
        if progress(at).is_break() || core.standings.is_closing() {
            break;
        }
    }
    Ok(scrubber.report)
}

struct Scrubber<'a> {
    core: &'a Core,
    /// Each member that was in sync, and what it holds of the piece at hand.
    members: Vec<(usize, Access, Vec<u8>)>,
    pace: Pace,
    repair: Repair,
    report: ScrubReport,
}

impl Scrubber<'_> {
    /// Changes go on while a piece is compared at first. If it differs, it is compared again while
    /// nothing changes it.
    fn compare(&mut self, piece: ByteRange) -> Result<(), Status> {
        self.report.compared_bytes += piece.len;
        let is_hole = |(place, ..): &(usize, _, _)| is_hole(self.core.volume(*place), piece);
        if self.members.iter().all(is_hole) {
            return Ok(());
        }
        // The mirror ends soon if it does not go on, and so does the comparison.
        self.pace.wait(self.core, piece.len);
        if self.differing(piece)? == 0 {
            return Ok(());
        }
        let core = self.core;
        core.exclude(piece, || {
            let differing = self.differing(piece)?;
            if differing != 0 {
                self.note(piece);
                if self.repair == Repair::Yes {
                    self.repair(piece, differing);
                }
            }
            Ok(())
        })
    }

    /// Reads a piece of each member that is still in sync. Returns which differ from the first.
    fn differing(&mut self, piece: ByteRange) -> Result<u64, Status> {
        let extent = self.core.extent(piece);
        let len = piece.len as usize;
        let standings = &self.core.standings;
        let mut last_error = None;
        self.members.retain_mut(|(place, access, buffer)| {
            if standings.in_sync() >> *place & 1 == 0 {
                return false;
            }
            let read = access.read(extent, &mut buffer[..len]);
            let Err(status) = read else {
                return true;
            };
            last_error = Some(status);
            // The piece is copied to it when it returns.
            standings.fail(*place, status, Some(piece));
            false
        });
        let Some(((_, _, first), others)) = self.members.split_first() else {
            return Err(last_error.unwrap_or(Status::NotReady));
        };
        let differs = |(_, _, buffer): &&(_, _, Vec<u8>)| buffer[..len] != first[..len];
        let differing = others.iter().filter(differs);
        Ok(differing.fold(0, |set, (place, ..)| set | 1 << place))
    }

    fn note(&mut self, piece: ByteRange) {
        self.report.differing_bytes += piece.len;
        let ranges = &mut self.report.ranges;
        let has_room = ranges.len() < RANGES_MAX;
        match ranges.last_mut() {
            Some(last) if last.offset + last.len == piece.offset => last.len += piece.len,
            _ if has_room => ranges.push(piece),
            _ => {}
        }
    }

    /// Writes the piece of the first member to those that differ.
    fn repair(&mut self, piece: ByteRange, differing: u64) {
        let extent = self.core.extent(piece);
        let Some(((_, _, first), others)) = self.members.split_first_mut() else {
            return;
        };
        let others = others
            .iter_mut()
            .filter(|(place, ..)| differing >> place & 1 == 1);
        let mut is_repaired = true;
        for (place, access, _) in others {
            if let Err(status) = access.write(extent, &first[..piece.len as usize]) {
                self.core.standings.fail(*place, status, Some(piece));
                is_repaired = false;
            }
        }
        self.core.standings.note_unflushed(piece);
        if is_repaired {
            self.report.repaired_bytes += piece.len;
        }
    }
}
