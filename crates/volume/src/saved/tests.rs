mod increments;

use std::fs;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::thread;

use block::every_variant;
use block::testing::messages;
use memory::Budget;
use proptest::prelude::*;

use super::*;
use crate::testing::io::{MIB, no_progress, platform, read, write};
use crate::{Origin, VolumeSpec, take_snapshots};

pub(super) const CHUNK_BYTES: u64 = 256 << 10;

/// A folder that is removed with its files.
pub(super) struct Folder(PathBuf);

impl Folder {
    pub(super) fn new() -> Self {
        let name = format!("ramport-saved-{}", Uuid::new_v4().simple());
        let path = std::env::temp_dir().join(name);
        fs::create_dir(&path).expect("a folder");
        Self(path)
    }

    pub(super) fn file(&self) -> PathBuf {
        self.0.join("rd0.save")
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _stays = fs::remove_dir_all(&self.0);
    }
}

pub(super) fn ram_of(size: u64, budget_bytes: u64) -> Arc<dyn ManagedVolume> {
    let spec = VolumeSpec::thin(ByteSize(size));
    let platform = platform(Arc::new(Budget::new(budget_bytes)));
    crate::create(&spec, Origin::New, &platform, &mut no_progress).expect("fits")
}

pub(super) fn ram() -> Arc<dyn ManagedVolume> {
    ram_of(4 * MIB, 64 * MIB)
}

pub(super) fn save_of(volume: &Arc<dyn ManagedVolume>, path: &Path) -> Result<Saved, SaveError> {
    let id = SaveId::first();
    save(&**volume, "rd0", id, &single(path), &mut no_progress)
}

pub(super) fn single(path: &Path) -> Target<'_> {
    Target {
        path,
        replace: Replace::AnySave,
        mode: SaveMode::Single,
        prepare: || (),
    }
}

fn restore_to(volume: &Arc<dyn ManagedVolume>, path: &Path) -> Result<Restored, RestoreError> {
    restore(&**volume, path, Wanted::default(), &mut no_progress)
}

pub(super) fn all(volume: &Arc<dyn ManagedVolume>) -> Vec<u8> {
    read(&**volume, 0, volume.geometry().blocks.0)
}

/// Bytes that LZ4 cannot shorten.
pub(super) fn noise(len: usize) -> Vec<u8> {
    let next = |state: &mut u32| {
        *state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        Some((*state >> 24) as u8)
    };
    let mut state = 7;
    std::iter::from_fn(|| next(&mut state)).take(len).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(block::testing::cases(48)))]

    #[test]
    fn a_restored_volume_is_what_was_saved(
        writes in prop::collection::vec((0..8000_u64, 1..300_u64, any::<u8>()), 0..12),
        older in prop::collection::vec((0..8000_u64, any::<u8>()), 0..4),
    ) {
        let (folder, source, dest) = (Folder::new(), ram(), ram());
        for (lba, blocks, fill) in writes {
            let blocks = blocks.min(8192 - lba) as usize;
            write(&*source, lba, &vec![fill; blocks * 512]).expect("fits");
        }
        let saved = save_of(&source, &folder.file()).expect("saved");
        for (lba, fill) in older {
            write(&*dest, lba, &[fill; 512]).expect("fits");
        }
        let restored = restore_to(&dest, &folder.file()).expect("restored");
        prop_assert!(all(&dest) == all(&source));
        prop_assert_eq!(restored.saved, saved);
        prop_assert!(restored.damage.is_empty());
    }
}

/// A thread writes one number to block after block, over and over. At each moment the blocks up to
/// some place hold a number, and those after it the number before.
#[test]
fn a_save_under_writes_shows_one_moment() {
    let (folder, source) = (Folder::new(), ram());
    let blocks = source.geometry().blocks.0;
    write(&*source, 0, &vec![0; blocks as usize * 512]).expect("fits");
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut number = 0_u64;
            while !is_over.load(Relaxed) {
                number += 1;
                for lba in 0..blocks {
                    let data = [number.to_le_bytes(); 64].concat();
                    write(&*source, lba, &data).expect("fits");
                }
            }
        });
        for _ in 0..12 {
            save_of(&source, &folder.file()).expect("saved");
            let dest = ram();
            restore_to(&dest, &folder.file()).expect("restored");
            let numbers: Vec<_> = all(&dest)
                .chunks(512)
                .map(|block| u64::from_le_bytes(block[..8].try_into().expect("8 bytes")))
                .collect();
            assert!(numbers.windows(2).all(|two| two[0] >= two[1]), "in order");
            let (first, last) = (numbers[0], numbers[numbers.len() - 1]);
            assert!(first - last <= 1, "one moment: {first}, {last}");
        }
        is_over.store(true, Relaxed);
    });
    assert_eq!(
        source.storage().used_bytes(),
        4 * MIB,
        "nothing is left of the snapshots"
    );
}

