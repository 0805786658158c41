//! io_uring: one ring per queue, with registered buffers and file.

use std::{
    fs::File,
    io,
    os::fd::{AsRawFd as _, OwnedFd, RawFd},
    sync::Arc,
    time::Duration,
};

use io_uring::{IoUring, opcode, squeue, types};
use rustix::event::{EventfdFlags, eventfd};

use crate::{FileOp, aligned::Buffers, request::Request};

/// How long a call into the kernel lasts.
#[derive(Clone, Copy)]
pub(crate) enum Until {
    /// It does not wait.
    Now,
    /// Until something completes.
    Completion,
    /// The same, but this long at most.
    Timeout(Duration),
}

/// A ring and what is registered with it.
pub(crate) struct Ring {
    uring: IoUring,
    /// Whether the slots' buffers are registered, each under its slot's number.
    fixed_buffers: bool,
    /// Set up disabled, so that the thread which uses it, not the one which opened it, becomes its
    /// issuer.
    disabled: bool,
    /// Why a request could not be started.
    failure: Option<io::Error>,
    wake: Option<Wake>,
}

/// How other threads end a wait: the ring polls a counter.
struct Wake {
    event: Arc<OwnedFd>,
    /// Whether the ring has a poll of it.
    is_polled: bool,
}

/// Marks the completion of that poll, which belongs to no slot.
const WAKE: u64 = u64::MAX;

impl std::fmt::Debug for Ring {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ring")
            .field("fixed_buffers", &self.fixed_buffers)
            .finish_non_exhaustive()
    }
}

impl Ring {
    pub(crate) fn new(file: &File, buffers: &Buffers, depth: u16) -> io::Result<Self> {
        // One entry per slot, and one for the poll of what wakes the queue.
        let entries = (u32::from(depth) + 1).next_power_of_two();
        let deferred = IoUring::builder()
            .setup_single_issuer()
            .setup_defer_taskrun()
            .setup_taskrun_flag()
            .setup_r_disabled()
            .build(entries);
        let (uring, disabled) = match deferred {
            Ok(uring) => (uring, true),
            // Kernels before 6.1.
            Err(_) => (IoUring::new(entries)?, false),
        };
        uring.submitter().register_files(&[file.as_raw_fd()])?;
        let iovecs = buffers.iovecs();
        // SAFETY: the buffers stay mapped as long as the ring: `FileIo` drops its engine first, and
        // leaks the buffers where the kernel may still hold them. Registration fails where
        // RLIMIT_MEMLOCK is too low.
        let fixed_buffers = unsafe { uring.submitter().register_buffers(&iovecs) }.is_ok();
        Ok(Self {
            uring,
            fixed_buffers,
            disabled,
            failure: None,
            wake: None,
        })
    }

    /// What other threads write to in order to end a wait.
    pub(crate) fn waker(&mut self) -> io::Result<Arc<OwnedFd>> {
        if let Some(wake) = &self.wake {
            return Ok(Arc::clone(&wake.event));
        }
        let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let event = Arc::new(event);
        self.wake = Some(Wake {
            event: Arc::clone(&event),
            is_polled: false,
        });
        Ok(event)
    }

    pub(crate) fn has_waker(&self) -> bool {
        self.wake.is_some()
    }

    /// Has the ring poll what other threads write to, if it does not yet.
    fn poll_waker(&mut self) {
        let Some(wake) = self.wake.as_mut().filter(|wake| !wake.is_polled) else {
            return;
        };
        let fd = types::Fd(wake.event.as_raw_fd());
        let entry = opcode::PollAdd::new(fd, libc::POLLIN as u32).build();
        // SAFETY: a poll has no buffer, and the counter lives as long as the ring.
        let pushed = unsafe { self.uring.submission().push(&entry.user_data(WAKE)) };
        wake.is_polled = pushed.is_ok();
    }

    /// Queues a request on the buffer of its slot.
    pub(crate) fn push(&mut self, buffers: &Buffers, request: Request) {
        let entry = self.entry(buffers, request);
        // SAFETY: the entry's buffer belongs to a slot that was just marked as in flight, so it
        // stays mapped and unreferenced until its completion is reaped.
        let pushed = unsafe { self.uring.submission().push(&entry) };
        pushed.expect("the submission queue has an entry per slot");
    }

