//! In-band authentication of a queue: its commands, and the time that it may take.
//!
//! Read first: NVM Express Base 2.0, "Authentication Send Command" and "Authentication Receive
//! Command".
//!
//! Authentication Send is completed at once. Authentication Receive is kept while the power is
//! computed that its message needs.

use std::time::Instant;

use zeroize::Zeroizing;

use super::Queue;
use super::role::Role;
use crate::auth::{AuthOutcome, ControllerAuth, Seed};
use crate::controller::{Authentication, Backend, Completion, Demand, Limits, Reply, SlotId};
use crate::wire::auth::{AuthenticationSqe, MESSAGE_MAX_BYTES};
use crate::wire::fabrics::fctype;
use crate::wire::{Sqe, StatusCode};

/// The authentication of a queue, and of its controller if it is the admin queue.
#[derive(Debug)]
pub(super) struct QueueAuth {
    auth: ControllerAuth,
    /// The Authentication Receive that is kept, and the room that it has.
    waiting: Option<(SlotId, usize)>,
    deadline: Option<Instant>,
}

impl QueueAuth {
    /// Of a queue that has connected at `now`.
    pub(super) fn new(now: Instant, authentication: &Authentication) -> Box<Self> {
        let Authentication {
            demand,
            credentials,
            names,
            concatenation,
        } = authentication.clone();
        let auth = ControllerAuth::new(credentials, names).concatenating(concatenation);
        let (auth, deadline) = match demand {
            Demand::Required => (auth, Some(now + Limits::AUTHENTICATION_TIMEOUT)),
            Demand::Permitted => (auth.proven(), None),
        };
        Box::new(Self {
            auth,
            waiting: None,
            deadline,
        })
    }

    /// When the present authentication has to be over.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.deadline
    }

    /// The next message, padded to `room_bytes`, since hosts ask for more than it has.
    fn message<B: Backend>(&mut self, room_bytes: usize, backend: &mut B) -> Reply {
        if self.auth.is_deciding() {
            // A secret that was revoked since the authentication began proves nothing.
            self.auth.renew_credentials(backend.credentials());
        }
        match self.auth.poll_message(room_bytes) {
            Ok(mut message) => {
                message.resize(room_bytes, 0);
                Reply::Data(message)
            }
            Err(_) => Reply::Done(StatusCode::InvalidField.into()),
        }
    }
}

/// Whether a command is Authentication Send or Authentication Receive.
pub(super) fn is_authentication(sqe: &Sqe) -> bool {
    sqe.opcode == Sqe::OPCODE_FABRICS
        && matches!(
            sqe.fctype(),
            fctype::AUTHENTICATION_SEND | fctype::AUTHENTICATION_RECEIVE
        )
}

impl Queue {
    /// Executes an authentication command.
    pub(super) fn authenticate<B: Backend>(
        &mut self,
        id: SlotId,
        sqe: &Sqe,
        data: &[u8],
        backend: &mut B,
    ) {
        let command: AuthenticationSqe = zerocopy::transmute!(*sqe);
        let reply = if !command.is_authentication() || command.len_bytes.get() == 0 {
            Reply::Done(StatusCode::InvalidField.into())
        } else if command.fctype == fctype::AUTHENTICATION_SEND {
            self.receive_message(data, backend)
        } else {
            self.send_message(id, command.len_bytes.get() as usize, backend)
        };
        self.reply(id, reply);
        self.note_progress(backend);
    }

    fn receive_message<B: Backend>(&mut self, message: &[u8], backend: &mut B) -> Reply {
        let now = self.now;
        let Some(queue) = &mut self.auth else {
            return Reply::Done(StatusCode::InternalError.into());
        };
        if !queue.auth.is_in_progress() {
            queue.auth.renew_credentials(backend.credentials());
            let until = now + Limits::AUTHENTICATION_TIMEOUT;
            queue.deadline = Some(queue.deadline.map_or(until, |due| due.min(until)));
        }
        let mut random = Zeroizing::new([0; Seed::BYTES]);
        backend.random(&mut *random);
        if let Some(power) = queue.auth.handle_message(message, &Seed::new(*random))
            && !backend.compute(power)
        {
            queue.auth.handle_no_power();
        }
        Reply::Done(Completion::SUCCESS)
    }

    fn send_message<B: Backend>(
        &mut self,
        id: SlotId,
        allocation_bytes: usize,
        backend: &mut B,
    ) -> Reply {
        let slot = &self.slots[id.index()];
        let room_bytes = match slot.to_host {
            Ok(len_bytes) => allocation_bytes
                .min(len_bytes as usize)
                .min(MESSAGE_MAX_BYTES),
            Err(code) => return Reply::Done(code.into()),
        };
        let Some(queue) = &mut self.auth else {
            return Reply::Done(StatusCode::InternalError.into());
        };
        if let Some(power) = backend.poll_power() {
            queue.auth.handle_power(power);
        }
        if !queue.auth.is_computing() {
            return queue.message(room_bytes, backend);
        }
        if queue.waiting.is_some() {
            return Reply::Done(StatusCode::CommandSequenceError.into());
        }
        queue.waiting = Some((id, room_bytes));
        Reply::Hold
    }

    /// Completes the Authentication Receive that was kept, if its power has been computed.
    pub(super) fn continue_authentication<B: Backend>(&mut self, backend: &mut B) {
        let Some(queue) = &mut self.auth else {
            return;
        };
        if let Some(power) = backend.poll_power() {
            queue.auth.handle_power(power);
        }
        if queue.auth.is_computing() {
            return;
        }
        if let Some((id, room_bytes)) = queue.waiting.take() {
            let reply = queue.message(room_bytes, backend);
            self.reply(id, reply);
            self.note_progress(backend);
        }
    }

    /// Opens the queue if its host was authenticated, and closes it if that has failed.
    fn note_progress<B: Backend>(&mut self, backend: &mut B) {
        let Some(queue) = &mut self.auth else {
            return;
        };
        if let Some(outcome) = queue.auth.take_outcome() {
            backend.note_authentication(&outcome);
        }
        if let Some(key) = queue.auth.take_generated_key() {
            backend.keep_generated_key(&key);
        }
        self.is_ended |= queue.auth.is_failed();
        if !queue.auth.is_proven() {
            return;
        }
        if !queue.auth.is_in_progress() {
            queue.deadline = None;
        }
        if let Role::Unproven(connection) = &self.role {
            let connection = connection.clone();
            if connection.queue.is_admin() {
                backend.with_subsystem(|subsystem| subsystem.prove(connection.controller));
            }
            self.role = Role::of(connection);
        }
    }

    /// Ends a connection whose authentication has taken too long.
    pub(super) fn end_late_authentication<B: Backend>(&mut self, backend: &mut B) {
        let deadline = self.auth.as_ref().and_then(|queue| queue.deadline);
        if deadline.is_some_and(|due| due <= self.now) {
            backend.note_authentication(&AuthOutcome::TimedOut);
            self.auth = None;
            self.is_ended = true;
        }
    }
}
