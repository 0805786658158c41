//! `ramport volume copy`: through the daemon, and without.

use std::fs;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::daemon::{Daemon, ramport};
use crate::rdma::address;
use crate::terminal::Terminal;

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

/// A daemon that is another machine, over three protocols.
struct Far {
    daemon: Daemon,
    rdma_portal: String,
    /// The second bytes of the addresses from which hosts come over RDMA, which are of their own.
    hosts: [u8; 2],
}

/// The protocols of [`Far`].
const SCHEMES: [&str; 3] = ["nvme+tcp", "iscsi", "nvme+rdma"];
/// What faults and bandwidths are set for, and from where on.
#[derive(Clone, Copy)]
enum End {
    Source,
    Destination,
}

impl Far {
    /// `bytes` and the two after it are the second bytes of addresses that no other test has.
    fn start(name: &str, byte: u8) -> Self {
        let rdma_portal = format!("{}:24907", address(byte));
        let opened = format!("{rdma_portal}?rdma=soft");
        let portals = ["--iscsi", "127.0.0.1:0", "--nvme-rdma", &opened];
        Self {
            daemon: Daemon::start_with(name, &portals),
            rdma_portal,
            hosts: [byte + 1, byte + 2],
        }
    }

    /// Creates a disk of 8 MiB. Returns its URL.
    fn disk(&self, scheme: &str, end: End) -> String {
        let name = match end {
            End::Source => format!("from-{scheme}"),
            End::Destination => format!("to-{scheme}"),
        }
        .replace('+', "-");
        let authority = if scheme == "iscsi" { "iqn" } else { "nqn" };
        let target = format!("{authority}.2026-11.com.example:{name}");
        self.daemon.ok(&["volume", "create", &name, "--size", "8M"]);
        self.daemon
            .ok(&["target", "create", &target, "--volume", &name]);
        if scheme == "nvme+rdma" {
            let host = address(self.hosts[end as usize]);
            let portal = &self.rdma_portal;
            return format!("{scheme}://{portal}/{target}?rdma=soft&local={host}");
        }
        let portals = self.daemon.json(&["portal", "list"]);
        let mut portals = portals.as_array().expect("a list").iter();
        let prefix = format!("{scheme}://");
        let url = portals.find_map(|portal| {
            let url = portal["url"].as_str()?;
            url.starts_with(&prefix).then(|| url.to_owned())
        });
        format!("{}/{target}", url.expect("a portal"))
    }

    /// Sets a filter of the volume behind a disk.
    fn filter(&self, url: &str, option: [&str; 2]) {
        self.daemon.ok(&[
            "volume",
            "filter",
            "set",
            volume_of(url),
            option[0],
            option[1],
        ]);
    }

    fn clear_filters(&self, url: &str) {
        self.daemon
            .ok(&["volume", "filter", "clear", volume_of(url)]);
    }
}

/// The name of the volume behind a disk of [`Far`].
fn volume_of(url: &str) -> &str {
    let (_, name) = url.rsplit_once("example:").expect("a target");
    name.split_once('?').map_or(name, |(name, _)| name)
}