    fn entry(&self, buffers: &Buffers, request: Request) -> squeue::Entry {
        let fd = types::Fixed(0);
        let Request {
            slot,
            op,
            offset_bytes: at,
            len_bytes,
        } = request;
        let buffer = buffers.slot_ptr(slot);
        // Of operations with data, which are at most a slot's buffer long.
        let len = len_bytes as u32;
        let flags = match op {
            FileOp::WriteDurable => libc::RWF_DSYNC,
            _ => 0,
        };
        let fallocate = |mode| {
            opcode::Fallocate::new(fd, len_bytes)
                .offset(at)
                .mode(mode | libc::FALLOC_FL_KEEP_SIZE)
                .build()
        };
        let entry = match op {
            FileOp::Read if self.fixed_buffers => opcode::ReadFixed::new(fd, buffer, len, slot)
                .offset(at)
                .build(),
            FileOp::Read => opcode::Read::new(fd, buffer, len).offset(at).build(),
            FileOp::Write | FileOp::WriteDurable if self.fixed_buffers => {
                opcode::WriteFixed::new(fd, buffer, len, slot)
                    .offset(at)
                    .rw_flags(flags)
                    .build()
            }
            FileOp::Write | FileOp::WriteDurable => opcode::Write::new(fd, buffer, len)
                .offset(at)
                .rw_flags(flags)
                .build(),
            FileOp::Discard => fallocate(libc::FALLOC_FL_PUNCH_HOLE),
            FileOp::WriteZeroes => fallocate(libc::FALLOC_FL_ZERO_RANGE),
            FileOp::Flush => opcode::Fsync::new(fd)
                .flags(types::FsyncFlags::DATASYNC)
                .build(),
        };
        entry.user_data(u64::from(slot))
    }

    /// Makes completions add to the counter of `event`.
    pub(crate) fn announce(&self, event: RawFd) -> io::Result<()> {
        self.uring.submitter().register_eventfd(event)
    }

    /// Submits the pushed requests. A failure is kept for the next [`enter`](Self::enter).
    pub(crate) fn start(&mut self) {
        if self.failure.is_none() {
            self.failure = self.enter(Until::Now).err();
        }
    }

    /// Submits, and waits until `until`.
    pub(crate) fn enter(&mut self, until: Until) -> io::Result<()> {
        if let Some(failure) = self.failure.take() {
            return Err(failure);
        }
        if self.disabled {
            self.uring.submitter().register_enable_rings()?;
            self.disabled = false;
        }
        if !matches!(until, Until::Now) {
            self.poll_waker();
        }
        let result = match until {
            Until::Now if self.has_nothing_to_enter_for() => return Ok(()),
            Until::Now => self.uring.submit(),
            Until::Completion => self.uring.submit_and_wait(1),
            Until::Timeout(timeout) => {
                let timespec = types::Timespec::from(timeout);
                let args = types::SubmitArgs::new().timespec(&timespec);
                self.uring.submitter().submit_with_args(1, &args)
            }
        };
        match result {
            Ok(_) => Ok(()),
            Err(error) => match error.raw_os_error() {
                // ETIME: the timeout is over. EBUSY, EAGAIN: completions must be reaped first.
                Some(libc::ETIME | libc::EINTR | libc::EBUSY | libc::EAGAIN) => Ok(()),
                _ => Err(error),
            },
        }
    }

    /// Nothing to submit, and no deferred work whose completions only a call brings forth.
    fn has_nothing_to_enter_for(&mut self) -> bool {
        let queue = self.uring.submission();
        queue.is_empty() && !queue.taskrun() && !queue.cq_overflow()
    }

    /// Whether a request waits for the next [`enter`](Self::enter), or the failure to start one.
    pub(crate) fn has_unsubmitted(&mut self) -> bool {
        self.failure.is_some() || !self.uring.submission().is_empty()
    }

    /// Takes what has completed.
    pub(crate) fn reap(&mut self, take: &mut impl FnMut(u16, io::Result<usize>)) {
        for entry in self.uring.completion() {
            if entry.user_data() == WAKE {
                if let Some(wake) = &mut self.wake {
                    wake.is_polled = false;
                    // Empties the counter, so that the next poll waits.
                    let _ = rustix::io::read(&wake.event, &mut [0; 8]);
                }
                continue;
            }
            let result = match usize::try_from(entry.result()) {
                Ok(done_bytes) => Ok(done_bytes),
                Err(_) => Err(io::Error::from_raw_os_error(-entry.result())),
            };
            take(entry.user_data() as u16, result);
        }
    }
}
