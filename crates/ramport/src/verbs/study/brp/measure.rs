//! Series of measurements, which take turns.

use std::time::Duration;

use bench::{End, Pattern, Plan, ProgressBar, Report, Stop};

use super::ways::{Network, Way};
use crate::cli::{StudyBrpArgs, StudySeries};

/// What the volume is like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Device {
    /// It is in RAM.
    Ram,
    /// It takes as long as a fast disk.
    Emulated,
}

impl Device {
    pub(super) const ALL: [Self; 2] = [Self::Ram, Self::Emulated];
    /// What the emulated device adds to each command.
    pub(super) const DELAY: &str = "7us";
    /// What the emulated device passes.
    pub(super) const BYTES_PER_SECOND: u64 = 700_000_000;

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Ram => "RAM",
            Self::Emulated => "emulated device",
        }
    }
}

/// What a series compares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Measure {
    /// The mean latency.
    MicrosecondsPerIo,
    /// I/Os per second.
    Iops,
    /// Throughput.
    MibPerSecond,
}

impl Measure {
    pub(super) const fn unit(self) -> &'static str {
        match self {
            Self::MicrosecondsPerIo => "us",
            Self::Iops => "IOPS",
            Self::MibPerSecond => "MiB/s",
        }
    }

    /// The figure of a report.
    fn of(self, report: &Report) -> Option<f64> {
        match self {
            Self::MicrosecondsPerIo => {
                let side = report.read.as_ref().or(report.write.as_ref())?;
                Some(side.latency_us.mean)
            }
            Self::Iops => Some(report.iops),
            Self::MibPerSecond => Some(report.mib_per_s),
        }
    }
}

/// One workload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Shape {
    pub(super) name: String,
    pub(super) rw: &'static str,
    block_len_bytes: u32,
    depth: u16,
    jobs: u16,
}

/// Workloads, each of which is measured over each way.
#[derive(Clone, Debug)]
pub(super) struct Series {
    pub(super) kind: StudySeries,
    pub(super) network: Network,
    pub(super) device: Device,
    pub(super) measure: Measure,
    pub(super) ways: &'static [Way],
    pub(super) shapes: Vec<Shape>,
}

/// The figures of a series.
pub(super) struct Measured {
    pub(super) series: Series,
    /// By shape, then by way: the figures of all repeats.
    pub(super) figures: Vec<Vec<Figures>>,
}

/// The figures of one workload over one way, one of each repeat.
#[derive(Clone, Debug, Default)]
pub(super) struct Figures {
    pub(super) values: Vec<f64>,
    /// CPU time per I/O of this process, in microseconds.
    pub(super) own_cpu_us: Vec<f64>,
    /// That of the daemon, where it is known.
    pub(super) daemon_cpu_us: Vec<f64>,
}

const KIB: u32 = 1 << 10;
const MIB: u32 = 1 << 20;
/// The jobs of the matrix.
const JOBS: u16 = 16;
/// The depths of rising load.
const DEPTHS: [u16; 7] = [1, 2, 4, 8, 16, 32, 64];
/// The depth of the goal for IOPS.
pub(super) const DEPTH: u16 = 32;
/// The load begins this part of the runtime before measuring.
const RAMP_PART: u32 = 5;

/// The series that `args` include, of a device over a network.
pub(super) fn all_series(args: &StudyBrpArgs, network: Network, device: Device) -> Vec<Series> {
    let series = |kind, measure, shapes| Series {
        kind,
        network,
        device,
        measure,
        ways: match kind {
            StudySeries::Load => network.merging_ways(),
            _ => network.ways(),
        },
        shapes,
    };
    let matrix = |block_len_bytes| {
        let patterns = ["read", "write", "randread", "randwrite"];
        patterns
            .map(|rw| shape(rw, block_len_bytes, 1, JOBS))
            .into()
    };
    let small = |rw, depth| shape(rw, 4 * KIB, depth, 1);
    let all = [
        series(
            StudySeries::Latency,
            Measure::MicrosecondsPerIo,
            vec![small("randread", 1), small("randwrite", 1)],
        ),
        series(
            StudySeries::Depth,
            Measure::Iops,
            vec![small("randread", DEPTH), small("randwrite", DEPTH)],
        ),
        series(StudySeries::Matrix, Measure::Iops, matrix(4 * KIB)),
        series(StudySeries::Matrix, Measure::MibPerSecond, matrix(MIB)),
        series(
            StudySeries::Load,
            Measure::Iops,
            DEPTHS.map(|depth| small("randwrite", depth)).into(),
        ),
    ];
    all.into_iter()
        .filter(|series| args.includes(series.kind))
        .collect()
}

fn shape(rw: &'static str, block_len_bytes: u32, depth: u16, jobs: u16) -> Shape {
    let len = if block_len_bytes < MIB {
        format!("{} KiB", block_len_bytes / KIB)
    } else {
        format!("{} MiB", block_len_bytes / MIB)
    };
    let name = match (depth, jobs) {
        (1, 1) => format!("{rw} {len}"),
        (depth, 1) => format!("{rw} {len}, depth {depth}"),
        (_, jobs) => format!("{rw} {len}, {jobs} jobs"),
    };
    Shape {
        name,
        rw,
        block_len_bytes,
        depth,
        jobs,
    }
}

