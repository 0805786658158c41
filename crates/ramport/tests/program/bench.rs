//! What `bench` says when its target goes away.

use std::process::{Child, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal};
use serde_json::Value;

use crate::daemon::{Daemon, ramport};

const NQN: &str = "nqn.2026-11.com.example:outage";

/// A daemon with a volume of 4 MiB, and the volume's URL. Each test has an address of its own.
fn disk(name: &str, address: &str) -> (Daemon, String) {
    let daemon = Daemon::start(name);
    daemon.ok(&["volume", "create", "rd0", "--size", "4M"]);
    daemon.ok(&["target", "create", NQN, "--volume", "rd0"]);
    daemon.ok(&["portal", "create", &format!("nvme+tcp://{address}")]);
    (daemon, format!("nvme+tcp://{address}/{NQN}"))
}

fn bench(url: &str, options: &str) -> Child {
    measure(&[url], options)
}

fn measure(what: &[&str], options: &str) -> Child {
    ramport()
        .arg("bench")
        .args(what)
        .args(["--json", "--poll", "sleep", "--iodepth", "4"])
        .args(options.split_ascii_whitespace())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program runs")
}

fn report(output: &Output) -> Value {
    let told = String::from_utf8_lossy(&output.stderr);
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {told}"))
}

fn figure(value: &Value) -> f64 {
    value
        .as_f64()
        .unwrap_or_else(|| panic!("no number: {value}"))
}

#[test]
fn a_target_that_does_not_return_fails_the_run_within_its_runtime() {
    let (mut daemon, url) = disk("away", "127.0.61.5:24911");
    let began = Instant::now();
    let child = bench(&url, "--runtime 4");
    thread::sleep(Duration::from_secs(1));
    daemon.child.kill().expect("killed");
    daemon.child.wait().expect("ended");
    let output = child.wait_with_output().expect("ends");
    let took = began.elapsed();
    assert!(took < Duration::from_secs(15), "{took:?}");
    assert_eq!(output.status.code(), Some(1));
    let report = report(&output);
    let outage = &report["outage"];
    assert!(figure(&outage["lasted_s"]) > 1.0, "{report}");
    assert_eq!(outage["ended"], false);
    assert!(
        figure(&report["read"]["latency_us"]["max"]) > 1e6,
        "{report}"
    );
    assert!(figure(&report["read"]["iops_min"]) < 1.0, "{report}");
    assert!(figure(&report["read"]["ios"]) > 0.0, "{report}");
    assert_eq!(report["errors"], 4);
    let elapsed_s = figure(&report["elapsed_s"]);
    assert!((3.9..6.0).contains(&elapsed_s), "{report}");
    let notes = report["notes"].to_string();
    assert!(notes.contains("did not answer for"), "{notes}");
}

#[test]
fn an_outage_that_ends_shows_in_the_figures_and_fails_if_it_is_too_long() {
    let (mut daemon, url) = disk("returns", "127.0.61.6:24912");
    let children = [
        bench(&url, "--runtime 8"),
        bench(&url, "--runtime 8 --max-outage 500ms"),
    ];
    thread::sleep(Duration::from_secs(1));
    daemon.child.kill().expect("killed");
    daemon.child.wait().expect("ended");
    thread::sleep(Duration::from_millis(1500));
    daemon.kill_and_restart();
    let [patient, impatient] = children.map(|child| child.wait_with_output().expect("ends"));
    for (output, status) in [(&patient, 0), (&impatient, 1)] {
        let report = report(output);
        assert_eq!(output.status.code(), Some(status), "{report}");
        assert_eq!(report["outage"]["ended"], true, "{report}");
        assert_eq!(report["errors"], 0);
        assert!(figure(&report["outage"]["lasted_s"]) > 1.0, "{report}");
        assert!(
            figure(&report["read"]["latency_us"]["max"]) > 1e6,
            "{report}"
        );
    }
    assert_eq!(report(&patient)["outage"]["max_s"], Value::Null);
    assert_eq!(report(&impatient)["outage"]["max_s"].to_string(), "0.5");
}

#[test]
fn an_interrupted_run_prints_the_figures_so_far() {
    let (daemon, url) = disk("interrupt", "127.0.61.8:24914");
    for options in ["--runtime 60", "--suite full --rw read"] {
        let child = bench(&url, options);
        thread::sleep(Duration::from_secs(3));
        let process = Pid::from_child(&child);
        rustix::process::kill_process(process, Signal::INT).expect("it runs");
        let output = child.wait_with_output().expect("ends");
        let report = report(&output);
        assert_eq!(output.status.code(), Some(130), "{report}");
        assert_eq!(report["interrupted"], true);
        let run = report
            .get("rows")
            .map_or(&report, |rows| &rows[0]["report"]);
        assert!(figure(&run["iops"]) > 0.0, "{report}");
        assert!(figure(&run["elapsed_s"]) < 20.0, "{report}");
    }
    drop(daemon);
}

#[test]
fn an_interrupted_comparison_prints_the_runs_so_far() {
    let (daemon, url) = disk("compared", "127.0.61.9:24915");
    let child = measure(&["--compare", &url, &url], "--runs 50 --runtime 1");
    thread::sleep(Duration::from_secs(6));
    let process = Pid::from_child(&child);
    rustix::process::kill_process(process, Signal::INT).expect("it runs");
    let output = child.wait_with_output().expect("ends");
    let report = report(&output);
    assert_eq!(output.status.code(), Some(130), "{report}");
    assert_eq!(
        (&report["interrupted"], &report["runs"]),
        (&true.into(), &50.into())
    );
    assert!(figure(&report["measured"][0]) >= 1.0, "{report}");
    assert!(figure(&report["differences"][0]["a"]) > 0.0, "{report}");
    drop(daemon);
}

#[test]
fn a_series_whose_target_goes_away_prints_what_was_measured() {
    let (mut daemon, url) = disk("series", "127.0.61.10:24916");
    let children = [
        bench(&url, "--suite quick --rw read"),
        measure(&["--compare", &url, &url], "--runs 50 --runtime 1"),
    ];
    thread::sleep(Duration::from_secs(3));
    daemon.child.kill().expect("killed");
    daemon.child.wait().expect("ended");
    let [suite, comparison] = children.map(|child| child.wait_with_output().expect("ends"));
    for output in [&suite, &comparison] {
        let report = report(output);
        assert_eq!(output.status.code(), Some(1), "{report}");
        let failure = report["failure"].as_str().expect("a reason");
        assert!(failure.contains("check address and port"), "{failure}");
    }
    let first = &report(&suite)["rows"][0]["report"];
    assert!(figure(&first["iops"]) > 0.0, "{first}");
    let first = &report(&comparison)["differences"][0];
    assert!(figure(&first["a"]) > 0.0, "{first}");
}

#[test]
fn verification_gives_up_on_a_target_that_does_not_return() {
    let (mut daemon, url) = disk("silent", "127.0.61.7:24913");
    let child = bench(&url, "--verify --rw write --runtime 60 --max-outage 1");
    thread::sleep(Duration::from_secs(1));
    daemon.child.kill().expect("killed");
    daemon.child.wait().expect("ended");
    let began = Instant::now();
    let output = child.wait_with_output().expect("ends");
    assert!(began.elapsed() < Duration::from_secs(15));
    assert_eq!(output.status.code(), Some(1));
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(told.contains("no answer for"), "{told}");
}
