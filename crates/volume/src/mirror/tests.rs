//! Mirrors against a vector, over members in memory and members that answer late and fail; failures
//! of members, their return, and what is refused.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU32};
use std::time::Duration;

use ::memory::{Budget, Provision};
use block::testing::{LateVolume, Lateness};
use block::{BlockSize, Blocks, Completions as _, DataUse, Lba, Persistence, Unmap};
use proptest::prelude::*;

use super::*;
use crate::testing::io::{MIB, Reports, no_progress};
use crate::{
    Availability, Cause, Driver, Managed, ManagedVolume, Origin, RamVolume, Relay, Role,
    create_composite,
};

mod changes;
mod restarts;

/// Four regions.
const BLOCKS: u64 = 8192;
/// Nothing takes longer on a loaded machine.
const PATIENCE: Duration = Duration::from_secs(60);

type Late = Arc<Managed<LateVolume>>;

fn ram(blocks: u64) -> Arc<dyn ManagedVolume> {
    let budget = Arc::new(Budget::new(64 * MIB));
    let geometry = Geometry::new(BlockSize::B512, Blocks(blocks));
    let ram = RamVolume::new(geometry, Provision::Thin, &budget, &mut no_progress);
    Arc::new(Managed::new(ram.expect("fits")))
}

/// A mirror and what stands around it.
struct Fixture {
    relay: Arc<Relay>,
    members: Vec<Arc<dyn ManagedVolume>>,
    late: Vec<Late>,
    mirror: Arc<dyn ManagedVolume>,
}

impl Fixture {
    /// Of `count` members, of which the bits of `late_set` answer late.
    fn new(count: usize, late_set: u8) -> Self {
        let relay = Relay::new(Arc::<Reports>::default());
        let mut late = Vec::new();
        let members = (0..count).map(|index| {
            if late_set >> index & 1 == 0 {
                return ram(BLOCKS);
            }
            let volume = Arc::new(Managed::new(LateVolume::new(BlockSize::B512, BLOCKS)));
            volume.volume().set_lateness(Lateness::Never);
            late.push(Arc::clone(&volume));
            volume as _
        });
        let members: Vec<Arc<dyn ManagedVolume>> = members.collect();
        let mirror = mirror_of(&members, &relay).expect("the members fit");
        let fixture = Self {
            relay,
            members,
            late,
            mirror,
        };
        fixture.wait_until_in_sync();
        for late in &fixture.late {
            late.volume().set_lateness(Lateness::Both);
        }
        fixture
    }

    fn mirror(&self) -> &dyn Mirroring {
        self.mirror.storage().mirror().expect("it is one")
    }

    fn driver(&self) -> Driver {
        Driver::new(&self.relay, Arc::clone(&self.mirror), PATIENCE)
    }

    fn member(&self, member: usize) -> MirrorMember {
        self.mirror().info().members[member].clone()
    }

    fn write(&self, lba: u64, byte: u8) -> Result<(), crate::DriveError> {
        let extent = Extent::new(Lba(lba), Blocks(1));
        self.driver()
            .write(extent, &[byte; 512], Persistence::Volatile)
    }

    fn read(&self, lba: u64) -> Result<u8, crate::DriveError> {
        let mut buffer = [0xEE; 512];
        let extent = Extent::new(Lba(lba), Blocks(1));
        self.driver().read(extent, &mut buffer)?;
        Ok(buffer[0])
    }

    /// The first byte of a block on a member itself.
    fn held(&self, member: usize, lba: u64) -> u8 {
        crate::testing::io::read(&*self.members[member], lba, 1)[0]
    }

    /// Two members, both in memory, or both with windows that answer at once.
    fn pairs() -> [Self; 2] {
        let late = Self::new(2, 0b11);
        for late in &late.late {
            late.volume().set_lateness(Lateness::Never);
        }
        [Self::new(2, 0), late]
    }

    /// Waits until every member is in sync; returns those again that stay out of sync.
    fn wait_until_in_sync(&self) {
        let until = Instant::now() + PATIENCE;
        loop {
            let info = self.mirror().info();
            if info
                .members
                .iter()
                .all(|member| member.role == Role::InSync)
            {
                return;
            }
            for member in info.members {
                self.mirror().return_member(&member.name).expect("a member");
            }
            assert!(Instant::now() < until, "{:?}", self.mirror().info());
            thread::sleep(Duration::from_millis(1));
        }
    }
}

