//! A device: the attachment to one namespace.

use std::{
    sync::Arc,
    thread::{self, JoinHandle},
};

use block::Geometry;
use nvme::host::{CommandKey, Fused, Purpose};
use nvme::tcp::HostSession;
use nvme::wire::Nsid;

use crate::association::Plan;
use crate::keeper::Keeper;
use crate::mailbox::{Mailbox, Shared};
use crate::queue::QueueTerms;
use crate::{ConnectError, DeviceOptions, Queue, Url};

/// The attachment to one namespace: an admin queue, kept alive by a thread, and I/O queues. Dropping it ends the
/// attachment: its queues lose their connection for good, and the controller is shut down, which may take up to a second.
#[derive(Debug)]
pub struct Device {
    info: DeviceInfo,
    shared: Arc<Shared>,
    queues: Vec<Queue>,
    keeper: Option<JoinHandle<()>>,
}

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
    pub subsystem_nqn: String,
    /// The controller's identifier (CNTLID) at the first connection.
    pub controller_id: u16,
    /// Namespace identifier (NSID).
    pub namespace: u32,
    /// The most commands in flight per queue that the controller takes.
    pub queue_depth_max: u16,
}

impl Device {
    /// The most slots of a queue.
    pub const DEPTH_MAX: u16 = HostSession::KEYS_MAX / 2;

    /// Attaches to the namespace that `url` names and opens its I/O queues.
    pub fn connect(url: &Url, options: &DeviceOptions) -> Result<Self, ConnectError> {
        if url.subsystem().is_none() {
            return Err(ConnectError::NoSubsystem {
                example: url
                    .with_subsystem("nqn.2014-08.org.example:rd0")
                    .to_string(),
            });
        }
        check(options)?;
        let plan = Plan::new(url, options)?;
        let nsid = Nsid(url.namespace());
        let queues = url.queues().unwrap_or(options.queues);
        let admin = plan.connect_admin(Purpose::Io { nsid, queues })?;
        let namespace = admin
            .facts
            .namespace
            .expect("a set-up for I/O ends with the namespace known");
        let controller = &admin.facts.controller;
        let queue_depth_max = u16::try_from(controller.queue_entries_max - 1).unwrap_or(u16::MAX);
        let depth = options.depth.min(queue_depth_max).max(1);
        // A fused pair takes a second key.
        let keys = match controller.fused {
            Fused::Unsupported => depth,
            Fused::CompareAndWrite => depth * 2,
        };
        let resources = |source| ConnectError::Resources { source };
        let shared = Arc::new(Shared::new(namespace.geometry).map_err(resources)?);
        let mailboxes = (0..admin.facts.io_queues)
            .map(|_| Mailbox::new().map(Arc::new))
            .collect::<Result<Vec<_>, _>>()
            .map_err(resources)?;
        let terms = QueueTerms {
            depth,
            nsid,
            transfer_max_bytes: controller
                .transfer_max_bytes
                .map_or(options.buffer_bytes, |max| {
                    options
                        .buffer_bytes
                        .min(usize::try_from(max).unwrap_or(usize::MAX))
                }),
            second_keys: CommandKey(depth),
            fused: controller.fused,
        };
        let info = DeviceInfo {
            model: controller.model.clone(),
            serial: controller.serial.clone(),
            firmware: controller.firmware.clone(),
            subsystem_nqn: controller.subsystem_nqn.clone(),
            controller_id: controller.id,
            namespace: nsid.0,
            queue_depth_max,
        };
        let mut keeper = Keeper {
            plan,
            shared: Arc::clone(&shared),
            mailboxes: mailboxes.clone(),
            depth,
            keys,
            namespace,
            generation: 0,
        };
        keeper.deliver_connections(&admin)?;
        let keeper = thread::Builder::new()
            .name(format!("keep ns {nsid}"))
            .spawn(move || keeper.run(admin))
            .map_err(resources)?;
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

    /// Block size and capacity of the namespace as last learned.
    pub fn geometry(&self) -> Geometry {
        self.shared.geometry()
    }

    /// What controller and namespace say of themselves.
    pub fn info(&self) -> &DeviceInfo {
        &self.info
    }

    /// The I/O queues, once; later calls give none. There are as many as asked for, or as the controller allows
    /// where that is fewer.
    pub fn take_queues(&mut self) -> Vec<Queue> {
        std::mem::take(&mut self.queues)
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        self.shared.stop();
        if let Some(keeper) = self.keeper.take() {
            // A keeper that panicked has told of it already.
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
