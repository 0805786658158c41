use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt as _;
use std::time::Instant;

use block::{
    Admission, ByteRange, Completions, DataUse, Extent, Intent, Lba, Op, OpKind, Persistence,
    ReadDest, Status, Ticket, Unmap,
};
use memory::Budget;
use proptest::prelude::*;

use super::super::tests::{CHUNK_BYTES, Folder, all, noise, ram, ram_of, save_of};
use super::*;
use crate::testing::io::{MIB, Reports, extent, platform, read, write};
use crate::{Availability, ByteSize, Member, Origin, VolumeKind, VolumeSpec, create_composite};

const BLOCKS: u64 = 4 * MIB / 512;
const CHUNK_BLOCKS: u64 = CHUNK_BYTES / 512;

/// A volume that is being restored.
struct Early {
    volume: Arc<dyn ManagedVolume>,
    loader: Loader,
    reports: Arc<Reports>,
}

impl Early {
    fn begin(path: &Path) -> Result<Self, RestoreError> {
        Self::with(path, ram())
    }

    fn with(path: &Path, volume: Arc<dyn ManagedVolume>) -> Result<Self, RestoreError> {
        let reports = Arc::<Reports>::default();
        volume.controls().set_availability(Availability::Offline);
        let relay = Relay::new(Arc::clone(&reports) as Arc<dyn Completions>);
        let loader = begin_restore(&volume, path, None, &relay)?;
        volume.controls().set_availability(Availability::Online);
        Ok(Self {
            volume,
            loader,
            reports,
        })
    }

    fn admit(&self, data_use: DataUse, extents: &[Extent], slot: u32) -> Admission {
        let kind = match data_use {
            DataUse::Read | DataUse::Verify => OpKind::Read,
            DataUse::Erase => OpKind::Discard,
            _ => OpKind::Write,
        };
        let len_bytes = extents.iter().map(|extent| extent.blocks.0 * 512).sum();
        let intent = Intent {
            kind,
            extents,
            len_bytes,
            data_use,
            persistence: Persistence::Volatile,
        };
        self.volume.admit(Instant::now(), &intent, ticket(slot))
    }

    /// Admits a command, and loads what it waits for.
    fn admitted(&mut self, data_use: DataUse, extents: &[Extent]) -> Result<(), Status> {
        match self.admit(data_use, extents, 1) {
            Admission::Now => Ok(()),
            Admission::Fail(status, None) => Err(status),
            Admission::Later(None) => loop {
                self.loader.step().expect("there is room");
                if let Some(done) = self.reports.take().pop() {
                    assert_eq!(done.ticket, ticket(1));
                    self.volume.release(ticket(1));
                    return done.result;
                }
            },
            other => panic!("{other:?}"),
        }
    }

    fn finish(&mut self) {
        while !matches!(self.loader.step().expect("there is room"), LoadStep::End) {}
    }

    fn has_ended(&self) -> bool {
        // While chunks are missing, all blocks count as allocated.
        let far = ByteRange {
            offset: 3 * MIB,
            len: MIB,
        };
        !self.volume.allocation(far).allocated
    }
}

fn ticket(slot: u32) -> Ticket {
    Ticket {
        connection: Ticket::CONNECTIONS_MIN,
        slot,
        generation: 1,
    }
}

/// A save of a volume whose first 2 MiB are noise.
fn half_full(folder: &Folder) -> Vec<u8> {
    let source = ram();
    write(&*source, 0, &noise(2 << 20)).expect("fits");
    save_of(&source, &folder.file()).expect("saved");
    all(&source)
}

/// Damages the noise of a chunk in a file of [`half_full`].
fn damage(folder: &Folder, chunk: u64) {
    let file = OpenOptions::new().write(true).open(folder.file());
    let file = file.expect("there");
    let at = 256 + chunk * CHUNK_BYTES + 1000;
    file.write_all_at(&[0; 16], at).expect("written");
}

