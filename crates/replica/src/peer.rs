//! Another member, as its primary sees it.

use block::{Extent, Lba};

use crate::claim::Claim;
use crate::ids::{Epoch, LocalTime, MemberId, WriteNumber};
use crate::message::Report;
use crate::sender::Sender;
use crate::settings::Settings;

/// What a peer is.
///
/// ```text
///  Waiting ── next epoch ──► Copying ── copy is acknowledged ──► Joining ── configuration ──► InSync
/// ```
pub(crate) enum Standing {
    /// Member of the configuration.
    InSync,
    /// Asked to return; the next epoch separates what it misses from what it will be sent.
    Waiting,
    /// Receives what it missed.
    Copying(Copying),
    /// Has everything, and writes wait for it.
    Joining,
}

/// A copy of what a peer missed.
pub(crate) struct Copying {
    /// The next block to look at. Writes that begin below are sent to the peer. At the end of the
    /// volume, all is sent.
    pub next: Lba,
    pub is_end_sent: bool,
    pub complete_through: Epoch,
    pub next_piece_at: LocalTime,
}

/// A peer's standing, stream and lease.
pub(crate) struct Peer<D> {
    pub id: MemberId,
    pub standing: Standing,
    pub report: Option<Report>,
    pub stream: Option<Sender<D>>,
    /// The beacon sent latest among those that it answered.
    pub answered: Option<LocalTime>,
    /// When it last answered anything.
    pub heard: LocalTime,
    /// When it last made progress, or had nothing to do.
    pub progress_at: LocalTime,
    /// It has all writes up to this one. Valid if it is [`Self::is_effective`].
    pub has: WriteNumber,
}

impl<D: Clone> Peer<D> {
    pub fn new(id: MemberId, standing: Standing, now: LocalTime) -> Self {
        Self {
            id,
            standing,
            report: None,
            stream: None,
            answered: None,
            heard: now,
            progress_at: now,
            has: WriteNumber::default(),
        }
    }

    /// Whether writes wait for this peer.
    pub fn is_effective(&self) -> bool {
        matches!(self.standing, Standing::InSync | Standing::Joining)
    }

    pub fn is_in_sync(&self) -> bool {
        matches!(self.standing, Standing::InSync)
    }

    /// Whether it has promised not to take over now.
    pub fn has_lease(&self, now: LocalTime, settings: &Settings) -> bool {
        self.lease_end(settings).is_some_and(|end| now < end)
    }

    /// Until when it has promised not to take over.
    pub fn lease_end(&self, settings: &Settings) -> Option<LocalTime> {
        self.answered.map(|sent_at| sent_at.plus(settings.lease))
    }

    /// Whether it has left something unanswered for too long.
    pub fn is_silent(&self, now: LocalTime, settings: &Settings) -> bool {
        let is_late = |at| now.since(at) > settings.answer_timeout;
        is_late(self.heard) || is_late(self.progress_at)
    }

    /// Whether it is sent a write to `extent`.
    pub fn takes(&self, extent: Extent) -> bool {
        match &self.standing {
            Standing::InSync | Standing::Joining => true,
            Standing::Waiting => false,
            Standing::Copying(copying) => extent.lba < copying.next,
        }
    }

    /// Whether its copy of `piece` may differ from the primary's, whose region has `stamp`.
    pub fn misses(&self, piece: Extent, stamp: Epoch) -> bool {
        let Some(report) = &self.report else {
            return true;
        };
        let claim: &Claim = &report.claim;
        let is_unsettled = report.unsettled.iter().any(|other| other.overlaps(piece));
        stamp > claim.at(piece) || is_unsettled
    }
}
