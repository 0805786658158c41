//! The report of the figures: tables, published figures beside ours, goals.

use super::measure::{DEPTH, Device, Figures, Measure, Measured, median};
use super::ways::{BRP_3, NVME_RDMA, Network, SRP};
use crate::cli::StudySeries;
use crate::verbs::study::{Cell, Section, StudyReport};

/// A latency in microseconds as published for SRP and for BRP (SC Companion 2012,
/// doi 10.1109/SC.Companion.2012.15).
struct Published {
    device: Device,
    rw: &'static str,
    srp_us: f64,
    brp_us: f64,
}

const PUBLISHED: [Published; 4] = [
    Published {
        device: Device::Emulated,
        rw: "randread",
        srp_us: 63.0,
        brp_us: 43.0,
    },
    Published {
        device: Device::Emulated,
        rw: "randwrite",
        srp_us: 75.0,
        brp_us: 54.0,
    },
    Published {
        device: Device::Ram,
        rw: "randread",
        srp_us: 51.0,
        brp_us: 31.0,
    },
    Published {
        device: Device::Ram,
        rw: "randwrite",
        srp_us: 62.0,
        brp_us: 41.0,
    },
];

/// A goal: how much BRP is to differ from another way, without a device.
struct Goal {
    series: StudySeries,
    than: &'static str,
    /// The change in per cent that is reached or passed.
    change: f64,
}

const GOALS: [Goal; 3] = [
    Goal {
        series: StudySeries::Latency,
        than: SRP,
        change: -40.0,
    },
    Goal {
        series: StudySeries::Latency,
        than: NVME_RDMA,
        change: -20.0,
    },
    Goal {
        series: StudySeries::Depth,
        than: SRP,
        change: 100.0,
    },
];

/// Adds the figures to a report, and what they say of the goals.
pub(super) fn fill(mut report: StudyReport, measured: &[Measured]) -> StudyReport {
    report.sections.extend(beside_published(measured));
    for one in measured {
        report.sections.push(medians(one));
        report.sections.push(ranges(one));
        report.sections.extend(cpu_times(one));
    }
    report.remarks.extend(goals(measured));
    report.remarks.push(
        "iSER was not measured: ramport serves it, but has no initiator for it. There is no provider \
         in shared memory, and no one-sided access"
            .to_owned(),
    );
    report
}

/// A table with a row of each shape and a column of each way.
fn table(one: &Measured, title: String, cell: impl Fn(&Figures) -> Cell) -> Section {
    let series = &one.series;
    let names = series.ways.iter().map(|way| way.name.to_owned());
    let rows = series.shapes.iter().zip(&one.figures);
    Section {
        title,
        columns: std::iter::once("workload".to_owned())
            .chain(names)
            .collect(),
        rows: rows
            .map(|(shape, figures)| {
                let name = Cell::Text(shape.name.clone());
                std::iter::once(name)
                    .chain(figures.iter().map(&cell))
                    .collect()
            })
            .collect(),
        drawn: Vec::new(),
        measure: series.measure.unit().to_owned(),
    }
}

fn number(value: Option<f64>, decimals: usize) -> Cell {
    value.map_or(Cell::Missing, |value| Cell::Number(value, decimals))
}

fn decimals(measure: Measure) -> usize {
    match measure {
        Measure::MicrosecondsPerIo => 1,
        Measure::Iops | Measure::MibPerSecond => 0,
    }
}

fn medians(one: &Measured) -> Section {
    let measure = one.series.measure;
    let title = format!("{} ({})", one.series.title(), measure.unit());
    let section = table(one, title, |figures| {
        number(figures.median(), decimals(measure))
    });
    Section {
        drawn: (1..=one.series.ways.len()).collect(),
        ..section
    }
}

fn ranges(one: &Measured) -> Section {
    let measure = one.series.measure;
    let decimals = decimals(measure);
    let title = format!("{} ({}), spread", one.series.title(), measure.unit());
    table(one, title, |figures| match figures.range() {
        Some((low, high)) => Cell::Text(format!("{low:.decimals$}-{high:.decimals$}")),
        None => Cell::Missing,
    })
}

