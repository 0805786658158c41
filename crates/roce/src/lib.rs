//! RoCEv2 in user space: reliable-connected queue pairs over UDP datagrams.
//!
//! - [`wire`] — the headers as bytes, field by field, and the invariant CRC.
//!
//! What this crate refuses to know: sockets, clocks, threads, memory of volumes, random numbers. Instants, random numbers
//! and the bytes behind a region are arguments.

#![forbid(unsafe_code)]

mod flow;
pub mod wire;

pub use flow::Flow;
