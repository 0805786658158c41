//! BRP over a queue pair (RDMA): a message with its data is one SEND, other data move by RDMA READ
//! and RDMA WRITE.
//!
//! Read first: docs/brp.md, "Connection and login", "Messages".

mod host;
mod target;

pub use host::{HostSession, HostWork};
pub use target::{Accepted, TargetSession};
