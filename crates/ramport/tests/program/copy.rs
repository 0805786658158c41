//! `ramport volume copy`: through the daemon, and without.

use std::fs;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::daemon::{Daemon, ramport};

const TARGET: &str = "nqn.2026-11.com.example:disk";
const LEN: usize = 8 << 20;

/// Bytes of which most are zeros.
fn contents() -> Vec<u8> {
    let mut bytes = vec![0; LEN];
    bytes[3 << 20..(3 << 20) + 5000].fill(7);
    bytes[LEN - 1] = 9;
    bytes
}

#[test]
fn a_volume_a_file_and_a_remote_disk_are_copied_to_each_other() {
    let daemon = Daemon::start("copy");
    let path = |name: &str| daemon.folder.join(name).to_str().expect("text").to_owned();
    let (from, between, to) = (path("from"), path("between"), path("to"));
    fs::write(&from, contents()).expect("written");
    daemon.ok(&["volume", "create", "rd0", "--size", "8M"]);
    daemon.ok(&["volume", "create", "rd1", "--size", "16M"]);
    daemon.ok(&["target", "create", TARGET, "--volume", "rd1"]);
    let portals = daemon.json(&["portal", "list"]);
    let url = format!("{}/{TARGET}", portals[0]["url"].as_str().expect("a portal"));

    // File to volume, volume to volume, both by the daemon.
    let copied = daemon.json(&["volume", "copy", &from, "rd0", "--verify"]);
    assert_eq!(copied["total_bytes"], LEN);
    assert_eq!(copied["data_bytes"], 2 * (64 << 10), "two runs hold data");
    assert_eq!(copied["verified"], true);
    let text = daemon.ok(&["volume", "copy", "rd0", "rd1"]);
    assert!(text.contains("are zeros that were not written"), "{text}");
    // A disk of another machine to a file, and file to file, by the command itself.
    daemon.ok(&["volume", "copy", &url, &between]);
    assert_eq!(
        fs::metadata(&between).expect("it exists").len(),
        2 * LEN as u64
    );
    let copied = fs::read(&between).expect("it exists");
    assert!(copied[..LEN] == contents());
    daemon.ok(&["volume", "copy", &from, &to, "--verify"]);
    assert!(fs::read(&to).expect("it exists") == contents());
}

/// Each with each: a volume, a file, and a disk of another machine.
#[test]
fn every_place_is_copied_to_every_other() {
    let (daemon, far) = (Daemon::start("copy-each"), Daemon::start("copy-each-far"));
    let path = |name: &str| daemon.folder.join(name).to_str().expect("text").to_owned();
    let portals = far.json(&["portal", "list"]);
    let portals = portals.as_array().expect("a list").iter();
    let portals: Vec<_> = portals
        .filter_map(|portal| portal["url"].as_str())
        .collect();
    let disk = |name: &str, scheme: &str, target: &str| {
        far.ok(&["volume", "create", name, "--size", "8M"]);
        far.ok(&["target", "create", target, "--volume", name]);
        let portal = portals.iter().find(|url| url.starts_with(scheme));
        format!("{}/{target}", portal.expect("a portal"))
    };
    daemon.ok(&["volume", "create", "from", "--size", "8M"]);
    daemon.ok(&["volume", "create", "to", "--size", "8M"]);
    let nvme = |name: &str| {
        disk(
            name,
            "nvme+tcp:",
            &format!("nqn.2026-11.com.example:{name}"),
        )
    };
    let sources = ["from".to_owned(), path("from"), nvme("from-nvme")];
    let destinations = ["to".to_owned(), path("to"), nvme("to-nvme")];
    let (source, old, held) = (path("source"), path("old"), path("held"));
    fs::write(&source, contents()).expect("written");
    // What is zeros in the source has to be written over these.
    fs::write(&old, vec![0xEE; LEN]).expect("written");
    let copy = |from: &str, to: &str| {
        let copied = daemon.json(&["volume", "copy", from, to, "--verify", "--force"]);
        assert_eq!(copied["verified"], true, "{from} to {to}");
    };
    for from in &sources {
        copy(&source, from);
    }
    for from in &sources {
        for to in &destinations {
            copy(&old, to);
            copy(from, to);
            copy(to, &held);
            assert!(
                fs::read(&held).expect("it exists") == contents(),
                "{from} to {to}"
            );
        }
    }
}

