//! Metrics in the OpenMetrics text format, for Prometheus. Names and labels are definitions' names;
//! no secret is among them.

mod caches;
mod shares;

use std::collections::BTreeMap;
use std::fmt;
use std::ops::RangeInclusive;
use std::time::Duration;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, MetricEncoder, NoLabelSet, text};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::exemplar::Exemplar;
use prometheus_client::registry::Registry;
use server::{FileProcedure, Kind, Latency, Statistics};

use crate::engine::{
    CapacityView, Contents, Engine, MemberState, MemberView, PathView, RdmaStatisticsView,
    VolumeState, VolumeView,
};
use crate::text::Portal;

/// The media type of what [`render`] returns.
pub(super) const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Buckets of the latency that are exposed, as log2 of their end in nanoseconds: from 2 us to 1 s.
const BUCKET_BITS: RangeInclusive<u32> = 11..=30;

/// Every metric of `engine` as it is now.
pub(super) fn render(engine: &Engine) -> String {
    let mut registry = Registry::default();
    registry.register_collector(Box::new(EngineCollector(engine.clone())));
    let mut text = String::new();
    text::encode(&mut text, &registry).expect("writing to a string does not fail");
    text
}

/// Reads the engine's figures at each scrape.
struct EngineCollector(Engine);

impl fmt::Debug for EngineCollector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("EngineCollector")
    }
}

impl Collector for EngineCollector {
    fn encode(&self, mut encoder: DescriptorEncoder) -> fmt::Result {
        let engine = &self.0;
        encode_capacity(engine, &mut encoder)?;
        encode_volumes(engine, &mut encoder)?;
        encode_rdma(engine, &mut encoder)?;
        shares::encode(&engine.shares(), &mut encoder)?;
        let [volumes, targets, sessions] = engine.statistics();
        for (subject, subjects) in [
            ("volume", volumes),
            ("target", targets),
            ("session", sessions),
        ] {
            let subject = Noun {
                subject,
                by: "kind",
                name: kind_name,
            };
            encode_statistics(&subject, &subjects, &mut encoder)?;
        }
        let shares = engine.share_statistics();
        if shares.is_empty() {
            return Ok(());
        }
        let (subject, by, name) = ("share", "procedure", FileProcedure::name);
        encode_statistics(&Noun { subject, by, name }, &shares, &mut encoder)
    }
}

/// Labels of a metric: keys and values.
type Labels = Vec<(&'static str, String)>;
/// Volumes, targets, sessions or shares: the value of their label, and their counters.
type Subjects<K, const N: usize> = [(String, Statistics<K, N>)];

/// What things are called whose operations are counted.
struct Noun<K> {
    /// In names of metrics, and the label that names the thing.
    subject: &'static str,
    /// The label that names the kind of operation.
    by: &'static str,
    /// The value of that label.
    name: fn(K) -> &'static str,
}

impl<K> Noun<K> {
    fn labels(&self, subject: &str, kind: K) -> Labels {
        let kind = (self.name)(kind).to_owned();
        vec![(self.subject, subject.to_owned()), (self.by, kind)]
    }
}

fn kind_name(kind: block::OpKind) -> &'static str {
    match kind {
        block::OpKind::Read => "read",
        block::OpKind::Write => "write",
        block::OpKind::Discard => "discard",
        block::OpKind::Flush => "flush",
    }
}

fn encode_capacity(engine: &Engine, encoder: &mut DescriptorEncoder) -> fmt::Result {
    let capacity = engine.capacity();
    let gauges = [
        (
            "ramport_memory_budget_bytes",
            "Memory budget",
            capacity.budget_bytes,
        ),
        (
            "ramport_memory_used_bytes",
            "Memory used of the budget",
            capacity.used_bytes,
        ),
        (
            "ramport_memory_promised_bytes",
            "Memory that all volumes use when they are full",
            capacity.promised_bytes,
        ),
        (
            "ramport_memory_oversized_volumes",
            "Number of volumes that are larger than the memory budget",
            capacity.oversized_volumes as u64,
        ),
        (
            "ramport_uptime_seconds",
            "Time since the daemon started",
            engine.status().uptime_s,
        ),
        (
            "ramport_volumes",
            "Number of volumes",
            engine.volumes().len() as u64,
        ),
        (
            "ramport_sessions",
            "Number of sessions",
            engine.sessions().len() as u64,
        ),
    ];
    for (name, help, value) in gauges {
        encoder
            .encode_descriptor(name, help, None, MetricType::Gauge)?
            .encode_gauge(&value)?;
    }
    encode_shortages(&capacity, encoder)
}