/// Each with each: a volume, a file, and a disk of another machine by each protocol.
#[test]
fn every_place_is_copied_to_every_other() {
    let (daemon, far) = (Daemon::start("copy-each"), Far::start("copy-each-far", 46));
    let path = |name: &str| daemon.folder.join(name).to_str().expect("text").to_owned();
    daemon.ok(&["volume", "create", "from", "--size", "8M"]);
    daemon.ok(&["volume", "create", "to", "--size", "8M"]);
    let places = |end, here: &str| {
        let disks = SCHEMES.iter().map(|scheme| far.disk(scheme, end));
        let places = [here.to_owned(), path(here)].into_iter().chain(disks);
        places.collect::<Vec<_>>()
    };
    let sources = places(End::Source, "from");
    let destinations = places(End::Destination, "to");
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

/// The first part of a copy is made, and then a command fails, as the command or the daemon copies.
#[test]
fn an_error_half_way_is_told_and_the_next_copy_is_whole() {
    let (daemon, far) = (
        Daemon::start("copy-fails"),
        Far::start("copy-fails-far", 49),
    );
    let path = |name: &str| daemon.folder.join(name).to_str().expect("text").to_owned();
    let (file, held) = (path("file"), path("held"));
    let source: Vec<u8> = (0..LEN).map(|at| (at >> 9) as u8 | 1).collect();
    fs::write(&file, &source).expect("written");
    daemon.ok(&["volume", "create", "rd0", "--size", "8M"]);
    daemon.ok(&["volume", "copy", &file, "rd0"]);
    let fails = |from: &str, to: &str, more: &[&str]| {
        let copy = [&["volume", "copy", from, to, "--force"], more].concat();
        let output = daemon.run(&copy);
        let told = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(1), "{copy:?}: {told}");
        told
    };
    for scheme in SCHEMES {
        let from = far.disk(scheme, End::Source);
        let to = far.disk(scheme, End::Destination);
        daemon.ok(&["volume", "copy", &file, &from]);
        far.filter(&from, ["--fault", "read:read_error:every=50"]);
        for here in ["rd0", &held] {
            let told = fails(&from, here, &[]);
            assert!(told.contains("reading the source at byte "), "{told}");
        }
        far.clear_filters(&from);
        for here in ["rd0", &file] {
            far.filter(&to, ["--fault", "write:write_error:every=50"]);
            let told = fails(here, &to, &["--verify"]);
            assert!(told.contains("writing the destination at byte "), "{told}");
            far.filter(&to, ["--fault", "read:read_error:every=50"]);
            let told = fails(here, &to, &["--verify"]);
            assert!(
                told.contains("reading the destination back at byte "),
                "{told}"
            );
            far.clear_filters(&to);
        }
        // What was copied until then is the source's.
        daemon.ok(&["volume", "copy", &to, &held, "--force"]);
        let part = fs::read(&held).expect("it exists");
        let mut blocks = part.chunks(512).zip(source.chunks(512));
        let is_old = |block: &[u8]| block.iter().all(|byte| *byte == 0);
        assert!(blocks.all(|(held, source)| held == source || is_old(held)));
        daemon.ok(&["volume", "copy", &file, &to, "--verify", "--force"]);
        daemon.ok(&["volume", "copy", &to, &held, "--force"]);
        assert!(fs::read(&held).expect("it exists") == source, "{scheme}");
    }
}

/// While the command copies, and while the daemon does.
#[test]
fn progress_is_shown_on_a_terminal_and_nowhere_else() {
    let (daemon, far) = (Daemon::start("copy-bar"), Far::start("copy-bar-far", 52));
    let path = |name: &str| daemon.folder.join(name).to_str().expect("text").to_owned();
    let (file, held) = (path("file"), path("held"));
    fs::write(&file, vec![7; LEN]).expect("written");
    daemon.ok(&["volume", "create", "rd0", "--size", "8M"]);
    let copy = |from: &str, to: &str| {
        let program = env!("CARGO_BIN_EXE_ramport");
        let socket = path("socket");
        let verb = format!("{program} --socket {socket} volume copy '{from}' '{to}' --force");
        Terminal::run(&format!("stty cols 100; {verb}; echo status $?"), &[])
    };
    for scheme in SCHEMES {
        let from = far.disk(scheme, End::Source);
        let to = far.disk(scheme, End::Destination);
        let quiet = daemon.run(&["volume", "copy", &file, &from]);
        assert!(quiet.status.success() && quiet.stderr.is_empty());
        far.filter(&from, ["--read-bandwidth", "8M"]);
        far.filter(&to, ["--write-bandwidth", "8M"]);
        for (from, to) in [
            (&from[..], &held[..]),
            (&from, "rd0"),
            ("rd0", &to),
            (&file, &to),
        ] {
            let mut terminal = copy(from, to);
            for told in ["copying ", " MiB/8.00 MiB ", "iB/s", "copied "] {
                terminal.wait_for(told);
            }
            terminal.wait_for("8 MiB, of which 0 B are zeros that were not written");
            terminal.wait_for("status 0");
            terminal.end();
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
