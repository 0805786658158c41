//! What attaching a device over a protocol results in.

use std::{net::SocketAddr, sync::Arc, thread::JoinHandle};

use block::WriteCache;

use crate::device_state::DeviceState;
use crate::mailbox::Mailbox;
use crate::queue::QueueLimits;

/// The peer's description of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceInfo {
    /// Model number (MN); vendor and product identification; empty for BRP, as are serial number
    /// and firmware.
    pub model: String,
    /// Serial number (SN); unit serial number.
    pub serial: String,
    /// Namespace Globally Unique Identifier (NGUID); the logical unit's NAA designator, or the best
    /// designator that it has; the identifier of the volume in BRP.
    pub identifier: Vec<u8>,
    /// The namespace's universally unique identifier, if it has one; `None` for iSCSI, SRP and BRP.
    pub uuid: Option<[u8; 16]>,
    /// Whether writes that were answered are lost with the power of the other side, unless they are
    /// flushed or durable.
    pub write_cache: WriteCache,
    /// Whether writes are refused at present.
    pub is_write_protected: bool,
    /// Firmware revision (FR); product revision level.
    pub firmware: String,
    /// The subsystem's NQN (SUBNQN); the target's name.
    pub target: String,
    /// The address of the first connection.
    pub address: SocketAddr,
    /// The controller's identifier (CNTLID) of the first connection; `None` for iSCSI, SRP and BRP.
    pub controller_id: Option<u16>,
    /// Namespace identifier (NSID); LUN; unit.
    pub unit: u32,
    /// The most commands in flight per queue.
    pub queue_depth_max: u16,
}

/// A device as a protocol has attached it.
pub(crate) struct Attached {
    pub(crate) info: DeviceInfo,
    pub(crate) shared: Arc<DeviceState>,
    /// One per queue.
    pub(crate) mailboxes: Vec<Arc<Mailbox>>,
    pub(crate) limits: QueueLimits,
    pub(crate) supervisor: JoinHandle<()>,
}
