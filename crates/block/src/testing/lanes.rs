//! Lanes that count their turns.

use std::io;
use std::io::Write as _;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use crate::{Lane, LaneOpener};

/// Lanes of threads, in the order in which the threads have started.
#[derive(Debug, Default)]
pub struct CountedLanes(Mutex<Vec<Arc<LaneCounts>>>);

/// What a thread has done with its lane.
#[derive(Debug)]
pub struct LaneCounts {
    event: UnixStream,
    raise: UnixStream,
    reaps: AtomicUsize,
    submits: AtomicUsize,
    is_dropped: AtomicBool,
}

struct CountedLane(Arc<LaneCounts>);

impl CountedLanes {
    /// The lane that was opened last.
    ///
    /// # Panics
    /// If none was opened.
    pub fn last(&self) -> Arc<LaneCounts> {
        let lanes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(lanes.last().expect("a thread has started"))
    }
}

impl LaneOpener for CountedLanes {
    fn open(self: Arc<Self>) -> io::Result<Box<dyn Lane>> {
        let (event, raise) = UnixStream::pair()?;
        let counts = Arc::new(LaneCounts {
            event,
            raise,
            reaps: AtomicUsize::new(0),
            submits: AtomicUsize::new(0),
            is_dropped: AtomicBool::new(false),
        });
        let mut lanes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        lanes.push(Arc::clone(&counts));
        Ok(Box::new(CountedLane(counts)))
    }
}

impl Lane for CountedLane {
    fn event(&self) -> BorrowedFd<'_> {
        self.0.event.as_fd()
    }

    fn reap(&mut self) -> bool {
        self.0.reaps.fetch_add(1, Ordering::SeqCst);
        false
    }

    fn submit(&mut self) -> bool {
        self.0.submits.fetch_add(1, Ordering::SeqCst);
        false
    }
}

impl Drop for CountedLane {
    fn drop(&mut self) {
        self.0.is_dropped.store(true, Ordering::SeqCst);
    }
}

impl LaneCounts {
    /// Raises the lane's event.
    ///
    /// # Panics
    /// If that fails.
    pub fn raise(&self) {
        (&self.raise).write_all(&[1]).expect("there is room");
    }

    /// Waits until the thread sleeps; how often it has submitted by then.
    pub fn submits_when_quiet(&self) -> usize {
        loop {
            let before = self.submits.load(Ordering::SeqCst);
            thread::sleep(Duration::from_millis(30));
            if self.submits.load(Ordering::SeqCst) == before {
                return before;
            }
        }
    }

    /// Waits until the thread has submitted more than `submits` times.
    ///
    /// # Panics
    /// If it does not within 10 s.
    pub fn wait_for_more_than(&self, submits: usize) {
        let until = Instant::now() + Duration::from_secs(10);
        while self.submits.load(Ordering::SeqCst) <= submits {
            assert!(Instant::now() < until, "the thread sleeps");
            thread::sleep(Duration::from_millis(1));
        }
    }

    /// Checks that the thread has ended, and that each round had both turns.
    ///
    /// # Panics
    /// If not.
    pub fn check_ended(&self) {
        assert!(self.is_dropped.load(Ordering::SeqCst), "the lane is left");
        let counts = [&self.reaps, &self.submits].map(|count| count.load(Ordering::SeqCst));
        assert_eq!(counts[0], counts[1], "reaps and submits");
    }
}
