//! Client IDs: EXCHANGE_ID, CREATE_SESSION, DESTROY_SESSION, DESTROY_CLIENTID.
//!
//! Read first: RFC 8881 sections 18.35 to 18.37 and 18.50.

use std::collections::{BTreeMap, VecDeque};
use std::net::IpAddr;
use std::time::Instant;

use super::back_channel::BackChannel;
use super::callback::CallbackProgram;
use super::owners::Owners;
use super::session_id::SessionId;
use super::slots::{ChannelLimits, NewSession, SESSIONS_MAX, Session};
use super::{ADDRESS_CLIENTS_MAX, CLIENTS_MAX, Client, Clients, LEASE, Principal};
use crate::status4::Status4;

/// What EXCHANGE_ID asks for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Exchange<'a> {
    pub(crate) principal: Principal,
    /// co_ownerid.
    pub(crate) owner: &'a [u8],
    /// co_verifier.
    pub(crate) verifier: [u8; 8],
    /// EXCHGID4_FLAG_UPD_CONFIRMED_REC_A: a client ID is to be confirmed already.
    pub(crate) is_update: bool,
    /// SETCLIENTID: the client is one of minor version 0, which has owners instead of sessions.
    pub(crate) has_owners: bool,
}

/// What EXCHANGE_ID returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Exchanged {
    /// The client ID.
    pub(crate) client: u64,
    /// The sequence number that CREATE_SESSION is to have.
    pub(crate) sequence: u32,
    /// EXCHGID4_FLAG_CONFIRMED_R: the client has sessions or had some.
    pub(crate) is_confirmed: bool,
}

/// What a client takes besides its name, in bytes.
const CLIENT_BYTES: usize = 1024;

impl Clients {
    /// EXCHANGE_ID. The cases are those of section 18.35.5.
    pub(crate) fn exchange(
        &mut self,
        now: Instant,
        exchange: &Exchange<'_>,
    ) -> Result<Exchanged, Status4> {
        self.expire(now);
        let Some(id) = self.find(exchange, true) else {
            if exchange.is_update {
                // Case 7.
                return Err(Status4::NotFound);
            }
            // Cases 1 and 4.
            return self.add_client(now, exchange);
        };
        let client = self.client_mut(id)?;
        let is_same_verifier = client.verifier == exchange.verifier;
        let is_same_principal = client.principal == exchange.principal;
        if exchange.is_update && !is_same_verifier {
            // Case 8.
            return Err(Status4::NotSame);
        }
        if !is_same_principal {
            if exchange.is_update {
                // Case 9.
                return Err(Status4::NotOwner);
            }
            // Case 3. Its lease has not expired, or the client would be gone.
            if !client.is_unused() {
                return Err(Status4::ClientIdInUse);
            }
            self.remove_client(id);
            return self.add_client(now, exchange);
        }
        if is_same_verifier {
            // Cases 2 and 6.
            return Ok(Exchanged {
                client: id,
                sequence: client.create_sequence.wrapping_add(1),
                is_confirmed: true,
            });
        }
        // Case 5: the client has restarted. Its old state stays until it confirms the new client
        // ID.
        self.add_client(now, exchange)
    }

    /// The client ID of an owner at an address. Machines that have the same name are different
    /// clients, and so are a machine that connects from another of its addresses, and its clients
    /// of minor version 0 and of later ones.
    fn find(&self, exchange: &Exchange<'_>, is_confirmed: bool) -> Option<u64> {
        let is_it = |client: &Client| {
            *client.owner == *exchange.owner
                && client.principal.address == exchange.principal.address
                && client.owners.is_some() == exchange.has_owners
                && client.is_confirmed == is_confirmed
        };
        let found = self.clients.iter().find(|(_, client)| is_it(client));
        found.map(|(&id, _)| id)
    }

    /// Adds an unconfirmed client ID, replacing another of the same owner.
    fn add_client(&mut self, now: Instant, exchange: &Exchange<'_>) -> Result<Exchanged, Status4> {
        let address = exchange.principal.address;
        self.forget_unconfirmed(exchange);
        let is_near = |client: &&Client| client.principal.address == address;
        if self.clients.values().filter(is_near).count() >= ADDRESS_CLIENTS_MAX {
            self.make_room(Some(address))?;
        }
        if self.clients.len() >= CLIENTS_MAX {
            self.make_room(None)?;
        }
        let id = self.new_id();
        let lease_end = now + LEASE;
        self.clients.insert(
            id,
            Client {
                owner: exchange.owner.into(),
                verifier: exchange.verifier,
                principal: exchange.principal,
                is_confirmed: false,
                lease_end,
                create_sequence: 0,
                created: None,
                sessions: BTreeMap::new(),
                last_session: 0,
                owners: exchange.has_owners.then(Owners::default),
                states: BTreeMap::new(),
                last_state: 0,
                ranges: 0,
                delegations: 0,
                revoked: 0,
                recalls: VecDeque::new(),
                used_bytes: 0,
                is_reclaim_complete: false,
            },
        );
        let next = self
            .next_expiry
            .map_or(lease_end, |expiry| expiry.min(lease_end));
        self.next_expiry = Some(next);
        let bytes = CLIENT_BYTES + exchange.owner.len();
        if let Err(status) = self.charge(id, bytes, Status4::Delay) {
            self.remove_client(id);
            return Err(status);
        }
        Ok(Exchanged {
            client: id,
            sequence: 1,
            is_confirmed: false,
        })
    }

