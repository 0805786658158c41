//! The thread that carries the window's requests out on one path at a time.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use block::{Blocks, WriteCache};
use initiator::{Completion, Link, Operation, Queue, Request, Slot};
use volume::Charge;
use window::{BackingClient, BackingError, BackingOp, Window};

use crate::job::{Abilities, Job, Step};
use crate::path::{NewQueue, Paths};
use crate::settings::{DEPTH, Settings};
use crate::verdict::Verdict;

/// How long a request waits before it is tried again, if the other side could not execute it.
const RETRY_PAUSE: Duration = Duration::from_millis(20);
/// Between two checks of time limits and of paths that are not used.
const CHECK_MIN: Duration = Duration::from_millis(20);
const CHECK_MAX: Duration = Duration::from_millis(500);

/// Carries requests out.
pub(crate) struct Worker {
    paths: Arc<Paths>,
    window: Arc<Window>,
    io_timeout: Duration,
    path_timeout: Duration,
    /// What the volume advertises.
    write_cache: WriteCache,
    /// By the number of the path.
    lanes: Vec<Option<Lane>>,
    /// The path that is used.
    active: Option<usize>,
    /// Requests that wait for a path or a slot. The window's frames bound them.
    waiting: VecDeque<Job>,
    done: Vec<Completion>,
    next_check: Instant,
    _charge: Charge,
}

/// A path that is up.
struct Lane {
    queue: Queue,
    can: Abilities,
    slots: Vec<Option<InFlight>>,
    free: Vec<Slot>,
}

struct InFlight {
    job: Job,
    step: Step,
    since: Instant,
}

/// What a look at a path has found.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Polled {
    /// Nothing has come.
    Quiet,
    /// Something has come, or the path was lost.
    Busy,
}

impl Worker {
    pub(crate) fn new(
        paths: &Arc<Paths>,
        window: &Arc<Window>,
        settings: &Settings,
        write_cache: WriteCache,
        charge: Charge,
    ) -> Self {
        Self {
            paths: Arc::clone(paths),
            window: Arc::clone(window),
            io_timeout: settings.io_timeout,
            path_timeout: settings.path_timeout(),
            write_cache,
            lanes: (0..paths.count()).map(|_| None).collect(),
            active: None,
            waiting: VecDeque::new(),
            done: Vec::with_capacity(DEPTH.into()),
            next_check: Instant::now(),
            _charge: charge,
        }
    }

    pub(crate) fn start(self) -> io::Result<()> {
        let paths = Arc::clone(&self.paths);
        let started = thread::Builder::new()
            .name("remote-volume".to_owned())
            .spawn(move || self.run());
        if started.is_err() {
            paths.note_end();
        }
        started.map(drop)
    }

    fn run(mut self) {
        loop {
            let now = Instant::now();
            if self.take_inbox(now) {
                break;
            }
            if let Some(number) = self.active {
                self.poll(number, now);
            }
            if now >= self.next_check {
                self.check(now);
            }
            self.choose_path();
            self.start_waiting(now);
            self.sleep();
        }
        self.end();
    }

    /// Takes what has come. Whether the volume is closing.
    fn take_inbox(&mut self, now: Instant) -> bool {
        let mut inbox = self.paths.inbox();
        if inbox.is_closing {
            return true;
        }
        let deadline = now + self.io_timeout;
        let requests = inbox.requests.drain(..);
        self.waiting
            .extend(requests.map(|request| Job::new(request, deadline, self.write_cache)));
        let queues = std::mem::take(&mut inbox.queues);
        drop(inbox);
        for (number, queue) in queues {
            self.lanes[number] = Some(Lane::new(queue));
            self.learn_size(number);
            self.paths.note_ready();
        }
        false
    }

    /// Notes if the disk has grown.
    fn learn_size(&self, number: usize) {
        let Some(lane) = &self.lanes[number] else {
            return;
        };
        let Blocks(blocks) = lane.queue.geometry().blocks;
        if self.paths.grow(Blocks(blocks)) {
            tracing::info!(blocks, "a remote disk has grown");
            self.window.grow(Blocks(blocks));
        }
    }

