//! iSCSI: one session of one connection per queue, and the thread that restores lost sessions.

mod credentials;
mod discover;
mod login;
mod queue_connection;

use std::{sync::Arc, thread};

use block::Geometry;
use scsi::host::{UnitFacts, io};

use self::login::{Plan, Restored};
use self::queue_connection::IscsiQueueConnection;
use crate::attached::{Attached, DeviceInfo};
use crate::device_state::DeviceState;
use crate::mailbox::{Mailbox, Update};
use crate::queue::{BlocksMax, QueueLimits};
use crate::session_supervisor::SessionSupervisor;
use crate::{ConnectError, DeviceOptions, Url};

pub use self::discover::{TargetRecord, discover_targets};

/// Bytes behind the caller's part of each buffer, for a block of zeros or the list of an UNMAP.
const TAIL_BYTES: usize = 4096;

/// Attaches to the logical unit that `url` names.
pub(crate) fn attach(url: &Url, options: &DeviceOptions) -> Result<Attached, ConnectError> {
    let resources = |source| ConnectError::Resources { source };
    let plan = Plan::new(url, options)?;
    let queues = url.queues().unwrap_or(options.queues);
    let mailboxes = Mailbox::several(queues).map_err(resources)?;
    let first = plan.attach(0)?;
    let (address, facts) = (first.address, first.facts.clone());
    let geometry = facts
        .geometry
        .expect("a set-up ends with the capacity known");
    let shared = Arc::new(DeviceState::new(geometry).map_err(resources)?);
    // All sessions log in before any queue gets a connection.
    let mut sessions = vec![first];
    for index in 1..queues {
        sessions.push(plan.attach(index)?);
    }
    for (mailbox, attached) in mailboxes.iter().zip(sessions) {
        let connection = IscsiQueueConnection::new(attached.connection, plan.lun(), options.depth);
        mailbox.deliver(Update::Connection {
            connection: Box::new(connection),
            generation: SessionSupervisor::<Restored>::FIRST_GENERATION,
        });
    }
    let limits = queue_limits(&facts, geometry, options);
    let info = DeviceInfo {
        model: format!("{} {}", facts.vendor, facts.product),
        serial: facts.serial.clone(),
        identifier: facts.designator.clone(),
        uuid: None,
        write_cache: facts.write_cache,
        is_write_protected: facts.is_write_protected,
        firmware: facts.revision.clone(),
        target: url.target().unwrap_or_default().to_owned(),
        address,
        controller_id: None,
        unit: u32::from(plan.lun()),
        queue_depth_max: DeviceOptions::DEPTH_MAX,
    };
    let plan = Restored { plan, facts };
    let supervisor = SessionSupervisor::new(plan, Arc::clone(&shared), mailboxes.clone());
    let supervisor = thread::Builder::new()
        .name("keep sessions".to_owned())
        .spawn(move || supervisor.run())
        .map_err(resources)?;
    Ok(Attached {
        info,
        shared,
        mailboxes,
        limits,
        supervisor,
    })
}

/// The limits of a queue whose logical unit has `facts` and `geometry`.
fn queue_limits(facts: &UnitFacts, geometry: Geometry, options: &DeviceOptions) -> QueueLimits {
    let limits = &facts.limits;
    let block_bytes = 1 << geometry.block_size.shift();
    let transfer_max_bytes = limits.transfer_blocks.saturating_mul(block_bytes);
    QueueLimits {
        depth: options.depth,
        transfer_max_bytes: options
            .buffer_bytes
            .min(usize::try_from(transfer_max_bytes).unwrap_or(usize::MAX)),
        spare_slots: 1,
        tail_bytes: TAIL_BYTES,
        blocks_max: BlocksMax {
            data: limits.transfer_blocks.min(io::BLOCKS_MAX),
            durable: if facts.has_forced_writes {
                limits.transfer_blocks.min(io::BLOCKS_MAX)
            } else {
                0
            },
            verify: limits.transfer_blocks.min(io::BLOCKS_MAX),
            compare: limits.transfer_blocks.min(io::BLOCKS_MAX),
            zeroes: limits.write_same_blocks.min(io::BLOCKS_MAX),
            deallocate: limits.unmap_blocks.min(io::BLOCKS_MAX),
            compare_and_write: limits
                .compare_and_write_blocks
                .min(io::COMPARE_AND_WRITE_BLOCKS_MAX),
        },
    }
}

const _: () = assert!(io::UNMAP_LIST_BYTES <= TAIL_BYTES);
