//! Portals over RDMA, by the command line.

use std::net::{Ipv4Addr, UdpSocket};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::daemon::Daemon;

/// For longer than portals are tried again after.
const PATIENCE: Duration = Duration::from_secs(40);
const NQN: &str = "nqn.2025-01.io.ramport:rd0";
/// What `bench --compare` tells of two sources that are read.
const FIGURES: [&str; 10] = [
    "IOPS",
    "MiB/s",
    "read mean us",
    "read stddev us",
    "read p50 us",
    "read p99 us",
    "read p99.9 us",
    "read max us",
    "own CPU us per I/O",
    "daemon CPU us per I/O",
];

/// An address of loopback of a test's own: RoCEv2 has one UDP port per address.
pub(crate) fn address(of_test: u8) -> Ipv4Addr {
    let [_, _, a, b] = std::process::id().to_be_bytes();
    Ipv4Addr::new(127, of_test, a, b.max(1))
}

fn portals(daemon: &Daemon) -> Vec<(String, String)> {
    let portals = daemon.json(&["portal", "ls"]);
    let portals = portals.as_array().expect("a list");
    let text = |portal: &Value, key: &str| portal[key].as_str().expect("a text").to_owned();
    portals
        .iter()
        .map(|portal| (text(portal, "url"), text(portal, "state")))
        .filter(|(url, _)| !url.starts_with("nvme"))
        .collect()
}

#[test]
fn one_command_opens_a_portal_over_rdma_beside_one_over_tcp_and_closes_it() {
    let mut daemon = Daemon::start("rdma");
    let address = address(35);
    let tcp = format!("iscsi://{address}:24900,2");
    let rdma = format!("iser://{address}:24900,2");
    let open = |url: &str| (url.to_owned(), "open".to_owned());
    let set = |daemon: &Daemon, to: &str| daemon.ok(&["portal", "set", &tcp, "--rdma", to]);

    let early = daemon.mistake(&["portal", "set", &tcp, "--rdma", "on"]);
    assert!(early.contains("there is no portal"), "{early}");
    daemon.ok(&["portal", "create", &tcp]);
    for _ in 0..2 {
        set(&daemon, "on");
        assert_eq!(portals(&daemon), [open(&tcp), open(&rdma)]);
    }
    daemon.kill_and_restart();
    assert_eq!(portals(&daemon), [open(&tcp), open(&rdma)]);
    for _ in 0..2 {
        set(&daemon, "off");
        assert_eq!(portals(&daemon), [open(&tcp)]);
    }
    let fault = daemon.mistake(&["portal", "set", &rdma, "--rdma", "on"]);
    assert!(fault.contains("cannot be switched to RDMA"), "{fault}");
}

/// The portal over RDMA that a daemon has.
fn over_rdma(daemon: &Daemon) -> Value {
    let portals = daemon.json(&["portal", "ls"]);
    let mut portals = portals.as_array().expect("a list").iter();
    let portal = portals.find(|portal| portal["rdma"].is_string());
    portal.expect("one over RDMA").clone()
}

/// A volume by NVMe/TCP, through the daemon's portal: that is served.
fn tcp_works(daemon: &Daemon) {
    let portals = daemon.json(&["portal", "ls"]);
    let mut portals = portals.as_array().expect("a list").iter();
    let tcp = portals.find(|portal| portal["rdma"].is_null());
    let tcp = tcp.expect("one over TCP")["url"].as_str().expect("a URL");
    let found = daemon.json(&["discover", tcp]);
    assert!(!found.as_array().expect("a list").is_empty(), "{found}");
}

fn text<'a>(portal: &'a Value, field: &str) -> &'a str {
    portal[field].as_str().unwrap_or_default()
}

