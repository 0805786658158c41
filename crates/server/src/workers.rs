//! Threads that execute calls of one share whose tree waits for storage.
//!
//! Each share has its own, so that a slow disk delays no other share. They start when calls wait
//! for one, at most [`THREADS_MAX`], and end when they have had nothing to do for a while. The
//! queue is bounded by the calls that connections may have waiting.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

/// What a thread does.
type Job = Box<dyn FnOnce() + Send>;

/// The threads of a share.
#[derive(Default)]
pub(crate) struct Workers {
    state: Mutex<State>,
    /// There is a job.
    work: Condvar,
}

#[derive(Default)]
struct State {
    jobs: VecDeque<Job>,
    threads: usize,
    /// Threads that wait for a job.
    idle: usize,
}

/// The most threads of a share: enough requests at a time to keep the queue of a disk busy.
const THREADS_MAX: usize = 16;
/// The most jobs that wait.
const JOBS_MAX: usize = 4096;
/// How long a thread waits for a job before it ends.
const IDLE_MAX: Duration = Duration::from_secs(10);

impl Workers {
    /// Has a job done. Returns whether it will be: otherwise there are too many, or no thread could
    /// be created. Never waits for a job.
    pub(crate) fn push(self: &Arc<Self>, job: Job) -> bool {
        let mut state = self.lock();
        if state.jobs.len() >= JOBS_MAX {
            return false;
        }
        if state.jobs.len() >= state.idle && state.threads < THREADS_MAX {
            let workers = Arc::clone(self);
            let builder = thread::Builder::new().name("share-io".to_owned());
            match builder.spawn(move || workers.work()) {
                Ok(_) => state.threads += 1,
                Err(_) if state.threads == 0 => return false,
                Err(_) => {}
            }
        }
        state.jobs.push_back(job);
        drop(state);
        self.work.notify_one();
        true
    }

    fn work(&self) {
        let mut state = self.lock();
        loop {
            if let Some(job) = state.jobs.pop_front() {
                drop(state);
                job();
                state = self.lock();
                continue;
            }
            state.idle += 1;
            let waited = self.work.wait_timeout(state, IDLE_MAX);
            let (next, timeout) = waited.unwrap_or_else(PoisonError::into_inner);
            state = next;
            state.idle -= 1;
            if timeout.timed_out() && state.jobs.is_empty() {
                state.threads -= 1;
                return;
            }
        }
    }

    /// The state is whole between any two statements.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn jobs_that_wait_for_each_other_are_done_by_several_threads() {
        let workers = Arc::new(Workers::default());
        let (done, all_done) = mpsc::channel();
        let (release, released) = mpsc::channel::<()>();
        let first = done.clone();
        assert!(workers.push(Box::new(move || {
            released.recv().expect("the second job says so");
            first.send(1).expect("the test waits");
        })));
        assert!(workers.push(Box::new(move || {
            done.send(2).expect("the test waits");
            release.send(()).expect("the first job waits");
        })));
        let wait = || all_done.recv_timeout(Duration::from_secs(10));
        assert_eq!((wait(), wait()), (Ok(2), Ok(1)));
    }

    #[test]
    fn jobs_are_bounded() {
        let workers = Arc::new(Workers::default());
        let gate = Arc::new(Mutex::new(()));
        let held = gate.lock().expect("not poisoned");
        let job = || {
            let gate = Arc::clone(&gate);
            Box::new(move || drop(gate.lock())) as Job
        };
        let taken = (0..2 * JOBS_MAX).filter(|_| workers.push(job())).count();
        assert!(
            (JOBS_MAX..=JOBS_MAX + THREADS_MAX).contains(&taken),
            "{taken}"
        );
        assert_eq!(workers.lock().threads, THREADS_MAX);
        drop(held);
    }
}
