//! A connection between a host session and a target session that exchange bytes: two queues of
//! bytes.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

use block::{BlockSize, Blocks, Completion, Extent, Lba, Op, ReadDest, Volume};
use rand::Rng;
use rand::rngs::SmallRng;
use session::{Buffers, Placement, Segment, SendList, StreamSession};

/// What a direction holds before its sender is made to wait.
const WINDOW_BYTES: usize = 96 << 10;

/// What both kinds of host sessions have in common.
pub(super) trait HostEnd {
    type Outcome;

    fn wants_transmit(&self) -> bool;
    fn poll_transmit(&mut self, buffers: &Buffers, out: &mut SendList);
    fn handle_sent(&mut self, len_bytes: u64, done: &mut Vec<Self::Outcome>);
    /// Panics if the target breaks the protocol.
    fn handle_bytes(&mut self, bytes: &[u8], buffers: &mut Buffers, done: &mut Vec<Self::Outcome>);
}

/// Both ends of one connection, and the data in flight.
pub(super) struct Link<H: HostEnd, S: StreamSession> {
    pub(super) host: H,
    pub(super) buffers: Buffers,
    pub(super) done: Vec<H::Outcome>,
    target: S,
    pub(super) backend: S::Backend,
    volume: Arc<dyn Volume>,
    to_target: VecDeque<u8>,
    to_host: VecDeque<u8>,
    out: SendList,
}

impl<H: HostEnd, S: StreamSession> Link<H, S> {
    /// Send lists have `send_list_bytes`, as few as sessions allow, so that they fill up often.
    pub(super) fn new(
        (host, buffers): (H, Buffers),
        (target, backend): (S, S::Backend),
        volume: Arc<dyn Volume>,
        send_list_bytes: usize,
    ) -> Self {
        Self {
            host,
            buffers,
            done: Vec::new(),
            target,
            backend,
            volume,
            to_target: VecDeque::new(),
            to_host: VecDeque::new(),
            out: SendList::with_capacity(send_list_bytes),
        }
    }

    /// Moves bytes in one direction.
    pub(super) fn shuffle(&mut self, now: Instant, rng: &mut SmallRng) {
        let max = match rng.random_range(0..4) {
            0 => rng.random_range(1..8),
            1 => rng.random_range(1..200),
            _ => rng.random_range(1..40_000),
        };
        if self.target.poll_timeout().is_some_and(|due| due <= now) {
            let result = self.target.handle_timeout(now, &mut self.backend);
            result.expect("nothing is late in this world");
        }
        match rng.random_range(0..4) {
            0 => self.host_sends(),
            1 => self.target_sends(now),
            2 => self.deliver_to_target(now, max),
            _ => self.deliver_to_host(max),
        }
    }

    fn host_sends(&mut self) {
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

    fn target_sends(&mut self, now: Instant) {
        if self.to_host.len() >= WINDOW_BYTES || !self.target.wants_transmit() {
            return;
        }
        self.target
            .poll_transmit(now, &mut self.backend, &mut self.out);
        for segment in self.out.segments() {
            match segment {
                Segment::Bytes(bytes) => self.to_host.extend(bytes),
                Segment::Place(place) => self.to_host.extend(fetch(self.volume.as_ref(), place)),
            }
        }
        self.out.consume(self.out.len_bytes());
    }

    fn deliver_to_target(&mut self, now: Instant, max: usize) {
        let len = max.min(self.to_target.len());
        let bytes: Vec<u8> = self.to_target.drain(..len).collect();
        if !bytes.is_empty() {
            let result = self.target.handle_bytes(now, &bytes, &mut self.backend);
            result.expect("our host keeps to the protocol");
        }
    }

    fn deliver_to_host(&mut self, max: usize) {
        let bytes: Vec<u8> = self.to_host.drain(..max.min(self.to_host.len())).collect();
        self.host
            .handle_bytes(&bytes, &mut self.buffers, &mut self.done);
    }

    /// The volume is done with a command.
    pub(super) fn complete(&mut self, now: Instant, completion: Completion) {
        let result = self
            .target
            .handle_completion(now, completion, &mut self.backend);
        result.expect("completions end no connection");
    }

    /// Notifies the target that the connection is closed.
    pub(super) fn cut(&mut self, now: Instant) {
        self.target.handle_close(now, &mut self.backend);
    }
}

/// The bytes of a placement, as the runtime would gather them. Placements are of whole blocks here,
/// since lists are always drained whole.
fn fetch(volume: &dyn Volume, place: Placement) -> Vec<u8> {
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
