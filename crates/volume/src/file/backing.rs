//! The backing of a file volume: a thread with a queue of requests on the file.

use std::collections::VecDeque;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use block::{Persistence, Unmap};
use file_io::{FileCompletion, FileError, FileIo, FileOp, HostDisk, Waker};
use memory::Charge;
use window::{Backing, BackingClient, BackingError, BackingOp, Ended, Request, RequestId};

/// Requests that the system carries out at a time.
const DEPTH: u16 = 64;
/// Requests whose ends are reported in one call.
const REPORTS: usize = 16;
/// How long a close waits until the file is free for other uses.
const CLOSE_WAIT: Duration = Duration::from_secs(5);

/// Hands requests to the thread that carries them out.
#[derive(Debug)]
pub(super) struct FileBacking {
    inbox: Mutex<Inbox>,
    /// Whether the inbox holds what the worker has not seen.
    has_mail: AtomicBool,
    /// The worker has ended, and its file is closed.
    ended: Condvar,
    /// Whether the worker waits, or is about to.
    is_asleep: AtomicBool,
    waker: Waker,
}

#[derive(Debug, Default)]
struct Inbox {
    requests: VecDeque<Request>,
    is_closing: bool,
    has_ended: bool,
}

impl FileBacking {
    /// The memory that a queue takes for frames of `frame_bytes`.
    pub(super) fn memory_bytes(frame_bytes: u32) -> u64 {
        u64::from(DEPTH) * u64::from(frame_bytes)
    }

    /// A backing on `disk`, and the worker that carries its requests out, which is to be started.
    pub(super) fn new(
        disk: &Arc<HostDisk>,
        frame_bytes: u32,
        charge: Charge,
    ) -> io::Result<(Arc<Self>, Worker)> {
        let mut queue = FileIo::on_disk(disk, DEPTH, frame_bytes as usize, None)?;
        let backing = Arc::new(Self {
            inbox: Mutex::default(),
            has_mail: AtomicBool::new(false),
            ended: Condvar::new(),
            is_asleep: AtomicBool::new(false),
            waker: queue.waker()?,
        });
        let worker = Worker {
            backing: Arc::clone(&backing),
            queue,
            slots: vec![None; usize::from(DEPTH)],
            free: (0..DEPTH).collect(),
            backlog: VecDeque::new(),
            is_closing: false,
            polling: Polling::default(),
            buffer_bytes: u64::from(frame_bytes),
            can: Abilities {
                punch: true,
                zero: true,
            },
            disk: Arc::clone(disk),
            _charge: charge,
        };
        Ok((backing, worker))
    }

    /// Ends the worker after what was submitted, and waits until the file is closed, but no longer
    /// than [`CLOSE_WAIT`].
    pub(super) fn close(&self) {
        let mut inbox = self.inbox();
        inbox.is_closing = true;
        self.has_mail.store(true, Ordering::SeqCst);
        self.waker.wake();
        let ended = self
            .ended
            .wait_timeout_while(inbox, CLOSE_WAIT, |inbox| !inbox.has_ended);
        drop(ended);
    }

    fn inbox(&self) -> MutexGuard<'_, Inbox> {
        self.inbox.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Backing for FileBacking {
    fn submit(&self, request: Request) {
        self.inbox().requests.push_back(request);
        self.has_mail.store(true, Ordering::SeqCst);
        if self.is_asleep.swap(false, Ordering::SeqCst) {
            self.waker.wake();
        }
    }
}

/// Carries requests out.
#[derive(Debug)]
pub(super) struct Worker {
    backing: Arc<FileBacking>,
    queue: FileIo,
    slots: Vec<Option<Job>>,
    free: Vec<u16>,
    /// Requests that wait for a free slot.
    backlog: VecDeque<Request>,
    is_closing: bool,
    polling: Polling,
    buffer_bytes: u64,
    can: Abilities,
    disk: Arc<HostDisk>,
    _charge: Charge,
}

/// How long the worker polls for the next request while none is in flight. Polling that found work is
/// extended, polling that found none is shortened, so an idle worker only sleeps. To wake a thread
/// takes up to 30 µs on a virtual machine.
#[derive(Clone, Copy, Debug, Default)]
struct Polling {
    span: Duration,
}

impl Polling {
    /// The first span, and the shortest above nothing.
    const SPAN_MIN: Duration = Duration::from_micros(20);
    /// The longest span: a host on the same network has sent its next command by then.
    const SPAN_MAX: Duration = Duration::from_micros(80);

