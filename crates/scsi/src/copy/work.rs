//! The copying itself, in turns, slice by slice.
//!
//! ```text
//!        admit both ends          filled           copied, settle             settled
//!  Next ─┬─ Later ──► Filling ───────────► Copying ─┬─ Later ──► Settling ──────────► Settled ──► Next
//!        └─ Now ──────────────────────────►         └─ Done ────────────────────────────────────►
//!                        │                                           │
//!                        └───────────── an error ────► Failed ◄──────┘
//! ```

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

use block::{
    Blocks, DataUse, Extent, Intent, Lba, Op, OpKind, Persistence, ReadDest, Settled, Status,
    Volume,
};
use session::{Admitted, Leases, Resumed};

use super::{CopyRecord, CopySegment, CopyState, SEGMENTS_MAX};
use crate::medium::{TRANSFER_LEN_BYTES_MAX, piece};
use crate::response::Response;
use crate::sense::{Asc, Sense, SenseKey};
use crate::turn::{Step, Turn};

/// An EXTENDED COPY in progress. The source and destination of its segments were looked up when it
/// began. If it is dropped before its end, it has failed.
pub struct CopyWork {
    /// What is left to do: the ends of a segment, or why it cannot be done.
    segments: VecDeque<Result<SegmentEnds, Sense>>,
    /// Bytes of the first of these that are done.
    done_bytes: u64,
    /// The same at the end of the slice that is being copied.
    slice_end_bytes: u64,
    stage: Stage,
    /// Until when filters of the volumes hold the completion back.
    not_before: Option<Instant>,
    record: Arc<CopyRecord>,
}

/// The stage of the slice that is being copied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// It is to be admitted.
    Next,
    /// Volumes bring its blocks into memory.
    Filling {
        /// How many of them, 1 or 2.
        awaited: u8,
    },
    /// Its blocks are in memory.
    Copying,
    /// The destination makes it safe.
    Settling,
    /// The destination has made it safe.
    Settled,
    /// A volume failed.
    Failed(Status),
}

/// The slots in which a copy holds its leases, at most one in each.
#[derive(Clone, Copy, Debug)]
pub struct CopySlots {
    /// Of the lease on what is read.
    pub source: usize,
    /// Of the lease on what is written.
    pub destination: usize,
}

/// The source and destination of a segment.
pub(crate) struct SegmentEnds {
    source: Arc<dyn Volume>,
    from: Extent,
    destination: Arc<dyn Volume>,
    to: Extent,
    len_bytes: u64,
}

impl SegmentEnds {
    /// Blocks of both ends may differ in size; whole ones of each are copied.
    pub(crate) fn new(
        segment: &CopySegment,
        source: Arc<dyn Volume>,
        destination: Arc<dyn Volume>,
    ) -> Result<Self, Sense> {
        let (from_size, to_size) = (
            source.geometry().block_size,
            destination.geometry().block_size,
        );
        let unit = if segment.counts_destination {
            to_size
        } else {
            from_size
        };
        let len_bytes = u64::from(segment.blocks) << unit.shift();
        let extent = |lba: u64, shift: u32| {
            let aligned = len_bytes & ((1 << shift) - 1) == 0;
            let extent = Extent::new(Lba(lba), Blocks(len_bytes >> shift));
            aligned
                .then_some(extent)
                .ok_or(Sense::invalid_parameter(10))
        };
        Ok(Self {
            from: extent(segment.source_lba, from_size.shift())?,
            to: extent(segment.destination_lba, to_size.shift())?,
            source,
            destination,
            len_bytes,
        })
    }

    /// Both ends are checked before the first byte is copied.
    fn check(&self) -> Result<(), Status> {
        self.source.geometry().byte_range(self.from)?;
        self.destination.geometry().byte_range(self.to)?;
        Ok(())
    }

    /// Which blocks of which volume are read for `len_bytes` bytes from `at_bytes` on.
    fn read(&self, at_bytes: u64, len_bytes: u64) -> (&Arc<dyn Volume>, Extent) {
        let block_size = self.source.geometry().block_size;
        let extent = piece(self.from, block_size, at_bytes, len_bytes);
        (&self.source, extent)
    }