fn mirror_of(
    members: &[Arc<dyn ManagedVolume>],
    relay: &Arc<Relay>,
) -> Result<Arc<dyn ManagedVolume>, VolumeError> {
    mirror_in(members, relay, Origin::New, None)
}

fn mirror_in(
    members: &[Arc<dyn ManagedVolume>],
    relay: &Arc<Relay>,
    origin: Origin,
    record: Option<PathBuf>,
) -> Result<Arc<dyn ManagedVolume>, VolumeError> {
    let names = (0..members.len()).map(|index| format!("m{index}"));
    let named = names.clone().zip(members).map(|(name, volume)| Member {
        name,
        volume: Arc::clone(volume),
    });
    let named: Vec<_> = named.collect();
    let kind = VolumeKind::Mirror {
        members: names.collect(),
        resync_rate: None,
    };
    let sizes: Vec<_> = named.iter().map(Member::size).collect();
    let spec = VolumeSpec {
        size: kind.size_over(&sizes)?,
        block_size: BlockSize::B512,
        kind,
    };
    let platform = Platform {
        budget: Arc::new(Budget::new(512 * MIB)),
        relay: Arc::clone(relay),
        lanes: Arc::default(),
        record,
    };
    create_composite(&spec, named, origin, &platform)
}

/// Numbers that a seed determines.
struct Random(u64);

impl Random {
    fn next(&mut self, below: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 16) % below
    }
}

/// What a block may hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Held {
    byte: u8,
    /// What it holds perhaps instead, after commands that failed.
    or: Vec<u8>,
}

/// One client, which uses every `CLIENTS`th group of blocks, and what these may hold.
struct Client {
    driver: Driver,
    random: Random,
    index: u64,
    blocks: Vec<Held>,
}

/// Blocks of a group, so that clients meet in each frame.
const GROUP: u64 = 8;
/// Clients of a mirror.
const CLIENTS: u64 = 3;

impl Client {
    fn new(fixture: &Fixture, index: u64, seed: u64) -> Self {
        Self {
            driver: fixture.driver(),
            random: Random(seed.wrapping_mul(31).wrapping_add(index) | 1),
            index,
            blocks: vec![Held::default(); BLOCKS as usize],
        }
    }

    fn read_all(&mut self) {
        for group in (self.index..BLOCKS / GROUP).step_by(CLIENTS as usize) {
            self.read(Extent::new(Lba(group * GROUP), Blocks(GROUP)));
        }
    }

    fn extent(&mut self) -> Extent {
        let groups = BLOCKS / GROUP / CLIENTS;
        let group = self.random.next(groups) * CLIENTS + self.index;
        let first = self.random.next(GROUP);
        let len = 1 + self.random.next(GROUP - first);
        Extent::new(Lba(group * GROUP + first), Blocks(len))
    }

    fn step(&mut self) {
        let extent = self.extent();
        let len = extent.blocks.0 as usize * 512;
        let byte = 1 + self.random.next(255) as u8;
        let data = vec![byte; len];
        match self.random.next(12) {
            0..4 => self.read(extent),
            4..7 => {
                let persistence = match self.random.next(4) {
                    0 => Persistence::Durable,
                    _ => Persistence::Volatile,
                };
                let written = self.driver.write(extent, &data, persistence).is_ok();
                self.hold(extent, byte, written);
            }
            7 => {
                let zeroed = self.driver.write_zeroes(extent, Unmap::Allowed).is_ok();
                self.hold(extent, 0, zeroed);
            }
            8 => {
                let op = || Op::Discard { extent };
                let discarded = self.run(OpKind::Discard, DataUse::Erase, &[extent], &op);
                self.hold(extent, 0, discarded.is_ok());
            }
            9 => self.compare_and_write(extent, byte, &data),
            10 => self.copy(extent),
            _ => drop(self.driver.flush()),
        }
    }

