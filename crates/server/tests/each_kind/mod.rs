//! A volume of each kind, commands on it that a vector does too, and a host over whatever protocol.

use std::ops::ControlFlow;
use std::time::Duration;

use block::testing::Folder;
use block::{BlockSize, Unmap};
use initiator::Operation;
use server::{
    Availability, ByteSize, HostPolicy, NewSnapshot, Server, Transport, VolumeKind, VolumeName,
    VolumeSpec,
};
use volume::{
    CacheMode, CacheSettings, LoadStep, Loader, Provision, Replace, SaveId, SaveMode, Target,
};

use super::fixture;

const MIB: u64 = 1 << 20;
pub const BLOCK: usize = 512;
/// Blocks of a command, at most.
pub const BLOCKS_MAX: u64 = 64;
/// How long a command may take: far more than it needs.
pub const PATIENCE: Duration = Duration::from_secs(60);
/// Blocks of the volumes.
const BLOCKS: u64 = 2 * MIB / BLOCK as u64;
/// Commands on each volume.
const COMMANDS: u64 = 300;
/// Time between two chunks that are restored, so that commands come before, between and after them.
const CHUNK_INTERVAL: Duration = Duration::from_millis(5);

/// A host of one disk, with one command at a time.
pub trait Host {
    /// Carries a command out whose data, if it writes some, are `data`.
    fn run(&mut self, operation: Operation, lba: u64, blocks: u64, data: &[u8]);

    /// Reads so many blocks.
    fn read(&mut self, lba: u64, blocks: u64) -> Vec<u8>;
}

/// Creates volumes of all kinds, and uses each as hosts do that `connect` to a target's first disk.
pub fn over<H: Host>(server: &Server, mut offer: impl FnMut(&str) -> Box<dyn Fn() -> H>) {
    let memory = VolumeSpec::thin(ByteSize(2 * MIB));
    let far = fixture::start(fixture::config(1, 64 * MIB), "far", &memory);
    let far_target = "nqn.2026-11.com.example:far";
    fixture::offer(&far, far_target, "far", HostPolicy::Local);
    let far_portal = fixture::portal(Transport::NvmeTcp, ([127, 0, 0, 1], 0));
    let far_portal = far.add_portal(far_portal).expect("a free port");

    let folder = Folder::new();
    let url = format!("{far_portal}/{far_target}?ns=1");
    let zeros = || vec![0; BLOCKS as usize * BLOCK];
    let kinds = create_each_kind(server, &folder, url);
    for (seed, kind) in (1..).zip(kinds) {
        let connect = offer(kind);
        let mut expected = zeros();
        play(&mut connect(), &mut expected, seed);
        // Another host sees the same.
        assert_holds(&mut connect(), &expected, kind);
        if kind == "ram" {
            let restored = offer("restored");
            restores(server, &folder, &restored, expected);
        }
    }
    // What the clone and its origin have become since is not in the snapshot.
    let snapshot = offer("snapshot");
    assert_holds(&mut snapshot(), &zeros(), "snapshot");
}

fn name(name: &str) -> VolumeName {
    name.parse().expect("a name")
}

fn create(server: &Server, volume: &str, size_bytes: u64, kind: VolumeKind) {
    let spec = VolumeSpec {
        size: ByteSize(size_bytes),
        block_size: BlockSize::B512,
        kind,
    };
    server
        .create_volume(name(volume), &spec, &mut |_| {})
        .unwrap_or_else(|error| panic!("{volume}: {error}"));
}

fn ram(server: &Server, volume: &str, size_bytes: u64) {
    let provision = Provision::Thin;
    create(server, volume, size_bytes, VolumeKind::Ram { provision });
}

fn file(server: &Server, folder: &Folder, volume: &str, size_bytes: u64) {
    let kind = VolumeKind::File {
        path: folder.join(volume),
        provision: Provision::Thin,
    };
    create(server, volume, size_bytes, kind);
}