#[test]
fn a_save_gives_way_to_writes_when_memory_runs_out() {
    let (folder, source) = (Folder::new(), ram_of(4 * MIB, 5 * MIB));
    write(&*source, 0, &noise(4 << 20)).expect("fits");
    let first = save_of(&source, &folder.file()).expect("saved");
    let store = Arc::clone(source.storage().store().expect("ram has one"));
    let result = save(
        &*source,
        "rd0",
        first.id.next(),
        &single(&folder.file()),
        &mut |_| {
            write(&*source, 4096, &vec![3; 2 << 20]).expect("writes go on");
            ControlFlow::Continue(())
        },
    );
    assert!(matches!(result, Err(SaveError::GaveWay)));
    assert_eq!(store.budget().used_bytes(), store.allocated_bytes());
    let dest = ram();
    let restored = restore_to(&dest, &folder.file()).expect("the first is there");
    assert_eq!(restored.saved.id, first.id);
    assert!(all(&dest) == noise(4 << 20));
}

#[test]
fn a_removed_volume_ends_its_save() {
    let (folder, source) = (Folder::new(), ram());
    write(&*source, 0, &noise(4 << 20)).expect("fits");
    let result = save(
        &*source,
        "rd0",
        SaveId::first(),
        &single(&folder.file()),
        &mut |_| {
            source.remove();
            ControlFlow::Continue(())
        },
    );
    assert!(matches!(result, Err(SaveError::Gone)));
    assert!(!folder.file().exists());
    assert!(matches!(
        save_of(&source, &folder.file()),
        Err(SaveError::Gone)
    ));
}

#[test]
fn snapshots_are_saved_and_clones_restored() {
    let (folder, origin) = (Folder::new(), ram());
    write(&*origin, 8, &[1; 512]).expect("fits");
    let spec = VolumeSpec {
        kind: VolumeKind::Snapshot { of: "rd0".into() },
        ..VolumeSpec::thin(ByteSize(4 * MIB))
    };
    let snapshot = take_snapshots(&[(&spec, &*origin)])
        .expect("taken")
        .remove(0);
    write(&*origin, 8, &[2; 512]).expect("fits");
    save_of(&snapshot, &folder.file()).expect("saved");
    let refused = restore_to(&snapshot, &folder.file());
    assert!(matches!(refused, Err(RestoreError::NotInMemory { .. })));
    let spec = VolumeSpec {
        kind: VolumeKind::Clone { of: "s1".into() },
        ..VolumeSpec::thin(ByteSize(4 * MIB))
    };
    let clone = crate::create_clone(&spec, &*snapshot).expect("a clone");
    write(&*clone, 100, &[5; 512]).expect("fits");
    restore_to(&clone, &folder.file()).expect("restored");
    assert_eq!(read(&*clone, 8, 1), [1; 512]);
    assert_eq!(read(&*clone, 100, 1), [0; 512]);
}

#[test]
fn files_of_other_volumes_and_other_files_are_refused() {
    let (folder, volume) = (Folder::new(), ram());
    write(&*volume, 0, &[9; 512]).expect("fits");
    let before = all(&volume);
    let larger = ram_of(8 * MIB, 64 * MIB);
    save_of(&larger, &folder.file()).expect("saved");
    let refused = restore_to(&volume, &folder.file()).expect_err("another size");
    assert!(matches!(refused, RestoreError::OtherSize { .. }));
    let spec = VolumeSpec {
        block_size: block::BlockSize::B4096,
        ..VolumeSpec::thin(ByteSize(4 * MIB))
    };
    let platform = platform(Arc::new(Budget::new(64 * MIB)));
    let other = crate::create(&spec, Origin::New, &platform, &mut no_progress).expect("fits");
    save_of(&other, &folder.file()).expect("saved");
    let refused = restore_to(&volume, &folder.file()).expect_err("other blocks");
    assert!(matches!(refused, RestoreError::OtherBlocks { .. }));
    fs::write(folder.file(), [0; 1000]).expect("written");
    for path in [folder.file(), folder.0.clone(), folder.0.join("none")] {
        let refused = restore_to(&volume, &path).expect_err("no save");
        assert!(matches!(refused, RestoreError::File { .. }), "{path:?}");
    }
    assert!(all(&volume) == before, "nothing has changed");
}

