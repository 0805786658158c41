//! Devices of ublk: made, started, stopped and deleted by `/dev/ublk-control`.

#![expect(
    unsafe_code,
    reason = "commands of io_uring; each one's argument lives until it is completed"
)]

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use block::Geometry;
use io_uring::types::{Fd, SubmitArgs, Timespec};
use io_uring::{IoUring, cqueue, opcode, squeue};
use rustix::io::Errno;
use zerocopy::{FromZeros as _, IntoBytes as _};

use super::wire::{self, ControlCommand, DeviceInfo, Parameters, control};

/// How long the kernel may take to start or stop a device.
const TIMEOUT: Duration = Duration::from_secs(60);
/// How the names of devices begin, before their numbers.
const NAME: &str = "/dev/ublkb";

/// What a device is made for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    pub(crate) geometry: Geometry,
    pub(crate) is_read_only: bool,
    /// Whether blocks can be zeroed without writing zeros.
    pub(crate) has_zeroes: bool,
    /// Requests at a time.
    pub(crate) depth: u16,
    /// The most bytes of a request: a multiple of a page.
    pub(crate) transfer_bytes_max: u32,
}

/// A device of this process, which is deleted when this is dropped.
#[derive(Debug)]
pub(crate) struct UblkDevice {
    control: Control,
    id: u32,
}

impl UblkDevice {
    /// Whether this kernel has ublk.
    pub(crate) fn is_available() -> bool {
        Path::new("/dev/ublk-control").exists()
    }

    /// Makes a device, which has no block device yet.
    ///
    /// # Errors
    /// If the kernel refuses, or cannot move data by reads and writes (before Linux 6.5).
    pub(crate) fn add(shape: &Shape) -> io::Result<Self> {
        let mut control = Control::open()?;
        let mut info = DeviceInfo::new_zeroed();
        info.queues = 1;
        info.depth = shape.depth;
        info.transfer_bytes_max = shape.transfer_bytes_max;
        info.id = wire::ANY;
        info.flags = wire::USER_COPY;
        control.exchange(control::ADD_DEVICE, wire::ANY, info.as_mut_bytes())?;
        let mut device = Self {
            control,
            id: info.id,
        };
        if info.flags & wire::USER_COPY == 0 {
            return Err(io::ErrorKind::Unsupported.into());
        }
        let mut parameters = parameters(shape);
        let bytes = parameters.as_mut_bytes();
        device
            .control
            .exchange(control::SET_PARAMETERS, device.id, bytes)?;
        Ok(device)
    }

    /// The file of its queue.
    ///
    /// # Errors
    /// If it cannot be opened.
    pub(crate) fn open_queue(&self) -> io::Result<File> {
        let path = format!("/dev/ublkc{}", self.id);
        File::options().read(true).write(true).open(path)
    }

    /// Makes the block device, whose requests are served from now on.
    ///
    /// # Errors
    /// If the kernel refuses, or nobody serves its queue.
    pub(crate) fn start(&mut self) -> io::Result<PathBuf> {
        let pid = rustix::process::getpid().as_raw_nonzero().get();
        let pid = u64::from(pid.cast_unsigned());
        self.control.command(control::START_DEVICE, self.id, pid)?;
        Ok(PathBuf::from(format!("{NAME}{}", self.id)))
    }

    /// Removes the block device, and ends the service of its queue.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub(crate) fn stop(&mut self) -> io::Result<()> {
        self.control.command(control::STOP_DEVICE, self.id, 0)
    }
}

impl Drop for UblkDevice {
    fn drop(&mut self) {
        // What stays is deleted when the disk's name is used again, or with the module.
        let _ = self.control.command(control::DELETE_DEVICE, self.id, 0);
    }
}

/// Deletes the device behind `path` if it is one of ublk that the process `pid`, which is gone,
/// has left.
///
/// # Errors
/// If the kernel refuses.
pub(crate) fn delete_left(path: &Path, pid: i32) -> io::Result<()> {
    let number = path.to_str().and_then(|path| path.strip_prefix(NAME));
    let Some(id) = number.and_then(|number| number.parse().ok()) else {
        return Ok(());
    };
    if !UblkDevice::is_available() {
        return Ok(());
    }
    let mut control = Control::open()?;
    let mut info = DeviceInfo::new_zeroed();
    match control.exchange(control::GET_DEVICE, id, info.as_mut_bytes()) {
        Err(error) if Errno::from_io_error(&error) == Some(Errno::NODEV) => return Ok(()),
        result => result?,
    }
    if info.pid == pid || info.state == wire::DEAD {
        control.command(control::DELETE_DEVICE, id, 0)?;
    }
    Ok(())
}

