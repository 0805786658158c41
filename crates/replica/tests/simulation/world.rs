//! Nodes, hosts, the store and the network between them, under one seed.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use block::Blocks;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use replica::{
    Config, Envelope, HostReply, HostRequest, MemberId, Output, Settings, StoreOp, StoreRequestId,
};

use crate::disk::Data;
use crate::faults::{Faults, NodeFault};
use crate::hosts::{Command, Hosts, Reply};
use crate::node::Node;

const HOSTS: usize = 4;
/// How long faults happen.
const FAULTS_END: Duration = Duration::from_secs(6);
/// Until when hosts go on, while everything works.
const HOSTS_END: Duration = Duration::from_millis(8_500);
/// The end of the run.
const QUIET_END: Duration = Duration::from_secs(9);
/// Time between two ticks of a node.
const TICK: Duration = Duration::from_millis(2);

/// What a run is to do.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    pub nodes: u32,
    /// Whether all copies may be lost. Otherwise no node crashes that is the last one in sync.
    pub may_lose_all: bool,
    /// Whether nothing fails. Then moves of
    /// the primary end no write of a host.
    pub is_calm: bool,
    /// How many nodes have copies, if not all of them: copies are made elsewhere, too.
    pub copies: Option<usize>,
    /// How long a member may leave a message unanswered.
    pub answer_timeout_ms: u64,
}

impl Default for Plan {
    fn default() -> Self {
        Self {
            nodes: 3,
            may_lose_all: false,
            is_calm: false,
            copies: None,
            answer_timeout_ms: 50,
        }
    }
}

/// What a run did.
#[derive(Debug, Default)]
pub struct Report {
    pub reads: u64,
    pub writes: u64,
    pub crashes: u64,
    pub pauses: u64,
    pub configs: u64,
    pub takeovers: u64,
    /// The primary has moved, and stayed in sync.
    pub moves: u64,
    /// Writes that were in flight when their primary was replaced.
    pub deposed: u64,
    pub returns: u64,
    /// Copies that were ended, because others were made elsewhere.
    pub drops: u64,
    pub is_lost: bool,
}

enum Event {
    Tick(u32),
    Message(Envelope<Data>),
    Command(u32, Command),
    Reply(HostRequest, Reply),
    Store(MemberId, StoreRequestId, StoreOp),
    StoreReply(MemberId, StoreRequestId, Config),
    Host(usize),
    Restart(u32),
    Fault,
    Move,
    /// Copies are added or ended.
    Place,
    /// A node, in this life, learns that it has no copy any more.
    Close(MemberId),
    /// A node hears of a configuration.
    See(u32, Config),
}

pub struct World {
    plan: Plan,
    rng: SmallRng,
    settings: Settings,
    now: Duration,
    step: u64,
    events: BTreeMap<(Duration, u64), Event>,
    nodes: Vec<Node>,
    store: Config,
    /// The nodes that have copies, as everyone learns in the end.
    placed: BTreeSet<u32>,
    /// The copies that have ended, before their nodes know.
    closing: BTreeSet<MemberId>,
    hosts: Hosts,
    /// Commands that were replied to at once: what becomes of the blocks of a write that failed is
    /// no reply to a host.
    replied: BTreeSet<HostRequest>,
    faults: Faults,
    report: Report,
}

fn settings(plan: Plan) -> Settings {
    let ms = Duration::from_millis;
    Settings {
        blocks: Blocks(46),
        region_blocks: Blocks(8),
        piece_blocks: Blocks(4),
        lease: ms(40),
        drift_ppm: 50_000,
        answer_timeout: ms(plan.answer_timeout_ms),
        beacon_interval: ms(8),
        resend_after: ms(5),
        store_timeout: ms(20),
        piece_interval: ms(1),
        writes_max: 4,
        pieces_max: 2,
        unsettled_max: 8,
    }
}

