//! iSCSI: a session per queue, each of one connection, and the thread that makes them again after a loss.

mod credentials;
mod discover;
mod keeper;
mod line;
mod login;

use std::{net::SocketAddr, sync::Arc, thread};

use scsi::host::{UnitFacts, io};

use self::keeper::Keeper;
use self::login::Plan;
use crate::device::Attached;
use crate::line::Line;
use crate::mailbox::{Letter, Mailbox, Shared};
use crate::queue::{BlocksMax, QueueTerms};
use crate::{ConnectError, DeviceInfo, DeviceOptions, Url};

pub use self::discover::{TargetRecord, discover_targets};
pub(crate) use self::line::IscsiLine;

/// Bytes behind the caller's part of each buffer: a block of zeros, or the list of an UNMAP.
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
    let shared = Arc::new(Shared::new(geometry).map_err(resources)?);
    // All sessions come up before any queue is given out.
    let mut sessions = vec![first];
    for index in 1..queues {
        sessions.push(plan.attach(index)?);
    }
    for (mailbox, attached) in mailboxes.iter().zip(sessions) {
        let line = IscsiLine::new(attached.connection, plan.lun(), options.depth);
        mailbox.deliver(Letter::Connection {
            line: Box::new(Line::Iscsi(line)),
            generation: Keeper::FIRST_GENERATION,
        });
    }
    let shift = geometry.block_size.shift();
    let limits = facts.limits;
    let transfer_max_bytes = limits.transfer_blocks.saturating_mul(1 << shift);
    let terms = QueueTerms {
        depth: options.depth,
        transfer_max_bytes: options
            .buffer_bytes
            .min(usize::try_from(transfer_max_bytes).unwrap_or(usize::MAX)),
        spare_slots: 1,
        tail_bytes: TAIL_BYTES,
        blocks_max: BlocksMax {
            data: limits.transfer_blocks.min(io::BLOCKS_MAX),
            verify: limits.transfer_blocks.min(io::BLOCKS_MAX),
            zeroes: limits.write_same_blocks.min(io::BLOCKS_MAX),
            deallocate: limits.unmap_blocks.min(io::BLOCKS_MAX),
            compare_and_write: limits
                .compare_and_write_blocks
                .min(io::COMPARE_AND_WRITE_BLOCKS_MAX),
        },
    };
    let info = device_info(url, &plan, address, &facts);
    let keeper = Keeper::new(plan, Arc::clone(&shared), mailboxes.clone(), facts);
    let keeper = thread::Builder::new()
        .name("keep sessions".to_owned())
        .spawn(move || keeper.run())
        .map_err(resources)?;
    Ok(Attached {
        info,
        shared,
        mailboxes,
        terms,
        keeper,
    })
}

/// What is told of a logical unit that is attached.
fn device_info(url: &Url, plan: &Plan, address: SocketAddr, facts: &UnitFacts) -> DeviceInfo {
    DeviceInfo {
        model: format!("{} {}", facts.vendor, facts.product),
        serial: facts.serial.clone(),
        identifier: facts.designator.clone(),
        firmware: facts.revision.clone(),
        target: url.target().unwrap_or_default().to_owned(),
        address,
        controller_id: None,
        unit: u32::from(plan.lun()),
        queue_depth_max: crate::Device::DEPTH_MAX,
    }
}

const _: () = assert!(io::UNMAP_LIST_BYTES <= TAIL_BYTES);
