//! Queue pairs that keep what is posted to them, for tests, fuzz targets and simulations.

mod host_memory;
mod work;

pub use host_memory::HostMemory;
pub use work::{PostedWork, Work};
