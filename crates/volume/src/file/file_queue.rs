//! Carries requests of a window out on a queue of a file. One thread owns it: the volume's own, or
//! one that drives connections.

use std::collections::VecDeque;
use std::io;

use block::{Persistence, Unmap};
use file_io::{FileCompletion, FileError, FileIo, FileOp};
use memory::Charge;
use window::{BackingClient, BackingError, BackingOp, Ended, Request, RequestId};

/// Requests that the system carries out at a time.
pub(super) const DEPTH: u16 = 64;
/// Requests whose ends are reported in one call.
const REPORTS: usize = 16;

/// A queue and what is in flight on it.
#[derive(Debug)]
pub(super) struct FileQueue {
    queue: FileIo,
    slots: Vec<Option<Job>>,
    free: Vec<u16>,
    /// Requests that wait for a free slot.
    backlog: VecDeque<Request>,
    /// What has completed and was not reported yet.
    done: Vec<FileCompletion>,
    /// Whether another queue goes on with what has to be submitted again.
    is_leaving: bool,
    buffer_bytes: u64,
    can: Abilities,
    _charge: Charge,
}

/// Which ways to zero a range the file or device has not refused.
#[derive(Clone, Copy, Debug)]
struct Abilities {
    punch: bool,
    zero: bool,
}

/// A request in a slot.
#[derive(Clone, Copy, Debug)]
struct Job {
    request: Request,
    /// What is being done for it.
    op: FileOp,
    /// Of zeros that are written: how many bytes are done.
    done_bytes: u64,
    is_retry: bool,
}

impl FileQueue {
    /// The memory that a queue takes for frames of `frame_bytes`.
    pub(super) const fn memory_bytes(frame_bytes: u32) -> u64 {
        DEPTH as u64 * frame_bytes as u64
    }

    /// Carries out on `queue`, which has [`DEPTH`] slots of `frame_bytes`.
    pub(super) fn new(queue: FileIo, frame_bytes: u32, charge: Charge) -> Self {
        Self {
            queue,
            slots: vec![None; usize::from(DEPTH)],
            free: (0..DEPTH).collect(),
            backlog: VecDeque::new(),
            done: Vec::with_capacity(usize::from(DEPTH)),
            is_leaving: false,
            buffer_bytes: u64::from(frame_bytes),
            can: Abilities {
                punch: true,
                zero: true,
            },
            _charge: charge,
        }
    }

    /// Where new requests are put, behind those that wait for a free slot.
    pub(super) fn backlog(&mut self) -> &mut VecDeque<Request> {
        &mut self.backlog
    }

    /// Whether no request is left.
    pub(super) fn is_idle(&self) -> bool {
        self.backlog.is_empty() && self.queue.in_flight() == 0
    }

    /// How many requests are in flight.
    pub(super) fn in_flight(&self) -> usize {
        self.queue.in_flight()
    }

    /// See [`FileIo::has_unsubmitted`].
    pub(super) fn has_unsubmitted(&mut self) -> bool {
        self.queue.has_unsubmitted()
    }

    /// Starts what fits into free slots. Returns whether there was anything.
    pub(super) fn start(&mut self, client: &dyn BackingClient) -> bool {
        let has_work = !self.backlog.is_empty() && !self.free.is_empty();
        while !self.backlog.is_empty()
            && let Some(slot) = self.free.pop()
        {
            let request = self.backlog.pop_front();
            self.begin(slot, request.expect("it is not empty"), client);
        }
        has_work
    }

    /// Takes completions without a wait; how many. [`report`](Self::report) is next.
    pub(super) fn poll(&mut self) -> io::Result<usize> {
        self.queue.poll(&mut self.done)
    }

    /// Waits for a completion, or for the queue's waker.
    pub(super) fn wait(&mut self) -> io::Result<usize> {
        self.queue.wait(None, &mut self.done)
    }