/// One volume of each kind that can be written, 2 MiB each, all of zeros; `far` is the URL of a
/// disk. Returns the names.
fn create_each_kind(server: &Server, folder: &Folder, far: String) -> Vec<&'static str> {
    for volume in ["ram", "restored", "origin"] {
        ram(server, volume, 2 * MIB);
    }
    server
        .create_snapshots(&[NewSnapshot {
            of: name("origin"),
            name: name("snapshot"),
            identity: server::VolumeIdentity::default(),
        }])
        .expect("room");
    let of = "snapshot".to_owned();
    create(server, "clone", 2 * MIB, VolumeKind::Clone { of });
    file(server, folder, "file", 2 * MIB);
    let remote = VolumeKind::Remote {
        urls: vec![far],
        io_timeout: PATIENCE,
        disk: None,
    };
    create(server, "remote", 2 * MIB, remote);
    let members = |of: &str, size_bytes| {
        let (memory, disk) = (format!("{of}-memory"), format!("{of}-disk"));
        ram(server, &memory, size_bytes);
        file(server, folder, &disk, size_bytes);
        vec![memory, disk]
    };
    let linear = VolumeKind::Linear {
        members: members("linear", MIB),
    };
    create(server, "linear", 2 * MIB, linear);
    let stripe = VolumeKind::Stripe {
        members: members("stripe", MIB),
        unit: ByteSize(4096),
    };
    create(server, "stripe", 2 * MIB, stripe);
    let mirror = VolumeKind::Mirror {
        members: members("mirror", 2 * MIB),
        resync_rate: None,
    };
    create(server, "mirror", 2 * MIB, mirror);
    file(server, folder, "slower", 2 * MIB);
    let cache = VolumeKind::Cache {
        of: ["slower".to_owned()],
        settings: CacheSettings {
            size: ByteSize(MIB),
            mode: CacheMode::WriteBack,
            block: CacheSettings::BLOCK_DEFAULT,
            bypass: ByteSize(0),
        },
    };
    create(server, "cache", 2 * MIB, cache);
    vec![
        "ram", "clone", "origin", "file", "remote", "linear", "stripe", "mirror", "cache",
    ]
}

/// Saves the volume `ram`, which holds `expected`, and restores another from that, while a host
/// uses it.
fn restores<H: Host>(
    server: &Server,
    folder: &Folder,
    connect: &dyn Fn() -> H,
    mut expected: Vec<u8>,
) {
    let path = folder.join("ram.save");
    let target = Target {
        path: &path,
        replace: Replace::AnySave,
        mode: SaveMode::Single,
        prepare: || (),
    };
    let progress = &mut |_| ControlFlow::Continue(());
    let saved = server.save_volume(&name("ram"), SaveId::first(), &target, progress);
    saved.expect("saved");
    let restored = name("restored");
    let set = |to| server.set_volume_availability(&restored, to);
    set(Availability::Offline).expect("it exists");
    let loader = server.begin_restore(&restored, &path, None).expect("fits");
    set(Availability::Online).expect("it exists");
    std::thread::scope(|scope| {
        scope.spawn(|| load(loader));
        play(&mut connect(), &mut expected, 0);
    });
    assert_holds(&mut connect(), &expected, "restored");
}

fn load(mut loader: Loader) {
    while !matches!(loader.step().expect("room"), LoadStep::End) {
        std::thread::sleep(CHUNK_INTERVAL);
    }
}

/// Random commands on a volume that holds `expected`, and afterwards too.
fn play(host: &mut impl Host, expected: &mut [u8], seed: u64) {
    let mut state = seed;
    let mut below = |end: u64| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % end
    };
    for number in 0..COMMANDS {
        let blocks = 1 + below(BLOCKS_MAX);
        let lba = below(BLOCKS - blocks + 1);
        let held = &mut expected[lba as usize * BLOCK..(lba + blocks) as usize * BLOCK];
        match below(8) {
            kind @ 0..=3 => {
                held.fill(number as u8 | 1);
                let durable = kind == 0;
                let write = if durable {
                    Operation::WriteDurable
                } else {
                    Operation::Write
                };
                host.run(write, lba, blocks, held);
            }
            4 => {
                held.fill(0);
                host.run(Operation::WriteZeroes(Unmap::Allowed), lba, blocks, &[]);
            }
            5 => {
                held.fill(0);
                host.run(Operation::Deallocate, lba, blocks, &[]);
            }
            6 => host.run(Operation::Flush, 0, 0, &[]),
            _ => assert!(host.read(lba, blocks) == held, "command {number} at {lba}"),
        }
    }
}

fn assert_holds(host: &mut impl Host, expected: &[u8], what: &str) {
    for (number, bytes) in expected.chunks(BLOCKS_MAX as usize * BLOCK).enumerate() {
        let lba = number as u64 * BLOCKS_MAX;
        assert!(host.read(lba, BLOCKS_MAX) == bytes, "{what} at {lba}");
    }
}
