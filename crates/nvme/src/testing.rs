//! Volumes and a backend in plain memory for tests, fuzz targets and simulations, and a minimal
//! host that drives a [`tcp`](crate::tcp::ControllerSession) session byte by byte, or an
//! [`rdma`](crate::rdma::ControllerSession) session message by message.

mod backend;
pub mod fuzz;
mod peer;
mod rdma;

pub use block::testing::VecVolume;

pub use backend::{Computes, TestBackend, subsystem};
pub use peer::{Chunks, Pdu, Peer, host, io_peer, pdus};
pub use rdma::{RdmaHost, Response, rdma_host};
