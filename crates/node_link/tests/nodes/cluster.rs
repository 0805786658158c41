//! Nodes on loopback addresses, each with a copy of one volume, and hosts that use it.

use std::collections::BTreeMap;
use std::net::TcpListener;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use block::{
    Admission, BlockSize, Blocks, Completion, Completions, DataUse, Extent, Geometry, Intent, Lba,
    Op, OpKind, Persistence, ReadDest, Settled, Status, Ticket, Volume,
};
use memory::Budget;
use node_link::{
    Agreement, Answer, MemoryAgreement, Node, NodeOptions, ReplicatedVolume, Role, Security,
    VolumeId, VolumeOptions, VolumeStatus,
};
use replica::{Config, MemberId, Settings, StoreOp};

pub const CLUSTER: u64 = 0xC1;
pub const VOLUME: VolumeId = VolumeId(7);
pub const BLOCKS: u64 = 4096;
/// How long anything may take, on a machine with other work.
pub const PATIENCE: Duration = Duration::from_secs(30);
/// A node may stand still for this long, on such a machine, without being replaced.
const LEASE: Duration = Duration::from_millis(1500);
/// After which time a node that is silent was replaced, if there is one that can replace it.
pub const REPLACED: Duration = Duration::from_millis(3500);

fn settings() -> Settings {
    let ms = Duration::from_millis;
    Settings {
        blocks: Blocks(BLOCKS),
        region_blocks: Blocks(64),
        piece_blocks: Blocks(32),
        lease: LEASE,
        drift_ppm: 1000,
        answer_timeout: LEASE,
        beacon_interval: ms(100),
        resend_after: ms(200),
        store_timeout: ms(300),
        piece_interval: Duration::from_micros(100),
        writes_max: 128,
        pieces_max: 16,
        unsettled_max: 256,
    }
}

/// The store as one node reaches it, unless it is cut off.
struct Reached {
    store: Arc<MemoryAgreement>,
    is_cut: Arc<AtomicBool>,
}

impl Agreement for Reached {
    fn request(&self, volume: VolumeId, op: StoreOp, answer: Answer) {
        if !self.is_cut.load(Ordering::SeqCst) {
            self.store.request(volume, op, answer);
        }
    }
}

#[derive(Default)]
pub struct Completed {
    results: Mutex<BTreeMap<Ticket, Result<(), Status>>>,
    has_more: Condvar,
}

impl Completions for Completed {
    fn done(&self, completion: Completion) {
        let mut results = self.results.lock().expect("no test panics with it");
        results.insert(completion.ticket, completion.result);
        self.has_more.notify_all();
    }
}

pub struct Machine {
    /// `None`: killed.
    pub node: Option<Node>,
    pub volume: Option<Arc<ReplicatedVolume>>,
    pub is_cut_off: Arc<AtomicBool>,
    completed: Arc<Completed>,
    incarnation: u64,
    /// What the copy takes memory from.
    pub budget: Arc<Budget>,
}

pub struct Cluster {
    pub store: Arc<MemoryAgreement>,
    pub machines: Vec<Machine>,
    security: Vec<Security>,
}

impl Cluster {
    /// Three nodes with a copy each; the first is primary.
    pub fn start() -> Self {
        Self::with_security(vec![Security::Plain; 3], None)
    }

    /// The same with these credentials; of one node the others' secrets may not be known, so it
    /// does not reach the store either.
    pub fn with_security(security: Vec<Security>, stranger: Option<usize>) -> Self {
        let mut cluster = Self {
            store: Arc::default(),
            machines: Vec::new(),
            security,
        };
        for place in 0..cluster.security.len() {
            let is_cut_off = AtomicBool::new(stranger == Some(place));
            cluster.machines.push(Machine {
                node: None,
                volume: None,
                is_cut_off: Arc::new(is_cut_off),
                completed: Arc::default(),
                incarnation: 0,
                budget: Arc::new(Budget::new(256 << 20)),
            });
        }
        let members: Vec<MemberId> = (0..cluster.machines.len())
            .map(|place| MemberId {
                node: place as u32,
                incarnation: 1,
            })
            .collect();
        let first = Config::first(members[0], &members).expect("a configuration");
        cluster.store.insert(VOLUME, first);
        for place in 0..cluster.machines.len() {
            cluster.restart(place);
        }
        cluster.await_status(0, |status| status.is_serving);
        cluster
    }

