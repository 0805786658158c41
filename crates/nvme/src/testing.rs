//! What tests, fuzz targets and simulations share: volumes and a backend in plain memory, and a host that knows just
//! enough to drive a [`TargetSession`](crate::tcp::TargetSession) byte by byte.

mod backend;
pub mod fuzz;
mod peer;
mod volume;

pub use backend::{TestBackend, subsystem};
pub use peer::{Chunks, Pdu, Peer, host, io_peer, pdus};
pub use volume::VecVolume;
