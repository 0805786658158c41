//! What direct I/O asks for: a flag of the file, and memory at multiples of a disk's blocks.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;

use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};

/// Direct I/O needs memory and places in the file at multiples of the disk's blocks: none has
/// larger ones than this.
pub(crate) const ALIGN_BYTES: usize = 4096;

/// Has a file pass the page cache by, or not.
///
/// # Errors
/// If its file system knows no direct I/O.
pub(crate) fn set_direct(file: &File, is_direct: bool) -> io::Result<()> {
    let mut flags = fcntl_getfl(file)?;
    flags.set(OFlags::DIRECT, is_direct);
    Ok(fcntl_setfl(file, flags)?)
}

/// Memory that direct I/O can use.
#[derive(Debug)]
pub(crate) struct Block {
    memory: Vec<u8>,
    start: usize,
    capacity: usize,
    len: usize,
}

impl Block {
    /// An empty one with room for `capacity` bytes.
    pub(crate) fn new(capacity: usize) -> Self {
        let memory = vec![0; capacity + ALIGN_BYTES];
        let start = memory.as_ptr().align_offset(ALIGN_BYTES).min(ALIGN_BYTES);
        Self {
            memory,
            start,
            capacity,
            len: 0,
        }
    }

    /// Takes bytes; returns those for which there is no room.
    pub(crate) fn fill<'a>(&mut self, bytes: &'a [u8]) -> &'a [u8] {
        let (taken, rest) = bytes.split_at(bytes.len().min(self.capacity - self.len));
        let at = self.start + self.len;
        self.memory[at..at + taken.len()].copy_from_slice(taken);
        self.len += taken.len();
        rest
    }

    /// Reads as many bytes of `file` as there is room for, from `offset` on, or up to its end.
    pub(crate) fn read(&mut self, file: &File, offset: u64) -> io::Result<()> {
        self.len = 0;
        while self.len < self.capacity {
            let free = &mut self.memory[self.start + self.len..self.start + self.capacity];
            match file.read_at(free, offset + self.len as u64) {
                Ok(0) => break,
                Ok(read) => self.len += read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            }
            if !self.len.is_multiple_of(ALIGN_BYTES) {
                // Only the end of a file is inside a block of the disk.
                break;
            }
        }
        Ok(())
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.memory[self.start..self.start + self.len]
    }

    pub(crate) fn is_full(&self) -> bool {
        self.len == self.capacity
    }

    pub(crate) fn clear(&mut self) {
        self.len = 0;
    }
}