    /// Starts a node with an empty copy.
    pub fn restart(&mut self, place: usize) {
        let store = Arc::clone(&self.store);
        let machine = &mut self.machines[place];
        machine.incarnation += 1;
        let options = NodeOptions {
            node: place as u32,
            cluster: CLUSTER,
            incarnation: machine.incarnation,
            listener: TcpListener::bind("127.0.0.1:0").expect("a port"),
            security: self.security[place].clone(),
        };
        let is_cut = Arc::clone(&machine.is_cut_off);
        let agreement = Arc::new(Reached { store, is_cut });
        let completions = Arc::clone(&machine.completed) as _;
        let node = Node::start(options, agreement, completions).expect("started");
        let volume = node.open(VOLUME, machine.volume_options(place));
        machine.volume = Some(volume.expect("opened"));
        machine.node = Some(node);
        for other in 0..self.machines.len() {
            self.connect(place, other);
            self.connect(other, place);
        }
    }

    /// A node ends without a word to the others.
    pub fn kill(&mut self, place: usize) {
        self.machines[place].volume = None;
        self.machines[place].node = None;
    }

    /// Nothing reaches a node, or leaves it.
    pub fn cut_off(&self, place: usize) {
        self.machines[place]
            .is_cut_off
            .store(true, Ordering::SeqCst);
        for (other, machine) in self.machines.iter().enumerate() {
            if let (Some(node), Some(cut)) = (&machine.node, &self.machines[place].node) {
                node.remove_peer(place as u32);
                cut.remove_peer(other as u32);
            }
        }
    }

    pub fn reconnect(&self, place: usize) {
        self.machines[place]
            .is_cut_off
            .store(false, Ordering::SeqCst);
        for other in 0..self.machines.len() {
            self.connect(place, other);
            self.connect(other, place);
        }
    }

    fn connect(&self, from: usize, to: usize) {
        let (Some(node), Some(peer)) = (&self.machines[from].node, &self.machines[to].node) else {
            return;
        };
        if from != to {
            let set = node.set_peer(to as u32, vec![peer.listening()]);
            set.expect("a thread");
        }
    }

    pub fn status(&self, place: usize) -> VolumeStatus {
        let volume = self.machines[place].volume.as_ref();
        volume.expect("the node runs").status()
    }

