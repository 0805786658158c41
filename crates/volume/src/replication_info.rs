//! How the copies of a replicated volume are.

/// Where a cluster has placed a replicated volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placement {
    /// What distinguishes the volume from all others that the cluster has or had.
    pub volume: u64,
    /// The numbers of the nodes that hold copies.
    pub nodes: Vec<u32>,
}

/// A replicated volume as one node knows it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReplicationInfo {
    /// The number of the configuration, which grows with each change; 0: not known yet.
    pub epoch: u64,
    /// The copies, by node.
    pub copies: Vec<ReplicaCopy>,
    /// Bytes that this node has copied to returning nodes.
    pub copied_bytes: u64,
}

/// A copy of a replicated volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplicaCopy {
    /// The node's name, or its number if the name is not known.
    pub node: String,
    /// What the copy is used for.
    pub role: CopyRole,
    /// Whether the node that reports this is connected to the copy's node, or is that node.
    pub is_connected: bool,
    /// Bytes of the volume that a copy in progress to this node has passed; known by the primary
    /// alone.
    pub copied_through_bytes: Option<u64>,
}

/// What a copy is used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CopyRole {
    /// It serves the volume.
    Primary,
    /// It has every acknowledged write.
    InSync,
    /// It misses writes. It is not used until it was brought up to date.
    OutOfSync,
}
