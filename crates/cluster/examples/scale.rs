//! The figures of docs/scale.md: 100 nodes and 10,000 volumes. `scale` simulates placement and the
//! loss of a node and of a zone; `scale URL` also measures a real etcd with what such a cluster
//! writes and reads.

#![expect(
    clippy::cast_precision_loss,
    reason = "figures for people have fewer digits than f64"
)]

use std::collections::{BTreeMap, BTreeSet};
use std::error::Error;
use std::time::{Duration, Instant};

use cluster::placement::{LossCover, Move, Pool, PoolNode, Provision, Restoration, Wish};
use cluster::{Etcd, EtcdUrl, Txn};
use rand::rngs::SmallRng;
use rand::{Rng as _, SeedableRng as _};

const NODES: u32 = 100;
const ZONES: u32 = 10;
const NODE_BYTES: u64 = 1 << 40;
const VOLUMES: u64 = 10_000;
/// Sizes in GiB, as often as each other.
const SIZES_GIB: [u64; 6] = [1, 1, 2, 2, 4, 8];
/// One volume of so many has three copies, the others two.
const THREE_COPIES_OF: u64 = 5;
/// What a node may send and receive for new copies: half of 25 Gbit/s.
const COPY_BYTES_PER_S: f64 = 25e9 / 8.0 / 2.0;
const SEED: u64 = 1;
/// A definition in etcd, as JSON.
const DEFINITION_BYTES: usize = 400;
/// Requests at once.
const PARALLEL: usize = 32;
/// How long the idle cluster is measured.
const IDLE: Duration = Duration::from_secs(20);
/// How often a node keeps its lease alive.
const KEEP_ALIVE: Duration = Duration::from_secs(2);

fn main() -> Result<(), Box<dyn Error>> {
    let pool = placement()?;
    losses(&pool);
    if let Some(url) = std::env::args().nth(1) {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        runtime.block_on(etcd(url.parse()?, &pool))?;
    }
    Ok(())
}

fn placement() -> Result<Pool, Box<dyn Error>> {
    let nodes = (0..NODES).map(|number| PoolNode {
        number,
        zone: number % ZONES,
        memory_bytes: NODE_BYTES,
        is_usable: true,
    });
    let mut pool = Pool::new(nodes, 100);
    let mut random = SmallRng::seed_from_u64(SEED);
    let begin = Instant::now();
    for volume in 0..VOLUMES {
        let wish = Wish {
            size_bytes: SIZES_GIB[random.random_range(0..SIZES_GIB.len())] << 30,
            copies: if volume % THREE_COPIES_OF == 0 { 3 } else { 2 },
            provision: Provision::Fixed,
        };
        pool.place(volume, wish, LossCover::Ignored)?;
    }
    println!(
        "placed {VOLUMES} volumes on {NODES} nodes in {ZONES} zones: {:?}",
        begin.elapsed()
    );
    let begin = Instant::now();
    assert_eq!(pool.uncovered(), None, "the loss of each node is covered");
    println!(
        "checked that the loss of each node is covered: {:?}",
        begin.elapsed()
    );
    let numbers = 0..NODES;
    let of_nodes = |value: &dyn Fn(u32) -> Option<u64>| {
        let values = numbers.clone().filter_map(value);
        summary(&values.map(|value| value as f64).collect::<Vec<_>>())
    };
    println!(
        "fill of nodes: {}",
        of_nodes(&|node| Some(pool.used_bytes(node)? * 10_000 / NODE_BYTES))
    );
    println!("  (in hundredths of per cent)");
    println!(
        "primaries of nodes: {}",
        of_nodes(&|node| pool.primaries(node))
    );
    let capacity = pool.capacity();
    let gib = |bytes: u64| bytes >> 30;
    println!(
        "memory {} GiB, used {} GiB, free {} GiB, free after the loss of a node {} GiB",
        gib(capacity.memory_bytes),
        gib(capacity.used_bytes),
        gib(capacity.free_bytes),
        gib(capacity.free_after_loss_bytes)
    );
    Ok(pool)
}

fn losses(pool: &Pool) {
    let mut of_nodes = Vec::new();
    for node in 0..NODES {
        of_nodes.push(seconds(&pool.restoration(&BTreeSet::from([node])).moves));
    }
    println!(
        "loss of a node, seconds until all copies are there again: {}",
        summary(&of_nodes)
    );
    let mut of_zones = Vec::new();
    let mut last = Restoration::default();
    for zone in 0..ZONES {
        let lost: BTreeSet<_> = (0..NODES).filter(|node| node % ZONES == zone).collect();
        last = pool.restoration(&lost);
        assert!(last.lost.is_empty(), "copies are in different zones");
        of_zones.push(seconds(&last.moves));
    }
    println!(
        "loss of a zone, seconds until all copies are there again: {}",
        summary(&of_zones)
    );
    let bytes: u64 = last.moves.iter().map(|step| step.size_bytes).sum();
    println!(
        "  of the last one: {} copies, {} GiB, {} volumes degraded, {} lost",
        last.moves.len(),
        bytes >> 30,
        last.degraded.len(),
        last.lost.len()
    );
}

