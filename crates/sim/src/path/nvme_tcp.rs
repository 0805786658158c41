//! NVMe/TCP: an admin queue and an I/O queue.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use block::{Completion, Volume};
use nvme::controller::Subsystem;
use nvme::host::{
    BufferRange, Buffers, CommandKey, HostName, Outcome, Purpose, Setup, SetupConfig, SetupStep,
    connect_io, io,
};
use nvme::tcp::wire::Dgst;
use nvme::tcp::{ControllerConfig, ControllerSession, HostConfig, HostSession};
use nvme::testing::TestBackend;
use nvme::wire::fabrics::NqnField;
use nvme::wire::{Nsid, Status, StatusCode};
use rand::Rng;
use rand::rngs::SmallRng;
use session::SendList;

use super::link::HostEnd;
use super::{AfterCut, BLOCK_BYTES, DEPTH, Done, End, Path, Request, SLOT_BYTES};

const NSID: Nsid = Nsid(1);

type Link = super::link::Link<HostSession, ControllerSession<TestBackend>>;

impl HostEnd for HostSession {
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

/// What a path needs of the world.
#[derive(Clone)]
pub(crate) struct Ends {
    pub(crate) subsystem: Arc<Mutex<Subsystem>>,
    pub(crate) volume: Arc<dyn Volume>,
    /// Numbers of two connections.
    pub(crate) connections: [u64; 2],
    /// Which host it is.
    pub(crate) host: u64,
    pub(crate) dgst: Dgst,
}

enum Stage {
    /// The controller is set up on the admin queue.
    Admin(Box<Setup>),
    /// The I/O queue is being connected, or is.
    Io { link: Box<Link>, is_up: bool },
}

pub(crate) struct NvmeTcpPath {
    ends: Ends,
    admin: Link,
    stage: Stage,
    pairs: Pairs,
}

impl NvmeTcpPath {
    pub(crate) fn new(now: Instant, ends: Ends) -> Self {
        let setup = Setup::new(SetupConfig {
            name: name(ends.host),
            sq_entries: 32,
            keep_alive_timeout_ms: 0,
            purpose: Purpose::Io {
                nsid: NSID,
                queues: 1,
            },
        });
        let buffers = Buffers::new(1, Setup::BUFFER_BYTES);
        Self {
            admin: link(now, &ends, 0, (4, 0), buffers),
            ends,
            stage: Stage::Admin(Box::new(setup)),
            pairs: Pairs::default(),
        }
    }

    fn io(&mut self) -> Option<&mut Link> {
        match &mut self.stage {
            Stage::Admin(_) => None,
            Stage::Io { link, .. } => Some(link),
        }
    }

    fn up(&mut self) -> &mut Link {
        self.io().expect("requests are made while the path is up")
    }

