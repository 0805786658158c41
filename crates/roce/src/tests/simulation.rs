//! Random work of both ends at once over a network that loses, doubles, corrupts, reorders and
//! delays. A seed replays a run.

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

/// The sink of each end is cut into slots of this many bytes: receives, then WRITEs of the peer's,
/// then READs of its own.
const SLOT_BYTES: u64 = 8192;
const SLOTS: u64 = 5;
const RECV_SLOT: u64 = 0;
const WRITE_SLOT: u64 = SLOTS;
const READ_SLOT: u64 = 2 * SLOTS;

/// Damaged datagrams of some thousand that 16 bits of check may not see.
const UNSEEN_MAX: u64 = 2;

/// A message that the peer must receive next.
#[derive(Clone, Copy, Debug)]
struct Arrival {
    /// Where it was sent from.
    from: MemoryRange,
    /// The slot that it was written to; `None` if it goes to the receive.
    written_to: Option<u64>,
    immediate: Option<u32>,
    invalidated: Option<Rkey>,
}

/// A request whose effect is checked when it completes.
#[derive(Clone, Copy, Debug)]
enum Work {
    Send,
    Write { from: MemoryRange, slot: u64 },
    Read { from: MemoryRange, slot: u64 },
}

struct Side {
    sent: VecDeque<Arrival>,
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

impl Side {
    /// The peer's memory from `offset` on.
    fn remote_at(&self, offset: u64) -> Remote {
        Remote {
            va: self.remote.va + offset,
            ..self.remote
        }
    }
}

fn slot_place(slot: u64, len: u64) -> MemoryRange {
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

    /// Posts a random request if the end has room.
    fn post_one(&mut self, end: usize) {
        let len = match self.below(4) {
            0 => self.below(100),
            _ => self.below(SLOT_BYTES + 1),
        };
        let from = place(SOURCE + self.below(SINK - SLOT_BYTES), len);
        let side = &self.sides[end];
        if side.open.len() >= 12 || side.posted >= self.requests {
            return;
        }
        let drawn = match self.below(6) {
            kind @ 0..=2 => Some(self.draw_send(end, kind, from)),
            kind @ 3..=4 => self.draw_write(end, kind, from),
            _ => self.draw_read(end, from),
        };
        let Some((op, work)) = drawn else {
            return;
        };
        let side = &mut self.sides[end];
        let id = side.posted;
        side.posted += 1;
        side.open.push_back((id, work));
        let signal = match self.below(2) {
            0 => Signal::Always,
            _ => Signal::Eventually,
        };
        self.both.post_signaled(end, id, op, signal);
    }

    /// A SEND: plain, with immediate data, or with invalidation of a key of the peer.
    fn draw_send(&mut self, end: usize, kind: u64, from: MemoryRange) -> (SendOp, Work) {
        let mut arrival = Arrival {
            from,
            written_to: None,
            immediate: None,
            invalidated: None,
        };
        let data = Data::Gather(Gather::new(&[from]).unwrap());
        let op = match kind {
            0 => SendOp::Send(data),
            1 => {
                let immediate = self.below(1 << 30) as u32;
                arrival.immediate = Some(immediate);
                SendOp::SendImmediate(data, immediate)
            }
            _ => {
                let Remote { rkey, .. } = self.both.register(1 - end, place(0, 8), EVERYTHING);
                arrival.invalidated = Some(rkey);
                SendOp::SendInvalidate(data, rkey)
            }
        };
        self.sides[end].sent.push_back(arrival);
        (op, Work::Send)
    }

    /// An RDMA WRITE, with or without immediate data, if a slot is free.
    fn draw_write(&mut self, end: usize, kind: u64, from: MemoryRange) -> Option<(SendOp, Work)> {
        let immediate = self.below(1 << 30) as u32;
        let side = &mut self.sides[end];
        let slot = side.free_writes.pop()?;
        let remote = side.remote_at(SINK + (WRITE_SLOT + slot) * SLOT_BYTES);
        let data = Data::Gather(Gather::new(&[from]).unwrap());
        let op = if kind == 3 {
            SendOp::Write(data, remote)
        } else {
            side.sent.push_back(Arrival {
                from,
                written_to: Some(slot),
                immediate: Some(immediate),
                invalidated: None,
            });
            SendOp::WriteImmediate(data, remote, immediate)
        };
        Some((op, Work::Write { from, slot }))
    }

    /// An RDMA READ, if a slot is free.
    fn draw_read(&mut self, end: usize, from: MemoryRange) -> Option<(SendOp, Work)> {
        let side = &mut self.sides[end];
        let slot = side.free_reads.pop()?;
        let into = slot_place(READ_SLOT + slot, from.range.len);
        let into = Gather::new(&[into]).unwrap();
        let remote = side.remote_at(from.range.offset);
        Some((SendOp::Read(into, remote), Work::Read { from, slot }))
    }

    /// Checks every completion of an end, and posts the receive again.
    fn check(&mut self, end: usize) {
        for done in std::mem::take(&mut self.both.pair.ends[end].completions) {
            assert_eq!(done.status, WorkStatus::Success, "{done:?}");
            if done.kind == WorkKind::Recv {
                self.check_arrival(end, &done);
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

    /// A message that an end has received is the one that its peer sent next.
    fn check_arrival(&mut self, end: usize, done: &Completion) {
        let sent = self.sides[1 - end].sent.pop_front().unwrap();
        assert_eq!(u64::from(done.len_bytes), sent.from.range.len);
        assert_eq!(done.immediate, sent.immediate);
        assert_eq!(done.invalidated, sent.invalidated);
        let slot = match sent.written_to {
            Some(slot) => WRITE_SLOT + slot,
            None => RECV_SLOT + done.id.0,
        };
        let to = slot_place(slot, sent.from.range.len);
        self.both.assert_moved(1 - end, sent.from, to);
        if let Some(key) = sent.invalidated {
            let endpoint = &mut self.both.pair.ends[end].endpoint;
            assert!(!endpoint.invalidate(key), "it was invalidated before");
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
                assert!(self.both.pair.unseen <= UNSEEN_MAX);
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
    for (seed, mtu) in PathMtu::ALL.into_iter().enumerate() {
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
        for (addresses, mtu) in [(V4, PathMtu::B1024), (V6, PathMtu::B4096)] {
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
