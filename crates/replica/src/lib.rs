//! Replication of a volume over nodes, as a core without I/O.
//!
//! Read first: `docs/design/0029-replication.md`, which states the protocol, its invariants and the
//! lease formula; Lin, Yang, Zhang, Zhou, "PacificA: Replication in Log-Based Distributed Storage
//! Systems", MSR-TR-2008-25, whose configurations and leases it follows.
//!
//! A [`Member`] is one node's part in one volume. Its driver hands it requests of hosts, messages
//! of other members, replies of the store of configurations, and ticks of a clock, and carries out
//! the [`Output`]s. Bytes are in a [`Medium`]: the protocol moves them and does not look at them.
//!
//! This crate must not know sockets, clocks, threads, etcd or kinds of volume.

#![forbid(unsafe_code)]

mod base;
mod claim;
mod config;
mod contents;
mod ids;
mod medium;
mod member;
mod message;
mod pause;
mod peer;
mod primary;
mod receiver;
mod sender;
mod settings;
mod stamps;
mod store;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
mod unsettled;
pub mod wire;

pub use claim::Claim;
pub use config::Config;
pub use contents::Contents;
pub use ids::{Epoch, HostRequest, LocalTime, MemberId, Seq, StoreRequestId, StreamId};
pub use medium::{Medium, Unwritten};
pub use member::Member;
pub use message::{
    Beacon, Body, Entry, EntryBody, Envelope, HostReply, Output, Overwritten, Refusal, Report,
    StoreOp,
};
pub use settings::{InvalidSettings, Settings};