    /// Sends and receives on a path.
    fn poll(&mut self, number: usize, now: Instant) -> Polled {
        let Some(lane) = &mut self.lanes[number] else {
            return Polled::Quiet;
        };
        let mut done = std::mem::take(&mut self.done);
        let polled = lane.queue.poll(now, &mut done);
        let is_quiet = done.is_empty();
        for completion in done.drain(..) {
            self.complete(number, completion, now);
        }
        self.done = done;
        let lane = self.lanes[number].as_ref();
        if polled.is_err() || lane.is_some_and(|lane| lane.queue.link() == Link::Down) {
            self.lose(number);
            return Polled::Busy;
        }
        if is_quiet {
            Polled::Quiet
        } else {
            Polled::Busy
        }
    }

    /// A command of a path has ended.
    fn complete(&mut self, number: usize, completion: Completion, now: Instant) {
        let Completion { slot, result } = completion;
        let Some(lane) = &mut self.lanes[number] else {
            return;
        };
        let in_flight = lane.slots[usize::from(slot.0)].take();
        let InFlight { mut job, step, .. } = in_flight.expect("a completion belongs to a request");
        lane.free.push(slot);
        let Err(error) = result else {
            // The other side works on it, however long all of it takes.
            job.deadline = now + self.io_timeout;
            return self.advance(number, slot, job, &step);
        };
        let verdict = Verdict::of(&error);
        if verdict != Verdict::Repeat {
            self.paths.note_error(number);
        }
        match verdict {
            Verdict::Repeat => self.waiting.push_front(job),
            Verdict::Unsupported if matches!(step.operation, Operation::WriteZeroes(_)) => {
                lane.can.zeroed_blocks = 0;
                self.waiting.push_front(job);
            }
            Verdict::Later => {
                job.not_before = Some(now + RETRY_PAUSE);
                self.waiting.push_back(job);
            }
            Verdict::Unsupported => self.fail(&job, BackingError::Other),
            Verdict::Fail(error) => self.fail(&job, error),
        }
    }

    /// A step of a job has ended well: its data are in the slot's buffer.
    fn advance(&mut self, number: usize, slot: Slot, mut job: Job, step: &Step) {
        let Some(lane) = &self.lanes[number] else {
            return;
        };
        let id = job.request.id;
        let is_done = job.complete(step, &lane.can);
        if job.request.op != BackingOp::Read {
            if is_done {
                self.window.done(id, Ok(&[]));
            } else {
                self.waiting.push_front(job);
            }
            return;
        }
        let data = &lane.queue.buffer(slot)[..step.len_bytes as usize];
        if is_done && job.gathered.is_empty() {
            return self.window.done(id, Ok(data));
        }
        job.gathered.extend_from_slice(data);
        if is_done {
            self.window.done(id, Ok(&job.gathered));
        } else {
            self.waiting.push_front(job);
        }
    }

    fn fail(&self, job: &Job, error: BackingError) {
        self.window.done(job.request.id, Err(error));
    }

    /// Drops a path. What was in flight waits for another.
    fn lose(&mut self, number: usize) {
        let Some(lane) = self.lanes[number].take() else {
            return;
        };
        let left = lane.slots.into_iter().flatten();
        self.waiting.extend(left.map(|in_flight| in_flight.job));
        // Before the path connects again.
        drop(lane.queue);
        self.paths.note_loss(number);
        if self.active == Some(number) {
            self.active = None;
        }
    }

