//! What fails, and for how long.

use std::time::Duration;

use rand::Rng;
use rand::rngs::SmallRng;

/// The state of network and store.
pub struct Faults {
    nodes: usize,
    /// Messages from one node to another are lost until then; row: sender.
    cut_until: Vec<Vec<Duration>>,
    lossy_until: Duration,
    store_away_until: Duration,
    are_over: bool,
}

/// What happens to a node.
pub enum NodeFault {
    Crash,
    Pause(Duration),
    ClockRate,
    /// So many of its next writes find no memory.
    NoMemory(u32),
}

impl Faults {
    pub fn new(nodes: usize, are_over: bool) -> Self {
        Self {
            nodes,
            cut_until: vec![vec![Duration::ZERO; nodes]; nodes],
            lossy_until: Duration::ZERO,
            store_away_until: Duration::ZERO,
            are_over,
        }
    }

    /// Nothing fails any more.
    pub fn end(&mut self) {
        *self = Self::new(self.nodes, true);
    }

    /// Nothing reaches `node` any more, from other nodes.
    pub fn isolate(&mut self, node: u32, until: Duration) {
        for row in &mut self.cut_until {
            row[node as usize] = until;
        }
    }

    /// A new fault. Those of a node are for the caller.
    pub fn inject(&mut self, rng: &mut SmallRng, now: Duration) -> Option<(usize, NodeFault)> {
        let node = rng.random_range(0..self.nodes);
        let until = now + ms(rng, 20, 500);
        match rng.random_range(0..11) {
            0 | 1 => return Some((node, NodeFault::Crash)),
            2 | 3 => return Some((node, NodeFault::Pause(until))),
            4 => return Some((node, NodeFault::ClockRate)),
            5 | 6 => {
                // One direction between two nodes.
                let other = rng.random_range(0..self.nodes);
                self.cut_until[node][other] = until;
            }
            7 => {
                for other in 0..self.nodes {
                    self.cut_until[node][other] = until;
                    self.cut_until[other][node] = until;
                }
            }
            8 => self.store_away_until = until,
            9 => return Some((node, NodeFault::NoMemory(rng.random_range(1..30)))),
            _ => self.lossy_until = until,
        }
        None
    }

    /// When the copies of a message arrive: none, one or two.
    pub fn arrivals(&self, rng: &mut SmallRng, now: Duration, from: u32, to: u32) -> Vec<Duration> {
        let is_cut = now < self.cut_until[from as usize][to as usize];
        let loss = if now < self.lossy_until { 0.3 } else { 0.005 };
        if is_cut || (!self.are_over && rng.random_bool(loss)) {
            return Vec::new();
        }
        let copies = if rng.random_bool(0.02) { 2 } else { 1 };
        (0..copies).map(|_| now + self.delay(rng)).collect()
    }

    /// When a message to or from the store arrives, if it does.
    pub fn store_arrival(&self, rng: &mut SmallRng, now: Duration) -> Option<Duration> {
        let is_away = now < self.store_away_until || (!self.are_over && rng.random_bool(0.05));
        (!is_away).then(|| now + self.delay(rng))
    }

    /// Mostly short; sometimes longer than any time limit, so that old messages arrive in new
    /// epochs.
    fn delay(&self, rng: &mut SmallRng) -> Duration {
        let is_long = !self.are_over && rng.random_bool(0.01);
        let max_us = if is_long { 600_000 } else { 1_500 };
        Duration::from_micros(rng.random_range(50..max_us))
    }
}

fn ms(rng: &mut SmallRng, min: u64, max: u64) -> Duration {
    Duration::from_millis(rng.random_range(min..max))
}
