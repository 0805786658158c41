//! Byte-range locks.
//!
//! Read first: RFC 8881 sections 9.1 to 9.6 and 18.10 to 18.12.

use super::Clients;
use super::claims::{Conflict, FileKey, LockKind, LockRange, ShareModes};
use super::files::FileLocker;
use super::opens::state_bytes;
use super::owners::OwnerKind;
use super::stateid::{State, StateId, StateKind};
use crate::status4::Status4;

/// Who asks for a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Locker<'a> {
    /// A lock owner's first lock on a file, with this open.
    New {
        /// The open.
        open: StateId,
        /// The lock owner.
        owner: &'a [u8],
    },
    /// Further locks.
    Known(StateId),
}

/// Why a lock is not granted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Refused {
    /// Another owner has locked some of the bytes.
    Denied(Conflict),
    /// An error.
    Status(Status4),
}

/// Ranges that a client may have locked. Each lock looks at all ranges of its file.
pub(super) const RANGES_MAX: usize = 1024;

impl From<Status4> for Refused {
    fn from(status: Status4) -> Self {
        Self::Status(status)
    }
}

impl Clients {
    /// LOCK: locks a range, replacing what the owner has locked of it.
    pub(crate) fn lock(
        &mut self,
        client: u64,
        key: &FileKey,
        locker: Locker<'_>,
        kind: LockKind,
        range: LockRange,
    ) -> Result<StateId, Refused> {
        let (open, known) = self.find_locker(client, key, locker)?;
        let file = self.files.get(key).ok_or(Status4::BadStateId)?;
        let modes = file.open(client, open).ok_or(Status4::BadStateId)?.modes;
        let needed = match kind {
            LockKind::Read => ShareModes::READ,
            LockKind::Write => ShareModes::WRITE,
        };
        if modes.access & needed == 0 {
            return Err(Status4::OpenMode.into());
        }
        let owner = match (locker, known) {
            (Locker::New { owner, .. }, _) => owner,
            (Locker::Known(_), number) => number
                .and_then(|number| file.owner_of((client, number)))
                .ok_or(Status4::BadStateId)?,
        };
        if let Some(conflict) = file.conflict((client, owner), kind, range) {
            return Err(Refused::Denied(conflict));
        }
        let holder = self.client_mut(client)?;
        // A lock adds at most two ranges: it may split one.
        if holder.ranges + 2 > RANGES_MAX {
            return Err(Status4::ServerFault.into());
        }
        let number = match (known, locker) {
            (Some(number), _) => number,
            (None, Locker::New { owner, .. }) => self.add_locker(client, *key, open, owner)?,
            (None, Locker::Known(_)) => return Err(Status4::BadStateId.into()),
        };
        Ok(self.set_range(client, number, key, Some(kind), range)?)
    }

    /// LOCKT: what excludes a lock, if anything.
    pub(crate) fn test_lock(
        &self,
        client: u64,
        key: &FileKey,
        owner: &[u8],
        kind: LockKind,
        range: LockRange,
    ) -> Option<Conflict> {
        self.files.get(key)?.conflict((client, owner), kind, range)
    }

    /// LOCKU: releases what the owner has locked of a range.
    pub(crate) fn unlock(
        &mut self,
        client: u64,
        key: &FileKey,
        id: StateId,
        range: LockRange,
    ) -> Result<StateId, Status4> {
        let (_, number) = self.find_locker(client, key, Locker::Known(id))?;
        let number = number.ok_or(Status4::BadStateId)?;
        if self.client_mut(client)?.ranges + 1 > RANGES_MAX {
            return Err(Status4::ServerFault);
        }
        self.set_range(client, number, key, None, range)
    }

    /// The number of the open that a locker uses, and of its locks if it has any on the file.
    fn find_locker(
        &mut self,
        client: u64,
        key: &FileKey,
        locker: Locker<'_>,
    ) -> Result<(u32, Option<u32>), Status4> {
        match locker {
            Locker::New { open, owner } => {
                let (open, file) = self.open_of(client, open)?;
                if file != *key {
                    return Err(Status4::BadStateId);
                }
                let lockers = self.files.get(key).map(|file| &file.lockers);
                let known = lockers.into_iter().flatten().find(|locker| {
                    locker.holder.0 == client
                        && locker.open == Some(open)
                        && *locker.owner == *owner
                });
                Ok((open, known.map(|locker| locker.holder.1)))
            }
            Locker::Known(id) => {
                let holder = self.client_mut(client)?;
                let (number, state) = holder.state_mut(client, id)?;
                if state.kind != StateKind::Locks || state.file != *key {
                    return Err(Status4::BadStateId);
                }
                let lockers = self.files.get(key).map(|file| &file.lockers);
                let known = lockers
                    .into_iter()
                    .flatten()
                    .find(|locker| locker.holder == (client, number));
                let open = known.and_then(|locker| locker.open);
                let open = open.ok_or(Status4::BadStateId)?;
                Ok((open, Some(number)))
            }
        }
    }

    fn add_locker(
        &mut self,
        client: u64,
        key: FileKey,
        open: u32,
        owner: &[u8],
    ) -> Result<u32, Status4> {
        self.charge(client, state_bytes(owner), Status4::ServerFault)?;
        let holder = self.client_mut(client)?;
        let number = holder.next_state();
        if let Some(owners) = &mut holder.owners {
            owners.count_state(OwnerKind::Locks, owner);
        }
        holder.states.insert(
            number,
            State {
                file: key,
                sequence: 0,
                kind: StateKind::Locks,
            },
        );
        self.files.entry(key).or_default().lockers.push(FileLocker {
            holder: (client, number),
            open: Some(open),
            owner: owner.into(),
        });
        Ok(number)
    }

    /// Removes a lock owner with its locks.
    pub(super) fn remove_locker(&mut self, client: u64, key: &FileKey, number: u32) {
        let mut ranges = 0;
        if let Some(file) = self.files.get_mut(key) {
            let owner: Option<Box<[u8]>> = file.owner_of((client, number)).map(Into::into);
            ranges = file.remove_locker(client, number);
            if let Some(owner) = owner {
                self.discharge(client, state_bytes(&owner));
                self.end_state(client, OwnerKind::Locks, (&owner, number));
            }
        }
        if let Some(holder) = self.clients.get_mut(&client) {
            holder.ranges -= ranges;
            holder.states.remove(&number);
        }
        self.grant_waiters(key);
    }

    /// Makes a range of an owner locked, or unlocked if `kind` is `None`.
    fn set_range(
        &mut self,
        client: u64,
        number: u32,
        key: &FileKey,
        kind: Option<LockKind>,
        range: LockRange,
    ) -> Result<StateId, Status4> {
        let file = self.files.get_mut(key).ok_or(Status4::BadStateId)?;
        let (before, after) = file.set_range((client, number), kind, range);
        self.grant_waiters(key);
        let client_state = self.client_mut(client)?;
        client_state.ranges = client_state.ranges + after - before;
        let state = client_state.states.get_mut(&number);
        let state = state.ok_or(Status4::BadStateId)?;
        state.advance();
        Ok(StateId::new(client, number, state.sequence))
    }
}
