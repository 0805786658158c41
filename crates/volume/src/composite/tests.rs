//! Linear and striped volumes against a vector, over members in memory and members that answer
//! late, in any order and with failures.

use std::collections::BTreeMap;
use std::time::Duration;

use block::testing::LateVolume;
use block::{Completion, Completions as _, DataUse, OpKind, Persistence, Unmap};
use memory::{Budget, Provision};
use proptest::prelude::*;
use proptest::sample::Index;

use super::*;
use crate::filters::{Delay, FilterSpec, Latency};
use crate::testing::io::{Reports, no_progress, read, write};
use crate::{Availability, Managed, Origin, RamVolume, Relay, WriteLock, create_composite};

/// The smallest volume.
const MEMBER_BLOCKS: u64 = 2048;
const MIB: u64 = 1 << 20;

/// What an operation of a test does, on up to 48 blocks.
#[derive(Clone, Copy, Debug)]
enum Work {
    Read,
    Write,
    Zero(Unmap),
    Discard,
    Flush,
    Verify,
    Compare { is_equal: bool },
    CompareAndWrite { is_equal: bool },
    Copy { to: Index },
}

#[derive(Clone, Debug)]
enum Step {
    Begin(Work, Index, u64),
    /// A member completes one of what it has to do.
    Complete(Index, Index, bool),
    /// A linear volume gets another member.
    Grow,
}

struct Outstanding {
    work: Work,
    extent: Extent,
    /// The destination of a copy.
    to: Lba,
    is_executed: bool,
}

/// A composite, what its members and its sessions see, and a model.
struct Fixture {
    relay: Arc<Relay>,
    reports: Arc<Reports>,
    volume: Arc<dyn ManagedVolume>,
    late: Vec<Arc<Managed<LateVolume>>>,
    /// Members that a linear volume gets later.
    later: Vec<Member>,
    model: Vec<u8>,
    outstanding: BTreeMap<Ticket, Outstanding>,
    slot: u32,
    fill: u8,
}

fn ram(blocks: u64) -> Arc<dyn ManagedVolume> {
    let budget = Arc::new(Budget::new(64 * MIB));
    let geometry = Geometry::new(BlockSize::B512, Blocks(blocks));
    let ram = RamVolume::new(geometry, Provision::Thin, &budget, &mut no_progress);
    Arc::new(Managed::new(ram.expect("fits")))
}

fn late(blocks: u64) -> Arc<Managed<LateVolume>> {
    Arc::new(Managed::new(LateVolume::new(BlockSize::B512, blocks)))
}

fn member(index: usize, volume: Arc<dyn ManagedVolume>) -> Member {
    Member {
        name: format!("m{index}"),
        volume,
    }
}

fn linear(count: usize) -> VolumeKind {
    let members = (0..count).map(|index| format!("m{index}")).collect();
    VolumeKind::Linear { members }
}

fn stripe(count: usize, unit: u64) -> VolumeKind {
    let members = (0..count).map(|index| format!("m{index}")).collect();
    let unit = ByteSize(unit);
    VolumeKind::Stripe { members, unit }
}

fn create(
    kind: VolumeKind,
    members: Vec<Member>,
    relay: &Arc<Relay>,
) -> Result<Arc<dyn ManagedVolume>, VolumeError> {
    let sizes: Vec<_> = members.iter().map(Member::size).collect();
    let spec = VolumeSpec {
        size: kind.size_over(&sizes)?,
        block_size: BlockSize::B512,
        kind,
    };
    let platform = Platform {
        budget: Arc::new(Budget::new(MIB)),
        relay: Arc::clone(relay),
        lanes: Arc::default(),
        record: None,
    };
    create_composite(&spec, members, Origin::New, &platform)
}

