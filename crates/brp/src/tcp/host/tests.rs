use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use block::testing::{LateVolume, VecVolume};
use block::{BlockSize, Extent, Lba, Unmap, Volume};
use proptest::prelude::*;

use super::*;
use crate::host;
use crate::testing::{TcpLink, TestTarget};
use crate::wire::{LoginStatus, Operation, SessionId};

const BLOCKS: u64 = 256;
const TAGS: u16 = 4;
/// The block of tag 0's counter.
const COUNTERS: u64 = BLOCKS - TAGS as u64;
const SLOT_BYTES: usize = 256 << 10;

fn login() -> Login {
    let mut login = Login::new("nqn.h", "nqn.t", 1).expect("names");
    login.tags.set(TAGS);
    login.features.set(1);
    login.transfer_max_bytes.set(1 << 20);
    login
}

/// A session whose login was granted with these terms.
fn session(change: impl FnOnce(&mut LoginReply)) -> (HostSession, Buffers) {
    let mut session = HostSession::new(login(), None);
    let mut buffers = Buffers::new(TAGS, SLOT_BYTES);
    emit(&mut session, &buffers);
    let mut reply = LoginReply::rejected(LoginStatus::Ok);
    reply.tags.set(TAGS);
    reply.credits.set(TAGS);
    reply.block_shift = 9;
    reply.blocks.set(BLOCKS);
    reply.transfer_max_bytes.set(1 << 20);
    reply.command_data_max_bytes.set(4096);
    reply.session = SessionId([1; 16]);
    change(&mut reply);
    let granted = session.handle_bytes(reply.as_bytes(), &mut buffers, &mut Vec::new());
    granted.expect("a valid reply");
    assert!(matches!(session.poll_event(), Some(HostEvent::LoggedIn(_))));
    (session, buffers)
}

fn emit(session: &mut HostSession, buffers: &Buffers) -> u64 {
    let mut out = SendList::with_capacity(64 << 10);
    session.poll_transmit(buffers, &mut out);
    let len_bytes = out.len_bytes();
    session.handle_sent(len_bytes, &mut Vec::new());
    len_bytes
}

fn extent(lba: u64, blocks: u64) -> Extent {
    Extent::new(Lba(lba), Blocks(blocks))
}

/// BRP-10, BRP-16, BRP-17.
#[test]
fn what_a_target_may_not_send_ends_the_connection() {
    let reply = |tag, data_bytes, status| Short::reply(tag, data_bytes, status, 4, 0);
    let cases = [
        (
            Short::reply(1, 0, Status::Success, 4, 0),
            Violation::Tag,
            "not in flight",
        ),
        (
            reply(0, 0, Status::Success),
            Violation::Length,
            "success without data",
        ),
        (
            reply(0, 513, Status::Success),
            Violation::Length,
            "too many data",
        ),
        (
            reply(0, 512, Status::ReadError),
            Violation::Length,
            "data with an error",
        ),
        (Short::part(0, 512, 4), Violation::Length, "more of nothing"),
        (Short::part(0, 0, 4), Violation::Length, "a part of nothing"),
        (
            Short::pull(0, 0, 512),
            Violation::UnexpectedData,
            "a read has no data to send",
        ),
        (Short::pull(2, 0, 512), Violation::Tag, "not in flight"),
        (
            Short::new(Kind::Logout),
            Violation::Kind,
            "only hosts log out",
        ),
        (
            Short {
                rest: [0xFF; 8],
                ..reply(0, 0, Status::Success)
            },
            Violation::Length,
            "no such status",
        ),
    ];
    for (message, violation, why) in cases {
        let (mut session, mut buffers) = session(|_| {});
        let read = host::read(extent(0, 1), BufferRange::first(0, 512));
        session.submit(0, &read, &buffers).expect("credits");
        emit(&mut session, &buffers);
        let mut done = Vec::new();
        let result = session.handle_bytes(message.as_bytes(), &mut buffers, &mut done);
        assert_eq!(result, Err(violation.into()), "{why}");
        assert!(done.is_empty() && session.wants_transmit());
        let after = session.handle_bytes(&[0], &mut buffers, &mut done);
        assert_eq!(after, Err(HostError::Closed));
    }
}

