//! One queue of I/O, whatever carries it.

use std::{
    io,
    os::fd::BorrowedFd,
    time::{Duration, Instant},
};

use block::{Blocks, Extent, Lba};
use file_io::{FileCompletion, FileError, FileIo, FileOp};
use initiator::{CommandError, Completion, Link, Operation, Queue, QueueError, Request, Slot};

use crate::{Direction, Wait, wait::SLEEP_MAX};

/// An I/O that has ended.
#[derive(Debug)]
pub(crate) struct Done {
    pub(crate) slot: u16,
    pub(crate) result: Result<(), IoError>,
}

/// Why an I/O did not succeed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum IoError {
    #[error(transparent)]
    Command(#[from] CommandError),
    #[error(transparent)]
    File(#[from] FileError),
}

/// Why a queue cannot continue.
#[derive(Debug, thiserror::Error)]
pub enum PortError {
    /// The connection is lost permanently.
    #[error(transparent)]
    Queue(#[from] QueueError),
    /// The target did not answer.
    #[error("no answer for {waited:.1?}; --max-outage sets how long to wait")]
    Silent {
        /// How long was waited.
        waited: Duration,
    },
    /// The file's queue failed.
    #[error("waiting for I/O failed: {0}")]
    File(#[from] io::Error),
}

/// A queue of a device behind a network or of a file. Slots number its buffers from 0 on.
#[derive(Debug)]
pub(crate) enum Port {
    Network {
        queue: Box<Queue>,
        block_shift: u32,
        done: Vec<Completion>,
    },
    File {
        io: Box<FileIo>,
        done: Vec<FileCompletion>,
    },
}

impl Port {
    pub(crate) fn network(queue: Queue, block_shift: u32) -> Self {
        Self::Network {
            done: Vec::with_capacity(usize::from(queue.depth())),
            queue: Box::new(queue),
            block_shift,
        }
    }

    pub(crate) fn file(io: FileIo) -> Self {
        Self::File {
            io: Box::new(io),
            done: Vec::with_capacity(DONE_MAX),
        }
    }

    pub(crate) fn buffer(&self, slot: u16) -> &[u8] {
        match self {
            Self::Network { queue, .. } => queue.buffer(Slot(slot)),
            Self::File { io, .. } => io.buffer(slot),
        }
    }

    pub(crate) fn buffer_mut(&mut self, slot: u16) -> &mut [u8] {
        match self {
            Self::Network { queue, .. } => queue.buffer_mut(Slot(slot)),
            Self::File { io, .. } => io.buffer_mut(slot),
        }
    }

    /// Takes an I/O; it goes out with the next poll. The slot is free and the range is inside the
    /// device, in whole blocks, as long as a buffer at most.
    #[inline]
    pub(crate) fn submit(&mut self, slot: u16, direction: Direction, offset_bytes: u64, len: u32) {
        match self {
            Self::Network {
                queue, block_shift, ..
            } => {
                let operation = match direction {
                    Direction::Read => Operation::Read,
                    Direction::Write => Operation::Write,
                    Direction::Trim => Operation::Deallocate,
                };
                let lba = Lba(offset_bytes >> *block_shift);
                let blocks = Blocks(u64::from(len) >> *block_shift);
                let request = Request {
                    slot: Slot(slot),
                    operation,
                    extent: Extent::new(lba, blocks),
                };
                queue
                    .submit(request)
                    .expect("the slot is free and the extent was checked");
            }
            Self::File { io, .. } => {
                let op = match direction {
                    Direction::Read => FileOp::Read,
                    Direction::Write => FileOp::Write,
                    Direction::Trim => FileOp::Discard,
                };
                io.submit(slot, op, offset_bytes, len.into());
            }
        }
    }

    /// Sends what was submitted and appends what has completed to `out`. Never waits.
    #[inline]
    pub(crate) fn poll(&mut self, now: Instant, out: &mut Vec<Done>) -> Result<(), PortError> {
        match self {
            Self::Network { queue, done, .. } => {
                queue.poll(now, done)?;
            }
            Self::File { io, done } => {
                io.poll(done)?;
            }
        }
        self.collect(out);
        Ok(())
    }

    /// As [`poll`](Self::poll), but waits for a completion, `timeout` or [`SLEEP_MAX`] at most.
    #[inline]
    pub(crate) fn wait(
        &mut self,
        wait: Wait,
        timeout: Option<Duration>,
        out: &mut Vec<Done>,
    ) -> Result<(), PortError> {
        match self {
            Self::Network { queue, done, .. } => {
                queue.wait(wait.into(), timeout.unwrap_or(SLEEP_MAX), done)?;
            }
            Self::File { io, done } => match wait {
                Wait::Spin => {
                    io.poll(done)?;
                }
                Wait::Sleep | Wait::Adaptive(_) => {
                    io.wait(Some(timeout.unwrap_or(SLEEP_MAX)), done)?;
                }
            },
        }
        self.collect(out);
        Ok(())
    }

    #[inline]
    fn collect(&mut self, out: &mut Vec<Done>) {
        match self {
            Self::Network { done, .. } => out.extend(done.drain(..).map(|completion| Done {
                slot: completion.slot.0,
                result: completion.result.map_err(IoError::Command),
            })),
            Self::File { done, .. } => out.extend(done.drain(..).map(|completion| Done {
                slot: completion.slot,
                result: completion.result.map_err(IoError::File),
            })),
        }
    }

    /// Ends the queue without waiting for I/Os that may never complete. The buffers that the kernel
    /// may still reach are leaked then.
    pub(crate) fn close(self) {
        if let Self::File { io, .. } = self
            && io.in_flight() > 0
        {
            std::mem::forget(io);
        }
    }

    /// Whether completions make [`descriptor`](Self::descriptor) readable.
    pub(crate) fn signals(&self) -> bool {
        match self {
            Self::Network { queue, .. } => {
                queue.link() == Link::Up && queue.signals() && !queue.wants_write()
            }
            Self::File { io, .. } => io.descriptor().is_some(),
        }
    }

    /// Makes completions of a file signal, for a thread that sleeps. Without it they are polled
    /// for.
    pub(crate) fn announce(&mut self) {
        if let Self::File { io, .. } = self {
            // No descriptor is left, or the kernel refuses: the queue does not signal then.
            let _ = io.announce();
        }
    }

    /// What to wait for, for a thread with several queues; only if the queue
    /// [signals](Self::signals).
    pub(crate) fn descriptor(&self) -> BorrowedFd<'_> {
        match self {
            Self::Network { queue, .. } => queue.descriptor(),
            Self::File { io, .. } => io.descriptor().expect("the queue signals"),
        }
    }

    /// The connection's socket, if any.
    pub(crate) fn socket(&self) -> Option<BorrowedFd<'_>> {
        match self {
            Self::Network { queue, .. } => Some(queue.descriptor()),
            Self::File { .. } => None,
        }
    }
}

/// Room for completions of a file that arrive together, before the vector has to grow once.
const DONE_MAX: usize = 1024;
