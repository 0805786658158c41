//! Caches over volumes of several kinds, with a model.

use std::num::NonZeroU64;
use std::time::Duration;

use block::{BlockSize, Persistence, Unmap};
use memory::{Budget, Provision};
use proptest::prelude::*;

use super::*;
use crate::filters::{Delay, Fault, FaultRule, FaultStatus, FaultWhen, FilterSpec, Latency};
use crate::testing::io::{MIB, Reports, extent, no_progress};
use crate::{DriveError, Driver, ManagedVolume, Origin, Relay, create, create_composite};

const PATIENCE: Duration = Duration::from_secs(30);

struct Fixture {
    platform: Platform,
    slow: Arc<dyn ManagedVolume>,
}

impl Fixture {
    fn new(kind: VolumeKind) -> Self {
        let platform = Platform {
            budget: Arc::new(Budget::new(64 * MIB)),
            relay: Relay::new(Arc::<Reports>::default()),
            lanes: Arc::default(),
            record: None,
        };
        let spec = VolumeSpec {
            size: ByteSize(4 * MIB),
            block_size: BlockSize::B512,
            kind,
        };
        let slow = create(&spec, Origin::New, &platform, &mut no_progress);
        Self {
            platform,
            slow: slow.expect("fits"),
        }
    }

    fn ram() -> Self {
        Self::new(VolumeKind::Ram {
            provision: Provision::Thin,
        })
    }

    fn try_cache(&self, settings: CacheSettings) -> Result<Arc<dyn ManagedVolume>, VolumeError> {
        let spec = VolumeSpec {
            kind: VolumeKind::Cache {
                of: ["slow0".to_owned()],
                settings,
            },
            ..self.slow.storage().spec()
        };
        let member = Member {
            name: "slow0".to_owned(),
            volume: Arc::clone(&self.slow),
        };
        create_composite(&spec, vec![member], Origin::New, &self.platform)
    }

    fn cache(&self, mode: CacheMode) -> Arc<dyn ManagedVolume> {
        self.try_cache(settings(MIB, mode)).expect("fits")
    }

    fn driver(&self, volume: &Arc<dyn ManagedVolume>) -> Driver {
        Driver::new(&self.platform.relay, Arc::clone(volume), PATIENCE)
    }

    fn read(&self, volume: &Arc<dyn ManagedVolume>, lba: u64, blocks: u64) -> Vec<u8> {
        let mut buffer = vec![0xEE; blocks as usize * 512];
        let read = self.driver(volume).read(extent(lba, blocks), &mut buffer);
        read.expect("it works");
        buffer
    }
}

fn settings(size: u64, mode: CacheMode) -> CacheSettings {
    CacheSettings {
        size: ByteSize(size),
        mode,
        block: CacheSettings::BLOCK_DEFAULT,
        bypass: ByteSize(0),
    }
}

fn counts(volume: &Arc<dyn ManagedVolume>) -> CacheStatistics {
    volume.storage().cache().expect("a cache").statistics()
}

#[test]
fn settings_that_make_no_sense_are_refused_and_take_nothing() {
    let fixture = Fixture::ram();
    let before = fixture.platform.budget.used_bytes();
    let through = CacheMode::WriteThrough;
    let block = CacheSettings {
        block: ByteSize(5000),
        ..settings(MIB, through)
    };
    for (wrong, hint) in [
        (block, "cache block 5000 B is invalid"),
        (
            settings(1000, through),
            "cache size 1000 B is out of range; choose a size from 1 MiB",
        ),
        (
            settings(5 * MIB, through),
            "larger than the volume of 4 MiB behind it",
        ),
    ] {
        let told = fixture.try_cache(wrong).expect_err("refused").to_string();
        assert!(told.contains(hint), "{told}");
    }
    let full = fixture
        .platform
        .budget
        .reserve(fixture.platform.budget.free_bytes() - MIB);
    assert!(matches!(
        fixture.try_cache(settings(2 * MIB, through)),
        Err(VolumeError::Memory(_))
    ));
    drop(full);
    assert_eq!(fixture.platform.budget.used_bytes(), before);
}

