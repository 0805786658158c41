//! Identifiers, numbers and times.

use std::time::Duration;

/// One life of one node's copy of a volume.
///
/// A node that restarts with empty memory takes a new `incarnation`, so it is another member, and
/// no configuration that names the former one counts it as a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MemberId {
    /// The node, unique in the cluster.
    pub node: u32,
    /// Unique among all starts of this node.
    pub incarnation: u64,
}

/// The number of a configuration. The first is 1; 0 is before all of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Epoch(pub u64);

impl Epoch {
    /// The epoch of the next configuration.
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

/// Time since some moment, by one node's clock, which runs while the machine is suspended
/// (`CLOCK_BOOTTIME`). Times of two nodes cannot be compared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LocalTime(pub Duration);

impl LocalTime {
    /// The time `after` later.
    #[must_use]
    pub fn plus(self, after: Duration) -> Self {
        Self(self.0.saturating_add(after))
    }

    /// How long ago `earlier` was; zero if it is later.
    pub fn since(self, earlier: Self) -> Duration {
        self.0.saturating_sub(earlier.0)
    }
}

/// Names a stream of entries, from both ends: a late report may make a primary open a stream again
/// that the receiver has used, so the number alone does not tell them apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct StreamId {
    /// Chosen by the receiver, which grows it with each stream that it gives up.
    pub number: u64,
    /// The primary's epoch when it opened the stream; 0: not open yet. A primary opens at most one
    /// stream to a member in an epoch.
    pub opened: Epoch,
}

/// The place of an entry in its stream. The first is 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Seq(pub u64);

/// The number of a write among all writes of one primary's term. The first is 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WriteNumber(pub u64);

/// Names a request of a host; chosen by the driver, unique among those outstanding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HostRequest(pub u64);

/// Names a request to the store; chosen by the member.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StoreRequestId(pub u64);
