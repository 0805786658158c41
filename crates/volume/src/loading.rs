//! A volume that is served while the file that it is restored from is read.
//!
//! ```text
//!  command ──► admit: are its chunks there? ──► yes: Now
//!                                           └─► no: Later … a Loader reads them first ──► done(ticket)
//!  write ────► execute: notes the sectors; what the file has for them is not loaded any more
//! ```
//!
//! Chunks are those of the file. A chunk is *missing* until its bytes are in memory: it is not read
//! yet, or the file is damaged there. Writes do not wait for missing chunks. A damaged chunk fails
//! reads of the sectors that were not written since. Once no chunk is missing, the volume is a
//! volume like any other, and nothing of this is on its path.

mod sectors;
mod waits;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use block::{
    Admission, BlockSize, ByteRange, Completion, Completions, DataUse, Extent, Intent, Op, Status,
    Ticket,
};
use image::CHUNK_BYTES;
use memory::Store;

use crate::Relay;
use crate::damage::Damage;
use sectors::Sectors;
use waits::Waits;

/// What of a volume is in memory, and who waits for the rest.
#[derive(Debug)]
pub(crate) struct Loading {
    store: Arc<Store>,
    block_size: BlockSize,
    size_bytes: u64,
    relay: Arc<Relay>,
    /// A bit for each chunk: it is missing. Changed under the lock of `state`; a bit that is not
    /// set stays so.
    missing: Box<[AtomicU64]>,
    /// Whether the volume may hold anything else than the file.
    has_changed: AtomicBool,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// How many chunks are missing.
    missing: usize,
    /// What hosts have changed of missing chunks.
    written: BTreeMap<u32, Sectors>,
    /// Missing chunks that the file cannot give.
    damaged: BTreeSet<u32>,
    waits: Waits,
}

/// What became of a chunk that a file was to give.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Loaded {
    /// It is there.
    Present,
    /// It is damaged, and no host has written all of it.
    Damaged,
}

impl Loading {
    /// `store` holds zeros. Chunks `numbers` are to be loaded; the others are zeros.
    pub(crate) fn new(
        store: Arc<Store>,
        block_size: BlockSize,
        relay: Arc<Relay>,
        numbers: impl Iterator<Item = u32>,
    ) -> Self {
        let size_bytes = store.len_bytes();
        let words = size_bytes.div_ceil(CHUNK_BYTES).div_ceil(u64::BITS.into());
        let missing: Box<[_]> = (0..words).map(|_| AtomicU64::new(0)).collect();
        let mut count = 0;
        for number in numbers {
            let (word, bit) = place(number);
            missing[word].fetch_or(bit, Ordering::Relaxed);
            count += 1;
        }
        Self {
            store,
            block_size,
            size_bytes,
            relay,
            missing,
            has_changed: AtomicBool::new(false),
            state: Mutex::new(State {
                missing: count,
                written: BTreeMap::new(),
                damaged: BTreeSet::new(),
                waits: Waits::default(),
            }),
        }
    }

    /// Decides whether a command may be executed at once, or waits for chunks. A command that
    /// changes blocks without looking at them does not wait.
    pub(crate) fn admit(&self, intent: &Intent<'_>, ticket: Ticket) -> Admission {
        let read = match intent.data_use {
            DataUse::Read | DataUse::Verify | DataUse::Modify => intent.extents,
            DataUse::Copy => intent.extents.get(1..).unwrap_or_default(),
            DataUse::Overwrite | DataUse::Erase | DataUse::Flush => &[],
        };
        let mut missing = read.iter().flat_map(|&extent| self.missing_parts(extent));
        if missing.next().is_none() {
            return Admission::Now;
        }
        let mut state = self.lock();
        let mut unread = BTreeSet::new();
        for part in read.iter().flat_map(|&extent| self.missing_parts(extent)) {
            match state.reading(&part) {
                Ok(()) => {}
                Err(Status::Busy) => {
                    unread.insert(part.chunk);
                }
                Err(status) => return Admission::Fail(status, None),
            }
        }
        if unread.is_empty() {
            Admission::Now
        } else if state.waits.insert(ticket, unread.into_iter().collect()) {
            Admission::Later(None)
        } else {
            Admission::Fail(Status::Busy, None)
        }
    }

    /// The command of `ticket` waits no more.
    pub(crate) fn release(&self, ticket: Ticket) {
        self.lock().waits.remove(ticket);
    }

