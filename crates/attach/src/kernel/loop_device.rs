//! Loop devices: a block device on a file. Read first: include/uapi/linux/loop.h.

#![expect(
    unsafe_code,
    reason = "ioctl has no safe interface; each call's argument lives until it returns"
)]

use std::fs::{File, OpenOptions};
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;
use rustix::io::Errno;
use rustix::ioctl::{IntegerSetter, Setter, ioctl};

const LOOP_CLR_FD: u32 = 0x4c01;
const LOOP_SET_CAPACITY: u32 = 0x4c07;
const LOOP_CONFIGURE: u32 = 0x4c0a;
const LOOP_CTL_GET_FREE: u32 = 0x4c82;

/// LO_FLAGS_READ_ONLY.
const READ_ONLY: u32 = 1;
/// LO_FLAGS_PARTSCAN: partitions get devices of their own.
const PARTITIONS: u32 = 8;
/// LO_FLAGS_DIRECT_IO: the page cache of the file is not used.
const DIRECT_IO: u32 = 16;

/// How often another program may take the free device before this one does.
const ATTEMPTS_MAX: usize = 16;

/// `struct loop_config`: the file, the block size, `struct loop_info64`, reserved fields.
#[repr(C)]
struct Config {
    file: u32,
    block_bytes: u32,
    /// lo_device, lo_inode, lo_rdevice, lo_offset, lo_sizelimit: zero.
    place: [u64; 5],
    number: u32,
    encrypt: [u32; 2],
    flags: u32,
    file_name: [u8; 64],
    crypt_name: [u8; 64],
    crypt_key: [u8; 32],
    init: [u64; 2],
    reserved: [u64; 8],
}

const _: () = assert!(size_of::<Config>() == 304);
const _: () = assert!(std::mem::offset_of!(Config, flags) == 60);

/// Whether the disk may be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    ReadWrite,
    ReadOnly,
}

/// Why a loop device could not be made or removed.
#[derive(Debug)]
pub(crate) enum LoopError {
    /// Something has it open: a mount, or another program.
    Busy,
    System(std::io::Error),
}

impl From<Errno> for LoopError {
    fn from(error: Errno) -> Self {
        Self::System(error.into())
    }
}

impl From<std::io::Error> for LoopError {
    fn from(error: std::io::Error) -> Self {
        Self::System(error)
    }
}

/// Puts a loop device on `file` and returns its path.
pub(crate) fn create(
    file: &File,
    name: &str,
    block_bytes: u32,
    access: Access,
) -> Result<PathBuf, LoopError> {
    let control = File::options()
        .read(true)
        .write(true)
        .open("/dev/loop-control")?;
    let mut last = Errno::BUSY;
    for _ in 0..ATTEMPTS_MAX {
        let number = free_number(&control)?;
        let path = PathBuf::from(format!("/dev/loop{number}"));
        let device = File::options().read(true).write(true).open(&path)?;
        match configure(&device, file, name, block_bytes, access) {
            Ok(()) => return Ok(path),
            Err(Errno::BUSY) => last = Errno::BUSY,
            Err(error) => return Err(error.into()),
        }
    }
    Err(last.into())
}

/// A free device's number.
struct GetFree;

// SAFETY: LOOP_CTL_GET_FREE takes no argument and returns the number.
unsafe impl rustix::ioctl::Ioctl for GetFree {
    type Output = i32;
    const IS_MUTATING: bool = false;

    fn opcode(&self) -> rustix::ioctl::Opcode {
        LOOP_CTL_GET_FREE
    }

    fn as_ptr(&mut self) -> *mut std::ffi::c_void {
        std::ptr::null_mut()
    }

    unsafe fn output_from_ptr(
        number: rustix::ioctl::IoctlOutput,
        _: *mut std::ffi::c_void,
    ) -> rustix::io::Result<i32> {
        Ok(number)
    }
}

fn free_number(control: &File) -> Result<i32, Errno> {
    // SAFETY: the call has no argument.
    unsafe { ioctl(control, GetFree) }
}

fn configure(
    device: &File,
    file: &File,
    name: &str,
    block_bytes: u32,
    access: Access,
) -> Result<(), Errno> {
    let mut file_name = [0; 64];
    // The last byte stays zero.
    for (to, from) in file_name[..63].iter_mut().zip(name.bytes()) {
        *to = from;
    }
    let read_only = match access {
        Access::ReadWrite => 0,
        Access::ReadOnly => READ_ONLY,
    };
    let config = Config {
        file: file.as_raw_fd().cast_unsigned(),
        block_bytes,
        place: [0; 5],
        number: 0,
        encrypt: [0; 2],
        flags: DIRECT_IO | PARTITIONS | read_only,
        file_name,
        crypt_name: [0; 64],
        crypt_key: [0; 32],
        init: [0; 2],
        reserved: [0; 8],
    };
    // SAFETY: LOOP_CONFIGURE reads one `struct loop_config`, whose layout `Config` has.
    unsafe { ioctl(device, Setter::<LOOP_CONFIGURE, Config>::new(config)) }
}

/// Tells the device that its file has another size.
pub(crate) fn update_size(device: &Path) -> Result<(), LoopError> {
    let device = File::open(device)?;
    set::<LOOP_SET_CAPACITY>(&device)?;
    Ok(())
}

/// Opens the device for this caller alone: fails with [`LoopError::Busy`] if it is in use.
pub(crate) fn open_unused(device: &Path) -> Result<File, LoopError> {
    let exclusive = OFlags::EXCL.bits().cast_signed();
    let opened = OpenOptions::new()
        .read(true)
        .custom_flags(exclusive)
        .open(device);
    opened.map_err(|error| match Errno::from_io_error(&error) {
        Some(Errno::BUSY) => LoopError::Busy,
        _ => LoopError::System(error),
    })
}

/// Removes the device from its file, if it is not in use.
pub(crate) fn remove(device: &Path) -> Result<(), LoopError> {
    let device = open_unused(device)?;
    set::<LOOP_CLR_FD>(&device)?;
    Ok(())
}

/// A request without an argument.
fn set<const OPCODE: u32>(device: &File) -> Result<(), Errno> {
    // SAFETY: LOOP_CLR_FD and LOOP_SET_CAPACITY ignore their argument.
    unsafe { ioctl(device, IntegerSetter::<OPCODE>::new_usize(0)) }
}
