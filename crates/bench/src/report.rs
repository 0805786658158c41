//! The results of a run: figures, as text and as JSON.

use std::fmt;

use comfy_table::Table;
use serde::Serialize;

use crate::format::{microseconds, plain_table, thousands};
use crate::{Daemon, Direction, Pattern, Plan, Wait, latency::Latencies};

/// The figures of one run.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// What was requested.
    pub workload: Workload,
    /// Seconds that were measured.
    pub elapsed_s: f64,
    /// Reads, if there were any.
    pub read: Option<Side>,
    /// Writes, if there were any.
    pub write: Option<Side>,
    /// Discards, if there were any.
    pub trim: Option<Side>,
    /// All I/Os per second.
    pub iops: f64,
    /// All MiB per second.
    pub mib_per_s: f64,
    /// Where the I/Os went, in the order of the sources.
    pub sources: Vec<SourceShare>,
    /// CPU time of this process.
    pub cpu: CpuUse,
    /// CPU time of the daemon, if it runs on this machine.
    pub daemon: Option<DaemonUse>,
    /// I/Os that failed.
    pub errors: u64,
    /// The message of the first of them.
    pub first_error: Option<String>,
    /// The longest outage: one second or more, or more than `--max-outage`.
    pub outage: Option<Outage>,
    /// Why the run ended early.
    pub failure: Option<String>,
    /// Whether a [`Stop`](crate::Stop) ended the run.
    pub interrupted: bool,
    /// What the reader should know.
    pub notes: Vec<String>,
    #[serde(skip)]
    pub(crate) latencies: [Latencies; 3],
    /// IOPS in each interval, per direction.
    #[serde(skip)]
    pub(crate) samples: [Vec<f64>; 3],
}

/// What was requested.
#[derive(Clone, Debug, Serialize)]
pub struct Workload {
    /// The pattern.
    pub rw: Pattern,
    /// Reads among mixed I/O in per cent.
    pub rwmixread: u8,
    /// Bytes of each I/O.
    pub bs: u32,
    /// I/Os in flight per job.
    pub iodepth: u16,
    /// Jobs per source.
    pub numjobs: u16,
    /// The seed.
    pub randseed: u64,
    /// How threads waited.
    pub wait: Wait,
    /// Seconds between samples of IOPS.
    pub interval_s: f64,
}

impl From<&Plan> for Workload {
    fn from(plan: &Plan) -> Self {
        Self {
            rw: plan.pattern,
            rwmixread: plan.read_percent,
            bs: plan.block_len_bytes,
            iodepth: plan.depth,
            numjobs: plan.jobs,
            randseed: plan.seed,
            wait: plan.wait.unwrap_or(Wait::Spin),
            interval_s: plan.interval.as_secs_f64(),
        }
    }
}

/// The figures of one direction.
#[derive(Clone, Debug, Serialize)]
pub struct Side {
    /// I/Os.
    pub ios: u64,
    /// I/Os per second.
    pub iops: f64,
    /// Standard deviation of IOPS from interval to interval.
    pub iops_stddev: f64,
    /// IOPS of the slowest interval.
    pub iops_min: f64,
    /// IOPS of the fastest interval.
    pub iops_max: f64,
    /// MiB per second.
    pub mib_per_s: f64,
    /// Latency in microseconds.
    pub latency_us: Latency,
}

/// A latency distribution in microseconds.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Latency {
    /// Mean.
    pub mean: f64,
    /// Standard deviation.
    pub stddev: f64,
    /// Shortest.
    pub min: f64,
    /// Median.
    pub p50: f64,
    /// 90th percentile.
    pub p90: f64,
    /// 99th percentile.
    pub p99: f64,
    /// 99.9th percentile.
    #[serde(rename = "p99.9")]
    pub p99_9: f64,
    /// 99.99th percentile.
    #[serde(rename = "p99.99")]
    pub p99_99: f64,
    /// Longest.
    pub max: f64,
}

/// One source's part.
#[derive(Clone, Debug, Serialize)]
pub struct SourceShare {
    /// The source.
    pub source: String,
    /// Its I/Os per second.
    pub iops: f64,
}

/// A time in which I/Os of a job were in flight and none of them completed.
#[derive(Clone, Debug, Serialize)]
pub struct Outage {
    /// The source.
    pub source: String,
    /// When it began, in seconds of the measurement.
    pub began_s: f64,
    /// How long it lasted, in seconds; if it has not ended, up to the end of waiting.
    pub lasted_s: f64,
    /// Whether the source answered again.
    pub ended: bool,
    /// The limit that it exceeds, in seconds.
    pub max_s: Option<f64>,
}

