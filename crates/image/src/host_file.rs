//! A file of this machine that is being written, past the page cache and beside what fills it.
//!
//! ```text
//!  append ──► block of 1 MiB ──► writing thread ── direct I/O ──► disk
//!         ◄────────────────────── empty blocks
//! ```
//!
//! What goes through the page cache is copied there, displaces other files, and is written by
//! threads of the kernel, which have the priority of sessions. Direct I/O has none of that, and the
//! thread has the priority of the one that created the file. A file system that knows no direct I/O
//! is written through the page cache.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::{self, JoinHandle};

use rustix::fs::{Advice, fadvise};

use crate::direct::{Block, set_direct};

/// Bytes that are written at once.
const BLOCK_BYTES: usize = 1 << 20;
/// Blocks of a file: one is filled while another is written and a third one waits.
const BLOCKS: usize = 3;
/// Unsynced bytes of a file that is written through the page cache. Without this bound they would
/// displace other files from it, and hold up everyone who syncs the same file system at the end.
const UNSYNCED_MAX_BYTES: u64 = 32 << 20;

/// A file that is being written: locked, so that nobody takes it for a leftover.
#[derive(Debug)]
pub struct HostFile {
    output: Arc<Output>,
    /// Where the block that is being filled begins.
    offset: u64,
    block: Block,
    /// Empty ones.
    spare: Vec<Block>,
    /// How many the thread has.
    in_flight: usize,
    to_write: Option<SyncSender<(u64, Block)>>,
    written: Receiver<(Block, io::Result<()>)>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Output {
    file: File,
    /// Whether the page cache is passed by.
    is_direct: AtomicBool,
}

impl HostFile {
    /// A file that is new and empty.
    ///
    /// # Errors
    /// If the thread cannot be started.
    pub(crate) fn new(file: File) -> io::Result<Self> {
        let output = Arc::new(Output {
            file,
            is_direct: AtomicBool::new(false),
        });
        let is_direct = set_direct(&output.file, true).is_ok();
        output.is_direct.store(is_direct, Ordering::Relaxed);
        let (to_write, blocks) = sync_channel(BLOCKS);
        let (done, written) = sync_channel(BLOCKS);
        let thread = thread::Builder::new().name("save-file".to_owned());
        let output_of_thread = Arc::clone(&output);
        let thread = thread.spawn(move || output_of_thread.write_all(&blocks, &done))?;
        Ok(Self {
            output,
            offset: 0,
            block: Block::new(BLOCK_BYTES),
            spare: (1..BLOCKS).map(|_| Block::new(BLOCK_BYTES)).collect(),
            in_flight: 0,
            to_write: Some(to_write),
            written,
            thread: Some(thread),
        })
    }

    /// Appends bytes. An error may be of bytes that were appended before.
    pub(crate) fn append(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            bytes = self.block.fill(bytes);
            if self.block.is_full() {
                self.submit()?;
            }
        }
        Ok(())
    }

    /// Puts everything that was appended on stable storage.
    pub(crate) fn sync(&mut self) -> io::Result<()> {
        while self.in_flight > 0 {
            self.await_block()?;
        }
        let rest = self.block.bytes();
        if !rest.is_empty() {
            // It ends inside a block of the disk.
            self.output.leave_direct()?;
            self.output.file.write_all_at(rest, self.offset)?;
            self.offset += rest.len() as u64;
            self.block.clear();
        }
        self.output.file.sync_data()
    }

    fn submit(&mut self) -> io::Result<()> {
        while self.spare.is_empty() {
            self.await_block()?;
        }
        let next = self.spare.pop().expect("one came back");
        let full = std::mem::replace(&mut self.block, next);
        let begin = self.offset;
        self.offset += full.bytes().len() as u64;
        let sent = self
            .to_write
            .as_ref()
            .is_some_and(|to_write| to_write.send((begin, full)).is_ok());
        self.in_flight += usize::from(sent);
        if sent {
            Ok(())
        } else {
            Err(thread_has_ended())
        }
    }

