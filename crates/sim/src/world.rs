//! Hosts, a target and a network under one seed.

use std::ops::ControlFlow;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use block::testing::{LateVolume, Lateness};
use block::{BlockSize, Lba, Status, Volume};
use brp::testing::{RdmaLink, TcpLink, TestTarget as BrpTarget};
use iscsi::Digest;
use iscsi::testing::TestTarget;
use memory::{Budget, Provision};
use nvme::controller::{
    Limits, Namespace, NamespaceIds, Statistics, Subsystem, SubsystemConfig, Usage,
};
use nvme::tcp::wire::Dgst;
use nvme::wire::Nsid;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use volume::{ByteSize, Managed, ManagedVolume as _, RamVolume, VolumeSpec};

use crate::host::{Host, PART_BLOCKS};
use crate::model::Model;
use crate::path::{
    BLOCK_BYTES, BrpPath, Ends, IscsiPath, IserPath, NvmeRdmaPath, NvmeTcpPath, Path,
};

/// How often something moves for each thing that a host does.
const SHUFFLES_PER_STEP: usize = 8;
/// A late volume fails one fill or settlement in each run of this many.
const FAILURE_EVERY: u32 = 50;

/// How hosts reach the target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// NVMe/TCP.
    NvmeTcp,
    /// NVMe/RDMA.
    NvmeRdma,
    /// iSCSI.
    Iscsi,
    /// iSER.
    Iser,
    /// BRP over TCP.
    Brp,
    /// BRP over RDMA.
    BrpRdma,
}

impl Protocol {
    /// All of them.
    pub const ALL: [Self; 6] = [
        Self::NvmeTcp,
        Self::NvmeRdma,
        Self::Iscsi,
        Self::Iser,
        Self::Brp,
        Self::BrpRdma,
    ];
}

/// What a run is to do.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// How hosts reach the target.
    pub protocol: Protocol,
    /// How many hosts.
    pub hosts: u64,
    /// Whether all hosts use the same blocks.
    pub shares_blocks: bool,
    /// Whether the volume makes commands wait, lets them go on in any order, and fails some.
    /// Otherwise it is a RAM volume.
    pub is_late: bool,
    /// How many steps.
    pub steps: u64,
    /// One step in each run of this many cuts a connection.
    pub cut_every: u32,
    /// Header and data digests, over TCP.
    pub has_digests: bool,
}

impl Plan {
    /// Three hosts on a RAM volume, each with blocks of its own.
    pub fn new(protocol: Protocol) -> Self {
        Self {
            protocol,
            hosts: 3,
            shares_blocks: false,
            is_late: false,
            steps: 15_000,
            cut_every: 4_000,
            has_digests: false,
        }
    }
}

/// What a run did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Read commands whose every block was checked.
    pub reads_checked: u64,
    /// Writes, zeroings and deallocations that were acknowledged.
    pub writes_done: u64,
    /// Compare-and-writes that wrote.
    pub swaps_done: u64,
    /// Compare-and-writes that found other blocks than they expected.
    pub miscompares: u64,
    /// Flushes that were acknowledged.
    pub flushes_done: u64,
    /// Commands that ended with an error.
    pub failures: u64,
    /// Connections that were cut.
    pub cuts: u64,
}

/// An event that happens once in each run of `period` steps, at a step that the seed chooses: never
/// zero times in a long test, whatever the seed.
struct Recurrence {
    period: u32,
    /// Steps of the present run that are left.
    left: u32,
    /// What is left when the event happens.
    happens_at: u32,
}

impl Recurrence {
    fn every(period: u32) -> Self {
        Self {
            period,
            left: 0,
            happens_at: 0,
        }
    }

    /// Takes a step; whether the event happens at it.
    fn is_now(&mut self, rng: &mut SmallRng) -> bool {
        if self.left == 0 {
            self.left = self.period;
            self.happens_at = rng.random_range(1..=self.period);
        }
        let is_now = self.left == self.happens_at;
        self.left -= 1;
        is_now
    }
}

