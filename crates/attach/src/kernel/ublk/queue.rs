//! Requests for a device of ublk, by the file of its queue.
//!
//! ```text
//!  kernel ── descriptor of a tag ──► completion of io_uring ──► Asked::Request
//!  data of a write: read from the file      data of a read: written to it
//!         ◄── COMMIT_AND_FETCH: the outcome, and the tag is free for the next request
//! ```

#![expect(
    unsafe_code,
    reason = "the kernel's descriptors are shared memory, and entries of io_uring"
)]

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd};
use std::os::unix::fs::FileExt as _;
use std::ptr::NonNull;

use io_uring::types::Fd;
use io_uring::{IoUring, opcode};
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use zerocopy::IntoBytes as _;

use super::wire::{self, Descriptor, QueueCommand, operation, queue};
use crate::requests::{Ask, Asked, Disk, Requests};

/// The requests of a device's only queue. The thread that calls [`begin`](Self::begin) has to be
/// the one that takes them.
pub(crate) struct UblkRequests {
    ring: IoUring,
    descriptors: Descriptors,
    file: File,
    depth: u16,
    /// Tags that the kernel has ended.
    ended: u16,
}

impl UblkRequests {
    /// # Errors
    /// If the kernel refuses.
    pub(crate) fn new(file: File, depth: u16) -> io::Result<Self> {
        Ok(Self {
            ring: IoUring::new(u32::from(depth).next_power_of_two())?,
            descriptors: Descriptors::new(&file, depth)?,
            file,
            depth,
            ended: 0,
        })
    }

    /// Takes requests from now on.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub(crate) fn begin(&mut self) -> io::Result<()> {
        for tag in 0..self.depth {
            self.push(queue::FETCH, tag, 0)?;
        }
        self.send()
    }

    fn push(&mut self, command: u32, tag: u16, result: i32) -> io::Result<()> {
        let argument = QueueCommand {
            queue: 0,
            tag,
            result,
            address: 0,
        };
        let mut bytes = [0; 16];
        bytes.copy_from_slice(argument.as_bytes());
        let entry = opcode::UringCmd16::new(Fd(self.file.as_raw_fd()), command).cmd(bytes);
        let entry = entry.build().user_data(tag.into());
        // SAFETY: the entry has no address; the file is open as long as the ring.
        let pushed = unsafe { self.ring.submission().push(&entry) };
        pushed.map_err(io::Error::other)
    }

    /// Answers a request. The ring has room for an entry of each tag.
    fn answer(&mut self, id: u64, result: i32) {
        let tag = id as u16;
        let pushed = self.push(queue::COMMIT_AND_FETCH, tag, result);
        debug_assert!(pushed.is_ok(), "{pushed:?}");
    }
}

impl Requests for UblkRequests {
    /// Kernels before 6.16 cannot.
    const PASSES_SIZE_ON: bool = false;

    fn next(&mut self, _: &Disk) -> io::Result<Asked> {
        if self.ended == self.depth {
            return Ok(Asked::End);
        }
        let Some(done) = self.ring.completion().next() else {
            return Ok(Asked::Nothing);
        };
        let tag = done.user_data() as u16;
        if done.result() < 0 {
            // The device is stopped: its requests are over, and no more come.
            self.ended += 1;
            return Ok(Asked::Handled);
        }
        let id = tag.into();
        match ask(&self.descriptors.get(tag)) {
            Ok(ask) => Ok(Asked::Request { id, ask }),
            Err(error) => {
                self.fail(id, error);
                Ok(Asked::Handled)
            }
        }
    }

    fn take_data(&mut self, id: u64, dest: &mut [u8]) -> Result<(), Errno> {
        let read = self.file.read_exact_at(dest, data_offset(id));
        read.map_err(|_| Errno::IO)
    }

    fn succeed_read(&mut self, id: u64, data: &[u8]) {
        let result = match self.file.write_all_at(data, data_offset(id)) {
            Ok(()) => (data.len() as u32).cast_signed(),
            Err(_) => -Errno::IO.raw_os_error(),
        };
        self.answer(id, result);
    }

    fn succeed_write(&mut self, id: u64, len_bytes: u32) {
        self.answer(id, len_bytes.cast_signed());
    }

    fn succeed(&mut self, id: u64) {
        self.answer(id, 0);
    }

    fn fail(&mut self, id: u64, error: Errno) {
        self.answer(id, -error.raw_os_error());
    }

    fn send(&mut self) -> io::Result<()> {
        while !self.ring.submission().is_empty() {
            match self.ring.submit() {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                result => result.map(drop)?,
            }
        }
        Ok(())
    }

    fn descriptor(&self) -> BorrowedFd<'_> {
        // SAFETY: the ring is open as long as it is borrowed.
        unsafe { BorrowedFd::borrow_raw(self.ring.as_raw_fd()) }
    }
}

