//! What one end has to send and has received.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::Work;

/// Bytes of an end's receive buffer, and of the buffer that it sends from, where its messages are
/// not longer.
pub const BUFFER_BYTES: usize = 256 << 10;

/// The parts of a message.
#[derive(Clone, Copy, Debug)]
pub struct Sizes {
    pub header: usize,
    pub data: usize,
}

impl Sizes {
    fn message(self) -> usize {
        self.header + self.data
    }
}

/// One end of the exchange: it owes a message for each one that has arrived.
#[derive(Debug)]
pub struct End<'a> {
    work: Work,
    incoming: Sizes,
    outgoing: Sizes,
    /// Bytes of the message that is arriving.
    arrived: usize,
    /// Its header, as far as it has arrived.
    header: [u8; 128],
    /// Messages owed.
    owed: usize,
    /// Messages made; the next one's tag.
    made: usize,
    out: Vec<u8>,
    /// `out[head..tail]` is to be sent.
    head: usize,
    tail: usize,
    /// What data come from and go to.
    pool: Vec<u8>,
    messages: &'a AtomicU64,
    stop: &'a AtomicBool,
}

impl<'a> End<'a> {
    pub fn new(
        work: Work,
        [incoming, outgoing]: [Sizes; 2],
        memory_bytes: usize,
        owed: u32,
        messages: &'a AtomicU64,
        stop: &'a AtomicBool,
    ) -> Self {
        Self {
            work,
            incoming,
            outgoing,
            arrived: 0,
            header: [0; 128],
            owed: owed as usize,
            made: 0,
            out: vec![0x5a; BUFFER_BYTES.max(outgoing.message())],
            head: 0,
            tail: 0,
            pool: pool(memory_bytes.max(outgoing.data).max(incoming.data)),
            messages,
            stop,
        }
    }

    /// Whether the measurement is over.
    pub fn is_over(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// What is to be sent now; empty if nothing is owed.
    pub fn next_bytes(&mut self) -> &[u8] {
        if self.head == self.tail {
            (self.head, self.tail) = (0, 0);
            while self.owed > 0 && self.tail + self.outgoing.message() <= self.out.len() {
                self.make();
            }
        }
        &self.out[self.head..self.tail]
    }

    /// Whether anything is to be sent.
    pub fn has_to_send(&self) -> bool {
        self.owed > 0 || self.head < self.tail
    }

    /// Records that `len` bytes were sent.
    pub fn sent(&mut self, len: usize) {
        self.head += len;
    }

    /// The buffer that messages are written to and sent from; its length never changes.
    pub fn out(&self) -> &[u8] {
        &self.out
    }

    /// Whether all of the buffer was sent, so that the next messages begin at its start.
    pub fn is_out_sent(&self) -> bool {
        self.head == self.tail
    }

    /// Exchanges the buffer, all of which was sent, for another of the same length.
    pub fn swap_out(&mut self, other: &mut Vec<u8>) {
        assert!(self.is_out_sent() && self.out.len() == other.len());
        std::mem::swap(&mut self.out, other);
    }

    fn make(&mut self) {
        if self.work == Work::Messages {
            let message = &mut self.out[self.tail..self.tail + self.outgoing.message()];
            let (header, data) = message.split_at_mut(self.outgoing.header);
            header.fill(0);
            header[..8].copy_from_slice(&self.made.to_le_bytes());
            let from = place(self.made, self.outgoing.data, self.pool.len());
            data.copy_from_slice(&self.pool[from..from + self.outgoing.data]);
        }
        self.made += 1;
        self.owed -= 1;
        self.tail += self.outgoing.message();
    }

    /// Takes what has arrived and owes a message for each one that it completes.
    pub fn receive(&mut self, bytes: &[u8]) {
        let before = self.messages.load(Ordering::Relaxed);
        let complete = match self.work {
            Work::Bytes => {
                self.arrived += bytes.len();
                let complete = self.arrived / self.incoming.message();
                self.arrived %= self.incoming.message();
                complete
            }
            Work::Messages => self.take(bytes),
        };
        self.owed += complete;
        self.messages
            .store(before + complete as u64, Ordering::Relaxed);
    }

    /// Cuts the stream into messages, reads their headers and copies their data to where these
    /// belong.
    fn take(&mut self, mut bytes: &[u8]) -> usize {
        let Sizes { header, data } = self.incoming;
        let mut complete = 0;
        while !bytes.is_empty() {
            if self.arrived < header {
                let len = (header - self.arrived).min(bytes.len());
                let (part, rest) = bytes.split_at(len);
                self.header[self.arrived..self.arrived + len].copy_from_slice(part);
                (self.arrived, bytes) = (self.arrived + len, rest);
            }
            if self.arrived >= header {
                let tag = usize::from_le_bytes(self.header[..8].try_into().expect("8 bytes"));
                let done = self.arrived - header;
                let len = (data - done).min(bytes.len());
                let (part, rest) = bytes.split_at(len);
                let to = place(tag, data, self.pool.len()) + done;
                self.pool[to..to + len].copy_from_slice(part);
                (self.arrived, bytes) = (self.arrived + len, rest);
            }
            if self.arrived == header + data {
                self.arrived = 0;
                complete += 1;
            }
        }
        complete
    }
}

/// Where in a pool the data of a message lie: anywhere, but always at the same place.
fn place(tag: usize, len: usize, pool_len: usize) -> usize {
    let mixed = tag.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20;
    match pool_len.checked_div(len) {
        Some(places) => mixed % places * len,
        None => 0,
    }
}

/// Memory that was written, in huge pages where the system has them.
fn pool(len: usize) -> Vec<u8> {
    let mut pool = Vec::with_capacity(len);
    let pages = (&raw mut *pool.spare_capacity_mut()).cast::<u8>();
    let start = pages.align_offset(4096);
    if start < len {
        // Without huge pages it works as well.
        // SAFETY: the range is whole pages inside this allocation, and the advice changes no byte.
        let _ = unsafe {
            rustix::mm::madvise(
                pages.add(start).cast(),
                (len - start) & !4095,
                rustix::mm::Advice::LinuxHugepage,
            )
        };
    }
    pool.resize(len, 0xa5);
    pool
}
