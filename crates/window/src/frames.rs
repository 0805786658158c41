//! The frames of a window by their numbers. A chunk of them is made when its first frame is needed, so
//! that a window which may become large starts small.

use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use crate::frame::Frame;

/// log2 of the frames of a chunk.
const CHUNK_SHIFT: u32 = 10;

/// See the module.
#[derive(Debug)]
pub(crate) struct Frames {
    chunks: Box<[OnceLock<Chunk>]>,
}

type Chunk = Box<[Mutex<Frame>]>;

impl Frames {
    /// Room for `frames_max` frames.
    pub(crate) fn new(frames_max: u32) -> Self {
        let chunks = frames_max.div_ceil(1 << CHUNK_SHIFT);
        Self {
            chunks: (0..chunks).map(|_| OnceLock::new()).collect(),
        }
    }

    /// What it takes of memory when `known` frames were prepared, without the memory of frames.
    pub(crate) fn allocated_bytes(&self, known: u32) -> usize {
        let table = self.chunks.len() * size_of::<OnceLock<Chunk>>();
        let frames = (known as usize).next_multiple_of(1 << CHUNK_SHIFT);
        table + frames * size_of::<Mutex<Frame>>()
    }

    /// Makes the chunk of a frame, if it does not exist.
    pub(crate) fn prepare(&self, frame: u32) {
        self.chunks[(frame >> CHUNK_SHIFT) as usize]
            .get_or_init(|| (0..1 << CHUNK_SHIFT).map(|_| Mutex::default()).collect());
    }

    /// What is known about a frame is needed soon.
    pub(crate) fn prefetch(&self, frame: u32) {
        memory::prefetch_value(self.get(frame));
    }

    /// Locks a frame. A panic under the lock leaves no half-changed frame that anyone would read: its
    /// state was asserted before its bytes changed.
    pub(crate) fn lock(&self, frame: u32) -> MutexGuard<'_, Frame> {
        let frame = self.get(frame);
        frame.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn get(&self, frame: u32) -> &Mutex<Frame> {
        let chunk = self.chunks[(frame >> CHUNK_SHIFT) as usize].get();
        let chunk = chunk.expect("a frame is prepared before its number is used");
        &chunk[(frame & ((1 << CHUNK_SHIFT) - 1)) as usize]
    }
}
