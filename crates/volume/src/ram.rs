//! A volume in memory.

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use block::{
    Admission, Allocation, BlockSize, Blocks, ByteRange, Extent, Geometry, Intent, Op, OpKind,
    Pinned, RawSpan, ReadDest, Status, Ticket, Unmap, Volume,
};
use memory::{Budget, Layout, MemoryError, Progress, Provision, Store};

use crate::ByteSize;
use crate::filters::{FilterSpec, Filters};

/// The volume was removed.
const GONE: u8 = 1;
/// Writes are refused.
const READ_ONLY: u8 = 1 << 1;
/// At least one filter is set.
const FILTERED: u8 = 1 << 2;

/// Nothing is executed.
const OFFLINE: u8 = 1 << 3;

/// What a RAM volume is to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RamSpec {
    /// Its size: whole blocks, from [`RamSpec::SIZE_MIN`] to [`RamSpec::SIZE_MAX`].
    pub size: ByteSize,
    /// The size of its blocks.
    pub block_size: BlockSize,
    /// When it takes its memory.
    pub provision: Provision,
}

/// Whether a volume refuses writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteLock {
    /// It refuses them.
    ReadOnly,
    /// It takes them.
    Writable,
}

/// What is wrong with the description of a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SpecError {
    /// Too small or too large.
    #[error(
        "size {given} is out of range; choose a size from {} to {}",
        RamSpec::SIZE_MIN,
        RamSpec::SIZE_MAX
    )]
    SizeOutOfRange {
        /// What was asked for.
        given: ByteSize,
    },
    /// Not a whole number of blocks.
    #[error(
        "size {given} is not a multiple of the block size of {block_bytes} bytes; the next valid size is {next}"
    )]
    NotWholeBlocks {
        /// What was asked for.
        given: ByteSize,
        /// The block size.
        block_bytes: u64,
        /// The next larger size that would do.
        next: ByteSize,
    },
}

/// Whether a volume executes commands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Availability {
    /// It does.
    #[default]
    Online,
    /// Every command fails with [`Status::NotReady`].
    Offline,
}