impl World {
    pub fn new(seed: u64, plan: Plan) -> Self {
        let mut rng = SmallRng::seed_from_u64(seed);
        let settings = settings(plan);
        let mut start = |node| {
            let shown = Duration::from_millis(rng.random_range(0..100_000));
            Node::new(node, &settings, shown)
        };
        let mut nodes: Vec<_> = (0..plan.nodes).map(&mut start).collect();
        let copies = plan.copies.unwrap_or(nodes.len());
        for node in &mut nodes[copies..] {
            node.member = None;
        }
        let ids: Vec<_> = nodes[..copies].iter().map(|node| node.id).collect();
        let mut world = Self {
            plan,
            rng,
            now: Duration::ZERO,
            step: 0,
            events: BTreeMap::new(),
            nodes,
            store: Config::first(ids[0], &ids).expect("the configuration is valid"),
            hosts: Hosts::new(HOSTS, settings.blocks),
            replied: BTreeSet::new(),
            closing: BTreeSet::new(),
            placed: ids.iter().map(|id| id.node).collect(),
            faults: Faults::new(plan.nodes as usize, plan.is_calm),
            report: Report::default(),
            settings,
        };
        for node in 0..plan.nodes {
            world.schedule(Duration::ZERO, Event::Tick(node));
        }
        for host in 0..world.hosts.len() {
            world.schedule(Duration::ZERO, Event::Host(host));
        }
        world.schedule(Duration::from_millis(50), Event::Fault);
        world.schedule(Duration::from_millis(60), Event::Move);
        world.schedule(Duration::from_millis(70), Event::Place);
        world
    }

    /// Runs the plan to its end.
    ///
    /// # Panics
    /// If two members serve reads at a time, a block's history is not linearizable, a configuration
    /// has no copy of the former one, or copies differ when all is quiet.
    pub fn run(mut self) -> Report {
        while self.now < QUIET_END {
            let ((now, _), event) = self.events.pop_first().expect("nodes tick forever");
            self.now = now;
            self.step += 1;
            self.execute(event);
            let serving = self.nodes.iter().filter(|node| node.serves(now)).count();
            assert!(serving <= 1, "{serving} members serve reads at {now:?}");
        }
        self.hosts.check();
        self.check_copies();
        self.report.reads = self.hosts.reads;
        self.report.writes = self.hosts.writes;
        self.report
    }

    fn schedule(&mut self, at: Duration, event: Event) {
        self.step += 1;
        self.events.insert((at, self.step), event);
    }

    fn execute(&mut self, event: Event) {
        match event {
            Event::Host(host) => self.let_host_go_on(host),
            Event::Reply(request, reply) => self.hosts.finish(request, reply, self.step),
            Event::Store(from, id, op) => self.execute_in_store(from, id, op),
            Event::Restart(node) => self.restart(node),
            Event::Place => self.place(),
            Event::Close(id) => self.close(id),
            Event::Fault => self.inject(),
            Event::Move => self.begin_move(),
            event => self.execute_at_node(event),
        }
    }

    /// What happens at a node waits while it is paused.
    fn execute_at_node(&mut self, event: Event) {
        let (node, incarnation) = match &event {
            Event::Tick(node) | Event::Command(node, _) | Event::See(node, _) => (*node, None),
            Event::Message(message) => (message.to.node, None),
            Event::StoreReply(to, ..) => (to.node, Some(to.incarnation)),
            _ => return,
        };
        let place = &mut self.nodes[node as usize];
        if place.paused_until > self.now {
            let at = place.paused_until;
            return self.schedule(at, event);
        }
        if let Event::Tick(node) = event {
            self.events
                .insert((self.now + TICK, self.step), Event::Tick(node));
        }
        let is_same = incarnation.is_none_or(|incarnation| incarnation == place.id.incarnation);
        let now = place.clock.read(self.now);
        let Some(member) = place.member.as_mut().filter(|_| is_same) else {
            // A node without a copy passes commands on.
            let primary = self.store.primary.node;
            match event {
                Event::Command(_, command) if !self.placed.contains(&node) => {
                    self.reply(command.request, Reply::Failed(Some(primary)));
                }
                _ => {}
            }
            return;
        };
        match event {
            Event::Message(message) => member.handle_message(now, message),
            Event::See(_, config) => member.handle_config(now, config),
            Event::StoreReply(_, id, config) => member.handle_store_reply(now, id, config),
            Event::Command(_, command) => {
                if let Some(reply) = place.execute(now, &command) {
                    self.replied.insert(command.request);
                    self.reply(command.request, reply);
                }
            }
            _ => member.handle_tick(now),
        }
        self.carry_out(node);
    }

    fn carry_out(&mut self, node: u32) {
        let place = &mut self.nodes[node as usize];
        let id = place.id;
        let member = place.member.as_mut().expect("the node runs");
        let outputs: Vec<_> = std::iter::from_fn(|| member.poll_output()).collect();
        for output in outputs {
            match output {
                Output::Send(message) => {
                    let (from, to) = (message.from.node, message.to.node);
                    for at in self.faults.arrivals(&mut self.rng, self.now, from, to) {
                        self.schedule(at, Event::Message(message.clone()));
                    }
                }
                Output::Store(request, op) => {
                    let at = self.faults.store_arrival(&mut self.rng, self.now);
                    if let Some(at) = at {
                        self.schedule(at, Event::Store(id, request, op));
                    }
                }
                Output::Reply(request, reply) => {
                    let reply = match reply {
                        HostReply::Written => Reply::Written,
                        HostReply::Deposed => {
                            self.report.deposed += 1;
                            Reply::Failed(None)
                        }
                    };
                    if !self.replied.remove(&request) {
                        self.reply(request, reply);
                    }
                }
            }
        }
    }