/// Where the data of a request are in the queue's file.
fn data_offset(tag: u64) -> u64 {
    wire::DATA_OFFSET + (tag << wire::DATA_BITS)
}

/// What a descriptor asks for.
fn ask(descriptor: &Descriptor) -> Result<Ask, Errno> {
    let code = descriptor.operation & 0xff;
    if code == operation::FLUSH {
        // It has no place: the kernel gives any.
        return Ok(Ask::Flush);
    }
    let shift = wire::SECTOR_SHIFT;
    let first = descriptor.first_sector;
    let offset = first.checked_mul(1 << shift).ok_or(Errno::INVAL)?;
    let len_bytes = u64::from(descriptor.sectors) << shift;
    let short = u32::try_from(len_bytes).map_err(|_| Errno::INVAL);
    Ok(match code {
        operation::READ => Ask::Read {
            offset,
            len_bytes: short?,
        },
        operation::WRITE => Ask::Write {
            offset,
            len_bytes: short?,
        },
        operation::DISCARD => Ask::Zero {
            offset,
            len_bytes,
            keep_allocated: false,
        },
        operation::WRITE_ZEROES => Ask::Zero {
            offset,
            len_bytes,
            keep_allocated: descriptor.operation & operation::NO_UNMAP != 0,
        },
        _ => return Err(Errno::OPNOTSUPP),
    })
}

/// The descriptors of all tags, which the kernel writes.
struct Descriptors {
    memory: NonNull<Descriptor>,
    len_bytes: usize,
    depth: u16,
}

// SAFETY: the memory belongs to this value, and nothing of it to a thread.
unsafe impl Send for Descriptors {}

impl Descriptors {
    fn new(file: &File, depth: u16) -> io::Result<Self> {
        let bytes = usize::from(depth) * size_of::<Descriptor>();
        let len_bytes = bytes.next_multiple_of(rustix::param::page_size());
        // SAFETY: a new mapping at a place that the kernel chooses. It can only be read.
        let memory = unsafe {
            mmap(
                std::ptr::null_mut(),
                len_bytes,
                ProtFlags::READ,
                MapFlags::SHARED | MapFlags::POPULATE,
                file.as_fd(),
                0,
            )?
        };
        let memory = NonNull::new(memory.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self {
            memory,
            len_bytes,
            depth,
        })
    }

    fn get(&self, tag: u16) -> Descriptor {
        assert!(tag < self.depth, "the kernel was given no other tags");
        // SAFETY: the mapping has a descriptor for each tag. The kernel writes it before the
        // completion that was seen, and not again before the request was answered.
        unsafe { self.memory.add(tag.into()).read_volatile() }
    }
}

impl Drop for Descriptors {
    fn drop(&mut self) {
        // SAFETY: the mapping is this value's, and no reference into it is left.
        let unmapped = unsafe { munmap(self.memory.as_ptr().cast(), self.len_bytes) };
        debug_assert!(unmapped.is_ok(), "{unmapped:?}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn descriptor(operation: u32, first_sector: u64, sectors: u32) -> Descriptor {
        Descriptor {
            operation,
            sectors,
            first_sector,
            address: 0,
        }
    }

    #[test]
    fn descriptors_count_sectors_and_their_flags_are_above_the_operation() {
        let read = Ask::Read {
            offset: 8 * 512,
            len_bytes: 4096,
        };
        assert_eq!(ask(&descriptor(operation::READ | 1 << 13, 8, 8)), Ok(read));
        for (flags, keep_allocated) in [(0, false), (operation::NO_UNMAP, true)] {
            let zero = Ask::Zero {
                offset: 512,
                len_bytes: 1 << 30,
                keep_allocated,
            };
            let found = ask(&descriptor(operation::WRITE_ZEROES | flags, 1, 1 << 21));
            assert_eq!(found, Ok(zero));
        }
        let flush = descriptor(operation::FLUSH, u64::MAX, 0);
        assert_eq!(ask(&flush), Ok(Ask::Flush));
    }

    #[test]
    fn descriptors_that_cannot_be_are_refused() {
        let far = descriptor(operation::READ, u64::MAX / 256, 1);
        assert_eq!(ask(&far), Err(Errno::INVAL));
        let long = descriptor(operation::WRITE, 0, u32::MAX);
        assert_eq!(ask(&long), Err(Errno::INVAL));
        let unknown = descriptor(0x77, 0, 1);
        assert_eq!(ask(&unknown), Err(Errno::OPNOTSUPP));
    }

    #[test]
    fn data_of_tags_are_apart_in_the_file() {
        assert_eq!(data_offset(0), 0x8000_0000);
        assert_eq!(data_offset(3) - data_offset(2), 32 << 20);
    }
}
