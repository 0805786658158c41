//! How fast a volume's memory is on one core, by layout and pages, against plain copies without
//! locks: the figures of `docs/design/0002-volume-memory.md`.
//!
//! `cargo run --release -p volume --example volume_speed`

#![expect(clippy::cast_precision_loss, reason = "figures for people to read")]

use std::collections::VecDeque;
use std::hint::black_box;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use block::{Blocks, ByteRange, Extent, Lba, Op, OpKind, ReadDest};
use memory::{Budget, HostMemory, Layout, Overcommit, PagePolicy, Provision, Store};
use volume::{ByteSize, Managed, ManagedVolume, RamVolume, VolumeSpec};

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;
/// Far beyond the caches.
const STORE_BYTES: u64 = 2 * GIB;
/// One figure takes this long; the best of [`ROUNDS`] counts, since the machine is shared.
const ROUND: Duration = Duration::from_millis(150);
const ROUNDS: usize = 5;
const BATCH: u64 = 256;

const LAYOUTS: [(&str, Layout); 5] = [
    ("slab 2 MiB, granule 64 KiB", Layout::DEFAULT),
    (
        "slab 2 MiB, granule 2 MiB",
        Layout::new(GIB, 2 * MIB, 2 * MIB, 1024),
    ),
    (
        "slab 2 MiB, granule 16 KiB",
        Layout::new(GIB, 2 * MIB, 16 * KIB, 1024),
    ),
    (
        "slab 2 MiB, granule 4 KiB",
        Layout::new(GIB, 2 * MIB, 4 * KIB, 1024),
    ),
    (
        "slab 64 KiB, granule 64 KiB",
        Layout::new(GIB, 64 * KIB, 64 * KIB, 1024),
    ),
];

fn main() {
    println!("random operations, one core, million/s (128 KiB: thousand/s)\n");
    println!(
        "| | 512 B read | 512 B write | 4 KiB read | 4 KiB write | 128 KiB read | 128 KiB write |"
    );
    println!("|---|---|---|---|---|---|---|");
    plain_copies();
    executed("Volume::execute", 0);
    executed("Volume::execute, prefetch 1 ahead", 1);
    executed("Volume::execute, prefetch 8 ahead", 8);
    for pages in [PagePolicy::Ordinary, PagePolicy::TransparentHuge] {
        for (name, layout) in LAYOUTS {
            let store = store(Provision::Thick, layout, pages, STORE_BYTES);
            let huge_mib = memory::huge_bytes_in_use().unwrap_or(0) / MIB;
            copies(&format!("{name}, {pages:?} ({huge_mib} MiB huge)"), &store);
        }
    }
    first_writes();
    contention();
    costs();
}

fn store(provision: Provision, layout: Layout, pages: PagePolicy, len_bytes: u64) -> Store {
    let budget = Budget::with_policy(4 * GIB, pages, Overcommit::Allowed);
    let store = Store::new(Arc::new(budget), provision, layout);
    store
        .resize(len_bytes, &mut |_| ControlFlow::Continue(()))
        .expect("4 GiB are enough");
    store
}

/// Offsets of random units of `len` bytes.
struct Offsets {
    state: u64,
    count: u64,
    len: u64,
}

impl Offsets {
    fn new(store_bytes: u64, len: u64) -> Self {
        Self {
            state: 0x1234_5678_9ABC_DEF1,
            count: store_bytes / len,
            len,
        }
    }

    fn next(&mut self) -> u64 {
        self.state ^= self.state << 13;
        self.state ^= self.state >> 7;
        self.state ^= self.state << 17;
        ((u128::from(self.state) * u128::from(self.count)) >> 64) as u64 * self.len
    }
}

/// Operations per second, the best of several rounds.
fn best_rate(mut operation: impl FnMut()) -> f64 {
    let round = || {
        let start = Instant::now();
        let mut count = 0;
        while start.elapsed() < ROUND {
            for _ in 0..BATCH {
                operation();
            }
            count += BATCH;
        }
        count as f64 / start.elapsed().as_secs_f64()
    };
    std::iter::repeat_with(round)
        .take(ROUNDS)
        .fold(0.0, f64::max)
}