    fn is_over(self, polled: Duration) -> bool {
        polled >= self.span
    }

    /// Work came while the worker polled.
    fn found_work(&mut self, polled: Duration) {
        if polled < self.span {
            self.lengthen();
        }
    }

    /// Work came this long after the worker had none.
    fn woke(&mut self, waited: Duration) {
        if waited < Self::SPAN_MAX {
            self.lengthen();
        } else {
            self.span /= 2;
            if self.span < Self::SPAN_MIN {
                self.span = Duration::ZERO;
            }
        }
    }

    fn lengthen(&mut self) {
        self.span = (self.span * 2).clamp(Self::SPAN_MIN, Self::SPAN_MAX);
    }
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

impl Worker {
    /// Starts the thread. It reports to `client`.
    pub(super) fn start(self, client: Arc<dyn BackingClient>) -> io::Result<()> {
        let backing = Arc::clone(&self.backing);
        let started = thread::Builder::new()
            .name("file-volume".to_owned())
            .spawn(move || self.run(&*client));
        if started.is_err() {
            backing.inbox().has_ended = true;
        }
        started.map(drop)
    }

    fn run(mut self, client: &dyn BackingClient) {
        let mut done = Vec::with_capacity(usize::from(DEPTH));
        loop {
            self.take_requests(client);
            let is_idle = self.backlog.is_empty() && self.queue.in_flight() == 0;
            if self.is_closing && is_idle {
                break;
            }
            done.clear();
            if self.wait(&mut done).is_err() {
                break;
            }
            for batch in done.chunks(REPORTS) {
                self.complete_all(batch, client);
            }
        }
        let backing = Arc::clone(&self.backing);
        let left: Vec<_> = self
            .slots
            .iter()
            .flatten()
            .map(|job| job.request.id)
            .collect();
        // Waits for what is in flight.
        drop(self.queue);
        self.disk.unlock();
        let mut requests = self.backlog;
        requests.append(&mut backing.inbox().requests);
        let left = left.into_iter();
        for id in left.chain(requests.into_iter().map(|request| request.id)) {
            client.done(id, Err(BackingError::Gone));
        }
        backing.inbox().has_ended = true;
        backing.ended.notify_all();
    }

    /// Starts what fits into free slots.
    fn take_requests(&mut self, client: &dyn BackingClient) {
        if self.backing.has_mail.swap(false, Ordering::SeqCst) {
            let mut inbox = self.backing.inbox();
            self.backlog.append(&mut inbox.requests);
            self.is_closing = inbox.is_closing;
        }
        while !self.backlog.is_empty()
            && let Some(slot) = self.free.pop()
        {
            let request = self.backlog.pop_front();
            self.begin(slot, request.expect("it is not empty"), client);
        }
    }

    /// Waits until a request has completed or one was submitted.
    fn wait(&mut self, done: &mut Vec<FileCompletion>) -> io::Result<()> {
        let start = Instant::now();
        loop {
            if self.queue.poll(done)? > 0 || self.has_mail() {
                self.polling.found_work(start.elapsed());
                return Ok(());
            }
            // What is in flight wakes the thread by an interrupt, as it would wake any.
            if self.queue.in_flight() > 0 || self.polling.is_over(start.elapsed()) {
                break;
            }
            std::hint::spin_loop();
        }
        self.backing.is_asleep.store(true, Ordering::SeqCst);
        let waited = if self.has_mail() {
            self.queue.poll(done)
        } else {
            self.queue.wait(None, done)
        };
        self.backing.is_asleep.store(false, Ordering::SeqCst);
        self.polling.woke(start.elapsed());
        waited.map(drop)
    }

    fn has_mail(&self) -> bool {
        self.backing.has_mail.load(Ordering::SeqCst)
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
