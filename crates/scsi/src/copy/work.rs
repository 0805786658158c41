//! The copying itself, in turns.

use std::collections::VecDeque;
use std::sync::Arc;

use block::{Blocks, Extent, Lba, Op, ReadDest, Status, Volume};

use super::{CopyRecord, CopySegment, CopyState, SEGMENTS_MAX};
use crate::device::Response;
use crate::medium::piece;
use crate::sense::{Asc, Sense, SenseKey};
use crate::turn::{Step, Turn};

/// An EXTENDED COPY on its way. The ends of its segments were looked up when it began. One that is
/// dropped before its end has failed.
pub struct CopyWork {
    /// What is left to do: the ends of a segment, or why it can't be done.
    segments: VecDeque<Result<SegmentEnds, Sense>>,
    /// Bytes of the first of these that are done.
    done_bytes: u64,
    record: Arc<CopyRecord>,
}

/// From where to where one segment is copied.
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

    /// Copies the next bytes through `buffer`; how many.
    fn copy_piece(&self, done_bytes: u64, buffer: &mut [u8]) -> Result<u64, Status> {
        let len = (buffer.len() as u64).min(self.len_bytes - done_bytes);
        let data = &mut buffer[..len as usize];
        let of = |volume: &Arc<dyn Volume>, extent| {
            piece(extent, volume.geometry().block_size, done_bytes, len)
        };
        self.source.execute(Op::Read {
            extent: of(&self.source, self.from),
            dest: ReadDest::Copy(data),
        })?;
        self.destination.execute(Op::Write {
            extent: of(&self.destination, self.to),
            data,
        })?;
        Ok(len)
    }
}

/// What is copied at once, through a buffer: whole blocks of whatever size.
const PIECE_LEN_BYTES: u64 = 256 << 10;

impl CopyWork {
    /// The most memory that one takes, in bytes.
    pub const LEN_BYTES_MAX: usize =
        size_of::<Self>() + SEGMENTS_MAX as usize * size_of::<Result<SegmentEnds, Sense>>();

    pub(crate) fn new(list_id: u8, segments: VecDeque<Result<SegmentEnds, Sense>>) -> Self {
        Self {
            segments,
            done_bytes: 0,
            record: Arc::new(CopyRecord::new(list_id)),
        }
    }

    pub(crate) fn record(&self) -> Arc<CopyRecord> {
        Arc::clone(&self.record)
    }

    /// Goes on until all is copied or the turn is over.
    pub fn go_on(&mut self, turn: &mut Turn) -> Step {
        let mut buffer = vec![0; PIECE_LEN_BYTES as usize];
        loop {
            match self.copy_segment(&mut buffer, turn) {
                Ok(true) if self.segments.is_empty() => {
                    self.record.end(CopyState::Done);
                    return Step::Over(Response::good());
                }
                Ok(true) => {}
                Ok(false) => return Step::More,
                Err(sense) => {
                    self.record.end(CopyState::Failed);
                    return Step::Over(Response::check(sense));
                }
            }
        }
    }

    /// Goes on with the first segment that is left; whether that is done.
    fn copy_segment(&mut self, buffer: &mut [u8], turn: &mut Turn) -> Result<bool, Sense> {
        let Some(segment) = self.segments.front() else {
            return Ok(true);
        };
        let ends = segment.as_ref().map_err(|sense| *sense)?;
        if self.done_bytes == 0 {
            ends.check().map_err(aborted)?;
        }
        while self.done_bytes < ends.len_bytes {
            if turn.is_over() {
                return Ok(false);
            }
            let len = ends.copy_piece(self.done_bytes, buffer).map_err(aborted)?;
            turn.spend(len);
            self.done_bytes += len;
        }
        self.record.count_segment(ends.len_bytes);
        self.done_bytes = 0;
        self.segments.pop_front();
        Ok(true)
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
mod tests {
    use block::BlockSize;

    use super::*;
    use crate::ScsiStatus;
    use crate::testing::{Bytes, in_turns};

    const LEN_BYTES: u64 = 16 << 20;

    fn ends(source: &Arc<Bytes>, destination: &Arc<Bytes>, to: u64) -> Result<SegmentEnds, Sense> {
        let segment = CopySegment {
            source: 0,
            destination: 1,
            blocks: (LEN_BYTES >> 9) as u16,
            source_lba: 0,
            destination_lba: to,
            counts_destination: false,
        };
        let volumes = [source, destination].map(|volume| Arc::clone(volume) as Arc<dyn Volume>);
        let [source, destination] = volumes;
        SegmentEnds::new(&segment, source, destination)
    }

    #[test]
    fn much_is_copied_in_turns_up_to_the_segment_that_fails() {
        let source = Bytes::new(BlockSize::B512, LEN_BYTES >> 9);
        let destination = Bytes::new(BlockSize::B4096, (2 * LEN_BYTES) >> 12);
        let data = vec![7; LEN_BYTES as usize];
        let extent = Extent::new(Lba(0), Blocks(LEN_BYTES >> 9));
        let write = Op::Write {
            extent,
            data: &data,
        };
        source.execute(write).expect("as long as the volume");
        let second = LEN_BYTES >> 12;
        let segments = [second, 0, second + 1, 0].map(|to| ends(&source, &destination, to));
        let mut work = CopyWork::new(3, segments.into());
        let (response, turns) = in_turns(|turn| work.go_on(turn));
        assert!(
            (8..=16).contains(&turns),
            "4 MiB or less in each of {turns}"
        );
        assert_eq!(response.status, ScsiStatus::CheckCondition);
        assert_eq!(
            response.sense.map(|sense| sense.key),
            Some(SenseKey::CopyAborted)
        );
        let kib = ((2 * LEN_BYTES) >> 10) as u32;
        let status = work.record().status();
        assert_eq!(status[4..8], [CopyState::Failed as u8, 0, 2, 1]);
        assert_eq!(status[8..], kib.to_be_bytes());
        assert_eq!(
            [0, second, 2 * second - 1].map(|lba| destination.block(lba)[4095]),
            [7; 3]
        );
    }
}
