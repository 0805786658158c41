//! The Block RDMA Protocol (BRP): block requests between a host and a target, over TCP and RDMA.
//!
//! Read first: docs/brp.md. Requirements are cited by their numbers there (BRP-n).
//!
//! - [`wire`] — messages as bytes, field by field;
//! - [`target`] — a session's commands at the target, and its record of replies: one core that
//!   knows no transport;
//! - [`host`] — a session's tags at the host, its commands and their outcomes;
//! - [`tcp`] — both ends over a byte stream;
//! - [`rdma`] — both ends over a queue pair.
//!
//! What this crate refuses to know: sockets, queue pairs, clocks, threads, memory of volumes.
//! Instants and identities are arguments; bytes of volumes are moved by [`block::Volume`].

#![forbid(unsafe_code)]

pub mod host;
pub mod rdma;
pub mod target;
pub mod tcp;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
pub mod wire;