/// BRP-11, BRP-21.
#[test]
fn no_more_commands_are_sent_than_there_are_credits() {
    let (mut session, mut buffers) = session(|reply| reply.credits.set(1));
    session
        .submit(0, &host::flush(), &buffers)
        .expect("a credit");
    assert_eq!(
        session.submit(1, &host::flush(), &buffers),
        Err(NoRoom::Credits)
    );
    emit(&mut session, &buffers);
    let mut done = Vec::new();
    let reply = Short::reply(0, 0, Status::Success, 2, 0);
    session
        .handle_bytes(reply.as_bytes(), &mut buffers, &mut done)
        .expect("valid");
    assert_eq!(done.len(), 1);
    session
        .submit(0, &host::flush(), &buffers)
        .expect("a credit");
    session
        .submit(1, &host::flush(), &buffers)
        .expect("another");
    assert_eq!(
        session.submit(2, &host::flush(), &buffers),
        Err(NoRoom::Credits)
    );
}

/// BRP-33.
#[test]
fn a_login_that_is_rejected_ends_the_connection() {
    let mut session = HostSession::new(login(), None);
    let mut buffers = Buffers::new(TAGS, 512);
    emit(&mut session, &buffers);
    let reply = LoginReply::rejected(LoginStatus::NoSession);
    let result = session.handle_bytes(reply.as_bytes(), &mut buffers, &mut Vec::new());
    let rejected = LoginError::Rejected(LoginStatus::NoSession);
    assert_eq!(result, Err(HostError::Login(rejected)));
    assert!(session.resumption().is_none());
}

/// What a random host does.
#[derive(Clone, Debug)]
enum Step {
    Write {
        tag: u16,
        lba: u64,
        blocks: u64,
    },
    Zero {
        tag: u16,
        lba: u64,
        blocks: u64,
    },
    Read {
        tag: u16,
        lba: u64,
        blocks: u64,
    },
    Swap {
        tag: u16,
        lba: u64,
        from: u8,
        to: u8,
    },
    /// A counter that only this tag increments, by compare-and-write.
    Count {
        tag: u16,
    },
    Flush {
        tag: u16,
    },
    Move {
        chunk: usize,
    },
    Volume {
        which: usize,
    },
    /// The connection breaks, and the session is resumed.
    Cut,
    /// Another host writes.
    Foreign {
        lba: u64,
        value: u8,
    },
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let place = || {
        (
            0..TAGS,
            0..COUNTERS - 160,
            prop_oneof![1..6_u64, 150..160_u64],
        )
    };
    let step = prop_oneof![
        4 => place().prop_map(|(tag, lba, blocks)| Step::Write { tag, lba, blocks }),
        1 => place().prop_map(|(tag, lba, blocks)| Step::Zero { tag, lba, blocks }),
        2 => place().prop_map(|(tag, lba, blocks)| Step::Read { tag, lba, blocks }),
        2 => (0..TAGS, 0..8_u64, 0..3_u8, 0..3_u8)
            .prop_map(|(tag, lba, from, to)| Step::Swap { tag, lba, from, to }),
        3 => (0..TAGS).prop_map(|tag| Step::Count { tag }),
        1 => (0..TAGS).prop_map(|tag| Step::Flush { tag }),
        8 => prop_oneof![1..40_usize, 40..70_000_usize].prop_map(|chunk| Step::Move { chunk }),
        4 => (0..8_usize).prop_map(|which| Step::Volume { which }),
        1 => Just(Step::Cut),
        1 => (0..8_u64, 0..3_u8).prop_map(|(lba, value)| Step::Foreign { lba, value }),
    ];
    proptest::collection::vec(step, 1..160)
}

/// A host, its session, and what each command of it has done to each block: never twice.
struct Game {
    now: Instant,
    target: Arc<TestTarget>,
    volume: Arc<LateVolume>,
    link: TcpLink,
    /// Commands in flight.
    jobs: BTreeMap<u16, (HostCommand, Vec<u8>)>,
    /// By tag: what its counter is to be.
    counts: [u8; TAGS as usize],
    outcomes: usize,
    submitted: usize,
}

