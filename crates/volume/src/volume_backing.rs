//! A volume as the backing of a window, for caches and mirrors: commands on it, in the thread of
//! the session if that has a lane, else in a thread of the backing.
//!
//! ```text
//!  client ── requests ──► Jobs ── admit, execute, settle, release ──► volume below
//!         ◄── done(id) ── Jobs ◄── Returns ◄── Relay ◄── done(ticket) ──┘
//!
//!  Jobs: one set in each lane whose thread uses the volume, one in the Worker
//! ```

mod jobs;
mod lane_queue;

use std::collections::VecDeque;
use std::fmt;
use std::mem;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use block::Status;
use window::{Backing, BackingClient, BackingError, Request};

use crate::lanes::LaneHandle;
use crate::lanes::places::{Given, LaneRequests, Places};
use crate::{ManagedVolume, Platform, VolumeError};

use jobs::{JobOwner, Jobs};
use lane_queue::VolumeLaneQueue;

/// How often [`Client::tick`] is called, as long as it asks for that.
const TICK: Duration = Duration::from_millis(100);
/// How long an end of the backing waits until lanes have passed their jobs on.
const LANES_WAIT: Duration = Duration::from_secs(5);

/// Whose requests a volume carries out.
pub(crate) trait Client: BackingClient {
    /// Called by the worker some time after [`Backing::wake_cleaner`]. Returns whether to call it
    /// again.
    fn tick(&self) -> bool {
        false
    }
}

/// Hands requests to the jobs of the calling thread, or to the worker.
pub(crate) struct VolumeBacking {
    inbox: Mutex<Inbox>,
    has_mail: Condvar,
    /// No queue in a lane is left.
    have_left: Condvar,
    places: Places,
}

/// What the worker is to do.
#[derive(Default)]
struct Inbox {
    requests: VecDeque<Request>,
    /// There are completions for jobs of the worker.
    has_completions: bool,
    /// There are dirty blocks to be written in the background.
    has_dirty: bool,
    /// Lanes in which jobs are to be made.
    wanted: Vec<Arc<LaneHandle>>,
    /// Jobs of lanes that have ended.
    inherited: Vec<Jobs>,
    is_closing: bool,
    /// Queues in lanes.
    queues: usize,
}

/// What the worker takes out of the inbox, except for requests.
struct Mail {
    has_dirty: bool,
    wanted: Vec<Arc<LaneHandle>>,
    inherited: Vec<Jobs>,
    /// The worker is to end when nothing is left to do: no lane has jobs.
    is_last: bool,
}

/// The thread of a backing.
#[derive(Debug)]
pub(crate) struct BackingThread {
    backing: Arc<VolumeBacking>,
    thread: JoinHandle<()>,
}

impl fmt::Debug for VolumeBacking {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("VolumeBacking").finish_non_exhaustive()
    }
}

impl VolumeBacking {
    pub(crate) fn new(platform: &Platform) -> Arc<Self> {
        Arc::new(Self {
            inbox: Mutex::default(),
            has_mail: Condvar::new(),
            have_left: Condvar::new(),
            places: Places::new(&platform.lanes),
        })
    }

    /// Starts the thread. All jobs report to `client`. They end after [`close`](Self::close), when
    /// nothing is in flight.
    ///
    /// # Errors
    /// If the budget has no room for its buffers, or the thread cannot be started.
    pub(crate) fn start(
        self: &Arc<Self>,
        volume: &Arc<dyn ManagedVolume>,
        client: Arc<dyn Client>,
        frame_bytes: usize,
        platform: &Platform,
    ) -> Result<BackingThread, VolumeError> {
        let charge = platform.budget.reserve(Jobs::memory_bytes(frame_bytes))?;
        let both = (volume, &client);
        let relay = &platform.relay;
        let worker = Worker {
            backing: Arc::clone(self),
            jobs: Jobs::new(self, both, relay, frame_bytes, JobOwner::Worker, charge),
            inherited: Vec::new(),
            volume: Arc::clone(volume),
            client,
            frame_bytes,
            platform: platform.clone(),
        };
        let thread = thread::Builder::new().name("volume-backing".to_owned());
        let started = thread.spawn(move || worker.run());
        Ok(BackingThread {
            backing: Arc::clone(self),
            thread: started.map_err(VolumeError::Thread)?,
        })
    }

    /// All jobs end when they have carried out what was submitted. Waits for nothing.
    pub(crate) fn close(&self) {
        self.inbox().is_closing = true;
        self.places.close();
        self.has_mail.notify_one();
    }

    /// Has the worker carry requests out.
    fn submit_to_worker(&self, requests: impl IntoIterator<Item = Request>) {
        self.inbox().requests.extend(requests);
        self.has_mail.notify_one();
    }

    fn ring_for_completions(&self) {
        self.inbox().has_completions = true;
        self.has_mail.notify_one();
    }

    /// Jobs in a lane are made: what is submitted in its thread goes to them from now on. Returns
    /// false if the backing is being closed.
    fn enter_lane(&self, lane: &LaneHandle, requests: &Arc<LaneRequests>) -> bool {
        let mut inbox = self.inbox();
        if inbox.is_closing {
            return false;
        }
        inbox.queues += 1;
        self.places.enter(lane, requests);
        true
    }

    /// See [`Places::leave`].
    fn leave_lane(&self, requests: &Arc<LaneRequests>) {
        self.places.leave(requests);
    }

    /// The worker goes on with jobs of a lane.
    fn inherit(&self, jobs: Jobs) {
        self.inbox().inherited.push(jobs);
        self.has_mail.notify_one();
    }

