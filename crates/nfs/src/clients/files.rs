//! What is open and locked of one file, by all clients.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::time::Instant;

use super::claims::{Conflict, LockKind, LockRange, ShareModes};
use super::stateid::{StateKind, StateUse};

/// A client, and the number of one of its states.
pub(super) type Holder = (u64, u32);

/// The opens, locks and delegations of a file.
#[derive(Debug, Default)]
pub(super) struct FileState {
    pub(super) opens: Vec<Open>,
    pub(super) lockers: Vec<FileLocker>,
    /// In no order. Those of one locker neither overlap nor touch with the same kind.
    pub(super) ranges: Vec<HeldRange>,
    /// Owners that wait for locks, in the order in which they asked.
    pub(super) waiters: Vec<Waiter>,
    pub(super) delegations: Vec<Delegation>,
}

/// A read delegation of a file.
#[derive(Clone, Copy, Debug)]
pub(super) struct Delegation {
    pub(super) holder: Holder,
    /// Since when its client has been asked to return it.
    pub(super) recalled: Option<Instant>,
}

/// An open of one open owner.
#[derive(Debug)]
pub(super) struct Open {
    pub(super) holder: Holder,
    pub(super) owner: Box<[u8]>,
    /// What it is open for.
    pub(super) modes: ShareModes,
    /// The modes that these consist of: those of each OPEN, as a set.
    pub(super) opened: u16,
}

/// A lock owner.
#[derive(Debug)]
pub(super) struct FileLocker {
    pub(super) holder: Holder,
    /// The number of the open that it locks with. NLM has no opens.
    pub(super) open: Option<u32>,
    pub(super) owner: Box<[u8]>,
}

/// A locked range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct HeldRange {
    pub(super) holder: Holder,
    pub(super) kind: LockKind,
    pub(super) range: LockRange,
}

/// An owner of NLM that waits for a lock.
#[derive(Debug)]
pub(super) struct Waiter {
    pub(super) client: u64,
    pub(super) owner: Box<[u8]>,
    pub(super) kind: LockKind,
    pub(super) range: LockRange,
    /// The address of this server that the client knows.
    pub(super) local: IpAddr,
}

impl Waiter {
    /// Whether it is the wait of an owner for these bytes.
    pub(super) fn is(&self, (client, owner): (u64, &[u8]), range: LockRange) -> bool {
        self.client == client && *self.owner == *owner && self.range == range
    }
}

impl FileState {
    pub(super) const fn open_count(&self) -> usize {
        self.opens.len()
    }

    pub(super) const fn is_unused(&self) -> bool {
        self.opens.is_empty()
            && self.lockers.is_empty()
            && self.waiters.is_empty()
            && self.delegations.is_empty()
    }

    /// Removes what a client holds.
    pub(super) fn remove_client(&mut self, client: u64) {
        self.opens.retain(|open| open.holder.0 != client);
        self.lockers.retain(|locker| locker.holder.0 != client);
        self.ranges.retain(|held| held.holder.0 != client);
        self.delegations.retain(|it| it.holder.0 != client);
    }

    /// Removes a lock owner with its locks. Returns how many ranges these were.
    pub(super) fn remove_locker(&mut self, client: u64, number: u32) -> usize {
        let before = self.ranges.len();
        let holder = (client, number);
        self.lockers.retain(|locker| locker.holder != holder);
        self.ranges.retain(|held| held.holder != holder);
        before - self.ranges.len()
    }

    /// Whether a lock owner has locked anything.
    pub(super) fn has_ranges(&self, client: u64, number: u32) -> bool {
        self.ranges
            .iter()
            .any(|held| held.holder == (client, number))
    }

    /// Whether any open denies the use to everyone else.
    pub(super) fn denies(&self, state_use: StateUse) -> bool {
        self.opens.iter().any(|open| match state_use {
            StateUse::Read => open.modes.deny & ShareModes::READ != 0,
            StateUse::Write => open.modes.deny & ShareModes::WRITE != 0,
        })
    }

    /// Whether a state is an open for writing, or the locks of one.
    pub(super) fn may_write(&self, client: u64, number: u32, kind: StateKind) -> bool {
        let open = match kind {
            StateKind::Open | StateKind::Unconfirmed => Some(number),
            StateKind::Locks => self
                .lockers
                .iter()
                .find(|locker| locker.holder == (client, number))
                .and_then(|locker| locker.open),
            StateKind::Delegation | StateKind::Revoked => None,
        };
        open.and_then(|number| self.open(client, number))
            .is_some_and(|open| open.modes.access & ShareModes::WRITE != 0)
    }

    /// Makes a range of a lock owner locked, or unlocked if `kind` is `None`. Returns how many
    /// ranges there were and are.
    pub(super) fn set_range(
        &mut self,
        holder: Holder,
        kind: Option<LockKind>,
        range: LockRange,
    ) -> (usize, usize) {
        let before = self.ranges.len();
        let mut merged = range;
        let mut left = Vec::new();
        self.ranges.retain(|held| {
            if held.holder != holder {
                return true;
            }
            if Some(held.kind) == kind && held.range.touches(range) {
                merged = merged.joined(held.range);
                return false;
            }
            if held.range.overlaps(range) {
                left.extend(
                    held.range
                        .without(range)
                        .map(|range| HeldRange { range, ..*held }),
                );
                return false;
            }
            true
        });
        self.ranges.append(&mut left);
        self.ranges.extend(kind.map(|kind| HeldRange {
            holder,
            kind,
            range: merged,
        }));
        (before, self.ranges.len())
    }

    /// Whether unlocking a range leaves two parts of one.
    pub(super) fn splits(&self, holder: Holder, range: LockRange) -> bool {
        let mut own = self.ranges.iter().filter(|held| held.holder == holder);
        own.any(|held| held.range.overlaps(range) && held.range.without(range).count() == 2)
    }

    /// A lock of another owner that excludes one of this client and lock owner. One owner may have
    /// locks with several opens of the file.
    pub(super) fn conflict(
        &self,
        (client, owner): (u64, &[u8]),
        kind: LockKind,
        range: LockRange,
    ) -> Option<Conflict> {
        let is_own = |locker: &&FileLocker| locker.holder.0 == client && *locker.owner == *owner;
        let own = self.lockers.iter().filter(is_own);
        let own: BTreeSet<_> = own.map(|locker| locker.holder).collect();
        let held = self.ranges.iter().find(|held| {
            let excludes = held.kind == LockKind::Write || kind == LockKind::Write;
            excludes && held.range.overlaps(range) && !own.contains(&held.holder)
        })?;
        Some(Conflict {
            range: held.range,
            kind: held.kind,
            client: held.holder.0,
            owner: self.owner_of(held.holder).unwrap_or_default().into(),
        })
    }

    /// An open, by its number.
    pub(super) fn open(&self, client: u64, number: u32) -> Option<&Open> {
        self.opens
            .iter()
            .find(|open| open.holder == (client, number))
    }

    /// The name of a lock owner.
    pub(super) fn owner_of(&self, holder: Holder) -> Option<&[u8]> {
        let locker = self.lockers.iter().find(|locker| locker.holder == holder);
        locker.map(|locker| &*locker.owner)
    }
}
