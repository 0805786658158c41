//! What nodes have done since they started, from which `ramport watch` computes figures.

use std::collections::BTreeMap;
use std::time::UNIX_EPOCH;

use block::OpKind;
use rustix::time::{ClockId, clock_gettime};
use server::{IoStatistics, VolumeInfo};
use volume::CopyRole;

use super::Engine;
use crate::cluster::{NodeCounters, RebuildProgress, WatchView, WatchedNode};

impl Engine {
    /// This machine, which belongs to no cluster.
    pub(crate) fn watch_alone(&self) -> WatchView {
        let counters = self.node_counters(None);
        WatchView {
            cluster: None,
            nodes: vec![WatchedNode::answered("this machine", counters)],
            problem: None,
        }
    }

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
