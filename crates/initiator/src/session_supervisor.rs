//! The thread that restores the sessions of a device after a loss, if each queue has a session of
//! its own.

use std::{
    fmt::Debug,
    sync::Arc,
    time::{Duration, Instant},
};

use crate::backoff::{BackoffDelays, sleep_while_running};
use crate::device_state::DeviceState;
use crate::mailbox::{Mailbox, Update};
use crate::queue_connection::QueueConnection;
use crate::socket::{Interest, sleep};
use crate::{Backoff, ConnectError, QueueError};

/// How sessions are made again.
pub(crate) trait SessionPlan: Debug + Send {
    /// The delays between attempts.
    fn backoff(&self) -> Backoff;

    /// Polls what carries connections whose owners may not poll it. Returns the time until the next
    /// call is due; `None` if it needs none.
    fn poll_idle(&self) -> Option<Duration> {
        None
    }

    /// Makes the session of queue `index` again, at the disk that was attached first, and updates
    /// `shared`.
    fn restore(
        &self,
        index: u16,
        shared: &DeviceState,
    ) -> Result<Box<dyn QueueConnection>, ConnectError>;
}

/// The state of the supervisor's thread.
#[derive(Debug)]
pub(crate) struct SessionSupervisor<P> {
    plan: P,
    shared: Arc<DeviceState>,
    sessions: Vec<QueueSession>,
}

/// The present session of a queue.
#[derive(Debug)]
struct QueueSession {
    mailbox: Arc<Mailbox>,
    /// The number of the session, from 1.
    generation: u64,
    has_ended: bool,
}

impl<P: SessionPlan> SessionSupervisor<P> {
    /// The number of a queue's first session.
    pub(crate) const FIRST_GENERATION: u64 = 1;

    pub(crate) fn new(plan: P, shared: Arc<DeviceState>, mailboxes: Vec<Arc<Mailbox>>) -> Self {
        let sessions = mailboxes.into_iter().map(|mailbox| QueueSession {
            mailbox,
            generation: Self::FIRST_GENERATION,
            has_ended: false,
        });
        Self {
            plan,
            shared,
            sessions: sessions.collect(),
        }
    }

    /// Restores lost sessions until the device is dropped.
    pub(crate) fn run(mut self) {
        loop {
            self.shared.supervisor.clear();
            if self.shared.is_stopping() {
                break;
            }
            if self.sessions.iter().any(QueueSession::needs_session) {
                self.restore();
                continue;
            }
            // If waiting fails, poll instead.
            let supervisor = [(self.shared.supervisor.descriptor(), Interest::Read)];
            if sleep(&supervisor, self.plan.poll_idle()).is_err() {
                sleep_while_running(&self.shared, Duration::from_millis(100));
            }
        }
        for session in &mut self.sessions {
            session.mailbox.close_connection();
            session.end(&QueueError::Detached);
        }
    }

    /// Logs in again for each queue that has lost its session. Returns when all have a session, the
    /// device is dropped, or [`crate::Backoff::give_up_after`] has passed.
    fn restore(&mut self) {
        if self.plan.backoff().give_up_after.is_zero() {
            return self.end_lost(&QueueError::Lost);
        }
        let began = Instant::now();
        let generation = self.sessions.iter().map(|session| session.generation).sum();
        let backoff = self.plan.backoff();
        let mut delays = BackoffDelays::new(backoff, generation);
        let lost = self
            .sessions
            .iter()
            .filter(|session| session.needs_session());
        let hold_offs = lost.map(|session| session.mailbox.take_hold_off(began));
        if let Some(longest) = hold_offs.max().filter(|it| !it.is_zero()) {
            // RFC 7143 §11.9: not before Time2Wait.
            sleep_while_running(&self.shared, longest);
            if self.shared.is_stopping() {
                return;
            }
        }
        while let Err(error) = self.restore_once() {
            let tried_for = began.elapsed();
            if tried_for >= backoff.give_up_after {
                let gave_up = QueueError::GaveUp {
                    tried_for,
                    last: Arc::new(error),
                };
                return self.end_lost(&gave_up);
            }
            sleep_while_running(&self.shared, delays.next_delay());
            if self.shared.is_stopping() {
                return;
            }
        }
    }

    /// Ends the queues that have no session.
    fn end_lost(&mut self, error: &QueueError) {
        let sessions = self.sessions.iter_mut();
        let lost = sessions.filter(|session| session.needs_session());
        lost.for_each(|session| session.end(error));
    }

    fn restore_once(&mut self) -> Result<(), ConnectError> {
        for index in 0..self.sessions.len() {
            if !self.sessions[index].needs_session() {
                continue;
            }
            let connection = self.plan.restore(index as u16, &self.shared)?;
            let session = &mut self.sessions[index];
            session.generation += 1;
            session.mailbox.deliver(Update::Connection {
                connection,
                generation: session.generation,
            });
        }
        Ok(())
    }
}

impl QueueSession {
    fn needs_session(&self) -> bool {
        !self.has_ended && !self.mailbox.is_abandoned() && self.mailbox.is_lost(self.generation)
    }

    fn end(&mut self, error: &QueueError) {
        if !self.has_ended {
            self.has_ended = true;
            self.mailbox.deliver(Update::End(error.clone()));
        }
    }
}
