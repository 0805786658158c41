//! Clients of minor version 0: SETCLIENTID, SETCLIENTID_CONFIRM, RENEW, RELEASE_LOCKOWNER, and
//! requests of owners.
//!
//! Read first: RFC 7530 sections 9.1 and 16.33 to 16.37.

use std::net::IpAddr;
use std::time::Instant;

use super::locks::Refused;
use super::owners::{BegunRequest, Executed, Numbered, OwnerKind, Owners, owner_bytes};
use super::stateid::{StateId, StateKind};
use super::{Clients, Exchange, LEASE, Principal};
use crate::status4::Status4;

/// Whose request it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Requester<'a> {
    /// An open-owner that OPEN names. It may be new.
    Opener(&'a [u8]),
    /// The owner of an open or of locks.
    OwnerOf(StateId),
}

/// An owner of a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct OwnerId {
    client: u64,
    kind: OwnerKind,
    name: Box<[u8]>,
}

/// What SETCLIENTID returns: the client ID, and the verifier that is to be confirmed.
pub(crate) type SetClientId = (u64, u64);

impl Clients {
    /// SETCLIENTID (section 16.33). Callbacks are not noted, since there are none.
    pub(crate) fn set_client(
        &mut self,
        now: Instant,
        exchange: &Exchange<'_>,
    ) -> Result<SetClientId, Status4> {
        let exchanged = self.exchange(now, exchange)?;
        if exchanged.is_confirmed {
            self.forget_unconfirmed(exchange);
        }
        let id = exchanged.client;
        self.last_verifier = self.last_verifier.wrapping_add(1);
        let verifier = u64::from(self.start) << 32 | u64::from(self.last_verifier);
        let owners = self
            .clients
            .get_mut(&id)
            .and_then(|client| client.owners.as_mut());
        owners.ok_or(Status4::ServerFault)?.pending = Some(verifier);
        Ok((id, verifier))
    }

    /// SETCLIENTID_CONFIRM (section 16.34).
    pub(crate) fn confirm_client(
        &mut self,
        now: Instant,
        principal: Principal,
        (id, verifier): SetClientId,
    ) -> Result<(), Status4> {
        self.expire(now);
        let client = self.clients.get_mut(&id).ok_or(Status4::StaleClientId)?;
        let is_confirmed = client.is_confirmed;
        let owners = client.owners.as_mut().ok_or(Status4::StaleClientId)?;
        if owners.pending != Some(verifier) && owners.confirmed != Some(verifier) {
            return Err(Status4::StaleClientId);
        }
        if client.principal != principal {
            return Err(Status4::ClientIdInUse);
        }
        owners.pending = owners.pending.filter(|&pending| pending != verifier);
        owners.confirmed = Some(verifier);
        client.lease_end = now + LEASE;
        if !is_confirmed {
            self.confirm(id);
        }
        Ok(())
    }

    /// The client that an operation names, whose lease is renewed.
    pub(crate) fn renew(&mut self, now: Instant, address: IpAddr, id: u64) -> Result<u64, Status4> {
        self.expire(now);
        let was_issued = self.was_issued(id);
        match self.clients.get_mut(&id) {
            Some(client)
                if client.is_confirmed
                    && client.owners.is_some()
                    && client.principal.address == address =>
            {
                // A call that has waited for storage came earlier.
                client.lease_end = client.lease_end.max(now + LEASE);
                Ok(id)
            }
            None if was_issued => Err(Status4::Expired),
            _ => Err(Status4::StaleClientId),
        }
    }

    /// The client that a state ID is of, whose lease is renewed.
    pub(crate) fn holder(
        &mut self,
        now: Instant,
        address: IpAddr,
        id: StateId,
    ) -> Result<u64, Status4> {
        if id.is_special() {
            return Err(Status4::BadStateId);
        }
        if !self.is_of_this_start(id.client()) {
            return Err(Status4::StaleStateId);
        }
        self.renew(now, address, id.client())
            .map_err(|status| match status {
                Status4::StaleClientId => Status4::BadStateId,
                status => status,
            })
    }