    /// Fails what has waited too long, drops paths that do not answer, and looks after those that
    /// are not used.
    fn check(&mut self, now: Instant) {
        self.next_check = now + (self.io_timeout / 16).clamp(CHECK_MIN, CHECK_MAX);
        for number in 0..self.lanes.len() {
            if self.active != Some(number) {
                self.poll(number, now);
            }
            let path_timeout = self.path_timeout;
            let is_silent = self.lanes[number].as_ref().is_some_and(|lane| {
                let mut in_flight = lane.slots.iter().flatten();
                in_flight.any(|it| now >= it.since + path_timeout || now >= it.job.deadline)
            });
            if is_silent {
                self.lose(number);
            }
        }
        let window = &self.window;
        self.waiting.retain(|job| {
            let is_in_time = now < job.deadline;
            if !is_in_time {
                window.done(job.request.id, Err(BackingError::Gone));
            }
            is_in_time
        });
        if let Some(number) = self.active {
            self.learn_size(number);
        }
    }

    /// Keeps the path that is used for as long as it is up; then takes the first that is.
    fn choose_path(&mut self) {
        if self.active.is_none() {
            self.active = self.lanes.iter().position(Option::is_some);
        }
    }

    /// Starts what fits into free slots of the path that is used.
    fn start_waiting(&mut self, now: Instant) {
        let Some(lane) = self.active.and_then(|number| self.lanes[number].as_mut()) else {
            return;
        };
        let mut paused = 0;
        while paused < self.waiting.len() && !lane.free.is_empty() {
            let Some(mut job) = self.waiting.pop_front() else {
                break;
            };
            if job.not_before.is_some_and(|at| now < at) {
                paused += 1;
                self.waiting.push_back(job);
                continue;
            }
            job.not_before = None;
            lane.start(job, &self.window, now);
        }
    }

    /// Sends what was submitted, and waits until something has come or is due.
    fn sleep(&mut self) {
        let now = Instant::now();
        let due = self.waiting.iter().filter_map(|job| job.not_before).min();
        let due = due.map_or(self.next_check, |due| due.min(self.next_check));
        let timeout = due.saturating_duration_since(now);
        let Some(number) = self.active else {
            return self.paths.sleep(|| self.paths.waker.sleep(timeout));
        };
        if self.poll(number, now) == Polled::Quiet
            && let Some(lane) = &self.lanes[number]
        {
            let waker = Some(self.paths.waker.descriptor());
            self.paths.sleep(|| lane.queue.wait_input(waker, timeout));
        }
    }

    /// Fails everything, and drops all paths.
    fn end(mut self) {
        for number in 0..self.lanes.len() {
            self.lose(number);
        }
        let mut inbox = self.paths.inbox();
        inbox.queues.clear();
        let requests = std::mem::take(&mut inbox.requests);
        drop(inbox);
        let waiting = self.waiting.iter().map(|job| job.request.id);
        for id in waiting.chain(requests.into_iter().map(|request| request.id)) {
            self.window.done(id, Err(BackingError::Gone));
        }
        self.paths.note_end();
    }
}

impl Lane {
    fn new(new: NewQueue) -> Self {
        let NewQueue { queue, write_cache } = new;
        let depth = queue.depth().min(DEPTH);
        Self {
            can: Abilities::of(&queue, write_cache),
            slots: (0..depth).map(|_| None).collect(),
            free: (0..depth).rev().map(Slot).collect(),
            queue,
        }
    }

    /// Submits the next command of `job` in a free slot.
    fn start(&mut self, job: Job, client: &Window, now: Instant) {
        let slot = self.free.pop().expect("the caller has looked");
        let step = job.step(&self.can);
        if step.is_write() {
            let buffer = &mut self.queue.buffer_mut(slot)[..step.len_bytes as usize];
            if job.writes_zeros(&step) {
                buffer.fill(0);
            } else {
                // Copied, so that the other side sees one state of each block while commands go on.
                client.fetch(job.request.id, step.offset_bytes as usize, buffer);
            }
        }
        let request = Request {
            slot,
            operation: step.operation,
            extent: step.extent,
        };
        match self.queue.submit(request) {
            Ok(()) => {
                let since = now;
                self.slots[usize::from(slot.0)] = Some(InFlight { job, step, since });
            }
            Err(error) => {
                tracing::error!(%error, ?step, "a command that the other side supports was refused");
                self.free.push(slot);
                client.done(job.request.id, Err(BackingError::Other));
            }
        }
    }
}