impl Fixture {
    /// Of members of which the bits of `late_set` answer late. A linear volume gets those after the
    /// first `begun` later.
    fn new(kind: VolumeKind, late_set: u8, begun: usize) -> Self {
        let reports = Arc::<Reports>::default();
        let relay = Relay::new(Arc::clone(&reports) as _);
        let mut lates = Vec::new();
        let members = (0..kind.parents().len()).map(|index| {
            if late_set >> index & 1 == 0 {
                return member(index, ram(MEMBER_BLOCKS));
            }
            let volume = late(MEMBER_BLOCKS);
            lates.push(Arc::clone(&volume));
            member(index, volume)
        });
        let mut members: Vec<_> = members.collect();
        let mut later = Vec::new();
        let kind = match kind {
            VolumeKind::Linear { members: names } => {
                later = members.split_off(begun.min(names.len()));
                linear(members.len())
            }
            striped => striped,
        };
        let volume = create(kind, members, &relay).expect("the members fit");
        Self {
            later,
            relay,
            reports,
            model: vec![0; volume.geometry().len_bytes() as usize],
            volume,
            late: lates,
            outstanding: BTreeMap::new(),
            slot: 0,
            fill: 0,
        }
    }

    fn grow(&mut self) {
        if self.later.is_empty() {
            return;
        }
        let extendable = self.volume.storage().extendable().expect("it is linear");
        let added = extendable.add_member(self.later.remove(0));
        added.expect("members of any kind");
        self.model
            .resize(self.volume.geometry().len_bytes() as usize, 0);
    }

    fn begin(&mut self, work: Work, at: Index, blocks: u64) {
        let last = self.volume.geometry().blocks.0 - blocks;
        // Around the boundaries of members and units, most of the time.
        let lba = (at.index(1 + last as usize / 8) as u64 * 8 + 5).min(last);
        let extent = Extent::new(Lba(lba), Blocks(blocks));
        let to = match work {
            Work::Copy { to } => Lba((lba + to.index(64) as u64).saturating_sub(32).min(last)),
            _ => extent.lba,
        };
        self.slot += 1;
        let ticket = Ticket {
            connection: Ticket::CONNECTIONS_MIN,
            slot: self.slot,
            generation: 7,
        };
        let both = [Extent::new(to, extent.blocks), extent];
        let (kind, extents, data_use) = match work {
            Work::Read | Work::Compare { .. } => (OpKind::Read, &both[1..], DataUse::Read),
            Work::Verify => (OpKind::Read, &both[1..], DataUse::Verify),
            Work::Write => (OpKind::Write, &both[1..], DataUse::Overwrite),
            Work::CompareAndWrite { .. } => (OpKind::Write, &both[1..], DataUse::Modify),
            Work::Zero(_) => (OpKind::Write, &both[1..], DataUse::Erase),
            Work::Discard => (OpKind::Discard, &both[1..], DataUse::Erase),
            Work::Flush => (OpKind::Flush, &both[2..], DataUse::Flush),
            Work::Copy { .. } => (OpKind::Write, &both[..], DataUse::Copy),
        };
        let intent = Intent {
            kind,
            extents,
            len_bytes: 0,
            data_use,
            persistence: Persistence::Volatile,
        };
        let command = Outstanding {
            work,
            extent,
            to,
            is_executed: false,
        };
        match self.volume.admit(Instant::now(), &intent, ticket) {
            Admission::Now => self.execute(&command),
            Admission::Later(None) => {
                self.outstanding.insert(ticket, command);
            }
            Admission::NowThenSettle(None) => {
                self.outstanding.insert(ticket, command);
                self.resume(ticket, Ok(()));
            }
            other => panic!("{other:?}"),
        }
    }

    /// A late member completes one of its steps.
    fn complete(&mut self, which: Index, what: Index, is_ok: bool) {
        let waits: Vec<_> = self
            .late
            .iter()
            .filter(|m| !m.volume().waiting().is_empty())
            .collect();
        if waits.is_empty() {
            return;
        }
        let member = which.get(&waits).volume();
        let ticket = *what.get(&member.waiting());
        let result = if is_ok {
            Ok(())
        } else {
            Err(Status::WriteError)
        };
        self.relay.done(member.complete(ticket, result));
        for Completion { ticket, result } in self.reports.take() {
            self.resume(ticket, result);
        }
    }