    pub fn await_status(&self, place: usize, is_it: impl Fn(&VolumeStatus) -> bool) {
        let since = Instant::now();
        loop {
            let status = self.status(place);
            if is_it(&status) {
                return;
            }
            assert!(since.elapsed() < PATIENCE, "node {place} has {status:?}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// The node that serves the volume with as many copies in sync.
    pub fn await_primary(&self, copies: usize) -> usize {
        let serves = |place: &usize| {
            self.machines[*place].volume.as_ref().is_some_and(|volume| {
                let status = volume.status();
                status.is_serving && status.in_sync.len() == copies
            })
        };
        let since = Instant::now();
        while since.elapsed() < PATIENCE {
            if let Some(place) = (0..self.machines.len()).find(serves) {
                return place;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        panic!("no node serves the volume with {copies} copies");
    }

    /// The node that serves the volume instead of `former`.
    pub fn await_another_primary(&self, former: usize) -> usize {
        let since = Instant::now();
        loop {
            let primary = self.await_primary(self.machines.len());
            if primary != former {
                return primary;
            }
            assert!(since.elapsed() < PATIENCE, "{former} stays primary");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// These nodes are not to be primaries.
    pub fn drain(&self, places: &[usize]) {
        for node in self
            .machines
            .iter()
            .filter_map(|machine| machine.node.as_ref())
        {
            node.set_drained(places.iter().map(|place| *place as u32).collect());
        }
    }

    pub fn await_copies(&self, place: usize, copies: usize) {
        self.await_status(place, |status| {
            status.role == Role::Primary && status.is_serving && status.in_sync.len() == copies
        });
    }

    pub fn host(&self, place: usize) -> Host {
        let machine = &self.machines[place];
        Host::new(
            machine.volume.clone().expect("the node runs"),
            Arc::clone(&machine.completed),
        )
    }
}

impl Machine {
    fn volume_options(&self, place: usize) -> VolumeOptions {
        VolumeOptions {
            geometry: Geometry::new(BlockSize::B4096, Blocks(BLOCKS)),
            settings: settings(),
            member: Some(MemberId {
                node: place as u32,
                incarnation: self.incarnation,
            }),
            budget: Arc::clone(&self.budget),
        }
    }
}

/// Runs commands as a session does, and waits for each.
pub struct Host {
    volume: Arc<ReplicatedVolume>,
    completed: Arc<Completed>,
    connection: u64,
    last: u32,
}

/// The command was not answered in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failed {
    Status(Status),
    TimedOut,
}

static CONNECTIONS: AtomicU32 = AtomicU32::new(0);

impl Host {
    fn new(volume: Arc<ReplicatedVolume>, completed: Arc<Completed>) -> Self {
        let number = CONNECTIONS.fetch_add(1, Ordering::SeqCst);
        Self {
            volume,
            completed,
            connection: Ticket::CONNECTIONS_MIN + u64::from(number),
            last: 0,
        }
    }

    pub fn write(&mut self, lba: u64, data: &[u8], within: Duration) -> Result<(), Failed> {
        let extent = Extent::new(Lba(lba), Blocks(data.len() as u64 / 4096));
        self.run(OpKind::Write, &[extent], within, &mut |volume| {
            volume.execute(Op::Write { extent, data })
        })
    }

    pub fn read(&mut self, lba: u64, blocks: u64, within: Duration) -> Result<Vec<u8>, Failed> {
        let extent = Extent::new(Lba(lba), Blocks(blocks));
        let mut buffer = vec![0xEE; blocks as usize * 4096];
        self.run(OpKind::Read, &[extent], within, &mut |volume| {
            let dest = ReadDest::Copy(&mut buffer);
            volume.execute(Op::Read { extent, dest })
        })?;
        Ok(buffer)
    }

    /// Runs any operation that changes blocks of `extent`, or copies them elsewhere.
    pub fn change(
        &mut self,
        extent: Extent,
        mut op: impl FnMut() -> Op<'static>,
    ) -> Result<(), Failed> {
        let extents = match op() {
            Op::Copy { from, to } => vec![Extent::new(to, from.blocks), from],
            _ => vec![extent],
        };
        self.run(OpKind::Write, &extents, PATIENCE, &mut |volume| {
            volume.execute(op())
        })
    }

    fn run(
        &mut self,
        kind: OpKind,
        extents: &[Extent],
        within: Duration,
        execute: &mut dyn FnMut(&ReplicatedVolume) -> Result<(), Status>,
    ) -> Result<(), Failed> {
        self.last += 1;
        let ticket = Ticket {
            connection: self.connection,
            slot: 0,
            generation: self.last,
        };
        let data_use = match kind {
            OpKind::Read => DataUse::Read,
            _ => DataUse::Overwrite,
        };
        let intent = Intent {
            kind,
            extents,
            len_bytes: extents[0].blocks.0 * 4096,
            data_use,
            persistence: Persistence::Volatile,
        };
        let admitted = self.volume.admit(Instant::now(), &intent, ticket);
        let result = self.go_on(admitted, kind, ticket, within, execute);
        if !matches!(admitted, Admission::Now | Admission::Fail(..)) {
            self.volume.release(ticket);
        }
        result
    }

    fn go_on(
        &self,
        admitted: Admission,
        kind: OpKind,
        ticket: Ticket,
        within: Duration,
        execute: &mut dyn FnMut(&ReplicatedVolume) -> Result<(), Status>,
    ) -> Result<(), Failed> {
        match admitted {
            Admission::Fail(status, _) => return Err(Failed::Status(status)),
            Admission::Later(_) => self.completion(ticket, within)?,
            _ => {}
        }
        execute(&self.volume).map_err(Failed::Status)?;
        if kind == OpKind::Read || admitted == Admission::Now {
            return Ok(());
        }
        match self.volume.settle(ticket).map_err(Failed::Status)? {
            Settled::Done => Ok(()),
            Settled::Later => self.completion(ticket, within),
        }
    }

    fn completion(&self, ticket: Ticket, within: Duration) -> Result<(), Failed> {
        let since = Instant::now();
        let mut results = self
            .completed
            .results
            .lock()
            .expect("no test panics with it");
        loop {
            if let Some(result) = results.remove(&ticket) {
                return result.map_err(Failed::Status);
            }
            let left = within.saturating_sub(since.elapsed());
            if left.is_zero() {
                return Err(Failed::TimedOut);
            }
            let waited = self.completed.has_more.wait_timeout(results, left);
            (results, _) = waited.expect("no test panics with it");
        }
    }
}
