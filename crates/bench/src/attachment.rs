//! A source that is open, with a queue for each job.

use std::{
    fs::File,
    io::{self, Write as _},
    net::IpAddr,
    os::{
        fd::BorrowedFd,
        unix::fs::{FileTypeExt as _, OpenOptionsExt as _},
    },
    path::Path,
};

use file_io::{Caching, FileAccess, FileEngine, FileIo, FileIoOptions};
use initiator::{Device, DeviceOptions, Url};
use rustix::fs::OFlags;

use crate::{BenchError, Source, cpu::Daemon, order::fill_random, port::Port};

/// What a run requires of a source.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Demand {
    pub(crate) queues: u16,
    pub(crate) depth: u16,
    pub(crate) block_len_bytes: u32,
    pub(crate) access: FileAccess,
    pub(crate) caching: Caching,
    /// How long a file must be; a shorter or missing one is laid out.
    pub(crate) end_bytes: Option<u64>,
}

/// A source that is open.
#[derive(Debug)]
pub(crate) struct Attachment {
    /// What the user called it.
    pub(crate) name: String,
    /// One per job.
    pub(crate) ports: Vec<Port>,
    pub(crate) len_bytes: u64,
    /// The unit in which offsets and lengths are counted.
    pub(crate) unit_bytes: u32,
    /// What the user should know about how it is reached.
    pub(crate) note: Option<String>,
    /// Where it is, if it is reached by RDMA.
    rdma: Option<IpAddr>,
    /// Keeps the attachment alive, and the device from being used by others.
    _guard: Guard,
}

#[derive(Debug)]
enum Guard {
    Device { _device: Box<Device> },
    Claim { _claim: Option<File> },
}

impl Source {
    /// Opens the source with a queue for each job.
    pub(crate) fn attach(&self, demand: &Demand) -> Result<Attachment, BenchError> {
        let attachment = match self {
            Self::Url(url) => attach_url(url, demand)?,
            Self::Path(path) => attach_path(path, demand)?,
        };
        attachment.check_unit(demand.block_len_bytes)?;
        Ok(attachment)
    }
}

fn attach_url(url: &Url, demand: &Demand) -> Result<Attachment, BenchError> {
    let name = url.to_string();
    let options = DeviceOptions {
        queues: demand.queues,
        depth: demand.depth,
        buffer_bytes: demand.block_len_bytes as usize,
        ..DeviceOptions::default()
    };
    let mut device = Device::connect(url, &options).map_err(|source| BenchError::Attach {
        source_name: name.clone(),
        source,
    })?;
    let mut queues = device.take_queues();
    if queues.len() < usize::from(demand.queues) {
        return Err(BenchError::TooFewQueues {
            source_name: name,
            wanted: demand.queues,
            possible: queues.len(),
        });
    }
    queues.truncate(usize::from(demand.queues));
    for queue in &queues {
        if queue.depth() < demand.depth {
            return Err(BenchError::TooDeep {
                source_name: name,
                wanted: demand.depth,
                possible: queue.depth(),
            });
        }
        if queue.transfer_bytes_max() < demand.block_len_bytes as usize {
            return Err(BenchError::TransferTooLong {
                source_name: name,
                wanted: demand.block_len_bytes,
                possible: queue.transfer_bytes_max(),
            });
        }
    }
    let geometry = device.geometry();
    let ports = queues
        .into_iter()
        .map(|queue| Port::network(queue, geometry.block_size.shift()))
        .collect();
    Ok(Attachment {
        name,
        ports,
        len_bytes: geometry.len_bytes(),
        unit_bytes: geometry.block_size.bytes() as u32,
        note: None,
        rdma: url.scheme().is_rdma().then(|| device.info().address.ip()),
        _guard: Guard::Device {
            _device: Box::new(device),
        },
    })
}

fn attach_path(path: &Path, demand: &Demand) -> Result<Attachment, BenchError> {
    let name = path.display().to_string();
    if demand.depth > FileIo::DEPTH_MAX {
        return Err(BenchError::TooDeep {
            source_name: name,
            wanted: demand.depth,
            possible: FileIo::DEPTH_MAX,
        });
    }
    let open_error = |source| BenchError::Open {
        path: path.to_owned(),
        source,
    };
    let claim = prepare(path, demand)?;
    let options = FileIoOptions {
        depth: demand.depth,
        buffer_bytes: demand.block_len_bytes as usize,
        access: demand.access,
        caching: demand.caching,
        engine: None,
    };
    let mut files = Vec::with_capacity(usize::from(demand.queues));
    for _ in 0..demand.queues {
        files.push(FileIo::open(path, &options).map_err(open_error)?);
    }
    let first = files.first().expect("there is a queue at least");
    let unit_bytes = if first.is_direct() {
        first.alignment_bytes()
    } else {
        UNIT_BYTES_OF_FILES
    };
    let note = match (first.engine(), first.is_direct()) {
        (FileEngine::IoUring, true) => None,
        (FileEngine::IoUring, false) => Some(format!("{name}: through the page cache")),
        (FileEngine::Threads, _) => Some(format!(
            "{name}: io_uring is not permitted here; up to {} threads carry the I/O of a job",
            FileIo::THREADS_MAX
        )),
    };
    Ok(Attachment {
        len_bytes: first.len_bytes(),
        name,
        unit_bytes,
        note,
        rdma: None,
        ports: files.into_iter().map(Port::file).collect(),
        _guard: Guard::Claim { _claim: claim },
    })
}

