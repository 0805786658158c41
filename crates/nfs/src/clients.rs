//! What clients hold: of NFS version 4 client IDs, sessions with their slots, opens, byte-range
//! locks, leases; of NLM, the lock protocol beside version 3, byte-range locks.
//!
//! Read first: RFC 8881 sections 2.4, 2.10.6, 8, 9 and 18.35 to 18.37; RFC 7530 section 9 for minor
//! version 0.
//!
//! Opens, locks, leases and reclaiming are the same for all minor versions. What differs is how a
//! client is known and how its requests are executed once: by sessions (`exchange`, `slots`) since
//! minor version 1, by the numbers of its open-owners and lock-owners (`owned`, `owners`) in minor
//! version 0. In the diagram SETCLIENTID then stands for EXCHANGE_ID, SETCLIENTID_CONFIRM for
//! CREATE_SESSION, and any operation with a client ID or a state ID for SEQUENCE.
//!
//! ```text
//!            EXCHANGE_ID               CREATE_SESSION             DESTROY_CLIENTID, or no SEQUENCE for LEASE
//!  nothing ──────────────► unconfirmed ───────────────► confirmed ─────────────────────────────────────────► nothing
//!                             │ LEASE is over                └── CREATE_SESSION of the same owner after its reboot ──► nothing
//!                             └──► nothing
//! ```

mod back_channel;
mod callback;
mod claims;
mod delegations;
mod exchange;
mod files;
mod hosts;
mod locks;
mod nlm;
mod opens;
mod owned;
mod owners;
mod reclaim;
mod session_id;
mod slots;
mod stateid;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::IpAddr;
use std::time::{Duration, Instant};

pub(crate) use back_channel::{CALLS_MAX as CALLBACKS_MAX, NextCallback};
pub(crate) use callback::{CALLBACK_BYTES_MAX, CallbackCredential, CallbackProgram};
pub(crate) use claims::{Conflict, FileKey, LockKind, LockRange, ShareModes};
pub(crate) use delegations::Undelegated;
pub(crate) use exchange::Exchange;
pub use hosts::LockHost;
pub(crate) use locks::{Locker, Refused};
pub use nlm::Grant;
pub(crate) use nlm::{Locked, NlmCaller};
pub(crate) use opens::Opened;
pub(crate) use owned::Requester;
pub(crate) use owners::{BegunRequest, Executed, Numbered};
pub use reclaim::ClientRecord;
pub(crate) use session_id::SessionId;
pub(crate) use slots::{
    Begun, ChannelLimits, HEAD_BYTES_MAX, MESSAGE_BYTES_MAX, NewSession, OPERATIONS_MAX, Request,
    SlotId, SlotRequest, TRANSFER_BYTES_MAX,
};
pub(crate) use stateid::{StateId, StateUse};

use crate::status4::Status4;
use back_channel::{BackChannels, PendingRecall};
use files::FileState;
use hosts::LockHosts;
use nlm::{NlmClient, PendingGrant};
use owners::Owners;
use reclaim::Reclaims;
use slots::Session;
use stateid::State;

/// The state of all clients of NFS version 4, and the locks of clients of version 3 (NLM). The
/// program owns one behind a lock, and lends it to the sessions of all connections
/// ([`Backend::with_clients`]), because a client may use several connections, and several after
/// each other.
///
/// A client is an owner at an address: no other address can use, change or replace its state.
///
/// [`Backend::with_clients`]: crate::Backend::with_clients
#[derive(Debug)]
#[expect(
    clippy::struct_field_names,
    reason = "it has clients, and files beside them"
)]
pub struct Clients {
    /// The upper half of client IDs, which tells those of an earlier start of the program apart.
    start: u32,
    /// The lower half of the last client ID.
    last: u32,
    /// The lower half of the last verifier of SETCLIENTID.
    last_verifier: u32,
    clients: BTreeMap<u64, Client>,
    /// Clients of NLM with locks, or that wait for locks. Their IDs differ from those of version 4.
    lockers: BTreeMap<u64, NlmClient>,
    /// Locks that clients of NLM have waited for and that are theirs now, until they have
    /// acknowledged that.
    grants: BTreeMap<u64, PendingGrant>,
    /// Of these, the ones that no callback was begun for.
    fresh_grants: VecDeque<u64>,
    last_grant: u64,
    /// Files with opens, locks or delegations.
    files: BTreeMap<FileKey, FileState>,
    /// How many files are delegated, once per client.
    delegations: usize,
    /// Files that were recalled a moment ago, and when.
    contended: VecDeque<(FileKey, Instant)>,
    back: BackChannels,
    reclaims: Reclaims,
    /// Clients of NLM to notify of a restart.
    hosts: LockHosts,
    /// No lease expires before this.
    next_expiry: Option<Instant>,
    /// What all of it takes, as far as clients can make it grow.
    used_bytes: usize,
}

