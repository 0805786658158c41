//! The window: what sessions and a backing call.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use block::{
    Admission, BlockSize, Blocks, Completion, Completions, DataUse, Extent, Geometry, Intent, Lba,
    Op, OpKind, Persistence, ReadDest, Settled, Status, Ticket,
};
use memory::{Budget, MemoryError, PagePolicy};

use crate::backing::{Backing, BackingClient, BackingOp, Ended, RequestId};
use crate::cache::{CacheOptions, CacheStatistics};
use crate::frame::{Frame, FrameState, byte_range};
use crate::frames::Frames;
use crate::options::WindowOptions;
use crate::sectors::{SECTORS_MAX, SectorSet};
use crate::state::{Active, Piece, Shape, State};

/// The most frames of one compare-and-write, which has at most 512 KiB.
const COMPARED_FRAMES_MAX: usize = 129;
/// Completions that are reported between two looks at the list of them.
const BATCH: usize = 16;
/// The connection of commands of the window itself.
const INTERNAL: u64 = u64::MAX;
/// The internal command, which is one at a time.
const INTERNAL_TICKET: Ticket = Ticket {
    connection: INTERNAL,
    slot: 0,
    generation: 0,
};
/// Fills the rest of a batch.
const NO_COMPLETION: Completion = Completion {
    ticket: INTERNAL_TICKET,
    result: Ok(()),
};

/// Blocks of a backing that are in memory. See the crate.
pub struct Window {
    shape: Shape,
    block_size: BlockSize,
    blocks: AtomicU64,
    frames: Arc<Frames>,
    state: Mutex<State>,
    completions: Arc<dyn Completions>,
    /// The command of the window itself: held while it is executed.
    internal: Mutex<()>,
    internal_done: (Mutex<Option<Result<(), Status>>>, Condvar),
}