impl fmt::Display for Outage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            source,
            began_s,
            lasted_s,
            ..
        } = self;
        write!(
            f,
            "{source} did not answer for {lasted_s:.1} s, from second {began_s:.1} of the measurement on"
        )?;
        if !self.ended {
            f.write_str(", and not until the end")?;
        }
        match self.max_s {
            Some(max_s) => write!(f, ": longer than --max-outage {max_s} s"),
            None => Ok(()),
        }
    }
}

/// CPU time of a process.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct CpuUse {
    /// Microseconds per I/O.
    pub us_per_io: f64,
    /// Cores in use on average.
    pub cores: f64,
}

/// CPU time of the daemon.
#[derive(Clone, Debug, Serialize)]
pub struct DaemonUse {
    /// Which process it is.
    #[serde(flatten)]
    pub daemon: Daemon,
    /// Its CPU time.
    #[serde(flatten)]
    pub cpu: CpuUse,
}

impl Latency {
    pub(crate) fn new(latencies: &Latencies) -> Self {
        let percentile = |percent| latencies.percentile_ns(percent) as f64 / 1000.0;
        Self {
            mean: latencies.mean_ns() / 1000.0,
            stddev: latencies.stddev_ns() / 1000.0,
            min: latencies.min_ns() as f64 / 1000.0,
            p50: percentile(50.0),
            p90: percentile(90.0),
            p99: percentile(99.0),
            p99_9: percentile(99.9),
            p99_99: percentile(99.99),
            max: latencies.max_ns() as f64 / 1000.0,
        }
    }
}

impl Side {
    /// The figures of one direction, of which `ios` I/Os completed in time, from its latencies and
    /// its IOPS in each interval.
    pub(crate) fn new(
        ios: u64,
        latencies: &Latencies,
        elapsed_s: f64,
        bs: u32,
        samples: &[f64],
    ) -> Self {
        let iops = ios as f64 / elapsed_s;
        let (low, high) = samples
            .iter()
            .fold((f64::INFINITY, 0.0_f64), |(low, high), &sample| {
                (low.min(sample), high.max(sample))
            });
        Self {
            ios,
            iops,
            iops_stddev: stddev(samples),
            iops_min: if samples.is_empty() { iops } else { low },
            iops_max: if samples.is_empty() { iops } else { high },
            mib_per_s: iops * f64::from(bs) / f64::from(1 << 20),
            latency_us: Latency::new(latencies),
        }
    }
}

/// The standard deviation of a sample.
pub(crate) fn stddev(samples: &[f64]) -> f64 {
    if samples.len() < 2 {
        return 0.0;
    }
    let count = samples.len() as f64;
    let mean = samples.iter().sum::<f64>() / count;
    let squares: f64 = samples.iter().map(|sample| (sample - mean).powi(2)).sum();
    (squares / (count - 1.0)).sqrt()
}

impl Report {
    /// How much went wrong: I/Os that failed, an outage beyond `--max-outage`, an early end.
    pub fn failures(&self) -> u64 {
        let outage = self.outage.as_ref().is_some_and(|it| it.max_s.is_some());
        self.errors + u64::from(outage) + u64::from(self.failure.is_some())
    }

    /// The figures of a direction, if there were such I/Os.
    pub fn side(&self, direction: Direction) -> Option<&Side> {
        match direction {
            Direction::Read => self.read.as_ref(),
            Direction::Write => self.write.as_ref(),
            Direction::Trim => self.trim.as_ref(),
        }
    }

    /// The directions that occurred, with their names and figures.
    pub fn sides(&self) -> impl Iterator<Item = (&'static str, &Side)> {
        [
            ("read", &self.read),
            ("write", &self.write),
            ("trim", &self.trim),
        ]
        .into_iter()
        .filter_map(|(name, side)| Some((name, side.as_ref()?)))
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let workload = &self.workload;
        write!(
            f,
            "{} bs={} iodepth={} numjobs={}: ",
            workload.rw, workload.bs, workload.iodepth, workload.numjobs,
        )?;
        if self.measured_nothing() {
            writeln!(f, "no I/O completed in {:.1} s", self.elapsed_s)?;
        } else {
            let (iops, mib_per_s) = (thousands(self.iops), thousands(self.mib_per_s));
            writeln!(
                f,
                "{iops} IOPS, {mib_per_s} MiB/s in {:.1} s",
                self.elapsed_s
            )?;
            writeln!(f, "{}\n\n{}", self.rate_table(), self.latency_table())?;
        }
        write!(f, "CPU of this process: {}", self.cpu_use(self.cpu))?;
        if let Some(DaemonUse { daemon, cpu }) = &self.daemon {
            let (Daemon { name, pid, .. }, used) = (daemon, self.cpu_use(*cpu));
            write!(f, "\nCPU of {name} (process {pid}): {used}")?;
        }
        if self.sources.len() > 1 {
            for share in &self.sources {
                write!(f, "\n{}: {} IOPS", share.source, thousands(share.iops))?;
            }
        }
        if let Some(error) = &self.first_error {
            write!(f, "\n{} I/Os failed, the first one: {error}", self.errors)?;
        }
        if self.interrupted {
            write!(f, "\ninterrupted: these are the figures so far")?;
        }
        if let Some(failure) = &self.failure {
            write!(f, "\nthe run ended early: {failure}")?;
        }
        for note in &self.notes {
            write!(f, "\nnote: {note}")?;
        }
        Ok(())
    }
}