fn report(name: &str, rates: &[f64; 6]) {
    print!("| {name} |");
    for (rate, unit) in rates.iter().zip([1e6, 1e6, 1e6, 1e6, 1e3, 1e3]) {
        print!(" {:.2} |", rate / unit);
    }
    println!();
}

fn copies(name: &str, store: &Store) {
    let mut rates = [0.0; 6];
    for (pair, len) in rates.chunks_mut(2).zip([512, 4 * KIB, 128 * KIB]) {
        let mut buffer = vec![1; len as usize];
        let mut offsets = Offsets::new(STORE_BYTES, len);
        pair[0] = best_rate(|| {
            store
                .read(offsets.next(), black_box(&mut buffer))
                .expect("read");
        });
        pair[1] = best_rate(|| {
            store
                .write(offsets.next(), black_box(&buffer))
                .expect("write");
        });
    }
    report(name, &rates);
}

/// Through the volume, on the pages that this host suggests; with `ahead`, each extent is named
/// that many operations before it is used.
fn executed(name: &str, ahead: usize) {
    let host = HostMemory::probe().expect("Linux");
    let budget = Arc::new(Budget::for_host(4 * GIB, &host));
    let spec = VolumeSpec::thick(ByteSize(STORE_BYTES));
    let progress = &mut |_| ControlFlow::Continue(());
    let ram = RamVolume::new(spec.geometry(), Provision::Thick, &budget, progress);
    let disk: Arc<dyn ManagedVolume> = Arc::new(Managed::new(ram.expect("4 GiB are enough")));
    let mut rates = [0.0; 6];
    for (pair, len) in rates.chunks_mut(2).zip([512, 4 * KIB, 128 * KIB]) {
        let mut buffer = vec![1; len as usize];
        let mut offsets = Offsets::new(STORE_BYTES, len);
        let mut extents = VecDeque::new();
        let mut next = || {
            while extents.len() <= ahead {
                let extent = Extent::new(Lba(offsets.next() / 512), Blocks(len / 512));
                if ahead > 0 {
                    disk.prefetch(OpKind::Read, extent);
                }
                extents.push_back(extent);
            }
            extents.pop_front().expect("at least one was pushed")
        };
        pair[0] = best_rate(|| {
            let dest = ReadDest::Copy(black_box(&mut buffer));
            let extent = next();
            disk.execute(Op::Read { extent, dest }).expect("read");
        });
        pair[1] = best_rate(|| {
            let data = black_box(&buffer[..]);
            let extent = next();
            disk.execute(Op::Write { extent, data }).expect("write");
        });
    }
    report(&format!("{name}, {:?}", host.pages), &rates);
}

/// The same without a store: no locks, no look-ups, no sharing.
fn plain_copies() {
    let mut memory = vec![1_u8; STORE_BYTES as usize];
    let mut rates = [0.0; 6];
    for (pair, len) in rates.chunks_mut(2).zip([512, 4 * KIB, 128 * KIB]) {
        let mut buffer = vec![1; len as usize];
        let mut offsets = Offsets::new(STORE_BYTES, len);
        pair[0] = best_rate(|| {
            let at = offsets.next() as usize;
            black_box(&mut buffer).copy_from_slice(&memory[at..at + len as usize]);
        });
        pair[1] = best_rate(|| {
            let at = offsets.next() as usize;
            memory[at..at + len as usize].copy_from_slice(black_box(&buffer));
        });
    }
    report("plain copies in a vector, ordinary pages", &rates);
}

/// What the first write of each part of a thin store costs, in all and at worst.
fn first_writes() {
    println!(
        "\nfirst 4 KiB writes in a row over a thin 512 MiB\n\n| | in all, ms | worst write, µs |\n|---|---|---|"
    );
    let len_bytes = 512 * MIB;
    let cases = [
        (LAYOUTS[0], PagePolicy::Ordinary),
        (LAYOUTS[0], PagePolicy::TransparentHuge),
        (LAYOUTS[4], PagePolicy::Ordinary),
    ];
    for ((name, layout), pages) in cases {
        let mut best = (Duration::MAX, Duration::MAX);
        for _ in 0..ROUNDS {
            let store = store(Provision::Thin, layout, pages, len_bytes);
            let start = Instant::now();
            let mut worst = Duration::ZERO;
            let mut last = start;
            for offset in (0..len_bytes).step_by(4 << 10) {
                store.write(offset, &[1; 4 << 10]).expect("write");
                let now = Instant::now();
                worst = worst.max(now - last);
                last = now;
            }
            best = best.min((start.elapsed(), worst));
        }
        let (all, worst) = best;
        println!(
            "| {name}, {pages:?} | {} | {} |",
            all.as_millis(),
            worst.as_micros()
        );
    }
}