impl Game {
    fn new() -> Self {
        let now = Instant::now();
        let volume = Arc::new(LateVolume::new(BlockSize::B512, BLOCKS));
        let target = TestTarget::new(Arc::clone(&volume) as Arc<dyn Volume>);
        let shared = Arc::clone(&volume) as Arc<dyn Volume>;
        let link = TcpLink::new(now, &target, shared, login(), None, SLOT_BYTES);
        let mut game = Self {
            now,
            target,
            volume,
            link,
            jobs: BTreeMap::new(),
            counts: [0; TAGS as usize],
            outcomes: 0,
            submitted: 0,
        };
        game.link.settle(now, 4096);
        game
    }

    /// Whether the command was taken.
    fn submit(&mut self, tag: u16, command: HostCommand, data: &[u8]) -> bool {
        if self.jobs.contains_key(&tag) {
            return false;
        }
        self.link.buffers.slot_mut(tag)[..data.len()].copy_from_slice(data);
        let taken = self.link.host.submit(tag, &command, &self.link.buffers);
        if taken.is_ok() {
            self.jobs.insert(tag, (command, data.to_vec()));
            self.submitted += 1;
        }
        taken.is_ok()
    }

    fn take_outcomes(&mut self) {
        for outcome in self.link.done.drain(..) {
            let job = self.jobs.remove(&outcome.tag);
            let (command, _) = job.expect("a command ends once");
            let is_count = command.command.lba.get() >= COUNTERS;
            let may_differ =
                command.command.operation == Operation::CompareAndWrite as u8 && !is_count;
            let is_possible = outcome.status == Status::Success
                || (may_differ && outcome.status == Status::Miscompare);
            assert!(is_possible, "{outcome:?}");
            self.outcomes += 1;
        }
    }

    /// The connection breaks; the host comes back and sends what is unanswered again, in the order of tags.
    fn cut(&mut self) {
        let shared = Arc::clone(&self.volume) as Arc<dyn Volume>;
        let next = |resumption: Option<&Resumption>| {
            TcpLink::new(
                self.now,
                &self.target,
                shared,
                login(),
                resumption,
                SLOT_BYTES,
            )
        };
        let placeholder = TcpLink::new(
            self.now,
            &TestTarget::new(Arc::clone(&self.volume) as Arc<dyn Volume>),
            Arc::clone(&self.volume) as Arc<dyn Volume>,
            login(),
            None,
            512,
        );
        let old = std::mem::replace(&mut self.link, placeholder);
        let resumption = old.cut(self.now).expect("the login was granted");
        self.link = next(Some(&resumption));
        assert_eq!(self.volume.leases(), 0, "leases end with their connection");
        self.link.settle(self.now, 4096);
        let terms = self.link.host.terms().expect("the login is granted");
        assert!(terms.is_resumed);
        for (&tag, (command, data)) in &self.jobs {
            self.link.buffers.slot_mut(tag)[..data.len()].copy_from_slice(data);
            let taken = self.link.host.submit(tag, command, &self.link.buffers);
            taken.expect("there are credits");
        }
    }

    fn complete(&mut self, which: usize) {
        let waiting = self.volume.waiting();
        if let Some(&ticket) = waiting.get(which % waiting.len().max(1)) {
            let completion = self.volume.complete(ticket, Ok(()));
            self.link.complete(self.now, completion);
        }
    }