    /// Removes the client ID that an owner has not confirmed.
    pub(super) fn forget_unconfirmed(&mut self, exchange: &Exchange<'_>) {
        if let Some(other) = self.find(exchange, false) {
            self.remove_client(other);
        }
    }

    /// Removes the oldest client ID, of an address or of all, that was not confirmed, so that a
    /// flood of EXCHANGE_ID keeps nobody out. If all were confirmed, one of minor version 0 that
    /// holds nothing and has nothing to reclaim is removed: its client gets another.
    fn make_room(&mut self, address: Option<IpAddr>) -> Result<(), Status4> {
        let is_grace = self.waits_for_reclaims();
        let removable = self.clients.iter().filter(|(_, client)| {
            let holds_nothing = client.owners.is_some() && client.states.is_empty() && !is_grace;
            (!client.is_confirmed || holds_nothing)
                && address.is_none_or(|address| client.principal.address == address)
        });
        let oldest = removable.min_by_key(|(_, client)| (client.is_confirmed, client.lease_end));
        let (&id, _) = oldest.ok_or(Status4::Delay)?;
        self.remove_client(id);
        Ok(())
    }

    /// CREATE_SESSION. A repetition of the last one gets the same result (section 18.36.4).
    pub(crate) fn create_session(
        &mut self,
        now: Instant,
        principal: Principal,
        (id, sequence): (u64, u32),
        (fore, back): (&ChannelLimits, &ChannelLimits),
        callbacks: Option<CallbackProgram>,
    ) -> Result<NewSession, Status4> {
        self.expire(now);
        let start = self.start;
        let client = self.clients.get_mut(&id);
        let client = client.filter(|client| client.owners.is_none());
        let client = client.ok_or(Status4::StaleClientId)?;
        // Another user of a client that is confirmed may create sessions, but nobody at another
        // address.
        let is_same_address = client.principal.address == principal.address;
        if !is_same_address || !client.is_confirmed && client.principal != principal {
            return Err(Status4::ClientIdInUse);
        }
        if let Some(created) = client
            .created
            .filter(|_| sequence == client.create_sequence)
        {
            return Ok(created);
        }
        if sequence != client.create_sequence.wrapping_add(1) {
            return Err(Status4::MisorderedSequence);
        }
        let limits = fore.granted()?;
        back.check_back()?;
        if client.sessions.len() >= SESSIONS_MAX {
            return Err(Status4::NoSpace);
        }
        self.charge(id, Session::bytes(limits), Status4::NoSpace)?;
        let client = self.clients.get_mut(&id).ok_or(Status4::StaleClientId)?;
        client.last_session = client.last_session.wrapping_add(1);
        let number = client.last_session;
        let created = NewSession {
            id: SessionId::new(id, number, start),
            sequence,
            limits,
        };
        let back = callbacks.map(|program| BackChannel::new(program, back.requests));
        client.sessions.insert(number, Session::new(limits, back));
        client.create_sequence = sequence;
        client.created = Some(created);
        client.lease_end = now + LEASE;
        if !client.is_confirmed {
            self.confirm(id);
        }
        Ok(created)
    }

    /// Confirms a client ID, and removes the one that its owner had before it restarted.
    pub(super) fn confirm(&mut self, id: u64) {
        let before = self.clients.get(&id).and_then(|client| {
            let exchange = Exchange {
                principal: client.principal,
                owner: &client.owner,
                verifier: client.verifier,
                is_update: false,
                has_owners: client.owners.is_some(),
            };
            self.find(&exchange, true)
        });
        if let Some(before) = before {
            self.remove_client(before);
        }
        if let Some(client) = self.clients.get_mut(&id) {
            client.is_confirmed = true;
        }
        self.begin_reclaim(id);
    }

    /// DESTROY_SESSION. Opens and locks stay, since they are the client's.
    pub(crate) fn destroy_session(
        &mut self,
        principal: Principal,
        session: SessionId,
    ) -> Result<(), Status4> {
        let (client, number) = self.session_owner(principal.address, session)?;
        let id = session.client();
        if let Some(removed) = client.sessions.remove(&number) {
            if let Some(back) = removed.back() {
                self.forget_back(id, number, back);
            }
            self.discharge(id, Session::bytes(removed.limits()));
        }
        Ok(())
    }

    /// DESTROY_CLIENTID.
    pub(crate) fn destroy_client(&mut self, principal: Principal, id: u64) -> Result<(), Status4> {
        let client = self.clients.get(&id).ok_or(Status4::StaleClientId)?;
        if client.principal.address != principal.address || client.owners.is_some() {
            return Err(Status4::StaleClientId);
        }
        if !client.is_unused() {
            return Err(Status4::ClientIdBusy);
        }
        self.remove_client(id);
        Ok(())
    }
}

impl Client {
    /// Whether it has neither sessions nor state.
    fn is_unused(&self) -> bool {
        self.sessions.is_empty() && self.states.is_empty()
    }
}
