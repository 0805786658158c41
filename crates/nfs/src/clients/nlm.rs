//! Locks of clients of NLM, in the same files as those of version 4, and the queues of owners that
//! wait for locks.
//!
//! ```text
//!          LOCK, conflict                  release by others                 GRANTED acknowledged, LOCK sent again
//! nothing ───────────────► waiting ───────────────────────────────► pending ──────────────────────────────────────► held
//!                             └── CANCEL ──► nothing                   └── GRANTED refused, CANCEL, UNLOCK ──► nothing
//! ```
//!
//! Read first: RFC 1813 section 6.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use super::claims::{Conflict, FileKey, LockKind, LockRange};
use super::files::{FileLocker, FileState, Waiter};
use super::locks::RANGES_MAX;
use super::opens::state_bytes;
use super::{CLIENT_BYTES_MAX, CLIENTS_MAX, Clients};
use crate::ExportId;

/// A lock owner of NLM.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NlmCaller<'a> {
    /// The address that it calls from.
    pub(crate) address: IpAddr,
    /// caller_name: its machine.
    pub(crate) name: &'a [u8],
    /// svid, as four bytes, and oh.
    pub(crate) owner: &'a [u8],
}

/// How a LOCK ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Locked {
    /// The range is locked.
    Granted,
    /// Another owner has locked some of the bytes.
    Denied,
    /// The same, and the owner waits.
    Blocked,
    /// A bound is reached.
    NoLocks,
}

/// A client: a machine at an address.
#[derive(Debug)]
pub(super) struct NlmClient {
    address: IpAddr,
    name: Box<[u8]>,
    /// The files of its lock owners, by the numbers of these.
    owners: BTreeMap<u32, FileKey>,
    last_owner: u32,
    /// The files that it waits for, once for each lock.
    waits: Vec<FileKey>,
    ranges: usize,
    used_bytes: usize,
}

/// A lock that was granted to an owner which waited.
#[derive(Debug)]
pub(super) struct PendingGrant {
    client: u64,
    grant: Grant,
}

/// A lock of NLM that a client has waited for and that is the client's now: what a callback tells
/// the client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grant {
    /// Names it.
    pub(crate) id: u64,
    pub(crate) address: IpAddr,
    pub(crate) local: IpAddr,
    pub(crate) name: Box<[u8]>,
    /// svid, as four bytes, and oh.
    pub(crate) owner: Box<[u8]>,
    pub(crate) key: FileKey,
    pub(crate) kind: LockKind,
    pub(crate) range: LockRange,
}

/// Clients of one address.
const ADDRESS_CLIENTS_MAX: usize = 16;
/// Locks that one client waits for, with those that it has not acknowledged.
const CLIENT_WAITS_MAX: usize = 64;
/// Locks that clients wait for on one file: each release looks at them.
const FILE_WAITS_MAX: usize = 64;
/// What a locked range takes, in bytes.
const RANGE_BYTES: usize = 128;

impl Clients {
    /// TEST: what excludes a lock, if anything.
    pub(crate) fn nlm_test(
        &self,
        caller: NlmCaller<'_>,
        key: &FileKey,
        kind: LockKind,
        range: LockRange,
    ) -> Option<Conflict> {
        // No client has the ID 0.
        let client = self.find_nlm(caller).unwrap_or(0);
        let file = self.files.get(key)?;
        file.conflict((client, caller.owner), kind, range)
    }

    /// Whether a client is one of NLM.
    pub(crate) fn is_nlm(&self, client: u64) -> bool {
        self.lockers.contains_key(&client)
    }

