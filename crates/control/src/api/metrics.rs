//! Metrics in the text format of Prometheus. Names and labels are definitions' names; no secret is among them.

use std::collections::BTreeMap;
use std::fmt::Write;

use server::{IoStatistics, Latency};

use crate::engine::{Engine, RdmaStatisticsView};
use crate::text::Portal;

/// Buckets of the latency that are told, as log2 of their end in nanoseconds: from 2 us to 1 s.
const BUCKET_BITS: std::ops::RangeInclusive<u32> = 11..=30;

/// Everything.
pub(super) fn render(engine: &Engine) -> String {
    let mut text = String::new();
    render_capacity(engine, &mut text);
    render_volumes(engine, &mut text);
    render_rdma(engine, &mut text);
    let [volumes, targets, sessions] = engine.statistics();
    let mut subjects = Vec::new();
    subjects.extend(labelled("volume", volumes));
    subjects.extend(labelled("target", targets));
    subjects.extend(labelled("session", sessions));
    render_statistics(&subjects, &mut text);
    text
}

/// Someone's counters: the noun, the labels, the counters.
type Subject = (&'static str, String, IoStatistics);

fn labelled(
    noun: &'static str,
    named: Vec<(String, IoStatistics)>,
) -> impl Iterator<Item = Subject> {
    named
        .into_iter()
        .map(move |(name, statistics)| (noun, format!("{noun}=\"{}\"", escaped(&name)), statistics))
}

fn render_capacity(engine: &Engine, text: &mut String) {
    let capacity = engine.capacity();
    let status = engine.status();
    let gauges = [
        (
            "ramport_memory_budget_bytes",
            "What may be used",
            capacity.budget_bytes,
        ),
        (
            "ramport_memory_used_bytes",
            "What is used",
            capacity.used_bytes,
        ),
        (
            "ramport_memory_promised_bytes",
            "What all volumes take when full",
            capacity.promised_bytes,
        ),
        (
            "ramport_uptime_seconds",
            "How long the daemon has been running",
            status.uptime_s,
        ),
        (
            "ramport_volumes",
            "How many there are",
            engine.volumes().len() as u64,
        ),
        (
            "ramport_sessions",
            "How many there are",
            engine.sessions().len() as u64,
        ),
    ];
    for (name, help, value) in gauges {
        head(text, name, "gauge", help);
        line(text, name, "", value);
    }
}

/// A gauge of a volume: name, help, value.
type Gauge = (&'static str, &'static str, fn(&crate::VolumeView) -> u64);
/// A figure of a latency.
type Figure = fn(&Latency) -> Option<std::time::Duration>;

fn render_volumes(engine: &Engine, text: &mut String) {
    let volumes = engine.volumes();
    let gauges: [Gauge; 2] = [
        ("ramport_volume_size_bytes", "Capacity", |volume| {
            volume.size_bytes
        }),
        (
            "ramport_volume_used_bytes",
            "Memory that it holds",
            |volume| volume.used_bytes,
        ),
    ];
    for (name, help, value) in gauges {
        head(text, name, "gauge", help);
        for volume in &volumes {
            let labels = format!("volume=\"{}\"", escaped(&volume.name));
            line(text, name, &labels, value(volume));
        }
    }
}

/// A count of RDMA in software: name, help, value.
type RdmaCount = (&'static str, &'static str, fn(&RdmaStatisticsView) -> u64);
/// Counts of RDMA in software by cause: name, help, values.
type RdmaCauses = (
    &'static str,
    &'static str,
    fn(&RdmaStatisticsView) -> &BTreeMap<String, u64>,
);

const RDMA_COUNTS: [RdmaCount; 7] = [
    (
        "packets_received",
        "Packets that came to the portal's address",
        |of| of.packets_received,
    ),
    ("datagrams_sent", "Datagrams sent", |of| of.datagrams_sent),
    (
        "runs_unsent",
        "Runs of datagrams that the system refused to send",
        |of| of.runs_unsent,
    ),
    (
        "messages_unsent",
        "Messages of communication management not sent since too many waited",
        |of| of.messages_unsent,
    ),
    (
        "runs_handed_over",
        "Runs that came to one thread and that another was handed",
        |of| of.runs_handed_over,
    ),
    ("receive_calls", "System calls that received", |of| {
        of.receive_calls
    }),
    ("send_calls", "System calls that sent", |of| of.send_calls),
];

const RDMA_CAUSES: [RdmaCauses; 2] = [
    (
        "packets_dropped",
        "Packets and messages that came and were dropped",
        |of| &of.packets_dropped,
    ),
    (
        "requests_refused",
        "Requests that were answered with a refusal",
        |of| &of.requests_refused,
    ),
];

/// Portals at one address have the same counts, so that sums are to be made by address.
fn render_rdma(engine: &Engine, text: &mut String) {
    let portals: Vec<_> = (engine.portals().into_iter())
        .filter_map(|portal| {
            let address = portal.url.parse::<Portal>().ok()?.0.address.ip();
            let labels = format!("portal=\"{}\",address=\"{address}\"", escaped(&portal.url));
            Some((labels, portal.statistics?))
        })
        .collect();
    for (what, help, value) in RDMA_COUNTS {
        let name = format!("ramport_portal_rdma_{what}_total");
        head(text, &name, "counter", help);
        for (labels, statistics) in &portals {
            line(text, &name, labels, value(statistics));
        }
    }
    for (what, help, causes) in RDMA_CAUSES {
        let name = format!("ramport_portal_rdma_{what}_total");
        head(text, &name, "counter", help);
        for (labels, statistics) in &portals {
            for (cause, count) in causes(statistics) {
                line(text, &name, &format!("{labels},cause=\"{cause}\""), count);
            }
        }
    }
}

/// Metrics of one name stand together, as the format wants it.
fn render_statistics(subjects: &[Subject], text: &mut String) {
    for noun in ["volume", "target", "session"] {
        let mine = || subjects.iter().filter(move |subject| subject.0 == noun);
        for (what, help) in [
            ("operations", "Commands completed, failed ones among them"),
            ("bytes", "Bytes moved"),
            ("errors", "Commands that failed"),
        ] {
            let name = format!("ramport_{noun}_{what}_total");
            head(text, &name, "counter", help);
            for (_, labels, statistics) in mine() {
                for (kind, counters) in statistics.kinds() {
                    let value = match what {
                        "operations" => counters.operations,
                        "bytes" => counters.bytes,
                        _ => counters.errors,
                    };
                    let labels = format!("{labels},kind=\"{}\"", kind_name(kind));
                    line(text, &name, &labels, value);
                }
            }
        }
        render_latency(noun, mine, text);
    }
}

fn render_latency<'a, I: Iterator<Item = &'a Subject>>(
    noun: &str,
    mine: impl Fn() -> I,
    text: &mut String,
) {
    let measured = || {
        mine().flat_map(|(_, labels, statistics)| {
            let used = statistics.kinds().filter(|(_, kind)| kind.operations > 0);
            used.map(move |(kind, counters)| {
                (
                    format!("{labels},kind=\"{}\"", kind_name(kind)),
                    &counters.latency,
                )
            })
        })
    };
    let name = format!("ramport_{noun}_latency_seconds");
    head(text, &name, "histogram", "Latency in the server");
    for (labels, latency) in measured() {
        render_histogram(&name, &labels, latency, text);
    }
    let figures: [(&str, &str, Figure); 2] = [
        ("mean", "Mean latency since the beginning", Latency::mean),
        (
            "stddev",
            "Standard deviation of the latency since the beginning",
            Latency::standard_deviation,
        ),
    ];
    for (figure, help, value) in figures {
        let name = format!("ramport_{noun}_latency_{figure}_seconds");
        head(text, &name, "gauge", help);
        for (labels, latency) in measured() {
            line(
                text,
                &name,
                &labels,
                value(latency).unwrap_or_default().as_secs_f64(),
            );
        }
    }
}

fn render_histogram(name: &str, labels: &str, latency: &Latency, text: &mut String) {
    let mut below = 0;
    let mut bucket = 0;
    for bits in BUCKET_BITS {
        let end = std::time::Duration::from_nanos(1 << bits);
        while bucket < Latency::BUCKETS - 1 && Latency::bucket_end(bucket) <= end {
            below += latency.buckets()[bucket];
            bucket += 1;
        }
        let labels = format!("{labels},le=\"{}\"", end.as_secs_f64());
        line(text, &format!("{name}_bucket"), &labels, below);
    }
    let count = latency.count();
    line(
        text,
        &format!("{name}_bucket"),
        &format!("{labels},le=\"+Inf\""),
        count,
    );
    line(
        text,
        &format!("{name}_sum"),
        labels,
        latency.sum().as_secs_f64(),
    );
    line(text, &format!("{name}_count"), labels, count);
}

fn head(text: &mut String, name: &str, kind: &str, help: &str) {
    // Writing to a string does not fail.
    let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} {kind}");
}

fn line(text: &mut String, name: &str, labels: &str, value: impl std::fmt::Display) {
    let _ = if labels.is_empty() {
        writeln!(text, "{name} {value}")
    } else {
        writeln!(text, "{name}{{{labels}}} {value}")
    };
}

fn kind_name(kind: block::OpKind) -> &'static str {
    match kind {
        block::OpKind::Read => "read",
        block::OpKind::Write => "write",
        block::OpKind::Discard => "discard",
        block::OpKind::Flush => "flush",
    }
}

/// A label's value: quotes and backslashes are escaped.
fn escaped(value: &str) -> String {
    value
        .replace('\\', "\\\\")
        .replace('"', "\\\"")
        .replace('\n', "\\n")
}
