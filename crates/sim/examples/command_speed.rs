//! What 4 KiB commands at random blocks cost in a target session of NVMe/TCP, by kind of volume,
//! without sockets:
//!
//! `cargo run --release --package sim --example command_speed -- ram|cache|mirror read|write [MIB]
//! [COMMANDS]`
//!
//! Commands come 32 at a time. The cache holds all of its volume, which is memory too, in
//! write-back mode. A hit of it is copied to the send list, while RAM is sent from where it lies,
//! which this does not do.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::{Duration, Instant};

use block::{BlockSize, Blocks, Completion, Completions, Extent, Lba, Persistence, Volume};
use memory::Provision;
use nvme::controller::{Limits, Namespace, NamespaceIds};
use nvme::tcp::ControllerConfig;
use nvme::testing::{Peer, host, subsystem};
use nvme::wire::{Cid, Nsid, Sgl, Sqe, opcode};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use session::{SendList, StreamSession};
use volume::{
    Budget, ByteSize, CacheMode, CacheSettings, Driver, ManagedVolume, Member, Origin, Platform,
    RamVolume, Relay, VolumeKind, VolumeSpec,
};

const DEPTH: usize = 32;
const LEN_BYTES: usize = 4096;
/// What the fill writes and reads at a time.
const FILL_BYTES: usize = 128 << 10;
const PATIENCE: Duration = Duration::from_secs(30);
/// Where Starting LBA (SLBA) is in a capsule: behind the common header, in command dwords 10 and
/// 11.
const SLBA_AT: usize = 8 + 40;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let [kind, operation, numbers @ ..] = words.as_slice() else {
        panic!("usage: command_speed ram|cache|mirror read|write [MIB] [COMMANDS]");
    };
    let number = |at: usize, default: u64| {
        numbers
            .get(at)
            .map_or(default, |word| word.parse().expect("a number"))
    };
    let (size, commands) = (number(0, 512) << 20, number(1, 2_000_000));
    let volume = volume_of(kind, ByteSize(size));
    let is_read = *operation == "read";
    // Half of a cache may be dirty: what is written beyond waits for the volume below.
    let used = if is_read { size } else { size / 4 };
    let mut load = Load::new(volume, used, is_read);
    let begin = Instant::now();
    for _ in 0..commands / DEPTH as u64 {
        load.batch();
    }
    let nanoseconds = begin.elapsed().as_nanos() / u128::from(commands);
    println!("{kind}, {operation}: {nanoseconds} ns per command");
}

struct Nobody;

impl Completions for Nobody {
    fn done(&self, _: Completion) {}
}

fn volume_of(kind: &str, size: ByteSize) -> Arc<dyn ManagedVolume> {
    let platform = Platform {
        budget: Arc::new(Budget::new(4 * size.0 + (1 << 30))),
        relay: Relay::new(Arc::new(Nobody)),
        lanes: Arc::default(),
        record: None,
    };
    let spec = |kind| VolumeSpec {
        size,
        block_size: BlockSize::B512,
        kind,
    };
    let ram = |name: &str| {
        let spec = spec(VolumeKind::Ram {
            provision: Provision::Thin,
        });
        let progress = &mut |_| ControlFlow::Continue(());
        Member {
            name: name.to_owned(),
            volume: volume::create(&spec, Origin::New, &platform, progress).expect("it fits"),
        }
    };
    let (kind, members) = match kind {
        "ram" => {
            let volume = ram("a").volume;
            fill(&platform, &volume);
            return volume;
        }
        "cache" => {
            let settings = CacheSettings {
                size,
                mode: CacheMode::WriteBack,
                block: CacheSettings::BLOCK_DEFAULT,
                bypass: ByteSize(0),
            };
            let of = ["a".to_owned()];
            (VolumeKind::Cache { of, settings }, vec![ram("a")])
        }
        "mirror" => {
            let members = vec![ram("a"), ram("b")];
            let names = members.iter().map(|member| member.name.clone()).collect();
            let kind = VolumeKind::Mirror {
                members: names,
                resync_rate: None,
            };
            (kind, members)
        }
        other => panic!("{other} is not a kind"),
    };
    let volume =
        volume::create_composite(&spec(kind), members, Origin::New, &platform).expect("it fits");
    fill(&platform, &volume);
    volume
}

