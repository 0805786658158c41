//! A minimal host that drives an NVMe/RDMA session: its memory, its capsules, and the requests that
//! the session posts.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use block::{Completion, Volume};
use session::testing::{PostedWork, Work};
use session::{MessageSession, RemoteBuffer, RemoteKey, Session};
use zerocopy::{FromBytes, IntoBytes};

use super::{TestBackend, subsystem};
use crate::controller::{Limits, Subsystem};
use crate::rdma::wire::ConnectRequest;
use crate::rdma::{ControllerConfig, ControllerSession, SessionError};
use crate::wire::discovery::TransportType;
use crate::wire::fabrics::{
    Configuration, ConnectData, ConnectSqe, NqnField, Property, PropertySqe,
};
use crate::wire::{Cid, Cqe, Invalidate, Sgl, Sqe, Status};

/// A received response capsule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Response {
    /// The completion in it.
    pub cqe: Cqe,
    /// The key that it invalidated.
    pub invalidated: Option<u32>,
}

/// A session, its backend, and the host's memory.
pub struct RdmaHost {
    /// The session.
    pub session: ControllerSession<TestBackend>,
    /// Its backend.
    pub backend: TestBackend,
    /// The time.
    pub now: Instant,
    /// The send queue, which bounds what the session posts.
    pub out: PostedWork,
    /// The host's memory, which is at [`Self::ADDRESS`].
    pub memory: Vec<u8>,
    /// The bytes of the memory that the session may access.
    pub exposed: Vec<Range<usize>>,
    /// RDMA READs that were not answered.
    reads: VecDeque<(u64, RemoteBuffer)>,
    responses: Vec<Response>,
    receive_len_bytes: usize,
}

impl RdmaHost {
    /// The address of the host's memory.
    pub const ADDRESS: u64 = 0x7F00_0000_1000;
    /// The key of the host's memory.
    pub const KEY: u32 = 0x0102_0304;

    /// A connection for `queue` with `entries` entries that has just been accepted.
    pub fn new(subsystem: Arc<Mutex<Subsystem>>, wake: u64, queue: u16, entries: u16) -> Self {
        let now = Instant::now();
        let asked = ConnectRequest::new(queue, entries);
        let config = ControllerConfig::default();
        let accepted = ControllerSession::accept(now, &config, asked.as_bytes(), 16).expect("good");
        let mut backend = TestBackend::new(subsystem, wake);
        backend.transport = TransportType::Rdma;
        Self {
            session: accepted.session,
            backend,
            now,
            out: PostedWork::default(),
            memory: vec![0; 4 << 20],
            exposed: std::iter::once(0..4 << 20).collect(),
            reads: VecDeque::new(),
            responses: Vec::new(),
            receive_len_bytes: accepted.receive_len_bytes as usize,
        }
    }

    /// A descriptor of the memory from `start` on.
    pub fn keyed(start: usize, len_bytes: usize) -> Sgl {
        let address = Self::ADDRESS + start as u64;
        Sgl::keyed(address, len_bytes as u32, Self::KEY, Invalidate::No)
    }

    /// Limits the session's access to these bytes of the memory.
    pub fn expose(&mut self, range: Range<usize>) {
        self.exposed.clear();
        self.exposed.push(range);
    }

    /// Sends a capsule, and carries out the requests that the session posts.
    pub fn send(&mut self, sqe: &Sqe, in_capsule: &[u8]) -> Result<(), SessionError> {
        self.send_bytes(&[sqe.as_bytes(), in_capsule].concat())
    }

    /// Sends a message, no longer than the receives, and carries out the requests that the session
    /// posts.
    pub fn send_bytes(&mut self, message: &[u8]) -> Result<(), SessionError> {
        let message = &message[..message.len().min(self.receive_len_bytes)];
        let result = self
            .session
            .handle_message(self.now, message, None, &mut self.backend);
        self.poll();
        result
    }

    /// A volume completes a command that waits for it.
    pub fn complete(&mut self, completion: Completion) {
        self.session
            .handle_completion(self.now, completion, &mut self.backend)
            .expect("completions end no connection");
        self.poll();
    }

    /// Lets the session post until it has nothing more to post. The send queue is emptied after
    /// each call.
    pub fn poll(&mut self) {
        while self.session.wants_transmit() {
            let (now, backend) = (self.now, &mut self.backend);
            self.session.poll_transmit(now, backend, &mut self.out);
            let posted = self.out.take();
            if posted.is_empty() {
                return;
            }
            for work in posted {
                self.execute(work);
            }
        }
    }

