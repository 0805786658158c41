//! A volume of each kind over each protocol that our initiators speak, compared with a vector. iSER, which
//! they do not, is not among them.

mod fixture;

use std::net::SocketAddr;
use std::time::Duration;

use block::testing::Folder;
use block::{BlockSize, Blocks, Extent, Lba, Unmap};
use initiator::{Device, DeviceOptions, Operation, Queue, Request, Slot, WaitStrategy};
use server::{
    ByteSize, HostPolicy, NewSnapshot, Server, Transport, VolumeKind, VolumeName, VolumeSpec,
};
use volume::{CacheMode, CacheSettings, Provision};

const MIB: u64 = 1 << 20;
const PATIENCE: Duration = Duration::from_secs(60);
const BLOCK: usize = 512;
/// Blocks of the volumes.
const BLOCKS: u64 = 2 * MIB / BLOCK as u64;
/// Blocks of a command, at most.
const BLOCKS_MAX: u64 = 64;
/// Commands on each volume.
const COMMANDS: u64 = 300;

fn name(name: &str) -> VolumeName {
    name.parse().expect("a name")
}

fn spec(size_bytes: u64, kind: VolumeKind) -> VolumeSpec {
    VolumeSpec {
        size: ByteSize(size_bytes),
        block_size: BlockSize::B512,
        kind,
    }
}

fn create(server: &Server, volume: &str, size_bytes: u64, kind: VolumeKind) {
    server
        .create_volume(name(volume), &spec(size_bytes, kind), &mut |_| {})
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

/// Beside `ram`, one volume of each other kind that can be written, 2 MiB each, all of zeros; `far` is the URL of a disk.
/// Returns the names.
fn create_each_kind(server: &Server, folder: &Folder, far: String) -> Vec<&'static str> {
    ram(server, "origin", 2 * MIB);
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
        "ram", "clone", "file", "remote", "linear", "stripe", "mirror", "cache",
    ]
}

fn target_of(transport: Transport, volume: &str) -> (String, &'static str) {
    match transport {
        Transport::Iscsi => (format!("iqn.2026-11.com.example:{volume}"), "/0"),
        Transport::NvmeTcp => (format!("nqn.2026-11.com.example:{volume}"), "?ns=1"),
        // Queue pairs in software share a port, so each end has an address of its own.
        Transport::NvmeRdma => (
            format!("nqn.2026-11.com.example:{volume}"),
            "?ns=1&rdma=soft&local=127.0.56.2",
        ),
        _ => panic!("our initiators do not speak {transport:?}"),
    }
}

struct Host {
    _device: Device,
    queue: Queue,
}

impl Host {
    fn new(portal: &impl std::fmt::Display, transport: Transport, volume: &str) -> Self {
        let (target, query) = target_of(transport, volume);
        let url = format!("{portal}/{target}{query}").parse().expect("a URL");
        let options = DeviceOptions {
            depth: 4,
            buffer_bytes: BLOCKS_MAX as usize * BLOCK,
            ..DeviceOptions::default()
        };
        let mut device = Device::connect(&url, &options).expect("attaches");
        let queue = device.take_queues().remove(0);
        Self {
            _device: device,
            queue,
        }
    }

    fn run(&mut self, operation: Operation, lba: u64, blocks: u64) {
        let request = Request {
            slot: Slot(0),
            operation,
            extent: Extent::new(Lba(lba), Blocks(blocks)),
        };
        self.queue.submit(request).expect("the slot is free");
        let mut done = Vec::new();
        let waited = self.queue.wait(WaitStrategy::Sleep, PATIENCE, &mut done);
        waited.expect("the queue lives");
        let outcome = done.first().expect("it is answered in time").result;
        outcome.unwrap_or_else(|error| panic!("{operation:?} at {lba}: {error}"));
    }

    fn read(&mut self, lba: u64, blocks: u64) -> &[u8] {
        self.run(Operation::Read, lba, blocks);
        &self.queue.buffer(Slot(0))[..blocks as usize * BLOCK]
    }
}

/// Random commands on a volume of zeros. Returns what it holds then.
fn play(host: &mut Host, seed: u64) -> Vec<u8> {
    let mut expected = vec![0; BLOCKS as usize * BLOCK];
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
                host.queue.buffer_mut(Slot(0))[..held.len()].copy_from_slice(held);
                let durable = kind == 0;
                let write = if durable {
                    Operation::WriteDurable
                } else {
                    Operation::Write
                };
                host.run(write, lba, blocks);
            }
            4 => {
                held.fill(0);
                host.run(Operation::WriteZeroes(Unmap::Allowed), lba, blocks);
            }
            5 => {
                held.fill(0);
                host.run(Operation::Deallocate, lba, blocks);
            }
            6 => host.run(Operation::Flush, 0, 0),
            _ => assert!(host.read(lba, blocks) == held, "command {number} at {lba}"),
        }
    }
    expected
}

fn assert_holds(host: &mut Host, expected: &[u8], what: &str) {
    for (number, bytes) in expected.chunks(BLOCKS_MAX as usize * BLOCK).enumerate() {
        let lba = number as u64 * BLOCKS_MAX;
        assert!(host.read(lba, BLOCKS_MAX) == bytes, "{what} at {lba}");
    }
}

fn over(transport: Transport, port: u16) {
    let memory = VolumeSpec::thin(ByteSize(2 * MIB));
    let far = fixture::start(fixture::config(1, 64 * MIB), "far", &memory);
    let far_target = "nqn.2026-11.com.example:far";
    fixture::offer(&far, far_target, "far", HostPolicy::Local);
    let far_portal = fixture::portal(Transport::NvmeTcp, ([127, 0, 0, 1], 0));
    let far_portal = far.add_portal(far_portal).expect("a free port");

    let folder = Folder::new();
    let server = fixture::start(fixture::config(1, 256 * MIB), "ram", &memory);
    let kinds = create_each_kind(&server, &folder, format!("{far_portal}/{far_target}?ns=1"));
    let address: SocketAddr = ([127, 0, 56, 1], port).into();
    let portal = fixture::portal(transport, address);
    let portal = server.add_portal(portal).expect("a free port");
    for (seed, kind) in (1..).zip(kinds) {
        let (target, _) = target_of(transport, kind);
        fixture::offer(&server, &target, kind, HostPolicy::Local);
        let mut host = Host::new(&portal, transport, kind);
        let expected = play(&mut host, seed);
        drop(host);
        // Another host sees the same.
        let mut host = Host::new(&portal, transport, kind);
        assert_holds(&mut host, &expected, kind);
    }
    // What the clone and its origin have become since is not in the snapshot.
    let (target, _) = target_of(transport, "snapshot");
    fixture::offer(&server, &target, "snapshot", HostPolicy::Local);
    let mut host = Host::new(&portal, transport, "snapshot");
    let zeros = vec![0; BLOCKS as usize * BLOCK];
    assert_holds(&mut host, &zeros, "snapshot");
}

#[test]
fn each_kind_does_what_a_vector_does_over_nvme_tcp() {
    over(Transport::NvmeTcp, 0);
}

#[test]
fn each_kind_does_what_a_vector_does_over_nvme_rdma() {
    over(Transport::NvmeRdma, 4420);
}

#[test]
fn each_kind_does_what_a_vector_does_over_iscsi() {
    over(Transport::Iscsi, 0);
}
