//! Commands that touch the medium: what a CDB requests, checked, and its execution on a volume.
//!
//! Read first: SBC-4, "Direct access block commands".

mod execution;
mod pieces;

use block::{BlockSize, Blocks, DataUse, Extent, Geometry, Lba, OpKind, Persistence, Unmap};

use crate::opcodes::Name;
use crate::sense::{Asc, Sense};

pub use self::execution::{Execution, unmapped, unmapped_inside};
pub use self::pieces::Transfer;

/// The most blocks that one READ, WRITE or VERIFY covers (MAXIMUM TRANSFER LENGTH), in bytes.
pub const TRANSFER_LEN_BYTES_MAX: u64 = 4 << 20;
/// The most blocks of COMPARE AND WRITE (MAXIMUM COMPARE AND WRITE LENGTH).
pub const COMPARE_AND_WRITE_BLOCKS_MAX: u8 = 128;
/// The most bytes that one WRITE SAME fills (MAXIMUM WRITE SAME LENGTH); discarding has no such
/// limit. libiscsi's suite expects that one command can write and read as much if this is 65536
/// blocks or more.
pub const WRITE_SAME_LEN_BYTES_MAX: u64 = 16 << 20;
/// The most block descriptors of UNMAP.
pub const UNMAP_DESCRIPTORS_MAX: usize = 256;

/// A medium command, parsed and checked against the volume's geometry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Medium {
    /// Data-in straight from the volume.
    Read(Extent),
    /// Data-out straight into the volume, block by block as they arrive.
    Write(Extent),
    /// Data-out is compared with the volume after all of it has arrived.
    VerifyData(Extent, VerifyMode),
    /// The blocks can be read; nothing more.
    VerifyMedium(Extent),
    /// Data-out holds the blocks to compare and then the blocks to write.
    CompareAndWrite(Extent),
    /// Data-out is or-ed into the blocks.
    OrWrite(Extent),
    /// One block of data-out, or none if `zeros`, fills the extent.
    WriteSame {
        /// What is filled.
        extent: Extent,
        /// Whether blocks may lose their memory.
        unmap: Unmap,
        /// NDOB: no data come, blocks become zeros.
        zeros: bool,
    },
    /// Data-out lists what to discard.
    Unmap {
        /// PARAMETER LIST LENGTH.
        len_bytes: u16,
    },
    /// All blocks become zeros; a thin volume frees their memory. Without blocks: EXIT FAILURE
    /// MODE, which has no effect.
    Sanitize(Extent),
    /// The blocks that are brought into memory: a volume in RAM has nothing to do.
    PreFetch(Extent),
    /// Make durable.
    SynchronizeCache,
}

/// What VERIFY compares data-out with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VerifyMode {
    /// Each block with its own (BYTCHK 01b).
    EachBlock,
    /// All blocks with the one that comes (BYTCHK 11b).
    OneBlock,
}

impl Medium {
    /// Bytes of data-out that the command takes.
    pub fn data_out_len(&self, block_size: BlockSize) -> u64 {
        let bytes = |extent: &Extent| extent.blocks.0 << block_size.shift();
        match self {
            Self::Write(extent)
            | Self::OrWrite(extent)
            | Self::VerifyData(extent, VerifyMode::EachBlock) => bytes(extent),
            Self::VerifyData(extent, VerifyMode::OneBlock) => {
                block_size.bytes() * u64::from(extent.blocks.0 > 0)
            }
            Self::CompareAndWrite(extent) => 2 * bytes(extent),
            Self::WriteSame { zeros: false, .. } => block_size.bytes(),
            Self::Unmap { len_bytes } => u64::from(*len_bytes),
            Self::Read(_)
            | Self::VerifyMedium(_)
            | Self::WriteSame { zeros: true, .. }
            | Self::Sanitize(_)
            | Self::PreFetch(_)
            | Self::SynchronizeCache => 0,
        }
    }