    fn execute(&mut self, work: Work) {
        match work {
            Work::Write { to, data } => {
                let range = self.range(to);
                self.memory[range].copy_from_slice(&data);
            }
            Work::Read { tag, from } => {
                self.range(from);
                self.reads.push_back((tag, from));
            }
            Work::Send {
                message,
                invalidate,
            } => self.responses.push(Response {
                cqe: Cqe::read_from_bytes(&message).expect("16 bytes"),
                invalidated: invalidate.map(|RemoteKey(key)| key),
            }),
        }
    }

    /// Where a buffer is in the memory; it must be exposed.
    fn range(&self, buffer: RemoteBuffer) -> Range<usize> {
        let start = usize::try_from(buffer.address.wrapping_sub(Self::ADDRESS));
        let start = start.expect("an address of the memory");
        let range = start..start + buffer.len_bytes as usize;
        let holds =
            |allowed: &Range<usize>| allowed.start <= range.start && range.end <= allowed.end;
        assert!(self.exposed.iter().any(holds), "{range:?} is not exposed");
        range
    }

    /// Answers the oldest RDMA READ; returns whether there was one.
    pub fn answer_read(&mut self) -> Result<bool, SessionError> {
        let Some((tag, from)) = self.reads.pop_front() else {
            return Ok(false);
        };
        let data = self.memory[self.range(from)].to_vec();
        let result = self
            .session
            .handle_read(self.now, tag, &data, &mut self.backend);
        self.poll();
        result.map(|()| true)
    }

    /// Responses received since the last call.
    pub fn responses(&mut self) -> Vec<Response> {
        std::mem::take(&mut self.responses)
    }

    /// Sends a command, answers its RDMA READs, and returns its response.
    pub fn command(&mut self, sqe: &Sqe, in_capsule: &[u8]) -> Response {
        self.send(sqe, in_capsule).expect("a good capsule");
        while self.answer_read().expect("data that were asked for") {}
        let responses = self.responses();
        assert_eq!(responses.len(), 1, "one command, one response");
        assert_eq!(responses[0].cqe.cid.get(), sqe.cid().0);
        responses[0]
    }

    /// The same, but returns the status.
    pub fn status(&mut self, sqe: &Sqe, in_capsule: &[u8]) -> Status {
        self.command(sqe, in_capsule).cqe.status()
    }

    /// Connects to `queue` of `controller`, with data in the host's memory.
    pub fn connect(
        &mut self,
        queue: u16,
        controller: u16,
        entries: u16,
    ) -> Result<Cqe, SessionError> {
        let mut sqe = ConnectSqe::new(Cid(0), queue, entries);
        sqe.attributes = ConnectSqe::ATTRIBUTE_NO_SQ_FLOW;
        let name = |name| NqnField::new(name).expect("a short name");
        let data = ConnectData::new(
            [7; 16],
            controller,
            name("nqn.2014-08.org.example:test"),
            name("nqn.2014-08.org.example:host"),
        );
        self.memory[..size_of::<ConnectData>()].copy_from_slice(data.as_bytes());
        let mut sqe: Sqe = zerocopy::transmute!(sqe);
        sqe.sgl1 = Self::keyed(0, size_of::<ConnectData>());
        self.send(&sqe, &[])?;
        while self.answer_read()? {}
        Ok(self.responses()[0].cqe)
    }
}

/// An I/O queue of `entries` entries over `volumes`, and the admin queue of its controller.
pub fn rdma_host<V: Volume + 'static>(volumes: &[Arc<V>], entries: u16) -> (RdmaHost, RdmaHost) {
    let subsystem = subsystem(Limits::default(), volumes);
    let mut admin = RdmaHost::new(Arc::clone(&subsystem), 1, 0, 32);
    let cqe = admin
        .connect(0, ConnectData::CONTROLLER_ANY, 32)
        .expect("good");
    assert!(cqe.status().is_success(), "{:?}", cqe.status());
    let enable = u64::from(Configuration::ENABLE_NVM.0);
    let set = PropertySqe::set(Cid(1), Property::Configuration, enable);
    let status = admin.status(&zerocopy::transmute!(set), &[]);
    assert!(status.is_success(), "{status:?}");
    let mut io = RdmaHost::new(subsystem, 2, 1, entries);
    let cqe = io.connect(1, cqe.dw0() as u16, entries).expect("good");
    assert!(cqe.status().is_success(), "{:?}", cqe.status());
    (io, admin)
}
