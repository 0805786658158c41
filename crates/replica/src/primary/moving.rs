//! The planned move of the primary to a secondary, at both ends.
//!
//! The primary stops executing writes, waits until none is in flight, and proposes a configuration
//! in which the other is primary and it is in sync. Until it sees that configuration it may serve
//! reads, because the other waits for its report, or for the end of its lease.

use super::PrimaryTerm;
use crate::base::Base;
use crate::config::Config;
use crate::ids::{LocalTime, MemberId};
use crate::medium::Medium;
use crate::settings::Settings;

/// A move that was asked for.
///
/// ```text
///  Asking ── the store has answered ──► Stopping ── no write is in flight ──► a proposal
///     └─────────────────────────────────────┴──► given up after `answer_timeout`
/// ```
pub(super) struct Moving {
    to: MemberId,
    stage: Stage,
    since: LocalTime,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// It is not known yet whether the store answers. If it does not, the move cannot happen, so
    /// writes are still executed.
    Asking,
    /// No further write is executed.
    Stopping,
}

/// A former primary that was not removed, so it may hold a lease that this member has granted.
pub(crate) struct Predecessor {
    /// `None`: this member has missed who it was.
    id: Option<MemberId>,
    /// Since when this member grants it no lease.
    since: LocalTime,
}

impl Predecessor {
    /// Of the primary of `config`, where `former` is what this member knew before.
    pub fn of(config: &Config, former: Option<&Config>, now: LocalTime) -> Self {
        let before = former.filter(|former| former.epoch.next() == config.epoch);
        Self {
            id: before.map(|before| before.primary),
            since: now,
        }
    }
}

impl<D: Clone> PrimaryTerm<D> {
    /// Whether the former primary serves no reads any more: it has reported in this epoch, or its
    /// lease has ended.
    pub(super) fn has_succeeded(&self, settings: &Settings, now: LocalTime) -> bool {
        let Some(predecessor) = &self.predecessor else {
            return true;
        };
        let mut peers = self.peers.iter();
        let former = peers.find(|peer| Some(peer.id) == predecessor.id);
        let has_reported = former.is_some_and(|peer| peer.report.is_some());
        has_reported || now.since(predecessor.since) > settings.grace()
    }

    /// The secondaries that could become primary now.
    pub fn successors(
        &self,
        settings: &Settings,
        now: LocalTime,
    ) -> impl Iterator<Item = MemberId> {
        let peers = self.peers.iter();
        let answering =
            peers.filter(move |peer| peer.is_in_sync() && peer.has_lease(now, settings));
        answering.map(|peer| peer.id)
    }

    /// Begins a move to `to`, unless one is in progress. Returns whether it has begun.
    pub fn begin_move(&mut self, settings: &Settings, now: LocalTime, to: MemberId) -> bool {
        let can_begin = self.is_serving() && self.moving.is_none();
        if !can_begin || self.successors(settings, now).all(|id| id != to) {
            return false;
        }
        self.moving = Some(Moving {
            to,
            stage: Stage::Asking,
            since: now,
        });
        true
    }

    /// Whether the store is to be read before the move goes on.
    pub fn asks_store(&self) -> bool {
        self.is_in(Stage::Asking)
    }

    /// Whether no writes are executed, because the primary is about to move.
    pub(super) fn is_stopping(&self) -> bool {
        self.is_in(Stage::Stopping)
    }

    fn is_in(&self, stage: Stage) -> bool {
        let moving = self.moving.as_ref();
        moving.is_some_and(|moving| moving.stage == stage)
    }

    /// The store has answered a read.
    pub fn handle_store_answer(&mut self, now: LocalTime) {
        if let Some(moving) = &mut self.moving
            && moving.stage == Stage::Asking
        {
            moving.stage = Stage::Stopping;
            moving.since = now;
        }
    }

    /// Gives a move up that takes too long: writes are executed again. If it was proposed, it may
    /// happen nevertheless, and ends what is in flight then.
    pub(super) fn expire_move(&mut self, settings: &Settings, now: LocalTime) {
        self.moving
            .take_if(|moving| now.since(moving.since) > settings.answer_timeout);
    }

    /// Gives a move up.
    pub(super) fn end_move(&mut self) {
        self.moving = None;
    }

    /// The configuration of a move, if all is done before it.
    pub(super) fn wanted_move<M: Medium>(
        &self,
        base: &Base<M>,
        config: &Config,
        now: LocalTime,
    ) -> Option<Config> {
        let moving = self.moving.as_ref()?;
        let is_done = self.is_stopping() && self.writes.is_empty();
        let mut successors = self.successors(&base.settings, now);
        let is_ready = is_done && successors.any(|id| id == moving.to);
        is_ready.then(|| config.moved_to(moving.to))
    }

    pub(super) fn is_moving(&self) -> bool {
        self.moving.is_some()
    }
}