#[test]
fn a_second_read_is_a_hit_and_a_delay_is_that_of_the_slower_volume_alone() {
    let fixture = Fixture::ram();
    let latency = Latency {
        read: Duration::from_millis(40),
        ..Latency::default()
    };
    fixture.slow.controls().set_filters(FilterSpec {
        delay: Some(Delay {
            latency,
            bytes_per_second: None,
        }),
        ..FilterSpec::default()
    });
    let cache = fixture.cache(CacheMode::WriteThrough);
    for is_hit in [false, true] {
        let start = Instant::now();
        fixture.read(&cache, 8, 8);
        assert_eq!(start.elapsed() < latency.read, is_hit);
    }
    assert_eq!(
        (counts(&cache).read_hits, counts(&cache).read_misses),
        (1, 1)
    );
}

/// Every write fails.
fn fail_writes(volume: &Arc<dyn ManagedVolume>) {
    let rule = FaultRule {
        kind: Some(block::OpKind::Write),
        status: FaultStatus::WriteError,
        when: FaultWhen::EveryNth(NonZeroU64::MIN),
    };
    let fault = Fault::new(0, vec![rule]).expect("one rule");
    volume.controls().set_filters(FilterSpec {
        fault: Some(fault),
        ..FilterSpec::default()
    });
}

#[test]
fn a_cache_that_cannot_flush_keeps_what_was_written() {
    let fixture = Fixture::ram();
    let cache = fixture.cache(CacheMode::WriteBack);
    fail_writes(&fixture.slow);
    let data = [7; 4096];
    let mut driver = fixture.driver(&cache);
    let written = driver.write(extent(8, 8), &data, Persistence::Volatile);
    written.expect("it is in the cache");
    let durable = driver.write(extent(16, 8), &data, Persistence::Durable);
    assert_eq!(durable, Err(DriveError::Status(Status::WriteError)));
    assert!(matches!(
        cache.storage().flush(),
        Err(VolumeError::Unflushed(Status::WriteError))
    ));
    assert_eq!(fixture.read(&cache, 8, 8), data);
    fixture.slow.controls().set_filters(FilterSpec::default());
    cache.storage().flush().expect("the volume works again");
    assert_eq!(fixture.read(&fixture.slow, 8, 8), data);
    assert_eq!(counts(&cache).dirty_bytes, 0);
}

#[test]
fn the_background_writes_what_is_dirty() {
    let fixture = Fixture::ram();
    let cache = fixture.cache(CacheMode::WriteBack);
    let mut driver = fixture.driver(&cache);
    for lba in [80, 8, 800] {
        let written = driver.write(extent(lba, 8), &[9; 4096], Persistence::Volatile);
        written.expect("it works");
    }
    let until = Instant::now() + PATIENCE;
    while counts(&cache).dirty_bytes > 0 {
        assert!(Instant::now() < until, "nothing was written");
        std::thread::sleep(Duration::from_millis(10));
    }
    assert_eq!(counts(&cache).write_backs, 3);
    assert_eq!(fixture.read(&fixture.slow, 800, 8), [9; 4096]);
}

#[test]
fn removal_and_a_change_of_mode_flush_and_the_slower_volume_is_whole() {
    for removes in [true, false] {
        let fixture = Fixture::ram();
        let cache = fixture.cache(CacheMode::WriteBack);
        let mut driver = fixture.driver(&cache);
        let written = driver.write(extent(0, 64), &vec![5; 64 * 512], Persistence::Volatile);
        written.expect("it works");
        if removes {
            cache.remove();
        } else {
            let set = cache.storage().cache().expect("a cache");
            set.set(settings(2 * MIB, CacheMode::WriteThrough))
                .expect("fits");
            assert_eq!(set.settings(), settings(2 * MIB, CacheMode::WriteThrough));
        }
        assert_eq!(fixture.read(&fixture.slow, 0, 64), vec![5; 64 * 512]);
    }
}