/// How long a client keeps its state without a SEQUENCE.
pub(crate) const LEASE: Duration = Duration::from_secs(90);
/// Client IDs, confirmed or not.
const CLIENTS_MAX: usize = 2048;
/// Client IDs of one address, so that it does not keep others out.
const ADDRESS_CLIENTS_MAX: usize = 1280;
/// What one client may use of [`Clients::BYTES_MAX`].
const CLIENT_BYTES_MAX: usize = 4 << 20;
/// The longest name that a client or an owner gives itself, in bytes (NFS4_OPAQUE_LIMIT).
pub(crate) const OWNER_BYTES_MAX: usize = 1024;

/// Who may use a client ID.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Principal {
    /// The address that it connects from.
    pub(crate) address: IpAddr,
    /// The user that its client has created it as.
    pub(crate) uid: u32,
}

/// A client.
#[derive(Debug)]
struct Client {
    /// co_ownerid.
    owner: Box<[u8]>,
    /// co_verifier: changes when the client restarts.
    verifier: [u8; 8],
    principal: Principal,
    is_confirmed: bool,
    lease_end: Instant,
    /// The sequence number of the last CREATE_SESSION, and what it returned.
    create_sequence: u32,
    created: Option<NewSession>,
    sessions: BTreeMap<u32, Session>,
    last_session: u32,
    /// Of a client of minor version 0, which has no sessions: its owners.
    owners: Option<Owners>,
    /// Opens and locks, by the number in their state IDs.
    states: BTreeMap<u32, State>,
    last_state: u32,
    /// Locked ranges of all files.
    ranges: usize,
    /// Files that are delegated to it.
    delegations: usize,
    /// Delegations that were revoked and that it has not freed.
    revoked: usize,
    /// Delegations that it has to be asked for.
    recalls: VecDeque<PendingRecall>,
    /// What all of this takes.
    used_bytes: usize,
    is_reclaim_complete: bool,
}

impl Clients {
    /// The most memory that it takes, in bytes.
    pub const BYTES_MAX: usize = 16 << 20;

    /// No clients. `start` differs between starts of the program.
    pub fn new(start: u32) -> Self {
        Self {
            start,
            last: 0,
            last_verifier: 0,
            clients: BTreeMap::new(),
            lockers: BTreeMap::new(),
            grants: BTreeMap::new(),
            fresh_grants: VecDeque::new(),
            last_grant: 0,
            files: BTreeMap::new(),
            delegations: 0,
            contended: VecDeque::new(),
            back: BackChannels::default(),
            reclaims: Reclaims::default(),
            hosts: LockHosts::default(),
            next_expiry: None,
            used_bytes: 0,
        }
    }

    /// How many clients hold state, and how many opens and locks these are: for reports.
    pub fn count(&self) -> ClientCounts {
        let mut counts = ClientCounts::default();
        for client in self.clients.values().filter(|client| client.is_confirmed) {
            counts.clients += 1;
            counts.sessions += client.sessions.len();
            counts.locks += client.ranges;
        }
        counts.locks += self.nlm_ranges();
        counts.opens = self.files.values().map(FileState::open_count).sum();
        counts
    }

