//! iSCSI: a session of one connection.

use std::sync::Arc;
use std::time::Instant;

use block::{Completion, Volume};
use iscsi::Digest;
use iscsi::initiator::{Session, SessionConfig};
use iscsi::tcp::{SEND_LIST_MIN_BYTES, TargetSession};
use iscsi::testing::{TestBackend, TestTarget};
use rand::rngs::SmallRng;
use scsi::SenseKey;
use scsi::host::{Command, CommandFailure, CommandKey, Outcome, ReceivedSense, io};
use session::{BufferRange, Buffers, SendList};

use super::link::{HostEnd, Link};
use super::{AfterCut, BLOCK_BYTES, DEPTH, Done, End, Path, Request, SLOT_BYTES};

impl HostEnd for Session {
    type Outcome = Outcome;

    fn wants_transmit(&self) -> bool {
        self.wants_transmit()
    }

    fn poll_transmit(&mut self, buffers: &Buffers, out: &mut SendList) {
        self.poll_transmit(buffers, out);
    }

    fn handle_sent(&mut self, len_bytes: u64, done: &mut Vec<Outcome>) {
        self.handle_sent(len_bytes, done);
    }

    fn handle_bytes(&mut self, bytes: &[u8], buffers: &mut Buffers, done: &mut Vec<Outcome>) {
        self.handle_bytes(bytes, buffers, done)
            .expect("our target keeps to the protocol");
    }
}

pub(crate) struct IscsiPath {
    link: Link<Session, TargetSession<TestBackend>>,
    is_up: bool,
}

impl IscsiPath {
    pub(crate) fn new(
        target: &TestTarget,
        volume: Arc<dyn Volume>,
        host: u64,
        digest: Digest,
    ) -> Self {
        let session = Session::new(&SessionConfig {
            initiator: format!("iqn.2026-11.com.example:host{host}"),
            target: Some(TestTarget::NAME.into()),
            lun: 0,
            isid: [0x80, 1, 2, 3, 0, 0],
            credentials: None,
            target_credentials: None,
            challenge: [9; 17],
            header_digest: digest,
            data_digest: digest,
            keys: DEPTH,
        });
        let session = session.expect("a sensible configuration");
        let host = (session, Buffers::new(DEPTH, SLOT_BYTES));
        let target = (TargetSession::new(), target.backend());
        Self {
            link: Link::new(host, target, volume, SEND_LIST_MIN_BYTES),
            is_up: false,
        }
    }
}

/// The SCSI command of a request; `buffer` is that of `key`.
pub(super) fn command(key: u16, request: Request, buffer: &mut [u8]) -> Command {
    let data = |blocks: u64| BufferRange::first(key, (blocks as usize * BLOCK_BYTES) as u32);
    match request {
        Request::Read(extent) => io::read(extent, data(extent.blocks.0)),
        Request::Write(extent) => io::write(extent, data(extent.blocks.0)),
        Request::WriteZeroes(extent, unmap) => {
            buffer[..BLOCK_BYTES].fill(0);
            io::write_zeroes(extent, unmap, data(1))
        }
        Request::Discard(extent) => {
            let list = BufferRange::first(key, io::UNMAP_LIST_BYTES as u32);
            io::unmap(extent, list, &mut buffer[..io::UNMAP_LIST_BYTES])
        }
        Request::CompareAndWrite(extent) => {
            io::compare_and_write(extent, data(2 * extent.blocks.0))
        }
        Request::Flush => io::synchronize_cache(),
    }
}

/// Whether sense data say that COMPARE AND WRITE found something else (SBC-4 5.3).
pub(super) fn is_miscompare(sense: ReceivedSense) -> bool {
    sense.key == SenseKey::Miscompare as u8
}

impl Path for IscsiPath {
    fn is_up(&mut self, _: Instant) -> bool {
        if !self.is_up && self.link.host.is_logged_in() {
            self.link.backend.clear_attention();
            self.is_up = true;
        }
        self.is_up
    }

    fn buffer(&mut self, key: u16) -> &mut [u8] {
        self.link.buffers.slot_mut(key)
    }

    fn submit(&mut self, key: u16, request: Request) -> bool {
        let link = &mut self.link;
        let command = command(key, request, link.buffers.slot_mut(key));
        let taken = link.host.submit(CommandKey(key), &command, &link.buffers);
        taken.is_ok()
    }

    fn take_done(&mut self) -> Vec<Done> {
        let done = |outcome: Outcome| Done {
            key: outcome.key.0,
            end: End::of(
                outcome.result.is_ok(),
                match outcome.result {
                    Err(CommandFailure::Status { sense, .. }) => sense.is_some_and(is_miscompare),
                    _ => false,
                },
            ),
        };
        self.link.done.drain(..).map(done).collect()
    }

    fn shuffle(&mut self, now: Instant, rng: &mut SmallRng) {
        self.link.shuffle(now, rng);
    }

    fn complete(&mut self, now: Instant, completion: Completion) {
        self.link.complete(now, completion);
    }

    fn cut(&mut self, now: Instant) -> AfterCut {
        self.link.cut(now);
        AfterCut::Ended
    }
}