#[test]
fn a_command_waits_only_for_what_it_reads() {
    let folder = Folder::new();
    let saved = half_full(&folder);
    let mut early = Early::begin(&folder.file()).expect("begins");
    assert_eq!(
        early.admit(DataUse::Read, &[extent(4096, 8)], 1),
        Admission::Now,
        "zeros"
    );
    assert_eq!(
        early.admit(DataUse::Overwrite, &[extent(0, 8)], 1),
        Admission::Now
    );
    assert_eq!(
        early.admit(DataUse::Erase, &[extent(0, BLOCKS)], 1),
        Admission::Now
    );
    let last = [extent(7 * CHUNK_BLOCKS - 4, 8)];
    assert_eq!(early.admit(DataUse::Read, &last, 2), Admission::Later(None));
    assert_eq!(
        early.admit(DataUse::Modify, &last, 3),
        Admission::Later(None)
    );
    let copy = [extent(0, 8), extent(3 * CHUNK_BLOCKS, 8)];
    assert_eq!(early.admit(DataUse::Copy, &copy, 4), Admission::Later(None));
    assert!(early.loader.is_awaited());
    let buffer = &mut [0; 4096];
    let op = Op::Read {
        extent: last[0],
        dest: ReadDest::Copy(buffer),
    };
    assert_eq!(early.volume.execute(op), Err(Status::Busy), "never zeros");
    early.volume.release(ticket(3));
    for chunk in [3, 6] {
        assert_eq!(early.reports.take(), []);
        assert_eq!(
            early.loader.next(),
            Some(0),
            "chunk {chunk} is not the next"
        );
        early.loader.step().expect("there is room");
        if chunk == 3 {
            assert_eq!(
                early.reports.take().pop().map(|done| done.ticket),
                Some(ticket(4))
            );
        }
    }
    early.loader.step().expect("there is room");
    assert_eq!(
        early.reports.take().pop().map(|done| done.ticket),
        Some(ticket(2))
    );
    assert_eq!(early.admit(DataUse::Read, &last, 2), Admission::Now);
    assert!(!early.loader.is_awaited());
    early.finish();
    assert_eq!(all(&early.volume), saved);
    assert!(early.has_ended() && !early.loader.has_changed());
    assert_eq!(early.loader.progress().done_bytes, 2 * MIB);
}

#[test]
fn what_is_written_is_not_loaded_over() {
    let folder = Folder::new();
    let mut expected = half_full(&folder);
    let mut early = Early::begin(&folder.file()).expect("begins");
    let volume = &early.volume;
    write(&**volume, 9, &[0xAB; 1024]).expect("fits");
    expected[9 * 512..11 * 512].fill(0xAB);
    assert_eq!(
        read(&**volume, 9, 2),
        [0xAB; 1024],
        "written blocks are read at once"
    );
    assert_eq!(
        early.admit(DataUse::Read, &[extent(9, 2)], 1),
        Admission::Now
    );
    // From the middle of one chunk to the middle of the third.
    let zeroed = extent(CHUNK_BLOCKS + 100, 2 * CHUNK_BLOCKS);
    let op = Op::WriteZeroes {
        extent: zeroed,
        unmap: Unmap::Allowed,
    };
    volume.execute(op).expect("in range");
    let start = (CHUNK_BYTES + 51200) as usize;
    expected[start..start + 2 * CHUNK_BYTES as usize].fill(0);
    assert!(early.loader.has_changed());
    early.finish();
    assert_eq!(all(&early.volume), expected);
}