impl Report {
    /// Whether there is no figure to show.
    pub(crate) fn measured_nothing(&self) -> bool {
        self.latencies.iter().all(|it| it.count() == 0)
    }

    /// CPU time in words; per I/O only if one completed.
    fn cpu_use(&self, cpu: CpuUse) -> String {
        let cores = format!("{:.2} cores", cpu.cores);
        if self.measured_nothing() {
            return cores;
        }
        format!("{:.2} us per I/O, {cores}", cpu.us_per_io)
    }

    fn rate_table(&self) -> Table {
        let interval = format!("per {} s: stddev", self.workload.interval_s);
        let mut table = plain_table(&["", "IOPS", "MiB/s", &interval, "slowest", "fastest"]);
        for (name, side) in self.sides() {
            let figures = [
                side.iops,
                side.mib_per_s,
                side.iops_stddev,
                side.iops_min,
                side.iops_max,
            ];
            let cells = figures.map(thousands).into_iter();
            table.add_row(std::iter::once(name.to_owned()).chain(cells));
        }
        table
    }

    fn latency_table(&self) -> Table {
        let mut table = plain_table(&[
            "us", "mean", "stddev", "min", "p50", "p90", "p99", "p99.9", "p99.99", "max",
        ]);
        for (name, side) in self.sides() {
            let latency = &side.latency_us;
            let figures = [
                latency.mean,
                latency.stddev,
                latency.min,
                latency.p50,
                latency.p90,
                latency.p99,
                latency.p99_9,
                latency.p99_99,
                latency.max,
            ];
            let cells = figures.map(microseconds).into_iter();
            table.add_row(std::iter::once(name.to_owned()).chain(cells));
        }
        table
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::{Daemon, Found, Plan};

    /// The longest lines of tables.
    pub(crate) const WIDTH_MAX: usize = 100;

    /// A report of reads and writes with `ios` I/Os of 99 s each.
    pub(crate) fn report(ios: u64) -> Report {
        let mut latencies: [Latencies; 3] = Default::default();
        for _ in 0..ios {
            latencies[0].record(std::time::Duration::from_secs(99));
        }
        let cpu = CpuUse {
            us_per_io: 12_345.67,
            cores: 64.0,
        };
        let side = Side::new(10_000_000, &latencies[0], 1.0, 4096, &[0.0, 19_999_999.0]);
        Report {
            workload: Workload::from(&Plan::new(Vec::new())),
            elapsed_s: 1.0,
            read: Some(side.clone()),
            write: Some(side),
            trim: None,
            iops: 1e7,
            mib_per_s: 1e5,
            sources: Vec::new(),
            cpu,
            daemon: Some(DaemonUse {
                daemon: Daemon {
                    pid: 1,
                    name: "ramport".to_owned(),
                    found: Found::ByPid,
                },
                cpu,
            }),
            errors: 0,
            first_error: None,
            outage: None,
            failure: None,
            interrupted: false,
            notes: Vec::new(),
            latencies,
            samples: Default::default(),
        }
    }

    #[test]
    fn tables_of_large_figures_fit_100_columns_and_have_the_deviation_of_latency() {
        let text = report(1).to_string();
        assert!(
            text.lines().all(|line| line.chars().count() <= WIDTH_MAX),
            "{text}"
        );
        let head = text
            .lines()
            .find(|line| line.contains("p99.99"))
            .expect("a table");
        assert!(head.contains("mean") && head.contains("stddev"), "{text}");
    }

    #[test]
    fn a_run_without_figures_prints_no_table() {
        let text = report(0).to_string();
        assert!(
            text.contains("no I/O completed") && !text.contains("p99"),
            "{text}"
        );
        assert!(text.contains("CPU of this process: 64.00 cores"), "{text}");
    }

    #[test]
    fn deviation_of_a_sample() {
        assert!((stddev(&[2.0, 4.0, 4.0, 4.0, 5.0, 5.0, 7.0, 9.0]) - 2.138).abs() < 0.001);
        assert!(stddev(&[1.0]).abs() < f64::EPSILON);
    }
}
