//! Copies of whole volumes, of any kind to any other.
//!
//! ```text
//!  source ── read ──► piece: zeros or data ──► destination: zeroed or written ── read back ──► compared
//! ```
//!
//! Several threads take pieces in ascending order, each with drivers of its own. Memory is bounded
//! by [`THREADS`] times [`PIECE_BYTES`], twice if what was written is read back.

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use block::{Blocks, ByteRange, Extent, Geometry, Lba, Persistence, Unmap};
use memory::Progress;

use crate::{ByteSize, DriveError, Driver, ManagedVolume, Relay};

/// Pieces that are copied at a time.
pub const THREADS: usize = 4;
/// The length of a piece.
pub const PIECE_BYTES: u64 = 1 << 20;
/// Zeros in runs of this length are not written but zeroed.
const GRAIN_BYTES: usize = 64 << 10;
/// How long a command may take.
const PATIENCE: Duration = Duration::from_secs(3600);
/// How long a volume is searched for data before it counts as holding some.
const SCAN_TIME_MAX: Duration = Duration::from_secs(120);

/// What is to be copied.
#[derive(Debug)]
pub struct Copy<'a> {
    /// Where the volumes report to.
    pub relay: &'a Arc<Relay>,
    /// What is read.
    pub source: &'a Arc<dyn ManagedVolume>,
    /// What is written, from its start on. A longer one keeps its rest.
    pub destination: &'a Arc<dyn ManagedVolume>,
    /// What the destination holds.
    pub before: Before,
    /// Whether what was written is read back.
    pub verify: Verify,
}

/// What a destination holds before it is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Before {
    /// Zeros, so that zeros need not be written.
    Zeros,
    /// Anything.
    Anything,
}

/// Whether what was written is read back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verify {
    /// It is not.
    No,
    /// It is, and compared with what was read.
    ReadBack,
}

/// What was copied.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Copied {
    /// The size of the source.
    pub total_bytes: u64,
    /// How much of it was written as data.
    pub data_bytes: u64,
    /// How much of it are zeros.
    pub zero_bytes: u64,
}

/// Why a copy was not made, or not finished.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CopyError {
    /// The destination has no room.
    #[error(
        "the source has {source_size}, more than the {destination_size} of the destination; grow the destination"
    )]
    TooSmall {
        /// The size of the source.
        source_size: ByteSize,
        /// That of the destination.
        destination_size: ByteSize,
    },
    /// The last block of one would be part of a block of the other.
    #[error(
        "the source has {source_size}, which is not a whole number of the destination's blocks of {block_bytes} bytes; choose a destination with blocks of 512 bytes"
    )]
    NotWholeBlocks {
        /// The size of the source.
        source_size: ByteSize,
        /// The block size of the destination.
        block_bytes: u64,
    },
    /// The destination refuses writes.
    #[error("the destination refuses writes; unlock it")]
    ReadOnly,
    /// The source could not be read.
    #[error("reading the source at byte {at_bytes} failed: {error}")]
    Read {
        /// Where.
        at_bytes: u64,
        /// Why.
        error: DriveError,
    },
    /// The destination could not be written.
    #[error("writing the destination at byte {at_bytes} failed: {error}")]
    Write {
        /// Where.
        at_bytes: u64,
        /// Why.
        error: DriveError,
    },
    /// What was written could not be made durable.
    #[error("flushing the destination failed: {0}")]
    Flush(DriveError),
    /// What was written could not be read.
    #[error("reading the destination back at byte {at_bytes} failed: {error}")]
    ReadBack {
        /// Where.
        at_bytes: u64,
        /// Why.
        error: DriveError,
    },
    /// The destination does not hold what was written.
    #[error(
        "the destination differs from what was written, from byte {at_bytes} on; something else writes it, or it is faulty"
    )]
    Differs {
        /// The first byte.
        at_bytes: u64,
    },
    /// Someone has stopped it.
    #[error(
        "the copy was stopped after {done} of {total}; the destination holds a part of the source, and its old contents behind it"
    )]
    Stopped {
        /// How much was copied.
        done: ByteSize,
        /// How much there is.
        total: ByteSize,
    },
}

impl CopyError {
    /// Whether something failed, so that the same copy may be made later; otherwise the two do not
    /// fit.
    pub fn is_failure(&self) -> bool {
        !matches!(
            self,
            Self::TooSmall { .. } | Self::NotWholeBlocks { .. } | Self::ReadOnly
        )
    }
}

