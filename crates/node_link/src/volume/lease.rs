//! A command that waits, and what is passed on for it.

use std::collections::BTreeMap;

use block::{Blocks, Extent, Lba, OpKind, Status, Ticket};
use replica::wire::CommandKind;
use replica::{Contents, LocalTime};

use crate::committed::end;

/// The most commands with a lease. Hosts are asked to retry beyond.
pub(super) const LEASES_MAX: usize = 8192;
/// The most bytes that they fetch from the primary and hold.
pub(super) const FETCHED_BYTES_MAX: u64 = 256 << 20;

/// A command.
pub(super) struct Lease {
    pub kind: OpKind,
    pub stage: Stage,
    pub since: LocalTime,
    /// What a read needs the contents of.
    pub extents: Vec<Extent>,
    pub fetched_bytes: u64,
    /// What was fetched from the primary.
    pub parts: Vec<Part>,
    /// Grows with each fetch: a later one has seen more writes.
    pub fetch: u64,
    /// The first write that it may have caused.
    pub first: u64,
    /// The last one, once it settles.
    pub upto: Option<u64>,
    /// Of a change: from the first to the last block that it concerns.
    pub span: Option<Extent>,
    pub error: Option<Status>,
}

/// Where a command is.
///
/// ```text
///  Parked ──► Fetching ──► Granted ──► Settling ──► Granted
///     └────────────────────►┘
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// It waits for a primary.
    Parked,
    /// It waits for blocks of the primary.
    Fetching,
    /// It is executed, or has ended.
    Granted,
    /// It waits until its effects are safe.
    Settling,
}

impl Stage {
    /// Whether the command waits to be executed.
    pub fn is_before_execution(self) -> bool {
        matches!(self, Self::Parked | Self::Fetching)
    }
}

/// Blocks of the primary.
pub(super) struct Part {
    pub extent: Extent,
    /// The forwarded command that reads them.
    pub forward: u64,
    /// `None`: not there yet.
    pub contents: Option<Contents>,
}

/// A command of this node's hosts that the primary executes.
pub(super) struct Forward {
    pub extent: Extent,
    pub kind: CommandKind,
    /// The command that waits for blocks, and which of its parts.
    pub read: Option<(Ticket, usize)>,
    pub since: LocalTime,
    /// The node that has it, and since when.
    pub sent: Option<(u32, LocalTime)>,
}

/// Commands of this node's hosts that the primary executes, by their numbers.
#[derive(Default)]
pub(super) struct Forwards {
    commands: BTreeMap<u64, Forward>,
    /// How many of them are changes. Reads are bounded by the leases that wait for them.
    changes: usize,
}

impl Forwards {
    /// How many changes are passed on.
    pub fn changes(&self) -> usize {
        self.changes
    }

    pub fn insert(&mut self, id: u64, forward: Forward) {
        self.changes += usize::from(forward.read.is_none());
        self.commands.insert(id, forward);
    }

    pub fn remove(&mut self, id: u64) -> Option<Forward> {
        let forward = self.commands.remove(&id)?;
        self.changes -= usize::from(forward.read.is_none());
        Some(forward)
    }

    /// Removes what nobody waits for any more: the reads of a command.
    pub fn remove_fetch(&mut self, lease: &Lease) {
        for part in &lease.parts {
            self.commands.remove(&part.forward);
        }
    }

    /// Removes all.
    pub fn take(&mut self) -> BTreeMap<u64, Forward> {
        self.changes = 0;
        std::mem::take(&mut self.commands)
    }

    pub fn is_empty(&self) -> bool {
        self.commands.is_empty()
    }
}

/// From the first to the last block of some extents; `None` if there is none.
pub(super) fn span(extents: &[Extent]) -> Option<Extent> {
    let first = extents.iter().map(|extent| extent.lba.0).min()?;
    let end = extents.iter().map(|extent| end(*extent)).max()?;
    Some(Extent::new(Lba(first), Blocks(end - first)))
}

impl Forward {
    /// The blocks that it changes.
    pub fn written(&self) -> Extent {
        match self.kind {
            CommandKind::Copy(to) => Extent::new(to, self.extent.blocks),
            CommandKind::Read | CommandKind::Write(_) => self.extent,
        }
    }
}

impl Lease {
    pub fn new(kind: OpKind, stage: Stage, since: LocalTime, first: u64) -> Self {
        Self {
            kind,
            stage,
            since,
            extents: Vec::new(),
            fetched_bytes: 0,
            parts: Vec::new(),
            fetch: 0,
            // A flush settles after everything before it.
            first: if kind == OpKind::Flush { 0 } else { first },
            upto: None,
            span: None,
            error: None,
        }
    }

    /// The write `id` of these blocks has failed. It may be another command's if that concerns the
    /// same blocks.
    pub fn fail_if_covers(&mut self, id: u64, written: Extent, status: Status) {
        let concerns = |span: Extent| span.overlaps(written);
        let is_after = self.upto.is_none_or(|upto| id <= upto) && self.span.is_none_or(concerns);
        if self.kind != OpKind::Read && self.first <= id && is_after {
            self.error.get_or_insert(status);
        }
    }

    pub fn is_fetched(&self) -> bool {
        !self.parts.is_empty() && self.parts.iter().all(|part| part.contents.is_some())
    }
}
