//! Replicated volumes of a node: what drives crate `replica` between processes.
//!
//! Read first: `docs/design/0030-node-links.md`, and 0029 for the protocol.
//!
//! ```text
//!  sessions ──► ReplicatedVolume ──► replica::Member ──► Links ──► TCP, TLS ──► other nodes
//!                     │  ▲                │                                         │
//!                     ▼  │                ▼                                         ▼
//!                memory::Store        Agreement                          their ReplicatedVolume
//! ```
//!
//! A [`Node`] has the connections and the threads; a [`ReplicatedVolume`] is a [`block::Volume`].
//! Which members a volume has is agreed on by an [`Agreement`]. [`Replicas`] are the volumes of a
//! node as the server has them, also before the node runs.
//!
//! This crate must not know protocols of hosts, names of volumes, etcd, or how certificates are
//! made.

#![forbid(unsafe_code)]

mod agreement;
mod clock;
mod committed;
mod incoming;
mod links;
mod medium;
mod node;
mod options;
mod outbox;
mod replica_volume;
mod replicas;
mod security;
mod settings;
mod volume;

pub use agreement::{Agreement, Answer, MemoryAgreement, VolumeId};
pub use node::Node;
pub use options::{NodeError, NodeOptions, VolumeOptions};
pub use replica_volume::attach;
pub use replicas::Replicas;
pub use security::{Credentials, CredentialsError, Security, node_name};
pub use volume::{ReplicatedVolume, Role, VolumeStatus};
