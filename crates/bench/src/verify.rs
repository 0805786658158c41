//! Writes a seeded pattern and checks every block.
//!
//! Each block holds its LBA, the seed and a generation, which counts how often it was written; so a block that is
//! stale, in the wrong place, torn or never written is told from one that is right. Jobs divide the region among
//! themselves, so each knows what its blocks must hold.

mod lane;
mod pattern;

use std::{fmt, thread, time::Instant};

use indicatif::ProgressBar;
use serde::Serialize;

use crate::{
    BenchError, Kind, Plan, Wait,
    check::check,
    order::SplitMix,
    report::thousands,
    run::{attach, pin, region},
};
use lane::{CheckLane, Share};
use pattern::Stamp;

/// What verification found.
#[derive(Clone, Debug, Default, Serialize)]
pub struct VerifyReport {
    /// The seed of the pattern.
    pub seed: u64,
    /// Blocks written, rewriting included.
    pub written_blocks: u64,
    /// Blocks read and checked.
    pub checked_blocks: u64,
    /// Blocks that did not hold what they should.
    pub differing_blocks: u64,
    /// The one with the lowest LBA among them, of the first source that has one.
    pub first_difference: Option<Mismatch>,
    /// I/Os that failed.
    pub errors: u64,
    /// What the first of them said.
    pub first_error: Option<String>,
    /// Whether a [`Stop`](crate::Stop) ended it before all blocks were checked.
    pub interrupted: bool,
    /// Seconds that it took.
    pub elapsed_s: f64,
}

/// A block that does not hold what it should.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Mismatch {
    /// The source.
    pub source: String,
    /// The block's address, in the source's own blocks.
    pub lba: u64,
    /// The first differing byte in the block.
    pub byte: usize,
    /// What should stand there: 32 bytes in hexadecimal, from the last multiple of 16 on.
    pub expected: String,
    /// What stands there.
    pub found: String,
    /// What the block is instead, as far as it shows.
    pub explanation: String,
}

/// How many bytes of both contents are shown.
const EXCERPT_BYTES: usize = 32;

impl Mismatch {
    fn new(block: &[u8], expected: Stamp, byte: usize) -> Self {
        let mut right = vec![0; block.len()];
        expected.fill(&mut right);
        let from = byte / 16 * 16;
        let to = (from + EXCERPT_BYTES).min(block.len());
        Self {
            source: String::new(),
            lba: expected.lba,
            byte,
            expected: hex(&right[from..to]),
            found: hex(&block[from..to]),
            explanation: explain(block, expected),
        }
    }
}

fn explain(block: &[u8], expected: Stamp) -> String {
    if block.iter().all(|&byte| byte == 0) {
        return "it reads as zeros".to_owned();
    }
    match Stamp::of(block) {
        None => "it was not written by a verification".to_owned(),
        Some(found) if found.seed != expected.seed => {
            format!("it was written with --randseed {}", found.seed)
        }
        Some(found) if found.lba != expected.lba => format!("it belongs to LBA {}", found.lba),
        Some(found) if found.generation < expected.generation => format!(
            "it is stale: generation {} instead of {}",
            found.generation, expected.generation
        ),
        Some(found) if found.generation > expected.generation => format!(
            "it is of generation {}, expected was {}",
            found.generation, expected.generation
        ),
        Some(_) => "its beginning is right, its rest is not (torn?)".to_owned(),
    }
}

fn hex(bytes: &[u8]) -> String {
    let pairs: Vec<String> = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    pairs.join(" ")
}

/// Verifies the sources of `plan`: writes every block of the region once (more often where `plan.end` is a time, with
/// checks in between where the pattern is mixed), then reads all of it and checks it. With a pattern that only reads,
/// checks what an earlier verification with the same seed wrote.
pub fn verify(plan: &Plan, bar: &ProgressBar) -> Result<VerifyReport, BenchError> {
    if plan.pattern.kind == Kind::Trim {
        return Err(BenchError::Combination {
            option: "verify",
            conflict: "does not go with trim; use --rw write, randwrite, rw, randrw, or read",
        });
    }
    check(plan)?;
    let started = Instant::now();
    let lanes = lanes(plan)?;
    let names = lanes.names;
    bar.set_length(lanes.units);
    let wait = wait(plan, lanes.checks.len());
    let parts: Vec<_> = thread::scope(|scope| {
        let handles: Vec<_> = lanes
            .checks
            .into_iter()
            .enumerate()
            .map(|(index, (source, lane))| {
                scope.spawn(move || {
                    pin(plan, index)?;
                    let checked = lane.run(wait, bar);
                    Ok((source, checked))
                })
            })
            .collect();
        handles
            .into_iter()
            .map(|handle| handle.join().expect("a verifying thread does not panic"))
            .collect::<Result<_, BenchError>>()
    })?;
    drop(lanes.attachments);
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

struct Lanes {
    /// With the number of the source.
    checks: Vec<(usize, CheckLane)>,
    /// I/Os of one pass over all.
    units: u64,
    names: Vec<String>,
    attachments: Vec<crate::source::Attachment>,
}

fn lanes(plan: &Plan) -> Result<Lanes, BenchError> {
    let mut attachments = attach(plan)?;
    let mut seeds = SplitMix(plan.seed);
    let (mut checks, mut units) = (Vec::new(), 0);
    for (source, attachment) in attachments.iter_mut().enumerate() {
        let region = region(plan, attachment)?;
        if region.units > u64::from(plan.jobs) * CheckLane::UNITS_MAX {
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
                checks.push((source, CheckLane::new(port, plan, share, seeds.next())));
            }
        }
    }
    Ok(Lanes {
        checks,
        units,
        names: attachments.iter().map(|it| it.name.clone()).collect(),
        attachments,
    })
}

impl VerifyReport {
    /// Adds what one job found.
    fn add(&mut self, part: Self, source: &str) {
        self.written_blocks += part.written_blocks;
        self.checked_blocks += part.checked_blocks;
        self.differing_blocks += part.differing_blocks;
        self.errors += part.errors;
        self.first_error = self.first_error.take().or(part.first_error);
        if let Some(mut mismatch) = part.first_difference {
            source.clone_into(&mut mismatch.source);
            let is_first = self
                .first_difference
                .as_ref()
                .is_none_or(|known| known.source == mismatch.source && mismatch.lba < known.lba);
            if is_first {
                self.first_difference = Some(mismatch);
            }
        }
    }
}

impl fmt::Display for VerifyReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "wrote {} blocks, checked {} in {:.1} s (seed {})",
            thousands(self.written_blocks as f64),
            thousands(self.checked_blocks as f64),
            self.elapsed_s,
            self.seed
        )?;
        if let Some(error) = &self.first_error {
            writeln!(f, "{} I/Os failed, the first one: {error}", self.errors)?;
        }
        if self.interrupted {
            writeln!(f, "interrupted: not all blocks were checked")?;
        }
        match &self.first_difference {
            None => write!(f, "every block that was checked holds what it should"),
            Some(first) => write!(
                f,
                "{} blocks differ, the first one: {} LBA {}, byte {}: {}\n  expected {}\n  found    {}",
                self.differing_blocks,
                first.source,
                first.lba,
                first.byte,
                first.explanation,
                first.expected,
                first.found
            ),
        }
    }
}

#[cfg(test)]
mod tests;
