//! From counters to figures: of each node, and of all together.

use std::time::{SystemTime, UNIX_EPOCH};

use control::{NodeCounters, NodeState, RebuildProgress, WatchView, WatchedNode};
use serde::Serialize;

use crate::units::percent;

/// The columns of the table.
pub(super) const TITLES: [&str; 10] = [
    "NODE", "IOPS", "R/s", "W/s", "R MiB/s", "W MiB/s", "MEAN us", "QUEUE", "IN SYNC", "REBUILD",
];
/// The columns that are figures.
pub(super) const NUMBERS: [&str; 8] = [
    "IOPS", "R/s", "W/s", "R MiB/s", "W MiB/s", "MEAN us", "QUEUE", "IN SYNC",
];

/// The figures of an interval.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Document {
    /// When the interval ended, in milliseconds since 1970.
    time_unix_ms: u64,
    /// The cluster's name.
    cluster: Option<String>,
    /// The nodes, by name.
    nodes: Vec<NodeRow>,
    /// All nodes that answered together.
    total: NodeFigures,
    /// Why the list of nodes may be out of date.
    problem: Option<String>,
}

/// A node's figures.
#[derive(Clone, Debug, Serialize)]
struct NodeRow {
    name: String,
    state: NodeState,
    /// Why it did not answer.
    problem: Option<String>,
    /// Absent if the node is down.
    figures: Option<NodeFigures>,
}

/// What a node, or all of them, did in an interval.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
struct NodeFigures {
    /// Commands of all kinds per second, including failed ones.
    iops: f64,
    reads_per_s: f64,
    writes_per_s: f64,
    read_bytes_per_s: f64,
    write_bytes_per_s: f64,
    /// Absent without commands.
    latency_mean_us: Option<f64>,
    /// The mean number of commands in the server (Little's law).
    queue: f64,
    /// Commands that failed, per second.
    errors_per_s: f64,
    /// Copies of replicated volumes that the node holds.
    copies: usize,
    copies_in_sync: usize,
    /// How far the copies of this node are that miss writes and are brought up to date.
    rebuild: Option<Rebuild>,
}

/// Copies that are brought up to date.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
struct Rebuild {
    copies: usize,
    done_bytes: u64,
    size_bytes: u64,
}

impl Document {
    /// The figures of the interval between two readings.
    pub(super) fn between(before: &WatchView, now: &WatchView) -> Self {
        let time = SystemTime::now().duration_since(UNIX_EPOCH);
        let time_unix_ms = time.unwrap_or_default().as_millis();
        let counters = now.nodes.iter().filter_map(|node| node.counters.as_ref());
        let rebuilds: Vec<_> = counters.flat_map(|counters| &counters.rebuilds).collect();
        let nodes = now.nodes.iter().map(|node| {
            let earlier = before.nodes.iter().find(|it| it.name == node.name);
            NodeRow::between(earlier, node, &rebuilds)
        });
        let nodes: Vec<_> = nodes.collect();
        let figures = nodes.iter().filter_map(|node| node.figures.as_ref());
        Self {
            time_unix_ms: u64::try_from(time_unix_ms).unwrap_or(u64::MAX),
            cluster: now.cluster.clone(),
            total: NodeFigures::total(figures),
            nodes,
            problem: now.problem.clone(),
        }
    }

    /// The rows of the table: the nodes, and the total if there are several.
    pub(super) fn rows(&self) -> Vec<Vec<String>> {
        let mut rows: Vec<_> = self.nodes.iter().map(NodeRow::cells).collect();
        if self.nodes.len() > 1 {
            rows.push(self.total.cells("total"));
        }
        rows
    }

    /// What the reader should know beside the table.
    pub(super) fn remarks(&self) -> Vec<String> {
        let problems = self.nodes.iter().filter_map(|node| {
            let problem = node.problem.as_ref()?;
            Some(format!("{} is down: {problem}", node.name))
        });
        let errors = self.nodes.iter().filter_map(|node| {
            let errors = node.figures.as_ref()?.errors_per_s;
            let name = &node.name;
            (errors > 0.0).then(|| format!("{name}: {errors:.1} commands fail per second"))
        });
        problems.chain(errors).chain(self.problem.clone()).collect()
    }
}

impl NodeRow {
    fn between(
        before: Option<&WatchedNode>,
        now: &WatchedNode,
        rebuilds: &[&RebuildProgress],
    ) -> Self {
        let earlier = before.and_then(|node| node.counters.as_ref());
        let figures = now.counters.as_ref().map(|counters| NodeFigures {
            rebuild: rebuild_of(&now.name, rebuilds),
            ..NodeFigures::between(earlier, counters)
        });
        Self {
            name: now.name.clone(),
            state: now.state,
            problem: now.problem.clone(),
            figures,
        }
    }