#[test]
fn a_volume_that_is_written_as_a_whole_needs_no_file() {
    let folder = Folder::new();
    half_full(&folder);
    let mut early = Early::begin(&folder.file()).expect("begins");
    let waiting = [extent(0, 8)];
    assert_eq!(
        early.admit(DataUse::Read, &waiting, 1),
        Admission::Later(None)
    );
    early
        .volume
        .execute(Op::Discard {
            extent: extent(0, BLOCKS),
        })
        .expect("in range");
    assert_eq!(early.reports.take().len(), 1, "what waited reads zeros");
    assert!(early.has_ended());
    assert!(matches!(early.loader.step(), Ok(LoadStep::End)));
    assert_eq!(all(&early.volume), vec![0; 4 << 20]);
}

#[test]
fn damaged_parts_fail_until_they_are_written() {
    let folder = Folder::new();
    let mut expected = half_full(&folder);
    damage(&folder, 2);
    let mut early = Early::begin(&folder.file()).expect("begins");
    let first = 2 * CHUNK_BLOCKS;
    let around = [extent(first - 8, 16)];
    assert_eq!(
        early.admitted(DataUse::Read, &around),
        Err(Status::ReadError)
    );
    early.finish();
    assert!(!early.has_ended());
    let whole = ByteRange {
        offset: 2 * CHUNK_BYTES,
        len: CHUNK_BYTES,
    };
    assert_eq!(early.volume.controls().damage().ranges, [whole]);
    let buffer = &mut [0; 512];
    let op = Op::Read {
        extent: extent(first, 1),
        dest: ReadDest::Copy(buffer),
    };
    assert_eq!(early.volume.execute(op), Err(Status::ReadError));
    let op = Op::Read {
        extent: extent(first, 1),
        dest: ReadDest::InPlace,
    };
    assert_eq!(early.volume.execute(op), Err(Status::ReadError));
    let op = Op::Copy {
        from: extent(first, 1),
        to: Lba(0),
    };
    assert_eq!(early.volume.execute(op), Err(Status::ReadError));
    write(&*early.volume, first, &[7; 1024]).expect("fits");
    assert_eq!(read(&*early.volume, first, 2), [7; 1024]);
    assert_eq!(
        early.admitted(DataUse::Read, &[extent(first + 1, 2)]),
        Err(Status::ReadError)
    );
    assert_eq!(
        early.volume.controls().damage().total_bytes,
        CHUNK_BYTES - 1024
    );
    let rest = Op::Discard {
        extent: extent(first + 2, CHUNK_BLOCKS - 2),
    };
    early.volume.execute(rest).expect("in range");
    assert!(early.volume.controls().damage().is_empty() && early.has_ended());
    let start = 2 * CHUNK_BYTES as usize;
    expected[start..start + CHUNK_BYTES as usize].fill(0);
    expected[start..start + 1024].fill(7);
    assert_eq!(all(&early.volume), expected);
}

#[test]
fn memory_that_runs_out_fails_what_waits_and_is_tried_again() {
    let folder = Folder::new();
    let expected = half_full(&folder);
    let volume = ram_of(4 * MIB, 2 * MIB);
    let mut early = Early::with(&folder.file(), volume).expect("begins");
    let budget = Arc::clone(early.volume.storage().store().expect("ram").budget());
    let others = budget.reserve(MIB).expect("free");
    assert_eq!(
        early.admit(DataUse::Read, &[extent(0, 8)], 1),
        Admission::Later(None)
    );
    let full = early.loader.step().expect_err("no room");
    assert!(matches!(
        full,
        RestoreError::Write(Status::CapacityExceeded)
    ));
    let failed = early.reports.take().pop().map(|done| done.result);
    assert_eq!(failed, Some(Err(Status::CapacityExceeded)));
    drop(others);
    early.finish();
    assert_eq!(all(&early.volume), expected);
}