/// Where the time at depth 1 goes: CPU time per I/O of both ends.
fn cpu_times(one: &Measured) -> Vec<Section> {
    if one.series.kind != StudySeries::Latency {
        return Vec::new();
    }
    let title = |of: &str| format!("{}, CPU time per I/O of {of} (us)", one.series.title());
    vec![
        table(one, title("the host"), |figures| {
            number(median(&figures.own_cpu_us), 1)
        }),
        table(one, title("the daemon"), |figures| {
            number(median(&figures.daemon_cpu_us), 1)
        }),
    ]
}

/// The median of a way; `None` if it was not measured.
fn figure(one: &Measured, rw: &str, way: &str) -> Option<f64> {
    let shape = one.series.shapes.iter().position(|shape| shape.rw == rw)?;
    let way = one.series.ways.iter().position(|it| it.name == way)?;
    one.figures[shape][way].median()
}

/// Latency beside the published figures, for each network that carries SRP.
fn beside_published(measured: &[Measured]) -> Vec<Section> {
    let latencies = measured.iter().filter(|one| {
        one.series.kind == StudySeries::Latency && one.series.network != Network::Tcp
    });
    let mut sections: Vec<Section> = Vec::new();
    for one in latencies {
        let title = format!(
            "Published latencies beside ours: {} (us)",
            one.series.network
        );
        if sections.last().is_none_or(|last| last.title != title) {
            sections.push(Section {
                title,
                columns: [
                    "workload",
                    "published SRP",
                    "published BRP",
                    "published change (%)",
                    "our SRP",
                    "our BRP-3",
                    "our change (%)",
                ]
                .map(str::to_owned)
                .to_vec(),
                rows: Vec::new(),
                drawn: vec![1, 2, 4, 5],
                measure: "us".to_owned(),
            });
        }
        let section = sections.last_mut().expect("one was added");
        let of_device = PUBLISHED.iter().filter(|it| it.device == one.series.device);
        section.rows.extend(of_device.map(|published| {
            let ours = [SRP, BRP_3].map(|way| figure(one, published.rw, way));
            let change = match ours {
                [Some(srp), Some(brp)] => Cell::change(srp, brp),
                _ => Cell::Missing,
            };
            vec![
                Cell::Text(format!(
                    "{} 4 KiB, {}",
                    published.rw,
                    published.device.name()
                )),
                Cell::Number(published.srp_us, 0),
                Cell::Number(published.brp_us, 0),
                Cell::change(published.srp_us, published.brp_us),
                number(ours[0], 1),
                number(ours[1], 1),
                change,
            ]
        }));
    }
    sections
}

/// What the figures without a device say of the goals.
fn goals(measured: &[Measured]) -> Vec<String> {
    let mut remarks = Vec::new();
    for one in measured
        .iter()
        .filter(|one| one.series.device == Device::Ram)
    {
        for goal in GOALS.iter().filter(|goal| goal.series == one.series.kind) {
            remarks.extend(one.series.shapes.iter().filter_map(|shape| {
                let than = figure(one, shape.rw, goal.than)?;
                let change = (figure(one, shape.rw, BRP_3)? / than - 1.0) * 100.0;
                Some(goal.verdict(one, shape.rw, change))
            }));
        }
    }
    remarks
}

impl Goal {
    fn verdict(&self, one: &Measured, rw: &str, change: f64) -> String {
        let is_reached = if self.change < 0.0 {
            change <= self.change
        } else {
            change >= self.change
        };
        let (what, at) = match self.series {
            StudySeries::Depth => ("IOPS", DEPTH),
            _ => ("latency", 1),
        };
        let verdict = if is_reached { "reached" } else { "missed" };
        format!(
            "goal {verdict}: {what} of {BRP_3} against {} at depth {at}, {:+.0} %; \
             {rw} over {}: {change:+.1} %",
            self.than, self.change, one.series.network
        )
    }
}

#[cfg(test)]
mod tests;
