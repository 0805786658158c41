//! Asking a discovery service what it knows.

use std::time::Duration;

use crate::{ConnectError, Url};

/// One entry of a discovery log: where a subsystem, or another discovery service, can be reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DiscoveryRecord {
    /// The subsystem's NQN (SUBNQN).
    pub subnqn: String,
    /// The transport address (TRADDR).
    pub address: String,
    /// The transport service identifier (TRSVCID): a port number for TCP.
    pub service: String,
}

/// The records of the discovery service at the URL's host and port; its path, where there is one, is the name of the
/// discovery subsystem.
pub fn discover(url: &Url, timeout: Duration) -> Result<Vec<DiscoveryRecord>, ConnectError> {
    let _ = (url, timeout);
    todo!()
}
