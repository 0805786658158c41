//! NVMe/TCP: the transport of NVMe over Fabrics over a byte stream.
//!
//! Read first: NVMe/TCP 1.1, the sections on data transfer and on PDU definitions.

mod controller;
mod host;
pub mod wire;

pub use controller::{ControllerConfig, ControllerSession, SessionError};
pub use host::{HostConfig, HostError, HostSession};
