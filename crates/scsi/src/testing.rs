//! What tests and fuzz targets run on.

#[cfg(test)]
mod bytes;
pub mod fuzz;

#[cfg(test)]
pub(crate) use bytes::Bytes;
