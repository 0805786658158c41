//! Memory in a vector, and two ends with a network between them, for tests and fuzz targets.

pub mod forge;
pub mod fuzz;
mod memory;
mod pair;

pub use memory::TestMemory;
pub use pair::{End, Faults, Pair, drain};
