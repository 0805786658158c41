//! Caches and mirrors in threads that have commands on the volumes below themselves.

use std::num::NonZeroU64;

use block::testing::Folder;
use block::{
    Admission, BlockSize, Completion, Completions as _, DataUse, Extent, Intent, Op, OpKind,
    Persistence, ReadDest, Settled, Ticket,
};
use memory::{Budget, Provision};
use proptest::prelude::*;

use super::*;
use crate::filters::{Delay, Fault, FaultRule, FaultStatus, FaultWhen, FilterSpec, Latency};
use crate::managed::Member;
use crate::testing::io::{MIB, Reports, TestReactor, extent, no_progress};
use crate::{
    ByteSize, CacheMode, CacheSettings, LaneRegistry, Origin, Relay, VolumeKind, VolumeSpec,
    create, create_composite,
};

const BLOCKS: u64 = 2 * MIB / 512;

/// What is above, of what is below.
#[derive(Clone, Copy, Debug)]
enum Kind {
    CacheOfRam,
    CacheOfFile,
    MirrorOfFiles,
}

struct Fixture {
    budget: Arc<Budget>,
    lanes: Arc<LaneRegistry>,
    reports: Arc<Reports>,
    below: Vec<Arc<dyn ManagedVolume>>,
    volume: Arc<dyn ManagedVolume>,
    reactor: Option<TestReactor>,
    slot: u32,
    _folder: Folder,
}

impl Fixture {
    fn new(kind: Kind, mode: CacheMode) -> Self {
        let folder = Folder::new();
        let budget = Arc::new(Budget::new(128 * MIB));
        let reports = Arc::<Reports>::default();
        let lanes = Arc::<LaneRegistry>::default();
        let platform = Platform {
            budget: Arc::clone(&budget),
            relay: Relay::new(Arc::clone(&reports) as _),
            lanes: Arc::clone(&lanes),
            record: None,
        };
        let provision = Provision::Thin;
        let file = |name: &str| VolumeKind::File {
            path: folder.join(name),
            provision,
        };
        let (below, above) = match kind {
            Kind::CacheOfRam => (vec![VolumeKind::Ram { provision }], cache(mode)),
            Kind::CacheOfFile => (vec![file("a")], cache(mode)),
            Kind::MirrorOfFiles => (vec![file("a"), file("b")], mirror()),
        };
        let below: Vec<_> = below
            .into_iter()
            .map(|kind| {
                let made = create(&spec(kind), Origin::New, &platform, &mut no_progress);
                made.expect("fits")
            })
            .collect();
        let members = below.iter().enumerate().map(|(at, volume)| Member {
            name: format!("below{at}"),
            volume: Arc::clone(volume),
        });
        let spec = spec(above);
        let volume = create_composite(&spec, members.collect(), Origin::New, &platform);
        let reactor = TestReactor::new(&lanes, &reports);
        Self {
            budget,
            lanes,
            reports,
            below,
            volume: volume.expect("fits"),
            reactor: Some(reactor),
            slot: 0,
            _folder: folder,
        }
    }

    fn filter(&self, spec: FilterSpec) {
        self.below[0].controls().set_filters(spec);
    }

    fn ticket(&mut self) -> Ticket {
        self.slot += 1;
        Ticket {
            connection: Ticket::CONNECTIONS_MIN,
            slot: self.slot,
            generation: 0,
        }
    }

    fn wait(&mut self, ticket: Ticket) -> Result<(), Status> {
        match &mut self.reactor {
            Some(reactor) => reactor.wait(ticket),
            None => self.reports.wait(ticket),
        }
    }

    fn admit(&self, intent: &Intent<'_>, ticket: Ticket) -> Admission {
        self.volume.admit(Instant::now(), intent, ticket)
    }

    fn run(&mut self, intent: &Intent<'_>, op: Op<'_>) -> Result<(), Status> {
        let ticket = self.ticket();
        let result = self.steps(intent, ticket, op);
        self.volume.release(ticket);
        result
    }

    fn steps(&mut self, intent: &Intent<'_>, ticket: Ticket, op: Op<'_>) -> Result<(), Status> {
        match self.admit(intent, ticket) {
            Admission::Fail(status, _) => return Err(status),
            Admission::Later(_) => self.wait(ticket)?,
            Admission::Now | Admission::NowThenSettle(_) | Admission::NotBefore(_) => {}
        }
        self.volume.execute(op)?;
        if intent.kind != OpKind::Read && self.volume.settle(ticket)? == Settled::Later {
            self.wait(ticket)?;
        }
        Ok(())
    }

    fn read(&mut self, lba: u64, blocks: u64) -> Result<Vec<u8>, Status> {
        let mut buffer = vec![0xEE; blocks as usize * 512];
        let extent = extent(lba, blocks);
        let dest = ReadDest::Copy(&mut buffer);
        self.run(&intent(DataUse::Read, &[extent]), Op::Read { extent, dest })?;
        Ok(buffer)
    }

    fn write(&mut self, lba: u64, data: &[u8]) -> Result<(), Status> {
        let extent = extent(lba, data.len() as u64 / 512);
        let op = Op::Write { extent, data };
        self.run(&intent(DataUse::Overwrite, &[extent]), op)
    }

