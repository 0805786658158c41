//! What to do, checked: the form that [`crate::Args`] is turned into and that programs fill in
//! themselves.

use std::{
    fmt,
    str::FromStr,
    time::{Duration, SystemTime},
};

use file_io::{Caching, FileAccess};
use serde::{Serialize, Serializer};

use crate::{Direction, Source, Stop, Wait, numbers::CpuList};

/// fio's `rw`: which I/O in which order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pattern {
    /// In which order blocks are visited.
    pub order: Order,
    /// What is done with them.
    pub kind: Kind,
}

/// In which order blocks are visited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// From the first to the last, then again.
    Sequential,
    /// In pseudo-random order, each once before any comes again (as fio's random map).
    Random,
}

/// What is done with blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Only reads.
    Read,
    /// Only writes.
    Write,
    /// Reads and writes, drawn at random.
    Mixed,
    /// Only discards.
    Trim,
}

/// fio's names.
const PATTERNS: [(&str, Order, Kind); 9] = [
    ("read", Order::Sequential, Kind::Read),
    ("write", Order::Sequential, Kind::Write),
    ("rw", Order::Sequential, Kind::Mixed),
    ("readwrite", Order::Sequential, Kind::Mixed),
    ("trim", Order::Sequential, Kind::Trim),
    ("randread", Order::Random, Kind::Read),
    ("randwrite", Order::Random, Kind::Write),
    ("randrw", Order::Random, Kind::Mixed),
    ("randtrim", Order::Random, Kind::Trim),
];

/// A pattern that does not exist.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{text:?} is not a pattern; patterns are: read, write, rw, trim, randread, randwrite, randrw, randtrim"
)]
pub struct PatternError {
    /// The text.
    pub text: String,
}

impl FromStr for Pattern {
    type Err = PatternError;

    fn from_str(text: &str) -> Result<Self, PatternError> {
        let found = PATTERNS.iter().find(|(name, ..)| *name == text);
        match found {
            Some(&(_, order, kind)) => Ok(Self { order, kind }),
            None => Err(PatternError {
                text: text.to_owned(),
            }),
        }
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let found = PATTERNS
            .iter()
            .find(|&&(_, order, kind)| (order, kind) == (self.order, self.kind));
        f.write_str(found.expect("every pattern has a name").0)
    }
}

impl Serialize for Pattern {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// When a run ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// After this time.
    After(Duration),
    /// When each job has done as many bytes as its region has.
    OnePass,
}

/// The most I/O that each job issues. Latency then counts from the time at which an I/O was due,
/// not from the time at which a late generator issued it (no coordinated omission).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rate {
    /// I/Os per second and job.
    Iops(u64),
    /// Bytes per second and job.
    BytesPerSecond(u64),
}

/// What a failed I/O means for the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnError {
    /// The run ends.
    Stop,
    /// It is counted and the run continues.
    Count,
}

/// One run.
#[derive(Clone, Debug)]
pub struct Plan {
    /// What is measured; all at once.
    pub sources: Vec<Source>,
    /// Which I/O.
    pub pattern: Pattern,
    /// Reads among mixed I/O, in per cent.
    pub read_percent: u8,
    /// Bytes of each I/O.
    pub block_len_bytes: u32,
    /// I/Os in flight per job.
    pub depth: u16,
    /// Jobs per source, each with a queue of its own.
    pub jobs: u16,
    /// When it ends.
    pub end: End,
    /// How long to run before measuring.
    pub ramp: Duration,
    /// How long to keep the load up after measuring, in a run that ends after a time.
    pub cool_down: Duration,
    /// When to begin; at once without it. Connections are made before.
    pub begin: Option<SystemTime>,
    /// Where the region starts.
    pub offset_bytes: u64,
    /// The length of the region in bytes; `None` extends it to the end of the source.
    pub size_bytes: Option<u64>,
    /// The most I/O of each job.
    pub rate: Option<Rate>,
    /// Seeds order, mix and pattern.
    pub seed: u64,
    /// How threads wait. Without it, they poll without pause unless that could starve the target or
    /// each other.
    pub wait: Option<Wait>,
    /// Processors to pin threads to, in turn; none: not pinned.
    pub cpus: CpuList,
    /// How many threads share the jobs; one per job, up to the machine's processors, if there is
    /// none.
    pub threads: Option<usize>,
    /// Whether I/O on files uses the page cache.
    pub caching: Caching,
    /// The process whose CPU time is reported beside ours; `None` finds it by its socket.
    pub daemon_pid: Option<u32>,
    /// What a failed I/O means for the run.
    pub on_error: OnError,
    /// The longest time without an answer that is no failure. Without it, runs that end after a
    /// time accept any, others [`OUTAGE_MAX_DEFAULT`](Self::OUTAGE_MAX_DEFAULT).
    pub max_outage: Option<Duration>,
    /// Ends the run early.
    pub stop: Stop,
    /// The interval at which IOPS are sampled for their deviation.
    pub interval: Duration,
}