    fn reply(&mut self, request: HostRequest, reply: Reply) {
        let at = self.now + Duration::from_micros(self.rng.random_range(20..500));
        self.schedule(at, Event::Reply(request, reply));
    }

    fn execute_in_store(&mut self, from: MemberId, id: StoreRequestId, op: StoreOp) {
        if let StoreOp::Swap(next) = op
            && next.epoch == self.store.epoch.next()
            && self.keeps_a_copy(&next)
        {
            assert!(next.is_valid(), "{next:?}");
            assert!(
                self.store.has(from),
                "{from:?} is no copy and proposes {next:?}"
            );
            let is_kept = |id: &MemberId| self.store.has(*id);
            assert!(
                next.in_sync.iter().any(is_kept),
                "{next:?} drops the last copy"
            );
            self.report.configs += 1;
            let has_other = next.primary != self.store.primary;
            let is_move = has_other && next.has(self.store.primary);
            self.report.moves += u64::from(is_move);
            self.report.takeovers += u64::from(has_other && !is_move);
            self.report.returns += u64::from(next.in_sync.len() > self.store.in_sync.len());
            self.set_store(next);
            if is_move && !self.plan.is_calm && self.rng.random_bool(0.3) {
                // The former primary does not hear of it while its lease lasts.
                let until = self.now + Duration::from_millis(self.rng.random_range(10..100));
                return self.faults.isolate(from.node, until);
            }
        }
        if let Some(at) = self.faults.store_arrival(&mut self.rng, self.now) {
            let current = self.store.clone();
            self.schedule(at, Event::StoreReply(from, id, current));
        }
    }

    /// Some nodes watch the store.
    fn set_store(&mut self, next: Config) {
        for node in 0..self.plan.nodes {
            if self.rng.random_bool(0.3)
                && let Some(at) = self.faults.store_arrival(&mut self.rng, self.now)
            {
                self.schedule(at, Event::See(node, next.clone()));
            }
        }
        self.store = next;
    }

    /// A node that has crashed, or that gets a copy, starts, unless its copy was ended meanwhile.
    fn restart(&mut self, node: u32) {
        let place = &mut self.nodes[node as usize];
        if place.member.is_none() && self.placed.contains(&node) {
            place.start(&self.settings, self.now);
        }
    }

    /// A node ends its copy, except if it serves. It may have got another one meanwhile.
    fn close(&mut self, id: MemberId) {
        let node = &mut self.nodes[id.node as usize];
        let member = node.member.as_ref().filter(|_| node.id == id);
        let config = member.and_then(|member| member.config());
        if config.is_some_and(|config| config.primary == id) {
            let again = self.now + Duration::from_millis(20);
            return self.schedule(again, Event::Close(id));
        }
        node.member.take_if(|_| node.id == id);
        self.closing.remove(&id);
        self.restart(id.node);
    }

    /// Makes a copy elsewhere: a node gets one, or one more than there are to be ends, as the
    /// primary would decide it.
    fn place(&mut self) {
        let Some(copies) = self.plan.copies.filter(|_| self.now <= FAULTS_END) else {
            return;
        };
        let next = self.now + Duration::from_millis(self.rng.random_range(5..80));
        self.schedule(next, Event::Place);
        let later = self.now + Duration::from_millis(self.rng.random_range(0..40));
        let node = self.rng.random_range(0..self.plan.nodes);
        let primary = self.store.primary;
        let place = &self.nodes[primary.node as usize];
        let is_ending = self.closing.contains(&primary);
        if place.id != primary || place.member.is_none() || is_ending {
            return;
        }
        if !self.placed.contains(&node) && self.placed.len() <= copies {
            self.placed.insert(node);
            return self.schedule(later, Event::Restart(node));
        }
        let is_left = |id: &&MemberId| id.node != node && self.placed.contains(&id.node);
        let left = self.store.in_sync.iter().filter(is_left).count();
        if self.placed.contains(&node) && node != primary.node && left >= copies {
            self.placed.remove(&node);
            self.report.drops += 1;
            let id = self.nodes[node as usize].id;
            self.closing.insert(id);
            self.schedule(later, Event::Close(id));
            if let Some(next) = self.store.without_node(node) {
                self.set_store(next);
            }
        }
    }

