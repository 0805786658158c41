//! What tests, fuzz targets and simulations share: volumes and a backend in plain memory, and a host that knows just
//! enough to drive a [`TargetSession`](crate::tcp::TargetSession) byte by byte.

mod backend;
pub mod fuzz;
mod peer;

pub use block::testing::VecVolume;

pub use backend::{TestBackend, subsystem};
pub use peer::{Chunks, Pdu, Peer, host, io_peer, pdus};