    /// Which blocks of which volume are written for the same.
    fn written(&self, at_bytes: u64, len_bytes: u64) -> (&Arc<dyn Volume>, Extent) {
        let block_size = self.destination.geometry().block_size;
        let extent = piece(self.to, block_size, at_bytes, len_bytes);
        (&self.destination, extent)
    }

    /// Copies as much as `data` holds from `at_bytes` on.
    fn copy_piece(&self, at_bytes: u64, data: &mut [u8]) -> Result<(), Status> {
        let (source, from) = self.read(at_bytes, data.len() as u64);
        source.execute(Op::Read {
            extent: from,
            dest: ReadDest::Copy(data),
        })?;
        let (destination, to) = self.written(at_bytes, data.len() as u64);
        destination.execute(Op::Write { extent: to, data })
    }
}

/// What is copied at once, through a buffer: whole blocks of whatever size.
const PIECE_LEN_BYTES: u64 = 256 << 10;
/// What is admitted at once. Volumes admit as much for one READ or WRITE.
const SLICE_LEN_BYTES_MAX: u64 = TRANSFER_LEN_BYTES_MAX;

impl CopyWork {
    /// The most memory that one takes, in bytes.
    pub const LEN_BYTES_MAX: usize =
        size_of::<Self>() + SEGMENTS_MAX as usize * size_of::<Result<SegmentEnds, Sense>>();

    pub(crate) fn new(list_id: u8, segments: VecDeque<Result<SegmentEnds, Sense>>) -> Self {
        Self {
            segments,
            done_bytes: 0,
            slice_end_bytes: 0,
            stage: Stage::Next,
            not_before: None,
            record: Arc::new(CopyRecord::new(list_id)),
        }
    }

    pub(crate) fn record(&self) -> Arc<CopyRecord> {
        Arc::clone(&self.record)
    }

    /// The volumes that it has still to read or write.
    pub(crate) fn volumes(&self) -> impl Iterator<Item = &Arc<dyn Volume>> {
        let ends = self.segments.iter().flatten();
        ends.flat_map(|ends| [&ends.source, &ends.destination])
    }

    /// Until when filters of its volumes hold its completion back.
    pub fn not_before(&self) -> Option<Instant> {
        self.not_before
    }

    /// Whether it waits for a volume.
    pub fn is_waiting(&self) -> bool {
        matches!(self.stage, Stage::Filling { .. } | Stage::Settling)
    }

    /// Continues until everything is copied, the turn is over, or a volume makes it wait. Each
    /// slice is admitted by both volumes before it is copied, and is safe before the next one is
    /// admitted. No lease is held any more when it is over.
    pub fn go_on(
        &mut self,
        now: Instant,
        turn: &mut Turn,
        leases: &mut Leases,
        slots: CopySlots,
    ) -> Step {
        let step = self.try_go_on(now, turn, leases, slots);
        step.unwrap_or_else(|sense| {
            leases.release(slots.source);
            leases.release(slots.destination);
            self.record.end(CopyState::Failed);
            Step::Over(Response::check(sense))
        })
    }

    fn try_go_on(
        &mut self,
        now: Instant,
        turn: &mut Turn,
        leases: &mut Leases,
        slots: CopySlots,
    ) -> Result<Step, Sense> {
        let mut buffer = Vec::new();
        loop {
            let Some(segment) = self.segments.front() else {
                self.record.end(CopyState::Done);
                return Ok(Step::Over(Response::good()));
            };
            let ends = segment.as_ref().map_err(|sense| *sense)?;
            match self.stage {
                Stage::Next => {
                    if self.done_bytes == 0 {
                        ends.check().map_err(aborted)?;
                    }
                    if self.done_bytes < ends.len_bytes {
                        self.admit_slice(now, leases, slots)?;
                    } else {
                        self.record.count_segment(ends.len_bytes);
                        self.done_bytes = 0;
                        self.segments.pop_front();
                    }
                }
                Stage::Filling { .. } | Stage::Settling => return Ok(Step::Waits),
                Stage::Copying if self.done_bytes < self.slice_end_bytes => {
                    if turn.is_over() {
                        return Ok(Step::More);
                    }
                    buffer.resize(PIECE_LEN_BYTES as usize, 0);
                    let left = self.slice_end_bytes - self.done_bytes;
                    let data = &mut buffer[..left.min(PIECE_LEN_BYTES) as usize];
                    ends.copy_piece(self.done_bytes, data).map_err(aborted)?;
                    turn.spend(data.len() as u64);
                    self.done_bytes += data.len() as u64;
                }
                Stage::Copying => {
                    leases.release(slots.source);
                    match leases.settle(slots.destination).map_err(aborted)? {
                        Settled::Done => self.end_slice(leases, slots),
                        Settled::Later => self.stage = Stage::Settling,
                    }
                }
                Stage::Settled => self.end_slice(leases, slots),
                Stage::Failed(status) => return Err(aborted(status)),
            }
        }
    }

