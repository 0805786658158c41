//! System calls that have no safe interface.

pub(crate) mod clone;
pub(crate) mod handle;