#[test]
fn a_volume_that_is_made_of_one_that_is_being_restored_does_not_work_on_its_memory() {
    let folder = Folder::new();
    half_full(&folder);
    let early = Early::begin(&folder.file()).expect("begins");
    let member = |name: &str, volume| Member {
        name: name.to_owned(),
        volume,
    };
    let members = vec![member("a", Arc::clone(&early.volume)), member("b", ram())];
    let spec = VolumeSpec {
        kind: VolumeKind::Linear {
            members: vec!["a".to_owned(), "b".to_owned()],
        },
        ..VolumeSpec::thin(ByteSize(8 * MIB))
    };
    let budget = Arc::new(Budget::new(MIB));
    let over = create_composite(&spec, members, Origin::New, &platform(budget)).expect("fits");
    assert!(over.pinned().is_none());
    let op = Op::CompareAndWrite {
        extent: extent(0, 1),
        compare: &[0; 512],
        write: &[1; 512],
    };
    assert_eq!(
        over.execute(op),
        Err(Status::Busy),
        "zeros are not what it holds"
    );
}

#[test]
fn a_file_with_a_damaged_structure_is_refused() {
    let folder = Folder::new();
    half_full(&folder);
    let whole = fs::read(folder.file()).expect("there");
    fs::write(folder.file(), &whole[..whole.len() - 1]).expect("written");
    let refused = Early::begin(&folder.file()).err().expect("it is cut short");
    assert!(matches!(refused, RestoreError::File { .. }), "{refused}");
}

/// A thread writes numbers in order while another loads: no block is what it was before.
#[test]
fn writes_beside_the_loader_stay() {
    let folder = Folder::new();
    let expected = half_full(&folder);
    for _ in 0..20 {
        let mut early = Early::begin(&folder.file()).expect("begins");
        let volume = Arc::clone(&early.volume);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for block in (0..4096).step_by(3) {
                    write(&*volume, block, &[block as u8; 512]).expect("fits");
                    assert_eq!(read(&*volume, block, 1), [block as u8; 512]);
                }
            });
            early.finish();
        });
        let mut expected = expected.clone();
        for block in (0..4096).step_by(3) {
            expected[block * 512..][..512].fill(block as u8);
        }
        assert!(all(&early.volume) == expected && early.has_ended());
    }
}

#[derive(Clone, Debug)]
enum Act {
    Step,
    Read(u64, u64),
    Write(u64, u64, u8),
    Discard(u64, u64),
    Copy(u64, u64, u64),
    CompareAndWrite(u64, u8),
}

fn acts() -> impl Strategy<Value = Vec<Act>> {
    let lba = || 0..BLOCKS;
    let len = || prop_oneof![1..20_u64, 400..1200_u64];
    let act = prop_oneof![
        2 => Just(Act::Step),
        3 => (lba(), len()).prop_map(|(lba, len)| Act::Read(lba, len)),
        3 => (lba(), len(), any::<u8>()).prop_map(|(lba, len, fill)| Act::Write(lba, len, fill)),
        1 => (lba(), len()).prop_map(|(lba, len)| Act::Discard(lba, len)),
        1 => (lba(), lba(), len()).prop_map(|(from, to, len)| Act::Copy(from, to, len)),
        1 => (lba(), any::<u8>()).prop_map(|(lba, fill)| Act::CompareAndWrite(lba, fill)),
    ];
    prop::collection::vec(act, 0..60)
}

/// What the volume holds; damaged blocks that were not written since are unknown.
struct Model {
    bytes: Vec<u8>,
    known: Vec<bool>,
}

impl Model {
    fn range(lba: u64, blocks: u64) -> std::ops::Range<usize> {
        lba as usize * 512..(lba + blocks) as usize * 512
    }

    fn can_read(&self, lba: u64, blocks: u64) -> Result<(), Status> {
        let known = &self.known[lba as usize..(lba + blocks) as usize];
        known
            .iter()
            .all(|&known| known)
            .then_some(())
            .ok_or(Status::ReadError)
    }

    fn set(&mut self, lba: u64, data: &[u8]) {
        let blocks = data.len() as u64 / 512;
        self.bytes[Self::range(lba, blocks)].copy_from_slice(data);
        self.known[lba as usize..(lba + blocks) as usize].fill(true);
    }