/// How long copies take: as long as the busiest node sends or receives.
fn seconds(moves: &[Move]) -> f64 {
    let mut busy: BTreeMap<(bool, u32), u64> = BTreeMap::new();
    for step in moves {
        *busy.entry((false, step.from)).or_default() += step.size_bytes;
        *busy.entry((true, step.to)).or_default() += step.size_bytes;
    }
    busy.into_values().max().unwrap_or(0) as f64 / COPY_BYTES_PER_S
}

fn summary(values: &[f64]) -> String {
    let count = values.len() as f64;
    let mean = values.iter().sum::<f64>() / count;
    let variance = values
        .iter()
        .map(|value| (value - mean).powi(2))
        .sum::<f64>()
        / count;
    let min = values.iter().copied().fold(f64::INFINITY, f64::min);
    let max = values.iter().copied().fold(0.0, f64::max);
    format!(
        "min {min:.1}, mean {mean:.1}, max {max:.1}, standard deviation {:.2}",
        variance.sqrt()
    )
}

/// What the cluster costs etcd.
async fn etcd(url: EtcdUrl, pool: &Pool) -> Result<(), Box<dyn Error>> {
    let etcd = Etcd::new(vec![url], None);
    etcd.commit(Txn::new().delete_prefix("/scale/")).await?;
    let begin = Instant::now();
    let keys: Vec<_> = pool
        .placed()
        .keys()
        .map(|volume| format!("/scale/volumes/{volume:05}"))
        .collect();
    in_parallel(&etcd, &keys, |key| {
        Txn::new()
            .if_absent(key)
            .put(key, vec![b'x'; DEFINITION_BYTES])
    })
    .await?;
    report(
        "definitions written, each by a transaction",
        keys.len(),
        begin,
    );
    let begin = Instant::now();
    let (entries, _) = etcd.list("/scale/volumes/").await?;
    report(
        "definitions read by a node that starts",
        entries.len(),
        begin,
    );
    let begin = Instant::now();
    let on_one = pool
        .placed()
        .iter()
        .filter(|(_, placed)| placed.nodes.contains(&0));
    let epochs: Vec<_> = on_one
        .map(|(volume, _)| format!("/scale/epochs/{volume:05}"))
        .collect();
    in_parallel(&etcd, &epochs, |key| {
        Txn::new().if_absent(key).put(key, vec![b'x'; 100])
    })
    .await?;
    report(
        "configurations changed after the loss of a node",
        epochs.len(),
        begin,
    );
    idle(&etcd).await
}

/// The leases of all nodes, kept alive as nodes do.
async fn idle(etcd: &Etcd) -> Result<(), Box<dyn Error>> {
    let mut leases = Vec::new();
    for _ in 0..NODES {
        leases.push(etcd.grant_lease(Duration::from_secs(6)).await?);
    }
    let begin = Instant::now();
    let mut beats = 0;
    let mut slowest = Duration::ZERO;
    while begin.elapsed() < IDLE {
        for lease in &leases {
            let asked = Instant::now();
            assert!(etcd.keep_alive(*lease).await?, "a lease has ended");
            slowest = slowest.max(asked.elapsed());
            beats += 1;
            let next = begin + KEEP_ALIVE * beats / NODES;
            tokio::time::sleep_until(next.into()).await;
        }
    }
    report(
        "leases kept alive by an idle cluster",
        beats as usize,
        begin,
    );
    println!("  the slowest took {slowest:?}");
    Ok(())
}

async fn in_parallel(
    etcd: &Etcd,
    keys: &[String],
    txn: impl Fn(&str) -> Txn,
) -> Result<(), Box<dyn Error>> {
    let mut tasks = tokio::task::JoinSet::new();
    let mut left = keys.iter();
    loop {
        while tasks.len() < PARALLEL {
            let Some(key) = left.next() else { break };
            let (etcd, txn) = (etcd.clone(), txn(key));
            tasks.spawn(async move { etcd.commit(txn).await });
        }
        match tasks.join_next().await {
            Some(done) => done??,
            None => return Ok(()),
        };
    }
}

fn report(what: &str, count: usize, begin: Instant) {
    let elapsed = begin.elapsed();
    let rate = count as f64 / elapsed.as_secs_f64();
    println!("{count} {what}: {elapsed:?}, {rate:.0} per second");
}
