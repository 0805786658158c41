//! A backend, connections in memory and fuzz targets, for tests and simulations.

mod backend;
pub mod fuzz;
mod link;

pub use backend::{TestBackend, TestTarget};
pub use link::TcpLink;