#[test]
fn a_damaged_file_is_refused_whole_or_its_damage_becomes_zeros() {
    let (folder, source) = (Folder::new(), ram());
    let contents = noise(4 << 20);
    write(&*source, 0, &contents).expect("fits");
    save_of(&source, &folder.file()).expect("saved");
    let mut file = fs::read(folder.file()).expect("there");
    // The third chunk, the fourth, and the sixth.
    for chunk in [2, 3, 5] {
        file[256 + chunk * CHUNK_BYTES as usize + 100] ^= 4;
    }
    fs::write(folder.file(), file).expect("written");
    for held in [0, 512] {
        let volume = ram();
        write(&*volume, 0, &vec![8; held]).expect("fits");
        let before = all(&volume);
        let Err(RestoreError::Damaged { damage, .. }) = restore_to(&volume, &folder.file()) else {
            panic!("it was to be refused");
        };
        assert_eq!(damage.total_bytes, 3 * CHUNK_BYTES);
        assert_eq!(
            damage.to_string(),
            "bytes 524288 to 1048575, 1310720 to 1572863"
        );
        assert!(all(&volume) == before, "nothing has changed");
    }
    let volume = ram();
    let wanted = Wanted {
        if_damaged: IfDamaged::Zeros,
        ..Wanted::default()
    };
    let restored = restore(&*volume, &folder.file(), wanted, &mut no_progress);
    let mut expected = contents;
    for range in restored.expect("permitted").damage.ranges {
        expected[range.offset as usize..][..range.len as usize].fill(0);
    }
    assert!(all(&volume) == expected);
}

#[test]
fn another_save_than_the_one_that_is_wanted_is_refused() {
    let (folder, source, dest) = (Folder::new(), ram(), ram());
    let saved = save_of(&source, &folder.file()).expect("saved");
    for (only, is_it) in [(saved.id, true), (saved.id.next(), false)] {
        let wanted = Wanted {
            only: Some(only),
            ..Wanted::default()
        };
        let restored = restore(&*dest, &folder.file(), wanted, &mut no_progress);
        assert_eq!(restored.is_ok(), is_it);
    }
}

#[test]
fn what_cannot_fit_is_refused_before_anything_is_lost() {
    let (folder, source) = (Folder::new(), ram());
    write(&*source, 0, &noise(4 << 20)).expect("fits");
    save_of(&source, &folder.file()).expect("saved");
    let dest = ram_of(4 * MIB, 3 * MIB);
    write(&*dest, 0, &[1; 512]).expect("fits");
    let refused = restore_to(&dest, &folder.file());
    assert!(matches!(refused, Err(RestoreError::Memory(_))));
    assert_eq!(read(&*dest, 0, 1), [1; 512]);
}

#[test]
fn a_cancelled_restoration_says_what_was_lost() {
    let (folder, source) = (Folder::new(), ram());
    write(&*source, 0, &noise(4 << 20)).expect("fits");
    save_of(&source, &folder.file()).expect("saved");
    let cancel_at = |share: u64| {
        move |progress: Progress| {
            if progress.done_bytes * 4 > progress.total_bytes * share {
                return ControlFlow::Break(());
            }
            ControlFlow::Continue(())
        }
    };
    let empty = ram();
    let cancelled = restore(
        &*empty,
        &folder.file(),
        Wanted::default(),
        &mut cancel_at(1),
    );
    assert!(matches!(cancelled, Err(RestoreError::Cancelled)));
    assert_eq!(empty.storage().used_bytes(), 0, "as it was");
    let used = ram();
    write(&*used, 0, &[1; 512]).expect("fits");
    // During the verification, and then after it.
    let cancelled = restore(&*used, &folder.file(), Wanted::default(), &mut cancel_at(1));
    assert!(matches!(cancelled, Err(RestoreError::Cancelled)));
    assert_eq!(read(&*used, 0, 1), [1; 512]);
    let cancelled = restore(&*used, &folder.file(), Wanted::default(), &mut cancel_at(3));
    assert!(matches!(cancelled, Err(RestoreError::Spoiled { .. })));
    assert_eq!(used.storage().used_bytes(), 0, "no mixture");
}