impl Window {
    /// A window on `backing`, which has the given size and blocks. Commands that waited are
    /// reported to `completions`.
    #[expect(
        clippy::needless_pass_by_value,
        reason = "it takes a share of the budget, as of the rest"
    )]
    pub fn new(
        geometry: Geometry,
        options: WindowOptions,
        backing: Arc<dyn Backing>,
        budget: Arc<Budget>,
        completions: Arc<dyn Completions>,
    ) -> Self {
        let shape = Shape::new(geometry, options);
        Self::with_shape(geometry, shape, None, backing, &budget, completions)
            .expect("a window that keeps nothing takes no memory yet")
    }

    /// A cache: a window that keeps blocks in memory after their commands.
    ///
    /// # Errors
    /// If the budget has no room for the memory that it keeps.
    pub fn cache(
        geometry: Geometry,
        frame_bytes: u32,
        options: CacheOptions,
        backing: Arc<dyn Backing>,
        budget: &Arc<Budget>,
        completions: Arc<dyn Completions>,
    ) -> Result<Self, MemoryError> {
        let window = WindowOptions {
            frame_bytes,
            // A frame for each block is enough, but a copy may name each twice.
            memory_bytes_max: WindowOptions::CACHE_BYTES_MAX.min(2 * geometry.len_bytes()),
        };
        let shape = Shape::new(geometry, window);
        Self::with_shape(geometry, shape, Some(options), backing, budget, completions)
    }

    pub(crate) fn with_shape(
        geometry: Geometry,
        shape: Shape,
        cache: Option<CacheOptions>,
        backing: Arc<dyn Backing>,
        budget: &Arc<Budget>,
        completions: Arc<dyn Completions>,
    ) -> Result<Self, MemoryError> {
        assert!(
            1 << shape.frame_shift <= SECTORS_MAX,
            "a set of sectors covers a frame"
        );
        // What a window forgets at once is given back to the host by the frame, which huge pages
        // are too large for.
        let pages = match cache {
            Some(_) => budget.pages(),
            None => PagePolicy::Ordinary,
        };
        let frames = Arc::new(Frames::new(shape.frames_max, shape.frame_bytes(), pages));
        let state = State::new(shape, Arc::clone(&frames), backing, budget, cache)?;
        Ok(Self {
            shape,
            block_size: geometry.block_size,
            blocks: AtomicU64::new(geometry.blocks.0),
            frames,
            state: Mutex::new(state),
            completions,
            internal: Mutex::default(),
            internal_done: (Mutex::default(), Condvar::new()),
        })
    }

    /// Block size and capacity.
    pub fn geometry(&self) -> Geometry {
        Geometry::new(self.block_size, Blocks(self.blocks.load(Ordering::Acquire)))
    }

    /// The backing has grown to `blocks` blocks.
    pub fn grow(&self, blocks: Blocks) {
        self.blocks.fetch_max(blocks.0, Ordering::Release);
    }

    /// See [`block::Volume::admit`].
    pub fn admit(&self, intent: &Intent<'_>, ticket: Ticket) -> Admission {
        let geometry = self.geometry();
        for extent in intent.extents {
            if let Err(status) = geometry.byte_range(*extent) {
                return Admission::Fail(status, None);
            }
        }
        self.state().admit(intent, ticket)
    }

    /// See [`block::Volume::prefetch`].
    pub fn prefetch(&self, extent: Extent) {
        if self.check(extent, None).is_ok() {
            self.state().prefetch(extent);
        }
    }

    /// See [`block::Volume::execute`].
    pub fn execute(&self, op: Op<'_>) -> Result<(), Status> {
        match op {
            Op::Read { extent, dest } => match dest {
                ReadDest::Copy(buffer) => self.read(extent, buffer),
                ReadDest::InPlace => self.check(extent, None),
            },
            Op::Write { extent, data } => {
                self.check(extent, Some(data.len()))?;
                self.write(extent, data)
            }
            Op::WriteZeroes { extent, unmap } => self.erase(extent, BackingOp::WriteZeroes(unmap)),
            Op::Discard { extent } => self.erase(extent, BackingOp::Discard),
            Op::Flush => Ok(()),
            Op::Verify { extent } => self.check(extent, None),
            Op::Compare { extent, data } => self.compare(extent, data),
            Op::CompareAndWrite {
                extent,
                compare,
                write,
            } => {
                self.check(extent, Some(compare.len()))?;
                self.check(extent, Some(write.len()))?;
                let mut locked = self.lock_all(extent)?;
                locked.compare(compare)?;
                locked.write(write);
                Ok(())
            }
            Op::Copy { from, to } => self.copy(from, to),
        }
    }

    /// See [`block::Volume::settle`].
    pub fn settle(&self, ticket: Ticket) -> Result<Settled, Status> {
        self.state().settle(ticket)
    }

    /// See [`block::Volume::release`].
    pub fn release(&self, ticket: Ticket) {
        self.state().release(ticket);
    }

    /// Makes all blocks read as zeros, and waits until the backing has done so. Not for threads of
    /// sessions or of the backing.
    ///
    /// # Errors
    /// What the backing says.
    pub fn erase_all(&self) -> Result<(), Status> {
        let extent = Extent::new(Lba(0), self.geometry().blocks);
        let intent = Intent {
            kind: OpKind::Discard,
            extents: &[extent],
            len_bytes: 0,
            data_use: DataUse::Erase,
            persistence: Persistence::Durable,
        };
        self.run_internal(&intent, Op::Discard { extent })
    }

    /// Writes everything that is dirty, and waits until the backing has flushed. Not for threads of
    /// sessions or of the backing.
    ///
    /// # Errors
    /// What the backing says. What could not be written stays in memory.
    pub fn flush(&self) -> Result<(), Status> {
        let intent = Intent {
            kind: OpKind::Flush,
            extents: &[],
            len_bytes: 0,
            data_use: DataUse::Flush,
            persistence: Persistence::Durable,
        };
        self.run_internal(&intent, Op::Flush)
    }

    /// Begins to write one in `share` of the dirty frames of a cache in the background, but at
    /// least `frames_min`, in ascending order. Returns whether there were any. If there were none,
    /// the backing is woken when there are ([`Backing::wake_cleaner`]).
    pub fn clean(&self, share: usize, frames_min: usize) -> bool {
        self.state().begin_cleaning(share, frames_min)
    }

    /// Changes what a cache is set to, and evicts what it cannot keep any more.
    ///
    /// # Errors
    /// If the budget has no room for the memory. Nothing changes then.
    pub fn set_cache(&self, options: CacheOptions) -> Result<(), MemoryError> {
        self.state().set_cache(options)?;
        while self.state().trim() {}
        self.state().give_back_all();
        Ok(())
    }

    /// What a cache has done. All zeros if the window is none.
    pub fn cache_statistics(&self) -> CacheStatistics {
        self.state().cache_statistics()
    }

    /// A command that neither waits for blocks nor belongs to a session.
    fn run_internal(&self, intent: &Intent<'_>, op: Op<'_>) -> Result<(), Status> {
        let _one_at_a_time = self.internal.lock();
        let ticket = INTERNAL_TICKET;
        if let Admission::Fail(status, _) = self.admit(intent, ticket) {
            return Err(status);
        }
        let executed = self.execute(op);
        let settled = executed.and_then(|()| self.settle(ticket));
        let result = match settled {
            Ok(Settled::Later) => self.wait_internal(),
            Ok(Settled::Done) => Ok(()),
            Err(status) => Err(status),
        };
        self.release(ticket);
        result
    }

    fn wait_internal(&self) -> Result<(), Status> {
        let (done, is_done) = &self.internal_done;
        let mut done = done.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if let Some(result) = done.take() {
                return result;
            }
            done = is_done.wait(done).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Ends the window: every command that waits fails with [`Status::Gone`], and so does every
    /// later one. Waits for nothing. Requests in flight may still complete.
    pub fn close(&self) {
        let mut state = self.state();
        state.close();
        self.deliver(state);
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Within the lock, a panic is a broken invariant; the state after it is whole except for
        // the command at hand.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reports completions without the lock.
    fn deliver<'a>(&'a self, mut state: MutexGuard<'a, State>) {
        loop {
            let mut batch = [NO_COMPLETION; BATCH];
            let mut count = 0;
            while count < BATCH
                && let Some(completion) = state.next_done()
            {
                batch[count] = completion;
                count += 1;
            }
            drop(state);
            if count == 0 {
                return;
            }
            let is_internal = |of: &Completion| of.ticket.connection == INTERNAL;
            let same_receiver = |a: &Completion, b: &Completion| is_internal(a) == is_internal(b);
            for group in batch[..count].chunk_by(same_receiver) {
                if is_internal(&group[0]) {
                    let (done, is_done) = &self.internal_done;
                    *done.lock().unwrap_or_else(PoisonError::into_inner) = Some(group[0].result);
                    is_done.notify_all();
                } else {
                    self.completions.done_all(group);
                }
            }
            state = self.state();
        }
    }

    /// At most [`BATCH`] requests have ended.
    fn done_batch(&self, ended: &[Ended<'_>]) {
        let mut actives = [None; BATCH];
        let state = self.state();
        for (active, ended) in actives.iter_mut().zip(ended) {
            *active = Some(state.active(ended.id));
        }
        drop(state);
        for (active, ended) in actives.iter().zip(ended) {
            // A frame in transfer stays what it is, so its bytes are copied without the state's
            // lock.
            if let (Some(Active::Fill { frame, run }), Ok(bytes)) = (*active, ended.result) {
                self.frames
                    .lock(frame)
                    .land(run, bytes, self.shape.sector_shift);
            }
        }
        let mut state = self.state();
        for (active, ended) in actives.into_iter().flatten().zip(ended) {
            let error = ended.result.err();
            state.retire(ended.id);
            match active {
                Active::Fill { frame, run } => state.end_fill(frame, run, error),
                Active::Write { frame, run } => state.end_write(frame, run, error),
                Active::Flush => state.end_flush(error),
                Active::Erasure(number) => state.end_erasure(number, error),
            }
        }
        state.serve_queue();
        self.deliver(state);
    }

    /// Checks that blocks exist and that data are as long as they are.
    fn check(&self, extent: Extent, len_bytes: Option<usize>) -> Result<(), Status> {
        let range = self.geometry().byte_range(extent)?;
        if len_bytes.is_some_and(|len| len as u64 != range.len) {
            return Err(Status::Invalid);
        }
        Ok(())
    }

    /// Locks the frame that holds a window block. See [`State::frame_of`].
    fn frame(&self, block: u64) -> Result<MutexGuard<'_, Frame>, Status> {
        let index = self.state().frame_of(block)?;
        let frame = self.frames.lock(index);
        // Without a lease, it may have been given to another window block meanwhile.
        if frame.state == FrameState::Absent || frame.block != block {
            return Err(Status::Busy);
        }
        Ok(frame)
    }

    fn piece_range(&self, piece: Piece) -> std::ops::Range<usize> {
        byte_range(piece.before as u32, piece.count, self.shape.sector_shift)
    }

    fn read(&self, extent: Extent, buffer: &mut [u8]) -> Result<(), Status> {
        self.check(extent, Some(buffer.len()))?;
        for piece in self.shape.pieces(extent) {
            let mut frame = self.frame(piece.block)?;
            let range = self.piece_range(piece);
            read_piece(&mut frame, piece, &mut buffer[range], self.shape)?;
        }
        Ok(())
    }

    fn write(&self, extent: Extent, data: &[u8]) -> Result<(), Status> {
        for piece in self.shape.pieces(extent) {
            let mut frame = self.frame(piece.block)?;
            frame.overwrite(
                piece.first,
                &data[self.piece_range(piece)],
                self.shape.sector_shift,
            );
        }
        Ok(())
    }

    fn compare(&self, extent: Extent, data: &[u8]) -> Result<(), Status> {
        self.check(extent, Some(data.len()))?;
        for piece in self.shape.pieces(extent) {
            let mut frame = self.frame(piece.block)?;
            let range = self.piece_range(piece);
            compare_piece(&mut frame, piece, &data[range], self.shape)?;
        }
        Ok(())
    }

    fn erase(&self, extent: Extent, op: BackingOp) -> Result<(), Status> {
        self.check(extent, None)?;
        self.state().erase(extent, op)
    }

    /// Copies piece by piece, in the direction in which an overlap does no harm.
    fn copy(&self, from: Extent, to: Lba) -> Result<(), Status> {
        self.check(from, None)?;
        self.check(Extent::new(to, from.blocks), None)?;
        let mut buffer = [0; 4096];
        let step = buffer.len() as u64 >> self.shape.sector_shift;
        let steps = from.blocks.0.div_ceil(step);
        for number in 0..steps {
            let number = if to > from.lba {
                steps - 1 - number
            } else {
                number
            };
            let at = number * step;
            let blocks = Blocks(step.min(from.blocks.0 - at));
            let data = &mut buffer[..(blocks.0 << self.shape.sector_shift) as usize];
            self.read(Extent::new(Lba(from.lba.0 + at), blocks), data)?;
            self.write(Extent::new(Lba(to.0 + at), blocks), data)?;
        }
        Ok(())
    }

    /// Locks every frame of an extent, in the order of their numbers.
    fn lock_all(&self, extent: Extent) -> Result<Locked<'_>, Status> {
        const ABSENT: (u32, Option<Piece>) = (u32::MAX, None);
        if self.shape.blocks_of(extent) > COMPARED_FRAMES_MAX as u64 {
            return Err(Status::Invalid);
        }
        let mut found = [ABSENT; COMPARED_FRAMES_MAX];
        {
            let state = self.state();
            for (entry, piece) in found.iter_mut().zip(self.shape.pieces(extent)) {
                let frame = state.frame_of(piece.block)?;
                *entry = (frame, Some(piece));
            }
        }
        found.sort_unstable_by_key(|(frame, _)| *frame);
        let mut locked = Locked {
            shape: self.shape,
            frames: [const { None }; COMPARED_FRAMES_MAX],
        };
        for ((index, piece), entry) in found.into_iter().zip(&mut locked.frames) {
            let Some(piece) = piece else {
                break;
            };
            let frame = self.frames.lock(index);
            if frame.state == FrameState::Absent || frame.block != piece.block {
                return Err(Status::Busy);
            }
            *entry = Some((piece, frame));
        }
        Ok(locked)
    }

    /// Whether a sector is newer than what the backing has confirmed.
    #[cfg(test)]
    pub(crate) fn is_unwritten(&self, sector: u64) -> bool {
        let Ok(frame) = self.frame(sector >> self.shape.frame_shift) else {
            return false;
        };
        let first = sector & ((1 << self.shape.frame_shift) - 1);
        let sector = SectorSet::span(first as u32, 1);
        let in_flight = frame.writing.and(frame.valid);
        frame.dirty.or(in_flight).has_all(sector)
    }

    #[cfg(test)]
    pub(crate) fn in_use(&self) -> (usize, usize) {
        self.state().in_use()
    }
}

