//! What nodes have done since they started, from which `ramport watch` computes figures.

use std::collections::BTreeMap;
use std::time::UNIX_EPOCH;

use block::OpKind;
use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};
use server::{IoStatistics, VolumeInfo};
use utoipa::ToSchema;
use volume::CopyRole;

use super::Engine;
use crate::cluster::NodeState;

/// The nodes of the cluster, or this machine alone if it belongs to none.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct WatchView {
    /// The cluster's name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster: Option<String>,
    /// The nodes, by name.
    pub nodes: Vec<WatchedNode>,
    /// Why the list of nodes may be out of date.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}

/// A node, and what it has done.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct WatchedNode {
    /// Its name.
    pub name: String,
    /// Whether it answered.
    pub state: NodeState,
    /// Why it did not answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
    /// What it has done; absent if it did not answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub counters: Option<NodeCounters>,
}

/// What a node has done since it started. Figures of an interval are differences of two readings.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct NodeCounters {
    /// When the daemon started, in microseconds since 1970. Counters of another start are not
    /// comparable.
    pub started_unix_us: u64,
    /// When the counters were read: the machine's monotonic clock in microseconds.
    pub read_at_us: u64,
    /// Commands of hosts of all kinds, including failed ones.
    pub operations: u64,
    /// Reads.
    pub reads: u64,
    /// Writes.
    pub writes: u64,
    /// Bytes read.
    pub read_bytes: u64,
    /// Bytes written.
    pub write_bytes: u64,
    /// The latencies of all commands together, in nanoseconds.
    pub latency_sum_ns: u64,
    /// Commands that failed.
    pub errors: u64,
    /// Copies of replicated volumes that this node holds.
    pub copies: usize,
    /// Those of them that have every acknowledged write.
    pub copies_in_sync: usize,
    /// What this node copies to nodes whose copies miss writes, by node.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rebuilds: Vec<RebuildProgress>,
}

/// Copies that one node brings up to date on another one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RebuildProgress {
    /// The node whose copies are brought up to date.
    pub node: String,
    /// How many they are.
    pub copies: usize,
    /// Bytes of the volumes that have been passed.
    pub done_bytes: u64,
    /// Bytes of the volumes.
    pub size_bytes: u64,
}

impl WatchView {
    /// This machine, which belongs to no cluster.
    pub(crate) fn of_one(engine: &Engine) -> Self {
        Self {
            cluster: None,
            nodes: vec![WatchedNode::answered(
                "this machine",
                engine.node_counters(None),
            )],
            problem: None,
        }
    }
}

impl WatchedNode {
    /// A node that answered.
    pub fn answered(name: &str, counters: NodeCounters) -> Self {
        Self {
            name: name.to_owned(),
            state: NodeState::Up,
            problem: None,
            counters: Some(counters),
        }
    }

    /// A node that did not answer.
    pub fn silent(name: &str, problem: String) -> Self {
        Self {
            name: name.to_owned(),
            state: NodeState::Down,
            problem: Some(problem),
            counters: None,
        }
    }
}

impl Engine {
    /// What this machine has done, as the node `name` of a cluster.
    pub fn node_counters(&self, name: Option<&str>) -> NodeCounters {
        let server = self.server();
        let since = self.shared.since.duration_since(UNIX_EPOCH);
        let clock = std::time::Duration::try_from(clock_gettime(ClockId::Monotonic));
        let us = |time: std::time::Duration| u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        let counters = NodeCounters {
            started_unix_us: us(since.unwrap_or_default()),
            read_at_us: us(clock.unwrap_or_default()),
            ..NodeCounters::of(&server.statistics())
        };
        match name {
            Some(name) => counters.with_copies(name, &server.volumes()),
            None => counters,
        }
    }
}

impl NodeCounters {
    fn of(done: &IoStatistics) -> Self {
        let total = done.total();
        let (reads, writes) = (done.kind(OpKind::Read), done.kind(OpKind::Write));
        Self {
            operations: total.operations,
            reads: reads.operations,
            writes: writes.operations,
            read_bytes: reads.bytes,
            write_bytes: writes.bytes,
            latency_sum_ns: u64::try_from(total.latency.sum().as_nanos()).unwrap_or(u64::MAX),
            errors: total.errors,
            ..Self::default()
        }
    }

    /// Adds how the copies of the node `name` are, and what it copies to others.
    fn with_copies(mut self, name: &str, volumes: &[VolumeInfo]) -> Self {
        let mut rebuilds: BTreeMap<&str, RebuildProgress> = BTreeMap::new();
        for volume in volumes {
            let copies = volume.replication.iter().flat_map(|it| &it.copies);
            for copy in copies {
                if copy.node == name {
                    self.copies += 1;
                    self.copies_in_sync += usize::from(copy.role != CopyRole::OutOfSync);
                }
                if let Some(done_bytes) = copy.copied_through_bytes {
                    let rebuild = rebuilds.entry(&copy.node).or_default();
                    rebuild.copies += 1;
                    rebuild.done_bytes += done_bytes;
                    rebuild.size_bytes += volume.spec.size.0;
                }
            }
        }
        let rebuilds = rebuilds.into_iter().map(|(node, rebuild)| RebuildProgress {
            node: node.to_owned(),
            ..rebuild
        });
        self.rebuilds = rebuilds.collect();
        self
    }
}
