//! `ramport fleet` and `ramport study rdma` on one machine: short runs that check the accounting.

use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use block::testing::Folder;
use serde_json::Value;

use crate::daemon::{Daemon, ramport};

const RUN: [&str; 4] = ["fleet", "run", "--warm-up", "100ms"];

fn number(object: &Value, name: &str) -> f64 {
    object[name]
        .as_f64()
        .unwrap_or_else(|| panic!("no {name} in {object}"))
}

fn is_near(given: f64, expected: f64) {
    let error = (given - expected).abs();
    assert!(error <= 1e-6 * expected, "{given}, not {expected}");
}

fn create(daemon: &Daemon, clients: &str) {
    daemon.ok(&["fleet", "create", "--clients", clients, "--size", "4M"]);
}

/// Checks that the figures of `total` are the sums of those of the clients, for each kind of I/O.
fn sums_are_right(measured: &Value) {
    let nodes = measured["nodes"].as_array().expect("nodes");
    let clients = nodes
        .iter()
        .flat_map(|node| node["clients"].as_array().expect("clients"));
    let clients: Vec<_> = clients.collect();
    for io in ["read", "write", "all"] {
        let total = &measured["total"][io];
        if total.is_null() {
            assert!(
                clients.iter().all(|client| client[io].is_null()),
                "{measured}"
            );
            continue;
        }
        for name in ["bytes", "ios", "iops", "mib_per_s"] {
            let parts = clients.iter().filter(|client| !client[io].is_null());
            let sum: f64 = parts.map(|client| number(&client[io], name)).sum();
            is_near(number(total, name), sum);
        }
        // Latencies are merged: the extremes are those of the clients.
        let extreme = |name: &str, of: fn(f64, f64) -> f64, from: f64| {
            let parts = clients.iter().filter(|client| !client[io].is_null());
            parts
                .map(|client| number(&client[io]["latency_us"], name))
                .fold(from, of)
        };
        let us = &total["latency_us"];
        is_near(number(us, "max"), extreme("max", f64::max, 0.0));
        is_near(number(us, "min"), extreme("min", f64::min, f64::MAX));
    }
}

#[test]
fn a_sweep_has_figures_of_each_client_whose_sums_are_the_totals() {
    let daemon = Daemon::start("fleet-sweep");
    create(&daemon, "3");
    let listed = daemon.json(&["fleet", "ls"]);
    let names: Vec<_> = listed.as_array().expect("a list").iter().collect();
    assert_eq!(names.len(), 3);
    assert_eq!(names[2]["volume"], "fleet-3");
    let sweep = ["--sweep", "bs=4k; w=0,30,100; iodepth=2; runtime=1"];
    let report = daemon.json(&[&RUN[..], &sweep].concat());
    let measured = report["measured"].as_array().expect("a list");
    assert_eq!(measured.len(), 3);
    for (measured, w) in measured.iter().zip([0, 30, 100]) {
        assert_eq!(measured["point"]["w"], w);
        assert_eq!(
            measured["nodes"][0]["clients"].as_array().map(Vec::len),
            Some(3)
        );
        sums_are_right(measured);
        let total = &measured["total"];
        let ios = number(&total["all"], "ios");
        assert!(ios > 0.0, "{total}");
        is_near(number(&total["all"], "bytes"), ios * 4096.0);
        assert_eq!(
            (total["read"].is_null(), total["write"].is_null()),
            (w == 100, w == 0)
        );
        assert_eq!(total["errors"], 0);
        assert!(number(&total["all"]["latency_us"], "stddev") > 0.0);
    }
    let mixed = &measured[1]["total"];
    let share = number(&mixed["write"], "ios") / number(&mixed["all"], "ios");
    assert!((share - 0.3).abs() < 0.1, "{share}");
    daemon.ok(&["fleet", "rm"]);
    assert_eq!(
        daemon.json(&["volume", "ls"]).as_array().map(Vec::len),
        Some(0)
    );
    assert_eq!(
        daemon.json(&["target", "ls"]).as_array().map(Vec::len),
        Some(0)
    );
}

