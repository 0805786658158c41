//! Volumes in files, through the whole server.

mod fixture;

use std::path::Path;
use std::time::{Duration, Instant};

use block::testing::{Folder, skip};
use block::{BlockSize, Blocks, Extent, Lba, Status, Unmap};
use brp::wire::Status as BrpStatus;
use initiator::{
    CommandError, Device, DeviceOptions, Operation, Queue, Request, Slot, WaitStrategy,
};
use scsi::Sense;
use scsi::host::CommandFailure;
use server::{
    ByteSize, Force, HostPolicy, Server, ServerError, Transport, VolumeKind, VolumeName, VolumeSpec,
};
use volume::{CacheMode, CacheSettings, Provision, Role};

const MIB: u64 = 1 << 20;
const PATIENCE: Duration = Duration::from_secs(60);
const NQN: &str = "nqn.2026-11.com.example:file";
const IQN: &str = "iqn.2026-11.com.example:file";

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

fn name(name: &str) -> VolumeName {
    name.parse().expect("a name")
}

/// A server that offers a volume in a file, and a host of it.
struct Fixture {
    server: Server,
    device: Device,
    queue: Queue,
}

impl Fixture {
    fn new(transport: Transport, path: &Path, size_bytes: u64) -> Self {
        let spec = spec(path, size_bytes);
        let server = fixture::start(fixture::config(1, 64 * MIB), "file", &spec);
        let (device, queue) = attach(&server, transport, "file");
        Self {
            server,
            device,
            queue,
        }
    }

    fn run(&mut self, operation: Operation, lba: u64, blocks: u64) -> Result<(), CommandError> {
        let request = Request {
            slot: Slot(0),
            operation,
            extent: Extent::new(Lba(lba), Blocks(blocks)),
        };
        self.queue.submit(request).expect("the slot is free");
        let mut done = Vec::new();
        while done.is_empty() {
            let waited = self.queue.wait(WaitStrategy::Sleep, PATIENCE, &mut done);
            assert!(waited.expect("the queue lives") > 0, "no outcome");
        }
        done[0].result
    }

    fn write(&mut self, lba: u64, blocks: u64, byte: u8) -> Result<(), CommandError> {
        self.queue.buffer_mut(Slot(0)).fill(byte);
        self.run(Operation::Write, lba, blocks)
    }

    fn read(&mut self, lba: u64, blocks: u64) -> Vec<u8> {
        self.queue.buffer_mut(Slot(0)).fill(0xEE);
        self.run(Operation::Read, lba, blocks).expect("reads");
        self.queue.buffer(Slot(0))[..blocks as usize * 512].to_vec()
    }

    /// So that another volume can hold the file.
    fn stop_offering(&self, transport: Transport) {
        let target = target_of(transport).0.parse().expect("a name");
        self.server
            .remove_target(&target, Force::Yes)
            .expect("removed");
    }

    /// Writes all of a volume of this size, and returns what it then holds.
    fn write_all(&mut self, len_bytes: u64) -> Vec<u8> {
        let mut held = Vec::new();
        for (lba, byte) in (0..len_bytes / 512).step_by(128).zip(1..) {
            self.write(lba, 128, byte).expect("writes");
            held.resize(held.len() + 128 * 512, byte);
        }
        held
    }

    /// Reads all of a volume, the end first: a cache holds the end, and has to evict it for the
    /// rest.
    fn assert_holds(&mut self, expected: &[u8]) {
        for (number, bytes) in expected.chunks(128 * 512).enumerate().rev() {
            let lba = number as u64 * 128;
            assert!(self.read(lba, 128) == bytes, "at {lba}");
        }
    }
}

/// The name of the target, and what follows it in a URL.
fn target_of(transport: Transport) -> (&'static str, &'static str) {
    match transport {
        Transport::Iscsi | Transport::Iser => (IQN, "/0"),
        Transport::NvmeTcp | Transport::NvmeRdma => (NQN, "?ns=1"),
        Transport::Brp | Transport::BrpRdma => (NQN, "?unit=1"),
        Transport::Nfs | Transport::NfsUdp | Transport::NfsRdma => panic!("NFS has no volumes"),
        Transport::Srp => panic!("there is no initiator of SRP"),
    }
}

/// Offers a volume to a new host, with its only queue.
fn attach(server: &Server, transport: Transport, volume: &str) -> (Device, Queue) {
    let (target, query) = target_of(transport);
    fixture::offer(server, target, volume, HostPolicy::Local);
    let portal = fixture::portal(transport, ([127, 0, 0, 1], 0));
    let portal = server.add_portal(portal).expect("a free port");
    let url = format!("{portal}/{target}{query}").parse().expect("a URL");
    let options = DeviceOptions {
        depth: 16,
        buffer_bytes: 64 << 10,
        ..DeviceOptions::default()
    };
    let mut device = Device::connect(&url, &options).expect("attaches");
    let queue = device.take_queues().remove(0);
    (device, queue)
}

