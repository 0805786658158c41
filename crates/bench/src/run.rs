//! One run from beginning to end: attach, start threads, watch, gather.

use std::{
    sync::{
        Arc, Barrier, OnceLock,
        mpsc::{self, RecvTimeoutError},
    },
    thread,
    time::{Duration, Instant, SystemTime},
};

use indicatif::ProgressBar;
use rustix::thread::{CpuSet, sched_setaffinity};

use crate::{
    BenchError, Daemon, Direction, End, Found, Plan, Wait,
    attachment::{Attachment, Demand, Reached},
    check::check,
    job::{Job, Region},
    latency::Latencies,
    order::SplitMix,
    polling::{self, Place},
    progress::{Goal, Progress},
    report::{CpuUse, DaemonUse, Outage, Report, Side, SourceShare, Workload},
    tally::{Counter, Tally},
    worker::{Breakdown, JobOutcome, Outcome, Schedule, Worker},
};

/// Carries out `plan`. `bar` shows the time that has passed, or the I/Os if the plan has no
/// runtime, with IOPS and the time that is left; pass `ProgressBar::hidden()` for no bar.
pub fn run(plan: &Plan, bar: &ProgressBar) -> Result<Report, BenchError> {
    check(plan)?;
    let mut attachments = attach(plan)?;
    let daemon = match plan.daemon_pid {
        Some(pid) => Some(Daemon::by_pid(pid).ok_or(BenchError::Option {
            option: "daemon-pid",
            value: u64::from(pid),
            expected: "no such process runs here",
        })?),
        None => attachments
            .iter()
            .find_map(Attachment::reached)
            .and_then(Reached::daemon),
    };
    let jobs = jobs(plan, &mut attachments)?;
    let place = match &daemon {
        Some(Daemon {
            found: Found::BySocket,
            ..
        }) => Place::ThisMachine,
        _ if plan.daemon_pid.is_some() => Place::ThisMachine,
        _ => Place::Elsewhere,
    };
    let (wait, remark) = polling::choose(plan, thread_count(plan, jobs.len()), place);
    let plan = &Plan {
        wait: Some(wait),
        ..plan.clone()
    };
    let mut measured = measure(plan, jobs, &attachments, daemon.as_ref(), bar)?;
    let mut notes = notes(plan, &attachments, daemon.as_ref());
    notes.extend(remark);
    let names: Vec<String> = attachments.iter().map(|it| it.name.clone()).collect();
    let outage = measured.outage(plan, &names);
    notes.extend(outage.as_ref().map(ToString::to_string));
    if measured.tally.unanswered > 0 {
        // Disconnecting from a target that does not answer takes as long as its timeouts.
        thread::spawn(move || drop(attachments));
    }
    if let Some(error) = measured
        .failure
        .take_if(|_| measured.tally.counts_nothing())
    {
        return Err(error);
    }
    let mut report = report(plan, measured, names, daemon, notes);
    report.outage = outage;
    Ok(report)
}

/// Opens all sources.
pub(crate) fn attach(plan: &Plan) -> Result<Vec<Attachment>, BenchError> {
    let demand = Demand {
        queues: plan.jobs,
        depth: plan.depth,
        block_len_bytes: plan.block_len_bytes,
        access: plan.access(),
        caching: plan.caching,
        end_bytes: plan.end_bytes(),
    };
    plan.sources
        .iter()
        .map(|source| source.attach(&demand))
        .collect()
}

/// The part of a source that the run covers.
pub(crate) fn region(plan: &Plan, attachment: &Attachment) -> Result<Region, BenchError> {
    let source_name = || attachment.name.clone();
    if !plan
        .offset_bytes
        .is_multiple_of(u64::from(attachment.unit_bytes))
    {
        return Err(BenchError::UnalignedOffset {
            source_name: source_name(),
            offset_bytes: plan.offset_bytes,
            unit_bytes: attachment.unit_bytes,
        });
    }
    let len_bytes = attachment.len_bytes;
    let end_bytes = plan.end_bytes().unwrap_or(len_bytes);
    if end_bytes > len_bytes || plan.offset_bytes > end_bytes {
        return Err(BenchError::BeyondEnd {
            source_name: source_name(),
            len_bytes,
            end_bytes: end_bytes.max(plan.offset_bytes),
        });
    }
    let region_bytes = end_bytes - plan.offset_bytes;
    let units = region_bytes / u64::from(plan.block_len_bytes);
    if units == 0 {
        return Err(BenchError::RegionTooSmall {
            source_name: source_name(),
            region_bytes,
            bs: plan.block_len_bytes,
        });
    }
    Ok(Region {
        offset_bytes: plan.offset_bytes,
        units,
    })
}