/// `O_EXCL`: on a block device, nothing else may have it mounted or claimed.
#[expect(clippy::cast_possible_wrap, reason = "flags are small bits")]
const EXCLUSIVE: i32 = OFlags::EXCL.bits() as i32;
/// The smallest unit of files and devices that do not name one.
const UNIT_BYTES_OF_FILES: u32 = 512;

/// Claims a block device that will be written, so that a mounted one is refused; lays a file out.
fn prepare(path: &Path, demand: &Demand) -> Result<Option<File>, BenchError> {
    let open_error = |source| BenchError::Open {
        path: path.to_owned(),
        source,
    };
    let metadata = match std::fs::metadata(path) {
        Ok(metadata) => Some(metadata),
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => return Err(open_error(error)),
    };
    let is_storage = metadata.as_ref().is_none_or(|metadata| {
        metadata.file_type().is_block_device() || metadata.file_type().is_file()
    });
    if !is_storage {
        return Err(BenchError::NotStorage {
            path: path.to_owned(),
        });
    }
    let is_block_device = metadata
        .as_ref()
        .is_some_and(|metadata| metadata.file_type().is_block_device());
    if is_block_device {
        if demand.access == FileAccess::ReadOnly {
            return Ok(None);
        }
        let claim = File::options()
            .write(true)
            .custom_flags(EXCLUSIVE)
            .open(path);
        return match claim {
            Ok(claim) => Ok(Some(claim)),
            Err(error) if error.kind() == io::ErrorKind::ResourceBusy => Err(BenchError::InUse {
                path: path.to_owned(),
            }),
            Err(error) => Err(open_error(error)),
        };
    }
    let present_bytes = metadata.map_or(0, |metadata| metadata.len());
    match demand.end_bytes {
        Some(end_bytes) if end_bytes > present_bytes => {
            lay_out(path, present_bytes, end_bytes).map_err(open_error)?;
            Ok(None)
        }
        None if present_bytes == 0 => Err(BenchError::EmptyFile {
            path: path.to_owned(),
        }),
        _ => Ok(None),
    }
}

/// Fills a file with random bytes from `from_bytes` up to `to_bytes`, as fio does, since reads of
/// holes measure nothing.
fn lay_out(path: &Path, from_bytes: u64, to_bytes: u64) -> io::Result<()> {
    const CHUNK_BYTES: usize = 1 << 20;
    let mut file = File::options().append(true).create(true).open(path)?;
    let mut chunk = vec![0; CHUNK_BYTES];
    fill_random(&mut chunk, to_bytes);
    let mut left = to_bytes - from_bytes;
    while left > 0 {
        let len = left.min(CHUNK_BYTES as u64) as usize;
        file.write_all(&chunk[..len])?;
        left -= len as u64;
    }
    file.sync_all()
}

/// By what a daemon is reached.
pub(crate) enum Reached<'a> {
    /// A connected socket.
    Socket(BorrowedFd<'a>),
    /// RDMA, at this address.
    Rdma(IpAddr),
}

impl Reached<'_> {
    /// The daemon, if it is a process of this machine.
    pub(crate) fn daemon(self) -> Option<Daemon> {
        match self {
            Self::Socket(socket) => Daemon::by_socket(socket),
            Self::Rdma(address) => Daemon::by_roce_address(address),
        }
    }
}

impl Attachment {
    /// Whether `bs` bytes are whole blocks.
    pub(crate) fn check_unit(&self, bs: u32) -> Result<(), BenchError> {
        if bs.is_multiple_of(self.unit_bytes) {
            return Ok(());
        }
        Err(BenchError::Unaligned {
            source_name: self.name.clone(),
            bs,
            unit_bytes: self.unit_bytes,
        })
    }

    /// The network protocol, if the source is reached over a network.
    pub(crate) fn reached(&self) -> Option<Reached<'_>> {
        match self.rdma {
            Some(address) => Some(Reached::Rdma(address)),
            None => self.ports.first()?.socket().map(Reached::Socket),
        }
    }
}
