//! The thread between `/dev/fuse` and a queue of the device.
//!
//! Each request that moves data or waits for the target has a slot of the queue, so there are never
//! more than the queue's depth; further requests stay in the kernel. Requests wait while the queue
//! has no connection, and fail for good when it has given up.

use std::io::{self, IoSlice};
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use block::{Blocks, Extent, Geometry, Lba, Unmap};
use initiator::{Completion, Link, Operation, Queue, QueueError, Request, Slot};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use zerocopy::IntoBytes;

use crate::fuse::{self, Ask, Call};

/// Something that happened to an attached disk.
#[derive(Clone, Debug)]
pub enum LinkEvent {
    /// The connection was lost; requests wait.
    Lost,
    /// There is a connection again.
    Restored,
    /// No connection was made for too long: all requests fail from now on.
    GaveUp(QueueError),
    /// The disk has this many bytes now.
    Resized(u64),
}

/// How long one wait for input lasts at most.
const WAIT_MAX: Duration = Duration::from_secs(1);

/// What the requests of one kernel may be.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// The most bytes of a read or write: a multiple of a page.
    pub(crate) transfer_bytes_max: u32,
}

/// What occupies a slot.
#[derive(Clone, Copy, Debug)]
struct Job {
    unique: u64,
    work: Work,
}

#[derive(Clone, Copy, Debug)]
enum Work {
    Read {
        len_bytes: usize,
    },
    Write {
        len_bytes: u32,
    },
    Flush,
    /// What remains to be zeroed, piece by piece.
    Zero {
        rest: Extent,
        unmap: Unmap,
    },
}

/// Whether the kernel still uses the file system.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Input {
    Some,
    None,
    Unmounted,
}

pub(crate) struct Server<F> {
    fuse: OwnedFd,
    queue: Queue,
    limits: Limits,
    jobs: Vec<Option<Job>>,
    free: Vec<Slot>,
    input: Vec<u8>,
    geometry: Geometry,
    link: Link,
    has_given_up: bool,
    on_event: F,
}

impl<F: FnMut(LinkEvent)> Server<F> {
    /// `fuse` is an open `/dev/fuse` that does not block.
    pub(crate) fn new(fuse: OwnedFd, queue: Queue, limits: Limits, on_event: F) -> Self {
        let depth = queue.depth();
        Self {
            fuse,
            limits,
            jobs: vec![None; depth.into()],
            free: (0..depth).map(Slot).collect(),
            // The kernel demands room for the heads of a write besides its data.
            input: vec![0; (limits.transfer_bytes_max + fuse::PAGE_BYTES) as usize],
            geometry: queue.geometry(),
            link: queue.link(),
            has_given_up: false,
            queue,
            on_event,
        }
    }

    /// Serves until the file system is unmounted.
    pub(crate) fn run(mut self) -> io::Result<()> {
        let mut done = Vec::with_capacity(self.jobs.len());
        loop {
            let input = self.take_requests()?;
            if input == Input::Unmounted {
                return Ok(());
            }
            if self.has_given_up {
                self.wait_for_kernel();
                continue;
            }
            if let Err(error) = self.queue.poll(Instant::now(), &mut done) {
                self.give_up(error);
                continue;
            }
            let is_busy = !done.is_empty() || input == Input::Some;
            for completion in done.drain(..) {
                self.complete(completion);
            }
            self.note_changes();
            if !is_busy {
                let fuse = (!self.free.is_empty()).then(|| self.fuse.as_fd());
                self.queue.wait_input(fuse, WAIT_MAX);
            }
        }
    }

    /// Takes requests while there are free slots.
    fn take_requests(&mut self) -> io::Result<Input> {
        let mut input = Input::None;
        // Each turn takes a slot or is a short operation; as many turns as slots let replies leave
        // in time.
        for _ in 0..self.jobs.len() {
            if self.free.is_empty() {
                break;
            }
            let mut buffer = std::mem::take(&mut self.input);
            let read = rustix::io::read(&self.fuse, &mut buffer[..]);
            if let Ok(len) = read {
                input = Input::Some;
                if let Some(call) = fuse::parse(&buffer[..len]) {
                    self.handle(call);
                }
            }
            self.input = buffer;
            match read {
                // ENOENT: the request was interrupted before it was read.
                Ok(_) | Err(Errno::INTR | Errno::NOENT) => {}
                Err(Errno::AGAIN) => break,
                Err(Errno::NODEV) => return Ok(Input::Unmounted),
                Err(error) => return Err(error.into()),
            }
        }
        Ok(input)
    }

