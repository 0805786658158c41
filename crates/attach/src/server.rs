//! The thread between the kernel's requests and a queue of the device.
//!
//! Each request has a slot of the queue, so there are never more than the queue's depth; further
//! requests stay in the kernel. Requests wait while the queue has no connection, and fail for good
//! when it has given up.

use std::io;
use std::time::{Duration, Instant};

use block::{Blocks, Extent, Geometry, Lba, Unmap};
use initiator::{Completion, Link, Operation, Queue, QueueError, Request, Slot};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use crate::requests::{Ask, Asked, Disk, Requests};

/// Something that happened to an attached disk.
#[derive(Clone, Debug)]
pub enum LinkEvent {
    /// The connection was lost; requests wait.
    Lost,
    /// There is a connection again.
    Restored,
    /// No connection was made for too long: all requests fail from now on.
    GaveUp(QueueError),
    /// The disk has another size now.
    Resized {
        /// Its length.
        bytes: u64,
        /// Whether the device gets it too; otherwise it has to be detached and attached again.
        is_passed_on: bool,
    },
}

/// How long one wait for input lasts at most.
const WAIT_MAX: Duration = Duration::from_secs(1);

/// What occupies a slot.
#[derive(Clone, Copy, Debug)]
struct Job {
    id: u64,
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

/// Whether the kernel still uses the disk.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Input {
    Some,
    None,
    Ended,
}

pub(crate) struct Server<R, F> {
    requests: R,
    queue: Queue,
    jobs: Vec<Option<Job>>,
    free: Vec<Slot>,
    geometry: Geometry,
    link: Link,
    has_given_up: bool,
    on_event: F,
}

impl<R: Requests, F: FnMut(LinkEvent)> Server<R, F> {
    pub(crate) fn new(requests: R, queue: Queue, on_event: F) -> Self {
        let depth = queue.depth();
        Self {
            requests,
            jobs: vec![None; depth.into()],
            free: (0..depth).map(Slot).collect(),
            geometry: queue.geometry(),
            link: queue.link(),
            has_given_up: false,
            queue,
            on_event,
        }
    }

    /// Serves until the kernel does not use the disk any more.
    pub(crate) fn run(mut self) -> io::Result<()> {
        let mut done = Vec::with_capacity(self.jobs.len());
        loop {
            let input = self.take_requests()?;
            if input == Input::Ended {
                return Ok(());
            }
            if self.has_given_up {
                self.requests.send()?;
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
            self.requests.send()?;
            self.note_changes();
            if !is_busy {
                let more = (!self.free.is_empty()).then(|| self.requests.descriptor());
                self.queue.wait_input(more, WAIT_MAX);
            }
        }
    }

    /// Takes requests while there are free slots.
    fn take_requests(&mut self) -> io::Result<Input> {
        let mut input = Input::None;
        // As many turns as slots let replies leave in time.
        for _ in 0..self.jobs.len() {
            if self.free.is_empty() {
                break;
            }
            let disk = Disk {
                geometry: self.geometry,
                depth: self.queue.depth(),
            };
            match self.requests.next(&disk)? {
                Asked::Request { id, ask } => {
                    input = Input::Some;
                    if let Err(error) = self.start(id, ask) {
                        self.requests.fail(id, error);
                    }
                }
                Asked::Handled => input = Input::Some,
                Asked::Nothing => break,
                Asked::End => return Ok(Input::Ended),
            }
        }
        Ok(input)
    }

    /// Starts a request that the target carries out.
    fn start(&mut self, id: u64, ask: Ask) -> Result<(), Errno> {
        if self.has_given_up {
            return Err(Errno::IO);
        }
        let &slot = self.free.last().ok_or(Errno::AGAIN)?;
        let (operation, extent, work) = match ask {
            Ask::Read { offset, len_bytes } => {
                let extent = self.extent(offset, len_bytes.into())?;
                let len_bytes = len_bytes as usize;
                if len_bytes > self.queue.buffer(slot).len() {
                    return Err(Errno::INVAL);
                }
                (Operation::Read, extent, Work::Read { len_bytes })
            }
            Ask::Write { offset, len_bytes } => {
                let extent = self.extent(offset, len_bytes.into())?;
                let buffer = self.queue.buffer_mut(slot);
                let data = buffer.get_mut(..len_bytes as usize);
                self.requests.take_data(id, data.ok_or(Errno::INVAL)?)?;
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
            Ask::Flush => {
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
        self.jobs[usize::from(slot.0)] = Some(Job { id, work });
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
            if self.zero_more(job.id, slot, rest, unmap) {
                return;
            }
            is_done = false;
        }
        match job.work {
            _ if !is_done => self.requests.fail(job.id, Errno::IO),
            Work::Read { len_bytes } => {
                let data = &self.queue.buffer(slot)[..len_bytes];
                self.requests.succeed_read(job.id, data);
            }
            Work::Write { len_bytes } => self.requests.succeed_write(job.id, len_bytes),
            Work::Flush | Work::Zero { .. } => self.requests.succeed(job.id),
        }
        self.free.push(slot);
    }

    /// Submits the next piece in the same slot. `false` if that fails.
    fn zero_more(&mut self, id: u64, slot: Slot, all: Extent, unmap: Unmap) -> bool {
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
        self.jobs[usize::from(slot.0)] = Some(Job { id, work });
        true
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
            (self.on_event)(LinkEvent::Resized {
                bytes: geometry.len_bytes(),
                is_passed_on: R::PASSES_SIZE_ON,
            });
        }
    }

    /// Fails what waits, and all that follows.
    fn give_up(&mut self, error: QueueError) {
        self.has_given_up = true;
        for at in 0..self.jobs.len() {
            if let Some(job) = self.jobs[at].take() {
                self.requests.fail(job.id, Errno::IO);
                self.free.push(Slot(at as u16));
            }
        }
        (self.on_event)(LinkEvent::GaveUp(error));
    }

    fn wait_for_kernel(&self) {
        let descriptor = self.requests.descriptor();
        let mut descriptors = [PollFd::new(&descriptor, PollFlags::IN)];
        let timeout = Timespec {
            tv_sec: WAIT_MAX.as_secs().cast_signed(),
            tv_nsec: 0,
        };
        // A failure only makes the next look for requests earlier.
        let _ = poll(&mut descriptors, Some(&timeout));
    }
}