    /// Reports what has completed, and goes on with what is not over yet.
    pub(super) fn report(&mut self, client: &dyn BackingClient) {
        let mut done = std::mem::take(&mut self.done);
        for batch in done.chunks(REPORTS) {
            self.complete_all(batch, client);
        }
        done.clear();
        self.done = done;
    }

    /// Ends the queue: waits for what is in flight and reports it. Returns what has to be carried
    /// out by another queue. If this one has failed, what was in flight fails.
    pub(super) fn leave(mut self, client: &dyn BackingClient) -> VecDeque<Request> {
        self.is_leaving = true;
        while self.queue.in_flight() > 0 && self.wait().is_ok() {
            self.report(client);
        }
        let Self {
            queue,
            slots,
            backlog,
            ..
        } = self;
        // Waits for the system to let go of the buffers and the file, if it can.
        drop(queue);
        for job in slots.iter().flatten() {
            client.done(job.request.id, Err(BackingError::Gone));
        }
        backlog
    }

    fn begin(&mut self, slot: u16, request: Request, client: &dyn BackingClient) {
        let op = match request.op {
            BackingOp::Read => FileOp::Read,
            BackingOp::Write(Persistence::Volatile) => FileOp::Write,
            BackingOp::Write(Persistence::Durable) => FileOp::WriteDurable,
            BackingOp::Flush => FileOp::Flush,
            BackingOp::Discard | BackingOp::WriteZeroes(_) => self.can.erase(request.op),
        };
        if matches!(request.op, BackingOp::Write(_)) {
            let len = request.range.len as usize;
            // Copied, so that the disk sees one state of each block while commands go on.
            client.fetch(request.id, 0, &mut self.queue.buffer_mut(slot)[..len]);
        }
        let job = Job {
            request,
            op,
            done_bytes: 0,
            is_retry: false,
        };
        self.submit(slot, job);
    }

    fn submit(&mut self, slot: u16, job: Job) {
        if self.is_leaving {
            // From its beginning: what is done of it may be done twice.
            self.backlog.push_front(job.request);
            self.free.push(slot);
            return;
        }
        self.slots[usize::from(slot)] = Some(job);
        let range = job.request.range;
        let mut len = range.len - job.done_bytes;
        if writes_zeros(&job) {
            len = len.min(self.buffer_bytes);
            self.queue.buffer_mut(slot)[..len as usize].fill(0);
        }
        self.queue
            .submit(slot, job.op, range.offset + job.done_bytes, len);
    }

    /// Reports the requests that have ended, at most [`REPORTS`]; goes on with the others.
    fn complete_all(&mut self, completions: &[FileCompletion], client: &dyn BackingClient) {
        let mut over = [None; REPORTS];
        for (over, completion) in over.iter_mut().zip(completions) {
            *over = self.complete(completion);
        }
        let nothing = Ended {
            id: RequestId(0),
            result: Ok(&[]),
        };
        let mut ended = [nothing; REPORTS];
        let mut count = 0;
        for (slot, id, result) in over.iter().flatten() {
            ended[count] = Ended {
                id: *id,
                result: result.map(|()| self.queue.buffer(*slot)),
            };
            count += 1;
        }
        client.done_all(&ended[..count]);
        self.free
            .extend(over.into_iter().flatten().map(|(slot, ..)| slot));
    }

    /// Goes on with the request of a slot. If it has ended: its slot, its name and its result.
    fn complete(
        &mut self,
        completion: &FileCompletion,
    ) -> Option<(u16, RequestId, Result<(), BackingError>)> {
        let FileCompletion { slot, ref result } = *completion;
        let job = self.slots[usize::from(slot)].take();
        let mut job = job.expect("a completion belongs to a request");
        let id = job.request.id;
        match result {
            Ok(()) if writes_zeros(&job) => {
                job.done_bytes += self
                    .buffer_bytes
                    .min(job.request.range.len - job.done_bytes);
                if job.done_bytes == job.request.range.len {
                    return Some((slot, id, Ok(())));
                }
            }
            Ok(()) => return Some((slot, id, Ok(()))),
            Err(FileError::Os(error)) if is_erasure(&job) && is_unsupported(error) => {
                self.can.forget(job.op);
                job.op = self.can.erase(job.request.op);
            }
            // The rest of a transfer that ended early says why it did.
            Err(FileError::Short { .. }) if !job.is_retry => job.is_retry = true,
            Err(error) => return Some((slot, id, Err(classify(error)))),
        }
        self.submit(slot, job);
        None
    }
}