    /// LOCK. The owner waits for the lock if `wait` is the address of the server that its client
    /// knows.
    pub(crate) fn nlm_lock(
        &mut self,
        caller: NlmCaller<'_>,
        key: &FileKey,
        kind: LockKind,
        range: LockRange,
        wait: Option<IpAddr>,
    ) -> Locked {
        let Some(client) = self.find_nlm(caller).or_else(|| self.add_nlm(caller)) else {
            return Locked::NoLocks;
        };
        let owner = (client, caller.owner);
        // A client that asks again needs no callback.
        self.acknowledge(owner, key, range);
        self.stop_waiting(owner, key, range);
        let file = self.files.get(key);
        let conflict = file.and_then(|file| file.conflict(owner, kind, range));
        let locked = match (conflict, wait) {
            (None, _) if self.set_nlm(owner, key, Some(kind), range) => Locked::Granted,
            (None, _) => Locked::NoLocks,
            (Some(_), None) => Locked::Denied,
            (Some(_), Some(local)) => {
                let owner = caller.owner.into();
                let waiter = Waiter {
                    client,
                    owner,
                    kind,
                    range,
                    local,
                };
                self.wait(key, waiter)
            }
        };
        // An exclusive lock that is shared from now on excludes fewer.
        self.release(client, key);
        locked
    }

    /// UNLOCK. Returns whether the range is unlocked, as it is if it was not locked.
    pub(crate) fn nlm_unlock(
        &mut self,
        caller: NlmCaller<'_>,
        key: &FileKey,
        range: LockRange,
    ) -> bool {
        let Some(client) = self.find_nlm(caller) else {
            return true;
        };
        let owner = (client, caller.owner);
        self.acknowledge(owner, key, range);
        let is_done = self.set_nlm(owner, key, None, range);
        self.release(client, key);
        is_done
    }

    /// CANCEL: the owner waits no longer. A lock that was granted meanwhile, without an
    /// acknowledgement, is released. Returns whether there was such a wait.
    pub(crate) fn nlm_cancel(
        &mut self,
        caller: NlmCaller<'_>,
        key: &FileKey,
        range: LockRange,
    ) -> bool {
        let Some(client) = self.find_nlm(caller) else {
            return false;
        };
        let owner = (client, caller.owner);
        let was_granted = self.acknowledge(owner, key, range);
        if was_granted {
            self.set_nlm(owner, key, None, range);
        }
        let has_waited = self.stop_waiting(owner, key, range);
        self.release(client, key);
        was_granted || has_waited
    }

    /// FREE_ALL and SM_NOTIFY: removes the clients at an address, or the one of a name there, with
    /// their locks.
    pub(crate) fn nlm_free(&mut self, address: IpAddr, name: Option<&[u8]>) {
        let is_it = |client: &NlmClient| {
            client.address == address && name.is_none_or(|name| *client.name == *name)
        };
        while let Some((&id, _)) = self.lockers.iter().find(|(_, client)| is_it(client)) {
            self.remove_nlm(id);
        }
        self.forget_hosts(address, name);
    }

    /// Removes locks of NLM on files of shares that do not exist any more: no client can unlock
    /// these.
    pub fn keep_exports(&mut self, mut exists: impl FnMut(ExportId) -> bool) {
        let mut keys: Vec<_> = (self.lockers.values())
            .flat_map(|client| client.owners.values().chain(&client.waits))
            .filter(|key| !exists(key.export()))
            .copied()
            .collect();
        keys.sort_unstable();
        keys.dedup();
        for key in keys {
            self.remove_nlm_from(&key);
        }
    }

    /// Whether [`next_grant`](Self::next_grant) may return one.
    pub fn has_grants(&self) -> bool {
        !self.fresh_grants.is_empty()
    }

    /// A granted lock, returned once, of which the client has to be notified.
    pub fn next_grant(&mut self) -> Option<Grant> {
        loop {
            let id = self.fresh_grants.pop_front()?;
            if let Some(pending) = self.grants.get(&id) {
                return Some(pending.grant.clone());
            }
        }
    }

    /// Whether the client has still to be notified.
    pub fn is_pending(&self, grant: &Grant) -> bool {
        self.grants.contains_key(&grant.id)
    }

