//! The grace period after a restart: clients that held state when the program ended open and lock
//! their files again, before anyone else may.
//!
//! ```text
//!                       every record's client is done, or LEASE is over
//! grace (has records) ─────────────────────────────────────────────────► no grace
//! ```
//!
//! A record says that a client may hold state. It is made when the client has sent
//! RECLAIM_COMPLETE, before which the client opens nothing, or with the first open of a client of
//! minor version 0, which never says that it is done. It is removed with the client. Records that
//! nobody has claimed are removed when the grace period ends: what their clients held may be
//! others' from then on. The program saves the records after each change ([`Clients::records`]),
//! and an open or lock of files that outlive it is answered only when the changes before are saved.
//!
//! Read first: RFC 8881 sections 8.4.2, 8.4.3 and 18.51; RFC 7530 section 9.6.2.

use std::collections::HashSet;
use std::net::IpAddr;
use std::time::Instant;

use super::hosts::LockHosts;
use super::{Client, Clients, LEASE, OWNER_BYTES_MAX};
use crate::status4::Status4;

/// A client that may hold opens and locks.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ClientRecord {
    /// The address that it connects from.
    pub address: IpAddr,
    /// The verifier of its present start.
    pub verifier: [u8; 8],
    /// The name that it has given itself.
    pub owner: Box<[u8]>,
}

impl ClientRecord {
    /// The longest name in bytes.
    pub const OWNER_BYTES_MAX: usize = OWNER_BYTES_MAX;

    fn is_of(&self, client: &Client) -> bool {
        self.address == client.principal.address && *self.owner == *client.owner
    }
}

/// The grace period, and what the program is to save.
#[derive(Debug, Default)]
pub(super) struct Reclaims {
    /// The clients of the program's last run that are not done.
    records: Vec<ClientRecord>,
    end: Option<Instant>,
    /// Moves with each change of [`Clients::records`] and [`Clients::lock_hosts`].
    number: u64,
}

impl Clients {
    /// The most records that are saved: of clients before the restart and after it.
    pub const RECORDS_MAX: usize = 2 * super::CLIENTS_MAX;
    /// The most memory in bytes that records take: those that are waited for, and those that are
    /// being saved.
    pub const RECORDS_BYTES_MAX: usize =
        2 * Self::RECORDS_MAX * (OWNER_BYTES_MAX + 64) + LockHosts::BYTES_MAX;

    /// Begins the grace period of these clients, which may have held state when the program ended.
    /// Without any there is none.
    pub fn begin_grace(&mut self, now: Instant, mut records: Vec<ClientRecord>) {
        records.truncate(Self::RECORDS_MAX);
        self.reclaims.end = (!records.is_empty()).then(|| now + LEASE);
        self.reclaims.records = records;
    }

    /// The number of the present records: it moves when these change.
    pub const fn records_number(&self) -> u64 {
        self.reclaims.number
    }

    /// The clients that may reclaim what they hold if the program ends now.
    pub fn records(&self) -> Vec<ClientRecord> {
        let clients = self.clients.values().filter(|client| client.is_recorded());
        let own = clients.map(|client| ClientRecord {
            address: client.principal.address,
            verifier: client.verifier,
            owner: client.owner.clone(),
        });
        let mut records: Vec<_> = own.collect();
        let known: HashSet<_> = records.iter().collect();
        let left = self.reclaims.records.iter();
        let is_new = |record: &&ClientRecord| !known.contains(record);
        let left: Vec<_> = left.filter(is_new).cloned().collect();
        records.extend(left);
        records.truncate(Self::RECORDS_MAX);
        records
    }

    /// Whether opens and locks of files that outlive the program have to be reclaimed now, and
    /// others have to wait.
    pub(crate) fn is_in_grace(&mut self, now: Instant) -> bool {
        let is_open = |end: Instant| now < end && !self.reclaims.records.is_empty();
        if self.reclaims.end.is_some_and(is_open) || self.hosts.are_waited_for(now) {
            return true;
        }
        if self.reclaims.end.take().is_some() {
            self.drop_records(|_| true);
        }
        self.end_host_grace();
        false
    }

    /// What is to be saved has changed.
    pub(super) const fn note_change(&mut self) {
        self.reclaims.number += 1;
    }

    /// Whether a client is expected to reclaim something.
    pub(super) const fn waits_for_reclaims(&self) -> bool {
        !self.reclaims.records.is_empty()
    }

    /// Whether a client may reclaim opens and locks of files that outlive the program.
    pub(crate) fn check_reclaim(&mut self, now: Instant, client: u64) -> Result<(), Status4> {
        let is_done = self.client_mut(client)?.is_reclaim_complete;
        if is_done || !self.is_in_grace(now) {
            return Err(Status4::NoGrace);
        }
        let client = self.clients.get(&client).ok_or(Status4::StaleClientId)?;
        let mut records = self.reclaims.records.iter();
        if records.any(|record| record.is_of(client)) {
            Ok(())
        } else {
            Err(Status4::ReclaimBad)
        }
    }

    /// The client has sent RECLAIM_COMPLETE (RFC 8881 section 18.51).
    pub(crate) fn complete_reclaim(&mut self, id: u64) -> Result<(), Status4> {
        let client = self.client_mut(id)?;
        if std::mem::replace(&mut client.is_reclaim_complete, true) {
            return Err(Status4::CompleteAlready);
        }
        self.reclaims.number += 1;
        self.end_reclaim(id, |_, _| true);
        Ok(())
    }

    /// A client has opened a file.
    pub(super) fn note_open(&mut self, id: u64) {
        let owners = self
            .clients
            .get_mut(&id)
            .and_then(|client| client.owners.as_mut());
        if owners.is_some_and(|owners| !std::mem::replace(&mut owners.has_opened, true)) {
            self.reclaims.number += 1;
        }
    }

    /// A client has confirmed its ID. If it has restarted, too, it has nothing to reclaim.
    pub(super) fn begin_reclaim(&mut self, id: u64) {
        self.end_reclaim(id, |record, client| record.verifier != client.verifier);
    }

    /// A client is removed: it does not reclaim what it held.
    pub(super) fn forget_record(&mut self, client: &Client) {
        if client.is_recorded() {
            self.reclaims.number += 1;
        }
        if client.is_confirmed {
            self.drop_records(|record| record.is_of(client));
        }
    }

    fn end_reclaim(&mut self, id: u64, is_over: impl Fn(&ClientRecord, &Client) -> bool) {
        let Some(client) = self.clients.get(&id) else {
            return;
        };
        let records = &mut self.reclaims.records;
        let before = records.len();
        records.retain(|record| !record.is_of(client) || !is_over(record, client));
        self.reclaims.number += u64::from(records.len() != before);
    }

    fn drop_records(&mut self, is_it: impl Fn(&ClientRecord) -> bool) {
        let records = &mut self.reclaims.records;
        let before = records.len();
        records.retain(|record| !is_it(record));
        self.reclaims.number += u64::from(records.len() != before);
    }
}

impl Client {
    /// Whether it may hold state that outlives the program.
    fn is_recorded(&self) -> bool {
        let has_opened = self.owners.as_ref().is_some_and(|owners| owners.has_opened);
        self.is_confirmed && (self.is_reclaim_complete || has_opened)
    }
}