    fn handle(&mut self, call: Call<'_>) {
        let Call { unique, ask } = call;
        match ask {
            Ask::Init {
                flags,
                max_readahead,
            } => {
                let depth = self.queue.depth();
                let most = self.limits.transfer_bytes_max;
                self.reply(&fuse::reply(
                    unique,
                    &fuse::init(flags, max_readahead, most, depth),
                ));
            }
            Ask::Attributes => {
                self.reply(&fuse::reply(unique, &fuse::attributes(self.geometry)));
            }
            Ask::Open => self.reply(&fuse::reply(unique, &fuse::opened())),
            Ask::Statistics => {
                self.reply(&fuse::reply(unique, &fuse::statistics(self.geometry)));
            }
            Ask::Nothing => self.reply(fuse::head(unique, 0).as_bytes()),
            Ask::Silent => {}
            Ask::Refused(error) => self.fail(unique, error),
            Ask::Read { .. } | Ask::Write { .. } | Ask::Flush | Ask::Zero { .. } => {
                if let Err(error) = self.start(unique, ask) {
                    self.fail(unique, error);
                }
            }
        }
    }

    /// Starts a request that the target carries out.
    fn start(&mut self, unique: u64, ask: Ask<'_>) -> Result<(), Errno> {
        if self.has_given_up {
            return Err(Errno::IO);
        }
        let &slot = self.free.last().ok_or(Errno::AGAIN)?;
        let (operation, extent, work) = match ask {
            Ask::Read { offset, len_bytes } => {
                let extent = self.extent(offset, len_bytes.into())?;
                let len_bytes = len_bytes as usize;
                (Operation::Read, extent, Work::Read { len_bytes })
            }
            Ask::Write { offset, data } => {
                let extent = self.extent(offset, data.len() as u64)?;
                let buffer = self.queue.buffer_mut(slot);
                // From the kernel's message, whose head and data are one read, into registered
                // memory.
                buffer
                    .get_mut(..data.len())
                    .ok_or(Errno::INVAL)?
                    .copy_from_slice(data);
                let len_bytes = data.len() as u32;
                (Operation::Write, extent, Work::Write { len_bytes })
            }
            Ask::Zero {
                offset,
                len_bytes,
                keep_allocated,
            } => {
                let unmap = if keep_allocated {
                    Unmap::Forbidden
                } else {
                    Unmap::Allowed
                };
                let all = self.extent(offset, len_bytes)?;
                let (piece, rest) = self.first_piece(all, unmap)?;
                let operation = Operation::WriteZeroes(unmap);
                (operation, piece, Work::Zero { rest, unmap })
            }
            _ => {
                let nothing = Extent::new(Lba(0), Blocks(0));
                (Operation::Flush, nothing, Work::Flush)
            }
        };
        let request = Request {
            slot,
            operation,
            extent,
        };
        self.queue.submit(request).map_err(|_| Errno::IO)?;
        self.free.pop();
        self.jobs[usize::from(slot.0)] = Some(Job { unique, work });
        Ok(())
    }

    /// The blocks of some bytes, which have to be whole blocks within the disk.
    fn extent(&self, offset: u64, len_bytes: u64) -> Result<Extent, Errno> {
        let geometry = self.geometry;
        let mask = geometry.block_size.bytes() - 1;
        let end = offset.checked_add(len_bytes).ok_or(Errno::INVAL)?;
        if len_bytes == 0 || offset & mask != 0 || len_bytes & mask != 0 {
            return Err(Errno::INVAL);
        }
        if end > geometry.len_bytes() {
            return Err(Errno::NOSPC);
        }
        let shift = geometry.block_size.shift();
        Ok(Extent::new(
            Lba(offset >> shift),
            Blocks(len_bytes >> shift),
        ))
    }

