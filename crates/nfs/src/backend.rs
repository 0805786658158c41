//! What a connection needs from the program around it.

use std::net::IpAddr;
use std::time::Instant;

use crate::{Answer, Clients, Completed, Export, ExportId, Refusal, ReplyCache, WaitingCall};

/// The most data of a READ (rtmax) or a WRITE (wtmax) of version 3, in bytes.
pub const TRANSFER_BYTES_MAX: usize = 1 << 20;

/// What the session of one connection asks of the program around it.
///
/// The access check (address, port, `secure`) is part of [`by_id`](Self::by_id) and
/// [`by_path`](Self::by_path), which are called for every call and for every part of a long READ or
/// WRITE. They must be cheap, and revoke access at once.
pub trait Backend {
    /// The export that a file handle names.
    fn by_id(&mut self, id: ExportId) -> Result<&Export, Refusal>;

    /// The export with this path, `/NAME`. Paths below an export are resolved by the session.
    fn by_path(&mut self, path: &[u8]) -> Result<&Export, Refusal>;

    /// Calls `take` with the path of each export that the client may learn of, and with the clients
    /// that may use it, as text; no clients means everyone. For MOUNT EXPORT (`showmount -e`).
    fn each_export(&mut self, take: &mut dyn FnMut(&str, &[String]));

    /// Calls `take` with the client and the path of each mount, for MOUNT DUMP (`showmount -a`).
    fn each_mount(&mut self, take: &mut dyn FnMut(&str, &[u8]));

    /// The client has mounted a path: bookkeeping for [`each_mount`](Self::each_mount), which must
    /// be bounded.
    fn mounted(&mut self, path: &[u8]);

    /// The client has unmounted a path, or all if `None`.
    fn unmounted(&mut self, path: Option<&[u8]>);

    /// Changes at each start of the program, so that clients send unstable writes again.
    fn write_verifier(&self) -> [u8; 8];

    /// Stays the same over restarts of the program, unlike anything that other servers return:
    /// clients reclaim their opens and locks from a server of the same scope only (RFC 8881 section
    /// 2.10.4).
    fn scope(&self) -> [u8; 16];

    /// The client's address, to which replies in the cache belong.
    fn client(&self) -> IpAddr;

    /// The most bytes of data of a READ, a WRITE or a list, which the transport of the connection
    /// limits.
    fn transfer_bytes_max(&self) -> usize {
        TRANSFER_BYTES_MAX
    }

    /// The number of the connection, if calls to the client may be made over it. The session is
    /// woken when [`Clients::next_wake`] returns the number.
    fn back_channel(&self) -> Option<u64>;

    /// The address of this server that the client has connected to, from which it expects
    /// callbacks.
    fn local(&self) -> IpAddr;

    /// Calls `use_cache` with the replies that all connections share, under a lock of the
    /// program's. Called twice for each call that must not be executed twice, and never for READ,
    /// WRITE or a call that only asks.
    fn with_replies(&mut self, use_cache: &mut dyn FnMut(&mut ReplyCache));

    /// Calls `use_clients` with the state of all clients of NFS version 4, under a lock of the
    /// program's, once. Called a few times for each compound.
    fn with_clients(&mut self, use_clients: &mut dyn FnMut(&mut Clients));

    /// Waits until [`Clients::records`] are saved as they were when it was called, for a bounded
    /// time. Called for files that outlive the program, so only in calls that may wait.
    fn settle_records(&mut self);

    /// Charges [`WaitingCall::BYTES_MAX`] for calls of the connection that wait, when the first one
    /// comes. Returns whether that is charged. If not, the status asks clients to retry later.
    fn charge_waiting(&mut self) -> bool;

    /// Has a call executed by a thread that may wait, which calls [`WaitingCall::execute`]. Then
    /// the session is woken and takes the answer. Returns the call if it cannot be taken now.
    fn submit(&mut self, call: WaitingCall) -> Result<(), WaitingCall>;

    /// The answer to a call that was submitted, in the order in which they ended.
    fn next_answer(&mut self) -> Option<Answer>;

    /// A call is complete. For counters and latency: the reply leaves when the runtime next sends.
    fn count(&mut self, completed: &Completed, now: Instant);
}
