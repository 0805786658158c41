//! A queue of reads and writes on a file or a block device, for one thread.
//!
//! It serves the load generator and stands here because its buffers are lent to the kernel while a
//! request is in flight, which takes unsafe code. Requests go through io_uring (registered buffers
//! and file) where the system permits it, else through plain `pread` and `pwrite`, which complete
//! one by one at submission.
//!
//! Memory safety rests on one rule: a slot's buffer is the kernel's from submission to completion.
//! [`FileIo`] refuses to lend a buffer whose slot is in flight, and its drop waits for every
//! request before the buffers go.

use std::{
    fs::{File, OpenOptions},
    io::{self, Seek as _, SeekFrom},
    os::{
        fd::{AsFd, AsRawFd as _, BorrowedFd},
        unix::fs::{FileExt as _, FileTypeExt as _, OpenOptionsExt as _},
    },
    path::Path,
    time::Duration,
};

use io_uring::{IoUring, opcode, squeue, types};
use rustix::fs::{AtFlags, FallocateFlags, StatxFlags};

use aligned::Buffers;

mod aligned;

/// How a file is opened and how much of it can be in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileIoOptions {
    /// How many requests can be in flight.
    pub depth: u16,
    /// Bytes of each slot's buffer: the longest transfer of one request.
    pub buffer_bytes: usize,
    /// What will be done with the file.
    pub access: FileAccess,
    /// Whether the page cache is passed by.
    pub caching: Caching,
}

/// What may be done with a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileAccess {
    /// Read.
    ReadOnly,
    /// Read, write, discard.
    ReadWrite,
}

/// Whether transfers pass by the page cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Caching {
    /// Pass it by (`O_DIRECT`) where the file system can and the transfers are aligned as it wants.
    DirectWherePossible,
    /// Use it.
    Buffered,
}

/// What to do with a range of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileOp {
    /// Read into the slot's buffer.
    Read,
    /// Write from the slot's buffer.
    Write,
    /// Give the range's storage back; it reads as zeros (a hole in a file).
    Discard,
    /// Make what was written durable; the range is not looked at.
    Flush,
}

/// A request that has ended. Its slot and buffer are the caller's again.
#[derive(Debug)]
pub struct FileCompletion {
    /// The slot of the request.
    pub slot: u16,
    /// What became of it.
    pub result: Result<(), FileError>,
}

/// Why a request did not succeed.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// The operating system says so.
    #[error("{0}")]
    Os(#[source] io::Error),
    /// Fewer bytes were transferred than asked for (the end of the file?).
    #[error("{done_bytes} of {wanted_bytes} bytes were transferred")]
    Short {
        /// What was transferred.
        done_bytes: usize,
        /// What was asked for.
        wanted_bytes: usize,
    },
}

/// Which system calls carry the requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileEngine {
    /// io_uring.
    IoUring,
    /// `pread`, `pwrite`: io_uring is not permitted here. One request at a time, whatever the
    /// depth.
    Plain,
}

/// A file and the requests in flight on it.
#[derive(Debug)]
pub struct FileIo {
    engine: Engine,
    file: File,
    buffers: Buffers,
    /// Bytes of the request in flight in each slot.
    in_flight: Box<[Option<u32>]>,
    in_flight_count: usize,
    len_bytes: u64,
    alignment_bytes: u32,
    direct: bool,
}

impl FileIo {
    /// The most requests in flight: what the kernel takes for one ring.
    pub const DEPTH_MAX: u16 = 1 << 15;

    /// Opens `path`. `options.depth` is from 1 to [`DEPTH_MAX`](Self::DEPTH_MAX).
    pub fn open(path: &Path, options: &FileIoOptions) -> io::Result<Self> {
        let (mut file, alignment_bytes, direct) = open_file(path, options)?;
        let len_bytes = file.seek(SeekFrom::End(0))?;
        let buffers = Buffers::new(options.depth, options.buffer_bytes)?;
        let engine = Engine::new(&file, &buffers, options.depth);
        Ok(Self {
            engine,
            file,
            in_flight: vec![None; usize::from(options.depth)].into_boxed_slice(),
            in_flight_count: 0,
            buffers,
            len_bytes,
            alignment_bytes,
            direct,
        })
    }

    /// The file's length when it was opened.
    pub fn len_bytes(&self) -> u64 {
        self.len_bytes
    }

    /// Offsets and lengths must be multiples of this.
    pub fn alignment_bytes(&self) -> u32 {
        self.alignment_bytes
    }

    /// Whether the page cache is passed by.
    pub fn is_direct(&self) -> bool {
        self.direct
    }

