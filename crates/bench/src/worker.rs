//! A thread that drives jobs. No allocation per I/O, one reading of the clock per batch of
//! completions: a batch's completions and the I/Os issued in their place carry the same time, so
//! the cost of issuing counts as latency.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use rustix::{
    buffer::spare_capacity,
    event::{Timespec, epoll},
};

use crate::{
    End, OnError, Plan, Stop, Wait,
    job::{Job, Stall},
    port::{Done, Port, PortError},
    tally::{Counter, Tally},
    wait::SLEEP_MAX,
};

/// When a run's phases begin.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Schedule {
    pub(crate) start: Instant,
    pub(crate) measure_from: Instant,
    /// The end of a run that ends by time.
    pub(crate) end: Option<Instant>,
    /// Until when the load continues after the end.
    pub(crate) cool_until: Option<Instant>,
}

impl Schedule {
    /// That of a run that begins now.
    pub(crate) fn from_now(plan: &Plan) -> Self {
        let start = Instant::now();
        let measure_from = start + plan.ramp;
        let end = match plan.end {
            End::After(runtime) => Some(measure_from + runtime),
            End::OnePass => None,
        };
        let cools_down = !plan.cool_down.is_zero();
        Self {
            start,
            measure_from,
            end,
            cool_until: end.filter(|_| cools_down).map(|end| end + plan.cool_down),
        }
    }
}

/// A thread's part of a run.
#[derive(Debug)]
pub(crate) struct Worker {
    pub(crate) jobs: Vec<Job>,
    pub(crate) wait: Wait,
    pub(crate) on_error: OnError,
    /// How long a target may stay silent in a run without an end in time.
    pub(crate) patience: Duration,
    pub(crate) stop: Stop,
    pub(crate) counter: Arc<Counter>,
}

/// The results of a thread.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) tally: Tally,
    pub(crate) jobs: Vec<JobOutcome>,
    /// When its last measured I/O had completed.
    pub(crate) finished: Instant,
    /// Why it ended early.
    pub(crate) breakdown: Option<Breakdown>,
}

/// What one job contributed.
#[derive(Debug)]
pub(crate) struct JobOutcome {
    pub(crate) source: usize,
    /// I/Os completed while measuring.
    pub(crate) measured: u64,
    /// The longest time without a completion.
    pub(crate) stall: Stall,
    /// Whether all I/Os in flight at the end have completed.
    pub(crate) answered: bool,
}

impl JobOutcome {
    fn of(job: &Job) -> Self {
        Self {
            source: job.source,
            measured: job.measured,
            stall: job.stall,
            answered: job.is_idle(),
        }
    }
}

/// A queue that broke down: which source's, and why.
#[derive(Debug)]
pub(crate) struct Breakdown {
    pub(crate) source: usize,
    pub(crate) error: PortError,
}

/// How far a thread is.
struct Run {
    schedule: Schedule,
    measuring: bool,
    tally: Tally,
    done: Vec<Done>,
    next_patience_check: Instant,
}

impl Run {
    fn new(schedule: Schedule) -> Self {
        Self {
            schedule,
            measuring: false,
            tally: Tally::default(),
            done: Vec::with_capacity(1 << 12),
            next_patience_check: schedule.start,
        }
    }

    /// Drops what the ramp has counted.
    fn start_measuring(&mut self, jobs: &mut [Job]) {
        self.measuring = true;
        self.tally.start_measuring();
        for job in jobs {
            job.start_measuring();
        }
    }
}

impl Worker {
    pub(crate) fn run(mut self, schedule: Schedule) -> Outcome {
        let mut run = Run::new(schedule);
        let (finished, mut breakdown) = match self.run_all(&mut run) {
            Ok(finished) => (finished, None),
            Err(breakdown) => (Instant::now(), Some(breakdown)),
        };
        if !run.measuring {
            // The ramp is not measured, even if nothing follows it.
            run.start_measuring(&mut self.jobs);
        }
        self.counter.publish(&run.tally);
        let deadline = finished + DRAIN_MAX;
        for job in &mut self.jobs {
            job.stop();
            if let Err(error) = drain(job, &mut run, deadline) {
                breakdown.get_or_insert(error);
            }
            job.abandon(Instant::now(), &mut run.tally);
        }
        let jobs: Vec<_> = self.jobs.iter().map(JobOutcome::of).collect();
        if let Some(until) = schedule.cool_until
            && breakdown.is_none()
            && jobs.iter().all(|job| job.answered)
        {
            self.cool_down(until);
        }
        for job in self.jobs {
            job.port.close();
        }
        Outcome {
            jobs,
            tally: run.tally,
            finished,
            breakdown,
        }
    }

