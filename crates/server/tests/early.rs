//! A volume that is served while it is restored, through the whole server.

mod fixture;

use std::ops::ControlFlow;
use std::path::Path;
use std::time::Duration;

use block::testing::Folder;
use block::{Blocks, Extent, Lba};
use initiator::{
    CommandError, Device, DeviceOptions, Operation, Queue, Request, Slot, WaitStrategy,
};
use server::{Availability, ByteSize, HostPolicy, Server, Transport, VolumeName, VolumeSpec};
use volume::{LoadStep, Loader, Replace, SaveId, SaveMode, Target};

const MIB: u64 = 1 << 20;
const PATIENCE: Duration = Duration::from_secs(60);
/// Blocks of a command: 64 KiB.
const BLOCKS: u64 = 128;
/// Commands that cover the volume of 4 MiB.
const COMMANDS: u64 = 64;
/// Commands that cover a chunk of a save.
const COMMANDS_PER_CHUNK: u64 = 4;

/// A server that offers a volume of 4 MiB, and a host of it.
struct Fixture {
    server: Server,
    _device: Device,
    queue: Queue,
}

fn name() -> VolumeName {
    "rd0".parse().expect("a name")
}

impl Fixture {
    /// A server whose volume is being restored from `file`, if there is one.
    fn new(transport: Transport, file: Option<&Path>) -> (Self, Option<Loader>) {
        let config = fixture::config(1, 64 * MIB);
        let server = fixture::start(config, "rd0", &VolumeSpec::thin(ByteSize(4 * MIB)));
        let loader = file.map(|file| {
            let set = |to| {
                server
                    .set_volume_availability(&name(), to)
                    .expect("it exists");
            };
            set(Availability::Offline);
            let loader = server.begin_restore(&name(), file, None).expect("it fits");
            set(Availability::Online);
            loader
        });
        let (target, port, query) = match transport {
            Transport::Iscsi | Transport::Iser => ("iqn.2026-11.com.example:early", 0, "/0"),
            Transport::NvmeTcp => ("nqn.2026-11.com.example:early", 0, "?ns=1"),
            // Queue pairs in software share a port, so each end has an address of its own.
            Transport::NvmeRdma => (
                "nqn.2026-11.com.example:early",
                4420,
                "?ns=1&rdma=soft&local=127.0.55.2",
            ),
            Transport::Brp => ("nqn.2026-11.com.example:early", 0, "?unit=1"),
            Transport::BrpRdma => (
                "nqn.2026-11.com.example:early",
                4424,
                "?unit=1&rdma=soft&local=127.0.55.2",
            ),
            Transport::Nfs | Transport::NfsUdp | Transport::NfsRdma => panic!("NFS has no volumes"),
            Transport::Srp => panic!("there is no initiator of SRP"),
        };
        fixture::offer(&server, target, "rd0", HostPolicy::Local);
        let portal = fixture::portal(transport, ([127, 0, 55, 1], port));
        let portal = server.add_portal(portal).expect("a free port");
        let url = format!("{portal}/{target}{query}").parse().expect("a URL");
        let options = DeviceOptions {
            depth: 4,
            buffer_bytes: 64 << 10,
            ..DeviceOptions::default()
        };
        let mut device = Device::connect(&url, &options).expect("attaches");
        let queue = device.take_queues().remove(0);
        let it = Self {
            server,
            _device: device,
            queue,
        };
        (it, loader)
    }

    fn submit(&mut self, slot: u16, operation: Operation, number: u64) {
        let request = Request {
            slot: Slot(slot),
            operation,
            extent: Extent::new(Lba(number * BLOCKS), Blocks(BLOCKS)),
        };
        self.queue.submit(request).expect("the slot is free");
    }

    /// The next outcome, if it comes in time.
    fn outcome(&mut self, patience: Duration) -> Option<(Slot, Result<(), CommandError>)> {
        let mut done = Vec::new();
        let waited = self.queue.wait(WaitStrategy::Sleep, patience, &mut done);
        waited.expect("the queue lives");
        done.first().map(|outcome| (outcome.slot, outcome.result))
    }

