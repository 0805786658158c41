//! What a connection needs from the program around it.

use std::net::IpAddr;
use std::time::Instant;

use crate::{Export, ExportId, Procedure, Refusal, ReplyCache};

/// A call that was executed and whose reply was queued, or passed on in whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completed {
    /// What was called.
    pub procedure: Procedure,
    /// Whether the reply has the status OK.
    pub is_ok: bool,
    /// Bytes of file data that were written: of WRITE, otherwise 0.
    pub bytes_in: u64,
    /// Bytes of file data that were read: of READ, otherwise 0.
    pub bytes_out: u64,
    /// When the session began to execute the call.
    pub began: Instant,
}

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

    /// The client's address, to which replies in the cache belong.
    fn client(&self) -> IpAddr;

    /// Calls `use_cache` with the replies that all connections share, under a lock of the
    /// program's. Called twice for each call that must not be executed twice, and never for READ,
    /// WRITE or a call that only asks.
    fn with_replies(&mut self, use_cache: &mut dyn FnMut(&mut ReplyCache));

    /// A call is complete. For counters and latency: the reply leaves when the runtime next sends.
    fn count(&mut self, completed: &Completed, now: Instant);
}
