//! NVMe/RDMA: the transport of NVMe over Fabrics over reliable-connected queue pairs.
//!
//! Read first: NVMe RDMA Transport 1.0, the sections on capsules, data transfer and connection
//! establishment.

mod controller;
mod host;
pub mod wire;

pub use controller::{Accepted, ControllerConfig, ControllerSession, SessionError};
pub use host::{HostConfig, HostError, HostSession};
