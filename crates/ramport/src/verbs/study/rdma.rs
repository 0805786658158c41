//! `ramport study rdma`: a fleet without RDMA and with it, beside published figures.

use std::process::ExitCode;
use std::time::Duration;

use bench::{PartFigures, Stop};

use super::{Cell, Machine, Section, StudyReport};
use crate::cli::{Point, StudyRdmaArgs, Switch};
use crate::failure::Failure;
use crate::verbs::fleet::{Fleet, Load, Route, measure, progress_bar, route};
use crate::verbs::{Daemon, INTERRUPTED_STATUS, stop_on_interrupt};

/// The shares of writes in per cent.
const WRITES: [u8; 3] = [0, 10, 30];
/// The ways that are compared.
const WAYS: [Switch; 2] = [Switch::Off, Switch::On];
/// How long the load continues after measuring.
const COOL_DOWN: Duration = Duration::from_secs(1);

/// A figure that is compared: its name with the unit, how to find it, its decimals, whether that of
/// one client or of the whole fleet counts, and the published changes in per cent for each share of
/// writes.
struct Compared {
    title: &'static str,
    unit: &'static str,
    of: fn(&PartFigures) -> f64,
    decimals: usize,
    size: FleetSize,
    published: [f64; WRITES.len()],
}

/// How many clients are at work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FleetSize {
    One,
    All,
}

const COMPARED: [Compared; 4] = [
    Compared {
        title: "IOPS of one client",
        unit: "IOPS",
        of: |figures| figures.iops,
        decimals: 0,
        size: FleetSize::One,
        published: [23.88, 32.16, 63.57],
    },
    Compared {
        title: "Mean latency of one client",
        unit: "us",
        of: |figures| figures.latency_us.mean,
        decimals: 1,
        size: FleetSize::One,
        published: [-19.29, -24.15, -38.81],
    },
    Compared {
        title: "Standard deviation of latency of one client",
        unit: "us",
        of: |figures| figures.latency_us.stddev,
        decimals: 1,
        size: FleetSize::One,
        published: [-85.52, -88.83, -92.14],
    },
    Compared {
        title: "IOPS of the fleet",
        unit: "IOPS",
        of: |figures| figures.iops,
        decimals: 0,
        size: FleetSize::All,
        published: [156.0, 174.0, 133.0],
    },
];

/// One measurement of the study.
struct Sample {
    size: FleetSize,
    writes: u8,
    way: Switch,
    figures: PartFigures,
}

pub(super) fn run(daemon: &Daemon, args: &StudyRdmaArgs) -> Result<ExitCode, Failure> {
    let fleet = Fleet::some(daemon)?;
    let routes = WAYS.map(|way| route(daemon, way));
    let [off, on] = routes;
    let routes = [off?, on?];
    let stop = Stop::default();
    stop_on_interrupt(&stop);
    let Some((samples, failed)) = sample(args, &fleet, &routes, &stop)? else {
        return Ok(ExitCode::from(INTERRUPTED_STATUS));
    };
    let portals = routes.map(|route| route.portal);
    let report = report(
        args,
        fleet.members.len(),
        Machine::this(&portals)?,
        &samples,
        failed,
    );
    report.publish(daemon.form, args.output.as_deref())?;
    Ok(ExitCode::from(u8::from(failed > 0)))
}