    /// The blocks that the command touches, where its CDB names them.
    pub const fn extent(&self) -> Option<Extent> {
        match *self {
            Self::Read(extent)
            | Self::Write(extent)
            | Self::VerifyData(extent, _)
            | Self::VerifyMedium(extent)
            | Self::CompareAndWrite(extent)
            | Self::OrWrite(extent)
            | Self::WriteSame { extent, .. }
            | Self::Sanitize(extent)
            | Self::PreFetch(extent) => Some(extent),
            Self::Unmap { .. } | Self::SynchronizeCache => None,
        }
    }

    /// The kind of operation for filters and statistics.
    pub const fn op_kind(&self) -> OpKind {
        match self {
            Self::Read(_) | Self::VerifyData(..) | Self::VerifyMedium(_) | Self::PreFetch(_) => {
                OpKind::Read
            }
            Self::Unmap { .. } | Self::Sanitize(_) => OpKind::Discard,
            Self::SynchronizeCache => OpKind::Flush,
            Self::Write(_)
            | Self::CompareAndWrite(_)
            | Self::OrWrite(_)
            | Self::WriteSame { .. } => OpKind::Write,
        }
    }

    /// What the command does with the contents of its blocks.
    pub const fn data_use(&self) -> DataUse {
        match self {
            Self::Read(_) | Self::VerifyData(..) => DataUse::Read,
            Self::VerifyMedium(_) | Self::PreFetch(_) => DataUse::Verify,
            Self::CompareAndWrite(_) | Self::OrWrite(_) => DataUse::Modify,
            // Whether the block of a WRITE SAME is one of zeros is known when it arrives.
            Self::Write(_) | Self::WriteSame { zeros: false, .. } => DataUse::Overwrite,
            Self::WriteSame { zeros: true, .. } | Self::Unmap { .. } | Self::Sanitize(_) => {
                DataUse::Erase
            }
            Self::SynchronizeCache => DataUse::Flush,
        }
    }

    /// Bytes of data-in that the command returns.
    pub fn data_in_len(&self, block_size: BlockSize) -> u64 {
        match self {
            Self::Read(extent) => extent.blocks.0 << block_size.shift(),
            _ => 0,
        }
    }
}

/// LBA and length fields of the read-like CDBs of all four lengths.
struct Fields {
    lba: u64,
    blocks: u64,
    /// The byte where the length field begins.
    length_at: u16,
}

fn fields(cdb: &[u8; 16]) -> Fields {
    let be32 = |at: usize| u32::from_be_bytes([cdb[at], cdb[at + 1], cdb[at + 2], cdb[at + 3]]);
    match cdb[0] >> 5 {
        0 => Fields {
            lba: u64::from(be32(0) & 0x001F_FFFF),
            // READ (6) and WRITE (6): 0 stands for 256 blocks.
            blocks: if cdb[4] == 0 { 256 } else { u64::from(cdb[4]) },
            length_at: 4,
        },
        1 | 2 => Fields {
            lba: u64::from(be32(2)),
            blocks: u64::from(u16::from_be_bytes([cdb[7], cdb[8]])),
            length_at: 7,
        },
        5 => Fields {
            lba: u64::from(be32(2)),
            blocks: u64::from(be32(6)),
            length_at: 6,
        },
        _ => Fields {
            lba: u64::from(be32(2)) << 32 | u64::from(be32(6)),
            blocks: u64::from(be32(10)),
            length_at: 10,
        },
    }
}

/// FUA (SBC-4, "READ (10) command"): bit 3 of byte 1 in the CDBs that have it.
pub const fn persistence(cdb: &[u8; 16]) -> Persistence {
    const FUA: u8 = 0x08;
    match cdb[0] {
        // READ and WRITE (10), (12), (16), COMPARE AND WRITE, ORWRITE (16).
        0x28 | 0x2A | 0xA8 | 0xAA | 0x88 | 0x8A | 0x89 | 0x8B if cdb[1] & FUA != 0 => {
            Persistence::Durable
        }
        // WRITE AND VERIFY (10), (12), (16): what is verified is on the medium.
        0x2E | 0xAE | 0x8E => Persistence::Durable,
        _ => Persistence::Volatile,
    }
}

