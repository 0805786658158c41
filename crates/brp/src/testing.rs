//! A backend, connections in memory and fuzz targets, for tests and simulations.

mod backend;
pub mod fuzz;
mod link;
mod rdma_link;
#[cfg(test)]
mod tests;

pub use backend::{TestBackend, TestTarget};
pub use link::{Link, Setup, TcpLink};
pub use rdma_link::RdmaLink;