#[test]
fn a_cache_that_cannot_flush_keeps_its_settings() {
    let fixture = Fixture::ram();
    let cache = fixture.cache(CacheMode::WriteBack);
    let set = cache.storage().cache().expect("a cache");
    let before = settings(2 * MIB, CacheMode::WriteBack);
    set.set(before).expect("fits");
    fail_writes(&fixture.slow);
    let mut driver = fixture.driver(&cache);
    let written = driver.write(extent(8, 8), &[7; 4096], Persistence::Volatile);
    written.expect("it is in the cache");
    let used_bytes = fixture.platform.budget.used_bytes();
    for wanted in [
        settings(MIB, CacheMode::WriteBack),
        settings(3 * MIB, CacheMode::WriteThrough),
    ] {
        let told = set.set(wanted);
        assert!(matches!(told, Err(VolumeError::Unflushed(_))), "{told:?}");
        assert_eq!(set.settings(), before);
        assert_eq!(fixture.platform.budget.used_bytes(), used_bytes);
    }
    fixture.slow.controls().set_filters(FilterSpec::default());
    set.set(settings(MIB, CacheMode::WriteBack)).expect("works");
    assert_eq!(fixture.read(&fixture.slow, 8, 8), [7; 4096]);
}

/// Fills so many blocks from the start on by writes that need not be durable.
fn dirty_blocks(driver: &mut Driver, blocks: u64, fill: u8) {
    for lba in (0..blocks).step_by(64) {
        let written = driver.write(
            extent(lba, 64),
            &vec![fill; 64 * 512],
            Persistence::Volatile,
        );
        written.expect("it works");
    }
}

/// Fills all but the last of these blocks, each sixteenth write a durable one, and reads what it
/// wrote.
fn fill_and_check(driver: &mut Driver, first: u64, blocks: u64, fill: u8) {
    for step in (0..blocks - 16).step_by(16) {
        let at = extent(first + step, 16);
        let persistence = if step % 256 == 0 {
            Persistence::Durable
        } else {
            Persistence::Volatile
        };
        let written = driver.write(at, &[fill; 16 * 512], persistence);
        written.expect("it works");
        let mut there = [0; 16 * 512];
        driver.read(at, &mut there).expect("it works");
        assert!(there == [fill; 16 * 512]);
    }
}

/// What a cache is set to in turn: its size in MiB and its mode.
const SETTINGS: [(u64, CacheMode); 4] = [
    (4, CacheMode::WriteBack),
    (1, CacheMode::WriteBack),
    (3, CacheMode::WriteThrough),
    (2, CacheMode::WriteBack),
];

#[test]
fn a_cache_grows_and_shrinks_while_it_is_used_and_what_it_gives_back_is_free() {
    const WRITERS: u64 = 3;
    const ROUNDS: u8 = 30;
    // Each writer has a part of its own. All parts are larger than the smallest cache.
    let blocks = 8192 / WRITERS;
    // It takes no memory later.
    let fixture = Fixture::new(VolumeKind::Ram {
        provision: Provision::Thick,
    });
    let cache = fixture.cache(CacheMode::WriteBack);
    let is_over = std::sync::atomic::AtomicBool::new(false);
    let set = |size, mode| {
        let cache = cache.storage().cache().expect("a cache");
        cache.set(settings(size, mode)).expect("fits");
    };
    let free_bytes = |size| {
        set(size, CacheMode::WriteBack);
        fixture.platform.budget.free_bytes()
    };
    // The bookkeeping of the largest cache stays.
    free_bytes(4 * MIB);
    let free_of_smallest = free_bytes(MIB);
    std::thread::scope(|scope| {
        let (fixture, cache, is_over) = (&fixture, &cache, &is_over);
        let writers: Vec<_> = (0..WRITERS)
            .map(|writer| {
                scope.spawn(move || {
                    let mut driver = fixture.driver(cache);
                    for round in 1..=ROUNDS {
                        fill_and_check(&mut driver, writer * blocks, blocks, round);
                    }
                })
            })
            .collect();
        let changer = scope.spawn(|| {
            let mut changes = 0;
            while !is_over.load(std::sync::atomic::Ordering::Relaxed) {
                for (size, mode) in SETTINGS {
                    set(size * MIB, mode);
                    changes += 1;
                }
            }
            changes
        });
        for writer in writers {
            writer.join().expect("what was written is there");
        }
        is_over.store(true, std::sync::atomic::Ordering::Relaxed);
        assert!(changer.join().expect("it works") > 4, "under way meanwhile");
    });
    free_bytes(4 * MIB);
    dirty_blocks(&mut fixture.driver(&cache), 4096, 9);
    let free_bytes = free_bytes(MIB);
    // A few frames are kept for commands, with their bookkeeping.
    assert!(free_bytes > free_of_smallest - MIB, "dirty blocks, too");
    assert!(counts(&cache).resident_bytes <= MIB);
    assert_eq!(fixture.read(&fixture.slow, 0, 4096), vec![9; 4096 * 512]);
    let last = fixture.read(&cache, 2 * blocks, blocks - 16);
    assert!(last.chunks(512).all(|block| block == [ROUNDS; 512]));
}