/// Writes all blocks of a volume, and reads them, so that a cache holds them.
fn fill(platform: &Platform, volume: &Arc<dyn ManagedVolume>) {
    let mut driver = Driver::new(&platform.relay, Arc::clone(volume), PATIENCE);
    let mut buffer = vec![7; FILL_BYTES];
    let blocks = FILL_BYTES as u64 / 512;
    for number in 0..volume.geometry().blocks.0 / blocks {
        let extent = Extent::new(Lba(number * blocks), Blocks(blocks));
        driver
            .write(extent, &buffer, Persistence::Volatile)
            .expect("it works");
        driver.read(extent, &mut buffer).expect("it works");
    }
    driver.flush().expect("it works");
}

/// A host that sends commands and reads no answer.
struct Load {
    io: Peer,
    _admin: Peer,
    capsules: Vec<u8>,
    capsule_bytes: usize,
    out: SendList,
    blocks: u64,
    random: SmallRng,
}

impl Load {
    fn new(volume: Arc<dyn ManagedVolume>, size: u64, is_read: bool) -> Self {
        let subsystem = subsystem::<RamVolume>(Limits::default(), &[]);
        let namespace = Namespace {
            volume: volume as Arc<dyn Volume>,
            ids: NamespaceIds::from_seed([1; 16]),
        };
        subsystem
            .lock()
            .expect("no panic")
            .add_namespace(Nsid(1), namespace)
            .expect("one namespace fits");
        let (io, admin) = host(
            ControllerConfig::default(),
            &subsystem,
            [7; 16],
            1,
            2 * DEPTH as u16,
        );
        let mut load = Self {
            io,
            _admin: admin,
            capsules: Vec::new(),
            capsule_bytes: 0,
            out: SendList::with_capacity(4 << 20),
            blocks: size / 512,
            random: SmallRng::seed_from_u64(1),
        };
        load.prepare(is_read);
        load
    }

    fn prepare(&mut self, is_read: bool) {
        let opcode = if is_read { opcode::READ } else { opcode::WRITE };
        self.capsules.clear();
        for number in 0..DEPTH as u16 {
            let mut sqe = Sqe::new(opcode, Cid(number), Nsid(1));
            sqe.cdw12 = (LEN_BYTES as u32 / 512 - 1).into();
            let data: &[u8] = if is_read {
                sqe.sgl1 = Sgl::transport(LEN_BYTES as u32);
                &[]
            } else {
                sqe.sgl1 = Sgl::in_capsule(0, LEN_BYTES as u32);
                &[7; LEN_BYTES]
            };
            let capsule = self.io.capsule(&sqe, data);
            self.capsule_bytes = capsule.len();
            self.capsules.extend_from_slice(&capsule);
        }
    }

    fn batch(&mut self) {
        for number in 0..DEPTH {
            let at = number * self.capsule_bytes + SLBA_AT;
            let block = self.random.random_range(0..self.blocks / 8) * 8;
            self.capsules[at..at + 8].copy_from_slice(&block.to_le_bytes());
        }
        self.send();
    }

    fn send(&mut self) {
        self.io
            .session
            .handle_bytes(self.io.now, &self.capsules, &mut self.io.backend)
            .expect("good PDUs");
        self.io
            .session
            .poll_transmit(self.io.now, &mut self.io.backend, &mut self.out);
        self.out.consume(self.out.len_bytes());
        assert_eq!(self.io.backend.completed.len(), DEPTH, "all are answered");
        self.io.backend.completed.clear();
    }
}