/// What the memory budget rejected.
fn encode_shortages(capacity: &CapacityView, encoder: &mut DescriptorEncoder) -> fmt::Result {
    let counters = [
        (
            "ramport_memory_failed_writes",
            "Writes that failed because the memory budget was used up",
            capacity.failed_writes,
        ),
        (
            "ramport_memory_rejected_connections",
            "Connections rejected because the memory budget was used up",
            capacity.rejected_connections,
        ),
    ];
    for (name, help, value) in counters {
        let exemplar: Option<&Exemplar<NoLabelSet, f64>> = None;
        encoder
            .encode_descriptor(name, help, None, MetricType::Counter)?
            .encode_counter(&value, exemplar)?;
    }
    Ok(())
}

/// A gauge of a volume: name, help, value.
type Gauge = (&'static str, &'static str, fn(&crate::VolumeView) -> u64);

const VOLUME_GAUGES: [Gauge; 7] = [
    (
        "ramport_volume_size_bytes",
        "Capacity of the volume",
        |volume| volume.size_bytes,
    ),
    (
        "ramport_volume_used_bytes",
        "Memory that the volume holds, or space that its file takes",
        |volume| volume.used_bytes,
    ),
    (
        "ramport_volume_children",
        "Number of snapshots or clones that are made of the volume",
        |volume| volume.children.len() as u64,
    ),
    (
        "ramport_volume_created_timestamp_seconds",
        "When the volume was created or, for a snapshot, taken, since 1970",
        |volume| volume.created_unix_s,
    ),
    (
        "ramport_volume_contents_lost",
        "1 if a restart lost the contents and nothing was written since, else 0",
        |volume| u64::from(volume.contents == Contents::Lost),
    ),
    (
        "ramport_volume_damaged_bytes",
        "Bytes that cannot be read, because the save that the volume was restored from is damaged",
        |volume| {
            volume
                .damage
                .as_ref()
                .map_or(0, |damage| damage.damaged_bytes)
        },
    ),
    (
        "ramport_volume_offline",
        "1 if commands of hosts fail: the loss of the contents is not acknowledged, or the file could not be opened; else 0",
        |volume| u64::from(volume.state == VolumeState::Offline),
    ),
];

/// A gauge of the saves of a volume: name, help, value. Where there is no value yet, it is left
/// out.
type SaveGauge = (
    &'static str,
    &'static str,
    fn(&crate::SaveView) -> Option<f64>,
);

#[expect(
    clippy::cast_precision_loss,
    reason = "OpenMetrics has floating-point numbers"
)]
const SAVE_GAUGES: [SaveGauge; 4] = [
    (
        "ramport_volume_save_timestamp_seconds",
        "The moment that the last successful save of the volume shows, since 1970",
        |save| Some(save.last.as_ref()?.moment_unix_s as f64),
    ),
    (
        "ramport_volume_save_duration_seconds",
        "How long the last successful save of the volume took",
        |save| Some(save.last.as_ref()?.duration_ms? as f64 / 1000.0),
    ),
    (
        "ramport_volume_save_file_bytes",
        "Length of the file of the last successful save of the volume",
        |save| Some(save.last.as_ref()?.file_bytes as f64),
    ),
    (
        "ramport_volume_save_failed",
        "1 if the last attempt to save or restore the volume failed, else 0",
        |save| Some(f64::from(u8::from(save.failure.is_some()))),
    ),
];

fn encode_saves(volumes: &[crate::VolumeView], encoder: &mut DescriptorEncoder) -> fmt::Result {
    for (name, help, value) in SAVE_GAUGES {
        let mut metric = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
        for volume in volumes {
            let Some(value) = volume.save.as_ref().and_then(value) else {
                continue;
            };
            let labels = [("volume", volume.name.as_str())];
            metric.encode_family(&labels)?.encode_gauge(&value)?;
        }
    }
    Ok(())
}

fn encode_volumes(engine: &Engine, encoder: &mut DescriptorEncoder) -> fmt::Result {
    let volumes = engine.volumes();
    encode_saves(&volumes, encoder)?;
    for (name, help, value) in VOLUME_GAUGES {
        let mut metric = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
        for volume in &volumes {
            let labels = [("volume", volume.name.as_str())];
            metric
                .encode_family(&labels)?
                .encode_gauge(&value(volume))?;
        }
    }
    caches::encode(&volumes, encoder)?;
    encode_paths(&volumes, encoder)?;
    encode_mirrors(&volumes, encoder)
}

