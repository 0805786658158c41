//! From counters to figures.

use server::{KindStatistics, Latency, SessionId, Transport};

use super::*;

const LENGTH: Duration = Duration::from_secs(2);
const LATENCY: Duration = Duration::from_micros(100);

/// Counters of one kind, each of whose operations took [`LATENCY`].
fn kind(operations: u64, errors: u64) -> KindStatistics {
    let latency_ns = LATENCY.as_nanos() as u64;
    let mut buckets = [0; Latency::BUCKETS];
    buckets[Latency::bucket_of(latency_ns)] = operations;
    let squares_us2 = operations * 100 * 100;
    KindStatistics {
        operations,
        bytes: (operations - errors) * 4096,
        errors,
        latency: Latency::from_parts(&buckets, operations * latency_ns, squares_us2),
    }
}

/// Counters after so many reads and writes of 4 KiB, each of which took [`LATENCY`]; one write in
/// ten failed.
fn counters(reads: u64, writes: u64) -> IoStatistics {
    let none = KindStatistics::default;
    let kinds = OpKind::ALL.map(|of| match of {
        OpKind::Read => kind(reads, 0),
        OpKind::Write => kind(writes, writes / 10),
        OpKind::Discard | OpKind::Flush => none(),
    });
    kinds.into()
}

fn figures(now: &IoStatistics, before: Option<&IoStatistics>) -> Figures {
    Figures::of(&done_since(now, before), now, LENGTH)
}

fn assert_near(given: f64, expected: f64) {
    assert!(
        (given - expected).abs() < 1e-9 * expected.max(1.0),
        "{given} instead of {expected}"
    );
}

#[test]
fn rates_are_differences_per_second() {
    let figures = figures(&counters(3000, 700), Some(&counters(1000, 500)));
    assert_near(figures.read_iops, 1000.0);
    assert_near(figures.write_iops, 100.0);
    assert_near(figures.iops, 1100.0);
    assert_near(figures.read_bytes_per_s, 1000.0 * 4096.0);
    assert_near(figures.write_bytes_per_s, 90.0 * 4096.0);
    assert_near(figures.latency_mean_us.expect("commands"), 100.0);
    let p99_us = figures.latency_p99_us.expect("commands");
    assert!((100.0..=125.0).contains(&p99_us), "{p99_us}");
    assert_near(figures.queue_depth, 1100.0 * 100e-6);
    assert_eq!((figures.errors, figures.errors_total), (20, 70));
}

#[test]
fn an_interval_without_commands_has_no_latency() {
    let same = counters(10, 10);
    let idle = Figures {
        errors_total: 1,
        ..Figures::default()
    };
    assert_eq!(figures(&same, Some(&same)), idle);
}

#[test]
fn what_is_new_or_was_made_again_counts_from_zero() {
    let now = counters(20, 10);
    for before in [None, Some(&counters(1000, 0)), Some(&counters(0, 1000))] {
        let figures = figures(&now, before);
        assert_near(figures.iops, 15.0);
        assert_eq!((figures.errors, figures.errors_total), (1, 1));
    }
}

#[test]
fn a_session_of_nfs_counts_calls_that_touch_no_data() {
    let session = |reads, lookups| {
        let operations = FileProcedure::ALL.map(|of| match of {
            FileProcedure::Read => kind(reads, 0),
            FileProcedure::Lookup => kind(lookups, lookups / 10),
            _ => KindStatistics::default(),
        });
        let address = ([192, 0, 2, 1], 700).into();
        SessionInfo {
            id: SessionId(1),
            target: None,
            host: "192.0.2.1".parse().expect("an address"),
            peer: address,
            local: address,
            protocol: SessionProtocol::Nfs {
                transport: Transport::Nfs,
                shares: Vec::new(),
                operations: operations.into(),
                clients: Vec::new(),
            },
            connections: 1,
            since: SystemTime::UNIX_EPOCH,
            statistics: counters(reads, 0),
        }
    };
    let (before, now) = (session(10, 100), session(30, 1100));
    let figures = session_figures(Some(&before), &now, LENGTH);
    assert_near(figures.iops, 510.0);
    assert_near(figures.read_iops, 10.0);
    assert_near(figures.write_iops, 0.0);
    assert_near(figures.read_bytes_per_s, 10.0 * 4096.0);
    assert_eq!((figures.errors, figures.errors_total), (100, 110));
    assert_near(session_figures(None, &before, LENGTH).iops, 55.0);
}

#[test]
fn the_total_keeps_what_threads_did_that_have_ended() {
    let thread = |name: &str, statistics| ThreadInfo {
        name: name.to_owned(),
        connections: 0,
        cpu_time: Duration::from_secs(1),
        statistics,
    };
    let start = Instant::now();
    let reading = |at, threads, total| Reading {
        at,
        time: SystemTime::now(),
        process_cpu: Duration::ZERO,
        memory: CapacityView::default(),
        volumes: Vec::new(),
        sessions: Vec::new(),
        portals: Vec::new(),
        threads,
        total,
    };
    let (reactor, rdma) = (counters(40, 20), counters(0, 1000));
    let all = counters(40, 1020);
    let both = vec![thread("reactor-0", reactor.clone()), thread("rdma-0", rdma)];
    let before = reading(start, both, all.clone());
    // The RDMA thread ends, and the reactor goes on.
    let one = vec![thread("reactor-0", counters(60, 20))];
    let now = reading(start + LENGTH, one, counters(60, 1020));
    let view = TopView::between(&before, &now);
    assert_eq!(view.threads.len(), 1);
    assert_near(view.threads[0].cpu_percent, 0.0);
    assert_eq!((view.total.errors, view.total.errors_total), (0, 102));
    assert_near(view.total.read_iops, 10.0);
    assert_near(view.total.write_iops, 0.0);
    // Another thread of the same name has used less CPU time.
    let again = vec![ThreadInfo {
        cpu_time: Duration::from_millis(500),
        ..thread("reactor-0", counters(0, 0))
    }];
    let next = reading(now.at + LENGTH, again, counters(60, 1020));
    let view = TopView::between(&now, &next);
    assert_near(view.threads[0].cpu_percent, 25.0);
    assert_eq!(view.total.errors_total, 102);
}