/// The volume under test.
enum Disk {
    Ram(Arc<Managed<RamVolume>>),
    Late(Arc<LateVolume>),
}

/// The target's side of new connections.
struct Target {
    volume: Arc<dyn Volume>,
    subsystem: Arc<Mutex<Subsystem>>,
    iscsi: TestTarget,
    brp: Arc<BrpTarget>,
    /// How many NVMe connections there were.
    connections: u64,
}

/// A target, its hosts and the network between them.
pub struct World {
    plan: Plan,
    rng: SmallRng,
    now: Instant,
    cuts: Recurrence,
    volume_failures: Recurrence,
    disk: Disk,
    target: Target,
    hosts: Vec<Host>,
    model: Model,
}

impl World {
    /// A world whose every choice follows from `seed`.
    pub fn new(seed: u64, plan: Plan) -> Self {
        let (disk, target) = if plan.is_late {
            let late = Arc::new(LateVolume::new(BlockSize::B512, plan.hosts * PART_BLOCKS));
            late.disk().keep_flushed();
            (Disk::Late(Arc::clone(&late)), Target::new(late))
        } else {
            let ram = ram_volume(plan.hosts * PART_BLOCKS * 512);
            (Disk::Ram(Arc::clone(&ram)), Target::new(ram))
        };
        let start = |index| {
            if plan.shares_blocks {
                0
            } else {
                index * PART_BLOCKS
            }
        };
        Self {
            plan,
            rng: SmallRng::seed_from_u64(seed),
            now: Instant::now(),
            cuts: Recurrence::every(plan.cut_every),
            volume_failures: Recurrence::every(FAILURE_EVERY),
            disk,
            target,
            hosts: (0..plan.hosts)
                .map(|index| Host::new(index, start(index)))
                .collect(),
            model: Model::default(),
        }
    }

    /// Runs the plan to its end.
    ///
    /// # Panics
    /// If a read returns what no write can have left, an end breaks the protocol, a command fails
    /// that should not, or a lease on the volume outlives its connection.
    pub fn run(mut self) -> Report {
        for _ in 0..self.plan.steps {
            self.now += Duration::from_micros(self.rng.random_range(1..50));
            self.let_volume_go_on();
            let index = self.rng.random_range(0..self.hosts.len());
            let host = &mut self.hosts[index];
            if self.cuts.is_now(&mut self.rng) {
                host.cut(self.now, &mut self.model);
            }
            let (target, plan, now) = (&mut self.target, self.plan, self.now);
            let mut connect = || target.connect(plan, index as u64, now);
            host.step(now, &mut self.rng, &mut self.model, &mut connect);
            for _ in 0..SHUFFLES_PER_STEP {
                host.shuffle(self.now, &mut self.rng);
            }
        }
        self.end()
    }

    /// A late volume continues with one of the commands that wait for it, and changes how late it
    /// is.
    fn let_volume_go_on(&mut self) {
        let Disk::Late(late) = &self.disk else {
            return;
        };
        let rng = &mut self.rng;
        let lateness = match rng.random_range(0..3) {
            0 => Lateness::Settling,
            1 => Lateness::Filling,
            _ => Lateness::Both,
        };
        late.set_lateness(lateness);
        let waiting = late.waiting();
        if waiting.is_empty() || rng.random_bool(0.2) {
            return;
        }
        let ticket = waiting[rng.random_range(0..waiting.len())];
        let result = if self.volume_failures.is_now(rng) {
            Err(Status::WriteError)
        } else {
            Ok(())
        };
        let completion = late.complete(ticket, result);
        for host in &mut self.hosts {
            host.complete(self.now, completion);
        }
    }