    fn cells(&self) -> Vec<String> {
        match &self.figures {
            Some(figures) => figures.cells(&self.name),
            None => vec![self.name.clone(), "down".to_owned()],
        }
    }
}

/// What other nodes copy to `node`.
fn rebuild_of(node: &str, rebuilds: &[&RebuildProgress]) -> Option<Rebuild> {
    let rebuilds = rebuilds.iter().filter(|rebuild| rebuild.node == node);
    rebuilds.fold(None, |sum, rebuild| {
        let sum = sum.unwrap_or_default();
        Some(sum.and(Rebuild {
            copies: rebuild.copies,
            done_bytes: rebuild.done_bytes,
            size_bytes: rebuild.size_bytes,
        }))
    })
}

impl Rebuild {
    fn and(self, other: Self) -> Self {
        Self {
            copies: self.copies + other.copies,
            done_bytes: self.done_bytes.saturating_add(other.done_bytes),
            size_bytes: self.size_bytes.saturating_add(other.size_bytes),
        }
    }
}

impl NodeFigures {
    /// The figures between two readings. A daemon that has started again since the first one has
    /// none for this interval.
    #[expect(clippy::cast_precision_loss, reason = "52 bits are enough for rates")]
    fn between(before: Option<&NodeCounters>, now: &NodeCounters) -> Self {
        let copies = Self {
            copies: now.copies,
            copies_in_sync: now.copies_in_sync,
            ..Self::default()
        };
        let before = before.filter(|it| it.started_unix_us == now.started_unix_us);
        let Some(before) = before else {
            return copies;
        };
        let length_us = now.read_at_us.saturating_sub(before.read_at_us).max(1);
        let length_s = length_us as f64 / 1e6;
        let rate =
            |of: fn(&NodeCounters) -> u64| of(now).saturating_sub(of(before)) as f64 / length_s;
        let iops = rate(|it| it.operations);
        let latency_s_per_s = rate(|it| it.latency_sum_ns) / 1e9;
        Self {
            iops,
            reads_per_s: rate(|it| it.reads),
            writes_per_s: rate(|it| it.writes),
            read_bytes_per_s: rate(|it| it.read_bytes),
            write_bytes_per_s: rate(|it| it.write_bytes),
            latency_mean_us: (iops > 0.0).then(|| latency_s_per_s * 1e6 / iops),
            queue: latency_s_per_s,
            errors_per_s: rate(|it| it.errors),
            ..copies
        }
    }

    /// All nodes together. The mean latency is that of all commands.
    fn total<'a>(nodes: impl Iterator<Item = &'a Self>) -> Self {
        let mut total = nodes.fold(Self::default(), |sum, node| Self {
            iops: sum.iops + node.iops,
            reads_per_s: sum.reads_per_s + node.reads_per_s,
            writes_per_s: sum.writes_per_s + node.writes_per_s,
            read_bytes_per_s: sum.read_bytes_per_s + node.read_bytes_per_s,
            write_bytes_per_s: sum.write_bytes_per_s + node.write_bytes_per_s,
            latency_mean_us: None,
            queue: sum.queue + node.queue,
            errors_per_s: sum.errors_per_s + node.errors_per_s,
            copies: sum.copies + node.copies,
            copies_in_sync: sum.copies_in_sync + node.copies_in_sync,
            rebuild: match (sum.rebuild, node.rebuild) {
                (Some(sum), Some(node)) => Some(sum.and(node)),
                (sum, node) => sum.or(node),
            },
        });
        total.latency_mean_us = (total.iops > 0.0).then(|| total.queue * 1e6 / total.iops);
        total
    }

    fn cells(&self, name: &str) -> Vec<String> {
        let mib = |bytes: f64| format!("{:.1}", bytes / f64::from(1 << 20));
        let missing = || "-".to_owned();
        let in_sync = match self.copies {
            0 => missing(),
            copies => format!("{}/{copies}", self.copies_in_sync),
        };
        let latency = self.latency_mean_us;
        vec![
            name.to_owned(),
            format!("{:.0}", self.iops),
            format!("{:.0}", self.reads_per_s),
            format!("{:.0}", self.writes_per_s),
            mib(self.read_bytes_per_s),
            mib(self.write_bytes_per_s),
            latency.map_or_else(missing, |us| format!("{us:.1}")),
            format!("{:.1}", self.queue),
            in_sync,
            self.rebuild.map_or_else(missing, Rebuild::text),
        ]
    }
}

impl Rebuild {
    fn text(self) -> String {
        let done = percent(self.done_bytes, self.size_bytes);
        match self.copies {
            1 => format!("1 copy, {done}"),
            copies => format!("{copies} copies, {done}"),
        }
    }
}