impl std::fmt::Debug for Window {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Window")
            .field("shape", &self.shape)
            .field("geometry", &self.geometry())
            .finish_non_exhaustive()
    }
}

impl BackingClient for Window {
    fn fetch(&self, id: RequestId, offset_bytes: usize, buffer: &mut [u8]) {
        let active = self.state().active(id);
        let Active::Write { frame, run } = active else {
            panic!("only a write has bytes to fetch, not {active:?}");
        };
        let start = byte_range(run.0, run.1, self.shape.sector_shift).start + offset_bytes;
        // The write may carry newer bytes than it had to. They are dirty, and are written again.
        buffer.copy_from_slice(self.frames.lock(frame).bytes(start..start + buffer.len()));
    }

    fn done_all(&self, ended: &[Ended<'_>]) {
        for batch in ended.chunks(BATCH) {
            self.done_batch(batch);
        }
    }
}

/// The frames of an extent, each locked.
struct Locked<'a> {
    shape: Shape,
    frames: [Option<(Piece, MutexGuard<'a, Frame>)>; COMPARED_FRAMES_MAX],
}

impl Locked<'_> {
    fn compare(&mut self, data: &[u8]) -> Result<(), Status> {
        let shape = self.shape;
        let mut first: Option<u64> = None;
        for (piece, frame) in self.frames.iter_mut().flatten() {
            let range = byte_range(piece.before as u32, piece.count, shape.sector_shift);
            match compare_piece(frame, *piece, &data[range], shape) {
                Err(Status::Miscompare { offset_bytes }) => {
                    first = Some(first.map_or(offset_bytes, |first| first.min(offset_bytes)));
                }
                other => other?,
            }
        }
        first.map_or(Ok(()), |offset_bytes| {
            Err(Status::Miscompare { offset_bytes })
        })
    }

    fn write(mut self, data: &[u8]) {
        let shift = self.shape.sector_shift;
        for (piece, frame) in self.frames.iter_mut().flatten() {
            let range = byte_range(piece.before as u32, piece.count, shift);
            frame.overwrite(piece.first, &data[range], shift);
        }
    }
}

/// The bytes of a piece. [`Status::Busy`] if a failed write of another command has taken them away:
/// the next attempt reads what the backing holds.
fn piece_bytes(frame: &mut Frame, piece: Piece, shape: Shape) -> Result<&mut [u8], Status> {
    if !frame
        .valid
        .has_all(SectorSet::span(piece.first, piece.count))
    {
        return Err(Status::Busy);
    }
    Ok(frame.bytes(byte_range(piece.first, piece.count, shape.sector_shift)))
}

fn read_piece(
    frame: &mut Frame,
    piece: Piece,
    buffer: &mut [u8],
    shape: Shape,
) -> Result<(), Status> {
    buffer.copy_from_slice(piece_bytes(frame, piece, shape)?);
    Ok(())
}

fn compare_piece(frame: &mut Frame, piece: Piece, data: &[u8], shape: Shape) -> Result<(), Status> {
    let bytes = piece_bytes(frame, piece, shape)?;
    match bytes.iter().zip(data).position(|(a, b)| a != b) {
        None => Ok(()),
        Some(at) => Err(Status::Miscompare {
            offset_bytes: (piece.before << shape.sector_shift) + at as u64,
        }),
    }
}
