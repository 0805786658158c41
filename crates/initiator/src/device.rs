//! A device: the attachment to one namespace or logical unit.

use std::{sync::Arc, thread::JoinHandle};

use block::Geometry;

use crate::attached::{Attached, DeviceInfo};
use crate::device_state::DeviceState;
use crate::{
    ConnectError, DeviceOptions, Queue, Scheme, Url, brp_sessions, iscsi_tcp, nvmf, srp_channels,
};

/// The attachment to one namespace or logical unit: a thread that keeps it alive, and I/O queues.
/// Dropping it ends the attachment: its queues lose their connection permanently, and a controller
/// is shut down, which may take up to a second.
#[derive(Debug)]
pub struct Device {
    info: DeviceInfo,
    shared: Arc<DeviceState>,
    queues: Vec<Queue>,
    supervisor: Option<JoinHandle<()>>,
}

impl Device {
    /// Attaches to the namespace or logical unit that `url` names and opens its queues: connections
    /// of an NVMe association, or sessions of iSCSI, SRP or BRP.
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
            Scheme::Srp => srp_channels::attach(url, options),
            Scheme::Brp | Scheme::BrpRdma => brp_sessions::attach(url, options),
        }?;
        let Attached {
            info,
            shared,
            mailboxes,
            limits,
            supervisor,
        } = attached;
        Ok(Self {
            info,
            queues: mailboxes
                .into_iter()
                .map(|mailbox| Queue::new(mailbox, Arc::clone(&shared), limits, options))
                .collect(),
            shared,
            supervisor: Some(supervisor),
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

    /// The I/O queues, once; later calls give none. There are as many as requested, or as the other
    /// side allows if that is fewer.
    pub fn take_queues(&mut self) -> Vec<Queue> {
        std::mem::take(&mut self.queues)
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        self.shared.stop();
        if let Some(supervisor) = self.supervisor.take() {
            // A panic was reported when it happened.
            let _ = supervisor.join();
        }
    }
}

fn check(options: &DeviceOptions) -> Result<(), ConnectError> {
    if options.queues == 0 {
        return Err(ConnectError::Option {
            option: "queues",
            value: 0,
            expected: "use at least 1",
        });
    }
    if options.depth == 0 || options.depth > DeviceOptions::DEPTH_MAX {
        return Err(ConnectError::Option {
            option: "depth",
            value: options.depth.into(),
            expected: "use 1 to 2048",
        });
    }
    Ok(())
}