    fn run_all(&mut self, run: &mut Run) -> Result<Instant, Breakdown> {
        if self.jobs.len() == 1 {
            self.run_one(run)
        } else {
            self.run_many(run)
        }
    }

    /// Keeps the load up until `until`, for others that still measure. Nothing of it is counted.
    fn cool_down(&mut self, until: Instant) {
        // The thread that watches reads the former one.
        self.counter = Arc::default();
        self.on_error = OnError::Count;
        for job in &mut self.jobs {
            job.resume();
        }
        let now = Instant::now();
        let mut run = Run::new(Schedule {
            start: now,
            measure_from: now,
            end: Some(until),
            cool_until: None,
        });
        // What fails now is not part of the measurement.
        let _ = self.run_all(&mut run);
        let deadline = Instant::now() + DRAIN_MAX;
        for job in &mut self.jobs {
            job.stop();
            let _ = drain(job, &mut run, deadline);
        }
    }

    fn run_one(&mut self, run: &mut Run) -> Result<Instant, Breakdown> {
        let wait = self.wait;
        let mut now = Instant::now();
        loop {
            let job = &mut self.jobs[0];
            job.issue(now);
            let waited = match wait {
                Wait::Spin => {
                    let polled = job.port.poll(now, &mut run.done);
                    if run.done.is_empty() {
                        pause(job);
                    }
                    polled
                }
                Wait::Sleep | Wait::Adaptive(_) => {
                    let patience = job.patience(now);
                    job.port.wait(wait, patience, &mut run.done)
                }
            };
            waited.map_err(|error| breakdown(job, error))?;
            now = Instant::now();
            if self.has_ended(now, run) {
                return Ok(now);
            }
            let job = &mut self.jobs[0];
            if !run.done.is_empty() {
                job.complete(now, &mut run.done, &mut run.tally);
                self.counter.publish(&run.tally);
                if self.must_stop(&run.tally) || self.jobs[0].is_finished() {
                    return Ok(now);
                }
            }
        }
    }

    fn run_many(&mut self, run: &mut Run) -> Result<Instant, Breakdown> {
        if self.wait != Wait::Spin {
            self.jobs.iter_mut().for_each(|job| job.port.announce());
        }
        let mut poller = Poller::new(self.jobs.len());
        let mut idle_since = Instant::now();
        loop {
            let mut now = Instant::now();
            let before = run.tally.errors + self.completed();
            for index in 0..poller.ready.len() {
                let number = poller.ready[index];
                let job = &mut self.jobs[number];
                let turned = turn(job, now, run).map_err(|error| breakdown(job, error))?;
                now = turned.now;
                if turned.has_more {
                    poller.again.push(number);
                }
                if self.has_ended(now, run) {
                    return Ok(now);
                }
            }
            // No job may be ready for as long as its target does not answer.
            if self.has_ended(now, run) {
                return Ok(now);
            }
            self.counter.publish(&run.tally);
            if self.must_stop(&run.tally) || self.jobs.iter().all(Job::is_finished) {
                return Ok(now);
            }
            if run.tally.errors + self.completed() != before {
                idle_since = now;
            }
            let may_sleep = match self.wait {
                Wait::Spin => false,
                Wait::Sleep => true,
                Wait::Adaptive(spin) => now.saturating_duration_since(idle_since) >= spin,
            };
            poller.wait(&self.jobs, now, may_sleep);
        }
    }

    fn completed(&self) -> u64 {
        self.jobs.iter().map(|job| job.measured).sum()
    }

    /// Whether time is up or a stop was requested; begins to measure when that time has come.
    fn has_ended(&mut self, now: Instant, run: &mut Run) -> bool {
        if !run.measuring && now >= run.schedule.measure_from {
            run.start_measuring(&mut self.jobs);
        }
        if self.stop.is_requested() {
            return true;
        }
        match run.schedule.end {
            Some(end) => now >= end,
            None => self.has_lost_patience(now, run),
        }
    }

    /// Whether a target has not answered for longer than a run without an end in time waits.
    fn has_lost_patience(&self, now: Instant, run: &mut Run) -> bool {
        if now < run.next_patience_check {
            return false;
        }
        run.next_patience_check = now + PATIENCE_CHECK_INTERVAL;
        self.jobs
            .iter()
            .any(|job| job.stalled_for(now) > self.patience)
    }

    fn must_stop(&self, tally: &Tally) -> bool {
        self.on_error == OnError::Stop && tally.errors > 0
    }
}

fn breakdown(job: &Job, error: PortError) -> Breakdown {
    Breakdown {
        source: job.source,
        error,
    }
}

