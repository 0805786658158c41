//! The commands of a disk.
//!
//! Read first: SBC-4, "Direct access block device commands".

use block::{Extent, Unmap};
use session::BufferRange;

use super::{Command, Transfer};

/// The most blocks of a command whose count has 32 bits.
pub const BLOCKS_MAX: u64 = u32::MAX as u64;

/// The length of an UNMAP parameter list with one descriptor in bytes.
pub const UNMAP_LIST_BYTES: usize = 24;

/// The most blocks of COMPARE AND WRITE, whose count has 8 bits.
pub const COMPARE_AND_WRITE_BLOCKS_MAX: u64 = u8::MAX as u64;

/// BYTCHK 01b of VERIFY: compare with data-out.
const BYTE_CHECK: u8 = 0x02;
/// FUA of READ and WRITE.
const FORCE_UNIT_ACCESS: u8 = 0x08;
/// UNMAP of WRITE SAME.
const WRITE_SAME_UNMAP: u8 = 0x08;

/// READ (10), or READ (16) if the extent does not fit.
pub fn read(extent: Extent, data: BufferRange) -> Command {
    Command {
        cdb: ten_or_sixteen([0x28, 0x88], extent),
        transfer: Transfer::ToHost(data),
    }
}

/// WRITE (10), or WRITE (16) if the extent does not fit.
pub fn write(extent: Extent, data: BufferRange) -> Command {
    Command {
        cdb: ten_or_sixteen([0x2A, 0x8A], extent),
        transfer: Transfer::ToTarget(data),
    }
}

/// WRITE with Force Unit Access (FUA): onto stable storage.
pub fn write_durable(extent: Extent, data: BufferRange) -> Command {
    let mut command = write(extent, data);
    command.cdb[1] |= FORCE_UNIT_ACCESS;
    command
}

/// SYNCHRONIZE CACHE (10) of all blocks.
pub fn synchronize_cache() -> Command {
    without_data([0x35])
}

/// VERIFY (16): check that blocks can be read.
pub fn verify(extent: Extent) -> Command {
    Command {
        cdb: sixteen(0x8F, extent),
        transfer: Transfer::None,
    }
}

/// VERIFY (16) with BYTCHK: compare blocks with a buffer.
pub fn compare(extent: Extent, data: BufferRange) -> Command {
    let mut cdb = sixteen(0x8F, extent);
    cdb[1] = BYTE_CHECK;
    Command {
        cdb,
        transfer: Transfer::ToTarget(data),
    }
}

/// COMPARE AND WRITE: `data` holds what is expected, then what to write. The extent has at most
/// [`COMPARE_AND_WRITE_BLOCKS_MAX`] blocks.
pub fn compare_and_write(extent: Extent, data: BufferRange) -> Command {
    let mut cdb = [0; 16];
    cdb[0] = 0x89;
    cdb[2..10].copy_from_slice(&extent.lba.0.to_be_bytes());
    cdb[13] = extent.blocks.0 as u8;
    Command {
        cdb,
        transfer: Transfer::ToTarget(data),
    }
}

/// WRITE SAME (16) of the block of zeros in `zeros`.
pub fn write_zeroes(extent: Extent, unmap: Unmap, zeros: BufferRange) -> Command {
    let mut cdb = sixteen(0x93, extent);
    if unmap == Unmap::Allowed {
        cdb[1] = WRITE_SAME_UNMAP;
    }
    Command {
        cdb,
        transfer: Transfer::ToTarget(zeros),
    }
}

/// UNMAP of one extent. Writes its parameter list to `buffer`, the bytes of `list`.
pub fn unmap(extent: Extent, list: BufferRange, buffer: &mut [u8]) -> Command {
    const DESCRIPTOR_BYTES: u16 = 16;
    let mut parameters = [0; UNMAP_LIST_BYTES];
    // UNMAP DATA LENGTH counts what follows it, UNMAP BLOCK DESCRIPTOR DATA LENGTH the descriptors.
    parameters[0..2].copy_from_slice(&(DESCRIPTOR_BYTES + 6).to_be_bytes());
    parameters[2..4].copy_from_slice(&DESCRIPTOR_BYTES.to_be_bytes());
    parameters[8..16].copy_from_slice(&extent.lba.0.to_be_bytes());
    parameters[16..20].copy_from_slice(&(extent.blocks.0 as u32).to_be_bytes());
    buffer.copy_from_slice(&parameters);
    let mut cdb = [0; 16];
    cdb[0] = 0x42;
    cdb[7..9].copy_from_slice(&(UNMAP_LIST_BYTES as u16).to_be_bytes());
    Command {
        cdb,
        transfer: Transfer::ToTarget(list),
    }
}

/// READ CAPACITY (16), a service action of SERVICE ACTION IN (16).
pub fn read_capacity_16(data: BufferRange) -> Command {
    let mut cdb = [0; 16];
    cdb[0] = 0x9E;
    cdb[1] = 0x10;
    cdb[10..14].copy_from_slice(&data.len_bytes.to_be_bytes());
    Command {
        cdb,
        transfer: Transfer::ToHost(data),
    }
}

