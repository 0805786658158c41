//! Both ends of a connection over TCP, and the bytes in flight.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

use block::{BlockSize, Blocks, Completion, Extent, Lba, Op, ReadDest, Volume};
use session::{Buffers, Placement, Segment, SendList, Session, StreamSession};

use super::{TestBackend, TestTarget};
use crate::host::{HostCommand, NoRoom, Outcome, Resumption, Terms};
use crate::target::TargetConfig;
use crate::tcp::{HostSession, TargetSession};
use crate::wire::Login;

/// What both ends are set up with.
#[derive(Clone, Copy, Debug)]
pub struct Setup {
    /// What the host asks for.
    pub login: Login,
    /// The target's settings.
    pub config: TargetConfig,
    /// The length of the buffer of each tag, in bytes.
    pub slot_bytes: usize,
}

/// Both ends of a connection, whatever carries it.
pub trait Link: Sized {
    /// A new connection, on which a login is to be sent.
    fn connect(
        now: Instant,
        target: &Arc<TestTarget>,
        volume: Arc<dyn Volume>,
        setup: &Setup,
        resumption: Option<&Resumption>,
    ) -> Self;

    /// The host submits a command.
    fn submit(&mut self, tag: u16, command: &HostCommand) -> Result<(), NoRoom>;

    /// The host gives a command up.
    fn abort(&mut self, tag: u16);

    /// What the login has granted.
    fn terms(&self) -> Option<Terms>;

    /// The memory of the host's commands.
    fn buffers(&mut self) -> &mut Buffers;

    /// Outcomes that the owner has not taken.
    fn done(&mut self) -> &mut Vec<Outcome>;

    /// Moves something in both directions: how much depends on `amount`.
    fn advance(&mut self, now: Instant, amount: usize);

    /// Moves everything in both directions, in chunks of `chunk` bytes over a stream, until nothing
    /// moves.
    fn settle(&mut self, now: Instant, chunk: usize);

    /// The volume is done with a command.
    fn complete(&mut self, now: Instant, completion: Completion);

    /// The connection breaks: what is in flight is lost. Returns what the host needs on the next
    /// one.
    fn cut(self, now: Instant) -> Option<Resumption>;
}

/// Both ends of a connection over TCP. Nothing moves between them except by its methods.
pub struct TcpLink {
    /// The host's end.
    pub host: HostSession,
    /// The memory of its commands.
    pub buffers: Buffers,
    /// Outcomes that the owner has not taken.
    pub done: Vec<Outcome>,
    /// The target's end.
    pub target: TargetSession<TestBackend>,
    /// What the target's end uses.
    pub backend: TestBackend,
    volume: Arc<dyn Volume>,
    to_target: VecDeque<u8>,
    to_host: VecDeque<u8>,
    out: SendList,
}

impl TcpLink {
    /// What a direction holds before its sender is made to wait.
    const WINDOW_BYTES: usize = 96 << 10;

    /// The host sends what it has, unless too much is in flight.
    pub fn host_sends(&mut self) {
        if self.to_target.len() >= Self::WINDOW_BYTES || !self.host.wants_transmit() {
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

    /// The target sends what it has, unless too much is in flight.
    pub fn target_sends(&mut self, now: Instant) {
        if self.to_host.len() >= Self::WINDOW_BYTES || !self.target.wants_transmit() {
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

    /// Up to `max` bytes arrive at the target.
    ///
    /// # Panics
    /// If the host breaks the protocol.
    pub fn deliver_to_target(&mut self, now: Instant, max: usize) {
        let len = max.min(self.to_target.len());
        let bytes: Vec<u8> = self.to_target.drain(..len).collect();
        if !bytes.is_empty() {
            let result = self.target.handle_bytes(now, &bytes, &mut self.backend);
            result.expect("our host keeps to the protocol");
        }
    }

    /// Up to `max` bytes arrive at the host.
    ///
    /// # Panics
    /// If the target breaks the protocol.
    pub fn deliver_to_host(&mut self, max: usize) {
        let len = max.min(self.to_host.len());
        let bytes: Vec<u8> = self.to_host.drain(..len).collect();
        if !bytes.is_empty() {
            let result = self
                .host
                .handle_bytes(&bytes, &mut self.buffers, &mut self.done);
            result.expect("our target keeps to the protocol");
        }
    }

    fn handle_due(&mut self, now: Instant) {
        if self.target.poll_timeout().is_some_and(|due| due <= now) {
            let result = self.target.handle_timeout(now, &mut self.backend);
            result.expect("nothing is late here");
        }
    }
}

impl Link for TcpLink {
    fn connect(
        now: Instant,
        target: &Arc<TestTarget>,
        volume: Arc<dyn Volume>,
        setup: &Setup,
        resumption: Option<&Resumption>,
    ) -> Self {
        Self {
            host: HostSession::new(setup.login, resumption),
            buffers: Buffers::new(setup.login.tags.get(), setup.slot_bytes),
            done: Vec::new(),
            target: TargetSession::new(now, setup.config),
            backend: TestBackend::new(target),
            volume,
            to_target: VecDeque::new(),
            to_host: VecDeque::new(),
            // As few as sessions allow, so that it fills up often.
            out: SendList::with_capacity(TargetSession::<TestBackend>::SEND_LIST_MIN_BYTES),
        }
    }

    fn submit(&mut self, tag: u16, command: &HostCommand) -> Result<(), NoRoom> {
        self.host.submit(tag, command, &self.buffers)
    }

    fn abort(&mut self, tag: u16) {
        self.host.abort(tag);
    }

    fn terms(&self) -> Option<Terms> {
        self.host.terms().copied()
    }

    fn buffers(&mut self) -> &mut Buffers {
        &mut self.buffers
    }

    fn done(&mut self) -> &mut Vec<Outcome> {
        &mut self.done
    }

    fn advance(&mut self, now: Instant, amount: usize) {
        self.handle_due(now);
        self.host_sends();
        self.deliver_to_target(now, amount);
        self.target_sends(now);
        self.deliver_to_host(amount);
    }

    fn settle(&mut self, now: Instant, chunk: usize) {
        loop {
            self.handle_due(now);
            self.host_sends();
            self.target_sends(now);
            self.deliver_to_target(now, chunk);
            self.deliver_to_host(chunk);
            let is_quiet = self.to_host.is_empty()
                && self.to_target.is_empty()
                && !self.host.wants_transmit()
                && !self.target.wants_transmit()
                && self.target.poll_timeout().is_none_or(|due| due > now);
            if is_quiet {
                return;
            }
        }
    }

    fn complete(&mut self, now: Instant, completion: Completion) {
        let result = self
            .target
            .handle_completion(now, completion, &mut self.backend);
        result.expect("completions end no connection");
    }

    fn cut(mut self, now: Instant) -> Option<Resumption> {
        self.target.handle_close(now, &mut self.backend);
        self.host.resumption()
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