/// The fast path of plain READs and WRITEs, which a transport uses while a [`crate::View`] permits
/// it; `None` for every other command.
pub fn plain_transfer(cdb: &[u8; 16], geometry: Geometry) -> Option<Result<Medium, Sense>> {
    let name = match cdb[0] {
        0x08 | 0x28 | 0x88 | 0xA8 => Name::Read,
        0x0A | 0x2A | 0x8A | 0xAA => Name::Write,
        _ => return None,
    };
    Some(parse(name, cdb, geometry))
}

/// Parses the CDB of a medium command and checks it against `geometry`.
pub(crate) fn parse(name: Name, cdb: &[u8; 16], geometry: Geometry) -> Result<Medium, Sense> {
    let mut fields = fields(cdb);
    let six = cdb[0] >> 5 == 0;
    if name == Name::Sanitize {
        return parse_sanitize(cdb, geometry);
    }
    if !six && name != Name::Unmap {
        check_protect(name, cdb)?;
    }
    match name {
        Name::CompareAndWrite => {
            fields.blocks = u64::from(cdb[13]);
            fields.length_at = 13;
        }
        Name::Unmap => {
            if cdb[1] & 1 != 0 {
                return Err(Sense::invalid_cdb_bit(1, 0)); // ANCHOR: no anchored blocks here.
            }
            return Ok(Medium::Unmap {
                len_bytes: u16::from_be_bytes([cdb[7], cdb[8]]),
            });
        }
        _ => {}
    }
    let extent = Extent::new(Lba(fields.lba), Blocks(fields.blocks));
    match name {
        Name::Read => transfer(extent, &fields, geometry).map(Medium::Read),
        Name::Write => transfer(extent, &fields, geometry).map(Medium::Write),
        Name::WriteAndVerify => match bytchk(cdb) {
            0 | 1 => transfer(extent, &fields, geometry).map(Medium::Write),
            _ => Err(Sense::invalid_cdb_bit(1, 2)),
        },
        Name::OrWrite16 => transfer(extent, &fields, geometry).map(Medium::OrWrite),
        Name::Verify => parse_verify(extent, &fields, cdb, geometry),
        Name::CompareAndWrite => {
            if cdb[13] > COMPARE_AND_WRITE_BLOCKS_MAX {
                return Err(Sense::invalid_cdb_field(fields.length_at));
            }
            in_range(extent, geometry).map(Medium::CompareAndWrite)
        }
        Name::WriteSame => parse_write_same(extent, &fields, cdb, geometry),
        Name::PreFetch => parse_pre_fetch(extent, geometry),
        Name::SynchronizeCache => to_the_end(extent, geometry).map(|_| Medium::SynchronizeCache),
        other => unreachable!("{other:?} is not a medium command; dispatch sends only those here"),
    }
}

/// RDPROTECT, WRPROTECT, VRPROTECT and ORPROTECT must be 0: volumes have no protection information.
fn check_protect(name: Name, cdb: &[u8; 16]) -> Result<(), Sense> {
    let has_field = !matches!(name, Name::PreFetch | Name::SynchronizeCache);
    if has_field && cdb[1] & 0xE0 != 0 {
        return Err(Sense::invalid_cdb_bit(1, 7));
    }
    Ok(())
}

fn in_range(extent: Extent, geometry: Geometry) -> Result<Extent, Sense> {
    match geometry.byte_range(extent) {
        // An extent of no blocks must begin inside too (SBC-4, LBA out of range conditions).
        Ok(_) if extent.blocks.0 > 0 || extent.lba.0 <= geometry.blocks.0 => Ok(extent),
        _ => Err(Sense::illegal(Asc::LBA_OUT_OF_RANGE)),
    }
}

fn transfer(extent: Extent, fields: &Fields, geometry: Geometry) -> Result<Extent, Sense> {
    let extent = in_range(extent, geometry)?;
    if extent.blocks.0 << geometry.block_size.shift() > TRANSFER_LEN_BYTES_MAX {
        return Err(Sense::invalid_cdb_field(fields.length_at));
    }
    Ok(extent)
}

/// An extent whose length 0 means "up to the last block".
fn to_the_end(extent: Extent, geometry: Geometry) -> Result<Extent, Sense> {
    let extent = in_range(extent, geometry)?;
    let left = Blocks(geometry.blocks.0 - extent.lba.0);
    Ok(if extent.blocks.0 == 0 {
        Extent::new(extent.lba, left)
    } else {
        extent
    })
}