/// Whether a volume holds anything but zeros, or that is unknown: a part cannot be read, or reading
/// takes longer than two minutes.
pub fn holds_data(relay: &Arc<Relay>, volume: &Arc<dyn ManagedVolume>) -> bool {
    let end = Instant::now() + SCAN_TIME_MAX;
    let geometry = volume.geometry();
    let mut driver = Driver::new(relay, Arc::clone(volume), SCAN_TIME_MAX);
    let mut buffer = vec![0; PIECE_BYTES as usize];
    let mut pieces = (0..geometry.len_bytes()).step_by(PIECE_BYTES as usize);
    pieces.any(|at_bytes| {
        let len_bytes = PIECE_BYTES.min(geometry.len_bytes() - at_bytes);
        if is_hole(&**volume, at_bytes, len_bytes) {
            return false;
        }
        let buffer = &mut buffer[..len_bytes as usize];
        let read = driver.read(extent(geometry, at_bytes, len_bytes), buffer);
        read.is_err() || !is_zero(buffer) || Instant::now() >= end
    })
}

impl Copy<'_> {
    /// Copies, and reports to `progress`, which may stop the copy. Not for threads that drive
    /// connections or volumes.
    ///
    /// # Errors
    /// If the volumes do not fit, if one of them fails, or if the copy was stopped. The destination
    /// then holds a part of the source.
    pub fn run(
        &self,
        progress: &mut (dyn FnMut(Progress) -> ControlFlow<()> + Send),
    ) -> Result<Copied, CopyError> {
        self.check()?;
        let total_bytes = self.source.geometry().len_bytes();
        let state = State {
            next_bytes: AtomicU64::new(0),
            total_bytes,
            is_over: AtomicBool::new(false),
            outcome: Mutex::new(Outcome {
                copied: Copied {
                    total_bytes,
                    ..Copied::default()
                },
                error: None,
                progress,
            }),
        };
        thread::scope(|scope| {
            for _ in 0..THREADS {
                scope.spawn(|| Copier::new(self).run(&state));
            }
        });
        let outcome = state.outcome.into_inner();
        let outcome = outcome.unwrap_or_else(PoisonError::into_inner);
        if let Some(error) = outcome.error {
            return Err(error);
        }
        let destination = Arc::clone(self.destination);
        let flushed = Driver::new(self.relay, destination, PATIENCE).flush();
        flushed.map_err(CopyError::Flush)?;
        Ok(outcome.copied)
    }

    /// Checks that the volumes fit.
    ///
    /// # Errors
    /// If the destination is too small, refuses writes, or has blocks that the source does not
    /// fill.
    pub fn check(&self) -> Result<(), CopyError> {
        let (source, destination) = (self.source.geometry(), self.destination.geometry());
        let source_size = ByteSize(source.len_bytes());
        let destination_size = ByteSize(destination.len_bytes());
        if destination_size < source_size {
            return Err(CopyError::TooSmall {
                source_size,
                destination_size,
            });
        }
        let block_bytes = destination.block_size.bytes();
        if !source_size.0.is_multiple_of(block_bytes) {
            return Err(CopyError::NotWholeBlocks {
                source_size,
                block_bytes,
            });
        }
        if self.destination.is_read_only() {
            return Err(CopyError::ReadOnly);
        }
        Ok(())
    }
}

/// What the threads of a copy share.
struct State<'a> {
    /// Where the next piece begins.
    next_bytes: AtomicU64,
    total_bytes: u64,
    /// No further piece is begun.
    is_over: AtomicBool,
    outcome: Mutex<Outcome<'a>>,
}

struct Outcome<'a> {
    copied: Copied,
    /// The first.
    error: Option<CopyError>,
    progress: &'a mut (dyn FnMut(Progress) -> ControlFlow<()> + Send),
}

impl State<'_> {
    /// The next piece: where it begins, and its length.
    fn next_piece(&self) -> Option<(u64, u64)> {
        if self.is_over.load(Ordering::Relaxed) {
            return None;
        }
        let at_bytes = self.next_bytes.fetch_add(PIECE_BYTES, Ordering::Relaxed);
        let left = self.total_bytes.checked_sub(at_bytes)?;
        (left > 0).then_some((at_bytes, left.min(PIECE_BYTES)))
    }

    fn note(&self, result: Result<Copied, CopyError>) {
        let outcome = self.outcome.lock();
        let mut outcome = outcome.unwrap_or_else(PoisonError::into_inner);
        let error = match result {
            Ok(piece) => {
                outcome.copied.data_bytes += piece.data_bytes;
                outcome.copied.zero_bytes += piece.zero_bytes;
                let done_bytes = outcome.copied.data_bytes + outcome.copied.zero_bytes;
                let total_bytes = self.total_bytes;
                let progress = Progress {
                    done_bytes,
                    total_bytes,
                };
                match (outcome.progress)(progress) {
                    ControlFlow::Continue(()) => return,
                    ControlFlow::Break(()) => CopyError::Stopped {
                        done: ByteSize(done_bytes),
                        total: ByteSize(total_bytes),
                    },
                }
            }
            Err(error) => error,
        };
        self.is_over.store(true, Ordering::Relaxed);
        outcome.error.get_or_insert(error);
    }
}

/// A thread of a copy.
struct Copier<'a> {
    copy: &'a Copy<'a>,
    source: Driver,
    destination: Driver,
    data: Vec<u8>,
    read_back: Vec<u8>,
}

