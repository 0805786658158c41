//! What hosts did to one block, and whether that is linearizable.
//!
//! Read first: Gibbons and Korach, "Testing Shared Memories", SIAM Journal on Computing 26 (1997),
//! whose zones decide it for registers in which no value is written twice.

use std::collections::BTreeMap;

/// The value of a block that was never written.
const INITIAL: u64 = 0;
/// The end of a write that may still be executed.
const NEVER: u64 = u64::MAX;

/// Of one value: its write and the reads that returned it.
#[derive(Clone, Copy, Debug)]
struct Cluster {
    write_start: u64,
    first_end: u64,
    last_start: u64,
}

/// The operations on one block, with steps of the simulation as times.
#[derive(Debug)]
pub struct BlockHistory {
    clusters: BTreeMap<u64, Cluster>,
    /// Values that were read, with start and end.
    reads: Vec<(u64, u64, u64)>,
}

impl Default for BlockHistory {
    fn default() -> Self {
        let initial = Cluster {
            write_start: 0,
            first_end: 0,
            last_start: 0,
        };
        Self {
            clusters: BTreeMap::from([(INITIAL, initial)]),
            reads: Vec::new(),
        }
    }
}

impl BlockHistory {
    /// A write of `value` began.
    pub fn begin_write(&mut self, value: u64, start: u64) {
        let cluster = Cluster {
            write_start: start,
            first_end: NEVER,
            last_start: start,
        };
        let former = self.clusters.insert(value, cluster);
        assert!(former.is_none(), "values are unique");
    }

    /// The write of `value` was acknowledged.
    pub fn end_write(&mut self, value: u64, end: u64) {
        let cluster = self.clusters.get_mut(&value).expect("the write began");
        cluster.first_end = cluster.first_end.min(end);
    }

    /// A read returned `value`.
    pub fn read(&mut self, value: u64, start: u64, end: u64) {
        self.reads.push((value, start, end));
    }

    /// Why no order of the operations explains what was read.
    pub fn violation(&self) -> Option<String> {
        let mut clusters = self.clusters.clone();
        for &(value, start, end) in &self.reads {
            let Some(cluster) = clusters.get_mut(&value) else {
                return Some(format!("{value} was read and never written"));
            };
            if end < cluster.write_start {
                return Some(format!("{value} was read before it was written"));
            }
            cluster.first_end = cluster.first_end.min(end);
            cluster.last_start = cluster.last_start.max(start);
        }
        // A write without an end that nobody has read may never have been executed.
        clusters.retain(|_, cluster| cluster.first_end != NEVER);
        let is_forward = |cluster: &Cluster| cluster.first_end < cluster.last_start;
        let mut forward: Vec<_> = clusters.iter().filter(|(_, c)| is_forward(c)).collect();
        forward.sort_by_key(|(_, cluster)| cluster.first_end);
        for pair in forward.windows(2) {
            let [(a, first), (b, second)] = pair else {
                continue;
            };
            if second.first_end < first.last_start {
                return Some(format!(
                    "{a} {first:?} and {b} {second:?} exclude each other"
                ));
            }
        }
        for (value, cluster) in clusters.iter().filter(|(_, c)| !is_forward(c)) {
            let inside = forward.iter().find(|(_, zone)| {
                zone.first_end < cluster.last_start && cluster.first_end < zone.last_start
            });
            if let Some((other, zone)) = inside {
                return Some(format!(
                    "{value} {cluster:?} has no time beside {other} {zone:?}"
                ));
            }
        }
        None
    }
}

#[test]
fn a_value_that_returns_is_not_linearizable() {
    let mut history = BlockHistory::default();
    history.begin_write(1, 1);
    history.end_write(1, 2);
    history.read(1, 3, 4);
    assert_eq!(history.violation(), None);
    history.read(INITIAL, 5, 6);
    assert!(history.violation().is_some());
}

#[test]
fn a_write_without_an_end_may_be_read_but_not_taken_back() {
    let mut history = BlockHistory::default();
    history.begin_write(1, 1);
    history.read(INITIAL, 2, 3);
    history.read(1, 4, 5);
    assert_eq!(history.violation(), None);
    history.read(INITIAL, 6, 7);
    assert!(history.violation().is_some());
}

#[test]
fn a_write_within_the_time_of_another_value_is_not_linearizable() {
    let mut history = BlockHistory::default();
    history.begin_write(1, 1);
    history.end_write(1, 2);
    history.begin_write(2, 3);
    history.end_write(2, 4);
    assert_eq!(history.violation(), None);
    history.read(1, 5, 6);
    assert!(history.violation().is_some());
}

#[test]
fn what_was_never_written_is_not_linearizable() {
    let mut history = BlockHistory::default();
    history.read(7, 1, 2);
    assert!(history.violation().is_some());
}