#[test]
fn a_copy_needs_force_where_data_are_lost() {
    let daemon = Daemon::start("copy-refused");
    let path = |name: &str| daemon.folder.join(name).to_str().expect("text").to_owned();
    let from = path("from");
    fs::write(&from, contents()).expect("written");
    daemon.ok(&["volume", "create", "rd0", "--size", "8M"]);
    daemon.ok(&["volume", "copy", &from, "rd0"]);
    let refused = daemon.mistake(&["volume", "copy", &from, "rd0"]);
    assert!(
        refused.contains("holds data") && refused.contains("--force"),
        "{refused}"
    );
    daemon.ok(&["volume", "copy", &from, "rd0", "--force"]);
    let file = path("full");
    fs::write(&file, vec![1; LEN]).expect("written");
    let refused = daemon.mistake(&["volume", "copy", &from, &file]);
    assert!(
        refused.contains("holds data") && refused.contains("--force"),
        "{refused}"
    );
    assert!(
        fs::read(&file).expect("it exists") == vec![1; LEN],
        "unchanged"
    );

    daemon.ok(&["volume", "create", "small", "--size", "4M"]);
    let small = daemon.mistake(&["volume", "copy", "rd0", "small"]);
    assert!(small.contains("grow the destination"), "{small}");
    let same = daemon.mistake(&["volume", "copy", "rd0", "rd0"]);
    assert!(same.contains("name another destination"), "{same}");
    let missing = daemon.mistake(&["volume", "copy", &path("missing"), "rd0", "--force"]);
    assert!(missing.contains("cannot open"), "{missing}");
    let unknown = daemon.mistake(&["volume", "copy", "rd9", "rd0"]);
    assert!(unknown.contains("rd9"), "{unknown}");
    daemon.ok(&[
        "volume",
        "create",
        "v0",
        "--file",
        &path("used"),
        "--size",
        "8M",
    ]);
    let used = daemon.mistake(&["volume", "copy", &from, &path("used")]);
    assert!(used.contains("something else uses it"), "{used}");
}

/// The status of a command that SIGINT has ended.
const INTERRUPTED: i32 = 130;

#[test]
fn an_interrupted_copy_says_how_far_it_was_and_the_daemon_stops_it() {
    let daemon = Daemon::start("copy-interrupted");
    let path = |name: &str| daemon.folder.join(name).to_str().expect("text").to_owned();
    let (from, to) = (path("from"), path("to"));
    let source: Vec<u8> = (0..LEN).map(|at| (at >> 9) as u8 | 1).collect();
    fs::write(&from, &source).expect("written");
    daemon.ok(&["volume", "create", "rd0", "--size", "8M"]);
    daemon.ok(&["volume", "copy", &from, "rd0"]);
    let filter = ["volume", "filter"];
    daemon.ok(&[&filter[..], &["set", "rd0", "--read-bandwidth", "4M"]].concat());
    let child = ramport()
        .arg("--socket")
        .arg(daemon.folder.join("socket"))
        .args(["volume", "copy", "rd0", &to])
        .stderr(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("the program runs");
    wait_for_task(&daemon, |task| task["done_bytes"].as_u64() > Some(0));
    let pid = child.id().to_string();
    let told = Command::new("kill").args(["-INT", &pid]).status();
    assert!(told.expect("there is kill").success());
    let output = child.wait_with_output().expect("a child");
    let told = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(INTERRUPTED), "{told}");
    let is_told = |done| told.contains(&format!("was stopped after {done} MiB of 8 MiB"));
    assert!((1..8).any(is_told), "{told}");

    // What was in flight is completed, and nothing else: then the volume is free again.
    wait_for_task(&daemon, Value::is_null);
    let held = fs::read(&to).expect("it was created");
    let copied = held.iter().take_while(|byte| **byte != 0).count();
    assert!((1 << 20..LEN).contains(&copied), "{copied} bytes");
    assert!(held[..copied] == source[..copied]);
    assert!(held[copied..].iter().all(|byte| *byte == 0));
    daemon.ok(&[&filter[..], &["clear", "rd0"]].concat());
    daemon.ok(&["volume", "copy", "rd0", &to, "--force"]);
    assert!(fs::read(&to).expect("it exists") == source);
}

/// Waits until the daemon's only task is as `is` says; null stands for none.
fn wait_for_task(daemon: &Daemon, is: impl Fn(&Value) -> bool) {
    let end = Instant::now() + Duration::from_secs(60);
    loop {
        let tasks: Value = serde_json::from_str(&daemon.get("/v1/tasks")).expect("JSON");
        if is(&tasks[0]) {
            return;
        }
        assert!(Instant::now() < end, "{tasks}");
        thread::sleep(Duration::from_millis(5));
    }
}
