//! Read delegations: a client that has one keeps what it has read, and opens the file for reading
//! again without asking, until the delegation is recalled.
//!
//! ```text
//!          OPEN                another client changes the file             LEASE is over
//! nothing ──────► delegated ────────────────────────────────────► recalled ─────────────► revoked
//!                     │ DELEGRETURN                                  │ DELEGRETURN           │ FREE_STATEID
//!                     └──► nothing                                   └──► nothing            └──► nothing
//! ```
//!
//! Who changes the file asks again until the delegation is returned or revoked. There are no write
//! delegations: whoever only asks for the attributes of a file, or reads it, would then have to
//! wait for its client as well, of whichever version.
//!
//! Read first: RFC 8881 sections 10.2 to 10.4.

use std::time::{Duration, Instant};

use super::back_channel::PendingRecall;
use super::claims::{FileKey, LockKind, ShareModes};
use super::files::{Delegation, FileState, Holder};
use super::opens::state_bytes;
use super::stateid::{State, StateId, StateKind};
use super::{Client, Clients, LEASE};
use crate::status4::Status4;

/// Why a file is not delegated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Undelegated {
    /// Others change the file, or did so a moment ago.
    Contention,
    /// The client cannot be called, or a bound is in the way.
    Resource,
}

/// Delegations of one client.
const CLIENT_DELEGATIONS_MAX: usize = 4096;
/// Delegations of all clients.
const DELEGATIONS_MAX: usize = 16_384;
/// How long a file is not delegated after a recall, so that two clients that use it by turns do not
/// wait for each other each time.
const CONTENDED_FOR: Duration = Duration::from_secs(30);
/// The most files that are remembered for that.
const CONTENDED_MAX: usize = 256;
/// A flag of SEQUENCE: delegations were revoked, and their client has not freed them.
const RECALLABLE_STATE_REVOKED: u32 = 0x40;

impl Clients {
    /// Delegates a file to a client that has opened it for reading.
    pub(crate) fn delegate(
        &mut self,
        now: Instant,
        client: u64,
        key: FileKey,
    ) -> Result<StateId, Undelegated> {
        if !self.has_path(client) || self.delegations >= DELEGATIONS_MAX {
            return Err(Undelegated::Resource);
        }
        let is_contended = |(file, since): &(FileKey, Instant)| {
            *file == key && now.saturating_duration_since(*since) < CONTENDED_FOR
        };
        if self.contended.iter().any(is_contended) {
            return Err(Undelegated::Contention);
        }
        let file = self.files.get(&key).ok_or(Undelegated::Resource)?;
        if file.is_changed() {
            return Err(Undelegated::Contention);
        }
        let mut own = file.delegations.iter();
        let holder = self.clients.get(&client).ok_or(Undelegated::Resource)?;
        if own.any(|delegation| delegation.holder.0 == client)
            || holder.delegations >= CLIENT_DELEGATIONS_MAX
        {
            return Err(Undelegated::Resource);
        }
        let charged = self.charge(client, state_bytes(&[]), Status4::NoSpace);
        charged.map_err(|_| Undelegated::Resource)?;
        let holder = self.clients.get_mut(&client);
        let holder = holder.ok_or(Undelegated::Resource)?;
        let number = holder.next_state();
        let state = State {
            file: key,
            sequence: 1,
            kind: StateKind::Delegation,
        };
        holder.states.insert(number, state);
        holder.delegations += 1;
        self.delegations += 1;
        let file = self.files.entry(key).or_default();
        file.delegations.push(Delegation {
            holder: (client, number),
            recalled: None,
        });
        Ok(StateId::new(client, number, 1))
    }

    /// Recalls the delegations of a file that somebody is about to change: a client, or one of
    /// another version. Fails as long as clients have not returned them.
    pub(crate) fn recall(
        &mut self,
        now: Instant,
        key: &FileKey,
        by: Option<u64>,
    ) -> Result<(), Status4> {
        if self.delegations == 0 {
            return Ok(());
        }
        self.expire(now);
        let Some(file) = self.files.get_mut(key) else {
            return Ok(());
        };
        let (mut asked, mut late, mut is_waiting) = (Vec::new(), Vec::new(), false);
        for delegation in &mut file.delegations {
            if by == Some(delegation.holder.0) {
                continue;
            }
            match delegation.recalled {
                Some(since) if now.saturating_duration_since(since) >= LEASE => {
                    late.push(delegation.holder);
                    continue;
                }
                Some(_) => {}
                None => {
                    delegation.recalled = Some(now);
                    asked.push(delegation.holder);
                }
            }
            is_waiting = true;
        }
        for holder in late {
            self.revoke(key, holder);
        }
        if !asked.is_empty() {
            self.note_contention(now, *key);
        }
        for (client, number) in asked {
            if let Some(holder) = self.clients.get_mut(&client) {
                let due = now;
                holder.recalls.push_back(PendingRecall { number, due });
                self.wake_client(client);
            }
        }
        if is_waiting {
            return Err(Status4::Delay);
        }
        Ok(())
    }