    /// What one command can zero, and what remains.
    fn first_piece(&self, all: Extent, unmap: Unmap) -> Result<(Extent, Extent), Errno> {
        let most = self.queue.blocks_max(Operation::WriteZeroes(unmap));
        if most == 0 {
            return Err(Errno::OPNOTSUPP);
        }
        let now = all.blocks.0.min(most);
        let piece = Extent::new(all.lba, Blocks(now));
        let rest = Extent::new(Lba(all.lba.0 + now), Blocks(all.blocks.0 - now));
        Ok((piece, rest))
    }

    fn complete(&mut self, completion: Completion) {
        let Completion { slot, result } = completion;
        let Some(job) = self.jobs[usize::from(slot.0)].take() else {
            return;
        };
        let mut is_done = result.is_ok();
        if let Work::Zero { rest, unmap } = job.work
            && is_done
            && rest.blocks.0 > 0
        {
            if self.zero_more(job.unique, slot, rest, unmap) {
                return;
            }
            is_done = false;
        }
        match job.work {
            _ if !is_done => self.fail(job.unique, Errno::IO),
            Work::Read { len_bytes } => self.reply_read(job.unique, slot, len_bytes),
            Work::Write { len_bytes } => {
                self.reply(&fuse::reply(job.unique, &fuse::written(len_bytes)));
            }
            Work::Flush | Work::Zero { .. } => self.reply(fuse::head(job.unique, 0).as_bytes()),
        }
        self.free.push(slot);
    }

    /// Submits the next piece in the same slot. `false` if that fails.
    fn zero_more(&mut self, unique: u64, slot: Slot, all: Extent, unmap: Unmap) -> bool {
        let Ok((extent, rest)) = self.first_piece(all, unmap) else {
            return false;
        };
        let request = Request {
            slot,
            operation: Operation::WriteZeroes(unmap),
            extent,
        };
        if self.queue.submit(request).is_err() {
            return false;
        }
        let work = Work::Zero { rest, unmap };
        self.jobs[usize::from(slot.0)] = Some(Job { unique, work });
        true
    }

    fn reply_read(&self, unique: u64, slot: Slot, len_bytes: usize) {
        let head = fuse::head(unique, len_bytes);
        let data = &self.queue.buffer(slot)[..len_bytes];
        // It fails only if the request was aborted or the file system is gone; both end elsewhere.
        let parts = [IoSlice::new(head.as_bytes()), IoSlice::new(data)];
        let _ = rustix::io::writev(&self.fuse, &parts);
    }

    fn reply(&self, message: &[u8]) {
        // As for reads.
        let _ = rustix::io::write(&self.fuse, message);
    }

    fn fail(&self, unique: u64, error: Errno) {
        self.reply(fuse::failed(unique, error).as_bytes());
    }

    /// Reports changes of the link and of the size.
    fn note_changes(&mut self) {
        let link = self.queue.link();
        if link != self.link {
            self.link = link;
            (self.on_event)(match link {
                Link::Up => LinkEvent::Restored,
                Link::Down => LinkEvent::Lost,
            });
        }
        let geometry = self.queue.geometry();
        if geometry.blocks != self.geometry.blocks
            && geometry.block_size == self.geometry.block_size
        {
            self.geometry = geometry;
            (self.on_event)(LinkEvent::Resized(geometry.len_bytes()));
        }
    }

    /// Fails what waits, and all that follows.
    fn give_up(&mut self, error: QueueError) {
        self.has_given_up = true;
        for at in 0..self.jobs.len() {
            if let Some(job) = self.jobs[at].take() {
                self.fail(job.unique, Errno::IO);
                self.free.push(Slot(at as u16));
            }
        }
        (self.on_event)(LinkEvent::GaveUp(error));
    }

    fn wait_for_kernel(&self) {
        let mut descriptors = [PollFd::new(&self.fuse, PollFlags::IN)];
        let timeout = Timespec {
            tv_sec: WAIT_MAX.as_secs().cast_signed(),
            tv_nsec: 0,
        };
        // A failure only makes the next look for requests earlier.
        let _ = poll(&mut descriptors, Some(&timeout));
    }
}
