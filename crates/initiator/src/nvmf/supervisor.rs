//! The thread that keeps a device's association: keep-alives, events, reconnection after a loss.

use std::{
    iter, mem,
    sync::Arc,
    time::{Duration, Instant},
};

use nvme::host::{
    Buffers, Command, NamespaceFacts, Outcome, Renewal, Upkeep, UpkeepConfig, UpkeepEvent,
};

use super::association::{Admin, IoQueueConfig, Plan, connection_error};
use super::queue_connection::{NvmeQueueConfig, NvmeQueueConnection};
use super::transport::{NvmeConnection, Transport};
use crate::backoff::{BackoffDelays, sleep_while_running};
use crate::device_state::DeviceState;
use crate::error::QueueName;
use crate::mailbox::{Mailbox, Update};
use crate::session_connection::SessionConnection as _;
use crate::{ConnectError, ConnectionError, QueueError};

/// The state of the supervisor's thread.
#[derive(Debug)]
pub(crate) struct Supervisor<T: Transport> {
    pub(crate) plan: Plan<T>,
    pub(crate) shared: Arc<DeviceState>,
    pub(crate) mailboxes: Vec<Arc<Mailbox>>,
    /// The parameters of the I/O queues, which stay the same in each association.
    pub(crate) io: IoQueueConfig,
    pub(crate) config: NvmeQueueConfig,
    pub(crate) namespace: NamespaceFacts,
    /// The number of the present association, from 1.
    pub(crate) generation: u64,
}

/// The longest sleep if nothing is due.
const SLEEP_MAX: Duration = Duration::from_secs(3600);

/// What keeps an association.
struct Work {
    upkeep: Upkeep,
    renewal: Renewal,
}

/// Why serving an association ended.
enum End {
    Stopped,
    Lost,
}

impl<T: Transport> Supervisor<T> {
    /// Keeps the association until the device is dropped or reconnecting is given up.
    pub(crate) fn run(mut self, admin: Admin<T::Connection>) {
        let mut admin = admin;
        loop {
            let end = self.serve(&mut admin);
            for mailbox in &self.mailboxes {
                mailbox.close_connection();
            }
            if let End::Stopped = end {
                self.end(&QueueError::Detached);
                return admin.shut_down();
            }
            drop(admin);
            admin = match self.associate_again() {
                Ok(next) => next,
                Err(error) => return self.end(&error),
            };
        }
    }

    /// Makes the I/O connections of a new association and delivers them.
    pub(crate) fn deliver_connections(
        &mut self,
        admin: &Admin<T::Connection>,
    ) -> Result<(), ConnectError> {
        self.generation += 1;
        // Deliver all or none, so that no queue uses an association that could not be completed.
        let mut connections = Vec::with_capacity(self.mailboxes.len());
        for (mailbox, queue_id) in self.mailboxes.iter().zip(1..) {
            let connection = if mailbox.is_abandoned() {
                None
            } else {
                Some(self.plan.connect_io(admin, queue_id, &self.io)?)
            };
            connections.push(connection);
        }
        for (mailbox, connection) in self.mailboxes.iter().zip(connections) {
            if let Some(connection) = connection {
                let connection = NvmeQueueConnection::new(connection, self.config, self.io.depth);
                mailbox.deliver(Update::Connection {
                    connection: Box::new(connection),
                    generation: self.generation,
                });
            }
        }
        Ok(())
    }

    fn end(&self, error: &QueueError) {
        for mailbox in &self.mailboxes {
            mailbox.deliver(Update::End(error.clone()));
        }
    }

    /// Serves the admin queue until the association is lost or the device is dropped.
    fn serve(&mut self, admin: &mut Admin<T::Connection>) -> End {
        let began = Instant::now();
        let config = UpkeepConfig {
            keep_alive_timeout: self.plan.options.keep_alive,
            nsid: self.namespace.nsid,
        };
        let mut work = Work {
            upkeep: Upkeep::new(began, config),
            renewal: self.plan.renewal(began, admin),
        };
        loop {
            self.shared.supervisor.clear();
            if self.shared.is_stopping() {
                return End::Stopped;
            }
            if self.is_lost() {
                return End::Lost;
            }
            if self.turn(&mut work, admin).is_err() {
                return End::Lost;
            }
            let now = Instant::now();
            let due = [work.upkeep.poll_timeout(), work.renewal.poll_timeout()];
            let until_due = due.map(|at| Some(at?.saturating_duration_since(now)));
            let until_poll = self.plan.transport.poll_idle();
            let timeouts = until_due.into_iter().chain([until_poll]);
            let timeout = timeouts.flatten().min();
            let also = Some(self.shared.supervisor.descriptor());
            let slept = admin
                .connection
                .wait_input(also, timeout.unwrap_or(SLEEP_MAX));
            if slept.is_err() {
                return End::Lost;
            }
        }
    }

