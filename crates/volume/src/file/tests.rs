//! File volumes on real files.

use std::thread;

use block::testing::{Folder, VecVolume, skip};
use block::{BlockSize, DataUse, Extent, Lba, OpKind, Persistence, ReadDest, Unmap};
use memory::Budget;
use proptest::prelude::*;

use super::*;
use crate::testing::io::{MIB, Reports, TestReactor, extent, no_progress};
use crate::{LaneRegistry, Relay};

/// A volume, and commands on it one after the other.
struct Fixture {
    volume: FileVolume,
    reports: Arc<Reports>,
    /// If the thread of the commands has a lane.
    reactor: Option<TestReactor>,
    slot: u32,
}

/// Whether the thread that has commands drives the file itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Drives {
    Itself,
    Nothing,
}

fn spec(path: &Path, size_bytes: u64) -> VolumeSpec {
    VolumeSpec {
        size: ByteSize(size_bytes),
        block_size: BlockSize::B512,
        kind: VolumeKind::File {
            path: path.to_owned(),
            provision: Provision::Thin,
        },
    }
}

impl Fixture {
    fn new(path: &Path, size_bytes: u64) -> Self {
        Self::open(path, size_bytes, Origin::New).expect("opens")
    }

    fn open(path: &Path, size_bytes: u64, origin: Origin) -> Result<Self, VolumeError> {
        let budget = Arc::new(Budget::new(64 * MIB));
        Self::with(&spec(path, size_bytes), origin, Drives::Itself, &budget)
    }

    fn with(
        spec: &VolumeSpec,
        origin: Origin,
        drives: Drives,
        budget: &Arc<Budget>,
    ) -> Result<Self, VolumeError> {
        let reports = Arc::<Reports>::default();
        let lanes = Arc::<LaneRegistry>::default();
        let platform = Platform {
            budget: Arc::clone(budget),
            relay: Relay::new(Arc::clone(&reports) as _),
            lanes: Arc::clone(&lanes),
            record: None,
        };
        let volume = FileVolume::open(spec, origin, &platform)?;
        let reactor = (drives == Drives::Itself).then(|| TestReactor::new(&lanes, &reports));
        Ok(Self {
            volume,
            reports,
            reactor,
            slot: 0,
        })
    }

    fn wait(&mut self, ticket: Ticket) -> Result<(), Status> {
        match &mut self.reactor {
            Some(reactor) => reactor.wait(ticket),
            None => self.reports.wait(ticket),
        }
    }

    /// Has commands until the thread's own queue carries them out; whether that comes to be.
    fn settle_in(&mut self) -> bool {
        let here = Some(thread::current().id());
        for _ in 0..2000 {
            self.read(0, 1).expect("reads");
            if self.reports.reporter() == here {
                return true;
            }
            thread::sleep(Duration::from_millis(1));
        }
        false
    }

    /// Ends the thread's lane, then the volume.
    fn end(mut self) {
        self.reactor = None;
    }

    /// Does one command from its admission to its answer.
    fn run(
        &mut self,
        data_use: DataUse,
        extents: &[Extent],
        persistence: Persistence,
        op: Op<'_>,
    ) -> Result<(), Status> {
        let kind = match data_use {
            DataUse::Read | DataUse::Verify => OpKind::Read,
            DataUse::Erase => OpKind::Discard,
            DataUse::Flush => OpKind::Flush,
            _ => OpKind::Write,
        };
        let intent = Intent {
            kind,
            extents,
            len_bytes: 0,
            data_use,
            persistence,
        };
        self.slot += 1;
        let ticket = Ticket {
            connection: Ticket::CONNECTIONS_MIN,
            slot: self.slot,
            generation: 0,
        };
        let result = self.steps(&intent, ticket, op);
        self.volume.release(ticket);
        result
    }