    /// DELEGRETURN (RFC 8881 section 18.6).
    pub(crate) fn return_delegation(
        &mut self,
        client: u64,
        id: StateId,
        key: &FileKey,
    ) -> Result<(), Status4> {
        let number = self.delegation_of(client, id, key)?;
        self.remove_delegation(key, (client, number));
        if let Some(holder) = self.clients.get_mut(&client) {
            holder.states.remove(&number);
        }
        self.discharge(client, state_bytes(&[]));
        self.forget_unused(key);
        Ok(())
    }

    /// The number of a client's delegation of a file.
    pub(crate) fn delegation_of(
        &mut self,
        client: u64,
        id: StateId,
        key: &FileKey,
    ) -> Result<u32, Status4> {
        let holder = self.client_mut(client)?;
        let (number, state) = holder.state_mut(client, id)?;
        if state.kind == StateKind::Delegation && state.file == *key {
            Ok(number)
        } else {
            Err(Status4::BadStateId)
        }
    }

    /// FREE_STATEID of a delegation that was revoked. Returns whether it was one.
    pub(super) fn free_revoked(&mut self, client: u64, id: StateId) -> Result<bool, Status4> {
        let number = id.number_of(client)?;
        let holder = self.client_mut(client)?;
        let state = holder.states.get(&number);
        if state.is_none_or(|state| state.kind != StateKind::Revoked) {
            return Ok(false);
        }
        holder.states.remove(&number);
        holder.revoked -= 1;
        self.discharge(client, state_bytes(&[]));
        Ok(true)
    }

    /// What SEQUENCE tells of delegations.
    pub(super) fn revocation_flags(&self, client: u64) -> u32 {
        let holder = self.clients.get(&client);
        if holder.is_some_and(|holder| holder.revoked > 0) {
            RECALLABLE_STATE_REVOKED
        } else {
            0
        }
    }

    /// Takes a delegation from a client that has not returned it. Its number stays until the client
    /// frees it.
    fn revoke(&mut self, key: &FileKey, (client, number): Holder) {
        self.remove_delegation(key, (client, number));
        if let Some(holder) = self.clients.get_mut(&client)
            && let Some(state) = holder.states.get_mut(&number)
        {
            state.kind = StateKind::Revoked;
            holder.revoked += 1;
        }
        self.forget_unused(key);
    }

    fn remove_delegation(&mut self, key: &FileKey, holder: Holder) {
        if let Some(file) = self.files.get_mut(key) {
            file.delegations.retain(|it| it.holder != holder);
        }
        let (client, number) = holder;
        if let Some(holder) = self.clients.get_mut(&client) {
            holder.delegations -= 1;
            holder.recalls.retain(|recall| recall.number != number);
        }
        self.delegations -= 1;
    }

    fn note_contention(&mut self, now: Instant, key: FileKey) {
        let is_current = |(file, since): &(FileKey, Instant)| {
            *file != key && now.saturating_duration_since(*since) < CONTENDED_FOR
        };
        self.contended.retain(is_current);
        if self.contended.len() == CONTENDED_MAX {
            self.contended.pop_front();
        }
        self.contended.push_back((key, now));
    }
}

impl Client {
    /// Whether a state is a delegation that was neither returned nor revoked.
    pub(super) fn is_delegated(&self, number: u32) -> bool {
        let state = self.states.get(&number);
        state.is_some_and(|state| state.kind == StateKind::Delegation)
    }
}

impl FileState {
    /// Whether anybody may change the file, or locks it so that a client that opens and locks it
    /// without asking would miss that; or waits until it is not delegated any more.
    fn is_changed(&self) -> bool {
        let mut opens = self.opens.iter();
        let mut ranges = self.ranges.iter();
        let mut delegations = self.delegations.iter();
        opens.any(|open| {
            open.modes.access & ShareModes::WRITE != 0 || open.modes.deny & ShareModes::READ != 0
        }) || ranges.any(|held| held.kind == LockKind::Write)
            || delegations.any(|delegation| delegation.recalled.is_some())
            || !self.waiters.is_empty()
    }
}