    fn resume(&mut self, ticket: Ticket, result: Result<(), Status>) {
        let mut command = self.outstanding.remove(&ticket).expect("it waits");
        let is_read = matches!(
            command.work,
            Work::Read | Work::Verify | Work::Compare { .. }
        );
        if result.is_ok() && !command.is_executed {
            self.execute(&command);
            command.is_executed = true;
            if !is_read && self.volume.settle(ticket) == Ok(Settled::Later) {
                self.outstanding.insert(ticket, command);
                return;
            }
        }
        self.volume.release(ticket);
    }

    fn execute(&mut self, command: &Outstanding) {
        let extent = command.extent;
        let range = |lba: Lba| {
            let start = lba.0 as usize * 512;
            start..start + extent.blocks.0 as usize * 512
        };
        let at = range(extent.lba);
        self.fill = self.fill.wrapping_add(1).max(1);
        let len = at.len();
        let data: Vec<_> = (0..len).map(|byte| self.fill ^ (byte >> 9) as u8).collect();
        let volume = Arc::clone(&self.volume);
        match command.work {
            Work::Read => {
                let mut buffer = vec![0xEE; len];
                let dest = ReadDest::Copy(&mut buffer);
                volume.execute(Op::Read { extent, dest }).expect("in range");
                assert!(buffer == self.model[at], "{extent:?} differs");
            }
            Work::Write => {
                let data = &data[..];
                volume
                    .execute(Op::Write { extent, data })
                    .expect("in range");
                self.model[at].copy_from_slice(data);
            }
            Work::Zero(unmap) => {
                volume
                    .execute(Op::WriteZeroes { extent, unmap })
                    .expect("in range");
                self.model[at].fill(0);
            }
            Work::Discard => {
                volume.execute(Op::Discard { extent }).expect("in range");
                self.model[at].fill(0);
            }
            Work::Flush => volume.execute(Op::Flush).expect("nothing fails"),
            Work::Verify => volume.execute(Op::Verify { extent }).expect("in range"),
            Work::Compare { is_equal } | Work::CompareAndWrite { is_equal } => {
                self.compare(command, &data, is_equal);
            }
            Work::Copy { .. } => {
                let (from, to) = (extent, command.to);
                volume.execute(Op::Copy { from, to }).expect("in range");
                self.model.copy_within(at, range(to).start);
            }
        }
    }

    /// Compares what is there, or what differs in one byte, and perhaps writes `data` then.
    fn compare(&mut self, command: &Outstanding, data: &[u8], is_equal: bool) {
        let extent = command.extent;
        let start = extent.lba.0 as usize * 512;
        let at = start..start + data.len();
        let mut expected = self.model[at.clone()].to_vec();
        let mut result = Ok(());
        if !is_equal {
            let byte = data.len() - 1 - usize::from(self.fill);
            expected[byte] ^= 0x80;
            let offset_bytes = byte as u64;
            result = Err(Status::Miscompare { offset_bytes });
        }
        let op = if matches!(command.work, Work::Compare { .. }) {
            Op::Compare {
                extent,
                data: &expected,
            }
        } else {
            Op::CompareAndWrite {
                extent,
                compare: &expected,
                write: data,
            }
        };
        let writes = matches!(op, Op::CompareAndWrite { .. });
        assert_eq!(self.volume.execute(op), result);
        if writes && is_equal {
            self.model[at].copy_from_slice(data);
        }
    }

    /// Completes everything, and compares the contents.
    fn finish(mut self) {
        while !self.outstanding.is_empty() {
            let first = first_index();
            self.complete(first, first, true);
        }
        for member in &self.late {
            assert_eq!(member.volume().leases(), 0);
            member
                .volume()
                .set_lateness(block::testing::Lateness::Never);
        }
        let blocks = self.volume.geometry().blocks.0;
        assert!(
            read(&*self.volume, 0, blocks) == self.model,
            "the contents differ"
        );
    }
}

fn first_index() -> Index {
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let tree = any::<Index>().new_tree(&mut runner);
    proptest::strategy::ValueTree::current(&tree.expect("any index"))
}

