//! What the daemon does now: the figures of an interval, as the difference of two readings of its
//! counters.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use block::OpKind;
use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};
use server::{
    FileProcedure, FileStatistics, IoStatistics, KindStatistics, PortalInfo, SessionInfo,
    SessionProtocol, ThreadInfo, VolumeInfo,
};
use utoipa::ToSchema;

use super::{CacheFigures, CapacityView, Engine};
use crate::natural::sort_by_text;
use crate::text::{Period, PeriodFault, Portal, Written};

/// What the daemon did in an interval.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct TopView {
    /// When the interval ended, in milliseconds since 1970.
    pub time_unix_ms: u64,
    /// The measured length of the interval in milliseconds.
    pub interval_ms: f64,
    /// CPU time of the whole process: 100 is one core.
    pub cpu_percent: f64,
    /// Memory at the end of the interval.
    pub memory: CapacityView,
    /// What all threads did together, including those that have ended.
    pub total: Figures,
    /// Each volume, by name.
    pub volumes: Vec<VolumeFigures>,
    /// Each session, oldest first.
    pub sessions: Vec<SessionFigures>,
    /// Each open portal, by URL.
    pub portals: Vec<PortalFigures>,
    /// Each thread that drives connections: reactors first.
    pub threads: Vec<ThreadFigures>,
}

/// Figures of an interval. Commands count when they complete.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Figures {
    /// Commands of all kinds per second, including failed ones; of a session of NFS, calls of all
    /// procedures.
    pub iops: f64,
    /// Reads per second.
    pub read_iops: f64,
    /// Writes per second.
    pub write_iops: f64,
    /// Bytes read per second.
    pub read_bytes_per_s: f64,
    /// Bytes written per second.
    pub write_bytes_per_s: f64,
    /// Mean latency in the server in microseconds; absent without commands.
    pub latency_mean_us: Option<f64>,
    /// An upper bound of the latency of 99 % of the commands, at most a quarter above it, in
    /// microseconds; absent without commands.
    pub latency_p99_us: Option<f64>,
    /// The mean number of commands that were in the server: commands per second times mean latency
    /// (Little's law).
    pub queue_depth: f64,
    /// Commands that failed in the interval.
    pub errors: u64,
    /// Commands that failed since counting began.
    pub errors_total: u64,
}

/// What hosts did to a volume.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct VolumeFigures {
    /// Its name.
    pub name: String,
    /// Capacity.
    pub size_bytes: u64,
    /// Memory that it holds.
    pub used_bytes: u64,
    /// What it did as a cache, if it is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache: Option<CacheFigures>,
    /// Its figures.
    #[serde(flatten)]
    pub figures: Figures,
}

/// What a session did.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct SessionFigures {
    /// Its number.
    pub id: u64,
    /// The target; none for the discovery service and for NFS.
    pub target: Option<String>,
    /// The shares that a session of NFS has used.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub shares: Vec<String>,
    /// The name that the host gave; for NFS, its address.
    pub host: String,
    /// The address of the host.
    pub peer: String,
    /// The transport: `nvme+tcp`, `nvme+rdma`, `iscsi`, `iser`, `nfs`, `nfs+udp`, `nfs+rdma`,
    /// `brp`, `brp+rdma` or `srp`.
    pub transport: String,
    /// How many connections (queues) it has.
    pub connections: usize,
    /// Its figures.
    #[serde(flatten)]
    pub figures: Figures,
}

/// What hosts did through a portal.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct PortalFigures {
    /// Its URL.
    pub url: String,
    /// How many open connections it has.
    pub connections: usize,
    /// Its figures.
    #[serde(flatten)]
    pub figures: Figures,
}

/// What a thread did.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ThreadFigures {
    /// Its name; that of an RDMA thread ends with its address.
    pub name: String,
    /// How many open connections it drives.
    pub connections: usize,
    /// Its CPU time: 100 is one core. Threads under load poll, so this is no measure of the load.
    pub cpu_percent: f64,
    /// Its figures.
    #[serde(flatten)]
    pub figures: Figures,
}

/// The length of an interval, in bounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TopInterval(Duration);

/// Why a text is no interval.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TopIntervalFault {
    /// It is no duration.
    #[error(transparent)]
    Period(#[from] PeriodFault),
    /// It is too short or too long.
    #[error(
        "is out of range; choose a duration from {} to {}",
        Period(TopInterval::MIN),
        Period(TopInterval::MAX)
    )]
    Range,
}

impl TopInterval {
    /// The shortest: reading all counters takes milliseconds if there are many.
    const MIN: Duration = Duration::from_millis(100);
    /// The longest.
    const MAX: Duration = Duration::from_secs(60);

