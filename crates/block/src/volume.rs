//! The volume trait: a block device that any protocol can serve.

use std::time::Instant;

use crate::{
    Admission, ByteRange, Extent, Geometry, HostPath, Intent, Op, OpKind, Settled, Status, Ticket,
};

/// A piece of memory by address and length. It may be written by others at any time, so it is never
/// made a slice: only the operating system or a device reads it. Valid between [`Pinned::pin`] and
/// [`Pinned::unpin`].
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
    /// Whether memory is allocated for them. Otherwise they read as zeros.
    pub allocated: bool,
    /// For how many bytes this holds.
    pub len_bytes: u64,
}

/// Whether writes that were answered can be lost with the power of what stores them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteCache {
    /// A flush makes nothing safer than it is. Memory of this process is as durable as it gets.
    Absent,
    /// They are safe after a flush, or if they asked for
    /// [`Persistence::Durable`](crate::Persistence::Durable).
    Volatile,
}

/// A block device. Shared by every session that serves it; all methods take `&self` and none waits.
pub trait Volume: Send + Sync {
    /// Block size and capacity now. A resize changes it between two calls.
    fn geometry(&self) -> Geometry;

    /// Whether writes are refused at present.
    fn is_read_only(&self) -> bool;

    /// Whether commands are executed. Otherwise they fail with [`Status::NotReady`] until someone
    /// acts on this machine.
    fn is_ready(&self) -> bool {
        true
    }

    /// Whether hosts must flush to make their writes safe. It never changes.
    fn write_cache(&self) -> WriteCache {
        WriteCache::Absent
    }

    /// How commands of this machine's hosts reach the volume now. Protocols report it to hosts that
    /// have several ways to the same disk. It never waits, and is not called on the data path.
    fn path(&self) -> HostPath {
        HostPath::default()
    }

    /// Decides, once per command of a protocol, whether and when the command may continue: filters
    /// (delay, fault, rate limit) act here, and volumes whose blocks are not in memory begin to
    /// read them. A command that copies between volumes is admitted for each slice, at both
    /// volumes.
    ///
    /// After [`Admission::Later`] and [`Admission::NowThenSettle`] the command holds a lease on
    /// `intent.extents`: they stay in memory until [`release`](Self::release), except those of a
    /// [`DataUse::Erase`](crate::DataUse::Erase): they may be all blocks of the volume, and
    /// nothing is read from them. A lease is not a lock. A peer decides how long it lasts, so a
    /// volume never makes one command wait for the release of another: if its memory for leases is
    /// used up, it returns [`Admission::Fail`] with [`Status::Busy`].
    fn admit(&self, now: Instant, intent: &Intent<'_>, ticket: Ticket) -> Admission;

    /// Does `op` at once, in memory. Overlapping operations take effect in the order of these
    /// calls, whichever connections they come from and however long their effects take to settle.
    fn execute(&self, op: Op<'_>) -> Result<(), Status>;

    /// How the start of `range` is backed, and for how many bytes of it. A volume that does not
    /// know reports that all of it is allocated.
    fn allocation(&self, range: ByteRange) -> Allocation {
        Allocation {
            allocated: true,
            len_bytes: range.len,
        }
    }

    /// Whether blocks are copied before they are discarded, because a snapshot shows them. A
    /// discard then takes as long as a write of the same length, so sessions execute it in shorter
    /// pieces.
    fn copies_discarded(&self) -> bool {
        false
    }

    /// A hint that an operation of this kind on `extent` follows soon: a session that has several
    /// commands at hand gives it for the ones after the one that it executes, so that the memory
    /// of each is prefetched. Extents beyond the end are ignored.
    #[expect(
        unused_variables,
        reason = "a volume whose bytes are not in memory has no use for the hint"
    )]
    fn prefetch(&self, kind: OpKind, extent: Extent) {}

    /// A hint that a read of `extent` is admitted after a few others that were announced: a volume
    /// that has to look up where blocks are prefetches what that needs. Extents beyond the end are
    /// ignored.
    #[expect(unused_variables, reason = "memory is not looked up")]
    fn announce_read(&self, extent: Extent) {}

    /// Makes the effects of an executed command safe (durable, replicated), as far as the volume
    /// promises that. Called once for each command that was admitted with [`Admission::Later`] or
    /// [`Admission::NowThenSettle`], did not fail, and is not of kind
    /// [`OpKind::Read`](crate::OpKind::Read). A flush settles when every operation that was
    /// executed before it is safe.
    ///
    /// # Errors
    /// The command completes with the error, whatever has become of its effects.
    #[expect(unused_variables, reason = "memory has nothing to settle")]
    fn settle(&self, ticket: Ticket) -> Result<Settled, Status> {
        Ok(Settled::Done)
    }

    /// Ends a lease: its command was completed or aborted, or its connection closed. Called exactly
    /// once per lease, whether or not the volume has reported the ticket as done.
    #[expect(unused_variables, reason = "memory grants no leases")]
    fn release(&self, ticket: Ticket) {}

    /// The volume's memory, for sending from where bytes lie; `None` if sessions must copy.
    fn pinned(&self) -> Option<&dyn Pinned> {
        None
    }
}

/// A volume's memory that can be held still while it is sent from.
pub trait Pinned: Send + Sync {
    /// Calls `each` with the memory of `range`, in order; the spans' lengths add up to `range.len`.
    /// Unwritten parts give spans of a shared page of zeros. Until the matching [`Pinned::unpin`],
    /// no write changes these bytes, so hold the pin only across one system call that does not
    /// wait. Pins may nest.
    fn pin(&self, range: ByteRange, each: &mut dyn FnMut(RawSpan));

    /// Ends a [`Pinned::pin`] of the same range.
    fn unpin(&self, range: ByteRange);
}