fn works() -> impl Strategy<Value = Work> {
    prop_oneof![
        3 => Just(Work::Read),
        6 => Just(Work::Write),
        1 => Just(Work::Zero(Unmap::Allowed)),
        1 => Just(Work::Zero(Unmap::Forbidden)),
        1 => Just(Work::Discard),
        1 => Just(Work::Flush),
        1 => Just(Work::Verify),
        2 => any::<bool>().prop_map(|is_equal| Work::Compare { is_equal }),
        4 => any::<bool>().prop_map(|is_equal| Work::CompareAndWrite { is_equal }),
        4 => any::<Index>().prop_map(|to| Work::Copy { to }),
    ]
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let begin = (works(), any::<Index>(), 1_u64..48);
    let complete = (any::<Index>(), any::<Index>(), prop::bool::weighted(0.95));
    let step = prop_oneof![
        8 => begin.prop_map(|(work, at, blocks)| Step::Begin(work, at, blocks)),
        8 => complete.prop_map(|(which, what, is_ok)| Step::Complete(which, what, is_ok)),
        1 => Just(Step::Grow),
    ];
    prop::collection::vec(step, 1..120)
}

fn kinds() -> impl Strategy<Value = VolumeKind> {
    prop_oneof![
        (1_usize..5).prop_map(linear),
        (2_usize..5, 12_u32..15).prop_map(|(count, shift)| stripe(count, 1 << shift)),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(block::testing::cases(96)))]

    #[test]
    fn a_composite_does_what_a_vector_does(
        kind in kinds(),
        late_set in prop_oneof![Just(0), 0_u8..16],
        begun in 1_usize..4,
        steps in steps(),
    ) {
        let mut fixture = Fixture::new(kind, late_set, begun);
        for step in steps {
            match step {
                Step::Begin(work, at, blocks) => fixture.begin(work, at, blocks),
                Step::Complete(which, what, is_ok) => fixture.complete(which, what, is_ok),
                Step::Grow => fixture.grow(),
            }
        }
        fixture.finish();
    }
}

/// A linear volume of these, of 1 MiB each.
fn linear_of(volumes: Vec<Arc<dyn ManagedVolume>>) -> Arc<dyn ManagedVolume> {
    let kind = linear(volumes.len());
    let members = volumes.into_iter().enumerate();
    let members = members
        .map(|(index, volume)| member(index, volume))
        .collect();
    let relay = Relay::new(Arc::<Reports>::default());
    create(kind, members, &relay).expect("the members fit")
}

fn add(to: &Arc<dyn ManagedVolume>, new: Arc<dyn ManagedVolume>) -> Result<(), VolumeError> {
    let extendable = to.storage().extendable();
    extendable
        .expect("it is made of others")
        .add_member(member(9, new))
}

#[test]
fn a_linear_volume_grows_while_it_is_used() {
    let volume = linear_of(vec![ram(MEMBER_BLOCKS)]);
    write(&*volume, MEMBER_BLOCKS - 1, &[1; 512]).expect("in range");
    let beyond = write(&*volume, MEMBER_BLOCKS - 1, &[2; 1024]);
    assert_eq!(beyond, Err(Status::LbaOutOfRange));
    add(&volume, ram(MEMBER_BLOCKS)).expect("it fits");
    write(&*volume, MEMBER_BLOCKS - 1, &[3; 1024]).expect("it has grown");
    assert_eq!(volume.storage().spec().size, ByteSize(2 * MIB));
    assert_eq!(read(&*volume, MEMBER_BLOCKS - 2, 3)[512..], [3; 1024]);
    let mixed = linear_of(vec![late(MEMBER_BLOCKS), ram(MEMBER_BLOCKS)]);
    assert!(mixed.pinned().is_none());
    add(&mixed, ram(MEMBER_BLOCKS)).expect("it fits");
    let relay = Relay::new(Arc::<Reports>::default());
    let two = vec![member(0, ram(MEMBER_BLOCKS)), member(1, ram(MEMBER_BLOCKS))];
    let striped = create(stripe(2, 4096), two, &relay).expect("they fit");
    let added = add(&striped, ram(MEMBER_BLOCKS));
    assert!(matches!(added, Err(VolumeError::NotLinear)), "{added:?}");
}

