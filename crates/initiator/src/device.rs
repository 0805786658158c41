//! A device: the attachment to one namespace.

use block::Geometry;

use crate::{ConnectError, DeviceOptions, Queue, Url};

/// The attachment to one namespace: an admin queue, kept alive by a thread, and I/O queues. Dropping it ends the
/// attachment; its queues lose their connection for good then.
#[derive(Debug)]
pub struct Device {}

/// What the controller and the namespace say of themselves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceInfo {
    /// Model number (MN).
    pub model: String,
    /// Serial number (SN).
    pub serial: String,
    /// Firmware revision (FR).
    pub firmware: String,
    /// The subsystem's NQN (SUBNQN).
    pub subnqn: String,
    /// The controller's identifier (CNTLID).
    pub controller_id: u16,
    /// Namespace identifier (NSID).
    pub namespace: u32,
    /// The most commands in flight per queue that the controller takes (from MQES).
    pub queue_depth_max: u16,
}

impl Device {
    /// Attaches to the namespace that `url` names and opens its I/O queues.
    pub fn connect(url: &Url, options: &DeviceOptions) -> Result<Self, ConnectError> {
        let _ = (url, options);
        todo!()
    }

    /// Block size and capacity of the namespace as last learned.
    pub fn geometry(&self) -> Geometry {
        todo!()
    }

    /// What controller and namespace say of themselves.
    pub fn info(&self) -> &DeviceInfo {
        todo!()
    }

    /// The I/O queues, once; later calls give none. There are as many as asked for, or as the controller allows
    /// where that is fewer.
    pub fn take_queues(&mut self) -> Vec<Queue> {
        todo!()
    }
}
