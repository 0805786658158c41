//! Disks of other machines as block devices of this one, for kernels without the client.
//!
//! A file of a FUSE file system has the blocks of an [`initiator::Device`], and a loop device has
//! that file. One thread passes the kernel's requests to a queue of the device, which reconnects
//! while the target is away. If the target does not return within [`Options::give_up_after`], every
//! request fails.
//!
//! This crate knows the kernel's interfaces. It does not know the protocols, nor the daemon.
//!
//! The unsafe code is in `loop_device`: system calls that take a number or a structure of the
//! kernel. Their arguments are owned by the caller for the duration of the call.

#![deny(unsafe_code)]

mod attachment;
mod error;
mod fuse;
mod loop_device;
mod record;
mod server;
mod wire;

pub use attachment::{Attachment, Options};
pub use error::AttachError;
pub use record::{Record, detach, list};
pub use server::LinkEvent;
