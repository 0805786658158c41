//! What snapshots cost, by the unit in which they copy: the figures of
//! `docs/design/0017-snapshots.md`.
//!
//! `cargo run --release -p volume --example snapshot_speed [GIB]`

#![expect(clippy::cast_precision_loss, reason = "figures for people to read")]

use std::hint::black_box;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use memory::{Budget, HostMemory, Layout, Provision, Snapshot, Store};

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;
/// What is copied at a time. Granules are as large, and at least those of [`Layout::DEFAULT`].
const UNITS: [u64; 6] = [4 * KIB, 16 * KIB, 64 * KIB, 256 * KIB, 512 * KIB, 2 * MIB];
/// Writes after a snapshot; random, of 4 KiB.
const WRITES: u64 = 2_000;
const WRITE: [u8; 4 << 10] = [7; 4 << 10];
/// Reads of a snapshot; random, of 4 KiB.
const READS: u64 = 100_000;
const ROUNDS: usize = 3;
/// Between two snapshots, or two removals.
const PAUSE: Duration = Duration::from_millis(100);

fn main() {
    let gib = std::env::args().nth(1);
    let gib: u64 = gib.map_or(2, |word| word.parse().expect("a number of GiB"));
    by_unit(gib * GIB);
    by_chain(gib * GIB);
    stall(gib * GIB);
}

/// A filled volume, on the pages that this host suggests.
fn filled(layout: Layout, len_bytes: u64) -> Arc<Store> {
    let host = HostMemory::probe().expect("Linux");
    let budget = Arc::new(Budget::for_host(4 * len_bytes, &host));
    let store = Store::new(budget, Provision::Thin, layout);
    store
        .resize(len_bytes, &mut |_| ControlFlow::Continue(()))
        .expect("thin");
    let fill = vec![1; MIB as usize];
    for offset in (0..len_bytes).step_by(MIB as usize) {
        store.write(offset, &fill).expect("fits");
    }
    Arc::new(store)
}

fn snapshot(store: &Arc<Store>) -> Snapshot {
    let taken = Store::take_snapshots(&[(Arc::clone(store), store.len_bytes())]);
    taken.expect("open").pop().expect("one store, one snapshot")
}

/// Offsets of random blocks of 4 KiB.
struct Offsets {
    state: u64,
    blocks: u64,
}

impl Offsets {
    fn new(len_bytes: u64) -> Self {
        Self {
            state: 0x1234_5678_9ABC_DEF1,
            blocks: len_bytes / WRITE.len() as u64,
        }
    }

    fn next(&mut self) -> u64 {
        self.state ^= self.state << 13;
        self.state ^= self.state >> 7;
        self.state ^= self.state << 17;
        ((u128::from(self.state) * u128::from(self.blocks)) >> 64) as u64 * WRITE.len() as u64
    }
}

fn by_unit(len_bytes: u64) {
    println!("random 4 KiB over {} GiB, one thread\n", len_bytes / GIB);
    println!(
        "| unit | first write, µs, mean | 99 % within | worst | later write, ns | memory per write, KiB | read of the snapshot, ns | first write of 128 KiB, µs | read of 128 KiB, µs |"
    );
    println!("|---|---|---|---|---|---|---|---|---|");
    for unit_bytes in UNITS {
        let granule_bytes = unit_bytes.max(Layout::DEFAULT.granule_bytes());
        let layout = Layout::new(GIB, 2 * MIB, granule_bytes, 1024).copying(unit_bytes);
        let store = filled(layout, len_bytes);
        let mut best: Option<[f64; 8]> = None;
        for _ in 0..ROUNDS {
            let figures = measure(&store);
            best = match best {
                Some(best) if best[0] <= figures[0] => Some(best),
                _ => Some(figures),
            };
        }
        let [mean, p99, worst, later, memory, read, large, large_read] =
            best.expect("there are rounds");
        println!(
            "| {} KiB | {mean:.1} | {p99:.1} | {worst:.0} | {later:.0} | {memory:.1} | {read:.0} | {large:.0} | {large_read:.1} |",
            unit_bytes / KIB
        );
    }
}

fn measure(store: &Arc<Store>) -> [f64; 8] {
    let taken = snapshot(store);
    let mut offsets = Offsets::new(store.len_bytes());
    let mut spans: Vec<_> = (0..WRITES)
        .map(|_| timed(|| write(store, offsets.next())))
        .collect();
    let mean = spans.iter().sum::<Duration>().as_nanos() as f64 / 1e3 / WRITES as f64;
    spans.sort_unstable();
    let micros = |span: Duration| span.as_nanos() as f64 / 1e3;
    let (p99, worst) = (spans[spans.len() * 99 / 100], spans[spans.len() - 1]);
    // The same blocks once more: nothing is copied.
    let mut offsets = Offsets::new(store.len_bytes());
    let later = timed(|| (0..WRITES).for_each(|_| write(store, offsets.next())));
    let memory = taken.allocated_bytes() as f64 / KIB as f64 / WRITES as f64;
    let mut buffer = [0; WRITE.len()];
    let read = timed(|| {
        for _ in 0..READS {
            let read = taken.read(offsets.next(), black_box(&mut buffer));
            read.expect("in range");
        }
    });
    taken.remove().expect("nothing is moved");
    let [large, large_read] = measure_large(store);
    [
        mean,
        micros(p99),
        micros(worst),
        later.as_nanos() as f64 / WRITES as f64,
        memory,
        read.as_nanos() as f64 / READS as f64,
        large,
        large_read,
    ]
}

