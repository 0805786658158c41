//! A host that reads and writes its own part of the volume, checks what it reads, and comes back
//! when it is cut off.

use std::collections::BTreeMap;
use std::time::Instant;

use block::{Blocks, Extent, Lba, Unmap};
use nvme::host::{
    BufferRange, Buffers, CommandKey, HostName, Purpose, Setup, SetupConfig, SetupStep, connect_io,
    io,
};
use nvme::tcp::HostConfig;
use nvme::tcp::wire::Dgst;
use nvme::testing::TestBackend;
use nvme::wire::Nsid;
use nvme::wire::fabrics::NqnField;
use rand::Rng;
use rand::rngs::SmallRng;

use crate::link::Link;
use crate::model::{Model, fill};

/// Blocks of each host's part.
pub(crate) const PART_BLOCKS: u64 = 1024;
/// The longest transfer: beyond in-capsule data, beyond one H2CData and beyond the copy threshold.
const TRANSFER_BLOCKS_MAX: u64 = 300;
/// Commands in flight.
const DEPTH: u16 = 16;
const BLOCK_BYTES: usize = 512;
const NSID: Nsid = Nsid(1);

enum State {
    Down,
    SettingUp { admin: Link, setup: Box<Setup> },
    ConnectingQueue { admin: Link, io: Link },
    Up { admin: Link, io: Link },
}

#[derive(Clone, Copy, Debug)]
enum Job {
    Read(Extent),
    Write(Extent, u64),
}

/// One host of the world.
pub(crate) struct Host {
    index: u64,
    dgst: Dgst,
    state: State,
    jobs: BTreeMap<u16, Job>,
    next_mark: u64,
    pub(crate) reads_checked: u64,
    pub(crate) writes_done: u64,
    pub(crate) cuts: u64,
}

impl Host {
    pub(crate) fn new(index: u64, dgst: Dgst) -> Self {
        Self {
            index,
            dgst,
            state: State::Down,
            jobs: BTreeMap::new(),
            next_mark: index << 48 | 1,
            reads_checked: 0,
            writes_done: 0,
            cuts: 0,
        }
    }

    /// Does something, or nothing, that is this host's to do.
    pub(crate) fn step(
        &mut self,
        now: Instant,
        rng: &mut SmallRng,
        model: &mut Model,
        backend: &mut impl FnMut() -> TestBackend,
    ) {
        self.state = match std::mem::replace(&mut self.state, State::Down) {
            State::Down => self.begin(now, backend()),
            State::SettingUp { admin, setup } => self.set_up(now, admin, setup, backend),
            State::ConnectingQueue { admin, io } => Self::connecting(admin, io),
            State::Up { admin, mut io } => {
                self.finish(&mut io, model);
                if rng.random_bool(0.5) {
                    self.submit(&mut io, rng);
                }
                State::Up { admin, io }
            }
        };
    }

    /// Moves bytes of one of this host's connections in one direction.
    pub(crate) fn shuffle(&mut self, now: Instant, rng: &mut SmallRng) {
        let max = match rng.random_range(0..4) {
            0 => rng.random_range(1..8),
            1 => rng.random_range(1..200),
            _ => rng.random_range(1..40_000),
        };
        let (admin, io) = match &mut self.state {
            State::Down => return,
            State::SettingUp { admin, .. } => (admin, None),
            State::ConnectingQueue { admin, io } | State::Up { admin, io } => (admin, Some(io)),
        };
        let link = match io {
            Some(io) if rng.random_bool(0.9) => io,
            _ => admin,
        };
        link.tick(now);
        match rng.random_range(0..4) {
            0 => link.host_sends(),
            1 => link.target_sends(now),
            2 => link.deliver_to_target(now, max),
            _ => link.deliver_to_host(max),
        }
    }

    /// The network breaks for this host: the outcomes of writes in flight are unknown.
    pub(crate) fn cut(&mut self, now: Instant, model: &mut Model) {
        match std::mem::replace(&mut self.state, State::Down) {
            State::Down => return,
            State::SettingUp { admin, .. } => admin.cut(now),
            State::ConnectingQueue { admin, io } | State::Up { admin, io } => {
                io.cut(now);
                admin.cut(now);
            }
        }
        self.cuts += 1;
        for job in std::mem::take(&mut self.jobs).into_values() {
            if let Job::Write(extent, mark) = job {
                model.lose(extent, mark);
            }
        }
    }

    fn name(&self) -> HostName {
        let field = |name: &str| NqnField::new(name).expect("a short name");
        HostName {
            host_nqn: field(&format!("nqn.2014-08.org.example:host{}", self.index)),
            host_id: [self.index as u8 + 1; 16],
            subsystem_nqn: field("nqn.2014-08.org.example:test"),
        }
    }

    fn config(&self, depth: u16, in_capsule_max_bytes: u32) -> HostConfig {
        HostConfig {
            dgst: self.dgst,
            keys: depth,
            in_flight_max: depth,
            in_capsule_max_bytes,
        }
    }