    /// An operation has come without a state of a client: what has expired does not stand in its
    /// way.
    pub(crate) fn note_time(&mut self, now: Instant) {
        self.expire(now);
    }

    /// Whether a client ID is one of this start's.
    fn is_of_this_start(&self, id: u64) -> bool {
        id >> 32 == u64::from(self.start)
    }

    /// Whether a client ID was given to a client of this start's. If it is not known, its lease has
    /// expired, or its client has restarted.
    fn was_issued(&self, id: u64) -> bool {
        let low = id & u64::from(u32::MAX);
        self.is_of_this_start(id) && low != 0 && low <= u64::from(self.last)
    }

    /// Whether any client at an address has a file open without a session.
    pub(crate) fn has_open_at(&self, address: IpAddr, key: &super::FileKey) -> bool {
        let is_near =
            |client: &super::Client| client.owners.is_some() && client.principal.address == address;
        let opens = self.files.get(key).map(|file| &file.opens);
        let mut holders = opens.into_iter().flatten().map(|open| open.holder.0);
        holders.any(|holder| self.clients.get(&holder).is_some_and(is_near))
    }

    /// Begins a request of an owner.
    pub(crate) fn begin_request(
        &mut self,
        client: u64,
        requester: Requester<'_>,
        request: Numbered,
    ) -> Result<(OwnerId, BegunRequest), Status4> {
        let (kind, name) = match requester {
            Requester::Opener(name) => {
                self.prepare_opener(client, name, request)?;
                (OwnerKind::Opens, name.into())
            }
            Requester::OwnerOf(id) => self.owner_of(client, id)?,
        };
        let begun = self.owners_mut(client)?.begin(kind, &name, request)?;
        Ok((OwnerId { client, kind, name }, begun))
    }

    /// Ends a request that was new.
    pub(crate) fn end_request(&mut self, id: &OwnerId, executed: Executed) {
        let owners = self.owners_mut(id.client).ok();
        if let Some(owner) = owners.and_then(|owners| owners.get(id.kind, &id.name)) {
            owner.end(executed);
        }
    }

    /// Adds an open-owner that is new, and takes one anew that was not confirmed (section 9.1.11).
    fn prepare_opener(
        &mut self,
        client: u64,
        name: &[u8],
        request: Numbered,
    ) -> Result<(), Status4> {
        let Some(owner) = self.owners_mut(client)?.get(OwnerKind::Opens, name) else {
            return self.add_numbered(client, OwnerKind::Opens, name);
        };
        // What a connection is just opening stays: this request is refused.
        if owner.is_confirmed || owner.is_busy() || owner.is_repeated(request) {
            return Ok(());
        }
        owner.restart();
        if let Some(number) = owner.unconfirmed {
            self.remove_open(client, number);
        }
        Ok(())
    }

    fn add_numbered(&mut self, client: u64, kind: OwnerKind, name: &[u8]) -> Result<(), Status4> {
        self.charge(client, owner_bytes(name), Status4::Resource)?;
        let freed = self.owners_mut(client)?.add(kind, name);
        self.discharge(client, freed);
        Ok(())
    }

    /// The owner of a state, or of the one that its last request has closed.
    fn owner_of(&mut self, client: u64, id: StateId) -> Result<(OwnerKind, Box<[u8]>), Status4> {
        let number = id.number_of(client)?;
        let holder = self.client_mut(client)?;
        let Some(state) = holder.states.get(&number) else {
            let owners = holder.owners.as_ref();
            let name = owners.and_then(|owners| owners.owner_of_closed(number));
            let name = name.ok_or(Status4::BadStateId)?;
            return Ok((OwnerKind::Opens, name.into()));
        };
        let (kind, key) = (state.kind, state.file);
        let file = self.files.get(&key).ok_or(Status4::BadStateId)?;
        let (kind, name) = if kind == StateKind::Locks {
            (OwnerKind::Locks, file.owner_of((client, number)))
        } else {
            let open = file.open(client, number);
            (OwnerKind::Opens, open.map(|open| &*open.owner))
        };
        Ok((kind, name.ok_or(Status4::BadStateId)?.into()))
    }