#[test]
fn a_portal_says_what_carries_it_and_changes_that() {
    let daemon = Daemon::start("provider");
    let address = address(39);
    let tcp = format!("nvme+tcp://{address}:24901");
    let rdma = format!("nvme+rdma://{address}:24901");
    daemon.ok(&["portal", "create", &tcp]);
    let set = |to: &str| daemon.ok(&["portal", "set", &tcp, "--rdma", to]);
    set("soft");
    assert_eq!(
        text(&over_rdma(&daemon), "url"),
        format!("{rdma}?rdma=soft")
    );
    set("on");
    assert_eq!(
        text(&over_rdma(&daemon), "rdma"),
        "soft",
        "it is on already"
    );
    let shown = set("auto");
    assert!(shown.contains("rdma         soft: no"), "{shown}");
    let auto = over_rdma(&daemon);
    assert_eq!(
        (text(&auto, "url"), text(&auto, "rdma")),
        (rdma.as_str(), "auto")
    );
    // No adapter has an address of loopback.
    let fault = daemon.mistake(&["portal", "set", &rdma, "--rdma", "hw"]);
    assert!(
        fault.contains("`ramport fabric ls` tells of adapters"),
        "{fault}"
    );
    assert_eq!(over_rdma(&daemon), auto, "it is as it was");
    let beside = format!("iser://{address}:24902?rdma=hw");
    let fault = daemon.mistake(&["portal", "create", &beside]);
    assert!(fault.contains("use soft"), "{fault}");
    daemon.ok(&["portal", "set", &rdma, "--rdma", "soft"]);
    let list = daemon.ok(&["portal", "ls"]);
    let line = list.lines().find(|line| line.starts_with(&rdma));
    let line: Vec<_> = line.expect("it is listed").split_whitespace().collect();
    assert_eq!(
        line[1..],
        ["rdma", "24901", "soft", "not", "required", "0", "open"],
        "{list}"
    );
    let tree = daemon.ok(&["ls"]);
    assert!(
        tree.contains("?rdma=soft  open by soft, 0 connections"),
        "{tree}"
    );
    let fabric = daemon.json(&["fabric", "ls"]);
    assert_eq!(fabric["providers"][1]["is_available"], true, "{fabric}");
    let portals = fabric["portals"].as_array().expect("a list");
    let mine = portals.iter().find(|portal| portal["provider"] == "soft");
    assert_eq!(mine.expect("it is listed")["adapter"], Value::Null);
    // Without saying what carries it, the one that is there is meant.
    daemon.ok(&["portal", "rm", &rdma]);
    tcp_works(&daemon);
}

#[test]
fn tcp_is_served_on_where_rdma_has_not_its_port_until_it_has() {
    let address = address(40);
    let blocker = UdpSocket::bind((address, 4791)).expect("it is ours");
    let rdma = format!("{address}:24903");
    let mut daemon = Daemon::start_with("taken", &["--nvme-rdma", &rdma]);
    for _ in 0..2 {
        let portal = over_rdma(&daemon);
        assert_eq!(text(&portal, "state"), "closed");
        let reason = text(&portal, "reason");
        assert!(
            reason.contains(&format!("UDP port 4791 of {address}")),
            "{reason}"
        );
        let tree = daemon.ok(&["ls"]);
        assert!(tree.contains(&format!("closed: {reason}")), "{tree}");
        tcp_works(&daemon);
        daemon.kill_and_restart();
    }
    drop(blocker);
    let begin = Instant::now();
    while text(&over_rdma(&daemon), "state") != "open" {
        assert!(begin.elapsed() < PATIENCE, "it is not tried again");
        std::thread::sleep(Duration::from_millis(100));
    }
    assert_eq!(text(&over_rdma(&daemon), "provider"), "soft");
}

#[test]
fn a_portal_that_wants_an_adapter_stays_closed_without_one() {
    let address = address(41);
    let wanted = format!("{address}:24904?rdma=hw");
    let daemon = Daemon::start_with("hw", &["--nvme-rdma", &wanted]);
    let portal = over_rdma(&daemon);
    assert_eq!(
        (text(&portal, "state"), text(&portal, "rdma")),
        ("closed", "hw")
    );
    let reason = text(&portal, "reason");
    assert!(reason.ends_with("rdma=soft needs none"), "{reason}");
    tcp_works(&daemon);
    let moved = daemon.ok(&[
        "portal",
        "set",
        &format!("nvme+rdma://{address}:24904"),
        "--rdma",
        "soft",
    ]);
    assert!(moved.contains("soft: software was asked for"), "{moved}");
    // What the command line says counts when the daemon starts.
    let mut daemon = daemon;
    daemon.kill_and_restart();
    assert_eq!(text(&over_rdma(&daemon), "rdma"), "hw");
}

