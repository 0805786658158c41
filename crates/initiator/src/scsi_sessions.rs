//! SCSI: a session per queue, whatever carries its commands, and the set-up of its logical unit.

mod queue_connection;
mod setup;

use std::{fmt::Debug, net::SocketAddr, sync::Arc, thread, time::Duration};

use block::Geometry;
use scsi::host::{Command, CommandKey, Outcome, ReceivedSense, UnitFacts, io};
use session::Buffers;

use self::queue_connection::ScsiQueueConnection;
use self::setup::{Restored, set_up};
use crate::attached::{Attached, DeviceInfo};
use crate::device_state::DeviceState;
use crate::mailbox::{Mailbox, Update};
use crate::queue::{BlocksMax, QueueLimits};
use crate::queue_connection::TimeoutAction;
use crate::session_connection::SessionConnection;
use crate::session_supervisor::SessionSupervisor;
use crate::{ConnectError, DeviceOptions, Url};

/// Bytes behind the caller's part of each buffer, for a block of zeros or the list of an UNMAP.
pub(crate) const TAIL_BYTES: usize = 4096;
/// Keys and buffers of a session beside those of the slots, for its own commands.
pub(crate) const OWN_KEYS: u16 = 1;

/// A connection that carries the commands of one session.
pub(crate) trait ScsiConnection: SessionConnection<Outcome = Outcome> {
    /// Takes a command. Returns whether there was room.
    fn submit(&mut self, key: CommandKey, command: &Command, buffers: &Buffers) -> bool;

    /// Asks the target to abort a command that takes too long.
    fn abort(&mut self, key: CommandKey) -> TimeoutAction;

    /// The next thing that the target has said besides outcomes.
    fn poll_event(&mut self) -> Option<ScsiEvent>;

    /// Ends the session.
    fn log_out(&mut self);

    /// Asks the target whether it is there.
    fn ping(&mut self) -> Ping;

    /// How many messages have come. While the number does not change, the target is silent.
    fn heard(&self) -> u64;
}

/// Something that a target says besides outcomes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ScsiEvent {
    /// An event of the logical unit.
    Sense(ReceivedSense),
    /// The session has been logged out.
    LoggedOut,
}

/// How a target is asked whether it is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ping {
    /// A message of the protocol was queued.
    Sent,
    /// The protocol has no such message, but a target answers any command.
    ByCommand,
}

/// How the sessions of a device are made.
pub(crate) trait ScsiPlan: Debug + Send + 'static {
    /// What carries the commands.
    type Connection: ScsiConnection + 'static;

    /// What to attach to.
    fn url(&self) -> &Url;

    /// How to attach to it.
    fn options(&self) -> &DeviceOptions;

    /// Logs in the session of queue `index`, with keys for each slot and [`OWN_KEYS`] more.
    fn log_in(&self, index: u16) -> Result<(SocketAddr, Self::Connection), ConnectError>;

    /// See [`SessionPlan::poll_idle`](crate::session_supervisor::SessionPlan::poll_idle).
    fn poll_idle(&self) -> Option<Duration> {
        None
    }
}

/// Attaches to the logical unit that the plan's URL names.
pub(crate) fn attach<P: ScsiPlan>(plan: P) -> Result<Attached, ConnectError> {
    let resources = |source| ConnectError::Resources { source };
    let options = *plan.options();
    let queues = plan.url().queues().unwrap_or(options.queues);
    let mailboxes = Mailbox::several(queues).map_err(resources)?;
    let first = set_up(&plan, 0)?;
    let (address, facts) = (first.address, first.facts.clone());
    let geometry = facts
        .geometry
        .expect("a set-up ends with the capacity known");
    let shared = Arc::new(DeviceState::new(geometry).map_err(resources)?);
    // All sessions log in before any queue gets a connection.
    let mut sessions = vec![first];
    for index in 1..queues {
        sessions.push(set_up(&plan, index)?);
    }
    let lun = plan.url().lun();
    for (mailbox, session) in mailboxes.iter().zip(sessions) {
        let connection = ScsiQueueConnection::new(session.connection, lun, options.depth);
        mailbox.deliver(Update::Connection {
            connection: Box::new(connection),
            generation: SessionSupervisor::<Restored<P>>::FIRST_GENERATION,
        });
    }
    let limits = queue_limits(&facts, geometry, &options);
    let info = device_info(plan.url(), address, &facts);
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

fn device_info(url: &Url, address: SocketAddr, facts: &UnitFacts) -> DeviceInfo {
    DeviceInfo {
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
        unit: u32::from(url.lun()),
        queue_depth_max: DeviceOptions::DEPTH_MAX,
    }
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
        spare_slots: OWN_KEYS,
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