    /// Its length.
    pub const fn length(self) -> Duration {
        self.0
    }
}

impl Default for TopInterval {
    /// One second.
    fn default() -> Self {
        Self(Duration::from_secs(1))
    }
}

impl FromStr for TopInterval {
    type Err = TopIntervalFault;

    fn from_str(text: &str) -> Result<Self, TopIntervalFault> {
        let Period(length) = text.parse()?;
        if (Self::MIN..=Self::MAX).contains(&length) {
            Ok(Self(length))
        } else {
            Err(TopIntervalFault::Range)
        }
    }
}

impl fmt::Display for TopInterval {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Period(self.0).fmt(f)
    }
}

impl Written for TopInterval {
    const NOUN: &'static str = "interval";
}

/// All counters at one moment.
pub(crate) struct Reading {
    at: Instant,
    time: SystemTime,
    process_cpu: Duration,
    memory: CapacityView,
    volumes: Vec<VolumeInfo>,
    sessions: Vec<SessionInfo>,
    portals: Vec<PortalInfo>,
    threads: Vec<ThreadInfo>,
    /// What all threads did, including those that have ended.
    total: IoStatistics,
}

impl Engine {
    /// All counters as they are now.
    pub(crate) fn read_counters(&self) -> Reading {
        let server = self.server();
        let cpu = clock_gettime(ClockId::ProcessCPUTime);
        Reading {
            at: Instant::now(),
            time: SystemTime::now(),
            process_cpu: Duration::try_from(cpu).unwrap_or_default(),
            memory: self.capacity(),
            volumes: server.volumes(),
            sessions: server.sessions(),
            portals: server.portals(),
            threads: server.threads(),
            total: server.statistics(),
        }
    }
}

impl Reading {
    /// When the counters were read.
    pub(crate) fn at(&self) -> Instant {
        self.at
    }
}

impl TopView {
    /// The figures of the interval between two readings.
    pub(crate) fn between(before: &Reading, now: &Reading) -> Self {
        let length = now.at.saturating_duration_since(before.at);
        let done = now.total.since(&before.total);
        Self {
            time_unix_ms: unix_ms(now.time),
            interval_ms: length.as_secs_f64() * 1e3,
            cpu_percent: percent(now.process_cpu, before.process_cpu, length),
            memory: now.memory,
            total: Figures::of(&done, &now.total, length),
            volumes: volumes_between(before, now, length),
            sessions: sessions_between(before, now, length),
            portals: portals_between(before, now, length),
            threads: threads_between(before, now, length),
        }
    }
}

impl Figures {
    /// The figures of commands `done` in an interval of `length`, of counters that stand at `now`.
    fn of(done: &IoStatistics, now: &IoStatistics, length: Duration) -> Self {
        let kinds = (done.kind(OpKind::Read), done.kind(OpKind::Write));
        Self::of_kinds(kinds, &done.total(), now.total().errors, length)
    }

    /// The same of calls of NFS.
    fn of_calls(done: &FileStatistics, now: &FileStatistics, length: Duration) -> Self {
        let (reads, writes) = (FileProcedure::Read, FileProcedure::Write);
        let kinds = (done.kind(reads), done.kind(writes));
        Self::of_kinds(kinds, &done.total(), now.total().errors, length)
    }

    #[expect(clippy::cast_precision_loss, reason = "52 bits are enough for rates")]
    fn of_kinds(
        (reads, writes): (&KindStatistics, &KindStatistics),
        total: &KindStatistics,
        errors_total: u64,
        length: Duration,
    ) -> Self {
        let length_s = length.as_secs_f64().max(f64::MIN_POSITIVE);
        let rate = |count: u64| count as f64 / length_s;
        let us = |latency: Duration| latency.as_secs_f64() * 1e6;
        Self {
            iops: rate(total.operations),
            read_iops: rate(reads.operations),
            write_iops: rate(writes.operations),
            read_bytes_per_s: rate(reads.bytes),
            write_bytes_per_s: rate(writes.bytes),
            latency_mean_us: total.latency.mean().map(us),
            latency_p99_us: total.latency.quantile(0.99).map(us),
            queue_depth: total.latency.sum().as_secs_f64() / length_s,
            errors: total.errors,
            errors_total,
        }
    }
}

/// What was counted since `before`. An object that was not there then began at zero.
fn done_since(now: &IoStatistics, before: Option<&IoStatistics>) -> IoStatistics {
    before.map_or_else(|| now.clone(), |before| now.since(before))
}