    fn steps(&mut self, intent: &Intent<'_>, ticket: Ticket, op: Op<'_>) -> Result<(), Status> {
        match self.volume.admit(Instant::now(), intent, ticket) {
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

    fn write(&mut self, lba: u64, data: &[u8]) -> Result<(), Status> {
        let extent = extent(lba, data.len() as u64 / 512);
        let op = Op::Write { extent, data };
        self.run(DataUse::Overwrite, &[extent], Persistence::Volatile, op)
    }

    fn read(&mut self, lba: u64, blocks: u64) -> Result<Vec<u8>, Status> {
        let mut buffer = vec![0xEE; blocks as usize * 512];
        let extent = extent(lba, blocks);
        let dest = ReadDest::Copy(&mut buffer);
        let op = Op::Read { extent, dest };
        self.run(DataUse::Read, &[extent], Persistence::Volatile, op)?;
        Ok(buffer)
    }

    fn flush(&mut self) -> Result<(), Status> {
        self.run(DataUse::Flush, &[], Persistence::Volatile, Op::Flush)
    }
}

#[test]
fn a_volume_is_its_file_and_outlives_itself() {
    let folder = Folder::new();
    let mut fixture = Fixture::new(&folder.join("disk"), 2 * MIB);
    assert_eq!(fixture.volume.write_cache(), WriteCache::Volatile);
    fixture.write(100, &[7; 1024]).expect("writes");
    fixture.flush().expect("flushes");
    assert_eq!(fixture.read(99, 3).expect("reads")[512..], [7; 1024]);
    assert!(fixture.volume.used_bytes() > 0);
    fixture.end();
    let bytes = std::fs::read(folder.join("disk")).expect("the file stays");
    assert_eq!(bytes.len() as u64, 2 * MIB);
    assert_eq!(bytes[100 * 512..102 * 512], [7; 1024]);
    let mut again = Fixture::open(&folder.join("disk"), 2 * MIB, Origin::Restored).expect("opens");
    assert_eq!(again.read(100, 2), Ok(vec![7; 1024]));
}

#[test]
fn what_does_not_serve_as_a_disk_is_an_error_that_says_so() {
    let folder = Folder::new();
    let path = folder.join("disk");
    let missing = Fixture::open(&path, MIB, Origin::Restored).err();
    let missing = missing.expect("nothing is created").to_string();
    assert!(
        missing.ends_with("does not serve as a disk: it does not exist"),
        "{missing}"
    );
    let _bed = Fixture::new(&path, MIB);
    let second = Fixture::open(&path, MIB, Origin::New)
        .err()
        .expect("in use");
    assert!(second.to_string().contains("another volume"), "{second}");
    let other = folder.join("other");
    std::fs::write(&other, [0; 4096]).expect("writes");
    let size = Fixture::open(&other, MIB, Origin::New)
        .err()
        .expect("too small");
    let size = size.to_string();
    assert!(size.contains("has 4 KiB, not 1 MiB"), "{size}");
    let relative = Fixture::open(Path::new("disk"), MIB, Origin::New).err();
    let relative = relative.expect("where would it be?").to_string();
    assert!(relative.contains("is not absolute"), "{relative}");
}

#[test]
fn a_restored_volume_without_its_file_executes_nothing_and_says_why() {
    let folder = Folder::new();
    let platform = crate::testing::io::platform(Arc::new(Budget::new(64 * MIB)));
    let spec = spec(&folder.join("disk"), MIB);
    let volume = crate::create(&spec, Origin::Restored, &platform, &mut no_progress);
    let volume = volume.expect("it exists");
    assert!(!volume.is_ready());
    assert_eq!(volume.storage().spec(), spec);
    assert_eq!(volume.execute(Op::Flush), Err(Status::NotReady));
    let problem = volume.storage().problem().expect("it has one");
    assert!(problem.contains("does not exist"), "{problem}");
    volume.remove();
    assert!(!folder.join("disk").exists());
}

#[test]
fn a_closed_volume_frees_its_file_and_its_memory() {
    let folder = Folder::new();
    let budget = Arc::new(Budget::new(64 * MIB));
    let platform = crate::testing::io::platform(Arc::clone(&budget));
    let spec = spec(&folder.join("disk"), MIB);
    let volume = crate::create(&spec, Origin::New, &platform, &mut no_progress).expect("opens");
    assert!(budget.used_bytes() > 0);
    volume.remove();
    assert_eq!(volume.execute(Op::Flush), Err(Status::Gone));
    // Sessions may still refer to the removed one.
    crate::create(&spec, Origin::New, &platform, &mut no_progress).expect("the file is free");
}

#[test]
fn a_creation_that_is_undone_or_fails_leaves_no_file_unless_it_was_written() {
    let folder = Folder::new();
    let path = folder.join("disk");
    let volume = Fixture::new(&path, MIB).volume;
    volume.undo_creation();
    assert!(!path.exists());
    drop(volume);

    let mut fixture = Fixture::new(&path, MIB);
    let written = fixture.write(8, &[7; 512]);
    written.expect("it works");
    fixture.volume.undo_creation();
    assert!(path.exists(), "it holds what was written");
    fixture.end();
    // It exists already, so it stays, even if it is empty.
    std::fs::File::create(&path)
        .and_then(|file| file.set_len(MIB))
        .expect("emptied");
    let volume = Fixture::new(&path, MIB).volume;
    volume.undo_creation();
    assert!(path.exists());
    drop(volume);

    let other = folder.join("other");
    let platform = Platform {
        budget: Arc::new(Budget::new(MIB)),
        relay: Relay::new(Arc::<Reports>::default()),
        lanes: Arc::default(),
        record: None,
    };
    let opened = FileVolume::open(&spec(&other, MIB), Origin::New, &platform);
    assert!(matches!(opened, Err(VolumeError::Memory(_))));
    assert!(!other.exists(), "the budget has no room for it");
}

#[test]
fn a_volume_grows_and_does_not_shrink() {
    let folder = Folder::new();
    let mut fixture = Fixture::new(&folder.join("disk"), MIB);
    fixture
        .volume
        .resize(ByteSize(3 * MIB), &mut no_progress)
        .expect("grows");
    fixture
        .write(3 * 2048 - 1, &[7; 512])
        .expect("the last block");
    assert_eq!(
        HostDisk::len_of(&folder.join("disk")).expect("exists"),
        3 * MIB
    );
    let shrunk = fixture.volume.resize(ByteSize(MIB), &mut no_progress);
    assert!(matches!(shrunk, Err(VolumeError::CannotShrink { .. })));
    assert_eq!(fixture.read(3 * 2048 - 1, 1), Ok(vec![7; 512]));
    // Not in the thread that drives the file: this waits.
    let erased = thread::scope(|scope| scope.spawn(|| fixture.volume.erase()).join());
    erased.expect("no panic").expect("erases");
    assert_eq!(fixture.read(3 * 2048 - 1, 1), Ok(vec![0; 512]));
    assert_eq!(fixture.volume.used_bytes(), 0, "its space is free");
}

#[test]
fn a_full_file_system_is_a_lack_of_space_and_leaves_the_rest_readable() {
    let Some(full) = Folder::of_one_mebibyte() else {
        return skip("permission to mount a tmpfs");
    };
    let mut fixture = Fixture::new(&full.join("disk"), 4 * MIB);
    fixture.write(0, &[7; 512]).expect("there is space");
    let mut failed = None;
    for lba in (0..4 * 2048).step_by(128) {
        failed = failed.or(fixture.write(lba, &vec![8; 65536]).err());
    }
    assert_eq!(failed, Some(Status::CapacityExceeded));
    assert_eq!(fixture.read(0, 1), Ok(vec![8; 512]));
    assert_eq!(fixture.read(4 * 2048 - 1, 1), Ok(vec![0; 512]));
}

/// An operation on a volume.
#[derive(Clone, Copy, Debug)]
struct Step {
    what: u8,
    lba: u64,
    blocks: u64,
    to: u64,
    byte: u8,
}

const BLOCKS: u64 = 2048;

fn step() -> impl Strategy<Value = Step> {
    (0_u8..9, 0..BLOCKS, 1_u64..300, 0..BLOCKS, any::<u8>()).prop_map(
        |(what, lba, blocks, to, byte)| Step {
            what,
            lba,
            blocks: blocks.min(BLOCKS - lba),
            to,
            byte,
        },
    )
}

/// Executes a step on the volume and on the model; both must answer the same.
fn play(fixture: &mut Fixture, model: &VecVolume, step: Step) {
    let Step {
        lba, blocks, byte, ..
    } = step;
    let at = extent(lba, blocks);
    let data = vec![byte; blocks as usize * 512];
    let head = extent(lba, blocks.min(128));
    let small = &data[..head.blocks.0 as usize * 512];
    let to = step.to.min(BLOCKS - blocks);
    let expected = |extent: Extent| {
        let range = model.geometry().byte_range(extent).expect("in range");
        model.bytes(range)
    };
    let compare = expected(head);
    let (data_use, extents, op): (_, Vec<_>, fn(Args<'_>) -> Op<'_>) = match step.what {
        0 | 1 => (DataUse::Overwrite, vec![at], |it| Op::Write {
            extent: it.at,
            data: it.data,
        }),
        2 => (DataUse::Erase, vec![at], |it| Op::Discard { extent: it.at }),
        3 => (DataUse::Erase, vec![at], |it| Op::WriteZeroes {
            extent: it.at,
            unmap: Unmap::Forbidden,
        }),
        4 => (DataUse::Modify, vec![head], |it| Op::CompareAndWrite {
            extent: it.head,
            compare: it.compare,
            write: it.small,
        }),
        5 => (DataUse::Copy, vec![extent(to, blocks), at], |it| Op::Copy {
            from: it.at,
            to: Lba(it.to),
        }),
        6 => (DataUse::Read, vec![head], |it| Op::Compare {
            extent: it.head,
            data: it.small,
        }),
        7 => (DataUse::Flush, vec![], |_| Op::Flush),
        _ => (DataUse::Verify, vec![at], |it| Op::Verify { extent: it.at }),
    };
    let args = Args {
        at,
        head,
        to,
        data: &data,
        small,
        compare: &compare,
    };
    let persistence = if byte.is_multiple_of(4) {
        Persistence::Durable
    } else {
        Persistence::Volatile
    };
    let result = fixture.run(data_use, &extents, persistence, op(args));
    assert_eq!(result, model.execute(op(args)), "{step:?}");
    assert!(
        fixture.read(lba, blocks).expect("reads") == expected(at),
        "{step:?}"
    );
}

#[derive(Clone, Copy)]
struct Args<'a> {
    at: Extent,
    head: Extent,
    to: u64,
    data: &'a [u8],
    small: &'a [u8],
    compare: &'a [u8],
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(block::testing::cases(24)))]