/// READ CAPACITY (10).
pub(super) fn read_capacity_10(data: BufferRange) -> Command {
    let mut command = without_data([0x25]);
    command.transfer = Transfer::ToHost(data);
    command
}

/// TEST UNIT READY.
pub(super) fn test_unit_ready() -> Command {
    without_data([0x00])
}

/// INQUIRY: standard data, or a vital product data page.
pub(super) fn inquiry(page: Option<u8>, data: BufferRange) -> Command {
    let [high, low] = (data.len_bytes as u16).to_be_bytes();
    let mut command = without_data([0x12, u8::from(page.is_some()), page.unwrap_or(0), high, low]);
    command.transfer = Transfer::ToHost(data);
    command
}

/// MODE SENSE (6) of the current values of a page, without block descriptors (DBD).
pub(super) fn mode_sense_6(page: u8, data: BufferRange) -> Command {
    const DISABLE_BLOCK_DESCRIPTORS: u8 = 0x08;
    let len = data.len_bytes as u8;
    let mut command = without_data([0x1A, DISABLE_BLOCK_DESCRIPTORS, page, 0, len]);
    command.transfer = Transfer::ToHost(data);
    command
}

/// REPORT LUNS.
pub(super) fn report_luns(data: BufferRange) -> Command {
    let mut command = without_data([0xA0]);
    command.cdb[6..10].copy_from_slice(&data.len_bytes.to_be_bytes());
    command.transfer = Transfer::ToHost(data);
    command
}

#[inline]
fn ten_or_sixteen(opcodes: [u8; 2], extent: Extent) -> [u8; 16] {
    let (Ok(lba), Ok(blocks)) = (u32::try_from(extent.lba.0), u16::try_from(extent.blocks.0))
    else {
        return sixteen(opcodes[1], extent);
    };
    let mut cdb = [0; 16];
    cdb[0] = opcodes[0];
    cdb[2..6].copy_from_slice(&lba.to_be_bytes());
    cdb[7..9].copy_from_slice(&blocks.to_be_bytes());
    cdb
}

fn sixteen(opcode: u8, extent: Extent) -> [u8; 16] {
    let mut cdb = [0; 16];
    cdb[0] = opcode;
    cdb[2..10].copy_from_slice(&extent.lba.0.to_be_bytes());
    cdb[10..14].copy_from_slice(&(extent.blocks.0 as u32).to_be_bytes());
    cdb
}

fn without_data<const N: usize>(bytes: [u8; N]) -> Command {
    let mut cdb = [0; 16];
    cdb[..N].copy_from_slice(&bytes);
    Command {
        cdb,
        transfer: Transfer::None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use block::{Blocks, Lba};

    const DATA: BufferRange = BufferRange::first(0, 4096);

    #[test]
    fn golden_reads_of_both_lengths() {
        let near = Extent::new(Lba(0x0102_0304), Blocks(0x0506));
        let ten = [0x28, 0, 1, 2, 3, 4, 0, 5, 6, 0, 0, 0, 0, 0, 0, 0];
        assert_eq!(read(near, DATA).cdb, ten);
        let far = Extent::new(Lba(0x0001_0203_0405_0607), Blocks(8));
        let sixteen = [0x88, 0, 0, 1, 2, 3, 4, 5, 6, 7, 0, 0, 0, 8, 0, 0];
        assert_eq!(read(far, DATA).cdb, sixteen);
        assert_eq!(write_durable(near, DATA).cdb[..2], [0x2A, 0x08]);
        assert_eq!(write_durable(far, DATA).cdb[..2], [0x8A, 0x08]);
        let long = Extent::new(Lba(1), Blocks(0x1_0000));
        assert_eq!(write(long, DATA).cdb[..2], [0x8A, 0]);
        assert_eq!(write(long, DATA).cdb[10..14], [0, 1, 0, 0]);
    }

    #[test]
    fn golden_unmap() {
        let mut list = [0xFF; UNMAP_LIST_BYTES];
        let extent = Extent::new(Lba(0x1_0000), Blocks(2));
        let command = unmap(extent, BufferRange::first(0, 24), &mut list);
        assert_eq!(command.cdb[..9], [0x42, 0, 0, 0, 0, 0, 0, 0, 24]);
        let want = [
            0, 22, 0, 16, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0,
        ];
        assert_eq!(list, want);
    }

    #[test]
    fn golden_write_same_and_compare_and_write() {
        let extent = Extent::new(Lba(5), Blocks(3));
        assert_eq!(
            write_zeroes(extent, Unmap::Allowed, DATA).cdb,
            [0x93, 8, 0, 0, 0, 0, 0, 0, 0, 5, 0, 0, 0, 3, 0, 0]
        );
        assert_eq!(write_zeroes(extent, Unmap::Forbidden, DATA).cdb[1], 0);
        assert_eq!(
            compare_and_write(extent, DATA).cdb,
            [0x89, 0, 0, 0, 0, 0, 0, 0, 0, 5, 0, 0, 0, 3, 0, 0]
        );
        assert_eq!(compare(extent, DATA).cdb[..2], [0x8F, 2]);
    }
}