    /// Which system calls carry the requests.
    pub fn engine(&self) -> FileEngine {
        match self.engine {
            Engine::IoUring(_) => FileEngine::IoUring,
            Engine::Plain(_) => FileEngine::Plain,
        }
    }

    /// How many requests are in flight.
    pub fn in_flight(&self) -> usize {
        self.in_flight_count
    }

    /// The buffer of `slot`. Panics where a request is in flight in it, since the kernel may be
    /// writing it.
    pub fn buffer(&self, slot: u16) -> &[u8] {
        assert!(
            self.in_flight[usize::from(slot)].is_none(),
            "the buffer of a slot in flight is the kernel's"
        );
        // SAFETY: nothing is in flight in this slot, so the kernel does not touch its buffer;
        // `&self` keeps `submit` and `buffer_mut` away.
        unsafe { self.buffers.slot(slot) }
    }

    /// The buffer of `slot`, to fill. Panics where a request is in flight in it.
    pub fn buffer_mut(&mut self, slot: u16) -> &mut [u8] {
        assert!(
            self.in_flight[usize::from(slot)].is_none(),
            "the buffer of a slot in flight is the kernel's"
        );
        // SAFETY: nothing is in flight in this slot, so the kernel does not touch its buffer; `&mut
        // self` makes this the only reference.
        unsafe { self.buffers.slot_mut(slot) }
    }

    /// Starts a request on `len_bytes` bytes from `offset_bytes` on; where the system does not take
    /// it, the next [`poll`](Self::poll) or [`wait`](Self::wait) tries again or says why. Panics
    /// where `slot` is in flight or its buffer is shorter.
    pub fn submit(&mut self, slot: u16, op: FileOp, offset_bytes: u64, len_bytes: u32) {
        let state = &mut self.in_flight[usize::from(slot)];
        assert!(state.is_none(), "slot {slot} is in flight");
        assert!(
            len_bytes as usize <= self.buffers.slot_bytes()
                || matches!(op, FileOp::Discard | FileOp::Flush),
            "the transfer is longer than the slot's buffer"
        );
        let wanted = if matches!(op, FileOp::Read | FileOp::Write) {
            len_bytes
        } else {
            0
        };
        *state = Some(wanted);
        self.in_flight_count += 1;
        let request = Request {
            slot,
            op,
            offset_bytes,
            len_bytes,
        };
        match &mut self.engine {
            Engine::IoUring(ring) => {
                ring.push(&self.buffers, request);
                // One call each: a device that gets 32 requests at once finishes them at once and
                // stands idle in between, which cost a quarter of the random writes of a virtual
                // disk.
                ring.start();
            }
            Engine::Plain(done) => done.push((slot, plain(&self.file, &self.buffers, request))),
        }
    }

    /// Hands over what was submitted, appends what has completed to `done`, and says how many that
    /// were. Never waits.
    pub fn poll(&mut self, done: &mut Vec<FileCompletion>) -> io::Result<usize> {
        if let Engine::IoUring(ring) = &mut self.engine {
            ring.enter(Until::Now)?;
        }
        Ok(self.reap(done))
    }

    /// As [`poll`](Self::poll), but waits until at least one request has completed or `timeout` is
    /// over. Without a timeout, something must be in flight; arming a timer costs a microsecond or
    /// two where the machine is virtual.
    pub fn wait(
        &mut self,
        timeout: Option<Duration>,
        done: &mut Vec<FileCompletion>,
    ) -> io::Result<usize> {
        if let Engine::IoUring(ring) = &mut self.engine {
            assert!(
                timeout.is_some() || self.in_flight_count > 0,
                "waits for ever: nothing is in flight"
            );
            ring.enter(timeout.map_or(Until::Completion, Until::Timeout))?;
        }
        Ok(self.reap(done))
    }

    fn reap(&mut self, done: &mut Vec<FileCompletion>) -> usize {
        let before = done.len();
        let in_flight = &mut self.in_flight;
        let mut take = |slot: u16, result: io::Result<usize>| {
            let wanted_bytes = in_flight[usize::from(slot)]
                .take()
                .expect("only slots in flight complete") as usize;
            let result = match result {
                Err(error) => Err(FileError::Os(error)),
                Ok(done_bytes) if done_bytes != wanted_bytes => Err(FileError::Short {
                    done_bytes,
                    wanted_bytes,
                }),
                Ok(_) => Ok(()),
            };
            done.push(FileCompletion { slot, result });
        };
        match &mut self.engine {
            Engine::IoUring(ring) => ring.reap(&mut take),
            Engine::Plain(ready) => ready
                .drain(..)
                .for_each(|(slot, result)| take(slot, result)),
        }
        let count = done.len() - before;
        self.in_flight_count -= count;
        count
    }
}

