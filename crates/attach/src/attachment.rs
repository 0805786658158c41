//! An attached disk: the device, and what the kernel has of it.

use std::ffi::CString;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc::sync_channel;
use std::sync::{Arc, OnceLock};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use block::Unmap;
use initiator::{Backoff, Device, DeviceOptions, Operation, Queue, Url};
use rustix::fs::OFlags;
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};

use crate::kernel::fuse::{self, FuseRequests};
use crate::kernel::loop_device::{self, Access, LoopError};
use crate::kernel::ublk::{Shape, UblkDevice, UblkRequests};
use crate::record::{self, Claim};
use crate::server::{LinkEvent, Server};
use crate::{AttachError, Record};

/// How a disk is attached.
#[derive(Clone, Debug)]
pub struct Options {
    /// Its name; `None`: the first free one of `disk0`, `disk1` and so on.
    pub name: Option<String>,
    /// How long to try to connect again before all requests fail.
    pub give_up_after: Duration,
    /// Whether to refuse writes even if the target takes them.
    pub is_read_only: bool,
    /// By which interface of the kernel; `None`: ublk if the kernel has it.
    pub via: Option<Via>,
}

/// An interface of the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Via {
    /// A ublk device.
    Ublk,
    /// A FUSE file with a loop device on it.
    Loop,
}

/// Requests in flight.
const DEPTH: u16 = 64;
/// Bytes of each request's buffer.
const BUFFER_BYTES: usize = 256 << 10;

/// An attached disk, served by a thread of this process.
#[derive(Debug)]
pub struct Attachment {
    record: Record,
    // In the order of their end.
    front: Front,
    server: Option<JoinHandle<()>>,
    device: Device,
    claim: Claim,
}

/// What the kernel has of the disk.
#[derive(Debug)]
enum Front {
    Ublk(Box<UblkDevice>),
    Loop(Mount),
}

impl Attachment {
    /// Connects to the disk that `url` names and makes it a block device. A thread of the disk
    /// calls `on_event`.
    pub fn new(
        url: &Url,
        options: &Options,
        on_event: impl FnMut(LinkEvent) + Send + 'static,
    ) -> Result<Self, AttachError> {
        let claim = Claim::take(options.name.as_deref())?;
        let mut device = Device::connect(url, &device_options(options))?;
        let geometry = device.geometry();
        let queue = device.take_queues().pop();
        let queue = queue.expect("a device has at least one queue");
        let shape = Shape {
            geometry,
            is_read_only: options.is_read_only || device.info().is_write_protected,
            has_zeroes: queue.blocks_max(Operation::WriteZeroes(Unmap::Allowed)) > 0,
            depth: queue.depth(),
            transfer_bytes_max: transfer_bytes_max(queue.transfer_bytes_max()),
        };
        let (path, front, server) = match add_ublk(options.via, &shape)? {
            Some(ublk) => start_ublk(ublk, &shape, queue, on_event)?,
            None => start_loop(&claim, &shape, queue, on_event)?,
        };
        let record = Record {
            name: claim.name.clone(),
            device: path,
            url: url.to_string(),
            size_bytes: geometry.len_bytes(),
            pid: rustix::process::getpid().as_raw_nonzero().get(),
        };
        let attachment = Self {
            front,
            server: Some(server),
            device,
            record,
            claim,
        };
        attachment.publish()
    }

    /// Lets others find the disk; takes it back if that fails.
    fn publish(mut self) -> Result<Self, AttachError> {
        let Err(source) = self.claim.write(&self.record) else {
            return Ok(self);
        };
        // The error that is reported is the first one.
        let _ = self.remove_device();
        Err(AttachError::Kernel {
            step: "record the disk in /run/ramport-attach",
            source,
            fix: "make room in /run",
        })
    }

    /// What is attached.
    pub fn record(&self) -> &Record {
        &self.record
    }

    /// The file for messages of a process in the background.
    pub fn log(&self) -> PathBuf {
        record::log(&self.record.name)
    }

    /// Removes the block device. Fails if it is in use; it stays attached then.
    pub fn remove_device(&mut self) -> Result<(), AttachError> {
        let device = &self.record.device;
        let removed = match &mut self.front {
            Front::Loop(_) => loop_device::remove(device),
            Front::Ublk(ublk) => loop_device::open_unused(device)
                .map(drop)
                .and_then(|()| Ok(ublk.stop()?)),
        };
        match removed {
            Ok(()) => Ok(()),
            Err(LoopError::Busy) => Err(AttachError::InUse {
                device: device.clone(),
            }),
            Err(LoopError::System(source)) => Err(AttachError::Kernel {
                step: "remove the block device",
                source,
                fix: "look at it with `lsblk` and `losetup --list`",
            }),
        }
    }