#[test]
fn a_cache_that_is_added_to_a_volume_without_one_is_written_durably() {
    let fixture = Fixture::ram();
    let first = Fixture::ram();
    let linear = VolumeSpec {
        kind: VolumeKind::Linear {
            members: vec!["first".to_owned()],
        },
        ..first.slow.storage().spec()
    };
    let member = |name: &str, volume: &Arc<dyn ManagedVolume>| Member {
        name: name.to_owned(),
        volume: Arc::clone(volume),
    };
    let members = vec![member("first", &first.slow)];
    let linear = create_composite(&linear, members, Origin::New, &fixture.platform).expect("fits");
    let cache = fixture.cache(CacheMode::WriteBack);
    let extendable = linear.storage().extendable().expect("linear");
    extendable
        .add_member(member("cache", &cache))
        .expect("of any kind");
    assert_eq!(linear.write_cache(), WriteCache::Absent, "hosts know it so");
    let mut driver = fixture.driver(&linear);
    let data = [7; 4096];
    // Across both, and not flushed.
    let at = extent(8192 - 4, 8);
    let written = driver.write(at, &data, Persistence::Volatile);
    written.expect("it works");
    assert_eq!(fixture.read(&fixture.slow, 0, 4), data[..2048]);
    let zeroed = driver.write_zeroes(at, Unmap::Allowed);
    zeroed.expect("it works");
    assert_eq!(fixture.read(&fixture.slow, 0, 4), [0; 2048]);
    assert_eq!(counts(&cache).dirty_bytes, 0);
}

/// No write cache was advertised to hosts when the mirror was one of memory.
#[test]
fn a_cache_that_replaces_a_member_of_a_mirror_of_memory_is_written_durably() {
    let fixture = Fixture::ram();
    let others = [Fixture::ram(), Fixture::ram()];
    let spec = VolumeSpec {
        kind: VolumeKind::Mirror {
            members: vec!["a".to_owned(), "b".to_owned()],
            resync_rate: None,
        },
        ..fixture.slow.storage().spec()
    };
    let member = |name: &str, volume: &Arc<dyn ManagedVolume>| Member {
        name: name.to_owned(),
        volume: Arc::clone(volume),
    };
    let members = vec![member("a", &others[0].slow), member("b", &others[1].slow)];
    let mirror = create_composite(&spec, members, Origin::New, &fixture.platform).expect("fits");
    let cache = fixture.cache(CacheMode::WriteBack);
    let mirroring = mirror.storage().mirror().expect("it is one");
    let replaced = mirroring.replace_member("b", member("cache", &cache));
    replaced.expect("of any kind");
    assert_eq!(mirror.write_cache(), WriteCache::Absent, "hosts know it so");
    let mut driver = fixture.driver(&mirror);
    let data = [7; 4096];
    let at = extent(100, 8);
    let written = driver.write(at, &data, Persistence::Volatile);
    written.expect("it works");
    assert_eq!(fixture.read(&fixture.slow, 100, 8), data);
    let zeroed = driver.write_zeroes(at, Unmap::Allowed);
    zeroed.expect("it works");
    assert_eq!(fixture.read(&fixture.slow, 100, 8), [0; 4096]);
}

