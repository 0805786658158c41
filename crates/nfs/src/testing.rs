//! A server of a few exports, and a client that speaks to a session of it without sockets, for
//! tests and fuzz targets.

pub mod compounds;
pub mod fuzz;
pub mod locks;
mod peer;
mod rdma;
mod server;
pub mod version0;

#[cfg(test)]
pub(crate) use peer::record;
pub use peer::{Arguments, Peer, Reply, WireAttributes};
pub use rdma::{RdmaHeader, RdmaPeer};
pub use server::TestServer;