    /// One step of the set-up, if the last one has completed.
    fn set_up(&mut self, now: Instant) {
        let Stage::Admin(setup) = &mut self.stage else {
            return;
        };
        let admin = &mut self.admin;
        if let Some(outcome) = admin.done.pop() {
            let result = setup.handle_outcome(&outcome, admin.buffers.slot(Setup::SLOT));
            result.expect("the target takes this host");
        } else if admin.host.in_flight() > 0 {
            return;
        }
        match setup
            .poll(admin.buffers.slot_mut(Setup::SLOT))
            .expect("no authentication is required")
        {
            SetupStep::Submit(command) => {
                let taken = admin.host.submit(Setup::KEY, &command, &admin.buffers);
                taken.expect("one command at a time");
            }
            SetupStep::Wait { .. } => {}
            SetupStep::Done => {
                let facts = &setup.facts().controller;
                let (id, in_capsule) = (facts.id, facts.in_capsule_max_bytes);
                let buffers = Buffers::new(DEPTH, SLOT_BYTES);
                let mut io = link(now, &self.ends, 1, (DEPTH, in_capsule), buffers);
                let room = io.buffers.slot_mut(0);
                let command = connect_io(&name(self.ends.host), id, 1, DEPTH + 1, 0, room);
                let taken = io.host.submit(CommandKey(0), &command, &io.buffers);
                taken.expect("the queue is empty");
                self.stage = Stage::Io {
                    link: Box::new(io),
                    is_up: false,
                };
            }
        }
    }
}

/// A connection by its number of the two, with the queue's depth and in-capsule size.
fn link(
    now: Instant,
    ends: &Ends,
    number: usize,
    (depth, in_capsule_max_bytes): (u16, u32),
    buffers: Buffers,
) -> Link {
    let host = HostSession::new(HostConfig {
        dgst: ends.dgst,
        keys: 2 * depth,
        in_flight_max: depth,
        in_capsule_max_bytes,
    });
    let backend = TestBackend::new(Arc::clone(&ends.subsystem), ends.connections[number]);
    let target = ControllerSession::new(now, ControllerConfig::default());
    let send_list_bytes = ControllerSession::<TestBackend>::SEND_LIST_MIN_BYTES;
    let volume = Arc::clone(&ends.volume);
    Link::new((host, buffers), (target, backend), volume, send_list_bytes)
}

fn name(host: u64) -> HostName {
    let field = |name: &str| NqnField::new(name).expect("a short name");
    HostName {
        host_nqn: field(&format!("nqn.2014-08.org.example:host{host}")),
        host_id: [host as u8 + 1; 16],
        subsystem_nqn: field("nqn.2014-08.org.example:test"),
    }
}

/// The NVMe command of a request, and the second one of a fused pair; `buffer` is that of `key`.
pub(super) fn commands(
    key: u16,
    request: Request,
    buffer: &mut [u8],
) -> (nvme::host::Command, Option<nvme::host::Command>) {
    let data = |blocks: u64| BufferRange::first(key, (blocks as usize * BLOCK_BYTES) as u32);
    let command = match request {
        Request::Read(extent) => io::read(NSID, extent, data(extent.blocks.0)),
        Request::Write(extent) => io::write(NSID, extent, data(extent.blocks.0)),
        Request::WriteZeroes(extent, unmap) => io::write_zeroes(NSID, extent, unmap),
        Request::Discard(extent) => {
            let list = BufferRange::first(key, 16);
            io::deallocate(NSID, extent, list, &mut buffer[..16])
        }
        Request::Flush => io::flush(NSID),
        Request::CompareAndWrite(extent) => {
            let expected = data(extent.blocks.0);
            let new = BufferRange {
                offset: expected.len_bytes,
                ..expected
            };
            let [first, second] = io::compare_and_write(NSID, extent, expected, new);
            return (first, Some(second));
        }
    };
    (command, None)
}

/// The command identifier of the second command of a fused pair.
pub(super) const fn second_of(key: u16) -> u16 {
    key + DEPTH
}

/// Fused pairs in flight, by key, with the end of the half that has ended.
#[derive(Default)]
pub(super) struct Pairs(BTreeMap<u16, Option<End>>);

impl Pairs {
    /// A pair was sent.
    pub(super) fn begin(&mut self, key: u16) {
        self.0.insert(key, None);
    }

    /// The request of which a command has ended, unless it is half of a pair whose other half has
    /// not.
    pub(super) fn end(&mut self, id: u16, status: Status) -> Option<Done> {
        let key = id % DEPTH;
        let is_miscompare = status.code() == Some(StatusCode::CompareFailure);
        let end = End::of(status.is_success(), is_miscompare);
        let Some(other) = self.0.get_mut(&key) else {
            return Some(Done { key, end });
        };
        let other = other.replace(end)?;
        self.0.remove(&key);
        let end = match (other, end) {
            (End::Success, End::Success) => End::Success,
            (End::Miscompare, _) | (_, End::Miscompare) => End::Miscompare,
            _ => End::Failure,
        };
        Some(Done { key, end })
    }
}

impl Path for NvmeTcpPath {
    fn is_up(&mut self, now: Instant) -> bool {
        self.set_up(now);
        let Stage::Io { link, is_up } = &mut self.stage else {
            return false;
        };
        if !*is_up && let Some(outcome) = link.done.pop() {
            assert!(outcome.status.is_success(), "{}", outcome.status);
            *is_up = true;
        }
        *is_up
    }

    fn buffer(&mut self, key: u16) -> &mut [u8] {
        self.up().buffers.slot_mut(key)
    }

    fn submit(&mut self, key: u16, request: Request) -> bool {
        let io = self.up();
        let (first, second) = commands(key, request, io.buffers.slot_mut(key));
        if io.host.room() < 1 + u16::from(second.is_some()) {
            return false;
        }
        let halves = [(key, Some(first)), (second_of(key), second)];
        for (key, command) in halves {
            if let Some(command) = command {
                let taken = io.host.submit(CommandKey(key), &command, &io.buffers);
                taken.expect("there is room");
            }
        }
        if second.is_some() {
            self.pairs.begin(key);
        }
        true
    }

    fn take_done(&mut self) -> Vec<Done> {
        let done = std::mem::take(&mut self.up().done);
        let done = done.into_iter();
        done.filter_map(|outcome| self.pairs.end(outcome.key.0, outcome.status))
            .collect()
    }

    fn shuffle(&mut self, now: Instant, rng: &mut SmallRng) {
        match self.io() {
            Some(io) if rng.random_bool(0.9) => io.shuffle(now, rng),
            _ => self.admin.shuffle(now, rng),
        }
    }

    fn complete(&mut self, now: Instant, completion: Completion) {
        if let Some(io) = self.io() {
            io.complete(now, completion);
        }
    }

    fn cut(&mut self, now: Instant) -> AfterCut {
        if let Some(io) = self.io() {
            io.cut(now);
        }
        self.admin.cut(now);
        AfterCut::Ended
    }
}
