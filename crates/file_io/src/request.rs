//! A request as engines take it.

use crate::FileOp;

/// What to do with the buffer of a slot.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Request {
    pub(crate) slot: u16,
    pub(crate) op: FileOp,
    pub(crate) offset_bytes: u64,
    /// At most a slot's buffer, if data move.
    pub(crate) len_bytes: u64,
}