fn volumes_between(before: &Reading, now: &Reading, length: Duration) -> Vec<VolumeFigures> {
    let earlier = before.volumes.iter();
    let earlier: BTreeMap<_, _> = earlier.map(|one| (&one.name, one)).collect();
    let volumes = now.volumes.iter().map(|volume| {
        let before = earlier.get(&volume.name);
        let done = done_since(&volume.statistics, before.map(|before| &before.statistics));
        let cache_before = before.and_then(|before| before.cache).unwrap_or_default();
        VolumeFigures {
            name: volume.name.to_string(),
            size_bytes: volume.spec.size.0,
            used_bytes: volume.used_bytes,
            cache: (volume.cache.as_ref())
                .map(|cache| CacheFigures::between(&cache_before, cache, length)),
            figures: Figures::of(&done, &volume.statistics, length),
        }
    });
    let mut volumes: Vec<_> = volumes.collect();
    sort_by_text(&mut volumes, |volume| &volume.name);
    volumes
}

fn sessions_between(before: &Reading, now: &Reading, length: Duration) -> Vec<SessionFigures> {
    let earlier = before.sessions.iter();
    let earlier: BTreeMap<_, _> = earlier.map(|one| (one.id, one)).collect();
    let sessions = now.sessions.iter().map(|session| {
        let before = earlier.get(&session.id).copied();
        SessionFigures {
            id: session.id.0,
            target: session.target.as_ref().map(ToString::to_string),
            shares: shares(session),
            host: session.host.to_string(),
            peer: session.peer.to_string(),
            transport: session.protocol.transport().scheme().to_owned(),
            connections: session.connections,
            figures: session_figures(before, session, length),
        }
    });
    sessions.collect()
}

/// The figures of a session. Those of NFS are of all calls, most of which touch no data.
fn session_figures(before: Option<&SessionInfo>, now: &SessionInfo, length: Duration) -> Figures {
    if let Some(now) = calls(now) {
        let before = before.and_then(calls);
        let done = before.map_or_else(|| now.clone(), |before| now.since(before));
        return Figures::of_calls(&done, now, length);
    }
    let before = before.map(|before| &before.statistics);
    let done = done_since(&now.statistics, before);
    Figures::of(&done, &now.statistics, length)
}

/// The calls of a session of NFS.
fn calls(session: &SessionInfo) -> Option<&FileStatistics> {
    match &session.protocol {
        SessionProtocol::Nfs { operations, .. } => Some(operations),
        _ => None,
    }
}

fn portals_between(before: &Reading, now: &Reading, length: Duration) -> Vec<PortalFigures> {
    let earlier = before.portals.iter();
    let earlier: BTreeMap<_, _> = earlier
        .map(|one| (one.definition, &one.statistics))
        .collect();
    let portals = now.portals.iter().map(|portal| {
        let done = done_since(&portal.statistics, earlier.get(&portal.definition).copied());
        PortalFigures {
            url: Portal(portal.definition).to_string(),
            connections: portal.connections,
            figures: Figures::of(&done, &portal.statistics, length),
        }
    });
    let mut portals: Vec<_> = portals.collect();
    sort_by_text(&mut portals, |portal| &portal.url);
    portals
}

fn threads_between(before: &Reading, now: &Reading, length: Duration) -> Vec<ThreadFigures> {
    let earlier = before.threads.iter();
    let earlier: BTreeMap<_, _> = earlier.map(|one| (&one.name, one)).collect();
    let threads = now.threads.iter().map(|thread| {
        let before = earlier.get(&thread.name);
        let done = done_since(&thread.statistics, before.map(|before| &before.statistics));
        let cpu_before = before.map_or(Duration::ZERO, |before| before.cpu_time);
        ThreadFigures {
            name: thread.name.clone(),
            connections: thread.connections,
            cpu_percent: percent(thread.cpu_time, cpu_before, length),
            figures: Figures::of(&done, &thread.statistics, length),
        }
    });
    threads.collect()
}

/// CPU time of an interval in percent of one core. A thread whose CPU time went back is another
/// thread of the same name.
fn percent(now: Duration, before: Duration, length: Duration) -> f64 {
    let used = now.checked_sub(before).unwrap_or(now);
    used.as_secs_f64() / length.as_secs_f64().max(f64::MIN_POSITIVE) * 100.0
}

fn shares(session: &SessionInfo) -> Vec<String> {
    match &session.protocol {
        SessionProtocol::Nfs { shares, .. } => shares.iter().map(ToString::to_string).collect(),
        _ => Vec::new(),
    }
}

fn unix_ms(time: SystemTime) -> u64 {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
