//! The Abort command, which requests that a command be ended early. This is best effort.
//!
//! Read first: NVM Express Base 2.0, "Abort command".
//!
//! A command belongs to the connection of its I/O queue, and an Abort arrives on the admin queue.
//! So the subsystem keeps the Abort, wakes the connection of the command, and completes the Abort
//! when that connection has answered. Bit 0 of DW0 is 0 if the command was aborted, 1 if it was
//! not.

use super::state::Controller;
use crate::controller::reply::{Answer, Location};
use crate::controller::{
    Completion, Connection, ControllerId, Limits, QueueId, Reply, Subsystem, WakeToken,
};
use crate::wire::{Cid, Sqe, StatusCode};

/// Abort commands that are not completed yet.
#[derive(Debug, Default)]
pub(in crate::controller) struct Aborts {
    /// At most [`Limits::ABORTS_MAX`] for each admin queue.
    standing: Vec<Abort>,
}

#[derive(Debug)]
struct Abort {
    /// The admin queue, and the Abort command on it.
    issuer: WakeToken,
    cid: Cid,
    /// The queue with the command that is to be aborted.
    carrier: WakeToken,
    victim: Cid,
    state: State,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Asked,
    Answered(Outcome),
}

/// What became of a command that was to be aborted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::controller) enum Outcome {
    /// It was completed with Command Abort Requested.
    Aborted,
    /// It did not exist, or could no longer be aborted.
    NotAborted,
}

impl Outcome {
    const fn dw0(self) -> u32 {
        match self {
            Self::Aborted => 0,
            Self::NotAborted => 1,
        }
    }
}

impl Aborts {
    /// How many of an admin queue's are not completed yet.
    fn count_of(&self, issuer: WakeToken) -> usize {
        self.standing.iter().filter(|a| a.issuer == issuer).count()
    }

    /// The next Abort command of this admin queue to complete, and how.
    pub(in crate::controller) fn poll(&mut self, issuer: WakeToken) -> Option<(Cid, Completion)> {
        let found = self.standing.iter().enumerate().find_map(|(at, abort)| {
            let State::Answered(outcome) = abort.state else {
                return None;
            };
            (abort.issuer == issuer).then_some((at, outcome))
        });
        let (at, outcome) = found?;
        let cid = self.standing.remove(at).cid;
        Some((cid, Completion::success(outcome.dw0().into())))
    }

    /// Handles the end of a connection: drops its own Aborts, and reports Aborts of its commands as
    /// not done. Returns the admin queues to wake.
    pub(in crate::controller) fn forget(
        &mut self,
        connection: WakeToken,
    ) -> impl Iterator<Item = WakeToken> + use<'_> {
        self.standing.retain(|abort| abort.issuer != connection);
        let asked = self
            .standing
            .iter_mut()
            .filter(move |abort| abort.carrier == connection && abort.state == State::Asked);
        asked.map(|abort| {
            abort.state = State::Answered(Outcome::NotAborted);
            abort.issuer
        })
    }
}

impl Subsystem {
    /// Abort. Asynchronous Event Requests are aborted here; whatever else the admin queue had is
    /// complete already.
    pub(in crate::controller) fn abort(&mut self, id: ControllerId, sqe: &Sqe) -> Answer {
        let sq_id = QueueId(sqe.cdw10.get() as u16);
        let victim = Cid((sqe.cdw10.get() >> 16) as u16);
        let controller = self
            .controllers
            .get_mut(&id)
            .ok_or(StatusCode::InternalError)?;
        if sq_id.is_admin() {
            let outcome = if controller.events.abort(victim) {
                Outcome::Aborted
            } else {
                Outcome::NotAborted
            };
            return Ok(Reply::success(outcome.dw0()));
        }
        let Some((issuer, carrier)) = queues(controller, sq_id) else {
            return Ok(Reply::success(Outcome::NotAborted.dw0()));
        };
        if self.aborts.count_of(issuer) >= usize::from(Limits::ABORTS_MAX) {
            return Err(StatusCode::AbortLimitExceeded.at(Location::OPCODE));
        }
        self.aborts.standing.push(Abort {
            issuer,
            cid: sqe.cid(),
            carrier,
            victim,
            state: State::Asked,
        });
        self.wakes.insert(carrier);
        Ok(Reply::Hold)
    }

    /// A command of `connection` that is to be aborted, if there is one; [`Self::answer_abort`]
    /// reports the result.
    pub(in crate::controller) fn poll_abort(&self, connection: &Connection) -> Option<Cid> {
        let is_asked = |a: &&Abort| a.carrier == connection.wake && a.state == State::Asked;
        Some(self.aborts.standing.iter().find(is_asked)?.victim)
    }

    /// Records what became of the command that [`Self::poll_abort`] returned.
    pub(in crate::controller) fn answer_abort(
        &mut self,
        connection: &Connection,
        outcome: Outcome,
    ) {
        let is_asked = |a: &&mut Abort| a.carrier == connection.wake && a.state == State::Asked;
        if let Some(abort) = self.aborts.standing.iter_mut().find(is_asked) {
            abort.state = State::Answered(outcome);
            self.wakes.insert(abort.issuer);
        }
    }
}

/// The admin queue of a controller and its queue `sq_id`, if both exist.
fn queues(controller: &Controller, sq_id: QueueId) -> Option<(WakeToken, WakeToken)> {
    let issuer = controller.queues.get(&QueueId::ADMIN)?;
    let carrier = controller.queues.get(&sq_id)?;
    Some((*issuer, *carrier))
}
