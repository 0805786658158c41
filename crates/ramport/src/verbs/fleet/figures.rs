//! The figures of a fleet: of each client and of all together, in the terms of diskspd.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use bench::{BarChart, Direction, Part, PartFigures};
use serde::Serialize;
use serde_json::{Value, json};

use crate::cli::Point;
use crate::failure::Failure;
use crate::mistake::Mistake;
use crate::output;

/// The columns of tables.
const TITLES: [&str; 12] = [
    "CLIENT", "I/O", "BYTES", "I/Os", "MiB/s", "IOPS", "IOPS SD", "MEAN us", "SD us", "P50 us",
    "P99 us", "P99.9 us",
];

/// What the clients counted at the same time.
#[derive(Clone, Debug)]
pub(crate) struct Measured {
    pub(crate) point: Point,
    /// The URL of the portal that they used.
    pub(crate) portal: String,
    /// The clients, by the names of their volumes.
    pub(crate) clients: Vec<(String, Part)>,
}

/// The figures of a sweep.
#[derive(Clone, Debug, Default)]
pub(super) struct FleetReport {
    pub(super) measured: Vec<Measured>,
}

/// The figures of a client or of all of them.
#[derive(Serialize)]
struct Sides {
    name: String,
    read: Option<PartFigures>,
    write: Option<PartFigures>,
    all: PartFigures,
    errors: u64,
    problem: Option<String>,
}

impl Sides {
    fn of(name: &str, part: &Part) -> Self {
        Self {
            name: name.to_owned(),
            read: part.direction(Direction::Read),
            write: part.direction(Direction::Write),
            all: part.all(),
            errors: part.errors,
            problem: part.problem.clone(),
        }
    }

    /// The figures that there are, with the names of their I/O.
    fn rows(&self) -> impl Iterator<Item = (&'static str, &PartFigures)> {
        let sides = [("read", self.read.as_ref()), ("write", self.write.as_ref())];
        let sides = sides.into_iter().chain([("all", Some(&self.all))]);
        sides.filter_map(|(name, figures)| Some((name, figures?)))
    }
}

impl Measured {
    /// All clients together.
    pub(crate) fn total(&self) -> Part {
        let mut total = Part::default();
        for (_, part) in &self.clients {
            total.add(part);
        }
        total
    }

    /// Whether I/Os failed, or a client ended early.
    pub(crate) fn has_failed(&self) -> bool {
        let mut clients = self.clients.iter();
        clients.any(|(_, part)| part.errors > 0 || part.problem.is_some())
    }

    /// Each client.
    fn sides(&self) -> Vec<Sides> {
        let clients = self.clients.iter();
        clients.map(|(name, part)| Sides::of(name, part)).collect()
    }
}

impl FleetReport {
    /// Whether I/Os failed, or clients ended early.
    pub(super) fn has_failed(&self) -> bool {
        self.measured.iter().any(Measured::has_failed)
    }

    pub(super) fn document(&self) -> Value {
        let measured = self.measured.iter().map(|measured| {
            json!({
                "point": measured.point,
                "portal": measured.portal,
                "clients": measured.sides(),
                "total": Sides::of("total", &measured.total()),
            })
        });
        json!({ "measured": measured.collect::<Vec<_>>() })
    }

    /// Tables for people: a row per client, and the total with its reads and writes.
    pub(super) fn text(&self) -> String {
        let mut text = String::new();
        for measured in &self.measured {
            let total = Sides::of("total", &measured.total());
            let mut rows: Vec<_> = measured
                .sides()
                .iter()
                .map(|client| cells(&client.name, "all", &client.all))
                .collect();
            rows.extend(
                total
                    .rows()
                    .map(|(io, figures)| cells("total", io, figures)),
            );
            let lines = output::layout(&TITLES, &TITLES[2..], rows, None);
            // Writing to a string does not fail.
            let _ = writeln!(
                text,
                "{} by {}\n{}",
                measured.point,
                measured.portal,
                lines.join("\n")
            );
            if let Some(problem) = &total.problem {
                let _ = writeln!(text, "{} I/Os failed: {problem}", total.errors);
            }
            text.push('\n');
        }
        text
    }

