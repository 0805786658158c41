//! NVMe/TCP: the transport of NVMe over Fabrics over a byte stream.
//!
//! Read first: NVMe/TCP 1.1, the sections on data transfer and on PDU definitions.

mod host;
mod target;
pub mod wire;

pub use host::{HostConfig, HostError, HostSession};
pub use target::{SessionError, TargetConfig, TargetSession};
