//! What a node and a volume are, and why they do not start.

use std::io;
use std::net::TcpListener;
use std::sync::Arc;

use block::Geometry;
use memory::{Budget, MemoryError};
use replica::{InvalidSettings, MemberId, Settings};

use crate::security::Security;

/// What a node is.
#[derive(Debug)]
pub struct NodeOptions {
    /// Its number, unique in the cluster.
    pub node: u32,
    /// The cluster's number: connections of another cluster are rejected.
    pub cluster: u64,
    /// Unique among the starts of this node.
    pub incarnation: u64,
    /// Where other nodes connect to.
    pub listener: TcpListener,
    /// How connections are protected.
    pub security: Security,
}

/// What a replicated volume is on a node.
#[derive(Debug)]
pub struct VolumeOptions {
    /// Block size and capacity, the same on all nodes.
    pub geometry: Geometry,
    /// Times and bounds, the same on all nodes.
    pub settings: Settings,
    /// This node's copy, which is empty, so the identity was never used before; `None`: this node
    /// has no copy, and passes commands on.
    pub member: Option<MemberId>,
    /// What the memory of the copy is charged to.
    pub budget: Arc<Budget>,
}

/// Why a node or a volume does not start.
#[derive(Debug, thiserror::Error)]
pub enum NodeError {
    /// A socket or thread.
    #[error("cannot start the node's connections: {0}")]
    Io(#[from] io::Error),
    /// Memory could not be allocated.
    #[error("cannot allocate the memory of a replicated volume: {0}")]
    Memory(#[from] MemoryError),
    /// The settings break the protocol.
    #[error("the settings of a replicated volume are invalid: {0:?}")]
    Settings(InvalidSettings),
    /// Settings and geometry differ, or pieces do not fit into frames.
    #[error(
        "a replicated volume of {blocks} blocks has settings for {settings_blocks}, or its pieces exceed 1 MiB"
    )]
    Geometry {
        /// Blocks of the volume.
        blocks: u64,
        /// Blocks of the settings.
        settings_blocks: u64,
    },
    /// The volume is there.
    #[error("the node has this replicated volume already")]
    Exists,
    /// The cluster has not placed its copies, or it is of another kind.
    #[error("where the copies of a replicated volume are is not known")]
    NotPlaced,
    /// The cluster has ended the copy that serves the volume, as far as this node knows.
    #[error("this node serves the replicated volume, and is to give its copy up")]
    Serving,
    /// There is no node.
    #[error("this machine's node does not run")]
    NotRunning,
    /// The copy's identity names another node.
    #[error("the copy's identity names node {given} instead of {node}")]
    OtherNode {
        /// In the identity.
        given: u32,
        /// This node.
        node: u32,
    },
}