    fn run(&mut self, operation: Operation, number: u64) -> Result<(), CommandError> {
        self.submit(0, operation, number);
        self.outcome(PATIENCE).expect("it is executed at once").1
    }

    fn write(&mut self, number: u64, round: u8) {
        let bytes = pattern(number, round);
        self.queue.buffer_mut(Slot(0)).copy_from_slice(&bytes);
        self.run(Operation::Write, number).expect("writes");
    }

    fn assert_holds(&mut self, slot: u16, number: u64, round: u8) {
        let held = self.queue.buffer(Slot(slot)) == pattern(number, round);
        assert!(held, "command {number} reads round {round}");
    }
}

/// 64 KiB that LZ4 cannot shorten.
fn pattern(number: u64, round: u8) -> Vec<u8> {
    let mut state = number << 8 | u64::from(round) | 1 << 40;
    let next = |_| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (state >> 56) as u8
    };
    (0..64 << 10).map(next).collect()
}

/// A save of a volume that was written in round 1, damaged in its last chunk.
fn save(folder: &Folder, transport: Transport) -> std::path::PathBuf {
    let (mut it, _) = Fixture::new(transport, None);
    for number in 0..COMMANDS {
        it.write(number, 1);
    }
    let file = folder.join("rd0.save");
    let progress = &mut |_| ControlFlow::Continue(());
    let id = SaveId::first();
    let target = Target {
        path: &file,
        replace: Replace::AnySave,
        mode: SaveMode::Single,
        prepare: || (),
    };
    let saved = it.server.save_volume(&name(), id, &target, progress);
    saved.expect("saved");
    let mut bytes = std::fs::read(&file).expect("there");
    let last_chunk = bytes.len() - (200 << 10);
    bytes[last_chunk] ^= 1;
    std::fs::write(&file, bytes).expect("written");
    file
}

#[test]
fn hosts_use_a_volume_while_it_is_restored() {
    for transport in [
        Transport::NvmeTcp,
        Transport::NvmeRdma,
        Transport::Iscsi,
        Transport::Brp,
    ] {
        let folder = Folder::new();
        let file = save(&folder, transport);
        let (mut it, loader) = Fixture::new(transport, Some(&file));
        let mut loader = loader.expect("it is being restored");
        let (in_chunk_5, in_chunk_9) = (5 * COMMANDS_PER_CHUNK, 9 * COMMANDS_PER_CHUNK + 3);
        it.submit(1, Operation::Read, in_chunk_9);
        it.submit(2, Operation::Read, in_chunk_5);
        it.write(in_chunk_5 + 1, 2);
        it.write(0, 2);
        let early = it.outcome(Duration::from_millis(50));
        assert_eq!(early, None, "what was not read is not answered");
        for (slot, number) in [(2, in_chunk_5), (1, in_chunk_9)] {
            loader.step().expect("room");
            let (done, result) = it.outcome(PATIENCE).expect("it is read first");
            assert_eq!((done, result), (Slot(slot), Ok(())));
            it.assert_holds(slot, number, 1);
        }
        it.submit(1, Operation::Read, COMMANDS - 1);
        while !loader.is_awaited() {
            assert_eq!(it.outcome(Duration::from_millis(10)), None, "it waits");
        }
        loader.step().expect("room");
        let (_, result) = it.outcome(PATIENCE).expect("it fails");
        let failure = result.expect_err("the file is damaged there").to_string();
        assert!(failure.to_lowercase().contains("unrecovered"), "{failure}");
        while !matches!(loader.step().expect("room"), LoadStep::End) {}
        let damage = it.server.volume(&name()).expect("it exists").damage;
        assert_eq!(damage.to_string(), "bytes 3932160 to 4194303");
        for number in COMMANDS - COMMANDS_PER_CHUNK..COMMANDS {
            it.write(number, 3);
        }
        assert!(
            it.server
                .volume(&name())
                .expect("it exists")
                .damage
                .is_empty()
        );
        for number in 0..COMMANDS {
            it.run(Operation::Read, number).expect("it is there");
            let round = match number {
                0 => 2,
                _ if number == in_chunk_5 + 1 => 2,
                60.. => 3,
                _ => 1,
            };
            it.assert_holds(0, number, round);
        }
    }
}
