//! Buffers that an end sends from, registered with its io_uring. The end writes messages into one
//! of them; the others wait until the kernel no longer uses them.
//!
//! Memory safety: a buffer is written only while no send from it is counted, and neither grows nor
//! moves on the heap.

use std::io;

use io_uring::{Submitter, opcode, squeue::Entry, types};

use crate::end::End;

/// How registered buffers are sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sending {
    /// The kernel copies them: a fixed write, since IORING_OP_SEND takes no registered buffer.
    Copy,
    /// It sends from them, and notifies when it no longer needs them.
    ZeroCopy,
}

/// Buffers of an end. With several it continues while the peer has not acknowledged what lies in
/// one.
const BUFFERS: usize = 4;

/// An end and its buffers.
pub struct Outgoing<'a> {
    pub end: End<'a>,
    sending: Sending,
    /// The end has the buffer at `current`; what stands at that place is empty.
    buffers: [Vec<u8>; BUFFERS],
    /// Sends from each that have not ended, or whose notification has not come.
    in_use: [u32; BUFFERS],
    current: usize,
}

impl<'a> Outgoing<'a> {
    pub fn new(end: End<'a>, sending: Sending) -> Self {
        let len = end.out().len();
        let mut buffers = std::array::from_fn(|_| vec![0x5a; len]);
        buffers[0] = Vec::new();
        Self {
            end,
            sending,
            buffers,
            in_use: [0; BUFFERS],
            current: 0,
        }
    }

    /// Registers the buffers.
    ///
    /// # Safety
    ///
    /// This value must live until the io_uring is gone or no send of it is in use any more.
    pub unsafe fn register(&self, submitter: &Submitter<'_>) -> io::Result<()> {
        let all: [libc::iovec; BUFFERS] = std::array::from_fn(|index| {
            let buffer = if index == self.current {
                self.end.out()
            } else {
                &self.buffers[index]
            };
            libc::iovec {
                iov_base: buffer.as_ptr().cast_mut().cast(),
                iov_len: buffer.len(),
            }
        });
        // SAFETY: the buffers are initialized and the caller keeps them.
        unsafe { submitter.register_buffers(&all) }
    }

    /// A send of what the end has to send, with the buffer that it occupies; none if there is
    /// nothing, or no buffer is free. It occupies that until `release`.
    pub fn next_send(&mut self, fd: types::Fixed) -> Option<(Entry, usize)> {
        if !self.end.has_to_send() || !self.has_free_buffer() {
            return None;
        }
        let index = self.current;
        let bytes = self.end.next_bytes();
        let (start, len) = (bytes.as_ptr(), bytes.len() as u32);
        let entry = match self.sending {
            Sending::Copy => opcode::WriteFixed::new(fd, start, len, index as u16).build(),
            Sending::ZeroCopy => opcode::SendZc::new(fd, start, len)
                .buf_index(Some(index as u16))
                .build(),
        };
        self.in_use[index] += 1;
        Some((entry, index))
    }

    /// A send from this buffer has ended, and so has its need of the buffer.
    pub fn release(&mut self, index: usize) {
        self.in_use[index] -= 1;
    }

    /// Whether the kernel may still read any of the buffers.
    pub fn is_in_use(&self) -> bool {
        self.in_use.iter().any(|&sends| sends > 0)
    }

    /// Chooses a free buffer if the end has to write new messages; returns whether it may write.
    fn has_free_buffer(&mut self) -> bool {
        // What is left of a message is sent from where it lies.
        if !self.end.is_out_sent() || self.in_use[self.current] == 0 {
            return true;
        }
        // The first, since it is more likely to be in a cache.
        let Some(free) = self.in_use.iter().position(|&sends| sends == 0) else {
            return false;
        };
        self.end.swap_out(&mut self.buffers[free]);
        self.buffers.swap(free, self.current);
        self.current = free;
        true
    }
}