/// A gauge of a member of a mirror: name, help, value.
type MemberGauge = (&'static str, &'static str, fn(&MemberView) -> u64);

const MEMBER_GAUGES: [MemberGauge; 2] = [
    (
        "ramport_volume_member_in_sync",
        "Whether a member of a mirror has everything: 1 or 0",
        |member| u64::from(member.state == MemberState::InSync),
    ),
    (
        "ramport_volume_member_missing_bytes",
        "Bytes of the regions that are to be copied to a member of a mirror",
        |member| member.missing_bytes,
    ),
];

fn encode_mirrors(volumes: &[VolumeView], encoder: &mut DescriptorEncoder) -> fmt::Result {
    let mirrors = || {
        let volumes = volumes.iter();
        volumes.filter_map(|volume| Some((&volume.name, volume.mirror.as_ref()?)))
    };
    if mirrors().next().is_none() {
        return Ok(());
    }
    for (name, help, value) in MEMBER_GAUGES {
        let mut metric = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
        for (volume, mirror) in mirrors() {
            for member in &mirror.members {
                let labels: Labels = vec![
                    ("volume", volume.clone()),
                    ("member", member.volume.clone()),
                ];
                metric
                    .encode_family(&labels)?
                    .encode_gauge(&value(member))?;
            }
        }
    }
    let (name, help) = (
        "ramport_volume_resynced_bytes",
        "Bytes that were copied to members of a mirror that had missed them",
    );
    let mut metric = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
    for (volume, mirror) in mirrors() {
        let labels: Labels = vec![("volume", volume.clone())];
        encode_count(&mut metric, &labels, mirror.resynced_bytes)?;
    }
    Ok(())
}

/// A count of a path: name, help, value.
type PathCount = (&'static str, &'static str, fn(&PathView) -> u64);

const PATH_COUNTS: [PathCount; 3] = [
    (
        "ramport_volume_path_connects",
        "How often a path to a remote disk was connected",
        |path| path.connects,
    ),
    (
        "ramport_volume_path_losses",
        "How often the connection of a path to a remote disk was lost or given up",
        |path| path.losses,
    ),
    (
        "ramport_volume_path_errors",
        "Commands that a remote disk failed, including those that were tried again",
        |path| path.errors,
    ),
];

fn encode_paths(volumes: &[VolumeView], encoder: &mut DescriptorEncoder) -> fmt::Result {
    let paths = || {
        let volumes = volumes.iter();
        volumes.flat_map(|volume| volume.paths.iter().map(move |path| (&volume.name, path)))
    };
    if paths().next().is_none() {
        return Ok(());
    }
    let labels = |name: &String, path: &PathView| -> Labels {
        vec![("volume", name.clone()), ("url", path.url.clone())]
    };
    let (name, help) = (
        "ramport_volume_path_up",
        "Whether a path to a remote disk is connected: 1 or 0",
    );
    let mut metric = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
    for (name, path) in paths() {
        metric
            .encode_family(&labels(name, path))?
            .encode_gauge(&u64::from(path.is_up))?;
    }
    for (name, help, value) in PATH_COUNTS {
        let mut metric = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
        for (name, path) in paths() {
            encode_count(&mut metric, &labels(name, path), value(path))?;
        }
    }
    Ok(())
}

/// A count of RDMA in software: name, help, value.
type RdmaCount = (&'static str, &'static str, fn(&RdmaStatisticsView) -> u64);
/// Counts of RDMA in software by cause: name, help, values.
type RdmaCauses = (&'static str, &'static str, CausesOf);
/// Where counts by cause stand.
type CausesOf = fn(&RdmaStatisticsView) -> &BTreeMap<String, u64>;

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

/// Portals at one address have the same counts, so sums are to be made by address.
fn encode_rdma(engine: &Engine, encoder: &mut DescriptorEncoder) -> fmt::Result {
    let portals: Vec<(Labels, RdmaStatisticsView)> = (engine.portals().into_iter())
        .filter_map(|portal| {
            let address = portal.url.parse::<Portal>().ok()?.0.address.ip();
            let labels = vec![("portal", portal.url), ("address", address.to_string())];
            Some((labels, portal.statistics?))
        })
        .collect();
    for (what, help, value) in RDMA_COUNTS {
        let name = format!("ramport_portal_rdma_{what}");
        let mut metric = encoder.encode_descriptor(&name, help, None, MetricType::Counter)?;
        for (labels, statistics) in &portals {
            encode_count(&mut metric, labels, value(statistics))?;
        }
    }
    for (what, help, causes) in RDMA_CAUSES {
        let name = format!("ramport_portal_rdma_{what}");
        let mut metric = encoder.encode_descriptor(&name, help, None, MetricType::Counter)?;
        for (labels, statistics) in &portals {
            for (cause, count) in causes(statistics) {
                let mut labels = labels.clone();
                labels.push(("cause", cause.clone()));
                encode_count(&mut metric, &labels, *count)?;
            }
        }
    }
    Ok(())
}

