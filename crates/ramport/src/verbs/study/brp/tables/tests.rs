use super::super::measure::all_series;
use super::*;
use crate::cli::{StudyBrpArgs, StudyVerb};
use crate::verbs::study::Machine;

#[derive(clap::Parser)]
struct Cli {
    #[command(subcommand)]
    verb: StudyVerb,
}

fn args(line: &str) -> StudyBrpArgs {
    let words = std::iter::once("study").chain(line.split(' '));
    match <Cli as clap::Parser>::try_parse_from(words) {
        Ok(Cli {
            verb: StudyVerb::Brp(args),
        }) => args,
        _ => panic!("{line} is not valid"),
    }
}

/// A series whose figures were made up: those of way `n` are `by_way[n]`, one more and one less.
fn measured(kind: StudySeries, device: Device, by_way: &[f64]) -> Measured {
    let all = all_series(&args("brp"), Network::Software, device);
    let series = all.into_iter().find(|series| series.kind == kind);
    let series = series.expect("it is included");
    let figures = by_way.iter().map(|&value| Figures {
        values: vec![value + 1.0, value - 1.0, value],
        own_cpu_us: vec![value / 2.0],
        daemon_cpu_us: Vec::new(),
    });
    let of_shape: Vec<_> = figures.collect();
    assert_eq!(of_shape.len(), series.ways.len());
    Measured {
        figures: vec![of_shape; series.shapes.len()],
        series,
    }
}

fn report(measured: &[Measured]) -> StudyReport {
    let empty = StudyReport {
        name: "brp",
        title: "title".to_owned(),
        machine: Machine {
            cpu: "A Processor".to_owned(),
            cores: 2,
            kernel: "6.12.1".to_owned(),
            adapters: Vec::new(),
            portals: Vec::new(),
        },
        method: Vec::new(),
        sections: Vec::new(),
        remarks: Vec::new(),
    };
    fill(empty, measured)
}

#[test]
fn published_figures_stand_beside_ours() {
    // SRP, BRP-1, BRP-2, BRP-3, NVMe/RDMA.
    let ram = measured(
        StudySeries::Latency,
        Device::Ram,
        &[100.0, 70.0, 65.0, 60.0, 70.0],
    );
    let emulated = measured(
        StudySeries::Latency,
        Device::Emulated,
        &[120.0, 90.0, 85.0, 90.0, 100.0],
    );
    let report = report(&[ram, emulated]);
    insta::assert_snapshot!(report.sections[0], @r"
    ## Published latencies beside ours: software RDMA (us)

    | workload                         | published SRP | published BRP | published change (%) | our SRP | our BRP-3 | our change (%) |
    |----------------------------------|--------------:|--------------:|---------------------:|--------:|----------:|---------------:|
    | randread 4 KiB, RAM              |            51 |            31 |               -39.22 |   100.0 |      60.0 |         -40.00 |
    | randwrite 4 KiB, RAM             |            62 |            41 |               -33.87 |   100.0 |      60.0 |         -40.00 |
    | randread 4 KiB, emulated device  |            63 |            43 |               -31.75 |   120.0 |      90.0 |         -25.00 |
    | randwrite 4 KiB, emulated device |            75 |            54 |               -28.00 |   120.0 |      90.0 |         -25.00 |
    ");
    insta::assert_snapshot!(report.remarks.join("\n"), @r"
    goal reached: latency of BRP-3 against SRP at depth 1, -40 %; randread over software RDMA: -40.0 %
    goal reached: latency of BRP-3 against SRP at depth 1, -40 %; randwrite over software RDMA: -40.0 %
    goal missed: latency of BRP-3 against NVMe/RDMA at depth 1, -20 %; randread over software RDMA: -14.3 %
    goal missed: latency of BRP-3 against NVMe/RDMA at depth 1, -20 %; randwrite over software RDMA: -14.3 %
    iSER was not measured: ramport serves it, but has no initiator for it. There is no provider in shared memory, and no one-sided access
    ");
    let titles: Vec<_> = report.sections.iter().map(|it| it.title.as_str()).collect();
    insta::assert_snapshot!(titles.join("\n"), @r"
    Published latencies beside ours: software RDMA (us)
    Latency at depth 1: software RDMA, RAM (us)
    Latency at depth 1: software RDMA, RAM (us), spread
    Latency at depth 1: software RDMA, RAM, CPU time per I/O of the host (us)
    Latency at depth 1: software RDMA, RAM, CPU time per I/O of the daemon (us)
    Latency at depth 1: software RDMA, emulated device (us)
    Latency at depth 1: software RDMA, emulated device (us), spread
    Latency at depth 1: software RDMA, emulated device, CPU time per I/O of the host (us)
    Latency at depth 1: software RDMA, emulated device, CPU time per I/O of the daemon (us)
    ");
}

#[test]
fn medians_and_spreads_are_tables_of_their_own() {
    let depth = measured(
        StudySeries::Depth,
        Device::Ram,
        &[1000.0, 1500.0, 1800.0, 2000.0, 1900.0],
    );
    let report = report(&[depth]);
    insta::assert_snapshot!(report, @r"
    # title

    - CPU: A Processor
    - Cores: 2
    - Kernel: 6.12.1
    - RDMA adapters: none with an active port
    - Portals: none

    ## IOPS at depth 32: software RDMA, RAM (IOPS)

    | workload                  |  SRP | BRP-1 | BRP-2 | BRP-3 | NVMe/RDMA |
    |---------------------------|-----:|------:|------:|------:|----------:|
    | randread 4 KiB, depth 32  | 1000 |  1500 |  1800 |  2000 |      1900 |
    | randwrite 4 KiB, depth 32 | 1000 |  1500 |  1800 |  2000 |      1900 |

    ## IOPS at depth 32: software RDMA, RAM (IOPS), spread

    | workload                  |      SRP |     BRP-1 |     BRP-2 |     BRP-3 | NVMe/RDMA |
    |---------------------------|---------:|----------:|----------:|----------:|----------:|
    | randread 4 KiB, depth 32  | 999-1001 | 1499-1501 | 1799-1801 | 1999-2001 | 1899-1901 |
    | randwrite 4 KiB, depth 32 | 999-1001 | 1499-1501 | 1799-1801 | 1999-2001 | 1899-1901 |

    ## Remarks

    - goal reached: IOPS of BRP-3 against SRP at depth 32, +100 %; randread over software RDMA: +100.0 %
    - goal reached: IOPS of BRP-3 against SRP at depth 32, +100 %; randwrite over software RDMA: +100.0 %
    - iSER was not measured: ramport serves it, but has no initiator for it. There is no provider in shared memory, and no one-sided access
    ");
}

#[test]
fn a_way_that_was_not_measured_has_no_cell_and_no_verdict() {
    let mut latency = measured(
        StudySeries::Latency,
        Device::Ram,
        &[100.0, 70.0, 65.0, 60.0, 80.0],
    );
    for figures in &mut latency.figures {
        figures[0] = Figures::default();
    }
    let report = report(&[latency]);
    let srp = |row: &Vec<Cell>| row[1].clone();
    let medians = &report.sections[1];
    assert!(
        medians
            .rows
            .iter()
            .map(srp)
            .all(|cell| cell == Cell::Missing)
    );
    let about_srp = report
        .remarks
        .iter()
        .filter(|it| it.contains("against SRP"));
    assert_eq!(about_srp.count(), 0);
    let about_nvme = report.remarks.iter().filter(|it| it.contains("NVMe/RDMA"));
    assert_eq!(about_nvme.count(), 2);
}