    fn run<'a>(
        &mut self,
        kind: OpKind,
        data_use: DataUse,
        extents: &[Extent],
        op: &dyn Fn() -> Op<'a>,
    ) -> Result<(), crate::DriveError> {
        let intent = Intent {
            kind,
            extents,
            len_bytes: extents[0].blocks.0 * 512,
            data_use,
            persistence: Persistence::Volatile,
        };
        self.driver.run(&intent, &mut |volume| volume.execute(op()))
    }

    fn read(&mut self, extent: Extent) {
        let mut buffer = vec![0xEE; extent.blocks.0 as usize * 512];
        if self.driver.read(extent, &mut buffer).is_err() {
            return;
        }
        let first = extent.lba.0 as usize;
        for (block, bytes) in buffer.chunks(512).enumerate() {
            let held = &mut self.blocks[first + block];
            let byte = bytes[0];
            assert!(bytes.iter().all(|each| *each == byte), "a torn block");
            assert!(
                byte == held.byte || held.or.contains(&byte),
                "block {} holds {byte}, not {held:?}",
                first + block
            );
            *held = Held {
                byte,
                or: Vec::new(),
            };
        }
    }

    /// A command that was to make the blocks hold `byte` has ended.
    fn hold(&mut self, extent: Extent, byte: u8, is_done: bool) {
        for block in extent.lba.0..extent.lba.0 + extent.blocks.0 {
            let held = &mut self.blocks[block as usize];
            if is_done {
                *held = Held {
                    byte,
                    or: Vec::new(),
                };
            } else {
                held.or.push(byte);
            }
        }
    }

    /// Whether what all blocks hold is known.
    fn is_known(&self, extent: Extent) -> bool {
        let first = extent.lba.0 as usize;
        let blocks = &self.blocks[first..first + extent.blocks.0 as usize];
        blocks.iter().all(|held| held.or.is_empty())
    }

    fn compare_and_write(&mut self, extent: Extent, byte: u8, write: &[u8]) {
        if !self.is_known(extent) {
            return;
        }
        let first = extent.lba.0 as usize;
        let held = &self.blocks[first..first + extent.blocks.0 as usize];
        let mut compare: Vec<_> = held.iter().flat_map(|held| [held.byte; 512]).collect();
        let is_equal = self.random.next(4) != 0;
        if !is_equal {
            compare[7] ^= 0x80;
        }
        let op = || Op::CompareAndWrite {
            extent,
            compare: &compare,
            write,
        };
        let done = self.run(OpKind::Write, DataUse::Modify, &[extent], &op);
        match done {
            Err(crate::DriveError::Status(Status::Miscompare { offset_bytes })) => {
                assert!(!is_equal && offset_bytes == 7, "{extent:?}");
            }
            Ok(()) => {
                assert!(is_equal, "{extent:?}");
                self.hold(extent, byte, true);
            }
            Err(_) => self.hold(extent, byte, false),
        }
    }

    /// Copies to another place of the same group.
    fn copy(&mut self, from: Extent) {
        if !self.is_known(from) {
            return;
        }
        let group = from.lba.0 / GROUP * GROUP;
        let to = group + self.random.next(GROUP - from.blocks.0 + 1);
        let dest = Extent::new(Lba(to), from.blocks);
        let first = from.lba.0 as usize;
        let held = self.blocks[first..first + from.blocks.0 as usize].to_vec();
        let op = || Op::Copy { from, to: dest.lba };
        let done = self.run(OpKind::Write, DataUse::Copy, &[dest, from], &op);
        for (at, held) in held.iter().enumerate() {
            let block = Extent::new(Lba(to + at as u64), Blocks(1));
            self.hold(block, held.byte, done.is_ok());
        }
    }
}

/// Completes what late members have to do, in any order, until stopped; one of `fails_of`
/// fails if that is not 0.
fn complete(fixture: &Fixture, random: &mut Random, fails_of: &AtomicU32, is_over: &AtomicBool) {
    while !is_over.load(Ordering::Acquire) {
        let mut is_idle = true;
        for late in &fixture.late {
            let waiting = late.volume().waiting();
            if waiting.is_empty() {
                continue;
            }
            is_idle = false;
            let ticket = waiting[random.next(waiting.len() as u64) as usize];
            let of = u64::from(fails_of.load(Ordering::Acquire));
            let result = match of {
                0 => Ok(()),
                of if random.next(of) != 0 => Ok(()),
                _ => Err([Status::WriteError, Status::NotReady, Status::ReadError]
                    [random.next(3) as usize]),
            };
            fixture.relay.done(late.volume().complete(ticket, result));
        }
        if is_idle {
            thread::sleep(Duration::from_micros(20));
        }
    }
}