fn jobs(plan: &Plan, attachments: &mut [Attachment]) -> Result<Vec<Job>, BenchError> {
    let mut seeds = SplitMix(plan.seed);
    let mut jobs = Vec::new();
    for (source, attachment) in attachments.iter_mut().enumerate() {
        let region = region(plan, attachment)?;
        let left = match plan.end {
            End::After(_) => u64::MAX,
            End::OnePass => region.units,
        };
        for port in attachment.ports.drain(..) {
            jobs.push(Job::new(port, source, plan, region, seeds.next(), left));
        }
    }
    Ok(jobs)
}

/// What was counted and sampled.
struct Measured {
    tally: Tally,
    elapsed: Duration,
    /// IOPS in each interval, per direction.
    samples: [Vec<f64>; 3],
    /// I/Os per source.
    shares: Vec<u64>,
    own_cpu: Duration,
    daemon_cpu: Option<Duration>,
    schedule: Schedule,
    /// The job that was without an answer for the longest time.
    silent: Option<JobOutcome>,
    /// Why the run ended early.
    failure: Option<BenchError>,
}

/// Outages of at least this length are reported, shorter ones if they exceed `--max-outage`.
const OUTAGE_MIN: Duration = Duration::from_secs(1);

impl Measured {
    /// The longest outage, if it is worth reporting.
    fn outage(&self, plan: &Plan, names: &[String]) -> Option<Outage> {
        let JobOutcome {
            source,
            stall,
            answered,
            ..
        } = self.silent.as_ref()?;
        let reported_from = plan
            .max_outage
            .map_or(OUTAGE_MIN, |max| max.min(OUTAGE_MIN));
        let began = stall
            .since
            .saturating_duration_since(self.schedule.measure_from);
        (stall.lasted >= reported_from).then(|| Outage {
            source: names[*source].clone(),
            began_s: began.as_secs_f64(),
            lasted_s: stall.lasted.as_secs_f64(),
            ended: *answered,
            max_s: plan
                .max_outage
                .filter(|&max| stall.lasted > max)
                .map(|max| max.as_secs_f64()),
        })
    }
}

fn measure(
    plan: &Plan,
    jobs: Vec<Job>,
    attachments: &[Attachment],
    daemon: Option<&Daemon>,
    bar: &ProgressBar,
) -> Result<Measured, BenchError> {
    let source_names: Vec<&str> = attachments.iter().map(|it| it.name.as_str()).collect();
    let goal = goal(plan, &jobs);
    let workers = workers(plan, jobs);
    let counters: Vec<Arc<Counter>> = workers.iter().map(|it| Arc::clone(&it.counter)).collect();
    let barrier = Barrier::new(workers.len() + 1);
    let schedule = OnceLock::new();
    let (ended, ends) = mpsc::channel();
    thread::scope(|scope| {
        let handles: Vec<_> = workers
            .into_iter()
            .enumerate()
            .map(|(index, worker)| {
                let (barrier, schedule, ended) = (&barrier, &schedule, ended.clone());
                scope.spawn(move || {
                    let pinned = pin(plan, index);
                    barrier.wait();
                    let schedule = *schedule.get().expect("it is set before the barrier opens");
                    let outcome = pinned.map(|()| worker.run(schedule));
                    // The watcher runs until all senders are dropped.
                    drop(ended);
                    outcome
                })
            })
            .collect();
        drop(ended);
        wait_for_begin(plan);
        let begun = Schedule::from_now(plan);
        schedule.set(begun).expect("it is set once");
        barrier.wait();
        let watch = Watch {
            plan,
            counters: &counters,
            daemon,
            bar,
            goal,
        };
        let watched = watch.until_ended(begun, &ends);
        let mut outcomes = Vec::with_capacity(handles.len());
        for handle in handles {
            outcomes.push(handle.join().expect("a worker does not panic")?);
        }
        Ok(gather(outcomes, watched, begun, &source_names))
    })
}