impl Plan {
    /// How long verification and passes wait for an answer before they fail, unless the plan says
    /// otherwise.
    pub const OUTAGE_MAX_DEFAULT: Duration = Duration::from_secs(60);

    /// 4 KiB random reads at depth 32 for 10 s, with one job.
    pub fn new(sources: Vec<Source>) -> Self {
        Self {
            sources,
            pattern: Pattern {
                order: Order::Random,
                kind: Kind::Read,
            },
            read_percent: 50,
            block_len_bytes: 4096,
            depth: 32,
            jobs: 1,
            end: End::After(Duration::from_secs(10)),
            ramp: Duration::ZERO,
            cool_down: Duration::ZERO,
            begin: None,
            offset_bytes: 0,
            size_bytes: None,
            rate: None,
            seed: 1,
            wait: None,
            cpus: CpuList::default(),
            threads: None,
            caching: Caching::DirectWherePossible,
            daemon_pid: None,
            on_error: OnError::Stop,
            max_outage: None,
            stop: Stop::default(),
            interval: Duration::from_millis(500),
        }
    }

    /// How long a run without an end in time waits for an answer.
    pub(crate) fn patience(&self) -> Duration {
        self.max_outage.unwrap_or(Self::OUTAGE_MAX_DEFAULT)
    }

    /// What the sources must permit.
    pub(crate) fn access(&self) -> FileAccess {
        match self.pattern.kind {
            Kind::Read => FileAccess::ReadOnly,
            Kind::Write | Kind::Mixed | Kind::Trim => FileAccess::ReadWrite,
        }
    }

    /// Where the region ends, if that is not where the source ends.
    pub(crate) fn end_bytes(&self) -> Option<u64> {
        let size_bytes = self.size_bytes?;
        Some(self.offset_bytes.saturating_add(size_bytes))
    }

    /// The time between two I/Os of one job, if the rate is limited.
    pub(crate) fn pace(&self) -> Option<Duration> {
        let per_second = match self.rate? {
            Rate::Iops(iops) => iops as f64,
            Rate::BytesPerSecond(bytes) => bytes as f64 / f64::from(self.block_len_bytes),
        };
        Some(Duration::from_secs_f64(1.0 / per_second))
    }

    /// Which directions occur.
    pub(crate) fn directions(&self) -> &'static [Direction] {
        match self.pattern.kind {
            Kind::Read => &[Direction::Read],
            Kind::Write => &[Direction::Write],
            Kind::Mixed => &[Direction::Read, Direction::Write],
            Kind::Trim => &[Direction::Trim],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_read_and_print_as_in_fio() {
        for (name, ..) in PATTERNS {
            let pattern: Pattern = name.parse().expect("known");
            let printed = pattern.to_string();
            assert!(printed == name || (name, printed.as_str()) == ("readwrite", "rw"));
        }
        let error = "rnadread".parse::<Pattern>().expect_err("a typing error");
        assert!(error.to_string().contains("randread"), "{error}");
    }
}
