//! NVMe over Fabrics: an association of an admin queue and I/O queues, and the thread that keeps it, over TCP or RDMA.

mod association;
mod discover;
mod identity;
mod keeper;
mod line;
mod rdma;
mod tcp;
mod transport;

use std::net::SocketAddr;
use std::sync::Arc;
use std::thread::{self, JoinHandle};

use nvme::host::{CommandKey, ControllerFacts, Fused, NamespaceFacts, Purpose, io};
use nvme::wire::Nsid;

use self::association::{IoTerms, Plan};
use self::keeper::Keeper;
use self::line::{NvmeLine, NvmeTerms};
use self::transport::Transport;
use crate::device::Attached;
use crate::mailbox::{Mailbox, Shared};
use crate::queue::{BlocksMax, QueueTerms};
use crate::{ConnectError, DeviceInfo, DeviceOptions, Url};

pub use self::discover::{DiscoveryRecord, RecordKind, discover};
pub(crate) use self::rdma::Rdma;
pub use self::rdma::RdmaError;
pub(crate) use self::tcp::Tcp;
pub(crate) use self::transport::NvmeConnection;

/// An I/O queue's connection over TCP.
pub(crate) type NvmeTcpLine = NvmeLine<<Tcp as Transport>::Connection>;
/// An I/O queue's connection over RDMA.
pub(crate) type NvmeRdmaLine = NvmeLine<<Rdma as Transport>::Connection>;

/// Attaches to the namespace that `url` names.
pub(crate) fn attach<T: Transport>(
    url: &Url,
    options: &DeviceOptions,
) -> Result<Attached, ConnectError> {
    let mut plan = Plan::<T>::new(url, options)?;
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
    let (keys, compare_and_write) = match controller.fused {
        Fused::Unsupported => (depth, 0),
        Fused::CompareAndWrite => (depth * 2, io::BLOCKS_MAX),
    };
    let resources = |source| ConnectError::Resources { source };
    let shared = Arc::new(Shared::new(namespace.geometry).map_err(resources)?);
    let mailboxes = Mailbox::several(admin.facts.io_queues).map_err(resources)?;
    let transfer_max_bytes = controller
        .transfer_max_bytes
        .unwrap_or(u64::MAX)
        .min(T::TRANSFER_MAX_BYTES);
    let terms = QueueTerms {
        depth,
        transfer_max_bytes: options
            .buffer_bytes
            .min(usize::try_from(transfer_max_bytes).unwrap_or(usize::MAX)),
        spare_slots: 0,
        // The list of a deallocate.
        tail_bytes: io::DEALLOCATE_RANGE_BYTES,
        blocks_max: BlocksMax {
            data: io::BLOCKS_MAX,
            verify: io::BLOCKS_MAX,
            zeroes: io::BLOCKS_MAX,
            deallocate: io::DEALLOCATE_BLOCKS_MAX,
            compare_and_write,
        },
    };
    let info = device_info(controller, &namespace, admin.address, queue_depth_max);
    let mut keeper = Keeper {
        plan,
        shared: Arc::clone(&shared),
        mailboxes: mailboxes.clone(),
        io: IoTerms {
            depth,
            keys,
            buffer_bytes: options.buffer_bytes + terms.tail_bytes,
        },
        terms: NvmeTerms {
            nsid,
            second_keys: CommandKey(depth),
        },
        namespace,
        generation: 0,
    };
    keeper.deliver_connections(&admin)?;
    let keeper: JoinHandle<()> = thread::Builder::new()
        .name(format!("keep ns {nsid}"))
        .spawn(move || keeper.run(admin))
        .map_err(resources)?;
    Ok(Attached {
        info,
        shared,
        mailboxes,
        terms,
        keeper,
    })
}

/// What is told of a namespace that is attached.
fn device_info(
    controller: &ControllerFacts,
    namespace: &NamespaceFacts,
    address: SocketAddr,
    queue_depth_max: u16,
) -> DeviceInfo {
    DeviceInfo {
        model: controller.model.clone(),
        serial: controller.serial.clone(),
        identifier: namespace.nguid.to_vec(),
        firmware: controller.firmware.clone(),
        target: controller.subsystem_nqn.clone(),
        address,
        controller_id: Some(controller.id),
        unit: namespace.nsid.0,
        queue_depth_max,
    }
}
