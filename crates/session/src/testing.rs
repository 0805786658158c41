//! A send queue that keeps what is posted to it, for tests, fuzz targets and simulations.

mod work;

pub use work::{PostedWork, Work};
