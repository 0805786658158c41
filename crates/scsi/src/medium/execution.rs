//! The execution of medium commands whose data-out, if any, have been received completely.

use block::{Blocks, ByteRange, Extent, Geometry, Lba, Op, ReadDest, Unmap, Volume};

use super::{Medium, UNMAP_DESCRIPTORS_MAX, VerifyMode, in_range};
use crate::response::Response;
use crate::sense::{Asc, Sense};
use crate::turn::{Step, Turn};

/// A command in progress. Commands that may cover much of a volume are executed in pieces.
#[derive(Clone, Copy, Debug)]
pub struct Execution {
    command: Medium,
    /// Which of its ranges is being executed; `None` until all ranges were checked.
    range: Option<usize>,
    /// How many blocks of that are done.
    done: u64,
}

impl Execution {
    /// The execution of a command that has not begun.
    pub const fn new(command: Medium) -> Self {
        Self {
            command,
            range: None,
            done: 0,
        }
    }

    /// Goes on until the command is done or the turn is over. `data` are those of the whole
    /// command. The volume has admitted all blocks that the command touches, so it never waits.
    ///
    /// READ and WRITE, whose data move in pieces, are executed by the transport on the
    /// [`piece`](super::piece)s that it has.
    pub fn go_on(&mut self, data: &[u8], volume: &dyn Volume, turn: &mut Turn) -> Step {
        match self.try_go_on(data, volume, turn) {
            Ok(true) => Step::Over(Response::good()),
            Ok(false) => Step::More,
            Err(sense) => Step::Over(Response::check(sense)),
        }
    }

    /// Whether it is done.
    fn try_go_on(
        &mut self,
        data: &[u8],
        volume: &dyn Volume,
        turn: &mut Turn,
    ) -> Result<bool, Sense> {
        let mut range = match self.range {
            Some(range) => range,
            None if self.is_long() => {
                check_unmap(self.command, data, volume)?;
                0
            }
            None => {
                turn.spend(data.len() as u64);
                return at_once(self.command, data, volume).map(|()| true);
            }
        };
        while let Some(extent) = range_of(self.command, data, range) {
            while self.done < extent.blocks.0 {
                if turn.is_over() {
                    self.range = Some(range);
                    return Ok(false);
                }
                let rest = Extent::new(
                    Lba(extent.lba.0 + self.done),
                    Blocks(extent.blocks.0 - self.done),
                );
                self.done += do_piece(self.command, rest, data, volume, turn)?;
            }
            self.done = 0;
            range += 1;
        }
        Ok(true)
    }

    /// How many 65536ths of its range are done, for a command of one range.
    pub(crate) fn progress(&self) -> u16 {
        let blocks = match self.command {
            Medium::Sanitize(extent) | Medium::WriteSame { extent, .. } => extent.blocks.0,
            _ => 0,
        };
        let share = u128::from(self.done) * 65_536 / u128::from(blocks.max(1));
        share.min(65_535) as u16
    }

    /// Whether it may cover more than a transfer does.
    fn is_long(&self) -> bool {
        matches!(
            self.command,
            Medium::WriteSame { .. } | Medium::Unmap { .. } | Medium::Sanitize(_)
        )
    }
}

/// The range of this number of a command that is executed in pieces.
fn range_of(command: Medium, data: &[u8], number: usize) -> Option<Extent> {
    match command {
        Medium::Unmap { .. } => unmapped(data).nth(number),
        Medium::WriteSame { extent, .. } | Medium::Sanitize(extent) => {
            (number == 0).then_some(extent)
        }
        _ => None,
    }
}

/// Bytes of a pattern that are written at once.
const PATTERN_LEN_BYTES: u64 = 64 << 10;
/// Bytes of zeros that are written at once, and bytes that are discarded at once if they are copied
/// first.
const ZEROS_LEN_BYTES: u64 = 1 << 20;
/// Bytes that are discarded at once. Pieces end at multiples of this, since memory is freed in
/// aligned slabs.
const DISCARD_LEN_BYTES: u64 = 16 << 20;
/// How many bytes may be discarded at the cost of writing one.
const DISCARD_PER_COST: u64 = 4;
/// The same if there is no memory.
const HOLE_PER_COST: u64 = 8 << 10;

