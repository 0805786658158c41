//! Both transports and every step against a model of what the commands do.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use block::testing::{LateVolume, VecVolume};
use block::{BlockSize, Blocks, Extent, Lba, Unmap, Volume};
use proptest::prelude::*;
use session::BufferRange;

use super::{Link, RdmaLink, Setup, TcpLink, TestTarget};
use crate::host::{self, HostCommand, Resumption};
use crate::target::{Merge, TargetConfig};
use crate::wire::{Features, Login, Operation, Status, Step as ProtocolStep};

const BLOCKS: u64 = 256;
const TAGS: u16 = 12;
/// The block of tag 0's counter.
const COUNTERS: u64 = BLOCKS - TAGS as u64;
const SLOT_BYTES: usize = 256 << 10;

fn setup(step: ProtocolStep, merge: Merge) -> Setup {
    let mut login = Login::new("nqn.h", "nqn.t", 1).expect("names");
    login.tags.set(TAGS);
    login.features.set(step.features().0);
    login.transfer_max_bytes.set(1 << 20);
    login.reply_data_max_bytes.set(2048);
    Setup {
        login,
        config: TargetConfig {
            merge,
            ..TargetConfig::default()
        },
        slot_bytes: SLOT_BYTES,
    }
}

fn setups() -> impl Strategy<Value = Setup> {
    let merge = prop_oneof![Just(Merge::Adaptive), Just(Merge::Always)];
    let step = proptest::sample::select(ProtocolStep::ALL.to_vec());
    (step, merge).prop_map(|(step, merge)| setup(step, merge))
}

fn extent(lba: u64, blocks: u64) -> Extent {
    Extent::new(Lba(lba), Blocks(blocks))
}

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
    Abort {
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
        1 => (0..TAGS).prop_map(|tag| Step::Abort { tag }),
        8 => prop_oneof![1..40_usize, 40..70_000_usize].prop_map(|chunk| Step::Move { chunk }),
        4 => (0..8_usize).prop_map(|which| Step::Volume { which }),
        1 => Just(Step::Cut),
        1 => (0..8_u64, 0..3_u8).prop_map(|(lba, value)| Step::Foreign { lba, value }),
    ];
    proptest::collection::vec(step, 1..160)
}

/// A host, its session, and what each command of it has done to each block: never twice.
struct CheckedHost<L> {
    setup: Setup,
    now: Instant,
    target: Arc<TestTarget>,
    volume: Arc<LateVolume>,
    link: L,
    /// Commands in flight.
    jobs: BTreeMap<u16, (HostCommand, Vec<u8>)>,
    /// Tags whose command was given up.
    aborted: BTreeSet<u16>,
    /// By tag: what its counter is to be.
    counts: [u8; TAGS as usize],
    outcomes: usize,
    submitted: usize,
}