    /// The client has accepted a lock, or does not want it, so that it is released.
    pub fn end_grant(&mut self, grant: &Grant, is_accepted: bool) {
        let Some(pending) = self.take_grant(grant.id) else {
            return;
        };
        let client = pending.client;
        if !is_accepted {
            self.set_nlm((client, &grant.owner), &grant.key, None, grant.range);
        }
        self.release(client, &grant.key);
    }

    /// Gives locks of a file to owners that wait for them and that nothing excludes any longer.
    pub(super) fn grant_waiters(&mut self, key: &FileKey) {
        let Some(file) = self.files.get_mut(key) else {
            return;
        };
        if file.waiters.is_empty() {
            return;
        }
        let mut left = Vec::new();
        for waiter in std::mem::take(&mut file.waiters) {
            let owner = (waiter.client, &*waiter.owner);
            let file = self.files.get(key);
            let conflict = file.and_then(|file| file.conflict(owner, waiter.kind, waiter.range));
            if conflict.is_some() || !self.set_nlm(owner, key, Some(waiter.kind), waiter.range) {
                left.push(waiter);
                continue;
            }
            self.add_grant(key, waiter);
        }
        self.files.entry(*key).or_default().waiters = left;
    }

    /// How many ranges are locked by NLM.
    pub(super) fn nlm_ranges(&self) -> usize {
        self.lockers.values().map(|client| client.ranges).sum()
    }

    pub(super) fn find_nlm(&self, caller: NlmCaller<'_>) -> Option<u64> {
        let is_it =
            |client: &NlmClient| client.address == caller.address && *client.name == *caller.name;
        let mut found = self.lockers.iter().filter(|(_, client)| is_it(client));
        found.next().map(|(&id, _)| id)
    }

    fn add_nlm(&mut self, caller: NlmCaller<'_>) -> Option<u64> {
        let near = self.lockers.values();
        let near = near.filter(|client| client.address == caller.address);
        if near.count() >= ADDRESS_CLIENTS_MAX || self.lockers.len() >= CLIENTS_MAX {
            return None;
        }
        let id = self.new_id();
        let client = NlmClient {
            address: caller.address,
            name: caller.name.into(),
            owners: BTreeMap::new(),
            last_owner: 0,
            waits: Vec::new(),
            ranges: 0,
            used_bytes: 0,
        };
        self.lockers.insert(id, client);
        if self.charge_nlm(id, state_bytes(caller.name)) {
            return Some(id);
        }
        self.lockers.remove(&id);
        None
    }

    /// Makes a range of an owner locked, or unlocked if `kind` is `None`. Returns whether no bound
    /// is in the way.
    fn set_nlm(
        &mut self,
        (client, owner): (u64, &[u8]),
        key: &FileKey,
        kind: Option<LockKind>,
        range: LockRange,
    ) -> bool {
        let number = match (self.number_of(client, key, owner), kind) {
            (Some(number), _) => number,
            (None, None) => return true,
            (None, Some(_)) => match self.add_owner(client, key, owner) {
                Some(number) => number,
                None => return false,
            },
        };
        let holder = (client, number);
        let may_add = match kind {
            Some(_) => 2,
            None => usize::from(
                self.files
                    .get(key)
                    .is_some_and(|file| file.splits(holder, range)),
            ),
        };
        let ranges = self.lockers.get(&client).map_or(0, |client| client.ranges);
        let has_room = may_add == 0
            || ranges + may_add <= RANGES_MAX && self.charge_nlm(client, may_add * RANGE_BYTES);
        if has_room {
            let file = self.files.entry(*key).or_default();
            let (before, after) = file.set_range(holder, kind, range);
            self.discharge_nlm(client, (may_add + before - after) * RANGE_BYTES);
            if let Some(client) = self.lockers.get_mut(&client) {
                client.ranges = client.ranges + after - before;
            }
        }
        self.drop_owner(holder, key);
        has_room
    }

