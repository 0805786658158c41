//! Writes a seeded pattern and checks every block.
//!
//! Each block holds its LBA, the seed and a generation, which counts how often it was written; so a
//! block that is stale, in the wrong place, torn or never written is detected. Jobs divide the
//! region among themselves, so each knows what its blocks must hold.

mod job;
mod pattern;
mod report;

use std::{thread, time::Instant};

use indicatif::ProgressBar;

use crate::{
    BenchError, Kind, Plan, Wait,
    check::check,
    order::SplitMix,
    run::{attach, pin, region},
};
use job::{CheckJob, Share};
pub use report::{Mismatch, VerifyReport};

/// Verifies the sources of `plan`: writes every block of the region once (more often if `plan.end`
/// is a time, with checks in between if the pattern is mixed), then reads all of it and checks it.
/// With a pattern that only reads, checks what an earlier verification with the same seed wrote.
pub fn verify(plan: &Plan, bar: &ProgressBar) -> Result<VerifyReport, BenchError> {
    if plan.pattern.kind == Kind::Trim {
        return Err(BenchError::Combination {
            option: "verify",
            conflict: "does not go with trim; use --rw write, randwrite, rw, randrw, or read",
        });
    }
    check(plan)?;
    let started = Instant::now();
    let jobs = jobs(plan)?;
    let names = jobs.names;
    bar.set_length(jobs.units);
    let wait = wait(plan, jobs.checks.len());
    let parts: Vec<_> = thread::scope(|scope| {
        let handles: Vec<_> = jobs
            .checks
            .into_iter()
            .enumerate()
            .map(|(index, (source, job))| {
                scope.spawn(move || {
                    pin(plan, index)?;
                    let checked = job.run(wait, bar);
                    Ok((source, checked))
                })
            })
            .collect();
        handles
            .into_iter()
            .map(|handle| handle.join().expect("a verifying thread does not panic"))
            .collect::<Result<_, BenchError>>()
    })?;
    drop(jobs.attachments);
    let mut report = VerifyReport {
        seed: plan.seed,
        interrupted: plan.stop.is_requested(),
        elapsed_s: started.elapsed().as_secs_f64(),
        ..VerifyReport::default()
    };
    for (source, checked) in parts {
        let part = checked.map_err(|error| BenchError::Port {
            source_name: names[source].clone(),
            source: error,
        })?;
        report.add(part, &names[source]);
    }
    Ok(report)
}

/// Spinning only pays where each thread has a processor.
fn wait(plan: &Plan, threads: usize) -> Wait {
    let processors = thread::available_parallelism().map_or(1, usize::from);
    if threads < processors {
        plan.wait.unwrap_or(Wait::Spin)
    } else {
        Wait::Sleep
    }
}

struct CheckJobs {
    /// With the number of the source.
    checks: Vec<(usize, CheckJob)>,
    /// I/Os of one pass over all.
    units: u64,
    names: Vec<String>,
    attachments: Vec<crate::attachment::Attachment>,
}

fn jobs(plan: &Plan) -> Result<CheckJobs, BenchError> {
    let mut attachments = attach(plan)?;
    let mut seeds = SplitMix(plan.seed);
    let (mut checks, mut units) = (Vec::new(), 0);
    for (source, attachment) in attachments.iter_mut().enumerate() {
        let region = region(plan, attachment)?;
        if region.units > u64::from(plan.jobs) * CheckJob::UNITS_MAX {
            return Err(BenchError::Option {
                option: "bs",
                value: u64::from(plan.block_len_bytes),
                expected: "verification remembers each block; raise --bs or lower --size",
            });
        }
        units += region.units;
        let jobs = attachment.ports.len() as u64;
        for (job, port) in (0..).zip(attachment.ports.drain(..)) {
            let first = region.units * job / jobs;
            let share = Share {
                offset_bytes: region.offset_bytes + first * u64::from(plan.block_len_bytes),
                units: region.units * (job + 1) / jobs - first,
                block_bytes: attachment.unit_bytes,
            };
            if share.units > 0 {
                checks.push((source, CheckJob::new(port, plan, share, seeds.next())));
            }
        }
    }
    Ok(CheckJobs {
        checks,
        units,
        names: attachments.iter().map(|it| it.name.clone()).collect(),
        attachments,
    })
}

#[cfg(test)]
mod tests;