/// Measures each combination, the ways in turn; nothing if `stop` was requested. Returns the number
/// of measurements in which I/Os failed, too.
fn sample(
    args: &StudyRdmaArgs,
    fleet: &Fleet,
    routes: &[Route; WAYS.len()],
    stop: &Stop,
) -> Result<Option<(Vec<Sample>, usize)>, Failure> {
    let sizes = [FleetSize::One, FleetSize::All];
    let runs = sizes.len() * WRITES.len() * WAYS.len() * usize::from(args.repeats);
    let all = fleet.members.as_slice();
    let bar = progress_bar(runs);
    let (mut samples, mut failed) = (Vec::with_capacity(runs), 0);
    for _ in 0..args.repeats {
        for (size, members) in sizes.into_iter().zip([&all[..1], all]) {
            for writes in WRITES {
                for (way, route) in WAYS.into_iter().zip(routes) {
                    let point = point(writes, args.runtime);
                    bar.set_message(format!("{} clients by {}", members.len(), route.portal.url));
                    let load = Load {
                        point,
                        warm_up: args.warm_up,
                        cool_down: COOL_DOWN,
                        begin: None,
                        route,
                        members,
                        node: &fleet.node,
                    };
                    let Some(measured) = measure(&load, stop)? else {
                        bar.finish_and_clear();
                        return Ok(None);
                    };
                    failed += usize::from(measured.has_failed());
                    samples.push(Sample {
                        size,
                        writes,
                        way,
                        figures: measured.total().all(),
                    });
                    bar.inc(1);
                }
            }
        }
    }
    bar.finish_and_clear();
    Ok(Some((samples, failed)))
}

/// The workload of the published study.
fn point(writes: u8, runtime: Duration) -> Point {
    Point {
        bs: 4096,
        w: writes,
        threads: 1,
        iodepth: 4,
        runtime,
    }
}

fn report(
    args: &StudyRdmaArgs,
    clients: usize,
    machine: Machine,
    samples: &[Sample],
    failed: usize,
) -> StudyReport {
    let Point {
        bs,
        threads,
        iodepth,
        ..
    } = point(0, args.runtime);
    let mut remarks = vec![
        "The published figures are of three machines with mirrored volumes and adapters. Changes on other hardware differ; with RDMA in software, one processor does the work of the adapter too.".to_owned(),
    ];
    if failed > 0 {
        remarks.push(format!(
            "In {failed} measurements I/Os failed or clients ended early."
        ));
    }
    StudyReport {
        name: "rdma",
        title: "A fleet without RDMA and with it".to_owned(),
        machine,
        method: vec![
            format!(
                "{clients} clients, each a process with a volume of its own, on the machine that serves the volumes."
            ),
            format!(
                "Random I/O of {bs} bytes, {threads} thread per client, {iodepth} I/Os in flight per thread."
            ),
            format!(
                "Each combination was measured {} times for {:?} after a warm-up of {:?}, without RDMA and with it in turn; medians are shown.",
                args.repeats, args.runtime, args.warm_up
            ),
        ],
        sections: COMPARED
            .iter()
            .map(|compared| section(compared, samples))
            .collect(),
        remarks,
    }
}

fn section(compared: &Compared, samples: &[Sample]) -> Section {
    let Compared {
        title,
        unit,
        decimals,
        ..
    } = compared;
    let rows = WRITES.iter().zip(compared.published);
    let rows = rows.map(|(&writes, published)| {
        let [off, on] = WAYS.map(|way| compared.median(samples, writes, way));
        vec![
            Cell::Text(format!("{}/{writes}", 100 - writes)),
            Cell::Number(off, *decimals),
            Cell::Number(on, *decimals),
            Cell::change(off, on),
            Cell::Change(published),
        ]
    });
    Section {
        title: (*title).to_owned(),
        columns: vec![
            "reads/writes (%)".to_owned(),
            format!("off ({unit})"),
            format!("on ({unit})"),
            "change (%)".to_owned(),
            "published (%)".to_owned(),
        ],
        rows: rows.collect(),
        drawn: vec![3, 4],
        measure: "change in %".to_owned(),
    }
}

impl Compared {
    /// The median of the measurements of one combination; NaN without any.
    fn median(&self, samples: &[Sample], writes: u8, way: Switch) -> f64 {
        let samples = samples
            .iter()
            .filter(|sample| (sample.size, sample.writes, sample.way) == (self.size, writes, way));
        let mut figures: Vec<_> = samples.map(|sample| (self.of)(&sample.figures)).collect();
        figures.sort_by(f64::total_cmp);
        let middle = figures.len() / 2;
        match (figures.len(), figures.len() % 2) {
            (0, _) => f64::NAN,
            (_, 1) => figures[middle],
            _ => f64::midpoint(figures[middle - 1], figures[middle]),
        }
    }
}
