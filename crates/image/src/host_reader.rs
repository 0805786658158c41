//! A file of this machine that is being read, past the page cache and ahead of who reads it.
//!
//! ```text
//!  disk ── direct I/O ──► reading thread ── blocks of 1 MiB ──► read_at
//!                                        ◄── empty blocks ─────
//! ```
//!
//! A save is read once, so the page cache would gain nothing, and it costs a copy and the memory of
//! other files. The thread exists while places are read in ascending order. Other places are read
//! by who asks for them. A file system that knows no direct I/O is read through the page cache, and
//! reads ahead itself.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};

use crate::direct::{ALIGN_BYTES, Block, set_direct};

/// Bytes that are read at once.
const BLOCK_BYTES: usize = 1 << 20;
/// Blocks of a file: one is taken from while the thread reads another and a third one waits.
const BLOCKS: usize = 3;

/// A file that can be read at any place, fastest in ascending order.
#[derive(Debug)]
pub struct HostReader {
    input: Arc<Input>,
    order: Mutex<Order>,
}

#[derive(Debug)]
struct Input {
    file: File,
    /// Whether the page cache is passed by.
    is_direct: AtomicBool,
}

/// In which order the file has been read.
#[derive(Debug, Default)]
struct Order {
    /// Where the last read ended.
    end: u64,
    ahead: Option<Ahead>,
}

/// What a thread reads ahead.
#[derive(Debug)]
struct Ahead {
    /// Where `block` begins.
    begin: u64,
    block: Block,
    filled: Option<Receiver<(Block, io::Result<()>)>>,
    empty: SyncSender<Block>,
    thread: Option<JoinHandle<()>>,
}

impl HostReader {
    pub(crate) fn new(file: File) -> Self {
        let is_direct = set_direct(&file, true).is_ok();
        Self {
            input: Arc::new(Input {
                file,
                is_direct: AtomicBool::new(is_direct),
            }),
            order: Mutex::default(),
        }
    }

    pub(crate) fn len_bytes(&self) -> io::Result<u64> {
        Ok(self.input.file.metadata()?.len())
    }

    /// Fills `dest` with the bytes from `offset` on.
    pub(crate) fn read_at(&self, offset: u64, dest: &mut [u8]) -> io::Result<()> {
        if !self.input.is_direct.load(Ordering::Relaxed) {
            return self.input.file.read_exact_at(dest, offset);
        }
        let mut order = self.order.lock().unwrap_or_else(PoisonError::into_inner);
        order.read(&self.input, offset, dest)
    }
}

impl Order {
    fn read(&mut self, input: &Arc<Input>, offset: u64, dest: &mut [u8]) -> io::Result<()> {
        let follows = self.end == offset && offset > 0;
        self.end = offset + dest.len() as u64;
        let is_ahead = |ahead: &Ahead| ahead.reaches(offset);
        if follows && !self.ahead.as_ref().is_some_and(is_ahead) {
            // Without a thread it is read all the same.
            self.ahead = Ahead::begin(input, offset).ok();
        }
        if let Some(ahead) = self.ahead.as_mut().filter(|ahead| ahead.reaches(offset)) {
            if ahead.read(offset, dest).is_ok() {
                return Ok(());
            }
            // The disk may be damaged elsewhere in the block.
            self.ahead = None;
        }
        input.read(offset, dest)
    }
}

impl Ahead {
    /// Begins to read at the block of `offset`.
    fn begin(input: &Arc<Input>, offset: u64) -> io::Result<Self> {
        let begin = offset - offset % BLOCK_BYTES as u64;
        let (full, filled) = sync_channel(BLOCKS);
        let (empty, blocks) = sync_channel(BLOCKS);
        for _ in 1..BLOCKS {
            let sent = empty.send(Block::new(BLOCK_BYTES));
            sent.expect("the other end is here");
        }
        let thread = thread::Builder::new().name("save-read".to_owned());
        let input = Arc::clone(input);
        let thread = thread.spawn(move || input.read_all(begin, &blocks, &full))?;
        let mut ahead = Self {
            begin,
            block: Block::new(BLOCK_BYTES),
            filled: Some(filled),
            empty,
            thread: Some(thread),
        };
        ahead.take_block()?;
        Ok(ahead)
    }

    /// Whether `offset` is in the block, or in the next one.
    fn reaches(&self, offset: u64) -> bool {
        (self.begin..self.begin + 2 * BLOCK_BYTES as u64).contains(&offset)
    }