    fn step(&mut self, step: &Step) {
        self.now += Duration::from_micros(1);
        let bytes = |blocks: u64| BufferRange::first(0, blocks as u32 * 512);
        let at = |tag, range: BufferRange| BufferRange { slot: tag, ..range };
        match *step {
            Step::Write { tag, lba, blocks } => {
                let data = vec![(lba % 3) as u8; blocks as usize * 512];
                self.submit(
                    tag,
                    host::write(extent(lba, blocks), at(tag, bytes(blocks))),
                    &data,
                );
            }
            Step::Zero { tag, lba, blocks } => {
                self.submit(
                    tag,
                    host::write_zeroes(extent(lba, blocks), Unmap::Allowed),
                    &[],
                );
            }
            Step::Read { tag, lba, blocks } => {
                self.submit(
                    tag,
                    host::read(extent(lba, blocks), at(tag, bytes(blocks))),
                    &[],
                );
            }
            Step::Swap { tag, lba, from, to } => {
                let data = [[from; 512], [to; 512]].concat();
                let command = host::compare_and_write(extent(lba, 1), at(tag, bytes(2)));
                self.submit(tag, command, &data);
            }
            Step::Count { tag } => {
                let count = self.counts[usize::from(tag)];
                let data = [[count; 512], [count.wrapping_add(1); 512]].concat();
                let lba = COUNTERS + u64::from(tag);
                let command = host::compare_and_write(extent(lba, 1), at(tag, bytes(2)));
                if self.submit(tag, command, &data) {
                    self.counts[usize::from(tag)] = count.wrapping_add(1);
                }
            }
            Step::Flush { tag } => {
                self.submit(tag, host::flush(), &[]);
            }
            Step::Move { chunk } => {
                self.link.host_sends();
                self.link.deliver_to_target(self.now, chunk);
                self.link.target_sends(self.now);
                self.link.deliver_to_host(chunk);
            }
            Step::Volume { which } => self.complete(which),
            Step::Cut => self.cut(),
            Step::Foreign { lba, value } => {
                let at = lba as usize * 512;
                self.volume.disk().fill(at, &[value; 512]);
            }
        }
        self.take_outcomes();
    }

    fn finish(mut self) {
        for _ in 0..10_000 {
            if self.jobs.is_empty() {
                break;
            }
            self.link.settle(self.now, 9000);
            self.complete(0);
            self.take_outcomes();
        }
        assert!(self.jobs.is_empty(), "every command is answered");
        assert_eq!(self.outcomes, self.submitted, "each one once");
        for (tag, count) in self.counts.into_iter().enumerate() {
            let block = self.volume.disk().block(COUNTERS + tag as u64);
            assert_eq!(block[0], count, "no increment is lost or done twice");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(block::testing::cases(64)))]

    /// BRP-12, BRP-27, BRP-30: whatever the chunking, the delays of the volume and the losses of connections, each
    /// command is executed and answered once.
    #[test]
    fn every_command_is_executed_once_over_any_number_of_connections(steps in steps()) {
        let mut game = Game::new();
        for step in steps {
            game.step(&step);
        }
        game.finish();
    }

    /// Reads give what was written, in any chunking.
    #[test]
    fn data_survive_any_chunking(chunk in 1..5000_usize, lba in 0..64_u64, blocks in 1..180_u64, seed: u8) {
        let now = Instant::now();
        let volume = Arc::new(VecVolume::new(BlockSize::B512, BLOCKS));
        let target = TestTarget::new(Arc::clone(&volume) as Arc<dyn Volume>);
        let shared = Arc::clone(&volume) as Arc<dyn Volume>;
        let mut link = TcpLink::new(now, &target, shared, login(), None, SLOT_BYTES);
        link.settle(now, chunk);
        let len = blocks as usize * 512;
        let data: Vec<u8> = (0..len).map(|at| (at as u8).wrapping_mul(31).wrapping_add(seed)).collect();
        link.buffers.slot_mut(0)[..len].copy_from_slice(&data);
        let range = BufferRange::first(0, len as u32);
        let write = host::write(extent(lba, blocks), range);
        link.host.submit(0, &write, &link.buffers).expect("credits");
        link.settle(now, chunk);
        let start = lba as usize * 512;
        prop_assert_eq!(&volume.contents()[start..start + len], &data[..]);
        let range = BufferRange::first(1, len as u32);
        link.host.submit(1, &host::read(extent(lba, blocks), range), &link.buffers).expect("credits");
        link.settle(now, chunk);
        prop_assert_eq!(&link.buffers.slot(1)[..len], &data[..]);
        let statuses: Vec<Status> = link.done.iter().map(|outcome| outcome.status).collect();
        prop_assert_eq!(statuses, [Status::Success; 2]);
    }
}

#[test]
fn corpora_are_replayed() {
    assert!(block::testing::replay("brp_target_session", crate::testing::fuzz::target_session) > 0);
    assert!(block::testing::replay("brp_host_session", crate::testing::fuzz::host_session) > 0);
}
