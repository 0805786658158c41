//! Which queue of a volume gets a request: the one in the lane of the calling thread, if there is
//! one.
//!
//! ```text
//!  window ── request ──► thread with a lane? ── yes ──► LaneRequests of this thread ──► queue in the lane
//!                             └── no, or not yet ─────► the volume's own thread
//! ```

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::thread::{self, ThreadId};

use window::Request;

use super::{LaneHandle, LaneRegistry};

/// The lanes in which requests of one volume were submitted.
#[derive(Debug)]
pub(crate) struct Places {
    lanes: Arc<LaneRegistry>,
    places: RwLock<Vec<Place>>,
}

/// A lane, and the way to the queue in it, once it is open. Without one, because it could not be
/// opened, the lane's requests go to the volume's own thread.
#[derive(Debug)]
struct Place {
    lane: Arc<LaneHandle>,
    requests: Option<Arc<LaneRequests>>,
}

/// Who carries a request out.
#[derive(Debug)]
pub(crate) enum Given {
    /// The queue in the lane of the calling thread.
    Here,
    /// The volume's own thread.
    Elsewhere,
    /// The volume's own thread, which is to open a queue in this lane, since it is the thread's
    /// first request.
    ToOpen(Arc<LaneHandle>),
}

/// What the window has requested in a thread with a lane since the last turn of the lane. The
/// window bounds it, as all that it requests.
#[derive(Debug, Default)]
pub(crate) struct LaneRequests {
    queued: Mutex<VecDeque<Request>>,
    is_closing: AtomicBool,
}

impl LaneRequests {
    fn push(&self, request: Request) {
        self.queued().push_back(request);
    }

    /// Moves what was requested to the end of `backlog`.
    pub(crate) fn move_to(&self, backlog: &mut VecDeque<Request>) {
        backlog.append(&mut self.queued());
    }

    /// The queue is to end.
    fn close(&self) {
        self.is_closing.store(true, Ordering::Release);
    }

    pub(crate) fn is_closing(&self) -> bool {
        self.is_closing.load(Ordering::Acquire)
    }

    fn queued(&self) -> MutexGuard<'_, VecDeque<Request>> {
        self.queued.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Places {
    pub(crate) fn new(lanes: &Arc<LaneRegistry>) -> Self {
        Self {
            lanes: Arc::clone(lanes),
            places: RwLock::default(),
        }
    }

    /// Gives a request to this thread's queue, if there is one.
    pub(crate) fn give(&self, request: Request) -> Given {
        let here = thread::current().id();
        if let Some(place) = self.read().iter().find(|place| place.is_in(here)) {
            let Some(requests) = &place.requests else {
                return Given::Elsewhere;
            };
            requests.push(request);
            return Given::Here;
        }
        let Some(lane) = self.lanes.of(here) else {
            return Given::Elsewhere;
        };
        let mut places = self.write();
        places.retain(|place| self.lanes.of(place.lane.thread()).is_some());
        places.push(Place {
            lane: Arc::clone(&lane),
            requests: None,
        });
        Given::ToOpen(lane)
    }

    /// A queue is open: what is submitted in the thread of `lane` goes to it from now on.
    pub(crate) fn enter(&self, lane: &LaneHandle, requests: &Arc<LaneRequests>) {
        let mut places = self.write();
        if let Some(place) = places.iter_mut().find(|it| it.is_in(lane.thread())) {
            place.requests = Some(Arc::clone(requests));
        }
    }

    /// A queue in a lane is about to end: what is submitted in its thread goes to the volume's own
    /// thread from now on.
    pub(crate) fn leave(&self, requests: &Arc<LaneRequests>) {
        for place in &mut *self.write() {
            let of_place = place.requests.as_ref();
            if of_place.is_some_and(|it| Arc::ptr_eq(it, requests)) {
                place.requests = None;
            }
        }
    }

    /// Has all queues end.
    pub(crate) fn close(&self) {
        for place in &*self.read() {
            if let Some(requests) = &place.requests {
                requests.close();
                place.lane.event().raise();
            }
        }
    }

    /// Whether the calling thread has a queue. It cannot wait for the end of that.
    pub(crate) fn are_here(&self) -> bool {
        let here = thread::current().id();
        let places = self.read();
        let mut queues = places.iter().filter(|place| place.requests.is_some());
        queues.any(|place| place.is_in(here))
    }

    fn read(&self) -> RwLockReadGuard<'_, Vec<Place>> {
        self.places.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Vec<Place>> {
        self.places.write().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Place {
    fn is_in(&self, thread: ThreadId) -> bool {
        self.lane.thread() == thread
    }
}