    /// The number of an owner that has locked something of a file.
    fn number_of(&self, client: u64, key: &FileKey, owner: &[u8]) -> Option<u32> {
        let mut lockers = self.files.get(key)?.lockers.iter();
        let found = lockers.find(|locker| locker.holder.0 == client && *locker.owner == *owner)?;
        Some(found.holder.1)
    }

    fn add_owner(&mut self, client: u64, key: &FileKey, owner: &[u8]) -> Option<u32> {
        if !self.charge_nlm(client, state_bytes(owner)) {
            return None;
        }
        let holder = self.lockers.get_mut(&client)?;
        // A client has fewer owners than there are numbers.
        let number = loop {
            holder.last_owner = holder.last_owner.wrapping_add(1);
            if !holder.owners.contains_key(&holder.last_owner) {
                break holder.last_owner;
            }
        };
        holder.owners.insert(number, *key);
        self.files
            .entry(*key)
            .or_default()
            .lockers
            .push(FileLocker {
                holder: (client, number),
                open: None,
                owner: owner.into(),
            });
        Some(number)
    }

    /// Removes an owner that has no range any more.
    fn drop_owner(&mut self, (client, number): (u64, u32), key: &FileKey) {
        let Some(file) = self.files.get_mut(key) else {
            return;
        };
        if file.has_ranges(client, number) {
            return;
        }
        let bytes = file.owner_of((client, number)).map_or(0, state_bytes);
        file.remove_locker(client, number);
        self.discharge_nlm(client, bytes);
        if let Some(holder) = self.lockers.get_mut(&client) {
            holder.owners.remove(&number);
        }
    }

    /// Adds a wait.
    fn wait(&mut self, key: &FileKey, waiter: Waiter) -> Locked {
        let client = waiter.client;
        let waits = self.lockers.get(&client).map_or(0, |it| it.waits.len());
        let queued = self.files.get(key).map_or(0, |file| file.waiters.len());
        if waits >= CLIENT_WAITS_MAX
            || queued >= FILE_WAITS_MAX
            || !self.charge_nlm(client, state_bytes(&waiter.owner))
        {
            return Locked::NoLocks;
        }
        if let Some(holder) = self.lockers.get_mut(&client) {
            holder.waits.push(*key);
        }
        self.files.entry(*key).or_default().waiters.push(waiter);
        Locked::Blocked
    }

    /// Removes a wait. Returns whether there was one.
    fn stop_waiting(&mut self, owner: (u64, &[u8]), key: &FileKey, range: LockRange) -> bool {
        let Some(file) = self.files.get_mut(key) else {
            return false;
        };
        let Some(at) = file.waiters.iter().position(|it| it.is(owner, range)) else {
            return false;
        };
        file.waiters.remove(at);
        self.end_wait(owner, key);
        true
    }

    /// What a wait took is free.
    fn end_wait(&mut self, (client, owner): (u64, &[u8]), key: &FileKey) {
        self.discharge_nlm(client, state_bytes(owner));
        if let Some(holder) = self.lockers.get_mut(&client)
            && let Some(at) = holder.waits.iter().position(|file| file == key)
        {
            holder.waits.swap_remove(at);
        }
    }

    /// A wait has led to a lock, which the client does not know of.
    fn add_grant(&mut self, key: &FileKey, waiter: Waiter) {
        let Some(client) = self.lockers.get(&waiter.client) else {
            return;
        };
        self.last_grant += 1;
        let id = self.last_grant;
        let grant = Grant {
            id,
            address: client.address,
            local: waiter.local,
            name: client.name.clone(),
            owner: waiter.owner,
            key: *key,
            kind: waiter.kind,
            range: waiter.range,
        };
        let client = waiter.client;
        self.grants.insert(id, PendingGrant { client, grant });
        self.fresh_grants.push_back(id);
    }

    fn take_grant(&mut self, id: u64) -> Option<PendingGrant> {
        let pending = self.grants.remove(&id)?;
        self.fresh_grants.retain(|fresh| *fresh != id);
        self.end_wait((pending.client, &pending.grant.owner), &pending.grant.key);
        Some(pending)
    }