/// Waits until the run is to begin, or is to end early.
fn wait_for_begin(plan: &Plan) {
    let Some(begin) = plan.begin else { return };
    while let Ok(left) = begin.duration_since(SystemTime::now())
        && !plan.stop.is_requested()
    {
        thread::sleep(left.min(TICK));
    }
}

/// Until when the bar continues.
fn goal(plan: &Plan, jobs: &[Job]) -> Goal {
    match plan.end {
        End::After(runtime) => Goal::Time(plan.ramp + runtime),
        End::OnePass => Goal::Ios(jobs.iter().map(Job::left).sum()),
    }
}

/// How many threads share `jobs` jobs.
fn thread_count(plan: &Plan, jobs: usize) -> usize {
    let threads = plan.threads.unwrap_or_else(|| polling::processors(plan));
    threads.min(jobs)
}

/// Assigns the jobs to threads.
fn workers(plan: &Plan, jobs: Vec<Job>) -> Vec<Worker> {
    let count = thread_count(plan, jobs.len());
    let mut workers: Vec<Worker> = (0..count)
        .map(|_| Worker {
            jobs: Vec::new(),
            wait: plan.wait.unwrap_or(Wait::Spin),
            on_error: plan.on_error,
            patience: plan.patience(),
            stop: plan.stop.clone(),
            counter: Arc::default(),
        })
        .collect();
    for (index, job) in jobs.into_iter().enumerate() {
        workers[index % count].jobs.push(job);
    }
    workers
}

pub(crate) fn pin(plan: &Plan, thread: usize) -> Result<(), BenchError> {
    let cpus = &plan.cpus.0;
    if cpus.is_empty() {
        return Ok(());
    }
    let cpu = cpus[thread % cpus.len()];
    let mut set = CpuSet::new();
    set.set(cpu);
    sched_setaffinity(None, &set).map_err(|error| BenchError::Pin {
        cpu,
        source: error.into(),
    })
}

/// Watches the threads: samples IOPS and CPU time.
struct Watch<'a> {
    plan: &'a Plan,
    counters: &'a [Arc<Counter>],
    daemon: Option<&'a Daemon>,
    bar: &'a ProgressBar,
    goal: Goal,
}

struct Watched {
    samples: [Vec<f64>; 3],
    own_cpu: Duration,
    daemon_cpu: Option<Duration>,
}

impl Watch<'_> {
    fn until_ended(&self, schedule: Schedule, ends: &mpsc::Receiver<()>) -> Watched {
        let mut progress = Progress::new(self.bar, schedule.start, self.goal);
        let mut wait_until = |at: Instant| loop {
            let now = Instant::now();
            progress.show(now, self.counts().iter().sum());
            let step = at.saturating_duration_since(now).min(TICK);
            if step.is_zero() {
                return false;
            }
            if ends.recv_timeout(step) == Err(RecvTimeoutError::Disconnected) {
                return true;
            }
        };
        let mut ended = wait_until(schedule.measure_from);
        let (own_before, daemon_before) = (crate::cpu::own(), self.daemon.and_then(Daemon::cpu));
        let mut samples: [Vec<f64>; 3] = Default::default();
        let (mut last, mut last_at) = ([0; 3], schedule.measure_from);
        while !ended {
            let next = last_at + self.plan.interval;
            let until = schedule.end.map_or(next, |end| next.min(end));
            ended = wait_until(until);
            let (now, counts) = (Instant::now(), self.counts());
            let seconds = now.duration_since(last_at).as_secs_f64();
            // What is left of an interval at the end is no sample.
            if seconds >= self.plan.interval.as_secs_f64() * 0.9 {
                for (samples, (count, last)) in samples.iter_mut().zip(counts.iter().zip(&last)) {
                    samples.push(count.saturating_sub(*last) as f64 / seconds);
                }
            }
            (last, last_at) = (counts, now);
            ended |= schedule.end.is_some_and(|end| now >= end);
        }
        Watched {
            samples,
            own_cpu: crate::cpu::own().saturating_sub(own_before),
            daemon_cpu: self
                .daemon
                .and_then(Daemon::cpu)
                .zip(daemon_before)
                .map(|(after, before)| after.saturating_sub(before)),
        }
    }

    fn counts(&self) -> [u64; 3] {
        let mut sum = [0; 3];
        for counter in self.counters {
            for (sum, count) in sum.iter_mut().zip(counter.read()) {
                *sum += count;
            }
        }
        sum
    }
}

