//! Counters and latencies, as values for requests.

use std::collections::BTreeMap;
use std::time::Duration;

use block::OpKind;
use serde::{Deserialize, Serialize};
use server::{FileStatistics, IoStatistics, KindStatistics};
use utoipa::ToSchema;

/// Counters since the beginning.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct StatisticsView {
    /// Reads, verifies, compares.
    pub read: KindView,
    /// Whatever writes.
    pub write: KindView,
    /// Discards.
    pub discard: KindView,
    /// Flushes.
    pub flush: KindView,
}

/// Counters of one kind of operation.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct KindView {
    /// Commands completed.
    pub operations: u64,
    /// Bytes moved.
    pub bytes: u64,
    /// Commands that failed.
    pub errors: u64,
    /// Mean latency in the server, in microseconds.
    pub latency_mean_us: f64,
    /// Its standard deviation.
    pub latency_stddev_us: f64,
    /// What 99 % kept within.
    pub latency_p99_us: f64,
}

impl From<&IoStatistics> for StatisticsView {
    fn from(statistics: &IoStatistics) -> Self {
        let kind = |kind| KindView::from(statistics.kind(kind));
        Self {
            read: kind(OpKind::Read),
            write: kind(OpKind::Write),
            discard: kind(OpKind::Discard),
            flush: kind(OpKind::Flush),
        }
    }
}

impl From<&KindStatistics> for KindView {
    fn from(kind: &KindStatistics) -> Self {
        let us = |time: Option<Duration>| time.unwrap_or_default().as_secs_f64() * 1e6;
        Self {
            operations: kind.operations,
            bytes: kind.bytes,
            errors: kind.errors,
            latency_mean_us: us(kind.latency.mean()),
            latency_stddev_us: us(kind.latency.standard_deviation()),
            latency_p99_us: us(kind.latency.quantile(0.99)),
        }
    }
}

/// The counters of procedures that were called, by name.
pub(super) fn by_procedure(statistics: &FileStatistics) -> BTreeMap<String, KindView> {
    let called = statistics.kinds().filter(|(_, kind)| kind.operations > 0);
    called
        .map(|(procedure, kind)| (procedure.name().to_owned(), kind.into()))
        .collect()
}