impl<'a> Copier<'a> {
    fn new(copy: &'a Copy<'a>) -> Self {
        let driver = |volume| Driver::new(copy.relay, Arc::clone(volume), PATIENCE);
        let read_back = match copy.verify {
            Verify::No => Vec::new(),
            Verify::ReadBack => vec![0; PIECE_BYTES as usize],
        };
        Self {
            copy,
            source: driver(copy.source),
            destination: driver(copy.destination),
            data: vec![0; PIECE_BYTES as usize],
            read_back,
        }
    }

    fn run(mut self, state: &State<'_>) {
        while let Some((at_bytes, len_bytes)) = state.next_piece() {
            state.note(self.copy_piece(at_bytes, len_bytes));
        }
    }

    fn copy_piece(&mut self, at_bytes: u64, len_bytes: u64) -> Result<Copied, CopyError> {
        let mut data = std::mem::take(&mut self.data);
        let piece = &mut data[..len_bytes as usize];
        let copied = self
            .read(at_bytes, piece)
            .and_then(|()| self.write(at_bytes, piece))
            .and_then(|copied| self.compare(at_bytes, piece).map(|()| copied));
        self.data = data;
        copied
    }

    fn read(&mut self, at_bytes: u64, piece: &mut [u8]) -> Result<(), CopyError> {
        let source = self.source.volume();
        let len_bytes = piece.len() as u64;
        if is_hole(&**source, at_bytes, len_bytes) {
            piece.fill(0);
            return Ok(());
        }
        let extent = extent(source.geometry(), at_bytes, len_bytes);
        let read = self.source.read(extent, piece);
        read.map_err(|error| CopyError::Read { at_bytes, error })
    }

    /// Writes runs of data, and zeroes runs of zeros.
    fn write(&mut self, at_bytes: u64, piece: &[u8]) -> Result<Copied, CopyError> {
        let mut copied = Copied::default();
        let grains = piece.chunks(GRAIN_BYTES).collect::<Vec<_>>();
        let mut offset = 0;
        for run in grains.chunk_by(|a, b| is_zero(a) == is_zero(b)) {
            let len: usize = run.iter().map(|grain| grain.len()).sum();
            let data = &piece[offset..offset + len];
            let at = at_bytes + offset as u64;
            if is_zero(data) {
                self.zero(at, len as u64)?;
                copied.zero_bytes += len as u64;
            } else {
                let extent = extent(self.destination.volume().geometry(), at, len as u64);
                let written = self.destination.write(extent, data, Persistence::Volatile);
                written.map_err(|error| CopyError::Write {
                    at_bytes: at,
                    error,
                })?;
                copied.data_bytes += len as u64;
            }
            offset += len;
        }
        Ok(copied)
    }

    fn zero(&mut self, at_bytes: u64, len_bytes: u64) -> Result<(), CopyError> {
        let volume = self.destination.volume();
        if self.copy.before == Before::Zeros || is_hole(&**volume, at_bytes, len_bytes) {
            return Ok(());
        }
        let extent = extent(volume.geometry(), at_bytes, len_bytes);
        let zeroed = self.destination.write_zeroes(extent, Unmap::Allowed);
        zeroed.map_err(|error| CopyError::Write { at_bytes, error })
    }

    fn compare(&mut self, at_bytes: u64, piece: &[u8]) -> Result<(), CopyError> {
        if self.copy.verify == Verify::No {
            return Ok(());
        }
        let geometry = self.destination.volume().geometry();
        let extent = extent(geometry, at_bytes, piece.len() as u64);
        let read_back = &mut self.read_back[..piece.len()];
        let read = self.destination.read(extent, read_back);
        read.map_err(|error| CopyError::ReadBack { at_bytes, error })?;
        let differs = piece.iter().zip(&*read_back).position(|(a, b)| a != b);
        match differs {
            None => Ok(()),
            Some(offset) => Err(CopyError::Differs {
                at_bytes: at_bytes + offset as u64,
            }),
        }
    }
}

/// Whether a volume knows that it has no memory for a range, so that it reads as zeros.
fn is_hole(volume: &dyn ManagedVolume, at_bytes: u64, len_bytes: u64) -> bool {
    let mut range = ByteRange {
        offset: at_bytes,
        len: len_bytes,
    };
    while range.len > 0 {
        let found = volume.allocation(range);
        if found.allocated {
            return false;
        }
        let len_bytes = found.len_bytes.clamp(1, range.len);
        range.offset += len_bytes;
        range.len -= len_bytes;
    }
    true
}

fn is_zero(bytes: &[u8]) -> bool {
    bytes.iter().all(|&byte| byte == 0)
}

fn extent(geometry: Geometry, at_bytes: u64, len_bytes: u64) -> Extent {
    let shift = geometry.block_size.shift();
    Extent::new(Lba(at_bytes >> shift), Blocks(len_bytes >> shift))
}

#[cfg(test)]
mod tests;