    fn begin(&self, now: Instant, backend: TestBackend) -> State {
        let setup = Setup::new(SetupConfig {
            name: self.name(),
            sq_entries: 32,
            keep_alive_timeout_ms: 0,
            purpose: Purpose::Io {
                nsid: NSID,
                queues: 1,
            },
        });
        let buffers = Buffers::new(1, Setup::BUFFER_BYTES);
        let admin = Link::new(now, self.config(4, 0), buffers, backend);
        State::SettingUp {
            admin,
            setup: Box::new(setup),
        }
    }

    fn set_up(
        &self,
        now: Instant,
        mut admin: Link,
        mut setup: Box<Setup>,
        backend: &mut impl FnMut() -> TestBackend,
    ) -> State {
        if let Some(outcome) = admin.done.pop() {
            let result = setup.handle_outcome(&outcome, admin.buffers.slot(Setup::SLOT));
            result.expect("the target takes this host");
        } else if admin.host.in_flight() > 0 {
            return State::SettingUp { admin, setup };
        }
        match setup.poll(admin.buffers.slot_mut(Setup::SLOT)) {
            SetupStep::Submit(command) => {
                let taken = admin.host.submit(Setup::KEY, &command, &admin.buffers);
                taken.expect("one command at a time");
                State::SettingUp { admin, setup }
            }
            SetupStep::Wait { .. } => State::SettingUp { admin, setup },
            SetupStep::Done => {
                let facts = &setup.facts().controller;
                let config = self.config(DEPTH, facts.in_capsule_max_bytes);
                let buffers = Buffers::new(DEPTH, TRANSFER_BLOCKS_MAX as usize * BLOCK_BYTES);
                let mut io = Link::new(now, config, buffers, backend());
                let command = connect_io(
                    &self.name(),
                    facts.id,
                    1,
                    DEPTH + 1,
                    0,
                    io.buffers.slot_mut(0),
                );
                let taken = io.host.submit(CommandKey(0), &command, &io.buffers);
                taken.expect("the queue is empty");
                State::ConnectingQueue { admin, io }
            }
        }
    }

    fn connecting(admin: Link, mut io: Link) -> State {
        let Some(outcome) = io.done.pop() else {
            return State::ConnectingQueue { admin, io };
        };
        assert!(
            outcome.status.is_success(),
            "connecting a queue: {}",
            outcome.status
        );
        State::Up { admin, io }
    }

    /// Checks what has come back.
    fn finish(&mut self, io: &mut Link, model: &mut Model) {
        for outcome in std::mem::take(&mut io.done) {
            let job = self
                .jobs
                .remove(&outcome.key.0)
                .expect("an outcome belongs to a job");
            assert!(outcome.status.is_success(), "{job:?}: {}", outcome.status);
            match job {
                Job::Write(extent, mark) => {
                    model.acknowledge(extent, mark);
                    self.writes_done += 1;
                }
                Job::Read(extent) => {
                    let data = io.buffers.slot(outcome.key.0);
                    for (i, block) in (0..extent.blocks.0).zip(data.chunks_exact(BLOCK_BYTES)) {
                        model.check(Lba(extent.lba.0 + i), block);
                    }
                    self.reads_checked += 1;
                }
            }
        }
    }

    /// Submits a command on blocks on which none is in flight.
    fn submit(&mut self, io: &mut Link, rng: &mut SmallRng) {
        let Some(key) = (0..DEPTH).find(|key| !self.jobs.contains_key(key)) else {
            return;
        };
        let blocks = match rng.random_range(0..4) {
            0 => rng.random_range(1..=TRANSFER_BLOCKS_MAX),
            _ => rng.random_range(1..=16),
        };
        let start = self.index * PART_BLOCKS + rng.random_range(0..=PART_BLOCKS - blocks);
        let extent = Extent::new(Lba(start), Blocks(blocks));
        let busy = self.jobs.values().any(|job| match job {
            Job::Read(other) | Job::Write(other, _) => other.overlaps(extent),
        });
        if busy {
            return;
        }
        let data = BufferRange::first(key, (blocks as usize * BLOCK_BYTES) as u32);
        let (job, command) = match rng.random_range(0..10) {
            0 => {
                let unmap = if rng.random_bool(0.5) {
                    Unmap::Allowed
                } else {
                    Unmap::Forbidden
                };
                (Job::Write(extent, 0), io::write_zeroes(NSID, extent, unmap))
            }
            1 => {
                let list = BufferRange::first(key, 16);
                let command =
                    io::deallocate(NSID, extent, list, &mut io.buffers.slot_mut(key)[..16]);
                (Job::Write(extent, 0), command)
            }
            2..6 => {
                let mark = self.next_mark;
                self.next_mark += 1;
                let buffer = io.buffers.slot_mut(key);
                for (i, block) in (0..blocks).zip(buffer.chunks_exact_mut(BLOCK_BYTES)) {
                    fill(Lba(start + i), mark, block);
                }
                (Job::Write(extent, mark), io::write(NSID, extent, data))
            }
            _ => (Job::Read(extent), io::read(NSID, extent, data)),
        };
        if io
            .host
            .submit(CommandKey(key), &command, &io.buffers)
            .is_ok()
        {
            self.jobs.insert(key, job);
        }
    }
}
