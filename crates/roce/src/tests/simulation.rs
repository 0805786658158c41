//! Random work of both ends at once over a network that loses, doubles, corrupts, reorders and delays. A seed replays a run.

use std::collections::VecDeque;

use super::*;
use crate::testing::Faults;

/// What a run is to do.
struct Plan {
    seed: u64,
    addresses: [&'static str; 2],
    mtu: PathMtu,
    faults: Faults,
    requests: u64,
}

/// The sink of each end is cut into slots of this many bytes: receives, then WRITEs of the peer's, then READs of its own.
const SLOT_BYTES: u64 = 8192;
const SLOTS: u64 = 5;
const RECV_SLOT: u64 = 0;
const WRITE_SLOT: u64 = SLOTS;
const READ_SLOT: u64 = 2 * SLOTS;

/// A request whose effect is checked when it completes.
#[derive(Clone, Copy, Debug)]
enum Work {
    Send,
    Write { from: Placement, slot: u64 },
    Read { from: Placement, slot: u64 },
}

struct Side {
    /// What the peer must receive next: where it was sent from, and its immediate data.
    sent: VecDeque<(Placement, Option<u32>)>,
    open: VecDeque<(u64, Work)>,
    remote: Remote,
    free_writes: Vec<u64>,
    free_reads: Vec<u64>,
    posted: u64,
    checked: u64,
}

struct World {
    both: Connected,
    sides: [Side; 2],
    random: TestMemory,
    requests: u64,
}

fn slot_place(slot: u64, len: u64) -> Placement {
    place(SINK + slot * SLOT_BYTES, len)
}

impl World {
    fn new(plan: &Plan) -> Self {
        let config = QpConfig {
            retry_min: 200,
            initiator_depth: 4,
            responder_resources: 4,
            rnr_wait: Duration::from_micros(100),
            ..config()
        };
        let mut both = Connected::with(plan.seed, plan.addresses, plan.mtu, [config; 2]);
        both.pair.faults = plan.faults;
        let sides = [0, 1].map(|end| Side {
            sent: VecDeque::new(),
            open: VecDeque::new(),
            // All of the peer's memory.
            remote: both.register(1 - end, place(0, MEMORY_BYTES as u64), EVERYTHING),
            free_writes: (0..SLOTS).collect(),
            free_reads: (0..SLOTS).collect(),
            posted: 0,
            checked: 0,
        });
        for end in 0..2 {
            for slot in 0..SLOTS {
                both.recv(end, slot, slot_place(RECV_SLOT + slot, SLOT_BYTES));
            }
        }
        Self {
            both,
            sides,
            random: TestMemory::new(plan.seed ^ 0xABCD),
            requests: plan.requests,
        }
    }

    fn below(&mut self, bound: u64) -> u64 {
        crate::Backend::random(&mut self.random) % bound
    }

    /// Posts a random request where the end has room for one.
    fn post_one(&mut self, end: usize) {
        let len = match self.below(4) {
            0 => self.below(100),
            _ => self.below(SLOT_BYTES + 1),
        };
        let from = place(SOURCE + self.below(SINK - SLOT_BYTES), len);
        let kind = self.below(4);
        let immediate = self.below(1 << 30) as u32;
        let side = &mut self.sides[end];
        if side.open.len() >= 12 || side.posted >= self.requests {
            return;
        }
        let gather = Gather::new(&[from]).unwrap();
        let at = |slot: u64| Remote {
            va: side.remote.va + SINK + slot * SLOT_BYTES,
            ..side.remote
        };
        let (op, work) = match kind {
            0 => {
                side.sent.push_back((from, None));
                (SendOp::Send(Data::Gather(gather)), Work::Send)
            }
            1 => {
                side.sent.push_back((from, Some(immediate)));
                let op = SendOp::SendImmediate(Data::Gather(gather), immediate);
                (op, Work::Send)
            }
            2 => {
                let Some(slot) = side.free_writes.pop() else {
                    return;
                };
                let op = SendOp::Write(Data::Gather(gather), at(WRITE_SLOT + slot));
                (op, Work::Write { from, slot })
            }
            _ => {
                let Some(slot) = side.free_reads.pop() else {
                    return;
                };
                let into = Gather::new(&[slot_place(READ_SLOT + slot, len)]).unwrap();
                let remote = Remote {
                    va: side.remote.va + from.range.offset,
                    ..side.remote
                };
                (SendOp::Read(into, remote), Work::Read { from, slot })
            }
        };
        let id = side.posted;
        side.posted += 1;
        side.open.push_back((id, work));
        let signal = match self.below(2) {
            0 => Signal::Always,
            _ => Signal::Eventually,
        };
        self.both.post_signaled(end, id, op, signal);
    }

