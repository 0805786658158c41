//! What can be asked of a volume, and what it answers.

use std::time::Instant;

use crate::{Extent, Lba, Status};

/// One operation on a volume. Extents are in the volume's own blocks; data lengths are whole blocks
/// and equal the extent's. A command of a protocol may be executed as several `Op`s of whole
/// blocks.
#[derive(Debug)]
pub enum Op<'a> {
    /// Read blocks.
    Read {
        /// What to read.
        extent: Extent,
        /// Where the bytes go.
        dest: ReadDest<'a>,
    },
    /// Write blocks. Each block is written wholly or not at all, even if the operation fails
    /// midway.
    Write {
        /// Where to.
        extent: Extent,
        /// The new bytes.
        data: &'a [u8],
    },
    /// Make blocks read as zeros.
    WriteZeroes {
        /// Which blocks.
        extent: Extent,
        /// Whether their memory may be freed.
        unmap: Unmap,
    },
    /// Free the memory of blocks. They read as zeros afterwards.
    Discard {
        /// Which blocks.
        extent: Extent,
    },
    /// Make what was acknowledged as durable as the volume can.
    Flush,
    /// Check that blocks can be read.
    Verify {
        /// Which blocks.
        extent: Extent,
    },
    /// Compare blocks with `data`.
    Compare {
        /// Which blocks.
        extent: Extent,
        /// What they should hold.
        data: &'a [u8],
    },
    /// Compare blocks with `compare` and, if all are equal, write `write`. Atomic with respect to
    /// every other operation on these blocks.
    CompareAndWrite {
        /// Which blocks.
        extent: Extent,
        /// What they should hold.
        compare: &'a [u8],
        /// What they hold afterwards.
        write: &'a [u8],
    },
    /// Copy blocks inside the volume. Overlapping source and destination behave as if through a
    /// buffer.
    Copy {
        /// The source.
        from: Extent,
        /// The first block of the destination.
        to: Lba,
    },
}

/// Where the bytes of a read go.
#[derive(Debug)]
pub enum ReadDest<'a> {
    /// Into this buffer, now; its length is the extent's in bytes.
    Copy(&'a mut [u8]),
    /// Nowhere yet: only check the extent. The bytes are fetched by [`crate::Pinned::pin`] when
    /// they are sent.
    InPlace,
}

/// Whether zeroed blocks may lose their memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unmap {
    /// Memory may be freed.
    Allowed,
    /// Blocks stay allocated.
    Forbidden,
}

/// The kind of a command, for filters and statistics.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum OpKind {
    /// Read, verify, compare.
    Read,
    /// Write, write zeroes, compare-and-write, copy.
    Write,
    /// Discard.
    Discard,
    /// Flush.
    Flush,
}

impl OpKind {
    /// Every kind, in the order of its index.
    pub const ALL: [Self; 4] = [Self::Read, Self::Write, Self::Discard, Self::Flush];
}

/// What a command is about to do, before any of its data moves.
#[derive(Clone, Copy, Debug)]
pub struct Intent<'a> {
    /// The kind of the command.
    pub kind: OpKind,
    /// All blocks that it reads or changes. Of a copy inside the volume, the destination stands
    /// first. Empty for a flush.
    pub extents: &'a [Extent],
    /// The length of the command's work in bytes, which filters count: 0 for a flush.
    pub len_bytes: u64,
    /// What the command does with the contents of its blocks.
    pub data_use: DataUse,
    /// What its answer promises.
    pub persistence: Persistence,
}

/// What a command does with the contents of its blocks, so that a volume brings into memory only
/// what is needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DataUse {
    /// They are read or compared.
    Read,
    /// They are checked to be readable; their contents go nowhere.
    Verify,
    /// They are overwritten; their old contents are not needed.
    Overwrite,
    /// They are read, and then changed in part.
    Modify,
    /// The first extent is overwritten with the contents of the others.
    Copy,
    /// They become zeros or are discarded.
    Erase,
    /// The command has no blocks: a flush.
    Flush,
}

/// What the answer of a command promises about its data if the volume has a volatile write cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Persistence {
    /// Nothing until the next flush.
    Volatile,
    /// They are on stable storage (Force Unit Access).
    Durable,
}

/// A volume's word on a command as a whole, before any of its data moves (see
/// [`crate::Volume::admit`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admission {
    /// Execute; complete as soon as done.
    Now,
    /// Execute, but do not complete before this instant (delay, rate limit).
    NotBefore(Instant),
    /// Do not execute; complete with this error, not before the instant, if any.
    Fail(Status, Option<Instant>),
    /// Wait until [`crate::Completions::done`] reports that the extents are in memory; then
    /// execute, and settle. Do not complete before the instant, if there is one.
    Later(Option<Instant>),
    /// Execute, then settle before completing. Do not complete before the instant, if there is one.
    NowThenSettle(Option<Instant>),
}

impl Admission {
    /// The same answer, except that the command does not complete before `due`.
    #[must_use]
    pub fn held_until(self, due: Instant) -> Self {
        let held = |until: Option<Instant>| Some(until.map_or(due, |until| until.max(due)));
        match self {
            Self::Now => Self::NotBefore(due),
            Self::NotBefore(until) => Self::NotBefore(until.max(due)),
            Self::Fail(status, until) => Self::Fail(status, held(until)),
            Self::Later(until) => Self::Later(held(until)),
            Self::NowThenSettle(until) => Self::NowThenSettle(held(until)),
        }
    }
}
