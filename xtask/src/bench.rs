//! `cargo xtask bench`: ramport, the bare TCP exchange and, if the variable SPDK_DIR names a build,
//! SPDK's target. Shapes alternate, so that a drift of the machine affects all alike. Targets run
//! on core 0, clients on core 1. Targets that are not being measured are stopped (SIGSTOP), since
//! SPDK's target never sleeps.

mod contenders;
mod secured;

use std::env;
use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};

use contenders::{Figures, Ramport, Spdk, bare};

/// One measurement.
#[derive(Clone, Copy)]
pub struct Shape {
    /// fio's `rw`.
    rw: &'static str,
    bs: u32,
    depth: u32,
}

const fn shape(rw: &'static str, bs: u32, depth: u32) -> Shape {
    Shape { rw, bs, depth }
}

const SHAPES: [Shape; 14] = [
    shape("randread", 512, 128),
    shape("randwrite", 512, 128),
    shape("randread", 4096, 1),
    shape("randwrite", 4096, 1),
    shape("randread", 4096, 32),
    shape("randwrite", 4096, 32),
    shape("randrw", 4096, 32),
    shape("randread", 4096, 128),
    shape("randwrite", 4096, 128),
    shape("read", 131_072, 1),
    shape("read", 131_072, 8),
    shape("write", 131_072, 8),
    shape("randread", 65_536, 8),
    shape("randwrite", 65_536, 8),
];

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {}", self.rw, self.bs, self.depth)
    }
}

/// Reads among mixed I/O in per cent.
const READ_PERCENT: &str = "70";
/// The size of each side's volume in MiB.
const VOLUME_MIB: u64 = 512;
/// Memory that the processor's caches hold: the bare exchange at its fastest.
const CACHED_BYTES: u64 = 1 << 20;

/// How to measure.
pub struct Options {
    runs: usize,
    seconds: String,
    json: Option<String>,
    /// Only shapes whose name contains this.
    only: String,
    /// TLS beside plain, instead of everything plain.
    tls: bool,
}

impl Options {
    /// `--runs N`, `--seconds S`, `--json FILE`, `--only TEXT`, `--tls on|off`.
    pub fn parse(mut args: impl Iterator<Item = String>) -> Result<Self, String> {
        let mut options = Self {
            runs: 3,
            seconds: "1".to_owned(),
            json: None,
            only: String::new(),
            tls: false,
        };
        while let Some(arg) = args.next() {
            let value = args.next().ok_or_else(|| format!("{arg} needs a value"))?;
            match arg.as_str() {
                "--runs" => {
                    options.runs =
                        value.parse().ok().filter(|&runs| runs > 0).ok_or_else(|| {
                            format!("--runs {value} is invalid; give a number of at least 1")
                        })?;
                }
                "--seconds" => options.seconds = value,
                "--json" => options.json = Some(value),
                "--only" => options.only = value,
                "--tls" => {
                    options.tls = match value.as_str() {
                        "on" => true,
                        "off" => false,
                        _ => return Err(format!("--tls {value} is invalid; it is on or off")),
                    };
                }
                _ => {
                    return Err(format!(
                        "unknown option {arg}; use --runs, --seconds, --json, --only or --tls"
                    ));
                }
            }
        }
        Ok(options)
    }
}

/// What was measured of one shape, run by run.
#[derive(Default)]
struct Row {
    bare: Vec<Figures>,
    bare_volume: Vec<Figures>,
    ramport: Vec<Figures>,
    ramport_perf: Vec<Figures>,
    spdk: Vec<Figures>,
    spdk_perf: Vec<Figures>,
}

/// Builds, measures, prints the table.
pub fn run(root: &Path, options: &Options) -> io::Result<()> {
    build(root)?;
    if options.tls {
        return secured::run(root, options);
    }
    let ramport = Ramport::start(root, VOLUME_MIB)?;
    let spdk = start_spdk()?;
    let idle = ramport.idle_cores()?;
    ramport.fill()?;
    if let Some(spdk) = &spdk {
        spdk.while_running(|| ramport.fill_other(Spdk::URL))?;
    }
    let mut rows: Vec<(Shape, Row)> = SHAPES
        .into_iter()
        .filter(|shape| shape.to_string().contains(&options.only))
        .map(|shape| (shape, Row::default()))
        .collect();
    for run in 1..=options.runs {
        for (shape, row) in &mut rows {
            eprintln!("run {run}: {shape}");
            row.bare
                .extend(bare(root, *shape, &options.seconds, CACHED_BYTES)?);
            row.bare_volume
                .extend(bare(root, *shape, &options.seconds, VOLUME_MIB << 20)?);
            row.ramport
                .push(ramport.measure(Ramport::URL, *shape, &options.seconds)?);
            let Some(spdk) = &spdk else { continue };
            row.ramport_perf.push(spdk.perf(Ramport::PERF, *shape)?);
            spdk.while_running(|| {
                row.spdk
                    .push(ramport.measure(Spdk::URL, *shape, &options.seconds)?);
                row.spdk_perf.push(spdk.perf(Spdk::PERF, *shape)?);
                Ok(())
            })?;
        }
    }
    print(&rows, idle);
    if let Some(path) = &options.json {
        fs::write(path, to_json(&rows, idle).to_string())?;
    }
    Ok(())
}