    fn await_block(&mut self) -> io::Result<()> {
        let (mut block, result) = self.written.recv().map_err(|_| thread_has_ended())?;
        self.in_flight -= 1;
        block.clear();
        self.spare.push(block);
        result
    }
}

impl Drop for HostFile {
    fn drop(&mut self) {
        self.to_write = None;
        if let Some(thread) = self.thread.take() {
            // Its panic was reported as an error.
            let _panic = thread.join();
        }
    }
}

impl Output {
    /// What the thread does.
    fn write_all(
        &self,
        blocks: &Receiver<(u64, Block)>,
        done: &SyncSender<(Block, io::Result<()>)>,
    ) {
        let mut synced_bytes = 0;
        for (offset, block) in blocks {
            let result = self.write(offset, block.bytes(), &mut synced_bytes);
            if done.send((block, result)).is_err() {
                return;
            }
        }
    }

    fn write(&self, offset: u64, bytes: &[u8], synced_bytes: &mut u64) -> io::Result<()> {
        let mut result = self.file.write_all_at(bytes, offset);
        let is_refused = |error: &io::Error| error.kind() == io::ErrorKind::InvalidInput;
        if self.is_direct.load(Ordering::Relaxed) && result.as_ref().is_err_and(is_refused) {
            // Larger blocks, or a file system that says it only now.
            self.leave_direct()?;
            result = self.file.write_all_at(bytes, offset);
        }
        result?;
        let written_bytes = offset + bytes.len() as u64;
        if !self.is_direct.load(Ordering::Relaxed)
            && written_bytes - *synced_bytes >= UNSYNCED_MAX_BYTES
        {
            self.file.sync_data()?;
            // The page cache is memory that volumes could have; a system that does not forget is
            // slower, not wrong.
            let _stays_cached = fadvise(&self.file, *synced_bytes, None, Advice::DontNeed);
            *synced_bytes = written_bytes;
        }
        Ok(())
    }

    fn leave_direct(&self) -> io::Result<()> {
        if self.is_direct.swap(false, Ordering::Relaxed) {
            set_direct(&self.file, false)?;
        }
        Ok(())
    }
}

fn thread_has_ended() -> io::Error {
    io::Error::other("the thread that writes the file has ended")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Lengths around those of blocks, and a file that goes on after it was synced.
    #[test]
    fn what_was_appended_is_in_the_file() {
        let name = format!("ramport-host-file-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        for lengths in [
            &[1, 4095, 4096][..],
            &[BLOCK_BYTES, 1, BLOCK_BYTES - 1],
            &[5 * BLOCK_BYTES + 4096, 100, 3 * BLOCK_BYTES],
            &[40 * BLOCK_BYTES],
        ] {
            let mut expected = Vec::new();
            let mut file = HostFile::new(File::create(&path).expect("a folder")).expect("a thread");
            for (number, &len) in lengths.iter().enumerate() {
                let bytes: Vec<u8> = (0..len).map(|at| (at / 512 + number) as u8).collect();
                file.append(&bytes).expect("room");
                expected.extend_from_slice(&bytes);
                if number == 1 {
                    file.sync().expect("room");
                }
            }
            file.sync().expect("room");
            let found = std::fs::read(&path).expect("it exists");
            assert!(found == expected, "{lengths:?}");
        }
        std::fs::remove_file(&path).expect("it exists");
    }

    #[test]
    fn an_error_of_the_thread_is_reported_and_does_not_hang() {
        // A device that is always full.
        let full = File::options().write(true).open("/dev/full");
        let mut file = HostFile::new(full.expect("it exists")).expect("a thread");
        let bytes = vec![7; BLOCK_BYTES];
        let failed = (0..2 * BLOCKS).any(|_| file.append(&bytes).is_err());
        assert!(failed || file.sync().is_err());
    }
}
