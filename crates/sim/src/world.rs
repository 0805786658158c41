//! Hosts, a target and a network under one seed.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use block::Volume;
use memory::Budget;
use nvme::controller::{
    Limits, Namespace, NamespaceIds, Statistics, Subsystem, SubsystemConfig, Usage,
};
use nvme::tcp::wire::Dgst;
use nvme::testing::TestBackend;
use nvme::wire::Nsid;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use volume::{ByteSize, RamSpec, RamVolume};

use crate::host::{Host, PART_BLOCKS};
use crate::model::Model;

/// How often bytes move for each thing that a host does.
const SHUFFLES_PER_STEP: usize = 8;

/// What a run is to do.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// How many hosts.
    pub hosts: u64,
    /// How many steps.
    pub steps: u64,
    /// One step in so many cuts a connection.
    pub cut_every: u32,
    /// Header and data digests.
    pub dgst: Dgst,
}

impl Default for Plan {
    fn default() -> Self {
        Self {
            hosts: 3,
            steps: 15_000,
            cut_every: 4_000,
            dgst: Dgst::default(),
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
    /// Connections that were cut.
    pub cuts: u64,
}

/// A target, its hosts and the network between them.
pub struct World {
    plan: Plan,
    rng: SmallRng,
    now: Instant,
    subsystem: Arc<Mutex<Subsystem>>,
    hosts: Vec<Host>,
    model: Model,
    connections: u64,
}

impl World {
    /// A world whose every choice follows from `seed`.
    pub fn new(seed: u64, plan: Plan) -> Self {
        let len_bytes = (plan.hosts * PART_BLOCKS * 512).next_multiple_of(1 << 20);
        let spec = RamSpec::thin(ByteSize(len_bytes.max(RamSpec::SIZE_MIN.0)));
        let budget = Arc::new(Budget::new(1 << 30));
        let volume = RamVolume::new(spec, &budget).expect("a small volume fits");
        Self {
            plan,
            rng: SmallRng::seed_from_u64(seed),
            now: Instant::now(),
            subsystem: Arc::new(Mutex::new(subsystem(volume))),
            hosts: (0..plan.hosts)
                .map(|index| Host::new(index, plan.dgst))
                .collect(),
            model: Model::default(),
            connections: 0,
        }
    }

    /// Runs the plan to its end.
    ///
    /// # Panics
    /// Where a read gives what no write can have left, or an end breaks the protocol.
    pub fn run(mut self) -> Report {
        for _ in 0..self.plan.steps {
            self.now += Duration::from_micros(self.rng.random_range(1..50));
            let index = self.rng.random_range(0..self.hosts.len());
            let host = &mut self.hosts[index];
            if self.rng.random_range(0..self.plan.cut_every) == 0 {
                host.cut(self.now, &mut self.model);
            }
            let (subsystem, connections) = (&self.subsystem, &mut self.connections);
            let mut backend = || {
                *connections += 1;
                TestBackend::new(Arc::clone(subsystem), *connections)
            };
            host.step(self.now, &mut self.rng, &mut self.model, &mut backend);
            for _ in 0..SHUFFLES_PER_STEP {
                host.shuffle(self.now, &mut self.rng);
            }
        }
        self.hosts
            .iter()
            .fold(Report::default(), |sum, host| Report {
                reads_checked: sum.reads_checked + host.reads_checked,
                writes_done: sum.writes_done + host.writes_done,
                cuts: sum.cuts + host.cuts,
            })
    }
}

fn subsystem(volume: Arc<RamVolume>) -> Subsystem {
    let config = SubsystemConfig {
        nqn: "nqn.2014-08.org.example:test".to_owned(),
        serial: "1".to_owned(),
        model: "simulated".to_owned(),
        firmware: "1".to_owned(),
        limits: Limits::default(),
    };
    let mut subsystem = Subsystem::new(config, Box::new(Unread));
    let namespace = Namespace {
        volume: volume as Arc<dyn Volume>,
        ids: NamespaceIds::from_seed([1; 16]),
    };
    subsystem
        .add_namespace(Nsid(1), namespace)
        .expect("the first namespace fits");
    subsystem
}

/// Nobody reads statistics here.
struct Unread;

impl Statistics for Unread {
    fn usage(&self) -> Usage {
        Usage::default()
    }

    fn allocated_bytes(&self, _: Nsid) -> u64 {
        0
    }
}