impl Abilities {
    /// How a range is erased.
    fn erase(self, op: BackingOp) -> FileOp {
        let keeps_space = op == BackingOp::WriteZeroes(Unmap::Forbidden);
        if self.punch && !keeps_space {
            FileOp::Discard
        } else if self.zero {
            FileOp::WriteZeroes
        } else {
            FileOp::Write
        }
    }

    fn forget(&mut self, op: FileOp) {
        match op {
            FileOp::Discard => self.punch = false,
            _ => self.zero = false,
        }
    }
}

fn is_erasure(job: &Job) -> bool {
    matches!(job.op, FileOp::Discard | FileOp::WriteZeroes)
}

/// Whether zeros are written because there is no other way to erase.
fn writes_zeros(job: &Job) -> bool {
    let erases = matches!(
        job.request.op,
        BackingOp::Discard | BackingOp::WriteZeroes(_)
    );
    erases && job.op == FileOp::Write
}

fn is_unsupported(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::Unsupported || error.kind() == io::ErrorKind::InvalidInput
}

/// What an error of the system means for those who wrote or read.
fn classify(error: &FileError) -> BackingError {
    use io::ErrorKind as Kind;
    let FileError::Os(error) = error else {
        return BackingError::Medium;
    };
    match error.kind() {
        Kind::StorageFull | Kind::QuotaExceeded | Kind::FileTooLarge => BackingError::NoSpace,
        Kind::NotFound | Kind::NetworkDown => BackingError::Gone,
        _ => match error.raw_os_error() {
            Some(EIO) => BackingError::Medium,
            Some(ENXIO | ENODEV) => BackingError::Gone,
            _ => BackingError::Other,
        },
    }
}

// Linux's numbers, which are the same on every machine that it runs on here.
const EIO: i32 = 5;
const ENXIO: i32 = 6;
const ENODEV: i32 = 19;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_of_the_system_are_what_they_mean() {
        let of = |number| classify(&FileError::Os(io::Error::from_raw_os_error(number)));
        let rows = [
            (5, BackingError::Medium),
            (28, BackingError::NoSpace),
            (122, BackingError::NoSpace),
            (27, BackingError::NoSpace),
            (6, BackingError::Gone),
            (19, BackingError::Gone),
            (12, BackingError::Other),
        ];
        for (number, expected) in rows {
            assert_eq!(of(number), expected, "{number}");
        }
        let short = FileError::Short {
            done_bytes: 512,
            wanted_bytes: 4096,
        };
        assert_eq!(classify(&short), BackingError::Medium);
    }

    #[test]
    fn a_range_is_erased_in_the_cheapest_way_that_is_left() {
        let mut can = Abilities {
            punch: true,
            zero: true,
        };
        let forbidden = BackingOp::WriteZeroes(Unmap::Forbidden);
        let allowed = BackingOp::WriteZeroes(Unmap::Allowed);
        assert_eq!(can.erase(BackingOp::Discard), FileOp::Discard);
        assert_eq!(can.erase(allowed), FileOp::Discard);
        assert_eq!(can.erase(forbidden), FileOp::WriteZeroes);
        can.forget(FileOp::Discard);
        assert_eq!(can.erase(allowed), FileOp::WriteZeroes);
        can.forget(FileOp::WriteZeroes);
        assert_eq!(can.erase(BackingOp::Discard), FileOp::Write);
    }
}