    pub(super) fn owners_mut(&mut self, client: u64) -> Result<&mut Owners, Status4> {
        let owners = self.client_mut(client)?.owners.as_mut();
        owners.ok_or(Status4::StaleClientId)
    }

    /// An open-owner reclaims an open, so it is known to be no late repetition.
    pub(crate) fn confirm_opener(&mut self, client: u64, name: &[u8]) {
        let owners = self.owners_mut(client).ok();
        if let Some(owner) = owners.and_then(|owners| owners.get(OwnerKind::Opens, name)) {
            owner.is_confirmed = true;
        }
    }

    /// OPEN_CONFIRM (section 16.18).
    pub(crate) fn confirm_open(
        &mut self,
        client: u64,
        id: StateId,
        key: &super::FileKey,
    ) -> Result<StateId, Status4> {
        let (_, name) = self.owner_of(client, id)?;
        let number = id.number_of(client)?;
        let holder = self.client_mut(client)?;
        let state = holder.states.get_mut(&number);
        let state =
            state.filter(|state| state.kind == StateKind::Unconfirmed && state.file == *key);
        let state = state.ok_or(Status4::BadStateId)?;
        state.check(id)?;
        state.kind = StateKind::Open;
        state.advance();
        let confirmed = StateId::new(client, number, state.sequence);
        let owners = holder.owners.as_mut();
        if let Some(owner) = owners.and_then(|owners| owners.get(OwnerKind::Opens, &name)) {
            owner.is_confirmed = true;
            owner.unconfirmed = None;
        }
        Ok(confirmed)
    }

    /// A lock-owner's first lock with an open (open_to_lock_owner4), whose results its open-owner
    /// has. Since minor version 1 it has no number.
    pub(crate) fn lock_first(
        &mut self,
        client: u64,
        (name, request): (&[u8], Numbered),
        lock: impl FnOnce(&mut Self) -> Result<StateId, Refused>,
    ) -> Result<StateId, Refused> {
        if self.client_mut(client)?.owners.is_none() {
            return lock(self);
        }
        self.begin_first_lock(client, name, request.sequence)?;
        let locked = lock(self);
        let status = match &locked {
            Ok(_) => Status4::Ok,
            Err(Refused::Denied(_)) => Status4::Denied,
            Err(Refused::Status(status)) => *status,
        };
        if let Some(owner) = self.owners_mut(client)?.get(OwnerKind::Locks, name) {
            owner.end(Executed::new(request, status, Vec::new(), None));
        }
        locked
    }

    /// Checks the number of a first lock, and adds a lock-owner that is new.
    fn begin_first_lock(&mut self, client: u64, name: &[u8], sequence: u32) -> Result<(), Status4> {
        match self.owners_mut(client)?.get(OwnerKind::Locks, name) {
            Some(owner) => owner.check_first_lock(sequence),
            None => self.add_numbered(client, OwnerKind::Locks, name),
        }
    }

    /// RELEASE_LOCKOWNER (section 16.37).
    pub(crate) fn release_lock_owner(&mut self, client: u64, name: &[u8]) -> Result<(), Status4> {
        let mut lockers = Vec::new();
        let states = &self.client_mut(client)?.states;
        let states = states
            .iter()
            .filter(|(_, state)| state.kind == StateKind::Locks);
        let states: Vec<_> = states
            .map(|(&number, state)| (number, state.file))
            .collect();
        for (number, key) in states {
            let file = self.files.get(&key).ok_or(Status4::ServerFault)?;
            if file.owner_of((client, number)) != Some(name) {
                continue;
            }
            if file.has_ranges(client, number) {
                return Err(Status4::LocksHeld);
            }
            lockers.push((number, key));
        }
        for (number, key) in lockers {
            self.remove_locker(client, &key, number);
        }
        let freed = self.owners_mut(client)?.remove(OwnerKind::Locks, name);
        self.discharge(client, freed);
        Ok(())
    }
}