/// The disk at a portal over RDMA in software, for a host at an address of its own.
fn url_of_disk(portal: &str, host: Ipv4Addr) -> String {
    format!("nvme+rdma://{portal}/{NQN}?rdma=soft&local={host}")
}

fn make_disk(daemon: &Daemon) {
    daemon.ok(&["volume", "create", "rd0", "--size", "8M"]);
    daemon.ok(&["target", "create", NQN, "--volume", "rd0"]);
}

#[test]
fn bench_compares_tcp_with_rdma_figure_by_figure() {
    let portal = format!("{}:24905", address(42));
    let daemon = Daemon::start_with("compare", &["--nvme-rdma", &format!("{portal}?rdma=soft")]);
    make_disk(&daemon);
    daemon.ok(&["portal", "create", &format!("nvme+tcp://{portal}")]);
    let tcp = format!("nvme+tcp://{portal}/{NQN}");
    let rdma = url_of_disk(&portal, address(43));
    let compare = [
        "bench",
        "--compare",
        &tcp,
        &rdma,
        "--runs",
        "1",
        "--runtime",
        "500ms",
        "--iodepth",
        "4",
        "--poll",
        "sleep",
    ];
    let report = daemon.ok(&[&compare[..], &["--json"]].concat());
    let report: Value = serde_json::from_str(&report).expect("JSON");
    assert_eq!((&report["runs"], &report["errors"]), (&1.into(), &0.into()));
    let compared = ["a", "b"].map(|which| text(&report, which));
    assert!(compared[0].starts_with(&tcp), "{report}");
    assert!(compared[1].starts_with("nvme+rdma://"), "{report}");
    let differences = report["differences"].as_array().expect("a list");
    let figures: Vec<_> = differences.iter().map(|it| text(it, "figure")).collect();
    assert_eq!(figures, FIGURES);
    for difference in differences {
        for which in ["a", "b"] {
            let value = difference[which].as_f64().expect("a number");
            assert!(value > 0.0, "{which}: {difference}");
        }
        assert!(difference["percent"].is_number(), "{difference}");
    }
    let table = daemon.ok(&compare);
    let rows: Vec<_> = table.lines().map(str::trim).collect();
    for figure in FIGURES {
        let row = rows.iter().find_map(|row| row.strip_prefix(figure));
        let row = row.unwrap_or_else(|| panic!("no {figure}: {table}"));
        // Two medians, how far they are apart, two ranges.
        let cells = row.split("  ").filter(|cell| !cell.trim().is_empty());
        assert_eq!(cells.count(), 5, "{row}");
    }
}

#[test]
fn a_daemon_that_may_not_leave_runs_to_the_system_serves_and_says_so() {
    let portal = format!("{}:24906", address(44));
    let opened = format!("{portal}?rdma=soft");
    let daemon = Daemon::start_with("gso", &["--rdma-gso-off", "--nvme-rdma", &opened]);
    make_disk(&daemon);
    let url = url_of_disk(&portal, address(45));
    let write = ["bench", &url, "--verify", "--rw", "write", "--bs", "128k"];
    daemon.ok(&[&write[..], &["--size", "4M", "--poll", "sleep"]].concat());
    assert_eq!(text(&over_rdma(&daemon), "segmentation"), "off");
    let fabric = daemon.json(&["fabric", "ls"]);
    let portals = fabric["portals"].as_array().expect("a list");
    let mine = portals.iter().find(|portal| portal["provider"] == "soft");
    assert_eq!(mine.expect("it is listed")["segmentation"], "off");
    let shown = daemon.ok(&["portal", "show", &format!("nvme+rdma://{portal}")]);
    let line = "gso          off: packets are sent one by one\n";
    assert!(shown.contains(line), "{shown}");
    assert!(!shown.contains("packets      0 received"), "{shown}");
}
