//! Sending to a socket pair whose other end reads at its leisure, while the volume changes.

use std::io::Read;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};
use std::time::Instant;

use block::{Pinned, RawSpan};
use session::SourceId;

use super::*;
use crate::{CloseReason, LoginProgress};

const LEN: usize = 1 << 20;
const HEADER: &[u8] = b"header";

/// Memory of a volume, all of whose bytes are one value, which counts up with each unpin.
struct Changing {
    bytes: Box<[AtomicU8]>,
    pins: AtomicUsize,
    version: Mutex<u8>,
}

impl Changing {
    fn new() -> Self {
        Self {
            bytes: (0..LEN).map(|_| AtomicU8::new(0)).collect(),
            pins: AtomicUsize::new(0),
            version: Mutex::new(0),
        }
    }
}

impl Pinned for Changing {
    fn pin(&self, range: ByteRange, each: &mut dyn FnMut(RawSpan)) {
        self.pins.fetch_add(1, Ordering::Relaxed);
        let bytes = &self.bytes[range.offset as usize..(range.offset + range.len) as usize];
        for span in bytes.chunks(64 << 10) {
            each(RawSpan {
                ptr: span.as_ptr().cast(),
                len: span.len(),
            });
        }
    }

    fn unpin(&self, _: ByteRange) {
        let mut version = self.version.lock().expect("unpoisoned");
        if self.pins.fetch_sub(1, Ordering::Relaxed) == 1 {
            *version = version.wrapping_add(1);
            for byte in &self.bytes {
                byte.store(*version, Ordering::Relaxed);
            }
        }
    }
}

impl Attachment for Changing {
    fn handle_stalled(&mut self) {}

    fn may_send(&self, _: SourceId) -> bool {
        true
    }

    fn memory(&self, _: SourceId) -> Option<&dyn Pinned> {
        Some(self)
    }

    fn charged_bytes(&self) -> u64 {
        0
    }

    fn login_progress(&self) -> LoginProgress {
        LoginProgress::Admitted
    }

    fn handle_sent(&mut self, _: Instant) {}

    fn handle_drained(&mut self) {}

    fn handle_closed(&mut self, _: &CloseReason) {}
}

/// A list of a header and a placement that starts at `offset`, twice.
fn list(offset: u64) -> SendList {
    let mut list = SendList::with_capacity(64);
    for _ in 0..2 {
        assert!(list.push(HEADER));
        let range = ByteRange {
            offset,
            len: LEN as u64 - offset,
        };
        let source = SourceId(0);
        assert!(list.place(Placement { source, range }));
    }
    list
}

/// Sends `list` through a small socket buffer, reading `read_bytes` whenever it blocks. Returns all
/// that came, and how often a block had to be kept.
fn send_slowly(list: &mut SendList, volume: &Changing, read_bytes: usize) -> (Vec<u8>, usize) {
    let (ours, mut theirs) = UnixStream::pair().expect("a pair");
    ours.set_nonblocking(true).expect("nonblocking");
    rustix::net::sockopt::set_socket_send_buffer_size(&ours, 40_000).expect("a small buffer");
    let mut received = Vec::new();
    let (mut gather, mut bounce, mut kept) = (Gather::default(), Bounce::default(), 0);
    while !(list.is_empty() && bounce.is_empty()) {
        let sent = gather.send(ours.as_fd(), &mut bounce, list, volume);
        kept += usize::from(!bounce.is_empty());
        assert_eq!(volume.pins.load(Ordering::Relaxed), 0, "all was unpinned");
        if let Sent::Blocked(_) = sent.expect("the pair lives") {
            let mut buffer = vec![0; read_bytes];
            let count = theirs.read(&mut buffer).expect("something was sent");
            received.extend_from_slice(&buffer[..count]);
        }
    }
    drop(ours);
    theirs.read_to_end(&mut received).expect("the rest");
    (received, kept)
}

#[test]
fn a_send_that_stops_inside_a_block_keeps_the_block_whole() {
    for (offset, read_bytes) in [(0, 5_000), (512, 3_333), (4096 * 3 + 1024, 9_000)] {
        let volume = Changing::new();
        let mut list = list(offset);
        let total = list.len_bytes();
        let (received, kept) = send_slowly(&mut list, &volume, read_bytes);
        assert_eq!(received.len() as u64, total);
        assert!(kept > 0, "no call stopped inside a block");
        let mut at = 0;
        for _ in 0..2 {
            assert_eq!(&received[at..at + HEADER.len()], HEADER);
            at += HEADER.len();
            let mut volume_at = offset as usize;
            while volume_at < LEN {
                let len = 4096 - volume_at % 4096;
                let block = &received[at..at + len];
                assert!(
                    block.iter().all(|byte| *byte == block[0]),
                    "the block at {volume_at} is of two versions"
                );
                at += len;
                volume_at += len;
            }
        }
    }
}

#[test]
fn a_placement_of_an_unknown_volume_is_an_error_and_pins_nothing() {
    struct Nothing;
    impl Attachment for Nothing {
        fn handle_stalled(&mut self) {}

        fn may_send(&self, _: SourceId) -> bool {
            true
        }

        fn memory(&self, _: SourceId) -> Option<&dyn Pinned> {
            None
        }
        fn charged_bytes(&self) -> u64 {
            0
        }

        fn login_progress(&self) -> LoginProgress {
            LoginProgress::Admitted
        }
        fn handle_sent(&mut self, _: Instant) {}
        fn handle_drained(&mut self) {}
        fn handle_closed(&mut self, _: &CloseReason) {}
    }
    let (ours, _theirs) = UnixStream::pair().expect("a pair");
    let mut bounce = Bounce::default();
    let sent = Gather::default().send(ours.as_fd(), &mut bounce, &mut list(0), &Nothing);
    assert_eq!(sent.expect_err("no volume").kind(), io::ErrorKind::NotFound);
}
