//! The figures of a fleet: of each client and of all together, in the terms of diskspd.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use bench::{BarChart, Direction, Part, PartFigures};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::cli::Point;
use crate::failure::Failure;
use crate::mistake::Mistake;
use crate::output;

/// The columns of tables.
const TITLES: [&str; 13] = [
    "NODE", "CLIENT", "I/O", "BYTES", "I/Os", "MiB/s", "IOPS", "IOPS SD", "MEAN us", "SD us",
    "P50 us", "P99 us", "P99.9 us",
];
/// Stands for all nodes, or all clients of a node, in tables.
const ALL: &str = "total";

/// What the clients counted at the same time.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Measured {
    pub(crate) point: Point,
    pub(crate) nodes: Vec<NodeCounts>,
}

/// What the clients of a node counted.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct NodeCounts {
    pub(crate) node: String,
    /// The URL of the portal that they used.
    pub(crate) portal: String,
    /// The clients, by the names of their volumes.
    pub(crate) clients: Vec<(String, Part)>,
}

/// The figures of a sweep.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
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

impl NodeCounts {
    /// All clients together.
    fn total(&self) -> Part {
        sum(self.clients.iter().map(|(_, part)| part))
    }

    /// Each client.
    fn sides(&self) -> impl Iterator<Item = Sides> {
        let clients = self.clients.iter();
        clients.map(|(name, part)| Sides::of(name, part))
    }
}

impl Measured {
    /// All clients of all nodes together.
    pub(crate) fn total(&self) -> Part {
        sum(self.clients())
    }

    /// Whether I/Os failed, or a client ended early.
    pub(crate) fn has_failed(&self) -> bool {
        self.clients()
            .any(|part| part.errors > 0 || part.problem.is_some())
    }

    fn clients(&self) -> impl Iterator<Item = &Part> {
        let clients = self.nodes.iter().flat_map(|node| &node.clients);
        clients.map(|(_, part)| part)
    }

    /// All figures, with their nodes: of each client, of each node if there are several, and of all
    /// together.
    fn sides(&self) -> Vec<(&str, Sides)> {
        let mut sides = Vec::new();
        for node in &self.nodes {
            sides.extend(node.sides().map(|client| (node.node.as_str(), client)));
            if self.nodes.len() > 1 {
                sides.push((&node.node, Sides::of(ALL, &node.total())));
            }
        }
        sides.push((ALL, Sides::of(ALL, &self.total())));
        sides
    }
}

fn sum<'a>(parts: impl Iterator<Item = &'a Part>) -> Part {
    parts.fold(Part::default(), |mut sum, part| {
        sum.add(part);
        sum
    })
}

impl FleetReport {
    /// What several nodes counted at the same time, from the files with their counts.
    pub(super) fn merged(paths: &[PathBuf]) -> Result<Self, Failure> {
        let mut merged: Option<Self> = None;
        for path in paths {
            let next = Self::read_counts(path)?;
            let Some(merged) = &mut merged else {
                merged = Some(next);
                continue;
            };
            let points = |of: &Self| of.measured.iter().map(|it| it.point).collect::<Vec<_>>();
            if points(merged) != points(&next) {
                let (path, first) = (path.clone(), paths[0].clone());
                return Err(Mistake::OtherSweep { path, first }.into());
            }
            for (all, more) in merged.measured.iter_mut().zip(next.measured) {
                for node in more.nodes {
                    if all.nodes.iter().any(|known| known.node == node.node) {
                        let (path, node) = (path.clone(), node.node);
                        return Err(Mistake::NodeTwice { path, node }.into());
                    }
                    all.nodes.push(node);
                }
            }
        }
        Ok(merged.unwrap_or_default())
    }

    fn read_counts(path: &Path) -> Result<Self, Failure> {
        let path = path.to_owned();
        let text = match fs::read_to_string(&path) {
            Ok(text) => text,
            Err(source) => return Err(Mistake::ReadFile { path, source }.into()),
        };
        serde_json::from_str(&text).map_err(|source| Mistake::NoCounts { path, source }.into())
    }

    /// Writes the counts for [`merged`](Self::merged).
    pub(super) fn write_counts(&self, path: &Path) -> Result<(), Failure> {
        let text = serde_json::to_string(self).map_err(anyhow::Error::from)?;
        write(path, text)
    }

    /// Whether I/Os failed, or clients ended early.
    pub(super) fn has_failed(&self) -> bool {
        self.measured.iter().any(Measured::has_failed)
    }

    pub(super) fn document(&self) -> Value {
        let measured = self.measured.iter().map(|measured| {
            let nodes = measured.nodes.iter().map(|node| {
                json!({
                    "node": node.node,
                    "portal": node.portal,
                    "clients": node.sides().collect::<Vec<_>>(),
                    "total": Sides::of(ALL, &node.total()),
                })
            });
            json!({
                "point": measured.point,
                "nodes": nodes.collect::<Vec<_>>(),
                "total": Sides::of(ALL, &measured.total()),
            })
        });
        json!({ "measured": measured.collect::<Vec<_>>() })
    }

    /// Tables for people: a row per client and node, and the total with its reads and writes.
    pub(super) fn text(&self) -> String {
        let mut text = String::new();
        for measured in &self.measured {
            let total = Sides::of(ALL, &measured.total());
            let sides = measured.sides();
            let parts = sides.iter().filter(|(node, _)| *node != ALL);
            let mut rows: Vec<_> = parts
                .map(|(node, sides)| cells(node, &sides.name, "all", &sides.all))
                .collect();
            let totals = total.rows();
            rows.extend(totals.map(|(io, figures)| cells(ALL, ALL, io, figures)));
            let lines = output::layout(&TITLES, &TITLES[3..], rows, None);
            let portals: Vec<_> = measured.nodes.iter().map(|node| &*node.portal).collect();
            // Writing to a string does not fail.
            let _ = writeln!(
                text,
                "{} by {}\n{}",
                measured.point,
                portals.join(", "),
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
            write(path, self.csv())?;
        }
        match svg {
            Some(path) => BarChart::draw_all(&self.charts(), path).map_err(Failure::mistake),
            None => Ok(()),
        }
    }

    /// A line per client or total and kind of I/O. No field has a comma.
    fn csv(&self) -> String {
        let mut text = String::from(
            "node,bs,w,threads,iodepth,runtime_s,client,io,bytes,ios,mib_per_s,iops,iops_stddev,\
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
            for (node, sides) in measured.sides() {
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
                        node,
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

/// Writes a file.
fn write(path: &Path, text: String) -> Result<(), Failure> {
    let path = path.to_owned();
    fs::write(&path, text).map_err(|source| Mistake::WriteFile { path, source }.into())
}

fn cells(node: &str, name: &str, io: &str, figures: &PartFigures) -> Vec<String> {
    let us = figures.latency_us;
    let latencies = [us.mean, us.stddev, us.p50, us.p99, us.p99_9];
    let mut cells = vec![
        node.to_owned(),
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
