//! A device: the attachment to one namespace or logical unit.

use std::{net::SocketAddr, sync::Arc, thread::JoinHandle};

use block::Geometry;
use nvme::host::CommandKey;

use crate::mailbox::{Mailbox, Shared};
use crate::queue::QueueTerms;
use crate::{ConnectError, DeviceOptions, Queue, Scheme, Url, iscsi_tcp, nvmf};

/// The attachment to one namespace or logical unit: a thread that keeps it alive, and I/O queues. Dropping it ends the
/// attachment: its queues lose their connection for good, and a controller is shut down, which may take up to a second.
#[derive(Debug)]
pub struct Device {
    info: DeviceInfo,
    shared: Arc<Shared>,
    queues: Vec<Queue>,
    keeper: Option<JoinHandle<()>>,
}

/// What the other side says of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceInfo {
    /// Model number (MN); vendor and product identification.
    pub model: String,
    /// Serial number (SN); unit serial number.
    pub serial: String,
    /// Namespace Globally Unique Identifier (NGUID); the logical unit's NAA designator, or the best
    /// that it has.
    pub identifier: Vec<u8>,
    /// Firmware revision (FR); product revision level.
    pub firmware: String,
    /// The subsystem's NQN (SUBNQN); the target's name.
    pub target: String,
    /// Where it was reached at the first connection.
    pub address: SocketAddr,
    /// The controller's identifier (CNTLID) at the first connection, where there is a controller.
    pub controller_id: Option<u16>,
    /// Namespace identifier (NSID); LUN.
    pub unit: u32,
    /// The most commands in flight per queue.
    pub queue_depth_max: u16,
}

/// What a protocol's attaching gives.
pub(crate) struct Attached {
    pub(crate) info: DeviceInfo,
    pub(crate) shared: Arc<Shared>,
    /// One per queue.
    pub(crate) mailboxes: Vec<Arc<Mailbox>>,
    pub(crate) terms: QueueTerms,
    pub(crate) keeper: JoinHandle<()>,
}

impl Device {
    /// The most slots of a queue.
    pub const DEPTH_MAX: u16 = CommandKey::COUNT_MAX / 2;

    /// Attaches to the namespace or logical unit that `url` names and opens its queues: connections of an NVMe
    /// association, or iSCSI sessions.
    pub fn connect(url: &Url, options: &DeviceOptions) -> Result<Self, ConnectError> {
        if url.target().is_none() {
            return Err(ConnectError::NoTarget {
                example: url.with_target(url.scheme().example_target()).to_string(),
            });
        }
        check(options)?;
        let attached = match url.scheme() {
            Scheme::NvmeTcp => nvmf::attach::<nvmf::Tcp>(url, options),
            Scheme::NvmeRdma => nvmf::attach::<nvmf::Rdma>(url, options),
            Scheme::Iscsi => iscsi_tcp::attach(url, options),
        }?;
        let Attached {
            info,
            shared,
            mailboxes,
            terms,
            keeper,
        } = attached;
        Ok(Self {
            info,
            queues: mailboxes
                .into_iter()
                .map(|mailbox| Queue::new(mailbox, Arc::clone(&shared), terms, options))
                .collect(),
            shared,
            keeper: Some(keeper),
        })
    }

    /// Block size and capacity as last learned.
    pub fn geometry(&self) -> Geometry {
        self.shared.geometry()
    }

    /// What the other side says of itself.
    pub fn info(&self) -> &DeviceInfo {
        &self.info
    }

    /// The I/O queues, once; later calls give none. There are as many as asked for, or as the other side allows
    /// where that is fewer.
    pub fn take_queues(&mut self) -> Vec<Queue> {
        std::mem::take(&mut self.queues)
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        self.shared.stop();
        if let Some(keeper) = self.keeper.take() {
            // A panic was reported when it happened.
            let _ = keeper.join();
        }
    }
}

fn check(options: &DeviceOptions) -> Result<(), ConnectError> {
    if options.queues == 0 {
        return Err(ConnectError::Option {
            option: "queues",
            value: 0,
            expected: "at least one is needed",
        });
    }
    if options.depth == 0 || options.depth > Device::DEPTH_MAX {
        return Err(ConnectError::Option {
            option: "depth",
            value: options.depth.into(),
            expected: "it is from 1 to 2048",
        });
    }
    Ok(())
}
