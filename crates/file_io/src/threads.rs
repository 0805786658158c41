//! Requests carried out by threads with `pread` and `pwrite`, where io_uring is not permitted.
//!
//! The queue is bounded: a request occupies its slot until it is reaped, so there are never more
//! requests than slots. Threads start when requests wait for one, [`THREADS_MAX`] at most.

use std::{
    collections::VecDeque,
    fs::File,
    io::{self, IoSlice},
    os::unix::fs::FileExt as _,
    slice,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use rustix::{event::EventfdFlags, fd::OwnedFd, fs::FallocateFlags, io::ReadWriteFlags};

use crate::{FileOp, request::Request};

/// The most threads of one queue.
pub(crate) const THREADS_MAX: usize = 16;

/// The threads of one queue, and what they have to do.
#[derive(Debug)]
pub(crate) struct Threads {
    shared: Arc<Shared>,
    handles: Vec<JoinHandle<()>>,
    count_max: usize,
}

#[derive(Debug)]
struct Shared {
    file: Arc<File>,
    state: Mutex<State>,
    /// There is a request, or the queue closes.
    work: Condvar,
    /// A request has ended.
    ended: Condvar,
    /// Readable after a request has ended.
    event: OwnedFd,
}

#[derive(Debug)]
struct State {
    requests: VecDeque<Job>,
    done: Vec<(u16, io::Result<usize>)>,
    /// Threads that wait for a request.
    idle: usize,
    is_closing: bool,
    /// Whether another thread may end a wait, and has done so.
    has_waker: bool,
    is_woken: bool,
}

/// A request with the buffer of its slot.
#[derive(Debug)]
struct Job {
    request: Request,
    buffer: *mut u8,
}

// SAFETY: the buffer belongs to the slot of the request, which is in flight: until the completion
// is reaped only the thread that has the job touches it. `FileIo` keeps the mapping until all
// completions are reaped, or leaks it.
unsafe impl Send for Job {}

impl Threads {
    /// A queue on `file` with up to `depth` requests in flight.
    pub(crate) fn new(file: Arc<File>, depth: u16) -> io::Result<Self> {
        let depth = usize::from(depth);
        Ok(Self {
            shared: Arc::new(Shared {
                file,
                state: Mutex::new(State {
                    requests: VecDeque::with_capacity(depth),
                    done: Vec::with_capacity(depth),
                    idle: 0,
                    is_closing: false,
                    has_waker: false,
                    is_woken: false,
                }),
                work: Condvar::new(),
                ended: Condvar::new(),
                event: rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
            }),
            handles: Vec::new(),
            count_max: depth.min(THREADS_MAX),
        })
    }

    /// What becomes readable when a request has ended.
    pub(crate) fn event(&self) -> &OwnedFd {
        &self.shared.event
    }

    /// Queues a request on `buffer`, which belongs to the request's slot until its completion is
    /// reaped.
    pub(crate) fn push(&mut self, request: Request, buffer: *mut u8) {
        let mut state = self.shared.lock();
        state.requests.push_back(Job { request, buffer });
        let is_short = state.requests.len() > state.idle;
        drop(state);
        if is_short && self.handles.len() < self.count_max {
            let shared = Arc::clone(&self.shared);
            let builder = thread::Builder::new().name("file-io".to_owned());
            match builder.spawn(move || shared.work()) {
                Ok(handle) => self.handles.push(handle),
                // No thread can be created, and no other thread exists that could do it.
                Err(_) if self.handles.is_empty() => self.shared.work_once(),
                Err(_) => {}
            }
        }
        self.shared.work.notify_one();
    }

    /// What ends a wait from another thread.
    pub(crate) fn waker(&self) -> ThreadsWaker {
        self.shared.lock().has_waker = true;
        ThreadsWaker(Arc::clone(&self.shared))
    }

    pub(crate) fn has_waker(&self) -> bool {
        self.shared.lock().has_waker
    }

    /// Waits until a request has ended, another thread wakes it, or `timeout` is over.
    pub(crate) fn wait(&self, timeout: Option<Duration>) {
        let deadline = timeout.map(|timeout| Instant::now() + timeout);
        let mut state = self.shared.lock();
        while state.done.is_empty() && !std::mem::take(&mut state.is_woken) {
            state = match deadline {
                None => wait(self.shared.ended.wait(state)),
                Some(deadline) => {
                    let left = deadline.saturating_duration_since(Instant::now());
                    if left.is_zero() {
                        return;
                    }
                    wait(self.shared.ended.wait_timeout(state, left)).0
                }
            };
        }
    }

    /// Takes what has ended.
    pub(crate) fn reap(&self, take: &mut impl FnMut(u16, io::Result<usize>)) {
        let mut state = self.shared.lock();
        for (slot, result) in state.done.drain(..) {
            take(slot, result);
        }
    }
}

/// Ends the wait of a queue's thread.
#[derive(Clone, Debug)]
pub(crate) struct ThreadsWaker(Arc<Shared>);

impl ThreadsWaker {
    pub(crate) fn wake(&self) {
        self.0.lock().is_woken = true;
        self.0.ended.notify_one();
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        self.shared.lock().is_closing = true;
        self.shared.work.notify_all();
        for handle in self.handles.drain(..) {
            // A panic was reported when it happened.
            let _ = handle.join();
        }
    }
}

impl Shared {
    /// What the mutex guards is whole whenever it is unlocked, even by a panic.
    fn lock(&self) -> MutexGuard<'_, State> {
        wait(self.state.lock())
    }

    /// Carries requests out until the queue closes.
    fn work(&self) {
        let mut state = self.lock();
        while !state.is_closing {
            if let Some(job) = state.requests.pop_front() {
                drop(state);
                self.carry_out(&job);
                state = self.lock();
                continue;
            }
            state.idle += 1;
            state = wait(self.work.wait(state));
            state.idle -= 1;
        }
    }

    fn work_once(&self) {
        let job = self.lock().requests.pop_front();
        if let Some(job) = job {
            self.carry_out(&job);
        }
    }

    fn carry_out(&self, job: &Job) {
        let result = transfer(&self.file, job);
        self.lock().done.push((job.request.slot, result));
        self.ended.notify_one();
        // It fails only if the counter is full, and then the descriptor is readable.
        let _ = rustix::io::write(&self.event, &1_u64.to_ne_bytes());
    }
}