    fn end(mut self) -> Report {
        let mut report = Report::default();
        for host in &mut self.hosts {
            report.reads_checked += host.reads_checked;
            report.writes_done += host.writes_done;
            report.swaps_done += host.swaps_done;
            report.miscompares += host.miscompares;
            report.flushes_done += host.flushes_done;
            report.failures += host.failures;
            report.cuts += host.cuts;
            host.cut(self.now, &mut self.model);
        }
        match &self.disk {
            Disk::Ram(ram) => {
                assert_eq!(report.failures, 0, "a RAM volume fails no command");
                ram.remove();
            }
            Disk::Late(late) => {
                assert_eq!(late.leases(), 0, "leases end with their connections");
                let flushed = late.disk().flushed().unwrap_or_default();
                for (lba, block) in (0..).zip(flushed.chunks_exact(BLOCK_BYTES)) {
                    self.model.check_flushed(Lba(lba), block);
                }
            }
        }
        report
    }
}

impl Target {
    fn new<V: Volume + 'static>(volume: Arc<V>) -> Self {
        Self {
            subsystem: Arc::new(Mutex::new(
                subsystem(Arc::clone(&volume) as Arc<dyn Volume>),
            )),
            brp: BrpTarget::new(volume.clone()),
            iscsi: TestTarget::over(vec![Arc::clone(&volume)], Vec::new()),
            volume,
            connections: 0,
        }
    }

    /// The path of a host that has none.
    fn connect(&mut self, plan: Plan, host: u64, now: Instant) -> Box<dyn Path> {
        self.connections += 2;
        let ends = Ends {
            subsystem: Arc::clone(&self.subsystem),
            volume: Arc::clone(&self.volume),
            connections: [self.connections - 1, self.connections],
            host,
            dgst: if plan.has_digests {
                Dgst::HEADER | Dgst::DATA
            } else {
                Dgst::default()
            },
        };
        let digest = if plan.has_digests {
            Digest::Crc32c
        } else {
            Digest::None
        };
        match plan.protocol {
            Protocol::NvmeTcp => Box::new(NvmeTcpPath::new(now, ends)),
            Protocol::NvmeRdma => Box::new(NvmeRdmaPath::new(&ends)),
            Protocol::Iscsi => {
                let volume = Arc::clone(&self.volume);
                Box::new(IscsiPath::new(&self.iscsi, volume, host, digest))
            }
            Protocol::Iser => Box::new(IserPath::new(&self.iscsi, now, host)),
            Protocol::Brp => {
                let volume = Arc::clone(&self.volume);
                Box::new(BrpPath::<TcpLink>::new(now, &self.brp, volume, host))
            }
            Protocol::BrpRdma => {
                let volume = Arc::clone(&self.volume);
                Box::new(BrpPath::<RdmaLink>::new(now, &self.brp, volume, host))
            }
        }
    }
}

/// A thin volume of at least `len_bytes`, as the server has it.
pub(crate) fn ram_volume(len_bytes: u64) -> Arc<Managed<RamVolume>> {
    let size = ByteSize(len_bytes.next_multiple_of(VolumeSpec::SIZE_MIN.0));
    let geometry = VolumeSpec::thin(size).geometry();
    let budget = Arc::new(Budget::new(1 << 30));
    let mut progress = |_| ControlFlow::Continue(());
    let ram = RamVolume::new(geometry, Provision::Thin, &budget, &mut progress);
    Arc::new(Managed::new(ram.expect("a small volume fits")))
}

fn subsystem(volume: Arc<dyn Volume>) -> Subsystem {
    let config = SubsystemConfig {
        nqn: "nqn.2014-08.org.example:test".to_owned(),
        serial: "1".to_owned(),
        model: "simulated".to_owned(),
        firmware: "1".to_owned(),
        limits: Limits::default(),
    };
    let mut subsystem = Subsystem::new(config, Box::new(Unread));
    let namespace = Namespace {
        volume,
        ids: NamespaceIds::from_seed([1; 16]),
    };
    subsystem
        .add_namespace(Nsid(1), namespace)
        .expect("the first namespace fits");
    subsystem
}

/// Statistics are not used.
struct Unread;

impl Statistics for Unread {
    fn usage(&self) -> Usage {
        Usage::default()
    }

    fn allocated_bytes(&self, _: Nsid) -> u64 {
        0
    }
}
