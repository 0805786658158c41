//! The commands of an I/O queue.
//!
//! Read first: NVM Command Set 1.0, "NVM Command Set Commands".

use block::{Extent, Unmap};
use zerocopy::IntoBytes;
use zerocopy::little_endian::{U32, U64};

use super::{BufferRange, Command, Transfer};
use crate::wire::{Cid, Fuse, Nsid, Sqe, opcode};

/// The most blocks of a command whose count has 16 bits, 0's based: all but Dataset Management.
pub const BLOCKS_MAX: u64 = 1 << 16;

/// The most blocks of one range of Dataset Management.
pub const DEALLOCATE_BLOCKS_MAX: u64 = u32::MAX as u64;

/// The length of one range of Dataset Management in bytes.
pub const DEALLOCATE_RANGE_BYTES: usize = 16;

/// Deallocate (DEAC), bit 25 of CDW12 of Write Zeroes.
const DEALLOCATE: u32 = 1 << 25;

/// Force Unit Access (FUA), bit 30 of CDW12 of Write.
const FORCE_UNIT_ACCESS: u32 = 1 << 30;

/// Attribute Deallocate (AD), bit 2 of CDW11 of Dataset Management.
const ATTRIBUTE_DEALLOCATE: u32 = 1 << 2;

/// Read blocks into a buffer.
pub fn read(nsid: Nsid, extent: Extent, data: BufferRange) -> Command {
    Command {
        sqe: entry(opcode::READ, nsid, extent),
        transfer: Transfer::ToHost(data),
    }
}

/// Write blocks from a buffer.
pub fn write(nsid: Nsid, extent: Extent, data: BufferRange) -> Command {
    Command {
        sqe: entry(opcode::WRITE, nsid, extent),
        transfer: Transfer::ToController(data),
    }
}

/// Write blocks from a buffer onto stable storage: Write with Force Unit Access (FUA).
pub fn write_durable(nsid: Nsid, extent: Extent, data: BufferRange) -> Command {
    let mut command = write(nsid, extent, data);
    command.sqe.cdw12 = U32::new(command.sqe.cdw12.get() | FORCE_UNIT_ACCESS);
    command
}

/// Compare blocks with a buffer.
pub fn compare(nsid: Nsid, extent: Extent, data: BufferRange) -> Command {
    Command {
        sqe: entry(opcode::COMPARE, nsid, extent),
        transfer: Transfer::ToController(data),
    }
}

/// Compare blocks with one buffer and, where equal, write another: two fused commands, to be
/// submitted one right after the other.
pub fn compare_and_write(
    nsid: Nsid,
    extent: Extent,
    expected: BufferRange,
    new: BufferRange,
) -> [Command; 2] {
    let mut pair = [compare(nsid, extent, expected), write(nsid, extent, new)];
    pair[0].sqe.flags |= Fuse::First as u8;
    pair[1].sqe.flags |= Fuse::Second as u8;
    pair
}

/// Make what was acknowledged durable.
pub fn flush(nsid: Nsid) -> Command {
    without_data(Sqe::new(opcode::FLUSH, Cid(0), nsid))
}

/// Make blocks read as zeros.
pub fn write_zeroes(nsid: Nsid, extent: Extent, unmap: Unmap) -> Command {
    let mut sqe = entry(opcode::WRITE_ZEROES, nsid, extent);
    if unmap == Unmap::Allowed {
        sqe.cdw12 = U32::new(sqe.cdw12.get() | DEALLOCATE);
    }
    without_data(sqe)
}

/// Check that blocks can be read.
pub fn verify(nsid: Nsid, extent: Extent) -> Command {
    without_data(entry(opcode::VERIFY, nsid, extent))
}