fn ask(volume: &dyn ManagedVolume, kind: OpKind, lba: u64, slot: u32) -> (Admission, Ticket) {
    let (data_use, extents) = match kind {
        OpKind::Read => (DataUse::Read, [Extent::new(Lba(lba), Blocks(2))]),
        _ => (DataUse::Overwrite, [Extent::new(Lba(lba), Blocks(2))]),
    };
    let intent = Intent {
        kind,
        extents: &extents,
        len_bytes: 1024,
        data_use,
        persistence: Persistence::Volatile,
    };
    let ticket = Ticket {
        connection: Ticket::CONNECTIONS_MIN,
        slot,
        generation: 0,
    };
    (volume.admit(Instant::now(), &intent, ticket), ticket)
}

#[test]
fn commands_wait_for_a_member_that_was_added_to_memory_and_for_no_other() {
    let volume = linear_of(vec![ram(MEMBER_BLOCKS)]);
    // This one begins before and ends after.
    let (admission, before) = ask(&*volume, OpKind::Write, 0, 0);
    assert_eq!(admission, Admission::Now);
    let slow = late(MEMBER_BLOCKS);
    add(&volume, Arc::clone(&slow) as _).expect("of any kind");
    write(&*volume, 0, &[1; 1024]).expect("in range");
    assert_eq!(volume.settle(before), Ok(Settled::Done));
    volume.release(before);

    assert_eq!(ask(&*volume, OpKind::Read, 0, 1).0, Admission::Now);
    let memory = volume.pinned().expect("sessions go on to send from memory");
    let range = ByteRange {
        offset: 0,
        len: 1024,
    };
    let mut pinned_bytes = 0;
    memory.pin(range, &mut |span| pinned_bytes += span.len);
    memory.unpin(range);
    assert_eq!(pinned_bytes, 1024);

    // Across both.
    let (admission, waits) = ask(&*volume, OpKind::Read, MEMBER_BLOCKS - 1, 2);
    assert_eq!(admission, Admission::Later(None));
    assert_eq!(slow.volume().waiting().len(), 1);
    volume.release(waits);
}

#[test]
fn data_of_an_added_member_that_cannot_be_pinned_are_copied() {
    let volume = linear_of(vec![ram(MEMBER_BLOCKS)]);
    let unpinned = late(MEMBER_BLOCKS);
    unpinned
        .volume()
        .set_lateness(block::testing::Lateness::Never);
    assert!(unpinned.pinned().is_none());
    add(&volume, unpinned).expect("of any kind");
    let (admission, ticket) = ask(&*volume, OpKind::Read, MEMBER_BLOCKS, 0);
    assert_eq!(
        admission,
        Admission::NowThenSettle(None),
        "a lease, so that sessions copy"
    );
    volume.release(ticket);
    let (admission, _) = ask(&*volume, OpKind::Write, MEMBER_BLOCKS, 1);
    assert_eq!(admission, Admission::Now);
}

#[test]
fn a_volume_is_offline_or_locked_if_a_member_is() {
    let members = [ram(MEMBER_BLOCKS), ram(MEMBER_BLOCKS)];
    let volume = linear_of(members.to_vec());
    assert!(volume.is_ready() && !volume.is_read_only());
    members[1]
        .controls()
        .set_availability(Availability::Offline);
    assert!(!volume.is_ready());
    let problem = volume.storage().problem();
    assert_eq!(problem.as_deref(), Some("member m1 is offline"));
    assert_eq!(
        write(&*volume, MEMBER_BLOCKS, &[1; 512]),
        Err(Status::NotReady)
    );
    members[1].controls().set_availability(Availability::Online);
    members[0].controls().set_write_lock(WriteLock::ReadOnly);
    assert!(volume.is_read_only());
    let across = Op::CompareAndWrite {
        extent: Extent::new(Lba(MEMBER_BLOCKS - 1), Blocks(2)),
        compare: &[0; 1024],
        write: &[1; 1024],
    };
    assert_eq!(volume.execute(across), Err(Status::WriteProtected));
    assert_eq!(read(&*volume, MEMBER_BLOCKS, 1), [0; 512]);
}

