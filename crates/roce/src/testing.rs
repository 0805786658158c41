//! What tests and fuzz targets share: memory that is a vector, and two ends with a network between
//! them.

pub mod forge;
pub mod fuzz;
mod memory;
mod pair;

pub use memory::TestMemory;
pub use pair::{End, Faults, Pair, drain};