/// Writes of 128 KiB one after another, and reads of the snapshot, in µs each.
fn measure_large(store: &Arc<Store>) -> [f64; 2] {
    const COUNT: u64 = 1_000;
    let taken = snapshot(store);
    let mut data = vec![7; 128 << 10];
    let offset = |index: u64| index * (128 << 10);
    let write = timed(|| {
        for index in 0..COUNT {
            store.write(offset(index), black_box(&data)).expect("fits");
        }
    });
    let read = timed(|| {
        for index in 0..COUNT {
            let read = taken.read(offset(index), black_box(&mut data));
            read.expect("in range");
        }
    });
    taken.remove().expect("nothing is moved");
    [write, read].map(|span| span.as_nanos() as f64 / 1e3 / COUNT as f64)
}

fn write(store: &Store, offset: u64) {
    store.write(offset, black_box(&WRITE)).expect("fits");
}

fn timed(work: impl FnOnce()) -> Duration {
    let start = Instant::now();
    work();
    start.elapsed()
}

/// How reads of the oldest snapshot depend on how many there are.
fn by_chain(len_bytes: u64) {
    println!(
        "\n| snapshots | read of the oldest, ns | a write that copies nothing, ns | remove the oldest but one, ms |"
    );
    println!("|---|---|---|---|");
    let store = filled(Layout::DEFAULT, len_bytes);
    for count in [1, 4, 16, 64, 256] {
        let taken: Vec<_> = (0..count)
            .map(|_| {
                let taken = snapshot(&store);
                let mut offsets = Offsets::new(store.len_bytes());
                (0..WRITES / count).for_each(|_| write(&store, offsets.next()));
                taken
            })
            .collect();
        let mut offsets = Offsets::new(store.len_bytes());
        let mut buffer = [0; WRITE.len()];
        let read = timed(|| {
            for _ in 0..READS {
                let read = taken[0].read(offsets.next(), black_box(&mut buffer));
                read.expect("in range");
            }
        });
        let mut offsets = Offsets::new(store.len_bytes());
        let writes = WRITES / count;
        let later = timed(|| (0..writes).for_each(|_| write(&store, offsets.next())));
        let remove = timed(|| {
            let second = taken.get(1).unwrap_or(&taken[0]);
            second.remove().expect("the host has memory");
        });
        println!(
            "| {count} | {:.0} | {:.0} | {:.1} |",
            read.as_nanos() as f64 / READS as f64,
            later.as_nanos() as f64 / writes as f64,
            remove.as_nanos() as f64 / 1e6,
        );
        for snapshot in &taken {
            snapshot.remove().expect("the host has memory");
        }
    }
}

/// The latency of writes around snapshots: one thread writes 4 KiB at random, another takes
/// snapshots, and removes them, newest first, so that copies are moved.
fn stall(len_bytes: u64) {
    println!(
        "\nwrites of 4 KiB; something happens every {} ms\n",
        PAUSE.as_millis()
    );
    println!("| | writes | 99 % within, µs | 99.99 % | worst | the call, µs, median |");
    println!("|---|---|---|---|---|---|");
    let store = filled(Layout::DEFAULT, len_bytes);
    let mut taken = Vec::new();
    writes_during(&store, "nothing", || ());
    writes_during(&store, "a snapshot is taken", || {
        taken.push(snapshot(&store));
    });
    writes_during(&store, "a snapshot is removed", || {
        let newest = taken.pop().expect("as many as were taken");
        newest.remove().expect("the host has memory");
    });
}

fn writes_during(store: &Store, name: &str, mut event: impl FnMut()) {
    const EVENTS: usize = 20;
    let done = AtomicBool::new(false);
    let (mut spans, mut calls) = thread::scope(|scope| {
        let writer = scope.spawn(|| {
            let mut offsets = Offsets::new(store.len_bytes());
            let mut spans = Vec::new();
            while !done.load(Ordering::Relaxed) {
                spans.push(timed(|| write(store, offsets.next())));
            }
            spans
        });
        let mut calls = Vec::new();
        for _ in 0..EVENTS {
            thread::sleep(PAUSE);
            calls.push(timed(&mut event));
        }
        done.store(true, Ordering::Relaxed);
        (writer.join().expect("it writes"), calls)
    });
    calls.sort_unstable();
    spans.sort_unstable();
    let micros = |span: Duration| span.as_nanos() as f64 / 1e3;
    let within = |of_10_000: usize| micros(spans[spans.len() / 10_000 * of_10_000]);
    println!(
        "| {name} | {} | {:.1} | {:.1} | {:.0} | {:.0} |",
        spans.len(),
        within(9_900),
        within(9_999),
        micros(spans[spans.len() - 1]),
        micros(calls[calls.len() / 2]),
    );
}