impl<L: Link> CheckedHost<L> {
    fn new(setup: &Setup) -> Self {
        let now = Instant::now();
        let volume = Arc::new(LateVolume::new(BlockSize::B512, BLOCKS));
        let target = TestTarget::new(Arc::clone(&volume) as Arc<dyn Volume>);
        let shared = Arc::clone(&volume) as Arc<dyn Volume>;
        let link = L::connect(now, &target, shared, setup, None);
        let mut game = Self {
            setup: *setup,
            now,
            target,
            volume,
            link,
            jobs: BTreeMap::new(),
            aborted: BTreeSet::new(),
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
        self.link.buffers().slot_mut(tag)[..data.len()].copy_from_slice(data);
        let taken = self.link.submit(tag, &command);
        if taken.is_ok() {
            self.jobs.insert(tag, (command, data.to_vec()));
            self.submitted += 1;
        }
        taken.is_ok()
    }

    fn take_outcomes(&mut self) {
        let outcomes: Vec<_> = self.link.done().drain(..).collect();
        for outcome in outcomes {
            let job = self.jobs.remove(&outcome.tag);
            let (command, _) = job.expect("a command ends once");
            let is_count = command.command.lba.get() >= COUNTERS;
            let may_differ =
                command.command.operation == Operation::CompareAndWrite as u8 && !is_count;
            let was_aborted = self.aborted.remove(&outcome.tag);
            let is_possible = outcome.status == Status::Success
                || (was_aborted && outcome.status == Status::Aborted)
                || (may_differ && outcome.status == Status::Miscompare);
            assert!(is_possible, "{outcome:?}");
            self.outcomes += 1;
        }
    }

    /// The connection breaks; the host comes back and sends what is unanswered again, in the order
    /// of tags.
    fn cut(&mut self) {
        let shared = Arc::clone(&self.volume) as Arc<dyn Volume>;
        let other = TestTarget::new(Arc::clone(&shared));
        let placeholder = L::connect(self.now, &other, Arc::clone(&shared), &self.setup, None);
        let old = std::mem::replace(&mut self.link, placeholder);
        let resumption = old.cut(self.now).expect("the login was granted");
        let known: Option<&Resumption> = Some(&resumption);
        self.link = L::connect(self.now, &self.target, shared, &self.setup, known);
        assert_eq!(self.volume.leases(), 0, "leases end with their connection");
        self.link.settle(self.now, 4096);
        let terms = self.link.terms().expect("the login is granted");
        assert!(terms.is_resumed);
        for (&tag, (command, data)) in &self.jobs {
            self.link.buffers().slot_mut(tag)[..data.len()].copy_from_slice(data);
            let taken = self.link.submit(tag, command);
            taken.expect("there are credits");
        }
    }

    /// Counters are not given up: whether they count is then not known.
    fn abort(&mut self, tag: u16) {
        let job = self.jobs.get(&tag);
        if job.is_some_and(|(command, _)| command.command.lba.get() < COUNTERS) {
            self.aborted.insert(tag);
            self.link.abort(tag);
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
                self.link.advance(self.now, chunk);
            }
            Step::Abort { tag } => self.abort(tag),
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
            self.now += Merge::WAIT;
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

    /// BRP-12, BRP-27, BRP-30: whatever the chunking, the step, the delays of the volume and the
    /// losses of connections, each command is executed and answered once.
    #[test]
    fn every_command_is_executed_once_over_any_number_of_connections(
        setup in setups(),
        steps in steps(),
    ) {
        play::<TcpLink>(&setup, &steps);
    }

    /// The same over RDMA.
    #[test]
    fn every_command_is_executed_once_over_any_number_of_queue_pairs(
        setup in setups(),
        steps in steps(),
    ) {
        play::<RdmaLink>(&setup, &steps);
    }

    /// Reads give what was written, in any chunking.
    #[test]
    fn data_survive_any_chunking(
        setup in setups(),
        chunk in 1..5000_usize,
        lba in 0..64_u64,
        blocks in 1..180_u64,
        seed: u8,
    ) {
        move_data::<TcpLink>(&setup, chunk, lba, blocks, seed);
        move_data::<RdmaLink>(&setup, chunk, lba, blocks, seed);
    }
}

fn play<L: Link>(setup: &Setup, steps: &[Step]) {
    let mut game = CheckedHost::<L>::new(setup);
    for step in steps {
        game.step(step);
    }
    game.finish();
}

fn move_data<L: Link>(setup: &Setup, chunk: usize, lba: u64, blocks: u64, seed: u8) {
    let now = Instant::now();
    let volume = Arc::new(VecVolume::new(BlockSize::B512, BLOCKS));
    let target = TestTarget::new(Arc::clone(&volume) as Arc<dyn Volume>);
    let shared = Arc::clone(&volume) as Arc<dyn Volume>;
    let mut link = L::connect(now, &target, shared, setup, None);
    link.settle(now, chunk);
    let len = blocks as usize * 512;
    let byte = |at: usize| (at as u8).wrapping_mul(31).wrapping_add(seed);
    let data: Vec<u8> = (0..len).map(byte).collect();
    link.buffers().slot_mut(0)[..len].copy_from_slice(&data);
    let range = BufferRange::first(0, len as u32);
    let write = host::write(extent(lba, blocks), range);
    link.submit(0, &write).expect("credits");
    link.settle(now, chunk);
    let start = lba as usize * 512;
    assert_eq!(&volume.contents()[start..start + len], &data[..]);
    let range = BufferRange::first(1, len as u32);
    link.submit(1, &host::read(extent(lba, blocks), range))
        .expect("credits");
    link.settle(now + Merge::WAIT, chunk);
    link.settle(now + Merge::WAIT * 2, chunk);
    assert_eq!(&link.buffers().slot(1)[..len], &data[..]);
    let statuses: Vec<Status> = link.done().iter().map(|outcome| outcome.status).collect();
    assert_eq!(statuses, [Status::Success; 2]);
}

/// BRP-36, BRP-38: how many messages answer a burst of 12 small reads.
#[test]
fn a_burst_is_answered_by_few_messages_only_with_step_3() {
    let messages = |step, merge| {
        let now = Instant::now();
        let volume: Arc<dyn Volume> = Arc::new(VecVolume::new(BlockSize::B512, BLOCKS));
        let target = TestTarget::new(Arc::clone(&volume));
        let mut link = RdmaLink::connect(now, &target, volume, &setup(step, merge), None);
        link.settle(now, 0);
        // The load test needs some commands.
        for round in 1..20 {
            let before = link.messages;
            for tag in 0..TAGS {
                let read = host::read(extent(0, 1), BufferRange::first(tag, 512));
                link.submit(tag, &read).expect("credits");
            }
            let now = now + Merge::WAIT * round;
            link.settle(now, 0);
            link.settle(now + Merge::WAIT, 0);
            assert_eq!(link.done.len(), usize::from(TAGS));
            link.done.clear();
            if round == 19 {
                return link.messages - before;
            }
        }
        unreachable!("the last round returns")
    };
    assert_eq!(messages(ProtocolStep::InOrder, Merge::Always), 12);
    assert_eq!(messages(ProtocolStep::Parallel, Merge::Always), 12);
    let always = messages(ProtocolStep::Merge, Merge::Always);
    assert!(
        always <= 6,
        "3 replies with 512 bytes fit into a message: {always}"
    );
}

/// BRP-38: a reply without others waits if the host asks for that.
#[test]
fn a_single_reply_waits_where_the_host_asks_for_merge_always() {
    let answered_at_once = |more: Features| {
        let now = Instant::now();
        let volume: Arc<dyn Volume> = Arc::new(VecVolume::new(BlockSize::B512, BLOCKS));
        let target = TestTarget::new(Arc::clone(&volume));
        let mut setup = setup(ProtocolStep::Merge, Merge::Adaptive);
        let features = ProtocolStep::Merge.features().or(more);
        setup.login.features.set(features.0);
        let mut link = RdmaLink::connect(now, &target, volume, &setup, None);
        link.settle(now, 0);
        let read = host::read(extent(0, 1), BufferRange::first(0, 512));
        link.submit(0, &read).expect("credits");
        link.settle(now, 0);
        let answered = link.done.len();
        link.settle(now + Merge::WAIT, 0);
        assert_eq!(link.done.len(), 1);
        answered == 1
    };
    assert!(answered_at_once(Features::default()));
    assert!(!answered_at_once(Features::MERGE_ALWAYS));
}
