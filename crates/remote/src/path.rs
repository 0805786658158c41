//! The paths to a disk: a thread per URL that connects, checks the disk, and hands the queue to the
//! worker; and the list of requests that sessions, paths and worker share.

use std::collections::VecDeque;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use block::{Blocks, Geometry, WriteCache};
use initiator::{BackoffDelays, Device, DeviceOptions, Queue, Url};
use volume::PathInfo;
use window::{Backing, Request};

use crate::attach::{Attachment, Expected, OwnDisks, SizeRule, attach, check};
use crate::error::{DiskId, RemoteError};
use crate::settings::{BACKOFF, Settings};
use crate::waker::Waker;

/// A connection that lasted this long was good: the next attempts begin with the shortest wait.
const GOOD_TIME: Duration = Duration::from_secs(10);
/// How long a close waits until the worker has ended.
const CLOSE_WAIT: Duration = Duration::from_secs(5);

/// What sessions, the worker and the threads of the paths share.
#[derive(Debug)]
pub(crate) struct Paths {
    entries: Vec<PathEntry>,
    own: Arc<dyn OwnDisks>,
    inbox: Mutex<Inbox>,
    /// The worker has ended.
    ended: Condvar,
    /// Whether the worker waits, or is about to.
    is_asleep: AtomicBool,
    pub(crate) waker: Waker,
    /// The disk, from the first connection on.
    disk: Mutex<Option<DiskId>>,
    block_size: block::BlockSize,
    blocks: AtomicU64,
    /// Whether the disk was ever reached.
    is_ready: AtomicBool,
    is_write_protected: AtomicBool,
}

/// One URL.
#[derive(Debug)]
struct PathEntry {
    url: Url,
    options: DeviceOptions,
    status: Mutex<PathStatus>,
    /// The path was lost, or all are closed.
    changed: Condvar,
    connects: AtomicU64,
    losses: AtomicU64,
    errors: AtomicU64,
}

#[derive(Debug, Default)]
struct PathStatus {
    /// Whether the worker has its queue.
    is_up: bool,
    is_closing: bool,
    /// Why it is not up.
    problem: Option<String>,
}

/// What the worker has to do.
#[derive(Debug, Default)]
pub(crate) struct Inbox {
    pub(crate) requests: VecDeque<Request>,
    /// Queues of paths that have come up, by the number of the path.
    pub(crate) queues: Vec<(usize, NewQueue)>,
    pub(crate) is_closing: bool,
    has_ended: bool,
}

/// The queue of a path that has come up.
#[derive(Debug)]
pub(crate) struct NewQueue {
    pub(crate) queue: Queue,
    pub(crate) write_cache: WriteCache,
}

impl Paths {
    pub(crate) fn new(
        settings: &Settings,
        geometry: Geometry,
        own: Arc<dyn OwnDisks>,
    ) -> Result<Self, RemoteError> {
        let mut random = [0; 3];
        let entries = settings.urls.iter().enumerate().map(|(number, url)| {
            rustix::rand::getrandom(&mut random, rustix::rand::GetRandomFlags::empty())
                .map_err(io::Error::from)?;
            // Distinct for the paths of a volume, whatever the random bits are.
            random[2] = number as u8;
            Ok(PathEntry {
                url: url.clone(),
                options: settings.device_options(random),
                status: Mutex::default(),
                changed: Condvar::new(),
                connects: AtomicU64::new(0),
                losses: AtomicU64::new(0),
                errors: AtomicU64::new(0),
            })
        });
        Ok(Self {
            entries: entries.collect::<Result<_, RemoteError>>()?,
            own,
            inbox: Mutex::default(),
            ended: Condvar::new(),
            is_asleep: AtomicBool::new(false),
            waker: Waker::new()?,
            disk: Mutex::new(settings.disk.clone().map(DiskId)),
            block_size: geometry.block_size,
            blocks: AtomicU64::new(geometry.blocks.0),
            is_ready: AtomicBool::new(false),
            is_write_protected: AtomicBool::new(false),
        })
    }

    /// How many paths there are.
    pub(crate) fn count(&self) -> usize {
        self.entries.len()
    }

    /// Connects by the path with this number, and checks that it leads to the volume's disk.
    pub(crate) fn connect(&self, number: usize, size: SizeRule) -> Result<Attachment, RemoteError> {
        let entry = &self.entries[number];
        let attachment = attach(&entry.url, &entry.options)?;
        let mut disk = lock(&self.disk);
        let expected = Expected {
            geometry: self.geometry(),
            size,
            disk: disk.clone(),
            needs_identity: self.count() > 1,
        };
        let found = check(&entry.url, &attachment.device, &expected, &*self.own)?;
        if disk.is_none() {
            *disk = found;
        }
        Ok(attachment)
    }

    /// Starts the thread of a path. If the path is connected already, `device` is its attachment,
    /// whose queue was handed over.
    pub(crate) fn start(self: &Arc<Self>, number: usize, device: Option<Device>) -> io::Result<()> {
        let paths = Arc::clone(self);
        thread::Builder::new()
            .name("remote-path".to_owned())
            .spawn(move || paths.keep(number, device))
            .map(drop)
    }

    /// Keeps a path up until it is closed.
    fn keep(&self, number: usize, mut device: Option<Device>) {
        let entry = &self.entries[number];
        let mut delays = BackoffDelays::new(BACKOFF, number as u64);
        loop {
            let since = Instant::now();
            if device.is_none() {
                match self.connect(number, SizeRule::AtLeast) {
                    Ok(attachment) => device = Some(self.hand_over(number, attachment)),
                    Err(error) => entry.note_problem(&error),
                }
            }
            if let Some(device) = device.take() {
                entry.wait_for_loss();
                drop(device);
                if since.elapsed() >= GOOD_TIME {
                    delays = BackoffDelays::new(BACKOFF, number as u64);
                }
            }
            if entry.pause(delays.next_delay()) {
                return;
            }
        }
    }