    fn get(&self, lba: u64, blocks: u64) -> &[u8] {
        &self.bytes[Self::range(lba, blocks)]
    }
}

/// Does `act` to the volume and the model.
fn play(act: &Act, early: &mut Early, model: &mut Model) {
    let cut = |lba: u64, len: u64| len.min(BLOCKS - lba);
    match *act {
        Act::Step => drop(early.loader.step().expect("there is room")),
        Act::Read(lba, len) => {
            let len = cut(lba, len);
            let admitted = early.admitted(DataUse::Read, &[extent(lba, len)]);
            assert_eq!(admitted, model.can_read(lba, len));
            if admitted.is_ok() {
                assert!(read(&*early.volume, lba, len) == model.get(lba, len));
            }
        }
        Act::Write(lba, len, fill) => {
            let data = vec![fill; cut(lba, len) as usize * 512];
            write(&*early.volume, lba, &data).expect("fits");
            model.set(lba, &data);
        }
        Act::Discard(lba, len) => {
            let extent = extent(lba, cut(lba, len));
            early
                .volume
                .execute(Op::Discard { extent })
                .expect("in range");
            model.set(lba, &vec![0; extent.blocks.0 as usize * 512]);
        }
        Act::Copy(from, to, len) => {
            let len = cut(from, cut(to, len));
            let admitted = early.admitted(DataUse::Copy, &[extent(to, len), extent(from, len)]);
            assert_eq!(admitted, model.can_read(from, len));
            if admitted.is_ok() {
                let op = Op::Copy {
                    from: extent(from, len),
                    to: Lba(to),
                };
                early.volume.execute(op).expect("in range");
                let data = model.get(from, len).to_vec();
                model.set(to, &data);
            }
        }
        Act::CompareAndWrite(lba, fill) => {
            let admitted = early.admitted(DataUse::Modify, &[extent(lba, 1)]);
            assert_eq!(admitted, model.can_read(lba, 1));
            if admitted.is_ok() {
                let (compare, write) = (model.get(lba, 1).to_vec(), [fill; 512]);
                let extent = extent(lba, 1);
                let op = Op::CompareAndWrite {
                    extent,
                    compare: &compare,
                    write: &write,
                };
                early.volume.execute(op).expect("equal");
                model.set(lba, &write);
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(block::testing::cases(64)))]

    #[test]
    fn a_volume_that_is_being_restored_is_like_a_vector(
        acts in acts(),
        is_damaged in prop::array::uniform8(prop::bool::weighted(0.2)),
    ) {
        let folder = Folder::new();
        let mut model = Model {
            bytes: half_full(&folder),
            known: vec![true; BLOCKS as usize],
        };
        for chunk in (0..8_u64).filter(|&chunk| is_damaged[chunk as usize]) {
            damage(&folder, chunk);
            let first = (chunk * CHUNK_BLOCKS) as usize;
            model.known[first..first + CHUNK_BLOCKS as usize].fill(false);
        }
        let mut early = Early::begin(&folder.file()).expect("begins");
        for act in &acts {
            play(act, &mut early, &mut model);
        }
        early.finish();
        let unknown = model.known.iter().filter(|&&known| !known).count();
        prop_assert_eq!(early.loader.damage().total_bytes, unknown as u64 * 512);
        prop_assert_eq!(early.volume.controls().damage(), early.loader.damage());
        for lba in 0..BLOCKS {
            let readable = early.admitted(DataUse::Read, &[extent(lba, 1)]);
            prop_assert_eq!(readable, model.can_read(lba, 1));
            if readable.is_ok() {
                prop_assert!(read(&*early.volume, lba, 1) == model.get(lba, 1));
            }
        }
        early.volume.controls().end_loading();
        prop_assert!(all(&early.volume).len() == 4 << 20, "readable as a whole");
    }
}