impl Drop for FileIo {
    fn drop(&mut self) {
        let mut done = Vec::with_capacity(self.in_flight_count);
        while self.in_flight_count > 0 {
            done.clear();
            if self.wait(None, &mut done).is_err() {
                // The ring is unusable, so what the kernel still holds is unknown: leave the
                // buffers mapped.
                self.buffers.leak();
                return;
            }
        }
    }
}

impl AsFd for FileIo {
    /// The descriptor to wait for (readable) for a thread that has several queues. With
    /// [`FileEngine::Plain`] everything has completed at submission and there is nothing to wait
    /// for.
    fn as_fd(&self) -> BorrowedFd<'_> {
        match &self.engine {
            // SAFETY: the ring owns the descriptor and lives as long as `self`.
            Engine::IoUring(ring) => unsafe { BorrowedFd::borrow_raw(ring.uring.as_raw_fd()) },
            Engine::Plain(_) => self.file.as_fd(),
        }
    }
}

/// How long a call into the kernel lasts.
#[derive(Clone, Copy)]
enum Until {
    /// It does not wait.
    Now,
    /// Until something completes.
    Completion,
    /// The same, but this long at most.
    Timeout(Duration),
}

#[derive(Clone, Copy)]
struct Request {
    slot: u16,
    op: FileOp,
    offset_bytes: u64,
    len_bytes: u32,
}

#[derive(Debug)]
enum Engine {
    IoUring(Box<Ring>),
    /// What has completed and was not reaped yet.
    Plain(Vec<(u16, io::Result<usize>)>),
}

impl Engine {
    fn new(file: &File, buffers: &Buffers, depth: u16) -> Self {
        match Ring::new(file, buffers, depth) {
            Ok(ring) => Self::IoUring(Box::new(ring)),
            Err(_) => Self::Plain(Vec::with_capacity(usize::from(depth))),
        }
    }
}

struct Ring {
    uring: IoUring,
    /// Whether the slots' buffers are registered, each under its slot's number.
    fixed_buffers: bool,
    /// Set up disabled, so that the thread which uses it, not the one which opened it, becomes its
    /// issuer.
    disabled: bool,
    /// Why a request could not be started.
    failure: Option<io::Error>,
}

impl std::fmt::Debug for Ring {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ring")
            .field("fixed_buffers", &self.fixed_buffers)
            .finish_non_exhaustive()
    }
}

impl Ring {
    fn new(file: &File, buffers: &Buffers, depth: u16) -> io::Result<Self> {
        let entries = u32::from(depth).next_power_of_two();
        let deferred = IoUring::builder()
            .setup_single_issuer()
            .setup_defer_taskrun()
            .setup_taskrun_flag()
            .setup_r_disabled()
            .build(entries);
        let (uring, disabled) = match deferred {
            Ok(uring) => (uring, true),
            // Kernels before 6.1.
            Err(_) => (IoUring::new(entries)?, false),
        };
        uring.submitter().register_files(&[file.as_raw_fd()])?;
        let iovecs = buffers.iovecs();
        // SAFETY: the buffers stay mapped as long as the ring: `FileIo` drops its engine first, and
        // leaks the buffers where the kernel may still hold them. Registration fails where
        // RLIMIT_MEMLOCK is too low.
        let fixed_buffers = unsafe { uring.submitter().register_buffers(&iovecs) }.is_ok();
        Ok(Self {
            uring,
            fixed_buffers,
            disabled,
            failure: None,
        })
    }

    fn push(&mut self, buffers: &Buffers, request: Request) {
        let entry = self.entry(buffers, request);
        // SAFETY: the entry's buffer belongs to a slot that was just marked as in flight, so it
        // stays mapped and unreferenced until its completion is reaped.
        let pushed = unsafe { self.uring.submission().push(&entry) };
        pushed.expect("the submission queue has an entry per slot");
    }

    fn entry(&self, buffers: &Buffers, request: Request) -> squeue::Entry {
        let fd = types::Fixed(0);
        let Request {
            slot,
            op,
            offset_bytes: at,
            len_bytes: len,
        } = request;
        let buffer = buffers.slot_ptr(slot);
        let entry = match op {
            FileOp::Read if self.fixed_buffers => opcode::ReadFixed::new(fd, buffer, len, slot)
                .offset(at)
                .build(),
            FileOp::Read => opcode::Read::new(fd, buffer, len).offset(at).build(),
            FileOp::Write if self.fixed_buffers => opcode::WriteFixed::new(fd, buffer, len, slot)
                .offset(at)
                .build(),
            FileOp::Write => opcode::Write::new(fd, buffer, len).offset(at).build(),
            FileOp::Discard => opcode::Fallocate::new(fd, u64::from(len))
                .offset(at)
                .mode(libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE)
                .build(),
            FileOp::Flush => opcode::Fsync::new(fd).build(),
        };
        entry.user_data(u64::from(slot))
    }