#[test]
fn long_lists_of_damage_are_cut_short() {
    let mut damage = Damage::default();
    for index in 0..40 {
        damage.add(ByteRange {
            offset: index * 1000,
            len: 10,
        });
    }
    assert_eq!(damage.ranges.len(), Damage::RANGES_MAX);
    assert!(damage.to_string().ends_with("15000 to 15009 and 240 more"));
}

/// Its memory is that of its data: the budget has no room for more.
#[test]
fn a_volume_of_100_gib_with_some_data_is_saved_and_restored() {
    const SIZE: u64 = 100 << 30;
    const PIECES: u64 = 200;
    let folder = Folder::new();
    let (source, dest) = (ram_of(SIZE, 512 * MIB), ram_of(SIZE, 512 * MIB));
    let last = SIZE / 512 - 8;
    let lba = |number: u64| number * (last / PIECES) / 8 * 8;
    let data = |number: u64| [number as u8 | 1; 4096];
    for number in 0..=PIECES {
        write(&*source, lba(number), &data(number)).expect("fits");
    }
    write(&*source, last, &data(77)).expect("fits");
    let saved = save_of(&source, &folder.file()).expect("saved");
    assert!(saved.held_bytes < 64 * MIB, "{saved:?}");
    assert!(saved.file_bytes < MIB, "{saved:?}");
    restore_to(&dest, &folder.file()).expect("restored");
    for number in 0..=PIECES {
        assert!(read(&*dest, lba(number), 8) == data(number), "{number}");
        assert!(read(&*dest, lba(number) + 8, 8) == [0; 4096], "{number}");
    }
    assert!(read(&*dest, last, 8) == data(77));
}

#[test]
fn messages_of_errors() {
    let path = || PathBuf::from("/srv/rd0.save");
    let kind = || VolumeKind::Snapshot { of: "rd0".into() };
    let id = |sequence| SaveId {
        lineage: Uuid::from_u128(1),
        sequence,
    };
    let mut damage = Damage::default();
    damage.add(ByteRange {
        offset: 262_144,
        len: 262_144,
    });
    let saving = every_variant!(SaveError {
        SaveError::NotInMemory { .. } => [SaveError::NotInMemory { kind: kind() }],
        SaveError::Gone => [SaveError::Gone],
        SaveError::GaveWay => [SaveError::GaveWay],
        SaveError::Thread(_) => [SaveError::Thread(std::io::Error::other("Resource temporarily unavailable"))],
        SaveError::File(_) => [SaveError::File(WriteError::NotASave { path: path() })],
    });
    let restoring = every_variant!(RestoreError {
        RestoreError::NotInMemory { .. } => [RestoreError::NotInMemory { kind: kind() }],
        RestoreError::File { .. } => [RestoreError::File { path: path(), source: ImageError::NotASave }],
        RestoreError::OtherSave { .. } => [RestoreError::OtherSave { path: path(), found: id(7), wanted: id(8) }],
        RestoreError::OtherSize { .. } => [RestoreError::OtherSize { path: path(), saved: ByteSize(MIB), actual: ByteSize(2 * MIB) }],
        RestoreError::OtherBlocks { .. } => [RestoreError::OtherBlocks { path: path(), saved_bytes: 4096, actual_bytes: 512 }],
        RestoreError::Damaged { .. } => [RestoreError::Damaged { path: path(), damage: damage.clone() }],
        RestoreError::Memory(_) => [RestoreError::Memory(MemoryError::Closed)],
        RestoreError::Write(_) => [RestoreError::Write(Status::CapacityExceeded)],
        RestoreError::Cancelled => [RestoreError::Cancelled],
        RestoreError::Spoiled { .. } => [RestoreError::Spoiled { cause: Box::new(RestoreError::Cancelled) }],
    });
    insta::assert_snapshot!(format!("{}\n{}", messages(&saving), messages(&restoring)));
}