    /// Ends what the kernel has and disconnects, after [`Self::remove_device`].
    pub fn disconnect(mut self) {
        if let Front::Loop(mount) = &mut self.front {
            mount.end();
        }
        if let Some(server) = self.server.take() {
            // A panic was reported when it happened.
            let _ = server.join();
        }
        drop(self.front);
        drop(self.device);
        drop(self.claim);
    }
}

/// A device of ublk, unless another interface is wanted, or nothing is wanted and the kernel has no
/// ublk that can be used.
fn add_ublk(via: Option<Via>, shape: &Shape) -> Result<Option<UblkDevice>, AttachError> {
    if via == Some(Via::Loop) || (via.is_none() && !UblkDevice::is_available()) {
        return Ok(None);
    }
    match UblkDevice::add(shape) {
        Ok(ublk) => Ok(Some(ublk)),
        Err(_) if via.is_none() => Ok(None),
        Err(source) => Err(AttachError::Kernel {
            step: "make a ublk device",
            source,
            fix: "run as root, load the module with `modprobe ublk_drv` (Linux 6.5 or later), or use `--via loop`",
        }),
    }
}

/// Serves the requests of a device of ublk and makes the block device.
fn start_ublk(
    mut ublk: UblkDevice,
    shape: &Shape,
    queue: Queue,
    on_event: impl FnMut(LinkEvent) + Send + 'static,
) -> Result<(PathBuf, Front, JoinHandle<()>), AttachError> {
    let failed = |source| AttachError::Kernel {
        step: "start a ublk device",
        source,
        fix: "see the kernel's log (`dmesg`), or use `--via loop`",
    };
    let file = ublk.open_queue();
    let requests = file.and_then(|file| UblkRequests::new(file, shape.depth));
    let mut requests = requests.map_err(failed)?;
    let (begun, has_begun) = sync_channel(1);
    // Only the thread that takes the first request may take more.
    let server = spawn(move || {
        let result = requests.begin();
        let goes_on = result.is_ok();
        let told = begun.send(result);
        if goes_on && told.is_ok() {
            Server::new(requests, queue, on_event).run()
        } else {
            Ok(())
        }
    })?;
    let begun = has_begun.recv();
    begun
        .unwrap_or_else(|_| Err(io::ErrorKind::BrokenPipe.into()))
        .map_err(failed)?;
    let path = ublk.start().map_err(failed)?;
    Ok((path, Front::Ublk(Box::new(ublk)), server))
}

/// Mounts the disk's file, serves its requests, and puts a loop device on it.
fn start_loop(
    claim: &Claim,
    shape: &Shape,
    queue: Queue,
    mut on_event: impl FnMut(LinkEvent) + Send + 'static,
) -> Result<(PathBuf, Front, JoinHandle<()>), AttachError> {
    let transfer_bytes_max = shape.transfer_bytes_max;
    let (fuse, mount) = mount_disk(&claim.disk(), transfer_bytes_max)?;
    let loop_path = Arc::new(OnceLock::new());
    let resized = Resized {
        file: claim.disk(),
        device: Arc::clone(&loop_path),
    };
    let requests = FuseRequests::new(fuse, transfer_bytes_max);
    let server = Server::new(requests, queue, move |event| {
        if let LinkEvent::Resized { .. } = event {
            resized.pass_on();
        }
        on_event(event);
    });
    let server = spawn(move || server.run())?;
    let access = if shape.is_read_only {
        Access::ReadOnly
    } else {
        Access::ReadWrite
    };
    let block_bytes = shape.geometry.block_size.bytes() as u32;
    let path = create_loop(claim, block_bytes, access)?;
    // Nothing else sets it.
    let _ = loop_path.set(path.clone());
    Ok((path, Front::Loop(mount), server))
}

fn device_options(options: &Options) -> DeviceOptions {
    DeviceOptions {
        queues: 1,
        depth: DEPTH,
        buffer_bytes: BUFFER_BYTES,
        backoff: Backoff {
            give_up_after: options.give_up_after,
            ..Backoff::default()
        },
        ..DeviceOptions::default()
    }
}