    /// Writes all figures as comma-separated values, and a picture.
    pub(super) fn write_files(
        &self,
        csv: Option<&Path>,
        svg: Option<&Path>,
    ) -> Result<(), Failure> {
        if let Some(path) = csv {
            let path = path.to_owned();
            fs::write(&path, self.csv()).map_err(|source| Mistake::WriteFile { path, source })?;
        }
        match svg {
            Some(path) => BarChart::draw_all(&self.charts(), path).map_err(Failure::mistake),
            None => Ok(()),
        }
    }

    /// A line per client or total and kind of I/O. No field has a comma.
    fn csv(&self) -> String {
        let mut text = String::from(
            "portal,bs,w,threads,iodepth,runtime_s,client,io,bytes,ios,mib_per_s,iops,iops_stddev,\
             mean_us,stddev_us,p50_us,p90_us,p99_us,p99_9_us,max_us\n",
        );
        for measured in &self.measured {
            let Point {
                bs,
                w,
                threads,
                iodepth,
                runtime,
            } = measured.point;
            let total = Sides::of("total", &measured.total());
            for sides in measured.sides().iter().chain([&total]) {
                for (io, figures) in sides.rows() {
                    let PartFigures {
                        bytes,
                        ios,
                        mib_per_s,
                        iops,
                        iops_stddev,
                        latency_us,
                    } = figures;
                    let us = latency_us;
                    let _ = writeln!(
                        text,
                        "{},{bs},{w},{threads},{iodepth},{},{},{io},{bytes},{ios},{mib_per_s:.3},{iops:.3},\
                         {iops_stddev:.3},{:.3},{:.3},{:.3},{:.3},{:.3},{:.3},{:.3}",
                        measured.portal,
                        runtime.as_secs_f64(),
                        sides.name,
                        us.mean,
                        us.stddev,
                        us.p50,
                        us.p90,
                        us.p99,
                        us.p99_9,
                        us.max,
                    );
                }
            }
        }
        text
    }

    /// IOPS and latencies of each combination.
    fn charts(&self) -> Vec<BarChart> {
        let chart =
            |title: &str, measure: &str, series: &[&str], of: fn(&PartFigures) -> Vec<f64>| {
                let groups = self.measured.iter().map(|measured| {
                    let Point {
                        bs,
                        w,
                        threads,
                        iodepth,
                        ..
                    } = measured.point;
                    let figures = of(&measured.total().all());
                    let name = format!("bs={bs} w={w} t={threads} d={iodepth}");
                    (name, figures.into_iter().map(Some).collect())
                });
                BarChart {
                    title: title.to_owned(),
                    measure: measure.to_owned(),
                    series: series.iter().map(ToString::to_string).collect(),
                    groups: groups.collect(),
                }
            };
        vec![
            chart("IOPS of the fleet", "IOPS", &["IOPS", "deviation"], |it| {
                vec![it.iops, it.iops_stddev]
            }),
            chart("Latency", "us", &["mean", "deviation", "p99"], |it| {
                vec![it.latency_us.mean, it.latency_us.stddev, it.latency_us.p99]
            }),
        ]
    }
}

fn cells(name: &str, io: &str, figures: &PartFigures) -> Vec<String> {
    let us = figures.latency_us;
    let latencies = [us.mean, us.stddev, us.p50, us.p99, us.p99_9];
    let mut cells = vec![
        name.to_owned(),
        io.to_owned(),
        figures.bytes.to_string(),
        figures.ios.to_string(),
        format!("{:.1}", figures.mib_per_s),
        format!("{:.0}", figures.iops),
        format!("{:.0}", figures.iops_stddev),
    ];
    cells.extend(latencies.map(|us| format!("{us:.1}")));
    cells
}