fn over_each_protocol(test: impl Fn(Transport)) {
    for transport in [Transport::NvmeTcp, Transport::Iscsi, Transport::Brp] {
        test(transport);
    }
}

#[test]
fn a_host_reads_and_writes_a_file() {
    over_each_protocol(|transport| {
        let folder = Folder::new();
        let mut it = Fixture::new(transport, &folder.join("disk"), 2 * MIB);
        let mut expected = it.write_all(2 * MIB);
        it.run(Operation::WriteZeroes(Unmap::Allowed), 100, 56)
            .expect("zeroes");
        it.run(Operation::Deallocate, 256, 128).expect("discards");
        it.run(Operation::Flush, 0, 0).expect("flushes");
        expected[100 * 512..156 * 512].fill(0);
        expected[256 * 512..384 * 512].fill(0);
        it.assert_holds(&expected);
        let bytes = std::fs::read(folder.join("disk")).expect("it is a file");
        assert!(bytes == expected, "{transport:?}: the file holds it");
    });
}

/// The queue's 4 MiB are charged when the reactor has it.
#[test]
fn a_reactor_gets_a_queue_of_its_own_on_the_file() {
    over_each_protocol(|transport| {
        let folder = Folder::new();
        let mut it = Fixture::new(transport, &folder.join("disk"), 2 * MIB);
        let before = it.server.capacity().used_bytes;
        let end = Instant::now() + PATIENCE;
        while it.server.capacity().used_bytes < before + 4 * MIB {
            assert!(Instant::now() < end, "{transport:?}: there is none");
            it.write(0, 1, 7).expect("writes");
        }
        assert_eq!(it.read(0, 1), [7; 512]);
    });
}

#[test]
fn a_host_reads_and_writes_a_stripe_of_memory_and_a_file() {
    over_each_protocol(|transport| {
        let folder = Folder::new();
        let mut it = Fixture::new(transport, &folder.join("disk"), MIB);
        let ram = VolumeSpec::thin(ByteSize(MIB));
        it.server
            .create_volume(name("ram"), &ram, &mut |_| {})
            .expect("room");
        let spec = VolumeSpec {
            size: ByteSize(2 * MIB),
            block_size: BlockSize::B512,
            kind: VolumeKind::Stripe {
                members: vec!["ram".to_owned(), "file".to_owned()],
                unit: ByteSize(4096),
            },
        };
        let offered = it.server.create_volume(name("s0"), &spec, &mut |_| {});
        assert!(
            matches!(offered, Err(ServerError::MemberOffered { .. })),
            "{offered:?}"
        );
        it.stop_offering(transport);
        it.server
            .create_volume(name("s0"), &spec, &mut |_| {})
            .expect("both are free");
        (it.device, it.queue) = attach(&it.server, transport, "s0");
        let mut expected = it.write_all(2 * MIB);
        // Not aligned to units.
        it.run(Operation::WriteZeroes(Unmap::Allowed), 5, 30)
            .expect("zeroes");
        it.run(Operation::Deallocate, 250, 9).expect("discards");
        it.run(Operation::Flush, 0, 0).expect("flushes");
        expected[5 * 512..35 * 512].fill(0);
        expected[250 * 512..259 * 512].fill(0);
        it.assert_holds(&expected);
        let units = expected.chunks(4096).skip(1).step_by(2);
        let file = std::fs::read(folder.join("disk")).expect("it is a file");
        assert!(
            file == units.collect::<Vec<_>>().concat(),
            "the file has every other unit"
        );
    });
}

#[test]
fn a_host_reads_and_writes_a_cache_and_a_flush_reaches_the_file() {
    over_each_protocol(|transport| {
        let folder = Folder::new();
        let mut it = Fixture::new(transport, &folder.join("disk"), 4 * MIB);
        it.stop_offering(transport);
        let settings = CacheSettings {
            size: ByteSize(MIB),
            mode: CacheMode::WriteBack,
            block: CacheSettings::BLOCK_DEFAULT,
            bypass: ByteSize(0),
        };
        let spec = VolumeSpec {
            kind: VolumeKind::Cache {
                of: ["file".to_owned()],
                settings,
            },
            ..spec(&folder.join("disk"), 4 * MIB)
        };
        it.server
            .create_volume(name("c0"), &spec, &mut |_| {})
            .expect("the file is free");
        (it.device, it.queue) = attach(&it.server, transport, "c0");
        let mut expected = it.write_all(4 * MIB);
        it.run(Operation::WriteZeroes(Unmap::Allowed), 5, 30)
            .expect("zeroes");
        it.run(Operation::Flush, 0, 0).expect("flushes");
        expected[5 * 512..35 * 512].fill(0);
        let file = std::fs::read(folder.join("disk")).expect("it is a file");
        assert!(
            file == expected,
            "{transport:?}: the flush reaches the file"
        );
        it.assert_holds(&expected);
        it.write(77, 3, 0xAB).expect("writes");
        drop((it.device, it.queue));
        it.server.stop(PATIENCE);
        let file = std::fs::read(folder.join("disk")).expect("it is a file");
        assert_eq!(file[77 * 512..80 * 512], [0xAB; 3 * 512], "a stop flushes");
    });
}

