//! The backing of a file volume: which queue on the file gets a request.
//!
//! ```text
//!  window ── request ──► thread with a lane? ── yes ──► LaneQueue of this thread ──► FileQueue ──► file
//!                             └── no, or not yet ─────► Worker, in a thread of its own ─► FileQueue ──► file
//! ```

use std::collections::VecDeque;
use std::mem;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use file_io::{FileEngine, FileIo, HostDisk, Waker};
use memory::Budget;
use window::{Backing, Request};

use super::file_queue::{DEPTH, FileQueue};
use crate::Platform;
use crate::lanes::LaneHandle;
use crate::lanes::places::{Given, LaneRequests, Places};

/// How long a close waits until the file is free for other uses.
const CLOSE_WAIT: Duration = Duration::from_secs(5);

/// Hands requests to the queue of the calling thread, or to the volume's own thread.
#[derive(Debug)]
pub(super) struct FileBacking {
    inbox: Mutex<Inbox>,
    /// Whether the inbox holds what the worker has not seen.
    has_mail: AtomicBool,
    /// No queue is left, and the file is closed.
    ended: Condvar,
    /// Whether the worker waits, or is about to.
    is_asleep: AtomicBool,
    waker: Waker,
    places: Places,
    frame_bytes: u32,
    budget: Arc<Budget>,
}

/// What the worker is to do.
#[derive(Debug, Default)]
struct Inbox {
    requests: VecDeque<Request>,
    /// Lanes in which queues are to be opened.
    wanted: Vec<Arc<LaneHandle>>,
    is_closing: bool,
    /// Queues that are open: the worker's, and those of lanes.
    queues: usize,
    /// Until the last queue has ended.
    disk: Option<Arc<HostDisk>>,
}

/// What the worker takes out of the inbox besides requests.
#[derive(Debug)]
pub(super) struct Mail {
    /// Lanes in which it is to open queues.
    pub(super) wanted: Vec<Arc<LaneHandle>>,
    /// The worker is to end when nothing is left to do: no other queue is open.
    pub(super) is_last: bool,
}

impl FileBacking {
    /// A backing on `disk`. `waker` ends a wait of the worker.
    pub(super) fn new(
        disk: &Arc<HostDisk>,
        frame_bytes: u32,
        waker: Waker,
        platform: &Platform,
    ) -> Self {
        Self {
            inbox: Mutex::new(Inbox {
                queues: 1,
                disk: Some(Arc::clone(disk)),
                ..Inbox::default()
            }),
            has_mail: AtomicBool::new(false),
            ended: Condvar::new(),
            is_asleep: AtomicBool::new(false),
            waker,
            places: Places::new(&platform.lanes),
            frame_bytes,
            budget: Arc::clone(&platform.budget),
        }
    }

    /// Ends all queues after what was submitted, and waits until the file is closed, but no longer
    /// than [`CLOSE_WAIT`]. A thread with a queue of this volume does not wait, since its lane must
    /// go on.
    pub(super) fn close(&self) {
        let mut inbox = self.inbox();
        inbox.is_closing = true;
        self.ring();
        self.places.close();
        if !self.places.are_here() {
            let is_open = |inbox: &mut Inbox| inbox.queues > 0;
            drop(self.ended.wait_timeout_while(inbox, CLOSE_WAIT, is_open));
        }
    }

    /// Has the worker carry requests out.
    pub(super) fn submit_to_worker(&self, requests: impl IntoIterator<Item = Request>) {
        self.inbox().requests.extend(requests);
        self.has_mail.store(true, Ordering::SeqCst);
        if self.is_asleep.swap(false, Ordering::SeqCst) {
            self.waker.wake();
        }
    }

    /// A queue for a queue in a lane. `None` if memory or descriptors are short, io_uring is not
    /// permitted, or the file is closed.
    pub(super) fn new_file_queue(&self, lane: &LaneHandle) -> Option<FileQueue> {
        let disk = self.inbox().disk.clone()?;
        let charge = self
            .budget
            .reserve(FileQueue::memory_bytes(self.frame_bytes));
        let charge = charge.ok()?;
        let (buffer_bytes, engine) = (self.frame_bytes as usize, Some(FileEngine::IoUring));
        let queue = FileIo::on_disk(&disk, DEPTH, buffer_bytes, engine).ok()?;
        queue.announce_to(lane.event()).ok()?;
        Some(FileQueue::new(queue, self.frame_bytes, charge))
    }

    /// A queue is open: what is submitted in the thread of `lane` goes to it from now on. Returns
    /// false if the volume is being closed.
    pub(super) fn enter_lane(&self, lane: &LaneHandle, requests: &Arc<LaneRequests>) -> bool {
        let mut inbox = self.inbox();
        if inbox.is_closing {
            return false;
        }
        inbox.queues += 1;
        self.places.enter(lane, requests);
        true
    }

    /// A queue in a lane is about to end: what is submitted in its thread goes to the worker from
    /// now on.
    pub(super) fn leave_lane(&self, requests: &Arc<LaneRequests>) {
        self.places.leave(requests);
    }

    /// A queue has ended. The last one closes the file.
    pub(super) fn end_queue(&self) {
        let mut inbox = self.inbox();
        inbox.queues -= 1;
        if inbox.queues == 0 {
            if let Some(disk) = inbox.disk.take() {
                disk.unlock();
            }
            self.ended.notify_all();
        } else {
            // The worker ends last.
            self.ring();
        }
    }

    /// What the worker has not seen yet. Requests are moved to the end of `backlog`.
    pub(super) fn take_mail(&self, backlog: &mut VecDeque<Request>) -> Option<Mail> {
        if !self.has_mail.swap(false, Ordering::SeqCst) {
            return None;
        }
        let mut inbox = self.inbox();
        backlog.append(&mut inbox.requests);
        Some(Mail {
            wanted: mem::take(&mut inbox.wanted),
            is_last: inbox.is_closing && inbox.queues == 1,
        })
    }

    pub(super) fn has_mail(&self) -> bool {
        self.has_mail.load(Ordering::SeqCst)
    }

    /// The worker is about to wait, or has woken.
    pub(super) fn set_asleep(&self, is_asleep: bool) {
        self.is_asleep.store(is_asleep, Ordering::SeqCst);
    }

    fn ring(&self) {
        self.has_mail.store(true, Ordering::SeqCst);
        self.waker.wake();
    }

    fn inbox(&self) -> MutexGuard<'_, Inbox> {
        self.inbox.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Backing for FileBacking {
    fn submit(&self, request: Request) {
        match self.places.give(request) {
            Given::Here => return,
            Given::Elsewhere => {}
            // The request itself wakes the worker.
            Given::ToOpen(lane) => self.inbox().wanted.push(lane),
        }
        self.submit_to_worker([request]);
    }
}