impl Series {
    /// Its name in the report.
    pub(super) fn title(&self) -> String {
        let what = match (self.kind, self.measure) {
            (StudySeries::Latency, _) => "Latency at depth 1".to_owned(),
            (StudySeries::Depth, _) => format!("IOPS at depth {DEPTH}"),
            (StudySeries::Matrix, Measure::MibPerSecond) => format!("{JOBS} jobs, throughput"),
            (StudySeries::Matrix, _) => format!("{JOBS} jobs, IOPS"),
            (StudySeries::Load, _) => "Random writes over rising load".to_owned(),
        };
        format!("{what}: {}, {}", self.network, self.device.name())
    }

    /// How many measurements it takes.
    pub(super) fn measurements(&self, args: &StudyBrpArgs) -> u64 {
        u64::from(args.repeats) * (self.ways.len() * self.shapes.len()) as u64
    }
}

/// Measures a series; nothing if it was interrupted. A way that fails is left out from then on, and
/// noted.
pub(super) fn run(
    series: Series,
    args: &StudyBrpArgs,
    stop: &Stop,
    bar: &ProgressBar,
    remarks: &mut Vec<String>,
) -> Option<Measured> {
    let mut figures = vec![vec![Figures::default(); series.ways.len()]; series.shapes.len()];
    for (shape, figures) in series.shapes.iter().zip(&mut figures) {
        let mut has_failed = vec![false; series.ways.len()];
        for way in turns(args.repeats, series.ways.len()) {
            bar.inc(1);
            if has_failed[way] {
                continue;
            }
            let measured = measure_one(&series, shape, series.ways[way], args, stop);
            if stop.is_requested() {
                return None;
            }
            match measured {
                Ok(report) => figures[way].add(series.measure, &report),
                Err(reason) => {
                    has_failed[way] = true;
                    remarks.push(format!(
                        "{}: {} of {} was not measured: {reason}",
                        series.title(),
                        shape.name,
                        series.ways[way].name
                    ));
                }
            }
        }
    }
    Some(Measured { series, figures })
}

/// The ways in the order in which they take turns: from the first to the last, then back.
fn turns(repeats: u16, ways: usize) -> impl Iterator<Item = usize> {
    (0..repeats).flat_map(move |repeat| {
        (0..ways).map(move |way| {
            if repeat.is_multiple_of(2) {
                way
            } else {
                ways - 1 - way
            }
        })
    })
}

fn measure_one(
    series: &Series,
    shape: &Shape,
    way: Way,
    args: &StudyBrpArgs,
    stop: &Stop,
) -> Result<Report, String> {
    let source = way.source(series.network, args.target);
    let source = source.map_err(|failure| failure.to_string())?;
    let pattern: Pattern = shape.rw.parse().expect("shapes use patterns that exist");
    let runtime = args.runtime();
    let plan = Plan {
        pattern,
        block_len_bytes: shape.block_len_bytes,
        depth: shape.depth,
        jobs: shape.jobs,
        end: End::After(runtime),
        ramp: runtime / RAMP_PART,
        interval: runtime.max(Duration::from_millis(1)),
        stop: stop.clone(),
        ..Plan::new(vec![source])
    };
    let report = bench::run(&plan, &ProgressBar::hidden()).map_err(|error| error.to_string())?;
    match (&report.failure, &report.first_error) {
        (Some(why), _) | (None, Some(why)) => Err(why.clone()),
        (None, None) => Ok(report),
    }
}

impl Figures {
    fn add(&mut self, measure: Measure, report: &Report) {
        self.values.extend(measure.of(report));
        self.own_cpu_us.push(report.cpu.us_per_io);
        let daemon = report.daemon.as_ref();
        self.daemon_cpu_us.extend(daemon.map(|it| it.cpu.us_per_io));
    }

    /// The median, if anything was measured.
    pub(super) fn median(&self) -> Option<f64> {
        median(&self.values)
    }

    /// The lowest and the highest.
    pub(super) fn range(&self) -> Option<(f64, f64)> {
        let values = || self.values.iter().copied();
        values().reduce(f64::min).zip(values().reduce(f64::max))
    }
}

/// The median; the mean of both in the middle if there are two.
pub(super) fn median(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let upper = *sorted.get(sorted.len() / 2)?;
    let lower = sorted[(sorted.len() - 1) / 2];
    Some(f64::midpoint(lower, upper))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ways_take_turns_in_both_directions() {
        let order: Vec<_> = turns(3, 3).collect();
        assert_eq!(order, [0, 1, 2, 2, 1, 0, 0, 1, 2]);
    }

    #[test]
    fn the_median_is_in_the_middle_and_the_range_covers_all() {
        let figures = Figures {
            values: vec![9.0, 1.0, 5.0],
            ..Figures::default()
        };
        assert_eq!(figures.median(), Some(5.0));
        assert_eq!(figures.range(), Some((1.0, 9.0)));
        assert_eq!(median(&[1.0, 2.0]), Some(1.5));
        assert_eq!((median(&[]), Figures::default().range()), (None, None));
    }
}
