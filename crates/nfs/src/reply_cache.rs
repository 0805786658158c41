//! Replies to calls that must not be executed twice (RFC 1813 section 4.5).

use std::collections::{BTreeMap, VecDeque};
use std::net::IpAddr;
use std::time::{Duration, Instant};

use crate::Procedure;
use crate::rpc::Call;
use crate::xdr::Writer;

/// The duplicate request cache: replies to the last calls of each client that change more than a
/// repetition would. A client that reconnects sends the calls again whose replies it has not seen;
/// it gets the same replies.
///
/// The program owns one, which outlives connections, and lends it to sessions
/// ([`Backend::with_replies`]). It grows to at most [`BYTES_MAX`](Self::BYTES_MAX) bytes. Clients
/// do not evict each other's replies while there is room, and the client that has not called for
/// the longest time is evicted first.
///
/// [`Backend::with_replies`]: crate::Backend::with_replies
#[derive(Debug, Default)]
pub struct ReplyCache {
    clients: BTreeMap<IpAddr, Client>,
    /// Of all clients.
    entries: usize,
    /// Counts calls, so that clients can be compared.
    clock: u64,
}

/// Replies to one client, the oldest first.
#[derive(Debug, Default)]
struct Client {
    entries: VecDeque<Entry>,
    used: u64,
}

/// What a retransmission has in common with its original.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CallKey {
    /// The transaction identifier.
    pub(crate) xid: u32,
    pub(crate) procedure: Procedure,
    /// CRC32C of the call.
    pub(crate) checksum: u32,
    /// The length of the call in bytes.
    pub(crate) len_bytes: usize,
}

#[derive(Debug)]
struct Entry {
    key: CallKey,
    began: Instant,
    /// The length of the reply; `None` while the call is being executed.
    reply_len: Option<u16>,
    reply: [u8; REPLY_LEN_MAX],
}

/// What is known of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Known {
    /// Nothing: it is to be executed, and its reply to be [kept](ReplyCache::finish).
    New,
    /// Another connection is executing it: it is to be dropped.
    InProgress,
    /// It was executed, and its reply was appended to the output.
    Replied,
}

/// The longest reply that is kept. Of version 3, RPC header, status, handle, attributes, and two
/// wcc_data take less than 288 bytes; of version 4.0, OPEN or CREATE with a handle and the
/// attributes that Linux asks for take less than 400.
pub(crate) const REPLY_LEN_MAX: usize = 448;
/// Replies kept per client: as many calls as a client may have in flight at once when it loses its
/// connection.
const CLIENT_ENTRIES_MAX: usize = 256;
/// Replies kept in all.
const ENTRIES_MAX: usize = 16 << 10;
/// Clients with replies.
const CLIENTS_MAX: usize = 256;
/// How long a reply is kept. Clients retransmit within seconds after a reconnection; afterwards an
/// xid may be that of another call.
const LIFETIME: Duration = Duration::from_secs(120);

impl ReplyCache {
    /// The most memory that it takes, in bytes. Queues grow by doubling.
    pub const BYTES_MAX: usize = 2 * (ENTRIES_MAX * size_of::<Entry>() + CLIENTS_MAX * 256);

    /// The memory that it takes, in bytes, except for the map's own.
    #[cfg(test)]
    pub(crate) fn bytes(&self) -> usize {
        let entries = self
            .clients
            .values()
            .map(|client| client.entries.capacity());
        entries.sum::<usize>() * size_of::<Entry>()
    }

    /// Looks a call up, and notes it if it is new.
    pub(crate) fn begin(
        &mut self,
        client: IpAddr,
        key: CallKey,
        now: Instant,
        reply: &mut Writer<'_>,
    ) -> Known {
        self.clock += 1;
        if let Some(known) = self.clients.get_mut(&client) {
            known.used = self.clock;
            let found = known.entries.iter().rev().find(|entry| entry.key == key);
            if let Some(entry) = found.filter(|entry| entry.is_fresh(now)) {
                let Some(len) = entry.reply_len else {
                    return Known::InProgress;
                };
                reply.raw(&entry.reply[..usize::from(len)]);
                return Known::Replied;
            }
        }
        self.make_room(client);
        let queue = self.clients.entry(client).or_default();
        queue.used = self.clock;
        queue.entries.push_back(Entry {
            key,
            began: now,
            reply_len: None,
            reply: [0; REPLY_LEN_MAX],
        });
        self.entries += 1;
        Known::New
    }

    /// Keeps the reply to a call that was new. A call whose reply is longer than any usual one is
    /// forgotten, as if it had not been made.
    pub(crate) fn finish(&mut self, client: IpAddr, key: CallKey, reply: &[u8]) {
        let Some(known) = self.clients.get_mut(&client) else {
            return;
        };
        // The newest, since an older one with the same key has expired.
        let Some(at) = known.entries.iter().rposition(|entry| entry.key == key) else {
            return;
        };
        let entry = &mut known.entries[at];
        if let Some(room) = entry.reply.get_mut(..reply.len()) {
            room.copy_from_slice(reply);
            entry.reply_len = Some(reply.len() as u16);
        } else {
            known.entries.remove(at);
            self.entries -= 1;
        }
    }

    /// Evicts until one more entry of `client` fits.
    fn make_room(&mut self, client: IpAddr) {
        if let Some(own) = self.clients.get_mut(&client) {
            while own.entries.len() >= CLIENT_ENTRIES_MAX {
                own.entries.pop_front();
                self.entries -= 1;
            }
        }
        while self.entries >= ENTRIES_MAX
            || self.clients.len() >= CLIENTS_MAX && !self.clients.contains_key(&client)
        {
            let others = self
                .clients
                .iter()
                .filter(|(address, _)| **address != client);
            let Some((&oldest, _)) = others.min_by_key(|(_, other)| other.used) else {
                return;
            };
            if let Some(evicted) = self.clients.remove(&oldest) {
                self.entries -= evicted.entries.len();
            }
        }
    }
}

impl CallKey {
    /// That of a call and the record that it is.
    pub(crate) fn new(call: &Call<'_>, record: &[u8]) -> Self {
        Self {
            xid: call.xid,
            procedure: call.procedure,
            checksum: crc32c::crc32c(record),
            len_bytes: record.len(),
        }
    }
}

impl Entry {
    fn is_fresh(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.began) < LIFETIME
    }
}
