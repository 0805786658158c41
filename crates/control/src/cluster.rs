//! What the REST interface asks of the cluster that this machine belongs to. Crate `cluster`
//! answers.

use serde::{Deserialize, Serialize};
use server::{ErrorKind, Force, VolumeName};
use utoipa::ToSchema;

use crate::definitions::Volume;

/// The cluster's end of the routes. Its methods may wait, for seconds and longer.
pub trait ClusterControl: Send + Sync {
    /// The cluster that this machine belongs to.
    fn show(&self) -> Result<ClusterView, ClusterFault>;
    /// What each node of the cluster has done.
    fn watch(&self) -> Result<WatchView, ClusterFault>;
    /// Makes a cluster of machines.
    fn create(&self, request: NewCluster) -> Result<ClusterView, ClusterFault>;
    /// Makes this machine a node of a cluster that another machine belongs to.
    fn join(&self, request: JoinCluster) -> Result<ClusterView, ClusterFault>;
    /// Makes this machine leave its cluster, which ends with its last node.
    fn leave(&self, force: Force) -> Result<(), ClusterFault>;
    /// Sets after which time without a node its copies are made elsewhere.
    fn set_repair_after(&self, after: RepairAfter) -> Result<ClusterView, ClusterFault>;
    /// Marks a node: its primaries and copies move to other nodes from now on, where they fit.
    fn drain(&self, node: String, force: Force) -> Result<(), ClusterFault>;
    /// Ends that: the node may hold primaries and copies again.
    fn undrain(&self, node: String) -> Result<(), ClusterFault>;
    /// Creates a replicated volume on nodes of the cluster, and waits until this machine has it.
    fn create_volume(&self, name: VolumeName, volume: Volume) -> Result<(), ClusterFault>;
    /// Removes a replicated volume from all nodes, and waits until this machine has it no more.
    fn remove_volume(&self, name: VolumeName, force: Force) -> Result<(), ClusterFault>;
}

/// Why the cluster did not do what was asked.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct ClusterFault {
    /// What kind of error it is.
    pub kind: ErrorKind,
    /// The reason and how to fix it.
    pub message: String,
    /// Whether the same request with force does it anyway.
    pub needs_force: bool,
}

impl ClusterFault {
    /// A fault that force does not override.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self {
            kind,
            message: message.into(),
            needs_force: false,
        }
    }

    pub(crate) fn not_enabled() -> Self {
        Self::new(
            ErrorKind::Conflict,
            "this daemon takes part in no cluster; start it with --cluster ADDRESS and --cluster-token-file FILE",
        )
    }

    pub(crate) fn no_node(name: &str) -> Self {
        let message = format!("node {name} does not exist; `ramport node ls` lists all nodes");
        Self::new(ErrorKind::NotFound, message)
    }
}

/// A cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ClusterView {
    /// Its name.
    pub name: String,
    /// What distinguishes it from others of that name.
    pub id: String,
    /// The name of this machine's node.
    pub this_node: String,
    /// URLs of the etcd that keeps what the nodes agree on.
    pub etcd: Vec<String>,
    /// Whether that etcd runs on nodes of the cluster.
    pub etcd_is_own: bool,
    /// The memory budgets of all nodes together.
    pub memory_bytes: u64,
    /// What is left of them after the largest node is lost.
    pub memory_after_loss_bytes: u64,
    /// How many of the cluster's own etcds can be lost while the nodes still agree; absent with
    /// another etcd.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub etcd_losses_max: Option<usize>,
    /// After how many seconds without a node its copies are made elsewhere; 0: never.
    pub repair_after_s: u64,
    /// Its nodes, by name.
    pub nodes: Vec<NodeView>,
}

/// Seconds without a node after which its copies are made elsewhere; 0: never.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(transparent)]
pub struct RepairAfter(pub u64);

/// What of a cluster can be changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ClusterPatch {
    /// After how many seconds without a node its copies are made elsewhere; 0: never.
    pub repair_after_s: RepairAfter,
}

/// A machine of a cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct NodeView {
    /// Its name.
    pub name: String,
    /// Its number, which is not used again.
    pub number: u32,
    /// Where other nodes reach it.
    pub address: String,
    /// What it does.
    pub role: NodeRole,
    /// The nodes of a zone may fail together.
    pub zone: String,
    /// Its memory budget; 0 of a witness.
    pub memory_bytes: u64,
    /// Whether it runs one of the cluster's etcds.
    pub has_etcd: bool,
    /// Copies of volumes that it holds.
    pub copies: usize,
    /// Volumes that it serves.
    pub primaries: usize,
    /// Whether it keeps its lease in etcd alive.
    pub state: NodeState,
    /// How far its drain is, if it is drained.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drain: Option<DrainView>,
}

/// How far the drain of a node is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DrainView {
    /// Volumes whose copy or primary is still to move away.
    pub moving: usize,
    /// Copies that stay, because they fit on no other node.
    pub staying: usize,
}

/// What a node does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum NodeRole {
    /// It lends memory, and may run etcd.
    Storage,
    /// It only runs etcd, so that two others can tell which of them is lost.
    Witness,
}

/// Whether a node is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum NodeState {
    /// It keeps its lease alive.
    Up,
    /// Its lease has ended: it is stopped, or cut off from etcd.
    Down,
}

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

/// A cluster that is to be made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewCluster {
    /// Its name: letters, digits and hyphens.
    pub name: String,
    /// Addresses of the daemons, as given to `ramport serve --cluster`. This machine's is one of
    /// them.
    pub nodes: Vec<String>,
    /// The address of a daemon that only runs etcd.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub witness: Option<String>,
    /// An etcd that exists. Without it, nodes run one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub etcd: Option<ExternalEtcd>,
}

/// An etcd that exists.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ExternalEtcd {
    /// Its URLs, as every node reaches it.
    pub urls: Vec<String>,
    /// What URLs with https need.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls: Option<PemIdentity>,
}

/// PEM texts for TLS with certificates of both ends.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PemIdentity {
    /// The issuers of the other end's certificates.
    pub issuers: String,
    /// The own certificate, and those that lead to its issuer.
    pub certificate: String,
    /// Its private key.
    pub key: String,
}

impl std::fmt::Debug for PemIdentity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("PemIdentity(secret)")
    }
}

impl std::fmt::Debug for ExternalEtcd {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "ExternalEtcd({:?})", self.urls)
    }
}

/// A cluster that this machine is to join.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct JoinCluster {
    /// The address of one of its nodes, as given to `ramport serve --cluster`.
    pub address: String,
}