#[test]
fn files_get_the_figures_and_the_table_has_a_row_per_client() {
    let daemon = Daemon::start("fleet-files");
    create(&daemon, "2");
    let folder = Folder::new();
    let [csv, svg] = ["fleet.csv", "fleet.svg"].map(|name| folder.join(name));
    let files = [
        "--sweep",
        "w=50; runtime=500ms",
        "--csv",
        csv.to_str().expect("UTF-8"),
        "--svg",
        svg.to_str().expect("UTF-8"),
    ];
    let table = daemon.ok(&[&RUN[..], &files].concat());
    let rows = |name: &str| {
        let names = table
            .lines()
            .filter_map(|line| line.split_whitespace().nth(1));
        names.filter(|found| found.starts_with(name)).count()
    };
    assert_eq!((rows("fleet-"), rows("total")), (2, 3), "{table}");
    let csv = std::fs::read_to_string(csv).expect("written");
    let lines: Vec<Vec<&str>> = csv.lines().map(|line| line.split(',').collect()).collect();
    assert!(
        lines.iter().all(|line| line.len() == lines[0].len()),
        "{csv}"
    );
    // Reads, writes and both of two clients and of the total.
    assert_eq!(lines.len(), 1 + 9, "{csv}");
    let ios = |client: &str, io: &str| {
        let mut found = lines
            .iter()
            .filter(|line| line[6] == client && line[7] == io);
        found
            .next()
            .map(|line| line[9].parse::<u64>().expect("a number"))
    };
    let sum = ios("fleet-1", "read")
        .zip(ios("fleet-2", "read"))
        .map(|(a, b)| a + b);
    assert_eq!(ios("total", "read"), sum, "{csv}");
    let picture = std::fs::read_to_string(svg).expect("written");
    assert!(picture.contains("IOPS of the fleet"), "{picture}");
}

/// The time now, in seconds since 1970.
fn unix_s() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.expect("after 1970").as_secs()
}

#[test]
fn commands_that_begin_at_the_same_time_are_added_up() {
    let folder = Folder::new();
    let daemons = ["fleet-merge-1", "fleet-merge-2"].map(Daemon::start);
    let files = ["n1", "n2"].map(|name| folder.join(name).display().to_string());
    let begin = (unix_s() + 15).to_string();
    let runs = daemons.iter().zip(&files).map(|(daemon, file)| {
        create(daemon, "2");
        let more = [
            "--sweep",
            "runtime=500ms",
            "--begin",
            &begin,
            "--counts",
            file,
        ];
        ramport()
            .arg("--socket")
            .arg(daemon.folder.join("socket"))
            .args(RUN)
            .args(more)
            .stdout(Stdio::null())
            .spawn()
            .expect("the program runs")
    });
    for mut run in runs.collect::<Vec<_>>() {
        assert!(run.wait().expect("a child").success());
    }
    assert!(unix_s().to_string() >= begin);
    let [daemon, _] = &daemons;
    let [first, second] = files.each_ref().map(String::as_str);
    // Both are this machine.
    let told = daemon.mistake(&["fleet", "merge", first, second]);
    assert!(told.contains("a file of each node once"), "{told}");
    let mut counts: Value =
        serde_json::from_str(&std::fs::read_to_string(second).expect("written")).expect("JSON");
    counts["measured"][0]["nodes"][0]["node"] = "another".into();
    std::fs::write(second, counts.to_string()).expect("written");
    let merged = daemon.json(&["fleet", "merge", first, second]);
    let measured = &merged["measured"][0];
    sums_are_right(measured);
    let nodes = measured["nodes"].as_array().expect("nodes");
    assert_eq!(nodes.len(), 2);
    let ios = |of: &Value| number(&of["total"]["all"], "ios");
    is_near(ios(measured), ios(&nodes[0]) + ios(&nodes[1]));
    let table = daemon.ok(&["fleet", "merge", first, second]);
    let is_total = |line: &&str| line.split_whitespace().nth(1) == Some("total");
    // Of each node, and reads and all I/Os of both.
    assert_eq!(table.lines().filter(is_total).count(), 4, "{table}");
    counts["measured"][0]["point"]["w"] = 5.into();
    std::fs::write(second, counts.to_string()).expect("written");
    let told = daemon.mistake(&["fleet", "merge", first, second]);
    assert!(told.contains("the same --sweep"), "{told}");
    std::fs::write(second, "{").expect("written");
    let told = daemon.mistake(&["fleet", "merge", first, second]);
    assert!(told.contains("ramport fleet run --counts"), "{told}");
}