    /// The clients at an address, for reports.
    pub fn at(&self, address: IpAddr) -> Vec<ClientInfo> {
        let clients = self.clients.values();
        let at = clients
            .filter(|client| client.is_confirmed && client.principal.address == address)
            .map(|client| ClientInfo {
                name: String::from_utf8_lossy(&client.owner).into_owned(),
                sessions: client.sessions.len(),
                opens: client.opens(),
                locks: client.ranges,
                delegations: client.delegations,
            });
        at.collect()
    }

    /// Charges a client for what it is about to hold.
    fn charge(&mut self, client: u64, bytes: usize, otherwise: Status4) -> Result<(), Status4> {
        let used = &mut self.used_bytes;
        let holder = self.clients.get_mut(&client).ok_or(otherwise)?;
        if holder.used_bytes + bytes > CLIENT_BYTES_MAX || *used + bytes > Self::BYTES_MAX {
            return Err(otherwise);
        }
        holder.used_bytes += bytes;
        *used += bytes;
        Ok(())
    }

    /// Takes back what a client was charged.
    fn discharge(&mut self, client: u64, bytes: usize) {
        if let Some(holder) = self.clients.get_mut(&client) {
            holder.used_bytes -= bytes;
            self.used_bytes -= bytes;
        }
    }

    /// A confirmed client.
    fn client_mut(&mut self, client: u64) -> Result<&mut Client, Status4> {
        let found = self.clients.get_mut(&client);
        found
            .filter(|client| client.is_confirmed)
            .ok_or(Status4::StaleClientId)
    }

    /// Removes clients whose lease has expired.
    fn expire(&mut self, now: Instant) {
        if self.next_expiry.is_none_or(|expiry| now < expiry) {
            return;
        }
        let is_over = |client: &Client| now >= client.lease_end;
        while let Some((&id, _)) = self.clients.iter().find(|(_, client)| is_over(client)) {
            self.remove_client(id);
        }
        self.next_expiry = self.clients.values().map(|client| client.lease_end).min();
    }

    /// Removes a client with all its state.
    fn remove_client(&mut self, id: u64) {
        let Some(client) = self.clients.remove(&id) else {
            return;
        };
        self.used_bytes -= client.used_bytes;
        self.delegations -= client.delegations;
        for (&number, session) in &client.sessions {
            if let Some(back) = session.back() {
                self.forget_back(id, number, back);
            }
        }
        self.forget_record(&client);
        // Each file once, since every visit looks at everything that is open and locked of it.
        let files: BTreeSet<_> = client.states.values().map(|state| state.file).collect();
        for key in &files {
            if let Some(file) = self.files.get_mut(key) {
                file.remove_client(id);
                self.grant_waiters(key);
                self.forget_unused(key);
            }
        }
    }

    /// Removes a file that nothing is known of any more.
    fn forget_unused(&mut self, key: &FileKey) {
        if self.files.get(key).is_some_and(FileState::is_unused) {
            self.files.remove(key);
        }
    }

    /// An ID that no client has.
    fn new_id(&mut self) -> u64 {
        loop {
            self.last = self.last.wrapping_add(1);
            let id = u64::from(self.start) << 32 | u64::from(self.last);
            if !self.clients.contains_key(&id) && !self.lockers.contains_key(&id) {
                return id;
            }
        }
    }
}

/// What clients of NFS version 4 hold in all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClientCounts {
    /// Confirmed clients.
    pub clients: usize,
    /// Their sessions.
    pub sessions: usize,
    /// Open files, once per open owner.
    pub opens: usize,
    /// Locked ranges.
    pub locks: usize,
}

/// What a client of NFS version 4 holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientInfo {
    /// The name that it has given itself.
    pub name: String,
    /// Its sessions.
    pub sessions: usize,
    /// Open files, once per open owner.
    pub opens: usize,
    /// Locked ranges.
    pub locks: usize,
    /// Files that are delegated to it.
    pub delegations: usize,
}

#[cfg(test)]
mod tests;