/// Why a volume was not created or resized.
#[derive(Debug, thiserror::Error)]
pub enum VolumeError {
    /// It was described wrongly.
    #[error(transparent)]
    Spec(#[from] SpecError),
    /// Its memory was not had.
    #[error(transparent)]
    Memory(#[from] MemoryError),
    /// It was removed meanwhile.
    #[error("the volume was removed")]
    Gone,
}

impl RamSpec {
    /// The smallest volume.
    pub const SIZE_MIN: ByteSize = ByteSize(1 << 20);
    /// The largest volume.
    pub const SIZE_MAX: ByteSize = ByteSize(64 << 40);

    /// A thin volume with blocks of 512 bytes.
    pub const fn thin(size: ByteSize) -> Self {
        Self {
            size,
            block_size: BlockSize::B512,
            provision: Provision::Thin,
        }
    }

    /// Whether a volume can be so.
    pub fn check(self) -> Result<(), SpecError> {
        let given = self.size;
        if !(Self::SIZE_MIN..=Self::SIZE_MAX).contains(&given) {
            return Err(SpecError::SizeOutOfRange { given });
        }
        let block_bytes = self.block_size.bytes();
        if given.0 % block_bytes != 0 {
            return Err(SpecError::NotWholeBlocks {
                given,
                block_bytes,
                next: ByteSize(given.0.next_multiple_of(block_bytes)),
            });
        }
        Ok(())
    }
}

/// A volume in memory. Its contents live as long as it does.
#[derive(Debug)]
pub struct RamVolume {
    store: Store,
    block_size: BlockSize,
    flags: AtomicU8,
    change_count: AtomicU64,
    filters: Mutex<Filters>,
}

impl RamVolume {
    /// Creates a volume. A thick one takes and fills its memory now, which takes a second for a few
    /// GiB.
    pub fn new(spec: RamSpec, budget: &Arc<Budget>) -> Result<Arc<Self>, VolumeError> {
        Self::with_progress(spec, budget, &mut |_| ControlFlow::Continue(()))
    }

    /// Creates a volume; while a thick one takes its memory, `progress` hears of it and may end it.
    pub fn with_progress(
        spec: RamSpec,
        budget: &Arc<Budget>,
        progress: &mut dyn FnMut(Progress) -> ControlFlow<()>,
    ) -> Result<Arc<Self>, VolumeError> {
        spec.check()?;
        let store = Store::new(Arc::clone(budget), spec.provision, Layout::DEFAULT);
        store.resize(spec.size.0, progress)?;
        Ok(Arc::new(Self {
            store,
            block_size: spec.block_size,
            flags: AtomicU8::new(0),
            change_count: AtomicU64::new(0),
            filters: Mutex::default(),
        }))
    }

    /// What it is now.
    pub fn spec(&self) -> RamSpec {
        RamSpec {
            size: ByteSize(self.store.len_bytes()),
            block_size: self.block_size,
            provision: self.store.provision(),
        }
    }

    /// Memory that it holds, as charged to the budget.
    pub fn allocated_bytes(&self) -> u64 {
        self.store.allocated_bytes()
    }

    /// What the volume costs beside its blocks: itself and its locks. Each GiB in which something
    /// was written adds less than 1 KiB.
    pub fn overhead_bytes(&self) -> u64 {
        size_of::<Self>() as u64 + self.store.layout().lock_table_bytes()
    }

    /// What it allocates and frees at a time: discards that cover less free nothing.
    pub fn slab_bytes(&self) -> u64 {
        self.store.layout().slab_bytes()
    }

    /// Counts the changes of geometry, lock, availability and existence, so that whoever keeps a copy of these
    /// sees by one load that it is out of date.
    pub fn change_count(&self) -> u64 {
        self.change_count.load(Ordering::Acquire)
    }

    /// Changes the size while the volume is in use. What lies beyond a smaller size is lost and its
    /// memory free. See [`with_progress`](Self::with_progress) for thick volumes.
    pub fn resize(
        &self,
        size: ByteSize,
        progress: &mut dyn FnMut(Progress) -> ControlFlow<()>,
    ) -> Result<(), VolumeError> {
        RamSpec {
            size,
            ..self.spec()
        }
        .check()?;
        if self.is_gone() {
            return Err(VolumeError::Gone);
        }
        self.store.resize(size.0, progress)?;
        self.note_change();
        Ok(())
    }

    /// Makes all blocks zeros. A thin volume gives its memory back.
    pub fn erase(&self) {
        self.store.erase();
    }

    /// Refuses writes from now on, or takes them again.
    pub fn set_write_lock(&self, lock: WriteLock) {
        match lock {
            WriteLock::ReadOnly => self.raise(READ_ONLY),
            WriteLock::Writable => self.lower(READ_ONLY),
        }
        self.note_change();
    }

    /// Executes no command from now on, or executes them again.
    pub fn set_availability(&self, availability: Availability) {
        match availability {
            Availability::Offline => self.raise(OFFLINE),
            Availability::Online => self.lower(OFFLINE),
        }
        self.note_change();
    }

    /// The volume is removed: every later command fails with [`Status::Gone`], and its memory is
    /// free at once, even while sessions still refer to it.
    pub fn mark_gone(&self) {
        self.raise(GONE);
        self.note_change();
        self.store.close();
    }

    /// Whether it was removed.
    pub fn is_gone(&self) -> bool {
        self.flags() & GONE != 0
    }

    /// Replaces all filters; those that were set forget what they counted.
    pub fn set_filters(&self, spec: FilterSpec) {
        let mut filters = self.lock_filters();
        if spec.is_empty() {
            self.lower(FILTERED);
        } else {
            self.raise(FILTERED);
        }
        *filters = Filters::new(spec);
    }

    /// The filters that are set.
    pub fn filters(&self) -> FilterSpec {
        self.lock_filters().spec().clone()
    }
}

impl Volume for RamVolume {
    fn geometry(&self) -> Geometry {
        let blocks = self.store.len_bytes() >> self.block_size.shift();
        Geometry::new(self.block_size, Blocks(blocks))
    }

    fn is_read_only(&self) -> bool {
        self.flags() & READ_ONLY != 0
    }

    fn is_ready(&self) -> bool {
        self.flags() & OFFLINE == 0
    }

    fn admit(&self, now: Instant, intent: &Intent<'_>, _ticket: Ticket) -> Admission {
        let flags = self.flags();
        if flags == 0 {
            return Admission::Now;
        }
        let writes = matches!(intent.kind, OpKind::Write | OpKind::Discard);
        if flags & GONE != 0 {
            Admission::Fail(Status::Gone, None)
        } else if flags & OFFLINE != 0 {
            Admission::Fail(Status::NotReady, None)
        } else if flags & READ_ONLY != 0 && writes {
            Admission::Fail(Status::WriteProtected, None)
        } else if flags & FILTERED != 0 {
            self.lock_filters()
                .admit(now, intent.kind, intent.len_bytes)
        } else {
            Admission::Now
        }
    }

    fn execute(&self, op: Op<'_>) -> Result<(), Status> {
        let flags = self.flags();
        if flags & (GONE | OFFLINE | READ_ONLY) != 0 {
            refuse(flags, &op)?;
        }
        match op {
            Op::Read { extent, dest } => self.read(extent, dest),
            Op::Write { extent, data } => {
                let range = self.data_range(extent, data.len())?;
                self.store.write(range.offset, data)
            }
            Op::WriteZeroes { extent, unmap } => {
                let range = self.range(extent)?;
                match unmap {
                    Unmap::Allowed => self.store.discard(range),
                    Unmap::Forbidden => self.store.zero(range),
                }
            }
            Op::Discard { extent } => self.store.discard(self.range(extent)?),
            Op::Flush => Ok(()),
            Op::Verify { extent } => self.range(extent).map(drop),
            Op::Compare { extent, data } => {
                let range = self.data_range(extent, data.len())?;
                self.store.compare(range.offset, data)
            }
            Op::CompareAndWrite {
                extent,
                compare,
                write,
            } => {
                let range = self.data_range(extent, compare.len())?;
                self.store.compare_and_write(range.offset, compare, write)
            }
            Op::Copy { from, to } => {
                let dest = self.range(Extent::new(to, from.blocks))?;
                self.store.copy(self.range(from)?, dest.offset)
            }
        }
    }

    fn allocation(&self, range: ByteRange) -> Allocation {
        self.store.allocation(range)
    }

    fn prefetch(&self, extent: Extent) {
        if let Ok(range) = self.range(extent) {
            self.store.prefetch(range);
        }
    }

    fn pinned(&self) -> Option<&dyn Pinned> {
        Some(self)
    }
}

impl Pinned for RamVolume {
    fn pin(&self, range: ByteRange, each: &mut dyn FnMut(RawSpan)) {
        self.store.pin(range, each);
    }

    fn unpin(&self, range: ByteRange) {
        self.store.unpin(range);
    }
}

impl RamVolume {
    fn read(&self, extent: Extent, dest: ReadDest<'_>) -> Result<(), Status> {
        match dest {
            ReadDest::Copy(buffer) => {
                let range = self.data_range(extent, buffer.len())?;
                self.store.read(range.offset, buffer)
            }
            ReadDest::InPlace => self.range(extent).map(drop),
        }
    }

    fn range(&self, extent: Extent) -> Result<ByteRange, Status> {
        self.geometry().byte_range(extent)
    }

    /// The bytes of `extent`, for which `data_len` bytes of data came.
    fn data_range(&self, extent: Extent, data_len: usize) -> Result<ByteRange, Status> {
        let range = self.range(extent)?;
        if range.len != data_len as u64 {
            return Err(Status::Invalid);
        }
        Ok(range)
    }

    fn flags(&self) -> u8 {
        self.flags.load(Ordering::Acquire)
    }

    fn raise(&self, flag: u8) {
        self.flags.fetch_or(flag, Ordering::Release);
    }

    fn lower(&self, flag: u8) {
        self.flags.fetch_and(!flag, Ordering::Release);
    }

    fn note_change(&self) {
        self.change_count.fetch_add(1, Ordering::Release);
    }

    fn lock_filters(&self) -> MutexGuard<'_, Filters> {
        // Filters are replaced whole and change by single steps, so none is half done after a
        // panic.
        self.filters.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Refuses what the flags forbid.
#[cold]
fn refuse(flags: u8, op: &Op<'_>) -> Result<(), Status> {
    if flags & GONE != 0 {
        return Err(Status::Gone);
    }
    if flags & OFFLINE != 0 {
        return Err(Status::NotReady);
    }
    match op {
        Op::Write { .. }
        | Op::WriteZeroes { .. }
        | Op::Discard { .. }
        | Op::CompareAndWrite { .. }
        | Op::Copy { .. } => Err(Status::WriteProtected),
        Op::Read { .. } | Op::Flush | Op::Verify { .. } | Op::Compare { .. } => Ok(()),
    }
}

#[cfg(test)]
mod tests;
