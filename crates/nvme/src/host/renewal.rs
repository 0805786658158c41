//! Authenticating an admin queue again while its association is in use.
//!
//! Read first: NVM Express Base 2.0, "NVMe In-band Authentication". Commands go on meanwhile. A
//! controller that rejects the host ends the connection.
//!
//! ```text
//!  Waiting ── is_due: begin ─► Running ─┬─ poll: Submit … handle_outcome
//!     ▲                                 │
//!     └────────── poll: Done ◄──────────┘     an error ends the association
//! ```

use std::time::{Duration, Instant};

use super::{Authenticator, AuthenticatorStep, Buffers, Command, CommandKey, Outcome, Upkeep};
use crate::auth::{GeneratedKey, HostAuthError};
use crate::wire::Status;

/// Says when to authenticate an admin queue again, and carries that out one command at a time.
#[derive(Debug)]
pub struct Renewal {
    interval: Option<Duration>,
    state: State,
}

#[derive(Debug)]
enum State {
    Never,
    Waiting {
        until: Instant,
    },
    Running {
        authenticator: Box<Authenticator>,
        is_in_flight: bool,
        until: Instant,
        timeout: Duration,
    },
}

/// The next thing to do.
#[derive(Debug, PartialEq, Eq)]
pub enum RenewalStep {
    /// Nothing at present.
    Idle,
    /// Submit this under [`Renewal::KEY`], and hand its outcome to [`Renewal::handle_outcome`].
    Submit(Command),
    /// The queue is authenticated again; with the key for TLS, if the authentication has generated
    /// one.
    Done(Option<GeneratedKey>),
}

/// Why the association has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RenewalError {
    /// One side did not prove its secret, or broke the protocol.
    #[error("authenticating again failed: {0}")]
    Authentication(HostAuthError),
    /// The controller rejected a command.
    #[error("authenticating again failed: {status}")]
    Refused {
        /// Its status.
        status: Status,
    },
    /// The controller did not answer in time.
    #[error("authenticating again failed: no response within {timeout:?}")]
    Silent {
        /// How long it had for all messages.
        timeout: Duration,
    },
}

impl Renewal {
    /// The key of every command, behind those of [`Upkeep`]; its number is that of the slot.
    pub const KEY: CommandKey = CommandKey(Upkeep::KEYS);
    /// Keys of an admin queue with [`Upkeep`] and this.
    pub const KEYS: u16 = Upkeep::KEYS + 1;
    /// What the buffer has to hold.
    pub const BUFFER_BYTES: usize = Authenticator::BUFFER_BYTES;

    /// Of a queue that was authenticated at `now`, and is to be again each time `interval` has
    /// passed; never without one.
    pub fn new(now: Instant, interval: Option<Duration>) -> Self {
        let mut renewal = Self {
            interval,
            state: State::Never,
        };
        renewal.schedule(now);
        renewal
    }

    /// Whether the caller has to [`begin`](Self::begin).
    pub fn is_due(&self, now: Instant) -> bool {
        matches!(self.state, State::Waiting { until } if until <= now)
    }

    /// Begins with `authenticator`. All messages together may take `timeout`.
    pub fn begin(&mut self, now: Instant, authenticator: Authenticator, timeout: Duration) {
        self.state = State::Running {
            authenticator: Box::new(authenticator),
            is_in_flight: false,
            until: now + timeout,
            timeout,
        };
    }

    /// The next step. Fills the buffer of [`Self::KEY`]'s slot with a message to send.
    pub fn poll(
        &mut self,
        now: Instant,
        buffers: &mut Buffers,
    ) -> Result<RenewalStep, RenewalError> {
        let State::Running {
            authenticator,
            is_in_flight,
            until,
            timeout,
        } = &mut self.state
        else {
            return Ok(RenewalStep::Idle);
        };
        if *until <= now {
            return Err(RenewalError::Silent { timeout: *timeout });
        }
        if *is_in_flight {
            return Ok(RenewalStep::Idle);
        }
        let slot = Self::KEY.0;
        let step = authenticator.poll(slot, buffers.slot_mut(slot));
        match step.map_err(RenewalError::Authentication)? {
            AuthenticatorStep::Submit(command) => {
                *is_in_flight = true;
                Ok(RenewalStep::Submit(command))
            }
            AuthenticatorStep::Done => {
                let key = authenticator.generated_key().cloned();
                self.schedule(now);
                Ok(RenewalStep::Done(key))
            }
        }
    }

    /// When [`is_due`](Self::is_due) or [`poll`](Self::poll) has something to say next.
    pub fn poll_timeout(&self) -> Option<Instant> {
        match self.state {
            State::Never => None,
            State::Waiting { until } | State::Running { until, .. } => Some(until),
        }
    }

    /// The command has ended.
    pub fn handle_outcome(
        &mut self,
        outcome: &Outcome,
        buffers: &Buffers,
    ) -> Result<(), RenewalError> {
        if let State::Running {
            authenticator,
            is_in_flight,
            ..
        } = &mut self.state
        {
            *is_in_flight = false;
            authenticator
                .handle_outcome(outcome, buffers.slot(Self::KEY.0))
                .map_err(|status| RenewalError::Refused { status })?;
        }
        Ok(())
    }

    fn schedule(&mut self, now: Instant) {
        self.state = match self.interval {
            Some(interval) => State::Waiting {
                until: now + interval,
            },
            None => State::Never,
        };
    }
}

#[cfg(test)]
mod tests;
