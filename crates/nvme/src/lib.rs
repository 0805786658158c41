//! NVMe over Fabrics: controller core, NVMe/TCP and NVMe/RDMA, target and host.
//!
//! - [`wire`] — the structures of NVMe and of Fabrics as bytes, field by field;
//! - [`auth`] — DH-HMAC-CHAP, both sides: secrets, responses, state machines;
//! - [`controller`] — subsystems, controllers, admin commands, discovery, reservations: one core
//!   that knows no transport;
//! - [`host`] — setting an association up and keeping it, I/O commands, discovery: the host's core,
//!   which knows no transport either;
//! - [`tcp`] — NVMe/TCP;
//! - [`rdma`] — NVMe/RDMA.
//!
//! What this crate refuses to know: sockets, clocks, threads, memory of volumes. Instants and
//! identities are arguments; bytes of volumes are moved by [`block::Volume`].

#![forbid(unsafe_code)]

pub mod auth;
pub mod controller;
pub mod host;
pub mod rdma;
pub mod tcp;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
pub mod wire;
