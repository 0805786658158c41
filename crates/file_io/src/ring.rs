//! io_uring: one ring per queue, with registered buffers and file.

use std::{
    fs::File,
    io,
    os::fd::{AsRawFd as _, RawFd},
    time::Duration,
};

use io_uring::{IoUring, opcode, squeue, types};

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
}

impl std::fmt::Debug for Ring {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ring")
            .field("fixed_buffers", &self.fixed_buffers)
            .finish_non_exhaustive()
    }
}

impl Ring {
    pub(crate) fn new(file: &File, buffers: &Buffers, depth: u16) -> io::Result<Self> {
        let entries = u32::from(depth).next_power_of_two();
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
        })
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
            len_bytes: len,
        } = request;
        let buffer = buffers.slot_ptr(slot);
        let entry = match op {
            FileOp::Read if self.fixed_buffers => opcode::ReadFixed::new(fd, buffer, len, slot)
                .offset(at)
                .build(),
            FileOp::Read => opcode::Read::new(fd, buffer, len).offset(at).build(),
            FileOp::Write if self.fixed_buffers => opcode::WriteFixed::new(fd, buffer, len, slot)
                .offset(at)
                .build(),
            FileOp::Write => opcode::Write::new(fd, buffer, len).offset(at).build(),
            FileOp::Discard => opcode::Fallocate::new(fd, u64::from(len))
                .offset(at)
                .mode(libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE)
                .build(),
            FileOp::Flush => opcode::Fsync::new(fd).build(),
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

    /// Takes what has completed.
    pub(crate) fn reap(&mut self, take: &mut impl FnMut(u16, io::Result<usize>)) {
        for entry in self.uring.completion() {
            let result = match usize::try_from(entry.result()) {
                Ok(done_bytes) => Ok(done_bytes),
                Err(_) => Err(io::Error::from_raw_os_error(-entry.result())),
            };
            take(entry.user_data() as u16, result);
        }
    }
}