    /// A queue in a lane has ended.
    fn end_queue(&self) {
        self.inbox().queues -= 1;
        self.have_left.notify_all();
        // The worker ends last.
        self.has_mail.notify_one();
    }

    fn inbox(&self) -> MutexGuard<'_, Inbox> {
        self.inbox.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl BackingThread {
    /// Waits after [`VolumeBacking::close`] until nothing is in flight. A thread with jobs of this
    /// backing does not wait, since its lane must go on, nor is a lane waited for longer than
    /// [`LANES_WAIT`].
    pub(crate) fn join(self) {
        if self.backing.places.are_here() {
            return;
        }
        let inbox = self.backing.inbox();
        let has_lanes = |inbox: &mut Inbox| inbox.queues > 0;
        let waited = self
            .backing
            .have_left
            .wait_timeout_while(inbox, LANES_WAIT, has_lanes);
        let (inbox, _) = waited.unwrap_or_else(PoisonError::into_inner);
        let have_left = inbox.queues == 0;
        drop(inbox);
        if have_left {
            // A panic of it has been reported; there is nothing left to wait for.
            let _ = self.thread.join();
        }
    }
}

impl Backing for VolumeBacking {
    fn submit(&self, request: Request) {
        match self.places.give(request) {
            Given::Here => return,
            Given::Elsewhere => {}
            // The request itself wakes the worker.
            Given::ToOpen(lane) => self.inbox().wanted.push(lane),
        }
        self.submit_to_worker([request]);
    }

    fn wake_cleaner(&self) {
        self.inbox().has_dirty = true;
        self.has_mail.notify_one();
    }
}

/// Carries out what threads without a lane request, and makes jobs in lanes.
struct Worker {
    backing: Arc<VolumeBacking>,
    jobs: Jobs,
    /// Of lanes that have ended, until these are idle.
    inherited: Vec<Jobs>,
    volume: Arc<dyn ManagedVolume>,
    client: Arc<dyn Client>,
    frame_bytes: usize,
    platform: Platform,
}

impl Worker {
    fn run(mut self) {
        // None while there is nothing to clean: an idle cache takes no CPU time.
        let mut tick = None;
        loop {
            let mail = self.take_mail(tick);
            self.inherited.extend(mail.inherited);
            self.jobs.turn();
            for jobs in &mut self.inherited {
                jobs.turn();
            }
            self.inherited.retain(|jobs| !jobs.is_idle());
            for lane in mail.wanted {
                self.open_in(&lane);
            }
            if mail.is_last && self.is_idle() {
                return;
            }
            let now = Instant::now();
            if mail.has_dirty {
                tick = tick.or(Some(now + TICK));
            }
            if tick.is_some_and(|tick| now >= tick) {
                tick = self.client.tick().then(|| now + TICK);
            }
        }
    }

    fn is_idle(&self) -> bool {
        self.jobs.is_idle() && self.inherited.is_empty()
    }

    /// Waits for something to do, until `tick` or the next timer at the latest.
    fn take_mail(&mut self, tick: Option<Instant>) -> Mail {
        let is_idle = self.is_idle();
        let has_nothing = |inbox: &mut Inbox| {
            let may_end = inbox.is_closing && inbox.queues == 0 && is_idle;
            let has_mail = !inbox.requests.is_empty() || inbox.has_completions || inbox.has_dirty;
            let of_lanes = !inbox.wanted.is_empty() || !inbox.inherited.is_empty();
            !(has_mail || of_lanes || may_end)
        };
        let timers = self.inherited.iter().chain([&self.jobs]);
        let next = timers.filter_map(Jobs::due).chain(tick).min();
        let left = next.map(|next| next.saturating_duration_since(Instant::now()));
        let inbox = self.backing.inbox();
        let waited = self.backing.has_mail.wait_timeout_while(
            inbox,
            left.unwrap_or(Duration::MAX),
            has_nothing,
        );
        let (mut inbox, _) = waited.unwrap_or_else(PoisonError::into_inner);
        self.jobs.backlog().append(&mut inbox.requests);
        inbox.has_completions = false;
        Mail {
            has_dirty: mem::take(&mut inbox.has_dirty),
            wanted: mem::take(&mut inbox.wanted),
            inherited: mem::take(&mut inbox.inherited),
            is_last: inbox.is_closing && inbox.queues == 0,
        }
    }

    /// Makes jobs in a lane whose thread has used the volume. If memory is short, the worker goes
    /// on with the requests of that thread.
    fn open_in(&self, lane: &Arc<LaneHandle>) {
        let bytes = Jobs::memory_bytes(self.frame_bytes);
        let Ok(charge) = self.platform.budget.reserve(bytes) else {
            return;
        };
        let owner = JobOwner::Lane(Arc::clone(lane));
        let both = (&self.volume, &self.client);
        let relay = &self.platform.relay;
        let jobs = Jobs::new(&self.backing, both, relay, self.frame_bytes, owner, charge);
        let requests = Arc::default();
        if !self.backing.enter_lane(lane, &requests) {
            return;
        }
        let queue = VolumeLaneQueue::new(&self.backing, requests, jobs);
        // If the lane's thread has ended, the queue ends here and its jobs are inherited.
        drop(lane.adopt(Box::new(queue)));
    }
}

/// What the window tells commands whose request has failed so.
pub(crate) fn meaning_of(status: Status) -> BackingError {
    match status {
        Status::CapacityExceeded => BackingError::NoSpace,
        Status::NotReady | Status::Gone => BackingError::Gone,
        Status::ReadError | Status::WriteError => BackingError::Medium,
        _ => BackingError::Other,
    }
}
#[cfg(test)]
mod tests;