/// The longest request: whole pages, of which the kernel never sends fewer than one.
fn transfer_bytes_max(device: usize) -> u32 {
    let pages = device.min(BUFFER_BYTES) as u32 / fuse::PAGE_BYTES;
    pages.max(1) * fuse::PAGE_BYTES
}

/// A change of size, for the loop device.
struct Resized {
    file: PathBuf,
    device: Arc<OnceLock<PathBuf>>,
}

impl Resized {
    /// The loop device asks the file's size of the thread that calls this, so another one tells it.
    fn pass_on(&self) {
        let Some(device) = self.device.get().cloned() else {
            return;
        };
        let file = self.file.clone();
        let update = move || {
            // The kernel reads the file's attributes; without them the loop device keeps its old
            // size.
            if fs::metadata(file).is_ok() {
                let _ = loop_device::update_size(&device);
            }
        };
        let _ = thread::Builder::new()
            .name("resize".to_owned())
            .spawn(update);
    }
}

/// A mounted file, which is unmounted when this is dropped.
#[derive(Debug)]
struct Mount {
    file: PathBuf,
    is_mounted: bool,
}

impl Mount {
    fn end(&mut self) {
        if std::mem::take(&mut self.is_mounted) {
            // It fails only if someone else has unmounted it.
            let _ = unmount(&self.file, UnmountFlags::DETACH);
        }
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        self.end();
    }
}

/// Mounts a file system whose root is a file over `disk`.
fn mount_disk(disk: &Path, transfer_bytes_max: u32) -> Result<(OwnedFd, Mount), AttachError> {
    let nonblocking = OFlags::NONBLOCK.bits().cast_signed();
    let opened = OpenOptions::new()
        .read(true)
        .write(true)
        .custom_flags(nonblocking)
        .open("/dev/fuse");
    let fuse = opened.map_err(|source| AttachError::Kernel {
        step: "open /dev/fuse",
        source,
        fix: "run as root, and load the module with `modprobe fuse`",
    })?;
    let data = format!(
        "fd={},rootmode={:o},user_id=0,group_id=0,max_read={}",
        fuse.as_raw_fd(),
        fuse::MODE,
        transfer_bytes_max
    );
    let data = CString::new(data).expect("there is no zero in it");
    let flags = MountFlags::NODEV | MountFlags::NOSUID | MountFlags::NOEXEC | MountFlags::NOATIME;
    let mounted = File::create(disk).and_then(|_| {
        mount("ramport", disk, "fuse.ramport", flags, data.as_c_str()).map_err(io::Error::from)
    });
    mounted.map_err(|source| AttachError::Kernel {
        step: "mount the disk's file",
        source,
        fix: "attach needs root, or CAP_SYS_ADMIN",
    })?;
    let mount = Mount {
        file: disk.to_owned(),
        is_mounted: true,
    };
    Ok((fuse.into(), mount))
}

fn spawn(
    run: impl FnOnce() -> io::Result<()> + Send + 'static,
) -> Result<JoinHandle<()>, AttachError> {
    let serve = move || {
        if let Err(error) = run() {
            eprintln!("ramport: cannot read requests of the kernel: {error}; the disk fails");
        }
    };
    let spawned = thread::Builder::new().name("disk".to_owned()).spawn(serve);
    spawned.map_err(|source| AttachError::Kernel {
        step: "create a thread",
        source,
        fix: "raise the limit of processes",
    })
}

fn create_loop(claim: &Claim, block_bytes: u32, access: Access) -> Result<PathBuf, AttachError> {
    let direct = OFlags::DIRECT.bits().cast_signed();
    let file = OpenOptions::new()
        .read(true)
        .write(access == Access::ReadWrite)
        .custom_flags(direct)
        .open(claim.disk());
    // Older kernels (6.12) take the size that was last asked for.
    let known = file.and_then(|file| file.metadata().map(|_| file));
    let created = known
        .map_err(LoopError::from)
        .and_then(|file| loop_device::create(&file, &claim.name, block_bytes, access));
    created.map_err(|error| AttachError::Kernel {
        step: "put a loop device on the disk's file",
        source: match error {
            LoopError::System(source) => source,
            LoopError::Busy => io::ErrorKind::ResourceBusy.into(),
        },
        fix: "load the module with `modprobe loop`; it needs Linux 5.8 or later",
    })
}