    /// Gives the queue of a path that has come up to the worker, and returns the rest of the
    /// attachment.
    pub(crate) fn hand_over(&self, number: usize, attachment: Attachment) -> Device {
        let Attachment { device, queue } = attachment;
        let entry = &self.entries[number];
        let mut status = lock(&entry.status);
        if status.is_closing {
            return device;
        }
        status.is_up = true;
        if let Some(problem) = status.problem.take() {
            tracing::info!(url = %entry.url, before = problem, "a path to a remote disk is up");
        }
        entry.connects.fetch_add(1, Ordering::Relaxed);
        let is_write_protected = device.info().is_write_protected;
        self.is_write_protected
            .store(is_write_protected, Ordering::Release);
        let write_cache = device.info().write_cache;
        let queue = NewQueue { queue, write_cache };
        self.inbox().queues.push((number, queue));
        drop(status);
        self.wake();
        device
    }

    /// Notes that the worker has dropped the queue of a path, whose thread connects again.
    pub(crate) fn note_loss(&self, number: usize) {
        let entry = &self.entries[number];
        entry.losses.fetch_add(1, Ordering::Relaxed);
        entry.note_problem(&RemoteError::Lost);
        let mut status = lock(&entry.status);
        status.is_up = false;
        entry.changed.notify_all();
    }

    /// Notes that the other side has failed a command.
    pub(crate) fn note_error(&self, number: usize) {
        self.entries[number].errors.fetch_add(1, Ordering::Relaxed);
    }

    /// Notes that the disk can be used.
    pub(crate) fn note_ready(&self) {
        self.is_ready.store(true, Ordering::Release);
    }

    pub(crate) fn is_ready(&self) -> bool {
        self.is_ready.load(Ordering::Acquire)
    }

    pub(crate) fn is_write_protected(&self) -> bool {
        self.is_write_protected.load(Ordering::Acquire)
    }

    /// The size that the disk is known to have.
    pub(crate) fn geometry(&self) -> Geometry {
        let blocks = self.blocks.load(Ordering::Acquire);
        Geometry::new(self.block_size, Blocks(blocks))
    }

    /// Notes the size of the disk. Whether it has grown.
    pub(crate) fn grow(&self, blocks: Blocks) -> bool {
        self.blocks.fetch_max(blocks.0, Ordering::AcqRel) < blocks.0
    }

    /// Each path, for those who manage the volume.
    pub(crate) fn infos(&self) -> Vec<PathInfo> {
        let info = |entry: &PathEntry| {
            let status = lock(&entry.status);
            PathInfo {
                url: entry.url.to_string(),
                is_up: status.is_up,
                problem: status.problem.clone(),
                connects: entry.connects.load(Ordering::Relaxed),
                losses: entry.losses.load(Ordering::Relaxed),
                errors: entry.errors.load(Ordering::Relaxed),
            }
        };
        self.entries.iter().map(info).collect()
    }

    /// Ends the threads. Waits for the worker, but no longer than [`CLOSE_WAIT`], and not for
    /// threads that are connecting.
    pub(crate) fn close(&self) {
        for entry in &self.entries {
            lock(&entry.status).is_closing = true;
            entry.changed.notify_all();
        }
        let mut inbox = self.inbox();
        inbox.is_closing = true;
        self.waker.wake();
        let ended = self
            .ended
            .wait_timeout_while(inbox, CLOSE_WAIT, |inbox| !inbox.has_ended);
        drop(ended);
    }

    /// Notes that there is no worker any more.
    pub(crate) fn note_end(&self) {
        self.inbox().has_ended = true;
        self.ended.notify_all();
    }

    pub(crate) fn inbox(&self) -> MutexGuard<'_, Inbox> {
        lock(&self.inbox)
    }

    /// Lets the worker sleep by `sleep`, unless something is in the inbox.
    pub(crate) fn sleep(&self, sleep: impl FnOnce()) {
        self.is_asleep.store(true, Ordering::SeqCst);
        let inbox = self.inbox();
        let is_idle = inbox.requests.is_empty() && inbox.queues.is_empty() && !inbox.is_closing;
        drop(inbox);
        if is_idle {
            sleep();
        }
        if !self.is_asleep.swap(false, Ordering::SeqCst) {
            self.waker.clear();
        }
    }

    fn wake(&self) {
        if self.is_asleep.swap(false, Ordering::SeqCst) {
            self.waker.wake();
        }
    }
}

impl Backing for Paths {
    fn submit(&self, request: Request) {
        self.inbox().requests.push_back(request);
        self.wake();
    }
}

impl PathEntry {
    fn note_problem(&self, error: &RemoteError) {
        let problem = error.to_string();
        let mut status = lock(&self.status);
        if status.problem.as_ref() != Some(&problem) && !status.is_closing {
            tracing::warn!(url = %self.url, problem, "a path to a remote disk is down; it is tried again");
        }
        status.problem = Some(problem);
    }

    fn wait_for_loss(&self) {
        let status = lock(&self.status);
        let waited = self
            .changed
            .wait_while(status, |status| status.is_up && !status.is_closing);
        drop(waited);
    }

    /// Waits until it is time for another attempt. Whether the path is closing.
    fn pause(&self, time: Duration) -> bool {
        let status = lock(&self.status);
        let waited = self
            .changed
            .wait_timeout_while(status, time, |status| !status.is_closing);
        let (status, _) = waited.unwrap_or_else(PoisonError::into_inner);
        status.is_closing
    }
}

/// Locks a mutex whose value no panic leaves half changed.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