fn parameters(shape: &Shape) -> Parameters {
    /// Of one request to discard or to zero, which is carried out in pieces.
    const ZEROED_SECTORS_MAX: u32 = 1 << 21;
    let shift = shape.geometry.block_size.shift();
    let zeroes = if shape.has_zeroes && !shape.is_read_only {
        ZEROED_SECTORS_MAX
    } else {
        0
    };
    Parameters {
        len: size_of::<Parameters>() as u32,
        types: wire::BASIC | wire::DISCARD,
        attributes: wire::VOLATILE_CACHE | (u32::from(shape.is_read_only) * wire::READ_ONLY),
        logical_block_shift: shift as u8,
        physical_block_shift: shift as u8,
        optimal_io_shift: 0,
        minimal_io_shift: shift as u8,
        sectors_max: shape.transfer_bytes_max >> wire::SECTOR_SHIFT,
        chunk_sectors: 0,
        sectors: shape.geometry.len_bytes() >> wire::SECTOR_SHIFT,
        virtual_boundary_mask: 0,
        discard_alignment: 0,
        discard_granularity: 1 << shift,
        discard_sectors_max: zeroes,
        zeroes_sectors_max: zeroes,
        discard_segments_max: 1,
        reserved: 0,
        padding: 0,
    }
}

/// `/dev/ublk-control`. Its commands are entries of io_uring with 128 bytes.
struct Control {
    ring: IoUring<squeue::Entry128, cqueue::Entry>,
    device: File,
}

impl std::fmt::Debug for Control {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Control")
            .field("device", &self.device)
            .finish_non_exhaustive()
    }
}

impl Control {
    fn open() -> io::Result<Self> {
        let mut options = File::options();
        let device = options.read(true).write(true).open("/dev/ublk-control")?;
        let ring = IoUring::builder().build(4)?;
        Ok(Self { ring, device })
    }

    /// A command with a structure that the kernel reads, and writes if the command says so.
    fn exchange(&mut self, command: u32, id: u32, bytes: &mut [u8]) -> io::Result<()> {
        let argument = ControlCommand {
            len: bytes.len() as u16,
            address: bytes.as_mut_ptr() as u64,
            ..no_argument(id)
        };
        // SAFETY: the kernel uses `bytes` until the command is completed, which is waited for
        // without a limit: these commands wait for nothing.
        unsafe { self.carry_out(command, &argument, None) }
    }

    /// A command with a number.
    fn command(&mut self, command: u32, id: u32, data: u64) -> io::Result<()> {
        let argument = ControlCommand {
            data,
            ..no_argument(id)
        };
        // SAFETY: it has no address.
        unsafe { self.carry_out(command, &argument, Some(TIMEOUT)) }
    }

    /// # Safety
    /// The memory that `argument` has the address of is the kernel's until this returns; there is
    /// no such memory if there is a limit.
    unsafe fn carry_out(
        &mut self,
        command: u32,
        argument: &ControlCommand,
        limit: Option<Duration>,
    ) -> io::Result<()> {
        let mut bytes = [0; 80];
        bytes[..size_of::<ControlCommand>()].copy_from_slice(argument.as_bytes());
        let entry = opcode::UringCmd80::new(Fd(self.device.as_raw_fd()), command).cmd(bytes);
        // SAFETY: the entry's bytes are copied; what they point to is the caller's promise.
        let pushed = unsafe { self.ring.submission().push(&entry.build()) };
        pushed.map_err(io::Error::other)?;
        let until = limit.map(|limit| Instant::now() + limit);
        loop {
            let left = until.map(|until| until.saturating_duration_since(Instant::now()));
            self.wait(left)?;
            if let Some(done) = self.ring.completion().next() {
                return match done.result() {
                    0.. => Ok(()),
                    error => Err(io::Error::from_raw_os_error(-error)),
                };
            }
            if left.is_some_and(|left| left.is_zero()) {
                return Err(io::ErrorKind::TimedOut.into());
            }
        }
    }

    fn wait(&mut self, left: Option<Duration>) -> io::Result<()> {
        let waited = match left {
            None => self.ring.submit_and_wait(1),
            Some(left) => {
                let left = Timespec::from(left);
                let arguments = SubmitArgs::new().timespec(&left);
                self.ring.submitter().submit_with_args(1, &arguments)
            }
        };
        match waited {
            Ok(_) => Ok(()),
            Err(error) => match Errno::from_io_error(&error) {
                Some(Errno::INTR | Errno::TIME) => Ok(()),
                _ => Err(error),
            },
        }
    }
}

fn no_argument(id: u32) -> ControlCommand {
    ControlCommand {
        id,
        queue: u16::MAX,
        len: 0,
        address: 0,
        data: 0,
        path_len: 0,
        padding: 0,
        reserved: 0,
    }
}
