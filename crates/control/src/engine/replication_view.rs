//! How the copies of a replicated volume are, as lists and the REST API show it.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use volume::{CopyRole, ReplicaCopy, ReplicationInfo};

/// How the copies of a replicated volume are, as this node knows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ReplicationView {
    /// The number of the configuration, which grows with each change of primary and copies in sync;
    /// 0 if this node does not know it yet.
    pub epoch: u64,
    /// The node that serves the volume. Others pass commands on to it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub primary: Option<String>,
    /// How many copies have every acknowledged write.
    pub in_sync: usize,
    /// The copies.
    pub copies: Vec<ReplicaView>,
    /// Bytes that this node has copied to returning nodes.
    pub copied_bytes: u64,
}

/// A copy of a replicated volume.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ReplicaView {
    /// The node.
    pub node: String,
    /// What the copy is used for.
    pub state: CopyState,
    /// Whether this node is connected to it.
    pub connected: bool,
    /// Bytes of the volume that the copy in progress to this node has passed; shown at the primary.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub copied_through_bytes: Option<u64>,
}

/// What a copy of a replicated volume is used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum CopyState {
    /// Its node serves the volume.
    Primary,
    /// It has every acknowledged write.
    InSync,
    /// It misses writes, and is not used until it was brought up to date.
    OutOfSync,
}

impl From<ReplicationInfo> for ReplicationView {
    fn from(of: ReplicationInfo) -> Self {
        let copies: Vec<_> = of.copies.into_iter().map(ReplicaView::from).collect();
        let primary = copies.iter().find(|copy| copy.state == CopyState::Primary);
        let in_sync = copies.iter();
        let in_sync = in_sync.filter(|copy| copy.state != CopyState::OutOfSync);
        Self {
            epoch: of.epoch,
            primary: primary.map(|copy| copy.node.clone()),
            in_sync: in_sync.count(),
            copies,
            copied_bytes: of.copied_bytes,
        }
    }
}

impl From<ReplicaCopy> for ReplicaView {
    fn from(of: ReplicaCopy) -> Self {
        Self {
            node: of.node,
            state: match of.role {
                CopyRole::Primary => CopyState::Primary,
                CopyRole::InSync => CopyState::InSync,
                CopyRole::OutOfSync => CopyState::OutOfSync,
            },
            connected: of.is_connected,
            copied_through_bytes: of.copied_through_bytes,
        }
    }
}