/// Executes the next piece of a range, of which `rest` is left. Returns how many blocks the piece
/// has.
fn do_piece(
    command: Medium,
    rest: Extent,
    data: &[u8],
    volume: &dyn Volume,
    turn: &mut Turn,
) -> Result<u64, Sense> {
    let shift = volume.geometry().block_size.shift();
    let first =
        |len_bytes: u64| Extent::new(rest.lba, Blocks((len_bytes >> shift).min(rest.blocks.0)));
    let is_zero = |data: &[u8]| data.iter().all(|byte| *byte == 0);
    let (piece, cost, op) = match command {
        Medium::WriteSame { zeros, .. } if !zeros && !is_zero(data) => {
            let extent = first(PATTERN_LEN_BYTES);
            // A rare command: the pattern is repeated into a buffer, not written block by block.
            let pattern = data.repeat(extent.blocks.0 as usize);
            turn.spend(pattern.len() as u64);
            let write = Op::Write {
                extent,
                data: &pattern,
            };
            return run(volume, write).map(|()| extent.blocks.0);
        }
        Medium::WriteSame {
            unmap: Unmap::Forbidden,
            ..
        } => {
            let extent = first(ZEROS_LEN_BYTES);
            let unmap = Unmap::Forbidden;
            (
                extent,
                extent.blocks.0 << shift,
                Op::WriteZeroes { extent, unmap },
            )
        }
        _ => {
            let (len_bytes, cost) = discard_len(rest, shift, volume);
            let extent = first(len_bytes);
            let unmap = Unmap::Allowed;
            let op = match command {
                Medium::Unmap { .. } | Medium::Sanitize(_) => Op::Discard { extent },
                _ => Op::WriteZeroes { extent, unmap },
            };
            (extent, cost, op)
        }
    };
    turn.spend(cost);
    run(volume, op).map(|()| piece.blocks.0)
}

/// How many bytes at the start of an extent are discarded at once, and what that costs.
fn discard_len(rest: Extent, shift: u32, volume: &dyn Volume) -> (u64, u64) {
    let start = rest.lba.0 << shift;
    let len = rest.blocks.0 << shift;
    let run = volume.allocation(ByteRange { offset: start, len });
    let hole_len = run.len_bytes >> shift << shift;
    if !run.allocated && hole_len > 0 {
        return (hole_len, hole_len / HOLE_PER_COST);
    }
    if volume.copies_discarded() {
        return (ZEROS_LEN_BYTES, ZEROS_LEN_BYTES);
    }
    let len = DISCARD_LEN_BYTES - start % DISCARD_LEN_BYTES;
    (len, len / DISCARD_PER_COST)
}

fn run(volume: &dyn Volume, op: Op<'_>) -> Result<(), Sense> {
    volume.execute(op).map_err(Sense::of_volume)
}

/// Executes a command that is no longer than a transfer.
fn at_once(command: Medium, data: &[u8], volume: &dyn Volume) -> Result<(), Sense> {
    match command {
        Medium::Read(extent) => {
            let dest = ReadDest::InPlace;
            run(volume, Op::Read { extent, dest })
        }
        Medium::Write(extent) => run(volume, Op::Write { extent, data }),
        Medium::VerifyMedium(extent) => run(volume, Op::Verify { extent }),
        Medium::VerifyData(extent, VerifyMode::EachBlock) => {
            run(volume, Op::Compare { extent, data })
        }
        Medium::VerifyData(extent, VerifyMode::OneBlock) => {
            for_each_block(extent, |extent| run(volume, Op::Compare { extent, data }))
        }
        Medium::CompareAndWrite(extent) => {
            let (compare, write) = data.split_at(data.len() / 2);
            let compare_and_write = Op::CompareAndWrite {
                extent,
                compare,
                write,
            };
            run(volume, compare_and_write)
        }
        Medium::OrWrite(extent) => {
            let block_len = volume.geometry().block_size.bytes() as usize;
            let mut blocks = data.chunks_exact(block_len);
            for_each_block(extent, |block| {
                let mask = blocks.next().ok_or(Sense::invalid_cdb_field(10))?;
                or_block(block, mask, volume)
            })
        }
        Medium::SynchronizeCache => run(volume, Op::Flush),
        Medium::PreFetch(_)
        | Medium::WriteSame { .. }
        | Medium::Unmap { .. }
        | Medium::Sanitize(_) => Ok(()),
    }
}