/// SPDK's target, stopped, if there is a build.
fn start_spdk() -> io::Result<Option<Spdk>> {
    let folder = env::var_os("SPDK_DIR").map(PathBuf::from);
    let spdk = folder
        .map(|folder| Spdk::start(&folder, VOLUME_MIB))
        .transpose()?;
    if spdk.is_none() {
        println!("SPDK_DIR is not set: SPDK's target is left out");
    }
    Ok(spdk)
}

fn build(root: &Path) -> io::Result<()> {
    for package in [
        &["-p", "ramport"][..],
        &["-p", "net", "--example", "bare"][..],
    ] {
        let status = Command::new("cargo")
            .current_dir(root)
            .args(["build", "--quiet", "--release"])
            .args(package)
            .status()?;
        if !status.success() {
            return Err(io::Error::other(format!("building {package:?} failed")));
        }
    }
    Ok(())
}

/// The median of one figure.
fn median(runs: &[Figures], figure: impl Fn(&Figures) -> f64) -> Option<f64> {
    let mut values: Vec<f64> = runs.iter().map(figure).collect();
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied()
}

fn iops(runs: &[Figures]) -> Option<f64> {
    median(runs, |figures| figures.iops)
}

fn print(rows: &[(Shape, Row)], idle: f64) {
    println!("medians; IOPS by client and target (ours: ramport bench, perf: spdk_nvme_perf)");
    println!(
        "{:<20}{:>10}{:>10}{:>10}{:>10}{:>10}{:>10}{:>7}{:>7}{:>7}{:>8}{:>8}{:>8}{:>9}{:>8}{:>9}",
        "shape",
        "bare",
        "bare/vol",
        "ours",
        "ours/perf",
        "SPDK",
        "SPDK/perf",
        "%bare",
        "%vol",
        "xSPDK",
        "us/IO",
        "SPDK us",
        "p99 us",
        "SPDK p99",
        "sd us",
        "SPDK sd"
    );
    for (shape, row) in rows {
        let ours = best(iops(&row.ramport), iops(&row.ramport_perf));
        let spdk = best(iops(&row.spdk), iops(&row.spdk_perf));
        println!(
            "{:<20}{}{}{}{}{}{}{}{}{}{}{}{}{}{}{}",
            shape.to_string(),
            cell(iops(&row.bare), 10, 0),
            cell(iops(&row.bare_volume), 10, 0),
            cell(iops(&row.ramport), 10, 0),
            cell(iops(&row.ramport_perf), 10, 0),
            cell(iops(&row.spdk), 10, 0),
            cell(iops(&row.spdk_perf), 10, 0),
            cell(over(iops(&row.ramport), iops(&row.bare), 100.0), 7, 0),
            cell(
                over(iops(&row.ramport), iops(&row.bare_volume), 100.0),
                7,
                0
            ),
            cell(over(ours, spdk, 1.0), 7, 2),
            cell(median(&row.ramport, |figures| figures.target_us), 8, 2),
            cell(median(&row.spdk, |figures| figures.target_us), 8, 2),
            cell(median(&row.ramport, |figures| figures.p99_us), 8, 1),
            cell(median(&row.spdk, |figures| figures.p99_us), 9, 1),
            cell(median(&row.ramport, |figures| figures.stddev_us), 8, 1),
            cell(median(&row.spdk, |figures| figures.stddev_us), 9, 1),
        );
    }
    println!("ramport without I/O: {:.3} % of a core", idle * 100.0);
}

fn best(a: Option<f64>, b: Option<f64>) -> Option<f64> {
    a.into_iter().chain(b).reduce(f64::max)
}

fn over(a: Option<f64>, b: Option<f64>, scale: f64) -> Option<f64> {
    Some(a? / b? * scale)
}

fn cell(figure: Option<f64>, width: usize, digits: usize) -> String {
    match figure {
        Some(figure) => format!("{figure:>width$.digits$}"),
        None => format!("{:>width$}", "-"),
    }
}

/// Every run.
fn all(runs: &[Figures]) -> Vec<Value> {
    runs.iter().map(|run| run.to_json()).collect()
}

fn to_json(rows: &[(Shape, Row)], idle: f64) -> Value {
    let shapes: Vec<Value> = rows
        .iter()
        .map(|(shape, row)| {
            json!({
                "rw": shape.rw, "bs": shape.bs, "iodepth": shape.depth,
                "bare": all(&row.bare),
                "bare_volume": all(&row.bare_volume),
                "ramport": all(&row.ramport),
                "ramport_perf": all(&row.ramport_perf),
                "spdk": all(&row.spdk),
                "spdk_perf": all(&row.spdk_perf),
            })
        })
        .collect();
    json!({ "idle_cores": idle, "shapes": shapes })
}