    /// Executes `op` by `execute`, unless it reads what is not there.
    pub(crate) fn execute(
        &self,
        op: Op<'_>,
        execute: impl FnOnce(Op<'_>) -> Result<(), Status>,
    ) -> Result<(), Status> {
        let [read, changed] = extents_of(&op);
        if changed.is_some() {
            self.has_changed.store(true, Ordering::Relaxed);
        }
        let touched = [read, changed].into_iter().flatten();
        let mut missing = touched.flat_map(|extent| self.missing_parts(extent));
        if missing.next().is_none() {
            return execute(op);
        }
        // What is written meanwhile must neither be loaded over, nor be read before it is noted.
        let mut state = self.lock();
        for part in read
            .into_iter()
            .flat_map(|extent| self.missing_parts(extent))
        {
            state.reading(&part)?;
        }
        execute(op)?;
        let mut ready = Vec::new();
        for part in changed
            .into_iter()
            .flat_map(|extent| self.missing_parts(extent))
        {
            let chunk_bytes = self.chunk_bytes(part.chunk);
            if state.write(&part, chunk_bytes) {
                ready.extend(self.chunk_is_there(&mut state, part.chunk));
            }
        }
        drop(state);
        self.report(&ready, Ok(()));
        Ok(())
    }

    /// Loads a chunk, of which the file gives `bytes`, or nothing if it is damaged there.
    ///
    /// # Errors
    /// If the store cannot be written. The chunk is missing then, and what waited for it has
    /// failed.
    pub(crate) fn load(&self, chunk: u32, bytes: Option<&[u8]>) -> Result<Loaded, Status> {
        let mut state = self.lock();
        if !self.is_missing(chunk) {
            return Ok(Loaded::Present);
        }
        let Some(bytes) = bytes else {
            state.damaged.insert(chunk);
            let failed = state.waits.chunk_failed(chunk);
            drop(state);
            self.report(&failed, Err(Status::ReadError));
            return Ok(Loaded::Damaged);
        };
        let start = u64::from(chunk) * CHUNK_BYTES;
        let written = state.written.get(&chunk).cloned().unwrap_or_default();
        let mut gaps = written.gaps(bytes.len() as u64);
        let stored = gaps.try_for_each(|gap| {
            let at = gap.offset as usize;
            self.store
                .write(start + gap.offset, &bytes[at..at + gap.len as usize])
        });
        let (tickets, result) = match stored {
            Ok(()) => (self.chunk_is_there(&mut state, chunk), Ok(())),
            Err(status) => (state.waits.chunk_failed(chunk), Err(status)),
        };
        drop(state);
        self.report(&tickets, result);
        result.map(|()| Loaded::Present)
    }

    /// The next chunk from `from` on that commands wait for, else the first.
    pub(crate) fn wanted(&self, from: u32) -> Option<u32> {
        self.lock().waits.next(from)
    }

    /// Whether a chunk is missing.
    pub(crate) fn is_missing(&self, chunk: u32) -> bool {
        let (word, bit) = place(chunk);
        let word = self.missing.get(word);
        word.is_some_and(|word| word.load(Ordering::Acquire) & bit != 0)
    }

    /// Whether no chunk is missing.
    pub(crate) fn is_complete(&self) -> bool {
        self.lock().missing == 0
    }

    /// Bytes of the volume whose chunks are not read yet.
    pub(crate) fn unread_bytes(&self) -> u64 {
        let state = self.lock();
        (state.missing - state.damaged.len()) as u64 * CHUNK_BYTES
    }

    /// Whether a host has changed the volume.
    pub(crate) fn has_changed(&self) -> bool {
        self.has_changed.load(Ordering::Relaxed)
    }

    /// What the file could not give, and no host has written since.
    pub(crate) fn damage(&self) -> Damage {
        let state = self.lock();
        let mut damage = Damage::default();
        for &chunk in &state.damaged {
            let start = u64::from(chunk) * CHUNK_BYTES;
            let written = state.written.get(&chunk).cloned().unwrap_or_default();
            for gap in written.gaps(self.chunk_bytes(chunk)) {
                damage.add(ByteRange {
                    offset: start + gap.offset,
                    len: gap.len,
                });
            }
        }
        damage
    }

    /// The chunk is not missing any more. Returns the commands that waited for it alone.
    fn chunk_is_there(&self, state: &mut State, chunk: u32) -> Vec<Ticket> {
        let (word, bit) = place(chunk);
        self.missing[word].fetch_and(!bit, Ordering::Release);
        state.missing -= 1;
        state.written.remove(&chunk);
        state.damaged.remove(&chunk);
        state.waits.chunk_came(chunk)
    }

    fn report(&self, tickets: &[Ticket], result: Result<(), Status>) {
        let completion = |&ticket: &Ticket| Completion { ticket, result };
        let completions: Vec<_> = tickets.iter().map(completion).collect();
        self.relay.done_all(&completions);
    }

    /// The parts of an extent in chunks that are missing.
    fn missing_parts(&self, extent: Extent) -> impl Iterator<Item = Part> + '_ {
        let block_bytes = self.block_size.bytes();
        let start = extent.lba.0.saturating_mul(block_bytes);
        let end = start.saturating_add(extent.blocks.0.saturating_mul(block_bytes));
        let end = end.min(self.size_bytes);
        let first = start.min(end) / CHUNK_BYTES;
        let missing = self.missing_among(first..end.div_ceil(CHUNK_BYTES));
        missing.map(move |chunk| {
            let chunk_start = chunk * CHUNK_BYTES;
            Part {
                chunk: chunk as u32,
                bytes: start.max(chunk_start) - chunk_start
                    ..end.min(chunk_start + CHUNK_BYTES) - chunk_start,
            }
        })
    }