    /// Whether any connection of the association was lost: it ends as a whole.
    fn is_lost(&self) -> bool {
        let mut mailboxes = self.mailboxes.iter();
        mailboxes.any(|mailbox| mailbox.is_lost(self.generation))
    }

    fn turn(
        &mut self,
        work: &mut Work,
        admin: &mut Admin<T::Connection>,
    ) -> Result<(), ConnectError> {
        let address = admin.address;
        let failed = |source| connection_error(address, QueueName::ADMIN, source);
        loop {
            let now = Instant::now();
            let place = (address, &mut admin.buffers);
            let renewal = self.plan.poll_renewal(now, &mut work.renewal, place)?;
            let outcomes = submit_due(now, &mut work.upkeep, renewal, admin).map_err(failed)?;
            if outcomes.is_empty() {
                return Ok(());
            }
            for outcome in outcomes {
                self.settle(now, work, &outcome, &admin.buffers)
                    .map_err(failed)?;
            }
        }
    }

    fn settle(
        &self,
        now: Instant,
        work: &mut Work,
        outcome: &Outcome,
        buffers: &Buffers,
    ) -> Result<(), ConnectionError> {
        if outcome.key == Renewal::KEY {
            return Ok(work.renewal.handle_outcome(outcome, buffers)?);
        }
        match work.upkeep.handle_outcome(now, outcome, buffers)? {
            Some(UpkeepEvent::Namespace(facts)) => {
                self.shared.set_blocks(facts.geometry.blocks);
            }
            // Commands report a removed namespace. A discovery log does not concern a namespace.
            Some(UpkeepEvent::NamespaceGone | UpkeepEvent::DiscoveryLog) | None => {}
        }
        Ok(())
    }

    /// Tries to associate until it succeeds, the device is dropped, or
    /// [`crate::Backoff::give_up_after`] has passed.
    fn associate_again(&mut self) -> Result<Admin<T::Connection>, QueueError> {
        if self.plan.options.backoff.give_up_after.is_zero() {
            return Err(QueueError::Lost);
        }
        let began = Instant::now();
        let mut delays = BackoffDelays::new(self.plan.options.backoff, self.generation);
        loop {
            if self.shared.is_stopping() {
                return Err(QueueError::Detached);
            }
            let error = match self.associate_once() {
                Ok(admin) => return Ok(admin),
                Err(error) => error,
            };
            let tried_for = began.elapsed();
            if tried_for >= self.plan.options.backoff.give_up_after {
                return Err(QueueError::GaveUp {
                    tried_for,
                    last: Arc::new(error),
                });
            }
            sleep_while_running(&self.shared, delays.next_delay());
        }
    }

    fn associate_once(&mut self) -> Result<Admin<T::Connection>, ConnectError> {
        let queues = self.mailboxes.len() as u16;
        let admin = self.plan.connect_admin(nvme::host::Purpose::Io {
            nsid: self.namespace.nsid,
            queues,
        })?;
        let address = admin.address;
        let facts = &admin.facts;
        if facts.io_queues < queues {
            return Err(ConnectError::FewerQueues {
                address,
                granted: facts.io_queues,
                needed: queues,
            });
        }
        let is_same = facts.namespace.is_some_and(|now| {
            let before = &self.namespace;
            now.nguid == before.nguid
                && now.uuid == before.uuid
                && now.geometry.block_size == before.geometry.block_size
        });
        if !is_same {
            return Err(ConnectError::Replaced {
                address,
                nsid: self.namespace.nsid.0,
            });
        }
        self.deliver_connections(&admin)?;
        if let Some(now) = &admin.facts.namespace {
            self.shared.set_blocks(now.geometry.blocks);
        }
        Ok(admin)
    }
}

/// Submits what is due and takes a turn. Returns what has ended.
fn submit_due<C: NvmeConnection>(
    now: Instant,
    upkeep: &mut Upkeep,
    renewal: Option<Command>,
    admin: &mut Admin<C>,
) -> Result<Vec<Outcome>, ConnectionError> {
    upkeep.check(now)?;
    let renewal = renewal.map(|command| (Renewal::KEY, command));
    let due = iter::from_fn(|| upkeep.poll_command(now));
    for (key, command) in due.chain(renewal) {
        let submitted = admin.connection.submit(key, &command, &admin.buffers);
        submitted.map_err(|_| ConnectionError::Closed)?;
    }
    admin.connection.turn(&mut admin.buffers)?;
    Ok(mem::take(admin.connection.outcomes()))
}