    fn discard(&mut self, lba: u64, blocks: u64) -> Result<(), Status> {
        let extent = extent(lba, blocks);
        let op = Op::Discard { extent };
        self.run(&intent(DataUse::Erase, &[extent]), op)
    }

    fn flush(&mut self) -> Result<(), Status> {
        self.run(&intent(DataUse::Flush, &[]), Op::Flush)
    }

    /// Writes, durably, until the thread itself has commands on the volumes below. Their bytes are
    /// zeros.
    fn settle_in(&mut self) {
        let here = Some(thread::current().id());
        for _ in 0..2000 {
            self.flush().expect("flushes");
            if self.reports.reporter() == here {
                return;
            }
            thread::sleep(Duration::from_millis(1));
        }
        panic!("the lane has no jobs");
    }

    /// Begins a read of a block that is not in memory.
    fn begin_read(&mut self, lba: u64) -> Ticket {
        let ticket = self.ticket();
        let extents = [extent(lba, 1)];
        let admitted = self.admit(&intent(DataUse::Read, &extents), ticket);
        assert_eq!(admitted, Admission::Later(None));
        ticket
    }
}

fn intent(data_use: DataUse, extents: &[Extent]) -> Intent<'_> {
    let kind = match data_use {
        DataUse::Read => OpKind::Read,
        DataUse::Erase => OpKind::Discard,
        DataUse::Flush => OpKind::Flush,
        _ => OpKind::Write,
    };
    Intent {
        kind,
        extents,
        len_bytes: 0,
        data_use,
        persistence: Persistence::Volatile,
    }
}

fn spec(kind: VolumeKind) -> VolumeSpec {
    VolumeSpec {
        size: ByteSize(BLOCKS * 512),
        block_size: BlockSize::B512,
        kind,
    }
}

fn cache(mode: CacheMode) -> VolumeKind {
    VolumeKind::Cache {
        of: ["below0".to_owned()],
        settings: CacheSettings {
            size: ByteSize(MIB),
            mode,
            block: CacheSettings::BLOCK_DEFAULT,
            bypass: ByteSize(0),
        },
    }
}

fn mirror() -> VolumeKind {
    VolumeKind::Mirror {
        members: vec!["below0".to_owned(), "below1".to_owned()],
        resync_rate: None,
    }
}

fn slow_reads(latency: Duration) -> FilterSpec {
    FilterSpec {
        delay: Some(Delay {
            latency: Latency {
                read: latency,
                ..Latency::default()
            },
            bytes_per_second: None,
        }),
        ..FilterSpec::default()
    }
}

#[test]
fn a_thread_with_a_lane_completes_misses_itself() {
    for kind in [Kind::CacheOfRam, Kind::CacheOfFile, Kind::MirrorOfFiles] {
        let mut fixture = Fixture::new(kind, CacheMode::WriteThrough);
        fixture.settle_in();
        let here = Some(thread::current().id());
        for number in 0..200_u64 {
            let lba = number * 8;
            fixture.write(lba, &[number as u8; 512]).expect("writes");
            assert_eq!(fixture.reports.reporter(), here, "{kind:?}: a write");
            assert_eq!(fixture.read(lba, 1), Ok(vec![number as u8; 512]));
            assert_eq!(fixture.reports.reporter(), here, "{kind:?}: a read");
        }
    }
}

#[test]
fn a_delay_of_the_volume_below_ends_in_the_lane() {
    let mut fixture = Fixture::new(Kind::CacheOfRam, CacheMode::WriteThrough);
    fixture.settle_in();
    let latency = Duration::from_millis(30);
    fixture.filter(slow_reads(latency));
    let start = Instant::now();
    assert_eq!(fixture.read(64, 1), Ok(vec![0; 512]));
    assert!(start.elapsed() >= latency, "{:?}", start.elapsed());
    assert_eq!(fixture.reports.reporter(), Some(thread::current().id()));
}

#[test]
fn errors_of_the_volume_below_are_those_of_commands() {
    let mut fixture = Fixture::new(Kind::CacheOfRam, CacheMode::WriteThrough);
    fixture.settle_in();
    let rule = FaultRule {
        kind: Some(OpKind::Read),
        status: FaultStatus::ReadError,
        when: FaultWhen::EveryNth(NonZeroU64::MIN),
    };
    fixture.filter(FilterSpec {
        fault: Some(Fault::new(0, vec![rule]).expect("one rule")),
        ..FilterSpec::default()
    });
    assert_eq!(fixture.read(64, 1), Err(Status::ReadError));
    fixture.filter(FilterSpec::default());
    assert_eq!(fixture.read(64, 1), Ok(vec![0; 512]));
}