fn for_each_block(
    extent: Extent,
    mut each: impl FnMut(Extent) -> Result<(), Sense>,
) -> Result<(), Sense> {
    (0..extent.blocks.0).try_for_each(|i| each(Extent::new(Lba(extent.lba.0 + i), Blocks(1))))
}

/// How often an or is tried again because another nexus wrote the block in between.
const OR_ATTEMPTS_MAX: usize = 64;

/// Ors `mask` into one block, atomically by compare-and-write.
fn or_block(block: Extent, mask: &[u8], volume: &dyn Volume) -> Result<(), Sense> {
    let (mut old, mut new) = ([0; 4096], [0; 4096]);
    let (old, new) = (&mut old[..mask.len()], &mut new[..mask.len()]);
    for _ in 0..OR_ATTEMPTS_MAX {
        let read = Op::Read {
            extent: block,
            dest: ReadDest::Copy(old),
        };
        run(volume, read)?;
        for ((new, old), mask) in new.iter_mut().zip(&*old).zip(mask) {
            *new = old | mask;
        }
        match volume.execute(Op::CompareAndWrite {
            extent: block,
            compare: old,
            write: new,
        }) {
            Err(block::Status::Miscompare { .. }) => {}
            other => return other.map_err(Sense::of_volume),
        }
    }
    Err(Sense::of_volume(block::Status::Busy))
}

/// UNMAP's parameter list: an 8-byte header, then 16-byte descriptors {LBA 8, blocks 4, reserved
/// 4}. All are checked before the first is executed.
fn check_unmap(command: Medium, list: &[u8], volume: &dyn Volume) -> Result<(), Sense> {
    if !matches!(command, Medium::Unmap { .. }) || list.is_empty() {
        return Ok(());
    }
    if list.len() < 8 {
        return Err(Sense::illegal(Asc::PARAMETER_LIST_LENGTH));
    }
    if unmapped(list).count() > UNMAP_DESCRIPTORS_MAX {
        return Err(Sense::invalid_parameter(2));
    }
    let geometry = volume.geometry();
    unmapped(list).try_for_each(|extent| in_range(extent, geometry).map(drop))
}

/// The ranges of UNMAP's parameter list, and how many there are, if all lie inside the volume.
pub fn unmapped_inside(
    list: &[u8],
    geometry: Geometry,
) -> Option<([Extent; UNMAP_DESCRIPTORS_MAX], usize)> {
    let mut extents = [Extent::new(Lba(0), Blocks(0)); UNMAP_DESCRIPTORS_MAX];
    let mut len = 0;
    for extent in unmapped(list) {
        geometry.byte_range(extent).ok()?;
        *extents.get_mut(len)? = extent;
        len += 1;
    }
    Some((extents, len))
}

/// The ranges in UNMAP's parameter list, as they stand there: neither their number nor their place
/// is checked.
pub fn unmapped(list: &[u8]) -> impl Iterator<Item = Extent> {
    let announced = list
        .get(2..4)
        .map_or(0, |len| u16::from_be_bytes([len[0], len[1]]));
    let descriptors = list.get(8..).unwrap_or_default();
    let descriptors = &descriptors[..descriptors.len().min(announced.into())];
    descriptors.chunks_exact(16).map(|d| {
        let lba = u64::from_be_bytes([d[0], d[1], d[2], d[3], d[4], d[5], d[6], d[7]]);
        let blocks = u32::from_be_bytes([d[8], d[9], d[10], d[11]]);
        Extent::new(Lba(lba), Blocks(u64::from(blocks)))
    })
}
