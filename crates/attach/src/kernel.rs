//! The kernel's interfaces for block devices that a process serves.

pub(crate) mod fuse;
pub(crate) mod loop_device;
pub(crate) mod ublk;
