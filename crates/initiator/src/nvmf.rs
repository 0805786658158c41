//! NVMe over Fabrics: an association of an admin queue and I/O queues, over TCP or RDMA, and
//! the thread that keeps it alive.

mod association;
mod authentication;
mod discover;
mod identity;
mod queue_connection;
mod rdma;
mod supervisor;
mod tcp;
mod transport;

use std::net::SocketAddr;
use std::sync::Arc;
use std::thread;

use block::WriteCache;
use nvme::host::{CommandKey, ControllerFacts, Fused, NamespaceFacts, Purpose, io};
use nvme::wire::Nsid;

use self::association::{IoQueueConfig, Plan};
use self::queue_connection::NvmeQueueConfig;
use self::supervisor::Supervisor;
use self::transport::Transport;
use crate::attached::{Attached, DeviceInfo};
use crate::device_state::DeviceState;
use crate::mailbox::Mailbox;
use crate::queue::{BlocksMax, QueueLimits};
use crate::{ConnectError, DeviceOptions, Url};

pub use self::discover::{DiscoveryRecord, RecordKind, discover};
pub(crate) use self::identity::host_nqn;
pub(crate) use self::rdma::Rdma;
pub(crate) use self::tcp::Tcp;

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
    let resources = |source| ConnectError::Resources { source };
    let shared = Arc::new(DeviceState::new(namespace.geometry).map_err(resources)?);
    let mailboxes = Mailbox::several(admin.facts.io_queues).map_err(resources)?;
    let block_shift = namespace.geometry.block_size.shift();
    let limits = queue_limits::<T>(controller, block_shift, options, depth);
    let info = device_info(controller, &namespace, admin.address, queue_depth_max);
    let mut supervisor = Supervisor {
        plan,
        shared: Arc::clone(&shared),
        mailboxes: mailboxes.clone(),
        io: IoQueueConfig {
            depth,
            keys: match controller.fused {
                Fused::Unsupported => depth,
                // The second command of a fused pair has a key of its own.
                Fused::CompareAndWrite => depth * 2,
            },
            buffer_bytes: options.buffer_bytes + limits.tail_bytes,
        },
        config: NvmeQueueConfig {
            nsid,
            second_keys: CommandKey(depth),
        },
        namespace,
        generation: 0,
    };
    supervisor.deliver_connections(&admin)?;
    let supervisor = thread::Builder::new()
        .name(format!("keep ns {nsid}"))
        .spawn(move || supervisor.run(admin))
        .map_err(resources)?;
    Ok(Attached {
        info,
        shared,
        mailboxes,
        limits,
        supervisor,
    })
}

/// The limits of a queue of `depth` slots at `controller`, for a namespace of blocks of
/// `1 << block_shift` bytes.
fn queue_limits<T: Transport>(
    controller: &ControllerFacts,
    block_shift: u32,
    options: &DeviceOptions,
    depth: u16,
) -> QueueLimits {
    let transfer_max_bytes = controller
        .transfer_max_bytes
        .unwrap_or(u64::MAX)
        .min(T::TRANSFER_MAX_BYTES);
    let blocks = |limit_bytes: Option<u64>| {
        limit_bytes.map_or(io::BLOCKS_MAX, |bytes| {
            (bytes >> block_shift).min(io::BLOCKS_MAX)
        })
    };
    let deallocate = controller.deallocate_max_blocks.unwrap_or(u64::MAX);
    QueueLimits {
        depth,
        transfer_max_bytes: options
            .buffer_bytes
            .min(usize::try_from(transfer_max_bytes).unwrap_or(usize::MAX)),
        spare_slots: 0,
        // The list of a deallocate.
        tail_bytes: io::DEALLOCATE_RANGE_BYTES,
        blocks_max: BlocksMax {
            data: io::BLOCKS_MAX,
            durable: io::BLOCKS_MAX,
            verify: blocks(controller.verify_max_bytes),
            compare: io::BLOCKS_MAX,
            zeroes: blocks(controller.write_zeroes_max_bytes),
            deallocate: deallocate.min(io::DEALLOCATE_BLOCKS_MAX),
            compare_and_write: match controller.fused {
                Fused::Unsupported => 0,
                Fused::CompareAndWrite => io::BLOCKS_MAX,
            },
        },
    }
}

/// Describes an attached namespace.
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
        uuid: namespace.uuid,
        write_cache: if controller.has_volatile_write_cache {
            WriteCache::Volatile
        } else {
            WriteCache::Absent
        },
        is_write_protected: namespace.is_write_protected,
        firmware: controller.firmware.clone(),
        target: controller.subsystem_nqn.clone(),
        address,
        controller_id: Some(controller.id),
        unit: namespace.nsid.0,
        queue_depth_max,
    }
}