#[test]
fn a_snapshot_of_a_member_shows_it_alone_and_makes_discards_copy() {
    let members = [ram(MEMBER_BLOCKS), ram(MEMBER_BLOCKS)];
    let volume = linear_of(members.to_vec());
    write(&*volume, MEMBER_BLOCKS, &[1; 512]).expect("in range");
    assert!(!volume.copies_discarded());
    let spec = VolumeSpec {
        kind: VolumeKind::Snapshot {
            of: "m1".to_owned(),
        },
        ..members[1].storage().spec()
    };
    let taken = crate::take_snapshots(&[(&spec, &*members[1])]).expect("of RAM");
    write(&*volume, MEMBER_BLOCKS, &[2; 512]).expect("in range");
    assert!(volume.copies_discarded());
    assert_eq!(read(&*taken[0], 0, 1), [1; 512]);
}

#[test]
fn a_pin_holds_the_bytes_of_every_member_in_order() {
    let relay = Relay::new(Arc::<Reports>::default());
    let two = vec![member(0, ram(MEMBER_BLOCKS)), member(1, ram(MEMBER_BLOCKS))];
    let volume = create(stripe(2, 4096), two, &relay).expect("they fit");
    let memory = volume.pinned().expect("RAM alone");
    let mut lens = Vec::new();
    // What is left of a range that was sent in part begins inside a block.
    let range = ByteRange {
        offset: 100,
        len: 10_000,
    };
    memory.pin(range, &mut |span| lens.push(span.len));
    memory.unpin(range);
    assert_eq!(lens, [3996, 4096, 1908]);
    write(&*volume, 0, &[1; 8192]).expect("nothing is pinned any more");
}

#[test]
fn filters_of_members_act_on_their_parts() {
    let members = [ram(MEMBER_BLOCKS), ram(MEMBER_BLOCKS)];
    let volume = linear_of(members.to_vec());
    let latency = Latency {
        read: Duration::from_millis(5),
        ..Latency::default()
    };
    let spec = FilterSpec {
        delay: Some(Delay {
            latency,
            bytes_per_second: None,
        }),
        ..FilterSpec::default()
    };
    members[1].controls().set_filters(spec);
    let admit = |lba| {
        let now = Instant::now();
        let intent = Intent {
            kind: OpKind::Read,
            extents: &[Extent::new(Lba(lba), Blocks(1))],
            len_bytes: 512,
            data_use: DataUse::Read,
            persistence: Persistence::Volatile,
        };
        let ticket = Ticket {
            connection: Ticket::CONNECTIONS_MIN,
            slot: 0,
            generation: 0,
        };
        (volume.admit(now, &intent, ticket), now)
    };
    assert_eq!(admit(0).0, Admission::Now);
    let (delayed, now) = admit(MEMBER_BLOCKS);
    assert_eq!(
        delayed,
        Admission::NotBefore(now + Duration::from_millis(5))
    );
}

#[test]
fn what_does_not_fit_is_refused_and_offline_after_a_restart() {
    let platform = Platform {
        budget: Arc::new(Budget::new(MIB)),
        relay: Relay::new(Arc::<Reports>::default()),
        lanes: Arc::default(),
        record: None,
    };
    let spec = VolumeSpec {
        size: ByteSize(3 * MIB),
        block_size: BlockSize::B512,
        kind: linear(2),
    };
    let members = || vec![member(0, ram(MEMBER_BLOCKS)), member(1, ram(MEMBER_BLOCKS))];
    let refused = create_composite(&spec, members(), Origin::New, &platform);
    let told = refused.expect_err("another size").to_string();
    assert_eq!(
        told,
        "size 3 MiB differs from the 2 MiB of its members; leave the size out"
    );
    let restored = create_composite(&spec, members(), Origin::Restored, &platform);
    let restored = restored.expect("it exists all the same");
    assert!(!restored.is_ready());
    assert_eq!(restored.storage().problem(), Some(told));
    assert_eq!(restored.storage().spec(), spec);
}
