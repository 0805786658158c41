//! A queue on one file.

use std::{
    fs::File,
    io::{self, Seek as _, SeekFrom},
    os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd},
    path::Path,
    sync::Arc,
    time::Duration,
};

use rustix::event::{EventfdFlags, eventfd};

use crate::{
    Event, FileCompletion, FileEngine, FileError, FileIoOptions, FileOp, HostDisk,
    aligned::Buffers,
    open::open_file,
    request::Request,
    ring::{Ring, Until},
    threads::{THREADS_MAX, Threads, ThreadsWaker},
};

/// A file and the requests in flight on it.
#[derive(Debug)]
pub struct FileIo {
    engine: Engine,
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
    /// The most threads of a queue that threads serve.
    pub const THREADS_MAX: usize = THREADS_MAX;

    /// Opens `path`. `options.depth` is from 1 to [`DEPTH_MAX`](Self::DEPTH_MAX).
    pub fn open(path: &Path, options: &FileIoOptions) -> io::Result<Self> {
        let (mut file, alignment_bytes, direct) = open_file(path, options)?;
        let len_bytes = file.seek(SeekFrom::End(0))?;
        let file = Arc::new(file);
        let mut queue = Self::on(&file, options.depth, options.buffer_bytes, options.engine)?;
        queue.len_bytes = len_bytes;
        queue.alignment_bytes = alignment_bytes;
        queue.direct = direct;
        Ok(queue)
    }

    /// A queue on a disk of this machine, whose requests are whole blocks of the disk.
    pub fn on_disk(
        disk: &HostDisk,
        depth: u16,
        buffer_bytes: usize,
        engine: Option<FileEngine>,
    ) -> io::Result<Self> {
        let mut queue = Self::on(disk.file(), depth, buffer_bytes, engine)?;
        queue.len_bytes = disk.len_bytes();
        queue.direct = disk.is_direct();
        Ok(queue)
    }

