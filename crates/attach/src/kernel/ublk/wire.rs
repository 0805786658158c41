//! Structures and numbers of the kernel's interface. Read first: include/uapi/linux/ublk_cmd.h of
//! Linux 6.12.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Commands to `/dev/ublk-control`: the number of an ioctl with `struct ublksrv_ctrl_cmd`.
pub(super) mod control {
    const fn command(direction: u32, number: u32) -> u32 {
        direction << 30 | (size_of::<super::ControlCommand>() as u32) << 16 | 0x75 << 8 | number
    }
    const READ: u32 = 2;
    const READ_WRITE: u32 = 3;

    pub(crate) const GET_DEVICE: u32 = command(READ, 0x02);
    pub(crate) const ADD_DEVICE: u32 = command(READ_WRITE, 0x04);
    pub(crate) const DELETE_DEVICE: u32 = command(READ_WRITE, 0x05);
    pub(crate) const START_DEVICE: u32 = command(READ_WRITE, 0x06);
    pub(crate) const STOP_DEVICE: u32 = command(READ_WRITE, 0x07);
    pub(crate) const SET_PARAMETERS: u32 = command(READ_WRITE, 0x08);
}

/// Commands to a device's queue, with `struct ublksrv_io_cmd`.
pub(super) mod queue {
    const fn command(number: u32) -> u32 {
        3 << 30 | (size_of::<super::QueueCommand>() as u32) << 16 | 0x75 << 8 | number
    }

    /// Take a request.
    pub(crate) const FETCH: u32 = command(0x20);
    /// Answer a request, and take the next one.
    pub(crate) const COMMIT_AND_FETCH: u32 = command(0x21);
}

/// `struct ublksrv_ctrl_cmd`.
#[derive(Clone, Copy, Debug, IntoBytes, Immutable)]
#[repr(C)]
pub(super) struct ControlCommand {
    pub(super) id: u32,
    /// All ones: no queue.
    pub(super) queue: u16,
    pub(super) len: u16,
    pub(super) address: u64,
    pub(super) data: u64,
    pub(super) path_len: u16,
    pub(super) padding: u16,
    pub(super) reserved: u32,
}

/// `struct ublksrv_ctrl_dev_info`.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
pub(super) struct DeviceInfo {
    pub(super) queues: u16,
    pub(super) depth: u16,
    pub(super) state: u16,
    pub(super) padding: u16,
    pub(super) transfer_bytes_max: u32,
    pub(super) id: u32,
    pub(super) pid: i32,
    pub(super) padding_2: u32,
    pub(super) flags: u64,
    pub(super) own_flags: u64,
    pub(super) owner_uid: u32,
    pub(super) owner_gid: u32,
    pub(super) reserved: [u64; 2],
}

/// UBLK_F_USER_COPY: data are moved by reads and writes of the queue's file.
pub(super) const USER_COPY: u64 = 1 << 7;
/// UBLK_S_DEV_DEAD.
pub(super) const DEAD: u16 = 0;
/// A number for a new device that the kernel chooses.
pub(super) const ANY: u32 = u32::MAX;

/// `struct ublk_params` with what is used of it: UBLK_PARAM_TYPE_BASIC and UBLK_PARAM_TYPE_DISCARD.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
pub(super) struct Parameters {
    pub(super) len: u32,
    pub(super) types: u32,
    pub(super) attributes: u32,
    pub(super) logical_block_shift: u8,
    pub(super) physical_block_shift: u8,
    pub(super) optimal_io_shift: u8,
    pub(super) minimal_io_shift: u8,
    pub(super) sectors_max: u32,
    pub(super) chunk_sectors: u32,
    pub(super) sectors: u64,
    pub(super) virtual_boundary_mask: u64,
    pub(super) discard_alignment: u32,
    pub(super) discard_granularity: u32,
    pub(super) discard_sectors_max: u32,
    pub(super) zeroes_sectors_max: u32,
    pub(super) discard_segments_max: u16,
    pub(super) reserved: u16,
    pub(super) padding: u32,
}

/// Bits of [`Parameters::types`].
pub(super) const BASIC: u32 = 1;
pub(super) const DISCARD: u32 = 2;
/// Bits of [`Parameters::attributes`].
pub(super) const READ_ONLY: u32 = 1;
pub(super) const VOLATILE_CACHE: u32 = 4;

/// `struct ublksrv_io_cmd`.
#[derive(Clone, Copy, Debug, IntoBytes, Immutable)]
#[repr(C)]
pub(super) struct QueueCommand {
    pub(super) queue: u16,
    pub(super) tag: u16,
    pub(super) result: i32,
    /// Zero: data are moved by reads and writes.
    pub(super) address: u64,
}

/// `struct ublksrv_io_desc`: a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, KnownLayout)]
#[repr(C)]
pub(super) struct Descriptor {
    /// Bits 0 to 7: the operation.
    pub(super) operation: u32,
    pub(super) sectors: u32,
    pub(super) first_sector: u64,
    pub(super) address: u64,
}

/// Operations of [`Descriptor`].
pub(super) mod operation {
    pub(crate) const READ: u32 = 0;
    pub(crate) const WRITE: u32 = 1;
    pub(crate) const FLUSH: u32 = 2;
    pub(crate) const DISCARD: u32 = 3;
    pub(crate) const WRITE_ZEROES: u32 = 5;
    /// UBLK_IO_F_NOUNMAP: zeroed blocks stay allocated.
    pub(crate) const NO_UNMAP: u32 = 1 << 15;
}

/// Where the data of the first request begin in the queue's file: UBLKSRV_IO_BUF_OFFSET.
pub(super) const DATA_OFFSET: u64 = 0x8000_0000;
/// Bits of an offset below the tag: UBLK_IO_BUF_BITS.
pub(super) const DATA_BITS: u32 = 25;

pub(super) const SECTOR_SHIFT: u32 = 9;

const _: () = assert!(size_of::<ControlCommand>() == 32);
const _: () = assert!(size_of::<DeviceInfo>() == 64);
const _: () = assert!(size_of::<QueueCommand>() == 16);
const _: () = assert!(size_of::<Descriptor>() == 24);
const _: () = assert!(std::mem::offset_of!(Parameters, sectors) == 24);
const _: () = assert!(std::mem::offset_of!(Parameters, discard_segments_max) == 56);

#[cfg(test)]
mod tests {
    use super::*;

    /// As the kernel's header computes them.
    #[test]
    fn commands_have_the_numbers_of_the_kernel() {
        assert_eq!(control::GET_DEVICE, 0x8020_7502);
        assert_eq!(control::ADD_DEVICE, 0xc020_7504);
        assert_eq!(queue::FETCH, 0xc010_7520);
        assert_eq!(queue::COMMIT_AND_FETCH, 0xc010_7521);
    }
}