    /// Checks every completion of an end, and posts the receive again.
    fn check(&mut self, end: usize) {
        for done in std::mem::take(&mut self.both.pair.ends[end].completions) {
            assert_eq!(done.status, WorkStatus::Success, "{done:?}");
            if done.kind == WorkKind::Recv {
                let (from, immediate) = self.sides[1 - end].sent.pop_front().unwrap();
                assert_eq!(u64::from(done.len_bytes), from.range.len);
                assert_eq!(done.immediate, immediate);
                let to = slot_place(RECV_SLOT + done.id.0, from.range.len);
                self.both.assert_moved(1 - end, from, to);
                let slot = slot_place(RECV_SLOT + done.id.0, SLOT_BYTES);
                self.both.recv(end, done.id.0, slot);
                continue;
            }
            let (id, work) = self.sides[end].open.pop_front().unwrap();
            assert_eq!(id, done.id.0, "requests complete in order");
            match work {
                Work::Send => {}
                Work::Write { from, slot } => {
                    let to = slot_place(WRITE_SLOT + slot, from.range.len);
                    self.both.assert_moved(end, from, to);
                    self.sides[end].free_writes.push(slot);
                }
                Work::Read { from, slot } => {
                    let to = slot_place(READ_SLOT + slot, from.range.len);
                    self.both.assert_moved(1 - end, from, to);
                    self.sides[end].free_reads.push(slot);
                }
            }
            self.sides[end].checked += 1;
        }
    }

    /// Runs to the end; how many packets were dropped since they were damaged.
    fn run(mut self) -> u64 {
        let goal = 2 * self.requests;
        // Virtual time is bounded, so that a standstill is a failure and no hang.
        for _ in 0..200_000 {
            for end in 0..2 {
                self.post_one(end);
                self.check(end);
            }
            let checked: u64 = self.sides.iter().map(|s| s.checked).sum();
            if checked == goal && self.sides.iter().all(|s| s.sent.is_empty()) {
                return self.damaged();
            }
            let before = self.completions();
            self.both.pair.run(Duration::from_millis(1), |pair| {
                pair.ends.iter().map(|e| e.completions.len()).sum::<usize>() > before
            });
        }
        let checked: Vec<u64> = self.sides.iter().map(|s| s.checked).collect();
        panic!("only {checked:?} requests completed");
    }

    fn damaged(&self) -> u64 {
        let counters = self.both.pair.ends.iter().map(|e| e.endpoint.counters());
        counters.map(|c| c.bad_icrc + c.malformed).sum()
    }

    fn completions(&self) -> usize {
        self.both
            .pair
            .ends
            .iter()
            .map(|e| e.completions.len())
            .sum()
    }
}

fn run(plan: &Plan) {
    let damaged = World::new(plan).run();
    assert_eq!(damaged > 0, plan.faults.corruption > 0);
}

fn all_faults(percent: u64) -> Faults {
    Faults {
        loss: percent,
        duplication: percent,
        corruption: percent,
        reordering: percent,
        delay: percent,
    }
}

#[test]
fn a_network_without_faults_moves_every_byte() {
    let mtus = PathMtu::STANDARD.into_iter().chain(PathMtu::LONG);
    for (seed, mtu) in mtus.enumerate() {
        run(&Plan {
            seed: seed as u64,
            addresses: V4,
            mtu,
            faults: Faults::default(),
            requests: 500,
        });
    }
}

#[test]
fn each_fault_alone_at_20_percent_loses_no_byte() {
    let none = Faults::default();
    let faults = [
        Faults { loss: 20, ..none },
        Faults {
            duplication: 20,
            ..none
        },
        Faults {
            corruption: 20,
            ..none
        },
        Faults {
            reordering: 20,
            ..none
        },
        Faults { delay: 20, ..none },
    ];
    for (seed, faults) in faults.into_iter().enumerate() {
        for (addresses, mtu) in [
            (V4, PathMtu::B1024),
            (V6, PathMtu::B4096),
            (V4, PathMtu::B8192),
        ] {
            run(&Plan {
                seed: 100 + seed as u64,
                addresses,
                mtu,
                faults,
                requests: 200,
            });
        }
    }
}

#[test]
fn trains_that_get_lost_doubled_late_or_out_of_order_lose_no_byte() {
    // Nothing damages them where they are agreed on.
    for seed in 0..20 {
        run(&Plan {
            seed: 300 + seed,
            addresses: LOOPBACK,
            mtu: PathMtu::B61440,
            faults: Faults {
                corruption: 0,
                ..all_faults(seed)
            },
            requests: 200,
        });
    }
}

#[test]
fn all_faults_together_lose_no_byte() {
    for seed in 0..20 {
        run(&Plan {
            seed,
            addresses: V6,
            mtu: PathMtu::B1024,
            faults: all_faults(5),
            requests: 200,
        });
    }
    for seed in 0..20 {
        run(&Plan {
            seed,
            addresses: V4,
            mtu: PathMtu::B2048,
            faults: all_faults(20),
            requests: 100,
        });
    }
}
