//! Disks of other machines as block devices of this one, for kernels without the client.
//!
//! The kernel's requests come by ublk, or for a file of a FUSE file system with a loop device on
//! it where the kernel has no ublk. One thread passes them to a queue of an [`initiator::Device`],
//! which reconnects while the target is away. If the target does not return within
//! [`Options::give_up_after`], every request fails.
//!
//! ```text
//!  program ─ block device ─ ublk ───────────────► UblkRequests ─┐
//!                         └ loop device ─ FUSE ─► FuseRequests ─┴─► Server ─► initiator::Queue
//! ```
//!
//! This crate knows the kernel's interfaces. It does not know the protocols, nor the daemon.
//!
//! The unsafe code is in `kernel`: system calls that take a number or a structure of the kernel,
//! entries of io_uring, and a mapping that the kernel writes. Their arguments
//! are owned by the caller for the duration of the call.

#![deny(unsafe_code)]

mod attachment;
mod error;
mod kernel;
mod record;
mod requests;
mod server;

pub use attachment::{Attachment, Options, Via};
pub use error::AttachError;
pub use record::{Record, detach, list};
pub use server::LinkEvent;
