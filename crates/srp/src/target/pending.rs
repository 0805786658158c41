//! What a channel waits for beside its tasks: task management and its end.

use std::time::Instant;

use crate::wire::{ManagementResult, Tag};

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