    fn on(
        file: &Arc<File>,
        depth: u16,
        buffer_bytes: usize,
        engine: Option<FileEngine>,
    ) -> io::Result<Self> {
        let buffers = Buffers::new(depth, buffer_bytes)?;
        let engine = Engine::new(file, &buffers, depth, engine)?;
        Ok(Self {
            engine,
            in_flight: vec![None; usize::from(depth)].into_boxed_slice(),
            in_flight_count: 0,
            buffers,
            len_bytes: 0,
            alignment_bytes: 1,
            direct: false,
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

    /// Whether transfers bypass the page cache.
    pub fn is_direct(&self) -> bool {
        self.direct
    }

    /// Which system calls carry the requests.
    pub fn engine(&self) -> FileEngine {
        match self.engine {
            Engine::IoUring { .. } => FileEngine::IoUring,
            Engine::Threads(_) => FileEngine::Threads,
        }
    }

    /// Makes further completions signal [`descriptor`](Self::descriptor). An event may occur
    /// without a completion, and one event may signal several completions.
    pub fn announce(&mut self) -> io::Result<()> {
        let Engine::IoUring { ring, event } = &mut self.engine else {
            return Ok(());
        };
        if event.is_none() {
            let counter = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
            ring.announce(counter.as_raw_fd())?;
            *event = Some(counter);
        }
        Ok(())
    }

    /// Makes further completions raise `event`, which several queues of one thread can share. An
    /// event may occur without a completion, and one event may signal several completions. Only for
    /// io_uring.
    pub fn announce_to(&self, event: &Event) -> io::Result<()> {
        match &self.engine {
            Engine::IoUring { ring, .. } => ring.announce(event.as_fd().as_raw_fd()),
            Engine::Threads(_) => Err(io::ErrorKind::Unsupported.into()),
        }
    }

    /// The descriptor of completion events, for a thread that has several queues, after
    /// [`announce`](Self::announce). It stays readable after the first event, so wait
    /// edge-triggered.
    pub fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        match &self.engine {
            Engine::IoUring { event, .. } => event.as_ref().map(AsFd::as_fd),
            Engine::Threads(threads) => Some(threads.event().as_fd()),
        }
    }

    /// What ends a [`wait`](Self::wait) from another thread. From now on a wait without a timeout
    /// lasts until then, also while nothing is in flight.
    pub fn waker(&mut self) -> io::Result<Waker> {
        Ok(Waker(match &mut self.engine {
            Engine::IoUring { ring, .. } => WakerOf::Ring(ring.waker()?),
            Engine::Threads(threads) => WakerOf::Threads(threads.waker()),
        }))
    }

    /// Whether the system has not yet accepted a request, so that no completion will be signalled
    /// until the next [`poll`](Self::poll).
    pub fn has_unsubmitted(&mut self) -> bool {
        match &mut self.engine {
            Engine::IoUring { ring, .. } => ring.has_unsubmitted(),
            Engine::Threads(_) => false,
        }
    }

    /// How many requests are in flight.
    pub fn in_flight(&self) -> usize {
        self.in_flight_count
    }

    /// The buffer of `slot`. Panics if a request is in flight in it, since the kernel may be
    /// writing the buffer.
    pub fn buffer(&self, slot: u16) -> &[u8] {
        assert!(
            self.in_flight[usize::from(slot)].is_none(),
            "the buffer of a slot in flight is the kernel's"
        );
        // SAFETY: nothing is in flight in this slot, so the kernel does not access its buffer;
        // `&self` excludes `submit` and `buffer_mut`.
        unsafe { self.buffers.slot(slot) }
    }

    /// The buffer of `slot`, to fill. Panics if a request is in flight in it.
    pub fn buffer_mut(&mut self, slot: u16) -> &mut [u8] {
        assert!(
            self.in_flight[usize::from(slot)].is_none(),
            "the buffer of a slot in flight is the kernel's"
        );
        // SAFETY: nothing is in flight in this slot, so the kernel does not touch its buffer; `&mut
        // self` makes this the only reference.
        unsafe { self.buffers.slot_mut(slot) }
    }

    /// Starts a request on `len_bytes` bytes from `offset_bytes` on. If the system does not accept
    /// the request, the next [`poll`](Self::poll) or [`wait`](Self::wait) retries or returns the
    /// error. Panics if `slot` is in flight or its buffer is shorter.
    pub fn submit(&mut self, slot: u16, op: FileOp, offset_bytes: u64, len_bytes: u64) {
        let state = &mut self.in_flight[usize::from(slot)];
        assert!(state.is_none(), "slot {slot} is in flight");
        let wanted = if op.has_data() {
            assert!(
                len_bytes <= self.buffers.slot_bytes() as u64,
                "the transfer is longer than the slot's buffer"
            );
            len_bytes as u32
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
            Engine::IoUring { ring, .. } => {
                ring.push(&self.buffers, request);
                // One call per request: a device that receives 32 requests at once completes them
                // at once and is idle in between, which took a quarter of the random writes of a
                // virtual disk.
                ring.start();
            }
            Engine::Threads(threads) => threads.push(request, self.buffers.slot_ptr(slot)),
        }
    }

    /// Submits pending requests, appends completions to `done`, and returns their number. Never
    /// waits.
    pub fn poll(&mut self, done: &mut Vec<FileCompletion>) -> io::Result<usize> {
        if let Engine::IoUring { ring, .. } = &mut self.engine {
            ring.enter(Until::Now)?;
        }
        Ok(self.reap(done))
    }

    /// As [`poll`](Self::poll), but waits until at least one request has completed or `timeout` is
    /// over. Returns at once if there is no timeout and nothing is in flight. Arming a timer costs
    /// 1 to 2 µs on a virtual machine.
    pub fn wait(
        &mut self,
        timeout: Option<Duration>,
        done: &mut Vec<FileCompletion>,
    ) -> io::Result<usize> {
        if timeout.is_none() && self.in_flight_count == 0 && !self.engine.has_waker() {
            return Ok(0);
        }
        match &mut self.engine {
            Engine::IoUring { ring, .. } => {
                ring.enter(timeout.map_or(Until::Completion, Until::Timeout))?;
            }
            Engine::Threads(threads) => threads.wait(timeout),
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
            Engine::IoUring { ring, .. } => ring.reap(&mut take),
            Engine::Threads(threads) => threads.reap(&mut take),
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

/// Ends the wait of a queue's thread; see [`FileIo::waker`].
#[derive(Clone, Debug)]
pub struct Waker(WakerOf);

#[derive(Clone, Debug)]
enum WakerOf {
    Ring(Arc<OwnedFd>),
    Threads(ThreadsWaker),
}

impl Waker {
    /// The wait of now, or the next one, ends.
    pub fn wake(&self) {
        match &self.0 {
            WakerOf::Ring(event) => {
                // It fails only if the counter is full, and then the queue wakes anyway.
                let _ = rustix::io::write(event, &1_u64.to_ne_bytes());
            }
            WakerOf::Threads(threads) => threads.wake(),
        }
    }
}

#[derive(Debug)]
enum Engine {
    IoUring {
        ring: Box<Ring>,
        /// The event of completions, once it was requested.
        event: Option<OwnedFd>,
    },
    Threads(Threads),
}

impl Engine {
    /// The requested engine; if none was requested, io_uring if it is permitted, otherwise threads.
    fn new(
        file: &Arc<File>,
        buffers: &Buffers,
        depth: u16,
        engine: Option<FileEngine>,
    ) -> io::Result<Self> {
        let ring = match engine {
            Some(FileEngine::Threads) => None,
            Some(FileEngine::IoUring) => Some(Ring::new(file, buffers, depth)?),
            None => Ring::new(file, buffers, depth).ok(),
        };
        match ring {
            Some(ring) => Ok(Self::IoUring {
                ring: Box::new(ring),
                event: None,
            }),
            None => Threads::new(Arc::clone(file), depth).map(Self::Threads),
        }
    }

    fn has_waker(&self) -> bool {
        match self {
            Self::IoUring { ring, .. } => ring.has_waker(),
            Self::Threads(threads) => threads.has_waker(),
        }
    }
}
