//! What `/metrics` says.

use std::collections::BTreeSet;

use super::*;

#[test]
fn volumes_beyond_the_budget_are_counted() {
    let daemon = Daemon::start();
    let capacity = || daemon.engine.capacity().oversized_volumes;
    for (name, size, count) in [
        ("small", "256M", 0),
        ("large", "257M", 1),
        ("huge", "1T", 2),
    ] {
        let path = format!("/v1/volumes/{name}");
        let made = daemon.client.raw("POST", &path, &json!({ "size": size }));
        assert_eq!(made.expect("an answer").0, 201);
        assert_eq!(capacity(), count, "{name}");
    }
    let text = daemon.client.get_text("/metrics").expect("metrics");
    assert!(
        text.contains("\nramport_memory_oversized_volumes 2\n"),
        "{text}"
    );
    assert!(
        text.contains("\nramport_memory_failed_writes_total 0\n"),
        "{text}"
    );
}

#[test]
fn metrics_name_every_volume_and_keep_the_format() {
    let daemon = Daemon::start();
    let volume = json!({"size": "1M"});
    daemon
        .client
        .raw("POST", "/v1/volumes/a", &volume)
        .expect("an answer");
    let volume = json!({"kind": "cache", "of": "b", "cache_size": "1M"});
    daemon
        .client
        .raw("POST", "/v1/volumes/b", &json!({"size": "1M"}))
        .expect("an answer");
    daemon
        .client
        .raw("POST", "/v1/volumes/c", &volume)
        .expect("an answer");
    let text = daemon.client.get_text("/metrics").expect("metrics");
    let of_cache = "ramport_volume_cache_commands_total{volume=\"c\",kind=\"read\",result=\"partial_hit\"} 0\n";
    assert!(text.contains(of_cache), "{text}");
    assert!(
        text.contains("ramport_volume_size_bytes{volume=\"a\"} 1048576\n"),
        "{text}"
    );
    assert!(text.contains("ramport_volume_operations_total{volume=\"a\",kind=\"read\"} 0\n"));
    let mut heads = BTreeSet::new();
    for line in text.lines() {
        if let Some(name) = line.strip_prefix("# TYPE ") {
            assert!(heads.insert(name.to_owned()), "{name} twice");
        } else if !line.starts_with('#') {
            let value = line.rsplit_once(' ').expect("a value").1;
            assert!(value.parse::<f64>().is_ok(), "{line}");
        }
    }
    assert_eq!(heads, metric_types());
    assert!(text.ends_with("# EOF\n"), "OpenMetrics ends with a mark");
}

/// Every metric with its type. Dashboards and alerts rely on them. Samples of counters have the
/// suffix `_total`.
fn metric_types() -> BTreeSet<String> {
    const DAEMON: &str = "memory_budget_bytes gauge,memory_used_bytes gauge,memory_promised_bytes gauge,\
        memory_oversized_volumes gauge,memory_failed_writes counter,memory_rejected_connections counter,\
        uptime_seconds gauge,volumes gauge,sessions gauge,volume_size_bytes gauge,volume_used_bytes gauge,\
        volume_children gauge,volume_created_timestamp_seconds gauge,volume_contents_lost gauge,\
        volume_offline gauge,volume_damaged_bytes gauge,volume_save_timestamp_seconds gauge,volume_save_duration_seconds gauge,\
        volume_save_file_bytes gauge,volume_save_failed gauge";
    const RDMA: &str = "packets_received,datagrams_sent,runs_unsent,messages_unsent,runs_handed_over,\
        receive_calls,send_calls,packets_dropped,requests_refused";
    const CACHE: &str = "commands counter,bypassed counter,slower_bytes counter,evictions counter,\
        write_backs counter,failed_write_backs counter,resident_bytes gauge,dirty_bytes gauge";
    const IO: &str = "operations counter,bytes counter,errors counter,latency_seconds histogram,\
        latency_mean_seconds gauge,latency_stddev_seconds gauge";
    let daemon = DAEMON.split(',').map(str::to_owned);
    let rdma = RDMA
        .split(',')
        .map(|what| format!("portal_rdma_{what} counter"));
    let cache = CACHE.split(',').map(|what| format!("volume_cache_{what}"));
    let io = ["volume", "target", "session"].into_iter();
    let io = io.flat_map(|noun| IO.split(',').map(move |what| format!("{noun}_{what}")));
    let all = daemon.chain(rdma).chain(cache).chain(io);
    all.map(|name| format!("ramport_{name}")).collect()
}

#[test]
fn what_came_over_rdma_is_counted_by_cause_in_metrics_and_the_portals_view() {
    let daemon = Daemon::start();
    let [_, _, a, b] = std::process::id().to_be_bytes();
    let address = format!("127.41.{a}.{}", b.max(1));
    for portal in [
        format!("nvme+tcp://{address}:24910"),
        format!("nvme+rdma://{address}:24910?rdma=soft"),
    ] {
        let portal = parse(&portal).expect("a portal");
        let added = daemon.engine.add_portal(portal, IfClosed::Refuse);
        added.expect("the port is free");
    }
    let peer = std::net::UdpSocket::bind((address.as_str(), 0)).expect("it is ours");
    // Too short for any packet.
    peer.send_to(&[0; 3], format!("{address}:4791"))
        .expect("sent");
    let labels = format!("portal=\"nvme+rdma://{address}:24910?rdma=soft\",address=\"{address}\"");
    let metric = |what, causes: &str, count| {
        format!("ramport_portal_rdma_{what}_total{{{labels}{causes}}} {count}\n")
    };
    let malformed = metric("packets_dropped", ",cause=\"malformed\"", 1);
    let end = std::time::Instant::now() + std::time::Duration::from_secs(10);
    let text = loop {
        let text = daemon.client.get_text("/metrics").expect("metrics");
        if text.contains(&malformed) {
            break text;
        }
        assert!(std::time::Instant::now() < end, "{text}");
        std::thread::sleep(std::time::Duration::from_millis(5));
    };
    assert!(text.contains(&metric("packets_received", "", 1)), "{text}");
    let limit = metric("requests_refused", ",cause=\"connection_limit\"", 0);
    assert!(text.contains(&limit), "{text}");
    assert!(!text.contains("{portal=\"nvme+tcp"), "TCP has none: {text}");
    let views = daemon.engine.portals();
    let told: Vec<_> = views.iter().filter_map(|p| p.statistics.as_ref()).collect();
    let [statistics] = told[..] else {
        panic!("{views:?}");
    };
    assert_eq!(statistics.packets_received, 1);
    assert_eq!(statistics.packets_dropped["malformed"], 1);
    assert_eq!(statistics.packets_dropped["bad_icrc"], 0);
}
