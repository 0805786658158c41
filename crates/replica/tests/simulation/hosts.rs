//! Hosts that read and write, one command at a time each.

use std::collections::BTreeMap;
use std::time::Duration;

use block::{Blocks, Extent, Lba};
use rand::Rng;
use rand::rngs::SmallRng;
use replica::HostRequest;

use crate::history::BlockHistory;

/// How long a host waits for a reply.
const PATIENCE: Duration = Duration::from_millis(700);
/// The longest command.
const BLOCKS_MAX: u64 = 4;
/// The longest write whose contents take no memory.
const FILL_BLOCKS_MAX: u64 = 14;

/// A command on its way.
#[derive(Clone, Debug)]
pub struct Command {
    pub request: HostRequest,
    pub host: usize,
    pub extent: Extent,
    /// `None` for a read.
    pub value: Option<u64>,
    /// Whether a write is one whose contents take no memory.
    pub is_fill: bool,
    pub started: u64,
    pub gives_up_at: Duration,
}

/// What a host gets.
#[derive(Clone, Debug)]
pub enum Reply {
    Read(Vec<u64>),
    Written,
    /// The node that the replying one believes to be primary.
    Failed(Option<u32>),
}

/// All hosts, and the history of each block.
pub struct Hosts {
    /// The node that each host believes to be primary.
    believes: Vec<u32>,
    commands: BTreeMap<u64, Command>,
    last: u64,
    pub blocks: Vec<BlockHistory>,
    pub reads: u64,
    pub writes: u64,
}

impl Hosts {
    pub fn new(hosts: usize, blocks: Blocks) -> Self {
        Self {
            believes: vec![0; hosts],
            commands: BTreeMap::new(),
            last: 0,
            blocks: (0..blocks.0).map(|_| BlockHistory::default()).collect(),
            reads: 0,
            writes: 0,
        }
    }

    pub fn len(&self) -> usize {
        self.believes.len()
    }

    /// Begins a command of `host`, unless it waits for one. Returns the node that it is sent to.
    pub fn begin(
        &mut self,
        rng: &mut SmallRng,
        host: usize,
        nodes: u32,
        step: u64,
        now: Duration,
    ) -> Option<(u32, Command)> {
        // A write that has no reply stays in the history and may be executed at any time.
        self.commands.retain(|_, command| command.gives_up_at > now);
        if self.commands.values().any(|command| command.host == host) {
            return None;
        }
        if rng.random_bool(0.2) {
            self.believes[host] = rng.random_range(0..nodes);
        }
        self.last += 1;
        let is_write = rng.random_bool(0.5);
        let is_fill = is_write && rng.random_bool(0.15);
        let blocks_max = if is_fill { FILL_BLOCKS_MAX } else { BLOCKS_MAX };
        let blocks = rng.random_range(1..=blocks_max);
        let lba = rng.random_range(0..=self.blocks.len() as u64 - blocks);
        let command = Command {
            request: HostRequest(self.last),
            host,
            extent: Extent::new(Lba(lba), Blocks(blocks)),
            value: is_write.then_some(self.last),
            is_fill,
            started: step,
            gives_up_at: now + PATIENCE,
        };
        if let Some(value) = command.value {
            for block in self.of(command.extent) {
                block.begin_write(value, step);
            }
        }
        self.commands.insert(self.last, command.clone());
        Some((self.believes[host], command))
    }

    /// A reply arrives.
    pub fn finish(&mut self, request: HostRequest, reply: Reply, step: u64) {
        let Some(command) = self.commands.remove(&request.0) else {
            return;
        };
        match reply {
            Reply::Read(values) => {
                self.reads += 1;
                assert_eq!(values.len() as u64, command.extent.blocks.0);
                for (block, value) in self.of(command.extent).zip(values) {
                    block.read(value, command.started, step);
                }
            }
            Reply::Written => {
                self.writes += 1;
                let value = command.value.expect("the command is a write");
                for block in self.of(command.extent) {
                    block.end_write(value, step);
                }
            }
            Reply::Failed(None) => {}
            Reply::Failed(Some(primary)) => self.believes[command.host] = primary,
        }
    }

    pub fn check(&self) {
        for (lba, block) in self.blocks.iter().enumerate() {
            if let Some(violation) = block.violation() {
                panic!("block {lba} is not linearizable: {violation}");
            }
        }
    }

    fn of(&mut self, extent: Extent) -> impl Iterator<Item = &mut BlockHistory> {
        let start = extent.lba.0 as usize;
        self.blocks[start..start + extent.blocks.0 as usize].iter_mut()
    }
}
