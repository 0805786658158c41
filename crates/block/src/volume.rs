//! The volume trait: a block device that any protocol can serve.

use std::time::Instant;

use crate::{Admission, ByteRange, Extent, Geometry, Op, OpKind, Status};

/// A piece of memory by address and length. It may be written by others at any time, so it is never
/// made a slice: only the operating system or a device reads it. Valid between [`Volume::pin`] and
/// [`Volume::unpin`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RawSpan {
    /// Where it starts.
    pub ptr: *const u8,
    /// How many bytes.
    pub len: usize,
}

/// How the first bytes of a range are backed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Allocation {
    /// Whether memory stands behind them; without it they read as zeros.
    pub allocated: bool,
    /// For how many bytes this holds.
    pub len_bytes: u64,
}

/// A block device. Shared by every session that serves it; all methods take `&self` and none waits.
pub trait Volume: Send + Sync {
    /// Block size and capacity now. A resize changes it between two calls.
    fn geometry(&self) -> Geometry;

    /// Whether writes are refused at present.
    fn is_read_only(&self) -> bool;

    /// Says, once per command of a protocol, whether and when the command may go on: here filters
    /// (delay, fault, rate limit) act. `len_bytes` is the command's whole data length, 0 where it
    /// has none.
    fn admit(&self, now: Instant, kind: OpKind, len_bytes: u64) -> Admission;

    /// Does `op` at once.
    fn execute(&self, op: Op<'_>) -> Result<(), Status>;

    /// How the start of `range` is backed, and for how many bytes of it. A volume that can't tell
    /// says that all of it is allocated.
    fn allocation(&self, range: ByteRange) -> Allocation {
        Allocation {
            allocated: true,
            len_bytes: range.len,
        }
    }

    /// A hint that an operation on `extent` follows soon: a session that has several commands at
    /// hand gives it for the ones after the one that it executes, so that the memory of each is on
    /// its way before it is needed. Extents that lie beyond the end are passed over.
    #[expect(
        unused_variables,
        reason = "a volume whose bytes are not in memory has no use for the hint"
    )]
    fn prefetch(&self, extent: Extent) {}

    /// Calls `each` with the memory of `range`, in order; the spans' lengths add up to `range.len`.
    /// Unwritten parts give spans of a shared page of zeros. Until the matching [`Volume::unpin`],
    /// no write changes these bytes, so hold the pin only across one system call that does not
    /// wait. Pins may nest.
    fn pin(&self, range: ByteRange, each: &mut dyn FnMut(RawSpan));

    /// Ends a [`Volume::pin`] of the same range.
    fn unpin(&self, range: ByteRange);
}
