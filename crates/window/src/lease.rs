//! What a command holds of a window.

use block::{DataUse, Extent, Persistence, Status, Ticket};

use crate::sectors::SectorSet;

/// A command between its admission and its release. Slots of a table; their vectors are reused.
#[derive(Debug)]
pub(crate) struct Lease {
    pub(crate) ticket: Ticket,
    pub(crate) stage: Stage,
    pub(crate) data_use: DataUse,
    pub(crate) persistence: Persistence,
    /// Its window blocks and, from the stage after [`Stage::Queued`] on, their frames.
    pub(crate) held: Vec<Held>,
    /// Whether the frames of `held` are kept for it.
    pub(crate) keeps_frames: bool,
    /// The blocks that it changes.
    pub(crate) changes: Vec<Extent>,
    /// How many frames and erasures it still waits for.
    pub(crate) awaited: u32,
    /// Whether a flush follows what it waits for.
    pub(crate) then_flush: bool,
    pub(crate) failure: Option<Status>,
    /// What it brings into a cache is not kept.
    pub(crate) is_bypass: bool,
}

/// How far a command is.
///
/// ```text
///  Queued ──► Filling ──► Granted ──► Settling ──► Granted
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// It waits for frames.
    Queued,
    /// It waits until its blocks are in memory.
    Filling,
    /// It waits for nothing.
    Granted,
    /// It waits until its effects are safe.
    Settling,
}

/// A window block that a command uses.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Held {
    pub(crate) block: u64,
    pub(crate) sectors: SectorSet,
    pub(crate) role: Role,
    /// [`NO_FRAME`] until it has one.
    pub(crate) frame: u32,
}

/// No frame has this number.
pub(crate) const NO_FRAME: u32 = u32::MAX;

/// What a command does with the sectors of a window block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    Read,
    Overwrite,
    Modify,
}

impl Role {
    pub(crate) const fn needs_contents(self) -> bool {
        matches!(self, Self::Read | Self::Modify)
    }

    pub(crate) const fn changes(self) -> bool {
        matches!(self, Self::Overwrite | Self::Modify)
    }

    /// Of the extent with this number of a command; `None` if it needs no memory.
    pub(crate) const fn of(data_use: DataUse, number: usize) -> Option<Self> {
        match (data_use, number) {
            (DataUse::Read | DataUse::Verify, _) | (DataUse::Copy, 1..) => Some(Self::Read),
            (DataUse::Overwrite, _) | (DataUse::Copy, 0) => Some(Self::Overwrite),
            (DataUse::Modify, _) => Some(Self::Modify),
            (DataUse::Erase | DataUse::Flush, _) => None,
        }
    }
}