    /// Asks both volumes of the first segment to admit its next slice.
    fn admit_slice(
        &mut self,
        now: Instant,
        leases: &mut Leases,
        slots: CopySlots,
    ) -> Result<(), Sense> {
        let Some(Ok(ends)) = self.segments.front() else {
            return Ok(());
        };
        let len_bytes = SLICE_LEN_BYTES_MAX.min(ends.len_bytes - self.done_bytes);
        let mut awaited = 0;
        for (slot, kind, data_use, (volume, extent)) in [
            (
                slots.source,
                OpKind::Read,
                DataUse::Read,
                ends.read(self.done_bytes, len_bytes),
            ),
            (
                slots.destination,
                OpKind::Write,
                DataUse::Overwrite,
                ends.written(self.done_bytes, len_bytes),
            ),
        ] {
            let intent = Intent {
                kind,
                extents: &[extent],
                len_bytes,
                data_use,
                persistence: Persistence::Volatile,
            };
            match leases.admit(slot, volume, now, &intent) {
                Admitted::Now => {}
                Admitted::Leased(at) => self.not_before = self.not_before.max(at),
                Admitted::Filling(at) => {
                    self.not_before = self.not_before.max(at);
                    awaited += 1;
                }
                Admitted::NotBefore(at) => self.not_before = self.not_before.max(Some(at)),
                Admitted::Fail(status, at) => {
                    self.not_before = self.not_before.max(at);
                    return Err(aborted(status));
                }
            }
        }
        self.slice_end_bytes = self.done_bytes + len_bytes;
        self.stage = match awaited {
            0 => Stage::Copying,
            awaited => Stage::Filling { awaited },
        };
        Ok(())
    }

    /// The slice is safe.
    fn end_slice(&mut self, leases: &mut Leases, slots: CopySlots) {
        leases.release(slots.destination);
        self.stage = Stage::Next;
    }

    /// One of its volumes has answered. Returns whether it is to [go on](Self::go_on).
    pub fn resume(&mut self, resumed: Resumed) -> bool {
        self.stage = match (self.stage, resumed) {
            (Stage::Filling { .. }, Resumed::Filled(Err(status)))
            | (Stage::Settling, Resumed::Settled(Err(status))) => Stage::Failed(status),
            (Stage::Filling { awaited: 2 }, Resumed::Filled(Ok(()))) => {
                Stage::Filling { awaited: 1 }
            }
            (Stage::Filling { .. }, Resumed::Filled(Ok(()))) => Stage::Copying,
            (Stage::Settling, Resumed::Settled(Ok(()))) => Stage::Settled,
            // It has failed meanwhile.
            _ => return false,
        };
        !self.is_waiting()
    }
}

impl Drop for CopyWork {
    fn drop(&mut self) {
        self.record.end(CopyState::Failed);
    }
}

fn aborted(status: Status) -> Sense {
    match status {
        // The segment, not the CDB, is wrong.
        Status::LbaOutOfRange => Sense::new(SenseKey::CopyAborted, Asc::NONE),
        other => Sense {
            key: SenseKey::CopyAborted,
            ..Sense::of_volume(other)
        },
    }
}

#[cfg(test)]
mod tests;
