//! A connection between a host session and a target session: two queues of bytes.

use std::collections::VecDeque;
use std::time::Instant;

use block::{BlockSize, Blocks, Extent, Lba, Op, ReadDest};
use nvme::host::{Buffers, Outcome};
use nvme::tcp::{ControllerConfig, ControllerSession, HostConfig, HostSession};
use nvme::testing::TestBackend;
use session::{Placement, Segment, SendList, Session, StreamSession};

/// Send lists as small as sessions allow, so that they fill up often.
const SEND_LIST_BYTES: usize = ControllerSession::<TestBackend>::SEND_LIST_MIN_BYTES;
/// What a direction holds before its sender is made to wait.
const WINDOW_BYTES: usize = 96 << 10;

/// Both ends of one connection, and what is on its way between them.
pub(crate) struct Link {
    pub(crate) host: HostSession,
    pub(crate) buffers: Buffers,
    pub(crate) done: Vec<Outcome>,
    target: ControllerSession<TestBackend>,
    backend: TestBackend,
    to_target: VecDeque<u8>,
    to_host: VecDeque<u8>,
    out: SendList,
}

impl Link {
    pub(crate) fn new(
        now: Instant,
        config: HostConfig,
        buffers: Buffers,
        backend: TestBackend,
    ) -> Self {
        Self {
            host: HostSession::new(config),
            buffers,
            done: Vec::new(),
            target: ControllerSession::new(now, ControllerConfig::default()),
            backend,
            to_target: VecDeque::new(),
            to_host: VecDeque::new(),
            out: SendList::with_capacity(SEND_LIST_BYTES),
        }
    }

    /// Lets the host put bytes on the wire.
    pub(crate) fn host_sends(&mut self) {
        if self.to_target.len() >= WINDOW_BYTES || !self.host.wants_transmit() {
            return;
        }
        self.host.poll_transmit(&self.buffers, &mut self.out);
        for segment in self.out.segments() {
            match segment {
                Segment::Bytes(bytes) => self.to_target.extend(bytes),
                Segment::Place(place) => {
                    let bytes = self.buffers.at(place.range.offset, place.range.len);
                    self.to_target.extend(bytes);
                }
            }
        }
        let sent = self.out.len_bytes();
        self.out.consume(sent);
        self.host.handle_sent(sent, &mut self.done);
    }

    /// Lets the target put bytes on the wire.
    pub(crate) fn target_sends(&mut self, now: Instant) {
        if self.to_host.len() >= WINDOW_BYTES || !self.target.wants_transmit() {
            return;
        }
        self.target
            .poll_transmit(now, &mut self.backend, &mut self.out);
        for segment in self.out.segments() {
            match segment {
                Segment::Bytes(bytes) => self.to_host.extend(bytes),
                Segment::Place(place) => self.to_host.extend(fetch(&self.backend, place)),
            }
        }
        self.out.consume(self.out.len_bytes());
    }

    /// Delivers up to `max` bytes to the target.
    pub(crate) fn deliver_to_target(&mut self, now: Instant, max: usize) {
        let bytes: Vec<u8> = self
            .to_target
            .drain(..max.min(self.to_target.len()))
            .collect();
        if !bytes.is_empty() {
            let result = self.target.handle_bytes(now, &bytes, &mut self.backend);
            result.expect("our host keeps to the protocol");
        }
    }

    /// Delivers up to `max` bytes to the host.
    pub(crate) fn deliver_to_host(&mut self, max: usize) {
        let bytes: Vec<u8> = self.to_host.drain(..max.min(self.to_host.len())).collect();
        let result = self
            .host
            .handle_bytes(&bytes, &mut self.buffers, &mut self.done);
        result.expect("our target keeps to the protocol");
    }

    /// Time has come for the target.
    pub(crate) fn tick(&mut self, now: Instant) {
        if self.target.poll_timeout().is_some_and(|due| due <= now) {
            let result = self.target.handle_timeout(now, &mut self.backend);
            result.expect("nothing is late in this world");
        }
    }

    /// The network breaks: what was on its way is lost, and both ends learn of it at once.
    pub(crate) fn cut(mut self, now: Instant) {
        self.target.handle_close(now, &mut self.backend);
    }
}

/// The bytes of a placement, as the runtime would gather them. Placements are of whole blocks here,
/// since lists are always drained whole.
fn fetch(backend: &TestBackend, place: Placement) -> Vec<u8> {
    let volume = backend
        .volume(place.region)
        .expect("the region was given out by this backend");
    let shift = BlockSize::B512.shift();
    let extent = Extent::new(
        Lba(place.range.offset >> shift),
        Blocks(place.range.len >> shift),
    );
    let mut bytes = vec![0; place.range.len as usize];
    let read = Op::Read {
        extent,
        dest: ReadDest::Copy(&mut bytes),
    };
    volume
        .execute(read)
        .expect("a placement lies inside its volume");
    bytes
}
