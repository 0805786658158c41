//! What a channel waits for beside its tasks: completions that are held back, task management, and
//! its end.

use std::time::Instant;

use crate::wire::{ManagementResult, Tag};

/// A completion that is held back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct HeldCompletion {
    pub(super) until: Instant,
    pub(super) slot: usize,
    pub(super) generation: u16,
}

impl Ord for HeldCompletion {
    /// The earliest is the greatest: a binary heap yields the greatest first.
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        let by_time = other.until.cmp(&self.until);
        let by_slot = || other.slot.cmp(&self.slot);
        let by_generation = || other.generation.cmp(&self.generation);
        by_time.then_with(by_slot).then_with(by_generation)
    }
}

impl PartialOrd for HeldCompletion {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

/// A request whose response waits until what it aborted is over.
#[derive(Clone, Copy, Debug)]
pub(super) struct Management {
    pub(super) tag: Tag,
    pub(super) result: ManagementResult,
    /// The number of what it aborted on other channels.
    pub(super) fence: u64,
}

/// How a channel ends.
///
/// ```text
///       draining              idle, or the time is over        SRP_T_LOGOUT is posted
///  Open ────────► Draining ──────────────────────────► Logout ─────────────────────────► Closed
///    └──────────────────── dropped ───────────────────────▲                                ▲
///    └──────────────────── SRP_I_LOGOUT, another login ────────────────────────────────────┘
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ending {
    /// Commands are served.
    Open,
    /// No further command is taken. Those in progress may end until this instant.
    Draining(Instant),
    /// SRP_T_LOGOUT is to be posted, and nothing else.
    Logout,
    /// Nothing is sent or received any more.
    Closed,
}