#[test]
fn what_a_lane_has_begun_goes_on_when_it_ends() {
    let mut fixture = Fixture::new(Kind::CacheOfRam, CacheMode::WriteThrough);
    fixture.settle_in();
    fixture.filter(slow_reads(Duration::from_millis(50)));
    // More than can be begun at a time.
    let tickets: Vec<_> = (0..100).map(|at| fixture.begin_read(at * 8)).collect();
    let mut turns = 0;
    let mut reactor = fixture.reactor.take().expect("it has one");
    reactor.run(|| {
        turns += 1;
        (turns > 1).then_some(())
    });
    let not_begun = fixture.begin_read(2000);
    drop(reactor);
    for ticket in tickets.into_iter().chain([not_begun]) {
        assert_eq!(fixture.wait(ticket), Ok(()));
        fixture.volume.release(ticket);
    }
    assert_ne!(fixture.reports.reporter(), Some(thread::current().id()));
    assert_eq!(fixture.read(3000, 1), Ok(vec![0; 512]));
}

#[test]
fn a_removal_waits_for_what_a_lane_has_begun_and_frees_its_memory() {
    for kind in [Kind::CacheOfRam, Kind::MirrorOfFiles] {
        let mut fixture = Fixture::new(kind, CacheMode::WriteBack);
        fixture.settle_in();
        fixture.filter(slow_reads(Duration::from_millis(50)));
        let ticket = fixture.begin_read(64);
        let mut reactor = fixture.reactor.take().expect("it has one");
        let removed = fixture.ticket();
        thread::scope(|scope| {
            scope.spawn(|| {
                fixture.volume.remove();
                fixture.reports.done(Completion {
                    ticket: removed,
                    result: Ok(()),
                });
            });
            assert_eq!(reactor.wait(removed), Ok(()));
        });
        // A removal flushes first, which may take longer than the read.
        let read = fixture.wait(ticket);
        assert!(matches!(read, Ok(()) | Err(Status::Gone)), "{read:?}");
        fixture.volume.release(ticket);
        for below in &fixture.below {
            below.remove();
        }
        drop(reactor);
        let Fixture {
            budget,
            below,
            volume,
            ..
        } = fixture;
        drop((below, volume));
        assert_eq!(budget.used_bytes(), 0, "{kind:?}");
    }
}

#[test]
fn the_thread_of_a_lane_removes_a_volume_without_waiting_for_itself() {
    let mut fixture = Fixture::new(Kind::CacheOfFile, CacheMode::WriteThrough);
    fixture.settle_in();
    let start = Instant::now();
    fixture.volume.storage().close();
    assert!(start.elapsed() < LANES_WAIT);
    assert_eq!(fixture.read(0, 1), Err(Status::Gone));
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Write { lba: u64, blocks: u64, byte: u8 },
    Read { lba: u64, blocks: u64 },
    Discard { lba: u64, blocks: u64 },
    Flush,
    EndLane,
}

fn step() -> impl Strategy<Value = Step> {
    let extent = (0..BLOCKS - 300, 1..300_u64);
    prop_oneof![
        5 => (extent.clone(), any::<u8>()).prop_map(|((lba, blocks), byte)| Step::Write {
            lba,
            blocks,
            byte
        }),
        5 => extent.clone().prop_map(|(lba, blocks)| Step::Read { lba, blocks }),
        1 => extent.prop_map(|(lba, blocks)| Step::Discard { lba, blocks }),
        1 => Just(Step::Flush),
        1 => Just(Step::EndLane),
    ]
}

fn play(fixture: &mut Fixture, model: &mut [u8], step: Step) {
    let bytes = |lba: u64, blocks: u64| lba as usize * 512..(lba + blocks) as usize * 512;
    match step {
        Step::Write { lba, blocks, byte } => {
            let data = vec![byte; blocks as usize * 512];
            fixture.write(lba, &data).expect("writes");
            model[bytes(lba, blocks)].copy_from_slice(&data);
        }
        Step::Read { lba, blocks } => {
            let read = fixture.read(lba, blocks).expect("reads");
            assert!(read == model[bytes(lba, blocks)], "a read of {lba}");
        }
        Step::Discard { lba, blocks } => {
            fixture.discard(lba, blocks).expect("discards");
            model[bytes(lba, blocks)].fill(0);
        }
        Step::Flush => fixture.flush().expect("flushes"),
        Step::EndLane => {
            fixture.reactor = match fixture.reactor.take() {
                Some(_) => None,
                None => Some(TestReactor::new(&fixture.lanes, &fixture.reports)),
            };
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(block::testing::cases(16)))]

    #[test]
    fn lanes_that_begin_and_end_lose_nothing(
        kind in prop_oneof![
            Just(Kind::CacheOfRam),
            Just(Kind::CacheOfFile),
            Just(Kind::MirrorOfFiles)
        ],
        mode in prop_oneof![Just(CacheMode::WriteThrough), Just(CacheMode::WriteBack)],
        steps in proptest::collection::vec(step(), 1..60),
        settles_in in any::<bool>(),
    ) {
        let mut fixture = Fixture::new(kind, mode);
        if settles_in {
            fixture.settle_in();
        }
        let mut model = vec![0; BLOCKS as usize * 512];
        for step in steps {
            play(&mut fixture, &mut model, step);
        }
        for lba in (0..BLOCKS).step_by(256) {
            play(&mut fixture, &mut model, Step::Read { lba, blocks: 256 });
        }
    }
}