fn bytchk(cdb: &[u8; 16]) -> u8 {
    cdb[1] >> 1 & 3
}

fn parse_verify(
    extent: Extent,
    fields: &Fields,
    cdb: &[u8; 16],
    geometry: Geometry,
) -> Result<Medium, Sense> {
    match bytchk(cdb) {
        0 => transfer(extent, fields, geometry).map(Medium::VerifyMedium),
        1 => transfer(extent, fields, geometry)
            .map(|extent| Medium::VerifyData(extent, VerifyMode::EachBlock)),
        3 => transfer(extent, fields, geometry)
            .map(|extent| Medium::VerifyData(extent, VerifyMode::OneBlock)),
        _ => Err(Sense::invalid_cdb_bit(1, 2)),
    }
}

/// A volume need not have room in memory for all blocks that an initiator wants to have there: of
/// many, the first are fetched, as many as one READ moves. GOOD instead of CONDITION MET says that
/// others may not be there.
fn parse_pre_fetch(extent: Extent, geometry: Geometry) -> Result<Medium, Sense> {
    let extent = to_the_end(extent, geometry)?;
    let blocks_max = TRANSFER_LEN_BYTES_MAX >> geometry.block_size.shift();
    let blocks = Blocks(extent.blocks.0.min(blocks_max));
    Ok(Medium::PreFetch(Extent::new(extent.lba, blocks)))
}

fn parse_write_same(
    extent: Extent,
    fields: &Fields,
    cdb: &[u8; 16],
    geometry: Geometry,
) -> Result<Medium, Sense> {
    let unmap = cdb[1] & 0x08 != 0;
    let anchor = cdb[1] & 0x10 != 0;
    let zeros = cdb[0] == 0x93 && cdb[1] & 0x01 != 0;
    if anchor {
        return Err(Sense::invalid_cdb_bit(1, 4));
    }
    if cdb[0] == 0x41 && cdb[1] & 0x07 != 0 {
        return Err(Sense::invalid_cdb_bit(1, 2)); // LBDATA, PBDATA: obsolete.
    }
    // WSNZ of the block limits page is 1: a length of 0 ("up to the end") is refused.
    if extent.blocks.0 == 0 {
        in_range(extent, geometry)?;
        return Err(Sense::invalid_cdb_field(fields.length_at));
    }
    let extent = in_range(extent, geometry)?;
    if extent.blocks.0 << geometry.block_size.shift() > WRITE_SAME_LEN_BYTES_MAX {
        return Err(Sense::invalid_cdb_field(fields.length_at));
    }
    let unmap = if unmap {
        Unmap::Allowed
    } else {
        Unmap::Forbidden
    };
    Ok(Medium::WriteSame {
        extent,
        unmap,
        zeros,
    })
}

/// SANITIZE: a RAM volume erases its contents by any method. OVERWRITE is not supported, because
/// freed memory cannot be overwritten.
fn parse_sanitize(cdb: &[u8; 16], geometry: Geometry) -> Result<Medium, Sense> {
    const EXIT_FAILURE_MODE: u8 = 0x1F;
    // ZNR is for zoned devices alone; what follows is reserved, and no parameter list is taken.
    if cdb[1] & 0x40 != 0 {
        return Err(Sense::invalid_cdb_bit(1, 6));
    }
    if let Some(at) = (2..9).find(|&at| cdb[at] != 0) {
        return Err(Sense::invalid_cdb_field(at as u16));
    }
    let blocks = match cdb[1] & 0x1F {
        EXIT_FAILURE_MODE => Blocks(0),
        _ => geometry.blocks,
    };
    Ok(Medium::Sanitize(Extent::new(Lba(0), blocks)))
}

/// The extent of `len_bytes` bytes at `offset_bytes` of a transfer of `extent`; whole blocks.
pub fn piece(extent: Extent, block_size: BlockSize, offset_bytes: u64, len_bytes: u64) -> Extent {
    let shift = block_size.shift();
    Extent::new(
        Lba(extent.lba.0 + (offset_bytes >> shift)),
        Blocks(len_bytes >> shift),
    )
}

#[cfg(test)]
mod tests;
