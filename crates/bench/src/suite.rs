//! A series of shapes.

use std::{fmt, time::Duration};

use clap::ValueEnum;
use comfy_table::Table;
use indicatif::ProgressBar;
use serde::Serialize;

use crate::{
    BenchError, End, Kind, Pattern, Plan, Report,
    format::{microseconds, plain_table, thousands},
    run,
};

/// Which series.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "snake_case")]
pub enum SuiteKind {
    /// 1 s for each of 10 shapes.
    Quick,
    /// 10 s for each of 13 shapes.
    Full,
}

/// One measurement of a series.
#[derive(Clone, Copy, Debug)]
struct Shape {
    rw: &'static str,
    read_percent: u8,
    block_len_bytes: u32,
    depth: u16,
}

const fn shape(rw: &'static str, block_len_bytes: u32, depth: u16) -> Shape {
    Shape {
        rw,
        read_percent: 70,
        block_len_bytes,
        depth,
    }
}

const QUICK: &[Shape] = &[
    shape("randread", 512, 128),
    shape("randwrite", 512, 128),
    shape("randread", 4096, 1),
    shape("randwrite", 4096, 1),
    shape("randrw", 4096, 1),
    shape("randread", 4096, 32),
    shape("randwrite", 4096, 32),
    shape("randrw", 4096, 32),
    shape("read", 128 << 10, 8),
    shape("write", 128 << 10, 8),
];

/// What a full series has beyond the quick one.
const FULL: &[Shape] = &[
    shape("randread", 4096, 128),
    shape("randwrite", 4096, 128),
    shape("randrw", 4096, 128),
];

impl Shape {
    fn pattern(self) -> Pattern {
        self.rw.parse().expect("shapes use patterns that exist")
    }
}

impl SuiteKind {
    /// `base` with the pattern that overwrites as much as all shapes of `selection` together.
    pub(crate) fn plan_of_effects(self, base: &Plan, selection: Option<Kind>) -> Plan {
        let shapes = self.shapes(selection);
        let mut patterns = shapes.into_iter().map(Shape::pattern);
        let overwriting = patterns.find(|it| it.kind != Kind::Read);
        let reading = Pattern {
            kind: Kind::Read,
            ..base.pattern
        };
        Plan {
            pattern: overwriting.unwrap_or(reading),
            block_len_bytes: 4096,
            ..base.clone()
        }
    }

    /// The shapes of the series, smallest blocks first; only those of the kind `selection`, if that
    /// is given.
    fn shapes(self, selection: Option<Kind>) -> Vec<Shape> {
        let more = match self {
            Self::Quick => &[],
            Self::Full => FULL,
        };
        let mut shapes = [QUICK, more].concat();
        shapes.retain(|shape| selection.is_none_or(|kind| shape.pattern().kind == kind));
        shapes.sort_by_key(|shape| shape.block_len_bytes);
        shapes
    }

    fn runtime(self) -> Duration {
        match self {
            Self::Quick => Duration::from_secs(1),
            Self::Full => Duration::from_secs(10),
        }
    }

    fn ramp(self) -> Duration {
        match self {
            Self::Quick => Duration::from_millis(200),
            Self::Full => Duration::from_secs(1),
        }
    }
}

/// The figures of a series.
#[derive(Clone, Debug, Serialize)]
pub struct SuiteReport {
    /// Which series.
    pub suite: SuiteKind,
    /// Shape by shape.
    pub rows: Vec<SuiteRow>,
    /// Whether a [`Stop`](crate::Stop) ended the series.
    pub interrupted: bool,
    /// The shape that could not be measured, and why. Later shapes were not run.
    pub failure: Option<String>,
    /// Shapes that were left out, and why.
    pub skipped: Vec<String>,
}

/// One shape's figures.
#[derive(Clone, Debug, Serialize)]
pub struct SuiteRow {
    /// The shape.
    pub name: String,
    /// Its figures.
    pub report: Report,
}

impl SuiteReport {
    /// I/Os that failed.
    pub fn errors(&self) -> u64 {
        self.rows.iter().map(|row| row.report.failures()).sum()
    }
}