    /// Whether a member of `next` runs. A primary that has crashed after it asked to remove the
    /// only other copy would lose all, which is for the plans that allow it.
    fn keeps_a_copy(&self, next: &Config) -> bool {
        let is_live = |node: &Node| self.is_staying(node) && next.has(node.id);
        self.plan.may_lose_all || self.nodes.iter().any(is_live)
    }

    /// Whether a node has a copy that is not about to end.
    fn is_staying(&self, node: &Node) -> bool {
        node.member.is_some() && !self.closing.contains(&node.id)
    }

    fn let_host_go_on(&mut self, host: usize) {
        if self.now > HOSTS_END {
            return;
        }
        let again = self.now + Duration::from_micros(self.rng.random_range(200..6_000));
        self.schedule(again, Event::Host(host));
        let (rng, step) = (&mut self.rng, self.step);
        let begun = self.hosts.begin(rng, host, self.plan.nodes, step, self.now);
        if let Some((node, command)) = begun {
            let at = self.now + Duration::from_micros(self.rng.random_range(20..500));
            self.schedule(at, Event::Command(node, command));
        }
    }

    /// Asks the primary, or who believes to be it, to move to any member that could replace it.
    fn begin_move(&mut self) {
        if self.now > FAULTS_END {
            return;
        }
        let next = self.now + Duration::from_millis(self.rng.random_range(5..120));
        self.schedule(next, Event::Move);
        let index = self.rng.random_range(0..self.nodes.len());
        let place = &mut self.nodes[index];
        let now = place.clock.read(self.now);
        let is_paused = place.paused_until > self.now;
        let Some(member) = place.member.as_mut().filter(|_| !is_paused) else {
            return;
        };
        let successors = member.successors(now);
        if !successors.is_empty() {
            let to = successors[self.rng.random_range(0..successors.len())];
            member.begin_move(now, to);
            self.carry_out(index as u32);
        }
    }

    fn inject(&mut self) {
        if self.now > FAULTS_END || self.plan.is_calm {
            self.faults.end();
            for node in &mut self.nodes {
                node.paused_until = Duration::ZERO;
                node.refuses.set(0);
            }
            return;
        }
        let next = self.now + Duration::from_millis(self.rng.random_range(10..150));
        self.schedule(next, Event::Fault);
        let Some((index, fault)) = self.faults.inject(&mut self.rng, self.now) else {
            return;
        };
        match fault {
            NodeFault::Pause(until) => {
                self.nodes[index].paused_until = until;
                self.report.pauses += 1;
            }
            NodeFault::ClockRate => {
                let drift = self.settings.drift_ppm;
                let rate = self.rng.random_range(1_000_000 - drift..=1_000_000 + drift);
                self.nodes[index].clock.set_rate(self.now, rate);
            }
            NodeFault::NoMemory(writes) => self.nodes[index].refuses.set(writes),
            NodeFault::Crash => self.crash(index),
        }
    }

    fn crash(&mut self, index: usize) {
        let id = self.nodes[index].id;
        let mut others = self.nodes.iter().filter(|node| node.id != id);
        let has_other = others.any(|node| self.is_staying(node) && self.store.has(node.id));
        if self.nodes[index].member.is_none() || !(has_other || self.plan.may_lose_all) {
            return;
        }
        self.nodes[index].member = None;
        self.report.crashes += 1;
        let restart = self.now + Duration::from_millis(self.rng.random_range(1..400));
        self.schedule(restart, Event::Restart(id.node));
    }

    /// All copies are in sync and equal, unless none was left: then nobody serves.
    fn check_copies(&mut self) {
        let live = |node: &&Node| node.member.is_some() && self.store.has(node.id);
        let in_sync: Vec<_> = self.nodes.iter().filter(live).collect();
        if in_sync.is_empty() {
            assert!(self.plan.may_lose_all, "a copy was lost");
            let serving = self.nodes.iter().filter(|node| node.serves(self.now));
            assert_eq!(serving.count(), 0, "nobody has a copy");
            self.report.is_lost = true;
            return;
        }
        assert_eq!(in_sync.len(), self.placed.len(), "{:?}", self.store);
        let disks = || in_sync.iter().filter_map(|node| node.member.as_ref());
        let disks: Vec<_> = disks().map(|member| &member.medium().blocks).collect();
        let are_equal = disks.windows(2).all(|pair| pair[0] == pair[1]);
        assert!(are_equal, "copies differ: {disks:?}");
        let mut serving = self.nodes.iter().filter(|node| node.serves(self.now));
        assert!(serving.next().is_some(), "nobody serves: {:?}", self.store);
    }
}