/// Two threads on one small volume: one writes 128 KiB at a time, the other reads 4 KiB at random.
fn contention() {
    println!("\none thread writes 128 KiB, one reads 4 KiB, both at random in 4 MiB\n");
    println!("| | reads, million/s | 99.9 % of reads within, µs |\n|---|---|---|");
    let len_bytes = 4 * MIB;
    for (name, layout) in LAYOUTS {
        let store = store(
            Provision::Thick,
            layout,
            PagePolicy::TransparentHuge,
            len_bytes,
        );
        let done = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                let data = vec![2; 128 << 10];
                let mut offsets = Offsets::new(len_bytes, 128 * KIB);
                while !done.load(Ordering::Relaxed) {
                    store.write(offsets.next(), &data).expect("write");
                }
            });
            let mut buffer = vec![0; 4 << 10];
            let mut offsets = Offsets::new(len_bytes, 4 * KIB);
            let mut read = || {
                store
                    .read(offsets.next(), black_box(&mut buffer))
                    .expect("read");
            };
            let rate = best_rate(&mut read);
            let mut latencies: Vec<_> = (0..200_000)
                .map(|_| {
                    let start = Instant::now();
                    read();
                    start.elapsed()
                })
                .collect();
            done.store(true, Ordering::Relaxed);
            latencies.sort_unstable();
            let p999 = latencies[latencies.len() / 1000 * 999].as_nanos() as f64 / 1e3;
            println!("| {name} | {:.2} | {p999:.1} |", rate / 1e6);
        });
    }
}

/// Single costs: creation, thick allocation, discard.
fn costs() {
    println!("\n| | |\n|---|---|");
    let budget = Arc::new(Budget::new(4 * GIB));
    let thin = |len_bytes| {
        let store = Store::new(Arc::clone(&budget), Provision::Thin, Layout::DEFAULT);
        let grown = store.resize(len_bytes, &mut |_| ControlFlow::Continue(()));
        grown.expect("thin");
        store
    };
    let start = Instant::now();
    let stores: Vec<_> = (0..1000).map(|_| thin(1 << 40)).collect();
    println!(
        "| create 1,000 thin stores of 1 TiB | {} µs |",
        start.elapsed().as_micros()
    );
    let start = Instant::now();
    for store in &stores {
        store.write(1 << 39, &[1; 512]).expect("write");
    }
    println!(
        "| first write of each | {} µs |",
        start.elapsed().as_micros()
    );
    drop(stores);
    for pages in [PagePolicy::Ordinary, PagePolicy::TransparentHuge] {
        let thick = best_time(|| drop(store(Provision::Thick, Layout::DEFAULT, pages, GIB)));
        println!(
            "| create and drop 1 GiB thick, {pages:?} | {} µs |",
            thick.as_micros()
        );
        let thin = store(Provision::Thin, Layout::DEFAULT, pages, GIB);
        let ones = vec![1; 1 << 20];
        let mut discard = Duration::MAX;
        for _ in 0..ROUNDS {
            for offset in (0..GIB).step_by(1 << 20) {
                thin.write(offset, &ones).expect("write");
            }
            let start = Instant::now();
            let all = ByteRange {
                offset: 0,
                len: GIB,
            };
            thin.discard(all).expect("discard");
            discard = discard.min(start.elapsed());
        }
        println!("| discard 1 GiB, {pages:?} | {} µs |", discard.as_micros());
    }
}

/// The shortest of several runs: a virtual machine's first touch of memory is its hypervisor's
/// time.
fn best_time(mut run: impl FnMut()) -> Duration {
    let time = || {
        let start = Instant::now();
        run();
        start.elapsed()
    };
    std::iter::repeat_with(time)
        .take(ROUNDS)
        .min()
        .expect("there are rounds")
}
