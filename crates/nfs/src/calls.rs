//! Calls outside their session: those that other threads execute, and those that are counted.

use std::any::Any;
use std::time::Instant;

use crate::results::Results;
use crate::{ExportId, Procedure};

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

/// A call that a thread of the program's executes.
#[derive(Debug)]
pub struct WaitingCall {
    pub(crate) record: Vec<u8>,
    pub(crate) began: Instant,
    /// Names the call in its session.
    pub(crate) slot: u16,
    /// The most data that its reply has room for.
    pub(crate) data_bytes_max: usize,
    pub(crate) cost: Cost,
    /// Of a compound that was executed in part: what is left.
    pub(crate) rest: Option<Rest>,
}

/// What is left of a compound. Only `dispatch` knows what is in it.
pub(crate) type Rest = Box<dyn Any + Send>;

/// How a waiting call has ended.
#[derive(Debug)]
pub struct Answer {
    pub(crate) slot: u16,
    /// The reply as a record; empty if the call has none.
    pub(crate) reply: Vec<u8>,
    pub(crate) ending: Ending,
    /// What the call and its reply take.
    pub(crate) bytes: usize,
}

/// What becomes of a call whose reply was made before it is sent.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ending {
    /// How it is counted, and for which export.
    pub(crate) completed: Option<(ExportId, Completed)>,
    /// What of the reply may be placed.
    pub(crate) results: Results,
}

/// What a waiting call is about, and the memory that it and its reply take.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cost {
    pub(crate) export: ExportId,
    pub(crate) bytes: usize,
}

/// The most memory in bytes that waiting calls of a connection take with their replies, before the
/// connection takes no more calls.
pub(crate) const BYTES_MAX: usize = 4 << 20;
/// What a call takes besides its record and the data of its reply.
pub(crate) const CALL_BYTES: usize = 8 << 10;