/// Runs clients while members fail and return, and then compares the members with each other and
/// with what the clients know.
fn play(count: usize, late_set: u8, seed: u64, steps: u64) {
    let fixture = Fixture::new(count, late_set);
    let (fails_of, is_over) = (AtomicU32::new(40), AtomicBool::new(false));
    thread::scope(|scope| {
        let mut random = Random(seed | 1);
        let completer =
            scope.spawn(|| complete(&fixture, &mut Random(!seed | 1), &fails_of, &is_over));
        let clients: Vec<_> = (0..CLIENTS)
            .map(|index| {
                let mut client = Client::new(&fixture, index, seed);
                scope.spawn(move || {
                    (0..steps).for_each(|_| client.step());
                    client
                })
            })
            .collect();
        while clients.iter().any(|client| !client.is_finished()) {
            trouble(&fixture, late_set, &mut random);
        }
        fails_of.store(0, Ordering::Release);
        fixture.wait_until_in_sync();
        let clients = clients
            .into_iter()
            .map(|client| client.join().expect("no panic"));
        for mut client in clients.collect::<Vec<_>>() {
            client.read_all();
        }
        is_over.store(true, Ordering::Release);
        completer.join().expect("no panic");
    });
    for late in &fixture.late {
        assert_eq!(late.volume().leases(), 0);
        late.volume().set_lateness(Lateness::Never);
    }
    let contents = fixture.members.iter().map(|member| contents(&**member));
    let contents: Vec<_> = contents.collect();
    assert!(
        contents.iter().all(|each| *each == contents[0]),
        "members differ"
    );
}

/// Takes a member out, takes one in memory offline for a moment, or returns one.
fn trouble(fixture: &Fixture, late_set: u8, random: &mut Random) {
    let member = random.next(fixture.members.len() as u64) as usize;
    let name = format!("m{member}");
    match random.next(4) {
        0 => drop(fixture.mirror().fail_member(&name)),
        1 if late_set >> member & 1 == 0 => {
            let controls = fixture.members[member].controls();
            controls.set_availability(Availability::Offline);
            thread::sleep(Duration::from_millis(1));
            controls.set_availability(Availability::Online);
        }
        _ => fixture.mirror().return_member(&name).expect("a member"),
    }
    let info = fixture.mirror().info();
    let in_sync = |member: &&MirrorMember| member.role == Role::InSync;
    assert_ne!(info.members.iter().filter(in_sync).count(), 0);
    thread::sleep(Duration::from_millis(random.next(4)));
}

fn contents(volume: &dyn ManagedVolume) -> Vec<u8> {
    crate::testing::io::read(volume, 0, BLOCKS)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, max_shrink_iters: 0, ..ProptestConfig::default() })]

    #[test]
    fn a_mirror_does_what_a_vector_does_while_members_fail_and_return(
        count in 2_usize..5, late_set in prop_oneof![Just(0), 1_u8..16], seed in any::<u64>(),
    ) {
        play(count, late_set & ((1 << count) - 1), seed, 400);
    }
}

/// Blocks of a region.
const REGION: u64 = 2048;

#[test]
fn a_member_that_was_taken_out_is_not_read_and_gets_only_what_it_missed() {
    for fixture in Fixture::pairs() {
        fixture.write(0, 1).expect("both take it");
        fixture.mirror().fail_member("m0").expect("m1 is in sync");
        assert_eq!(fixture.member(0).cause, Some(Cause::Person));
        fixture.write(REGION, 2).expect("m1 takes it");
        fixture.write(3 * REGION, 3).expect("m1 takes it");
        assert_eq!((fixture.read(REGION), fixture.held(0, REGION)), (Ok(2), 0));
        assert_eq!(fixture.member(0).missing_bytes, 2 * MIB);
        let before = fixture.mirror().info().resynced_bytes;
        fixture.mirror().return_member("m0").expect("a member");
        fixture.wait_until_in_sync();
        assert_eq!(
            (fixture.held(0, REGION), fixture.held(0, 3 * REGION)),
            (2, 3)
        );
        assert_eq!(fixture.mirror().info().resynced_bytes - before, 2 * MIB);
    }
}