/// Measures every shape of a series on the sources of `base`. Pattern, block size, depth, ramp and
/// time come from the shape, everything else from `base`. With a `selection`, only shapes of that
/// kind are measured. `bar` shows the shapes. Shapes of 512 B are skipped if a source has larger
/// blocks. If a shape fails, the series ends and the report holds the shapes before it.
///
/// # Errors
/// If the first shape fails, or no shape matches the `selection`.
pub fn run_suite(
    base: &Plan,
    kind: SuiteKind,
    selection: Option<Kind>,
    bar: &ProgressBar,
) -> Result<SuiteReport, BenchError> {
    let shapes = kind.shapes(selection);
    if shapes.is_empty() {
        return Err(BenchError::Combination {
            option: "suite",
            conflict: "has no shapes that discard; use --rw read, write or rw",
        });
    }
    let (mut rows, mut skipped, mut failure) = (Vec::new(), Vec::new(), None);
    let mut first_note = Vec::new();
    let shape_s = (kind.ramp() + kind.runtime()).as_secs_f64();
    let mut before = String::new();
    bar.set_length(shapes.len() as u64);
    for (index, shape) in shapes.iter().enumerate() {
        if base.stop.is_requested() {
            break;
        }
        let plan = plan(base, *shape, kind);
        let name = name(*shape);
        let left_s = (shapes.len() - index) as f64 * shape_s;
        bar.set_message(format!("{name}{before}, {left_s:.0} s left"));
        bar.set_position(index as u64);
        match run(&plan, &ProgressBar::hidden()) {
            Ok(mut report) => {
                // Do not repeat the same note under every shape.
                report.notes.retain(|note| !first_note.contains(note));
                first_note.extend(report.notes.iter().cloned());
                before = format!(" (before: {} IOPS)", thousands(report.iops));
                rows.push(SuiteRow { name, report });
            }
            Err(BenchError::Unaligned { unit_bytes, .. }) => {
                skipped.push(format!("{name}: the block size is {unit_bytes} B"));
            }
            Err(error) if rows.is_empty() => return Err(error),
            Err(error) => {
                failure = Some(format!("{name}: {error}"));
                break;
            }
        }
    }
    bar.set_position(shapes.len() as u64);
    Ok(SuiteReport {
        suite: kind,
        interrupted: base.stop.is_requested(),
        rows,
        failure,
        skipped,
    })
}

fn plan(base: &Plan, shape: Shape, kind: SuiteKind) -> Plan {
    Plan {
        pattern: shape.pattern(),
        read_percent: shape.read_percent,
        block_len_bytes: shape.block_len_bytes,
        depth: shape.depth,
        end: End::After(kind.runtime()),
        ramp: kind.ramp(),
        interval: kind.runtime() / 10,
        ..base.clone()
    }
}

fn name(shape: Shape) -> String {
    let len = match shape.block_len_bytes {
        bytes if bytes >= 1024 => format!("{} KiB", bytes / 1024),
        bytes => format!("{bytes} B"),
    };
    let rw = match shape.rw {
        "randread" => "random read",
        "randwrite" => "random write",
        "randrw" => "random 70/30",
        "read" => "sequential read",
        _ => "sequential write",
    };
    format!("{len} {rw}, depth {}", shape.depth)
}

impl SuiteRow {
    /// Adds the figures of each direction to the tables.
    fn add_to(&self, rates: &mut Table, latencies: &mut Table) {
        let report = &self.report;
        for (direction, side) in report.sides() {
            let name = if report.sides().count() > 1 {
                format!("{} ({direction})", self.name)
            } else {
                self.name.clone()
            };
            let daemon = report.daemon.as_ref();
            rates.add_row([
                name.clone(),
                thousands(side.iops),
                thousands(side.iops_stddev),
                thousands(side.mib_per_s),
                format!("{:.2}", report.cpu.us_per_io),
                daemon.map_or_else(|| "-".to_owned(), |it| format!("{:.2}", it.cpu.us_per_io)),
            ]);
            let latency = &side.latency_us;
            let figures = [
                latency.mean,
                latency.stddev,
                latency.p50,
                latency.p99,
                latency.p99_9,
                latency.max,
            ];
            let cells = figures.map(microseconds).into_iter();
            latencies.add_row(std::iter::once(name).chain(cells));
        }
    }
}

impl fmt::Display for SuiteReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut rates = plain_table(&["", "IOPS", "stddev", "MiB/s", "own us/IO", "daemon us/IO"]);
        let mut latencies = plain_table(&["us", "mean", "stddev", "p50", "p99", "p99.9", "max"]);
        for row in self
            .rows
            .iter()
            .filter(|row| !row.report.measured_nothing())
        {
            row.add_to(&mut rates, &mut latencies);
        }
        write!(f, "{rates}\n\n{latencies}")?;
        if let Some(failure) = &self.failure {
            write!(f, "\nfailed: {failure}; later shapes were not measured")?;
        }
        if self.interrupted {
            write!(f, "\ninterrupted: these are the figures so far")?;
        }
        for skipped in &self.skipped {
            write!(f, "\nleft out: {skipped}")?;
        }
        for note in self.rows.iter().flat_map(|row| &row.report.notes) {
            write!(f, "\nnote: {note}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::tests::{WIDTH_MAX, report};

    #[test]
    fn tables_of_large_figures_fit_100_columns_and_have_the_deviation_of_latency() {
        let row = |shape: Shape| {
            let mut report = report(1);
            if shape.pattern().kind != Kind::Mixed {
                report.write = None;
            }
            SuiteRow {
                name: name(shape),
                report,
            }
        };
        let report = SuiteReport {
            suite: SuiteKind::Full,
            rows: SuiteKind::Full.shapes(None).into_iter().map(row).collect(),
            interrupted: false,
            failure: None,
            skipped: Vec::new(),
        };
        let text = report.to_string();
        assert!(
            text.lines().all(|line| line.chars().count() <= WIDTH_MAX),
            "{text}"
        );
        let head = text
            .lines()
            .find(|line| line.contains("p99.9"))
            .expect("a table");
        assert!(head.contains("stddev"), "{text}");
    }
}