/// Pauses between two polls of a deep queue: each poll takes the socket's lock, which the kernel
/// needs to deliver more. A queue of depth 1 is polled again at once.
fn pause(job: &Job) {
    const HINTS_MAX: usize = 24;
    for _ in 1..job.depth().min(HINTS_MAX) {
        std::hint::spin_loop();
    }
}

struct Turned {
    now: Instant,
    /// Its last I/Os have just completed, so it has new ones to issue.
    has_more: bool,
}

/// Serves one of many jobs until nothing more has completed, a few times at most, so that others
/// get their turn.
fn turn(job: &mut Job, now: Instant, run: &mut Run) -> Result<Turned, PortError> {
    const ROUNDS_MAX: usize = 2;
    let mut now = now;
    for _ in 0..ROUNDS_MAX {
        job.issue(now);
        job.port.poll(now, &mut run.done)?;
        if run.done.is_empty() {
            return Ok(Turned {
                now,
                has_more: false,
            });
        }
        now = Instant::now();
        job.complete(now, &mut run.done, &mut run.tally);
    }
    Ok(Turned {
        now,
        has_more: true,
    })
}

/// Waits for what is in flight, until `deadline` at most. `run.done` may hold completions that were
/// polled after the run's end.
fn drain(job: &mut Job, run: &mut Run, deadline: Instant) -> Result<(), Breakdown> {
    job.complete_late(Instant::now(), &mut run.done, &mut run.tally);
    while !job.is_idle() && Instant::now() < deadline {
        job.port
            .wait(Wait::Sleep, Some(SLEEP_MAX), &mut run.done)
            .map_err(|error| breakdown(job, error))?;
        job.complete_late(Instant::now(), &mut run.done, &mut run.tally);
    }
    Ok(())
}

/// How long the I/Os in flight at the end of a run are waited for.
const DRAIN_MAX: Duration = Duration::from_secs(1);
/// How often a run without a time limit checks whether its target still responds.
const PATIENCE_CHECK_INTERVAL: Duration = Duration::from_millis(100);

/// Finds which of many jobs have something to do.
struct Poller {
    epoll: Option<rustix::fd::OwnedFd>,
    registered: Vec<bool>,
    events: Vec<epoll::Event>,
    ready: Vec<usize>,
    /// Jobs that are ready without an event.
    again: Vec<usize>,
}

impl Poller {
    fn new(jobs: usize) -> Self {
        Self {
            // Without epoll (no descriptor is left) every job is polled each time.
            epoll: epoll::create(epoll::CreateFlags::CLOEXEC).ok(),
            registered: vec![false; jobs],
            events: Vec::with_capacity(jobs),
            ready: (0..jobs).collect(),
            again: Vec::with_capacity(jobs),
        }
    }

    /// Finds the jobs that are ready. Sleeps until one is, if that is permitted.
    fn wait(&mut self, jobs: &[Job], now: Instant, may_sleep: bool) {
        let Some(epoll) = &self.epoll else { return };
        self.ready.clear();
        self.ready.append(&mut self.again);
        let may_sleep = may_sleep && self.ready.is_empty();
        let mut patience = if may_sleep { SLEEP_MAX } else { Duration::ZERO };
        for (index, job) in jobs.iter().enumerate() {
            if !job.port.signals() {
                self.registered[index] = false;
                self.ready.push(index);
                patience = patience.min(RETRY);
                continue;
            }
            if !self.registered[index] {
                let data = epoll::EventData::new_u64(index as u64);
                // A descriptor that was closed has left the set by itself, and one that is still in
                // it is as good as added.
                let events = match job.port {
                    Port::Network { .. } => epoll::EventFlags::IN,
                    Port::File { .. } => epoll::EventFlags::IN | epoll::EventFlags::ET,
                };
                let _ = epoll::add(epoll, job.port.descriptor(), data, events);
                self.registered[index] = true;
            }
            if job.is_paced() {
                let until_due = job.until_due(now);
                if until_due.is_zero() {
                    self.ready.push(index);
                }
                patience = patience.min(until_due);
            }
        }
        self.events.clear();
        let timeout = Timespec {
            tv_sec: 0,
            tv_nsec: i64::from(patience.subsec_nanos()),
        };
        if epoll::wait(epoll, spare_capacity(&mut self.events), Some(&timeout)).is_ok() {
            for event in &self.events {
                self.ready.push(event.data.u64() as usize);
            }
        }
        if may_sleep && self.ready.is_empty() {
            // An event that was lost delays its job by one sleep.
            self.ready.extend(0..jobs.len());
        }
    }
}

/// The interval of polls of a job that cannot signal.
const RETRY: Duration = Duration::from_micros(50);