/// Give the memory of blocks back: Dataset Management with one range, which `buffer`, the bytes of
/// `list`, takes.
pub fn deallocate(nsid: Nsid, extent: Extent, list: BufferRange, buffer: &mut [u8]) -> Command {
    let mut range = [0; DEALLOCATE_RANGE_BYTES];
    range[4..8].copy_from_slice(U32::new(extent.blocks.0 as u32).as_bytes());
    range[8..].copy_from_slice(U64::new(extent.lba.0).as_bytes());
    buffer.copy_from_slice(&range);
    let mut sqe = Sqe::new(opcode::DATASET_MANAGEMENT, Cid(0), nsid);
    // Number of Ranges (NR), 0's based.
    sqe.cdw10 = U32::ZERO;
    sqe.cdw11 = U32::new(ATTRIBUTE_DEALLOCATE);
    Command {
        sqe,
        transfer: Transfer::ToController(list),
    }
}

/// An entry with Starting LBA and Number of Logical Blocks, which is 0's based.
fn entry(opcode: u8, nsid: Nsid, extent: Extent) -> Sqe {
    let mut sqe = Sqe::new(opcode, Cid(0), nsid);
    sqe.set_cdw10_11(extent.lba.0);
    sqe.cdw12 = U32::new((extent.blocks.0 as u32).wrapping_sub(1) & 0xFFFF);
    sqe
}

fn without_data(sqe: Sqe) -> Command {
    Command {
        sqe,
        transfer: Transfer::None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use block::{Blocks, Lba};

    fn extent() -> Extent {
        Extent::new(Lba(0x0102_0304_0506), Blocks(8))
    }

    #[test]
    fn golden_read() {
        let read = read(Nsid(5), extent(), BufferRange::first(0, 4096));
        let mut golden = [0; 64];
        golden[0] = 0x02;
        golden[1] = 0x40;
        golden[4] = 5;
        golden[40..46].copy_from_slice(&[0x06, 0x05, 0x04, 0x03, 0x02, 0x01]);
        golden[48] = 7;
        assert_eq!(read.sqe.as_bytes(), golden);
    }

    #[test]
    fn fused_commands_are_compare_first_write_second() {
        let (old, new) = (BufferRange::first(0, 4096), BufferRange::first(1, 4096));
        let [first, second] = compare_and_write(Nsid(1), extent(), old, new);
        assert_eq!(first.sqe.fuse(), Fuse::First);
        assert_eq!(first.sqe.opcode, opcode::COMPARE);
        assert_eq!(second.sqe.fuse(), Fuse::Second);
        assert_eq!(second.sqe.opcode, opcode::WRITE);
        assert_eq!(first.sqe.cdw10_11(), second.sqe.cdw10_11());
    }

    #[test]
    fn golden_deallocate() {
        let mut list = [0xFF; DEALLOCATE_RANGE_BYTES];
        let command = deallocate(Nsid(1), extent(), BufferRange::first(0, 16), &mut list);
        assert_eq!(
            list,
            [0, 0, 0, 0, 8, 0, 0, 0, 6, 5, 4, 3, 2, 1, 0, 0],
            "no attributes, blocks 1's based, LBA"
        );
        assert_eq!(command.sqe.cdw10.get(), 0, "one range");
        assert_eq!(command.sqe.cdw11.get(), 4, "AD");
    }

    #[test]
    fn write_zeroes_deallocates_only_where_allowed() {
        let keep = write_zeroes(Nsid(1), extent(), Unmap::Forbidden);
        assert_eq!(keep.sqe.cdw12.get(), 7);
        let free = write_zeroes(Nsid(1), extent(), Unmap::Allowed);
        assert_eq!(free.sqe.cdw12.get(), 7 | 1 << 25);
    }

    #[test]
    fn a_durable_write_is_a_write_with_fua() {
        let data = BufferRange::first(0, 4096);
        let plain = write(Nsid(1), extent(), data);
        let durable = write_durable(Nsid(1), extent(), data);
        assert_eq!(durable.sqe.opcode, plain.sqe.opcode);
        assert_eq!(durable.sqe.cdw12.get(), plain.sqe.cdw12.get() | 0x4000_0000);
    }

    #[test]
    fn the_largest_count_fits_16_bits() {
        let all = Extent::new(Lba(0), Blocks(BLOCKS_MAX));
        assert_eq!(verify(Nsid(1), all).sqe.cdw12.get(), 0xFFFF);
    }
}