    /// The client knows of locks that it has waited for. Returns whether there were any.
    fn acknowledge(&mut self, owner: (u64, &[u8]), key: &FileKey, range: LockRange) -> bool {
        let is_it = |pending: &PendingGrant| {
            let grant = &pending.grant;
            let is_owner = pending.client == owner.0 && *grant.owner == *owner.1;
            is_owner && grant.key == *key && grant.range.overlaps(range)
        };
        let known = self.grants.iter().filter(|(_, pending)| is_it(pending));
        let known: Vec<_> = known.map(|(&id, _)| id).collect();
        for &id in &known {
            self.take_grant(id);
        }
        !known.is_empty()
    }

    /// A client may have released something.
    fn release(&mut self, client: u64, key: &FileKey) {
        self.grant_waiters(key);
        self.forget_unused(key);
        self.forget_nlm(client);
    }

    /// Removes a client without locks and waits.
    fn forget_nlm(&mut self, client: u64) {
        let found = self.lockers.get(&client);
        if found.is_some_and(|it| it.owners.is_empty() && it.waits.is_empty()) {
            self.remove_nlm(client);
        }
    }

    /// Removes a client with its locks and waits.
    fn remove_nlm(&mut self, client: u64) {
        let Some(removed) = self.lockers.remove(&client) else {
            return;
        };
        self.used_bytes -= removed.used_bytes;
        self.grants.retain(|_, pending| pending.client != client);
        let pending = &self.grants;
        self.fresh_grants.retain(|id| pending.contains_key(id));
        let files: BTreeSet<_> = removed.owners.values().chain(&removed.waits).collect();
        for key in files {
            if let Some(file) = self.files.get_mut(key) {
                file.remove_client(client);
                file.waiters.retain(|waiter| waiter.client != client);
                self.grant_waiters(key);
                self.forget_unused(key);
            }
        }
    }

    /// Removes what clients of NLM hold of a file and wait for.
    fn remove_nlm_from(&mut self, key: &FileKey) {
        let grants = self.grants.iter();
        let grants = grants.filter(|(_, pending)| pending.grant.key == *key);
        for id in grants.map(|(&id, _)| id).collect::<Vec<_>>() {
            self.take_grant(id);
        }
        let file = self.files.get_mut(key);
        let waiters = file.map(|file| std::mem::take(&mut file.waiters));
        for waiter in waiters.into_iter().flatten() {
            self.end_wait((waiter.client, &waiter.owner), key);
            self.forget_nlm(waiter.client);
        }
        let owners = |file: &FileState| {
            let lockers = file.lockers.iter().filter(|it| it.open.is_none());
            lockers.map(|it| (it.holder.0, it.owner.clone())).collect()
        };
        let owners: Vec<(u64, Box<[u8]>)> = self.files.get(key).map(owners).unwrap_or_default();
        for (client, owner) in owners {
            self.set_nlm((client, &owner), key, None, LockRange::ALL);
            self.forget_nlm(client);
        }
        self.forget_unused(key);
    }

    /// Charges a client for what it is about to hold. Returns whether there is room.
    fn charge_nlm(&mut self, client: u64, bytes: usize) -> bool {
        let used = &mut self.used_bytes;
        let Some(holder) = self.lockers.get_mut(&client) else {
            return false;
        };
        if holder.used_bytes + bytes > CLIENT_BYTES_MAX || *used + bytes > Self::BYTES_MAX {
            return false;
        }
        holder.used_bytes += bytes;
        *used += bytes;
        true
    }

    fn discharge_nlm(&mut self, client: u64, bytes: usize) {
        if let Some(holder) = self.lockers.get_mut(&client) {
            holder.used_bytes -= bytes;
            self.used_bytes -= bytes;
        }
    }
}

#[cfg(test)]
mod tests;