    #[test]
    fn a_file_volume_does_what_a_vector_does(
        steps in proptest::collection::vec(step(), 1..40),
        drives in prop_oneof![Just(Drives::Itself), Just(Drives::Nothing)],
        settles_in in any::<bool>(),
    ) {
        let folder = Folder::new();
        let spec = spec(&folder.join("disk"), BLOCKS * 512);
        let budget = Arc::new(Budget::new(64 * MIB));
        let mut fixture = Fixture::with(&spec, Origin::New, drives, &budget).expect("opens");
        if settles_in && drives == Drives::Itself {
            prop_assert!(fixture.settle_in());
        }
        let model = VecVolume::new(BlockSize::B512, BLOCKS);
        for step in steps {
            play(&mut fixture, &model, step);
        }
        fixture.end();
        let bytes = std::fs::read(folder.join("disk")).expect("the file stays");
        prop_assert!(bytes == model.contents());
    }
}

/// Writes of several threads to the same blocks. Every second thread drives the file itself.
#[test]
fn threads_that_write_the_same_blocks_leave_whole_blocks() {
    let folder = Folder::new();
    let reports = Arc::<Reports>::default();
    let lanes = Arc::<LaneRegistry>::default();
    let platform = Platform {
        budget: Arc::new(Budget::new(64 * MIB)),
        relay: Relay::new(Arc::clone(&reports) as _),
        lanes: Arc::clone(&lanes),
        record: None,
    };
    let spec = spec(&folder.join("disk"), MIB);
    let volume = FileVolume::open(&spec, Origin::New, &platform).expect("opens");
    thread::scope(|scope| {
        for connection in 1..5_u8 {
            let (volume, reports, lanes) = (&volume, &reports, &lanes);
            scope.spawn(move || {
                let has_lane = connection.is_multiple_of(2);
                let mut reactor = has_lane.then(|| TestReactor::new(lanes, reports));
                for slot in 0..400 {
                    let wait = |ticket| match &mut reactor {
                        Some(reactor) => reactor.wait(ticket),
                        None => reports.wait(ticket),
                    };
                    write_marked(volume, connection, slot, wait);
                }
            });
        }
    });
    drop(volume);
    let bytes = std::fs::read(folder.join("disk")).expect("reads");
    for block in bytes.chunks(512) {
        assert!(block.iter().all(|byte| *byte == block[0]), "a mixed block");
    }
}

/// Writes blocks that hold the number of their connection.
fn write_marked(
    volume: &FileVolume,
    connection: u8,
    slot: u32,
    wait: impl FnOnce(Ticket) -> Result<(), Status>,
) {
    let at = extent(u64::from(slot) % 16 * 3, 7);
    let intent = Intent {
        kind: OpKind::Write,
        extents: &[at],
        len_bytes: 0,
        data_use: DataUse::Overwrite,
        persistence: Persistence::Volatile,
    };
    let ticket = Ticket {
        connection: Ticket::CONNECTIONS_MIN + u64::from(connection),
        slot,
        generation: 0,
    };
    let admitted = volume.admit(Instant::now(), &intent, ticket);
    assert_eq!(admitted, Admission::NowThenSettle(None));
    let data = &[connection; 7 * 512];
    volume
        .execute(Op::Write { extent: at, data })
        .expect("leased");
    let settled = volume.settle(ticket).expect("no failure");
    if settled == Settled::Later {
        wait(ticket).expect("written");
    }
    volume.release(ticket);
}

mod lanes;
