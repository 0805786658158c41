//! NVMe over Fabrics: controller core, NVMe/TCP target and host.

#![forbid(unsafe_code)]

pub mod tcp;