/// The value of a lock, whether or not a thread panicked with it.
fn wait<T>(result: Result<T, PoisonError<T>>) -> T {
    result.unwrap_or_else(PoisonError::into_inner)
}

fn transfer(file: &File, job: &Job) -> io::Result<usize> {
    let Request {
        op,
        offset_bytes,
        len_bytes,
        ..
    } = job.request;
    let len = len_bytes as usize;
    match op {
        FileOp::Read => {
            // SAFETY: the buffer has at least `len` initialized bytes (checked at submission), and
            // nothing else uses it while its slot is in flight.
            let buffer = unsafe { slice::from_raw_parts_mut(job.buffer, len) };
            file.read_at(buffer, offset_bytes)
        }
        FileOp::Write => {
            // SAFETY: as above.
            let buffer = unsafe { slice::from_raw_parts(job.buffer, len) };
            file.write_at(buffer, offset_bytes)
        }
        FileOp::WriteDurable => {
            // SAFETY: as above.
            let buffer = unsafe { slice::from_raw_parts(job.buffer, len) };
            let buffers = [IoSlice::new(buffer)];
            Ok(rustix::io::pwritev2(
                file,
                &buffers,
                offset_bytes,
                ReadWriteFlags::DSYNC,
            )?)
        }
        FileOp::Discard | FileOp::WriteZeroes => {
            let mode = match op {
                FileOp::Discard => FallocateFlags::PUNCH_HOLE,
                _ => FallocateFlags::ZERO_RANGE,
            };
            let mode = mode | FallocateFlags::KEEP_SIZE;
            rustix::fs::fallocate(file, mode, offset_bytes, len_bytes)?;
            Ok(0)
        }
        FileOp::Flush => file.sync_data().map(|()| 0),
    }
}