/// How often the bar moves.
const TICK: Duration = Duration::from_millis(100);

fn gather(
    outcomes: Vec<Outcome>,
    watched: Watched,
    schedule: Schedule,
    source_names: &[&str],
) -> Measured {
    let mut tally = Tally::default();
    let mut shares = vec![0; source_names.len()];
    let (mut silent, mut failure): (Option<JobOutcome>, _) = (None, None);
    let mut finished = schedule.measure_from;
    for outcome in outcomes {
        tally.merge(outcome.tally);
        for job in outcome.jobs {
            shares[job.source] += job.measured;
            let longest = silent.as_ref().map_or(Duration::ZERO, |it| it.stall.lasted);
            if job.stall.lasted > longest {
                silent = Some(job);
            }
        }
        finished = finished.max(outcome.finished);
        failure = failure.or(outcome.breakdown);
    }
    Measured {
        tally,
        elapsed: finished.duration_since(schedule.measure_from),
        samples: watched.samples,
        shares,
        own_cpu: watched.own_cpu,
        daemon_cpu: watched.daemon_cpu,
        schedule,
        silent,
        failure: failure.map(|Breakdown { source, error }| BenchError::Port {
            source_name: source_names[source].to_owned(),
            source: error,
        }),
    }
}

fn notes(plan: &Plan, attachments: &[Attachment], daemon: Option<&Daemon>) -> Vec<String> {
    let mut notes: Vec<String> = attachments
        .iter()
        .filter_map(|it| it.note.clone())
        .collect();
    if plan.rate.is_some() {
        notes.push(
            "latency counts from the moment at which an I/O was due (no coordinated omission)"
                .to_owned(),
        );
    }
    let has_socket = plan
        .sources
        .iter()
        .any(|source| matches!(source, crate::Source::Url(_)));
    if has_socket && daemon.is_none() {
        notes.push(
            "the daemon's CPU time is unknown: no process on this machine owns the other end of \
             the connection, or it may not be looked at; name it with --daemon-pid"
                .to_owned(),
        );
    }
    notes
}

fn report(
    plan: &Plan,
    measured: Measured,
    names: Vec<String>,
    daemon: Option<Daemon>,
    notes: Vec<String>,
) -> Report {
    let with_late = measured.tally.with_late();
    let elapsed_s = measured.elapsed.as_secs_f64().max(1e-9);
    let ios: u64 = measured.tally.latencies.iter().map(Latencies::count).sum();
    let side = |direction: Direction| {
        let index = direction as usize;
        let latencies = &measured.tally.latencies[index];
        let samples = &measured.samples[index];
        let occurs = plan.directions().contains(&direction);
        let ios = latencies.count();
        let all = &with_late[index];
        occurs.then(|| Side::new(ios, all, elapsed_s, plan.block_len_bytes, samples))
    };
    let cpu_use = |time: Duration| CpuUse {
        us_per_io: time.as_secs_f64() * 1e6 / ios.max(1) as f64,
        cores: time.as_secs_f64() / elapsed_s,
    };
    let iops = ios as f64 / elapsed_s;
    Report {
        workload: Workload::from(plan),
        elapsed_s,
        read: side(Direction::Read),
        write: side(Direction::Write),
        trim: side(Direction::Trim),
        iops,
        mib_per_s: iops * f64::from(plan.block_len_bytes) / f64::from(1 << 20),
        sources: names
            .into_iter()
            .zip(&measured.shares)
            .map(|(source, &ios)| SourceShare {
                source,
                iops: ios as f64 / elapsed_s,
            })
            .collect(),
        cpu: cpu_use(measured.own_cpu),
        daemon: daemon
            .zip(measured.daemon_cpu)
            .map(|(daemon, time)| DaemonUse {
                daemon,
                cpu: cpu_use(time),
            }),
        errors: measured.tally.errors + measured.tally.unanswered,
        first_error: measured.tally.first_error.or_else(|| {
            let unanswered = measured.tally.unanswered > 0;
            unanswered.then(|| "no answer before the end of the run".to_owned())
        }),
        outage: None,
        failure: measured.failure.map(|error| error.to_string()),
        interrupted: plan.stop.is_requested(),
        notes,
        latencies: with_late,
        samples: measured.samples,
    }
}