/// A count of I/O: name, help, value.
type Count = (
    &'static str,
    &'static str,
    fn(&server::KindStatistics) -> u64,
);

const COUNTS: [Count; 3] = [
    (
        "operations",
        "Commands completed, including failed ones",
        |of| of.operations,
    ),
    ("bytes", "Bytes transferred", |of| of.bytes),
    ("errors", "Commands that failed", |of| of.errors),
];

fn encode_statistics<K: Kind<N>, const N: usize>(
    noun: &Noun<K>,
    subjects: &Subjects<K, N>,
    encoder: &mut DescriptorEncoder,
) -> fmt::Result {
    encode_operations(noun, subjects, encoder)?;
    encode_latency(noun, subjects, encoder)
}

fn encode_operations<K: Kind<N>, const N: usize>(
    noun: &Noun<K>,
    subjects: &Subjects<K, N>,
    encoder: &mut DescriptorEncoder,
) -> fmt::Result {
    for (what, help, value) in COUNTS {
        let name = format!("ramport_{}_{what}", noun.subject);
        let mut metric = encoder.encode_descriptor(&name, help, None, MetricType::Counter)?;
        for (subject, statistics) in subjects {
            for (kind, counters) in statistics.kinds() {
                let labels = noun.labels(subject, kind);
                encode_count(&mut metric, &labels, value(counters))?;
            }
        }
    }
    Ok(())
}

/// A figure of a latency.
type Figure = fn(&Latency) -> Option<Duration>;

/// Only kinds of operations that were used have a latency.
fn encode_latency<K: Kind<N>, const N: usize>(
    noun: &Noun<K>,
    subjects: &Subjects<K, N>,
    encoder: &mut DescriptorEncoder,
) -> fmt::Result {
    let measured: Vec<(Labels, &Latency)> = (subjects.iter())
        .flat_map(|(subject, statistics)| {
            let used = statistics.kinds().filter(|(_, kind)| kind.operations > 0);
            used.map(|(kind, counters)| (noun.labels(subject, kind), &counters.latency))
        })
        .collect();
    let name = format!("ramport_{}_latency_seconds", noun.subject);
    let help = "Latency in the server";
    let mut metric = encoder.encode_descriptor(&name, help, None, MetricType::Histogram)?;
    for (labels, latency) in &measured {
        let sum_s = latency.sum().as_secs_f64();
        metric
            .encode_family(labels)?
            .encode_histogram::<NoLabelSet>(sum_s, latency.count(), &buckets(latency), None)?;
    }
    let figures: [(&str, &str, Figure); 2] = [
        ("mean", "Mean latency since the start", Latency::mean),
        (
            "stddev",
            "Standard deviation of the latency since the start",
            Latency::standard_deviation,
        ),
    ];
    for (figure, help, value) in figures {
        let name = format!("ramport_{}_latency_{figure}_seconds", noun.subject);
        let mut metric = encoder.encode_descriptor(&name, help, None, MetricType::Gauge)?;
        for (labels, latency) in &measured {
            let value_s = value(latency).unwrap_or_default().as_secs_f64();
            metric.encode_family(labels)?.encode_gauge(&value_s)?;
        }
    }
    Ok(())
}

/// Ends of buckets in seconds, and how many latencies are in each.
fn buckets(latency: &Latency) -> Vec<(f64, u64)> {
    let mut next = 0;
    let mut buckets: Vec<(f64, u64)> = BUCKET_BITS
        .map(|bits| {
            let end = Duration::from_nanos(1 << bits);
            let mut count = 0;
            while next < Latency::BUCKETS - 1 && Latency::bucket_end(next) <= end {
                count += latency.buckets()[next];
                next += 1;
            }
            (end.as_secs_f64(), count)
        })
        .collect();
    let below: u64 = buckets.iter().map(|(_, count)| count).sum();
    buckets.push((f64::INFINITY, latency.count().saturating_sub(below)));
    buckets
}

fn encode_count(metric: &mut MetricEncoder, labels: &Labels, count: u64) -> fmt::Result {
    let exemplar: Option<&Exemplar<NoLabelSet, f64>> = None;
    metric
        .encode_family(labels)?
        .encode_counter(&count, exemplar)
}
