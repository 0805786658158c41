//! Setting up the logical unit of a session, and finding it again after a loss.

use std::{net::SocketAddr, thread, time::Duration};

use scsi::host::{Command, Outcome, Setup, SetupStep, UnitFacts};
use session::Buffers;

use super::queue_connection::ScsiQueueConnection;
use super::{ScsiConnection, ScsiPlan};
use crate::device_state::DeviceState;
use crate::queue_connection::QueueConnection;
use crate::session_connection::wait_outcome;
use crate::session_supervisor::SessionPlan;
use crate::{Backoff, ConnectError, ConnectionError};

/// A session whose logical unit is ready.
#[derive(Debug)]
pub(super) struct ReadySession<C> {
    pub(super) address: SocketAddr,
    pub(super) connection: C,
    pub(super) facts: UnitFacts,
}

/// How sessions with the unit that was attached first are made again.
#[derive(Debug)]
pub(super) struct Restored<P> {
    pub(super) plan: P,
    pub(super) facts: UnitFacts,
}

impl<P: ScsiPlan> SessionPlan for Restored<P> {
    fn backoff(&self) -> Backoff {
        self.plan.options().backoff
    }

    fn poll_idle(&self) -> Option<Duration> {
        self.plan.poll_idle()
    }

    fn restore(
        &self,
        index: u16,
        shared: &DeviceState,
    ) -> Result<Box<dyn QueueConnection>, ConnectError> {
        let session = set_up(&self.plan, index)?;
        let (before, now) = (&self.facts, &session.facts);
        let block_size = |facts: &UnitFacts| facts.geometry.map(|it| it.block_size);
        let is_same = before.designator == now.designator
            && before.serial == now.serial
            && block_size(before) == block_size(now);
        let lun = self.plan.url().lun();
        if !is_same {
            return Err(ConnectError::ReplacedUnit {
                address: session.address,
                lun,
            });
        }
        if let Some(geometry) = now.geometry {
            shared.set_blocks(geometry.blocks);
        }
        let depth = self.plan.options().depth;
        let connection = ScsiQueueConnection::new(session.connection, lun, depth);
        Ok(Box::new(connection))
    }
}

/// Logs in the session of queue `index` and sets its logical unit up.
pub(super) fn set_up<P: ScsiPlan>(
    plan: &P,
    index: u16,
) -> Result<ReadySession<P::Connection>, ConnectError> {
    let (address, mut connection) = plan.log_in(index)?;
    let lost = |source| ConnectError::Session { address, source };
    let timeout = plan.options().connect_timeout;
    let mut buffers = Buffers::new(1, Setup::BUFFER_BYTES);
    let mut setup = Setup::new(plan.url().lun());
    loop {
        match setup.poll() {
            SetupStep::Submit(command) => {
                let outcome =
                    execute(&mut connection, &mut buffers, &command, timeout).map_err(lost)?;
                setup
                    .handle_outcome(&outcome, buffers.slot(Setup::SLOT))
                    .map_err(|source| ConnectError::Unit { address, source })?;
            }
            SetupStep::Wait { for_ms } => thread::sleep(Duration::from_millis(for_ms.into())),
            SetupStep::Done => break,
        }
    }
    Ok(ReadySession {
        address,
        connection,
        facts: setup.facts().clone(),
    })
}

/// Submits a command and waits for its outcome.
fn execute<C: ScsiConnection>(
    connection: &mut C,
    buffers: &mut Buffers,
    command: &Command,
    timeout: Duration,
) -> Result<Outcome, ConnectionError> {
    if !connection.submit(Setup::KEY, command, buffers) {
        return Err(ConnectionError::Closed);
    }
    wait_outcome(connection, buffers, timeout)
}