    /// The chunks among `chunks` that are missing. An erasure may name all of a volume, so whole
    /// words of bits are looked at.
    fn missing_among(&self, chunks: Range<u64>) -> impl Iterator<Item = u64> + '_ {
        let bits = u64::from(u64::BITS);
        let words = chunks.start / bits..chunks.end.div_ceil(bits);
        let missing = words.flat_map(move |word| {
            let mut left = self.missing[word as usize].load(Ordering::Acquire);
            std::iter::from_fn(move || {
                let bit = (left != 0).then(|| u64::from(left.trailing_zeros()))?;
                left &= left - 1;
                Some(word * bits + bit)
            })
        });
        missing.filter(move |chunk| chunks.contains(chunk))
    }

    /// The length of a chunk; the last one may be short.
    fn chunk_bytes(&self, chunk: u32) -> u64 {
        let start = u64::from(chunk) * CHUNK_BYTES;
        (self.size_bytes - start).min(CHUNK_BYTES)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // If `execute` panics, nothing is noted, so what it wrote is loaded over.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A part of a missing chunk.
struct Part {
    chunk: u32,
    bytes: Range<u64>,
}

impl State {
    /// Whether a part can be read: [`Status::Busy`] if it is not read yet.
    fn reading(&self, part: &Part) -> Result<(), Status> {
        let written = self.written.get(&part.chunk);
        if written.is_some_and(|written| written.has_all(&part.bytes)) {
            Ok(())
        } else if self.damaged.contains(&part.chunk) {
            Err(Status::ReadError)
        } else {
            Err(Status::Busy)
        }
    }

    /// Notes that a part was written. Returns whether the chunk, of `chunk_bytes`, is whole by
    /// that.
    fn write(&mut self, part: &Part, chunk_bytes: u64) -> bool {
        let whole = 0..chunk_bytes;
        if part.bytes == whole {
            return true;
        }
        let written = self.written.entry(part.chunk).or_default();
        written.insert(&part.bytes);
        written.has_all(&whole)
    }
}

/// The word and the bit of a chunk.
fn place(chunk: u32) -> (usize, u64) {
    let bits = u64::BITS;
    ((chunk / bits) as usize, 1 << (chunk % bits))
}

/// The blocks that an operation reads, and those that it changes.
fn extents_of(op: &Op<'_>) -> [Option<Extent>; 2] {
    match *op {
        Op::Read { extent, .. } | Op::Verify { extent } | Op::Compare { extent, .. } => {
            [Some(extent), None]
        }
        Op::Write { extent, .. } | Op::WriteZeroes { extent, .. } | Op::Discard { extent } => {
            [None, Some(extent)]
        }
        Op::CompareAndWrite { extent, .. } => [Some(extent), Some(extent)],
        Op::Copy { from, to } => [Some(from), Some(Extent::new(to, from.blocks))],
        Op::Flush => [None, None],
    }
}