    /// Hands over what was pushed. A failure is kept for the next [`enter`](Self::enter).
    fn start(&mut self) {
        if self.failure.is_none() {
            self.failure = self.enter(Until::Now).err();
        }
    }

    /// Submits, and waits as `until` says.
    fn enter(&mut self, until: Until) -> io::Result<()> {
        if let Some(failure) = self.failure.take() {
            return Err(failure);
        }
        if self.disabled {
            self.uring.submitter().register_enable_rings()?;
            self.disabled = false;
        }
        let result = match until {
            Until::Now if self.has_nothing_to_enter_for() => return Ok(()),
            Until::Now => self.uring.submit(),
            Until::Completion => self.uring.submit_and_wait(1),
            Until::Timeout(timeout) => {
                let timespec = types::Timespec::from(timeout);
                let args = types::SubmitArgs::new().timespec(&timespec);
                self.uring.submitter().submit_with_args(1, &args)
            }
        };
        match result {
            Ok(_) => Ok(()),
            Err(error) => match error.raw_os_error() {
                // ETIME: the timeout is over. EBUSY, EAGAIN: completions must be reaped first.
                Some(libc::ETIME | libc::EINTR | libc::EBUSY | libc::EAGAIN) => Ok(()),
                _ => Err(error),
            },
        }
    }

    /// Nothing to submit, and no deferred work whose completions only a call brings forth.
    fn has_nothing_to_enter_for(&mut self) -> bool {
        let queue = self.uring.submission();
        queue.is_empty() && !queue.taskrun() && !queue.cq_overflow()
    }

    fn reap(&mut self, take: &mut impl FnMut(u16, io::Result<usize>)) {
        for entry in self.uring.completion() {
            let result = match usize::try_from(entry.result()) {
                Ok(done_bytes) => Ok(done_bytes),
                Err(_) => Err(io::Error::from_raw_os_error(-entry.result())),
            };
            take(entry.user_data() as u16, result);
        }
    }
}

/// Does `request` at once.
fn plain(file: &File, buffers: &Buffers, request: Request) -> io::Result<usize> {
    let len = request.len_bytes as usize;
    match request.op {
        FileOp::Read => {
            // SAFETY: the caller has marked the slot as in flight and waits here: nobody else uses
            // its buffer.
            let buffer = unsafe { buffers.slot_mut_shared(request.slot) };
            file.read_at(&mut buffer[..len], request.offset_bytes)
        }
        FileOp::Write => {
            // SAFETY: as above.
            let buffer = unsafe { buffers.slot(request.slot) };
            file.write_at(&buffer[..len], request.offset_bytes)
        }
        FileOp::Discard => {
            let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            rustix::fs::fallocate(file, hole, request.offset_bytes, len as u64)?;
            Ok(0)
        }
        FileOp::Flush => file.sync_data().map(|()| 0),
    }
}

/// Opens the file; says how transfers must be aligned and whether they pass by the page cache.
fn open_file(path: &Path, options: &FileIoOptions) -> io::Result<(File, u32, bool)> {
    let mut open = OpenOptions::new();
    open.read(true)
        .write(options.access == FileAccess::ReadWrite);
    if options.caching == Caching::DirectWherePossible {
        let direct = open.clone().custom_flags(libc::O_DIRECT).open(path);
        match direct {
            Ok(file) => {
                let alignment_bytes = direct_alignment_bytes(&file)?;
                if options.buffer_bytes % alignment_bytes as usize == 0 {
                    return Ok((file, alignment_bytes, true));
                }
            }
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {}
            Err(error) => return Err(error),
        }
    }
    Ok((open.open(path)?, 1, false))
}

/// How offsets, lengths and buffers of direct transfers must be aligned.
fn direct_alignment_bytes(file: &File) -> io::Result<u32> {
    /// What every disk takes, for file systems that do not say.
    const SAFE: u32 = 4096;
    if file.metadata()?.file_type().is_block_device() {
        return Ok(rustix::fs::ioctl_blksszget(file)?);
    }
    let wanted = StatxFlags::from_bits_retain(libc::STATX_DIOALIGN);
    let stat = rustix::fs::statx(file, "", AtFlags::EMPTY_PATH, wanted)?;
    let said = stat.stx_mask & libc::STATX_DIOALIGN != 0 && stat.stx_dio_offset_align > 0;
    Ok(if said {
        stat.stx_dio_offset_align
    } else {
        SAFE
    })
}

#[cfg(test)]
mod tests;