#[test]
fn mistakes_say_how_to_fix_them() {
    let daemon = Daemon::start("fleet-mistakes");
    let told = daemon.mistake(&["fleet", "run"]);
    assert!(told.contains("ramport fleet create"), "{told}");
    create(&daemon, "1");
    let told = daemon.mistake(&["fleet", "create", "--clients", "2"]);
    assert!(told.contains("ramport fleet rm"), "{told}");
    let told = daemon.mistake(&["fleet", "run", "--rdma", "on"]);
    assert!(told.contains("portal set URL --rdma on"), "{told}");
    let told = daemon.mistake(&["fleet", "run", "--sweep", "w=101"]);
    assert!(told.contains("choose 0 to 100"), "{told}");
    let told = daemon.mistake(&["fleet", "run", "--begin", "1"]);
    assert!(told.contains("choose a time at least"), "{told}");
    let told = daemon.mistake(&["study", "rdma"]);
    assert!(told.contains("nvme+rdma"), "{told}");
    // What cannot be created leaves nothing.
    daemon.ok(&["fleet", "rm"]);
    let told = daemon.run(&["fleet", "create", "--clients", "3", "--size", "200M"]);
    assert!(!told.status.success());
    assert_eq!(
        daemon.json(&["volume", "ls"]).as_array().map(Vec::len),
        Some(0)
    );
}

#[test]
fn an_interrupt_ends_all_clients() {
    let daemon = Daemon::start("fleet-interrupt");
    create(&daemon, "2");
    let mut run = ramport()
        .arg("--socket")
        .arg(daemon.folder.join("socket"))
        .args(["fleet", "run", "--sweep", "runtime=600"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("the program runs");
    let sessions = || daemon.json(&["session", "ls"]).as_array().map(Vec::len);
    let wait_for = |count| {
        let end = Instant::now() + Duration::from_secs(60);
        while sessions() != Some(count) {
            assert!(Instant::now() < end, "{:?} sessions", sessions());
            thread::sleep(Duration::from_millis(20));
        }
    };
    wait_for(2);
    let told = Command::new("kill")
        .args(["-INT", &run.id().to_string()])
        .status();
    assert!(told.expect("kill runs").success());
    assert_eq!(run.wait().expect("a child").code(), Some(130));
    wait_for(0);
}

#[test]
fn a_study_compares_rdma_with_tcp_beside_the_published_changes() {
    let portal = "127.0.0.61:24961";
    let daemon = Daemon::start_with(
        "study-rdma",
        &[
            "--nvme-tcp",
            portal,
            "--nvme-rdma",
            &format!("{portal}?rdma=soft"),
        ],
    );
    create(&daemon, "2");
    let folder = Folder::new();
    let output = folder.join("");
    let study = ["study", "rdma", "--repeats", "1", "--runtime", "500ms"];
    let rest = [
        "--warm-up",
        "0",
        "--output",
        output.to_str().expect("UTF-8"),
    ];
    let report = daemon.json(&[&study[..], &rest].concat());
    let portals = report["machine"]["portals"].as_array().expect("portals");
    assert!(
        portals[0].as_str().expect("text").ends_with("(TCP)"),
        "{report}"
    );
    assert!(
        portals[1]
            .as_str()
            .expect("text")
            .ends_with("(software RDMA)"),
        "{report}"
    );
    let sections = report["sections"].as_array().expect("sections");
    assert_eq!(sections.len(), 4);
    for section in sections {
        let rows = section["rows"].as_array().expect("rows");
        assert_eq!(rows.len(), 3);
        for row in rows {
            let [off, on, change] = [1, 2, 3].map(|at| row[at].as_f64().expect("a figure"));
            assert!(off > 0.0 && on > 0.0, "{section}");
            assert!(
                (change - (on / off - 1.0) * 100.0).abs() < 1e-6,
                "{section}"
            );
        }
    }
    assert_eq!(sections[0]["rows"][2][4], 63.57);
    assert_eq!(sections[2]["rows"][0][4], -85.52);
    let text = std::fs::read_to_string(folder.join("study-rdma.md")).expect("written");
    assert!(text.contains("| 70/30"), "{text}");
    assert!(folder.join("study-rdma.svg").exists());
}