#[test]
fn the_last_good_copy_stays_in_use_whatever_happens_to_it() {
    for fixture in Fixture::pairs() {
        fixture.mirror().fail_member("m1").expect("m0 is in sync");
        let told = fixture
            .mirror()
            .fail_member("m0")
            .expect_err("nothing is left");
        insta::allow_duplicates! {
            insta::assert_snapshot!(told, @"m0 has the only good copy of the mirror; wait until another member is in sync, or return one");
        }
        let controls = fixture.members[0].controls();
        controls.set_availability(Availability::Offline);
        assert!(!fixture.mirror.is_ready());
        let problem = fixture.mirror.storage().problem();
        assert_eq!(problem.as_deref(), Some("member m0 is offline"));
        assert!(fixture.write(0, 1).is_err() && fixture.read(0).is_err());
        controls.set_availability(Availability::Online);
        assert_eq!(fixture.member(0).role, Role::InSync);
        fixture.write(0, 2).expect("it is there again");
        assert_eq!(fixture.read(0), Ok(2));
    }
}

#[test]
fn a_member_that_fails_leaves_commands_alone_and_returns_by_itself() {
    for fixture in Fixture::pairs() {
        let controls = fixture.members[0].controls();
        controls.set_availability(Availability::Offline);
        fixture.write(5, 1).expect("m1 takes it");
        assert_eq!(fixture.read(5), Ok(1));
        let member = fixture.member(0);
        assert_eq!(member.role, Role::Absent);
        assert!(member.cause.is_some_and(Cause::passes), "{member:?}");
        controls.set_availability(Availability::Online);
        let until = Instant::now() + PATIENCE;
        while fixture.member(0).role != Role::InSync {
            assert!(Instant::now() < until, "{:?}", fixture.member(0));
            thread::sleep(Duration::from_millis(10));
        }
        assert_eq!(fixture.held(0, 5), 1);
    }
}

#[test]
fn a_block_that_one_member_cannot_read_is_read_from_another_and_written_again() {
    let fixture = Fixture::new(2, 0b11);
    for late in &fixture.late {
        late.volume().set_lateness(Lateness::Never);
    }
    fixture.write(7, 1).expect("both take it");
    let disk = fixture.late[0].volume().disk();
    disk.set_failure(Some(Status::ReadError));
    disk.fill(7 * 512, &[9; 512]);
    // The least busy member is the first one while nothing is in flight.
    assert_eq!(fixture.read(7), Ok(1));
    assert_eq!(
        fixture.member(0).cause,
        Some(Cause::Failed(Status::ReadError))
    );
    disk.set_failure(None);
    fixture.wait_until_in_sync();
    assert_eq!(fixture.held(0, 7), 1);
}

#[test]
fn a_member_that_failed_to_write_waits_for_someone() {
    let fixture = Fixture::new(2, 0b10);
    fixture.late[0].volume().set_lateness(Lateness::Never);
    fixture.late[0]
        .volume()
        .disk()
        .set_failure(Some(Status::WriteError));
    fixture.write(0, 1).expect("m0 takes it");
    fixture.late[0].volume().disk().set_failure(None);
    let member = fixture.member(1);
    assert!(!member.cause.is_some_and(Cause::passes), "{member:?}");
    assert_eq!(member.role, Role::Absent);
}

#[test]
fn what_a_member_may_lose_from_its_cache_is_copied_to_it_again() {
    let relay = Relay::new(Arc::<Reports>::default());
    let late: Vec<_> = (0..2)
        .map(|_| {
            let late = LateVolume::new(BlockSize::B512, BLOCKS);
            late.set_lateness(Lateness::Never);
            late.disk().set_volatile_cache();
            Arc::new(Managed::new(late))
        })
        .collect();
    let members: Vec<_> = late.iter().map(|late| Arc::clone(late) as _).collect();
    let fixture = Fixture {
        mirror: mirror_of(&members, &relay).expect("they fit"),
        relay,
        members,
        late,
    };
    assert_eq!(fixture.mirror.write_cache(), WriteCache::Volatile);
    fixture.wait_until_in_sync();
    fixture.driver().flush().expect("both flush");
    fixture.write(0, 1).expect("both take it");
    fixture.driver().flush().expect("both flush");
    fixture.write(2 * REGION, 2).expect("both take it");
    fixture.mirror().fail_member("m1").expect("m0 is in sync");
    assert_eq!(fixture.member(1).missing_bytes, MIB);
    // Its power failed before it wrote its cache.
    fixture.late[1]
        .volume()
        .disk()
        .fill(2 * REGION as usize * 512, &[0; 512]);
    fixture.wait_until_in_sync();
    assert_eq!(fixture.held(1, 2 * REGION), 2);
}