#[test]
fn a_host_uses_a_mirror_of_memory_and_a_file_while_members_fail_and_return() {
    over_each_protocol(|transport| {
        let folder = Folder::new();
        let mut it = Fixture::new(transport, &folder.join("disk"), 2 * MIB);
        it.stop_offering(transport);
        let ram = VolumeSpec::thin(ByteSize(2 * MIB));
        it.server
            .create_volume(name("ram"), &ram, &mut |_| {})
            .expect("room");
        let spec = VolumeSpec {
            kind: VolumeKind::Mirror {
                members: vec!["ram".to_owned(), "file".to_owned()],
                resync_rate: None,
            },
            ..spec(&folder.join("disk"), 2 * MIB)
        };
        let m0 = name("m0");
        it.server
            .create_volume(m0.clone(), &spec, &mut |_| {})
            .expect("both are free");
        (it.device, it.queue) = attach(&it.server, transport, "m0");
        let mut expected = it.write_all(2 * MIB);
        wait_until_in_sync(&it.server);
        it.server
            .fail_member(&m0, &name("ram"))
            .expect("file is in sync");
        it.write(3, 5, 0xA1).expect("the file takes it");
        expected[3 * 512..8 * 512].fill(0xA1);
        it.assert_holds(&expected);
        let last = it.server.fail_member(&m0, &name("file"));
        assert!(matches!(last, Err(ServerError::Volume { .. })), "{last:?}");
        it.server
            .return_member(&m0, &name("ram"))
            .expect("a member");
        it.run(Operation::WriteZeroes(Unmap::Allowed), 700, 30)
            .expect("zeroes");
        expected[700 * 512..730 * 512].fill(0);
        wait_until_in_sync(&it.server);
        it.server
            .fail_member(&m0, &name("file"))
            .expect("ram is in sync");
        it.assert_holds(&expected);
        it.server
            .return_member(&m0, &name("file"))
            .expect("a member");
        wait_until_in_sync(&it.server);
        it.run(Operation::Flush, 0, 0).expect("flushes");
        let file = std::fs::read(folder.join("disk")).expect("it is a file");
        assert!(file == expected, "{transport:?}: the file holds it");
    });
}

fn wait_until_in_sync(server: &Server) {
    let until = Instant::now() + PATIENCE;
    loop {
        let mirror = server.volume(&name("m0")).expect("it exists").mirror;
        let members = mirror.expect("it is one").members;
        if members.iter().all(|member| member.role == Role::InSync) {
            return;
        }
        assert!(Instant::now() < until, "{members:?}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

#[test]
fn a_second_volume_on_a_file_is_refused_and_a_removed_one_leaves_it() {
    let folder = Folder::new();
    let path = folder.join("disk");
    let mut it = Fixture::new(Transport::NvmeTcp, &path, MIB);
    it.write(0, 1, 7).expect("writes");
    let spec = spec(&path, MIB);
    let second = it.server.create_volume(name("second"), &spec, &mut |_| {});
    let refused = matches!(second, Err(ServerError::Volume { .. }));
    assert!(refused, "{second:?}");
    it.server
        .remove_volume(&name("file"), Force::Yes)
        .expect("by force");
    let second = it.server.create_volume(name("second"), &spec, &mut |_| {});
    second.expect("the file is free");
    assert_eq!(std::fs::read(&path).expect("it stays")[..512], [7; 512]);
}

#[test]
fn a_lack_of_space_is_told_in_the_words_of_each_protocol() {
    over_each_protocol(|transport| {
        let Some(folder) = Folder::of_one_mebibyte() else {
            return skip("permission to mount a tmpfs");
        };
        let mut it = Fixture::new(transport, &folder.join("disk"), 4 * MIB);
        let mut results = (0..8192).step_by(128).map(|lba| it.write(lba, 128, 7));
        let failed = results.find_map(Result::err);
        match failed.expect("there is space for 1 MiB") {
            CommandError::Status(given) => assert_eq!(given, Status::CapacityExceeded.into()),
            CommandError::Brp(given) => assert_eq!(given, BrpStatus::CapacityExceeded),
            CommandError::Scsi(CommandFailure::Status { sense, .. }) => {
                let expected = Sense::of_volume(Status::CapacityExceeded);
                let given = sense.expect("CHECK CONDITION has sense data");
                assert_eq!((given.key, given.asc), (expected.key as u8, expected.asc));
            }
            other => panic!("{other:?}"),
        }
    });
}
