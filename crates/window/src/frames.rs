//! The frames of a window by their numbers. A chunk of them is made when its first frame is needed,
//! so that a window which may become large starts small.

use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use memory::{MemoryError, PagePolicy, Region};

use crate::frame::{Frame, byte_range};

/// The bytes of the frames of a chunk: two huge pages.
const CHUNK_BYTES: usize = 4 << 20;
/// log2 of the most frames of a chunk.
const CHUNK_SHIFT_MAX: u32 = 10;

/// See the module.
#[derive(Debug)]
pub(crate) struct Frames {
    chunks: Box<[OnceLock<Chunk>]>,
    /// log2 of the frames of a chunk.
    chunk_shift: u32,
    frame_bytes: usize,
    pages: PagePolicy,
}

#[derive(Debug)]
struct Chunk {
    frames: Box<[Place]>,
    /// Their memory.
    region: Arc<Region>,
}

/// A frame in lines of the processor's cache that no other frame has. What a hit needs of it is in
/// the first one.
#[derive(Debug)]
#[repr(align(64))]
struct Place(Mutex<Frame>);

impl Frames {
    /// Room for `frames_max` frames of `frame_bytes` each.
    pub(crate) fn new(frames_max: u32, frame_bytes: usize, pages: PagePolicy) -> Self {
        let chunk_shift = (CHUNK_BYTES / frame_bytes).ilog2().min(CHUNK_SHIFT_MAX);
        let chunks = frames_max.div_ceil(1 << chunk_shift);
        Self {
            chunks: (0..chunks).map(|_| OnceLock::new()).collect(),
            chunk_shift,
            frame_bytes,
            pages,
        }
    }

    /// What it takes of memory when `known` frames were prepared, without the memory of frames.
    pub(crate) fn allocated_bytes(&self, known: u32) -> usize {
        let table = self.chunks.len() * size_of::<OnceLock<Chunk>>();
        let chunks = (known as usize).div_ceil(1 << self.chunk_shift);
        let chunk = size_of::<Place>() << self.chunk_shift;
        table + chunks * (chunk + size_of::<Region>() + 2 * size_of::<usize>())
    }

    /// Makes the chunk of a frame, if it does not exist. Only one thread at a time calls this.
    ///
    /// # Errors
    /// If the host has no address space left.
    pub(crate) fn prepare(&self, frame: u32) -> Result<(), MemoryError> {
        let chunk = &self.chunks[(frame >> self.chunk_shift) as usize];
        if chunk.get().is_some() {
            return Ok(());
        }
        let count = 1 << self.chunk_shift;
        let (region, pieces) = Region::reserve(count, self.frame_bytes, self.pages)?;
        let frames = pieces
            .into_iter()
            .map(|piece| Place(Mutex::new(Frame::new(piece))));
        chunk.get_or_init(|| Chunk {
            frames: frames.collect(),
            region,
        });
        Ok(())
    }

    /// A frame is needed soon: what is known about it, and the bytes of a run of its sectors.
    pub(crate) fn prefetch(&self, frame: u32, (first, count): (u32, u32), shift: u32) {
        let (chunk, at) = self.find(frame);
        memory::prefetch_line(&chunk.frames[at]);
        chunk.region.prefetch(at, byte_range(first, count, shift));
    }

    /// Locks a frame. A panic under the lock leaves no half-changed frame that anyone would read:
    /// its state was asserted before its bytes changed.
    pub(crate) fn lock(&self, frame: u32) -> MutexGuard<'_, Frame> {
        let (chunk, at) = self.find(frame);
        let Place(frame) = &chunk.frames[at];
        frame.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn find(&self, frame: u32) -> (&Chunk, usize) {
        let chunk = self.chunks[(frame >> self.chunk_shift) as usize].get();
        let chunk = chunk.expect("a frame is prepared before its number is used");
        (chunk, (frame & ((1 << self.chunk_shift) - 1)) as usize)
    }
}