/// Without exclusion, a copy that read before a write would overwrite it afterwards.
#[test]
fn a_copy_to_a_member_replaces_no_newer_write() {
    const WRITTEN: u64 = 128;
    for fixture in Fixture::pairs() {
        let mut driver = fixture.driver();
        for round in 0..100_u8 {
            fixture.mirror().fail_member("m1").expect("m0 is in sync");
            fixture.write(0, round).expect("m0 takes it");
            thread::scope(|scope| {
                scope.spawn(|| fixture.mirror().return_member("m1").expect("a member"));
                // Each block once, so that no later write hides what a copy did.
                for block in (0..WRITTEN)
                    .cycle()
                    .skip(usize::from(round))
                    .take(WRITTEN as usize)
                {
                    let extent = Extent::new(Lba(block), Blocks(1));
                    let data = [round ^ 0x55; 512];
                    let written = driver.write(extent, &data, Persistence::Volatile);
                    written.expect("a member takes it");
                }
            });
            fixture.wait_until_in_sync();
            let held = fixture.members.iter().map(|member| contents(&**member));
            let held: Vec<_> = held.collect();
            assert!(held[0] == held[1], "members differ in round {round}");
        }
    }
}

#[test]
fn copies_keep_to_the_rate() {
    let fixture = Fixture::new(2, 0);
    fixture.mirror().set_resync_rate(Some(ByteSize(4 * MIB)));
    fixture.mirror().fail_member("m1").expect("m0 is in sync");
    fixture.write(0, 1).expect("m0 takes it");
    let began = Instant::now();
    fixture.wait_until_in_sync();
    // The last piece is not waited for.
    assert!(
        began.elapsed() > Duration::from_millis(230),
        "{:?}",
        began.elapsed()
    );
}

#[test]
fn what_cannot_be_a_mirror_is_refused_and_the_smallest_member_determines_the_size() {
    let relay = Relay::new(Arc::<Reports>::default());
    let told = |sizes: &[u64]| {
        let members: Vec<_> = sizes.iter().map(|blocks| ram(*blocks)).collect();
        mirror_of(&members, &relay).map(|mirror| mirror.geometry().blocks.0)
    };
    assert_eq!(told(&[BLOCKS, 2 * BLOCKS]).expect("they fit"), BLOCKS);
    assert_eq!(
        told(&[2 * BLOCKS, BLOCKS, BLOCKS]).expect("they fit"),
        BLOCKS
    );
    let one = told(&[BLOCKS]).expect_err("too few").to_string();
    assert_eq!(one, "1 members are out of range; name 2 to 8 volumes");
    let nine = told(&[BLOCKS; 9]).expect_err("too many").to_string();
    assert_eq!(nine, "9 members are out of range; name 2 to 8 volumes");
    let larger = Arc::new(Managed::new(LateVolume::new(BlockSize::B4096, BLOCKS)));
    let other = mirror_of(&[ram(BLOCKS), larger], &relay).expect_err("other blocks");
    assert!(
        matches!(other, VolumeError::OtherBlocks { .. }),
        "{other:?}"
    );
    let fixture = Fixture::new(2, 0);
    let resized = fixture
        .mirror
        .storage()
        .resize(ByteSize(MIB), &mut no_progress);
    assert!(
        matches!(resized, Err(VolumeError::SizeOfMembers)),
        "{resized:?}"
    );
    let unknown = fixture
        .mirror()
        .return_member("x")
        .expect_err("no member")
        .to_string();
    assert_eq!(
        unknown,
        "x is no member of the mirror; its members are m0, m1"
    );
}