#[derive(Clone, Debug)]
enum Action {
    Read(u64, u64),
    Write(u64, u64, u8, Persistence),
    Zero(u64, u64),
    Flush,
    Set(u64, CacheMode),
}

fn action() -> impl Strategy<Value = Action> {
    // Beyond the smallest cache, so that frames are evicted.
    let range = || (0..3000_u64, 1..80_u64);
    let mode = prop_oneof![
        Just(CacheMode::WriteThrough),
        Just(CacheMode::WriteAround),
        Just(CacheMode::WriteBack)
    ];
    let persistence = prop_oneof![Just(Persistence::Volatile), Just(Persistence::Durable)];
    prop_oneof![
        3 => range().prop_map(|(lba, blocks)| Action::Read(lba, blocks)),
        5 => (range(), any::<u8>(), persistence)
            .prop_map(|((lba, blocks), byte, how)| Action::Write(lba, blocks, byte, how)),
        1 => range().prop_map(|(lba, blocks)| Action::Zero(lba, blocks)),
        1 => Just(Action::Flush),
        1 => (1..3_u64, mode).prop_map(|(mib, mode)| Action::Set(mib * MIB, mode)),
    ]
}

/// Plays actions on a cache of `fixture`, and compares cache and slower volume with a vector.
fn play(fixture: &Fixture, actions: Vec<Action>) {
    let cache = fixture.cache(CacheMode::WriteBack);
    let mut driver = fixture.driver(&cache);
    let mut model = vec![0; 4 * MIB as usize];
    let bytes = |lba: u64, blocks: u64| lba as usize * 512..(lba + blocks) as usize * 512;
    for action in actions {
        match action {
            Action::Read(lba, blocks) => {
                assert!(fixture.read(&cache, lba, blocks) == model[bytes(lba, blocks)]);
            }
            Action::Write(lba, blocks, byte, how) => {
                model[bytes(lba, blocks)].fill(byte);
                let data = vec![byte; blocks as usize * 512];
                driver
                    .write(extent(lba, blocks), &data, how)
                    .expect("it works");
                if how == Persistence::Durable {
                    assert!(fixture.read(&fixture.slow, lba, blocks) == data);
                }
            }
            Action::Zero(lba, blocks) => {
                model[bytes(lba, blocks)].fill(0);
                let zeroed = driver.write_zeroes(extent(lba, blocks), Unmap::Allowed);
                zeroed.expect("it works");
            }
            Action::Flush => {
                driver.flush().expect("it works");
                assert!(fixture.read(&fixture.slow, 0, 8192) == model);
            }
            Action::Set(size, mode) => {
                let set = cache.storage().cache().expect("a cache");
                set.set(settings(size, mode)).expect("fits");
            }
        }
    }
    assert!(fixture.read(&cache, 0, 8192) == model);
    cache.remove();
    assert!(fixture.read(&fixture.slow, 0, 8192) == model);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(block::testing::cases(40)))]

    #[test]
    fn a_cache_over_ram_does_what_a_vector_does(
        actions in proptest::collection::vec(action(), 1..150),
    ) {
        play(&Fixture::ram(), actions);
    }

    #[test]
    fn a_cache_over_a_file_does_what_a_vector_does(
        actions in proptest::collection::vec(action(), 1..80),
    ) {
        let folder = block::testing::Folder::new();
        let kind = VolumeKind::File {
            path: folder.join("disk"),
            provision: Provision::Thin,
        };
        let fixture = Fixture::new(kind);
        play(&fixture, actions);
        fixture.slow.remove();
    }
}