    fn read(&mut self, offset: u64, dest: &mut [u8]) -> io::Result<()> {
        let mut offset = offset;
        let mut left = dest;
        while !left.is_empty() {
            let at = (offset - self.begin) as usize;
            if at >= BLOCK_BYTES {
                self.take_block()?;
                self.begin += BLOCK_BYTES as u64;
                continue;
            }
            let there = self.block.bytes().get(at..).unwrap_or_default();
            if there.is_empty() {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            let (now, later) = left.split_at_mut(there.len().min(left.len()));
            now.copy_from_slice(&there[..now.len()]);
            offset += now.len() as u64;
            left = later;
        }
        Ok(())
    }

    fn take_block(&mut self) -> io::Result<()> {
        let filled = self.filled.as_ref().and_then(|filled| filled.recv().ok());
        let (block, result) = filled.ok_or_else(|| io::Error::from(io::ErrorKind::BrokenPipe))?;
        result?;
        // A thread that has ended needs none.
        let _ended = self.empty.send(std::mem::replace(&mut self.block, block));
        Ok(())
    }
}

impl Drop for Ahead {
    fn drop(&mut self) {
        // Each of these ends the thread's wait.
        self.filled = None;
        self.empty = sync_channel(0).0;
        if let Some(thread) = self.thread.take() {
            // Its panic was taken for the end of the blocks.
            let _panic = thread.join();
        }
    }
}

impl Input {
    /// What the thread does.
    fn read_all(
        &self,
        begin: u64,
        empty: &Receiver<Block>,
        full: &SyncSender<(Block, io::Result<()>)>,
    ) {
        let mut offset = begin;
        for mut block in empty {
            let result = block.read(&self.file, offset);
            offset += BLOCK_BYTES as u64;
            let is_last = result.is_err() || !block.is_full();
            if full.send((block, result)).is_err() || is_last {
                return;
            }
        }
    }

    /// Reads what nobody read ahead.
    fn read(&self, offset: u64, dest: &mut [u8]) -> io::Result<()> {
        for (index, piece) in dest.chunks_mut(BLOCK_BYTES).enumerate() {
            let offset = offset + (index * BLOCK_BYTES) as u64;
            match self.read_direct(offset, piece) {
                Err(error) if error.kind() == io::ErrorKind::InvalidInput => {
                    // Larger blocks, or a file system that says it only now.
                    if self.is_direct.swap(false, Ordering::Relaxed) {
                        set_direct(&self.file, false)?;
                    }
                    self.file.read_exact_at(piece, offset)?;
                }
                result => result?,
            }
        }
        Ok(())
    }

    fn read_direct(&self, offset: u64, dest: &mut [u8]) -> io::Result<()> {
        let skipped = (offset % ALIGN_BYTES as u64) as usize;
        let mut block = Block::new((skipped + dest.len()).next_multiple_of(ALIGN_BYTES));
        block.read(&self.file, offset - skipped as u64)?;
        let there = block.bytes().get(skipped..skipped + dest.len());
        dest.copy_from_slice(there.ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Any order of places, of a file that ends inside a block, agrees with what it holds.
    #[test]
    fn every_order_of_places_finds_what_the_file_holds() {
        let name = format!("ramport-host-reader-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        let bytes: Vec<u8> = (0..5 * BLOCK_BYTES + 777)
            .map(|at| (at / 100 + at) as u8)
            .collect();
        std::fs::write(&path, &bytes).expect("a folder");
        let reader = HostReader::new(File::open(&path).expect("it exists"));
        let is_found = |offset: usize, len: usize| {
            let mut found = vec![0; len];
            let read = reader.read_at(offset as u64, &mut found);
            read.is_ok() && found == bytes[offset..offset + len]
        };
        // In ascending order, with jumps forward and back on the way.
        let step = 200_001;
        for at in (0..bytes.len() - step).step_by(step) {
            assert!(is_found(at, step), "{at}");
            if at / step % 5 == 4 {
                assert!(is_found(bytes.len() - at, 10), "back from the end: {at}");
                assert!(is_found(at / 2, 4096), "in the middle: {at}");
            }
        }
        assert!(is_found(0, bytes.len()));
        assert!(is_found(bytes.len() - 777, 777));
        let mut beyond = [0; 2];
        for offset in [bytes.len() - 1, bytes.len(), 9 * BLOCK_BYTES] {
            let read = reader.read_at(offset as u64, &mut beyond);
            let kind = read.map_err(|error| error.kind());
            assert_eq!(kind, Err(io::ErrorKind::UnexpectedEof), "{offset}");
        }
        std::fs::remove_file(&path).expect("it exists");
    }

    /// A thread reads what follows what was read, and none is left when the file is closed.
    #[test]
    fn places_in_ascending_order_are_read_ahead() {
        let name = format!("ramport-read-ahead-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::write(&path, vec![7; 3 * BLOCK_BYTES]).expect("a folder");
        let reader = HostReader::new(File::open(&path).expect("it exists"));
        let is_ahead = || reader.order.lock().expect("no panic").ahead.is_some();
        if reader.input.is_direct.load(Ordering::Relaxed) {
            let mut bytes = [0; 1000];
            for (offset, ahead) in [(0, false), (5000, false), (6000, true), (100, true)] {
                reader.read_at(offset, &mut bytes).expect("it is there");
                assert_eq!(is_ahead(), ahead, "{offset}");
            }
        }
        let input = Arc::clone(&reader.input);
        drop(reader);
        assert_eq!(Arc::strong_count(&input), 1);
        std::fs::remove_file(&path).expect("it exists");
    }
}
