//! Clusters from the command line: real daemons, real etcd.

use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt as _;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use block::testing::Folder;
use serde_json::Value;

use crate::daemon::Daemon;

/// How long something may take: far more than it needs, as machines that test are busy.
pub(crate) const LIMIT: Duration = Duration::from_secs(90);

pub(crate) const TARGET: &str = "nqn.2025-01.io.ramport:v1";

/// A daemon with its etcd.
pub(crate) struct Machine {
    pub(crate) daemon: Daemon,
    address: String,
}

impl Machine {
    /// Starts daemons at 127.0.0.1 and so on; they hold the same token, which is in `folder`.
    pub(crate) fn start(folder: &Folder, count: usize) -> Vec<Self> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        // Below the ports that systems give out, and others for each process and test.
        let test = NEXT.fetch_add(1, Ordering::Relaxed);
        let port = 30_000 + std::process::id() % 300 * 8 + test * 4;
        let token = folder.join("token");
        fs::write(&token, "the token that all machines of this test share").expect("written");
        fs::set_permissions(&token, fs::Permissions::from_mode(0o600)).expect("set");
        let token = token.display().to_string();
        let machines = (1..=count).map(|number| {
            let address = format!("127.0.0.{number}:{port}");
            let name = format!("n{number}");
            let more = [
                "--cluster",
                &address,
                "--cluster-token-file",
                &token,
                "--node-name",
                &name,
            ];
            let daemon = Daemon::start_with(&format!("cluster-{port}-{number}"), &more);
            Self { daemon, address }
        });
        machines.collect()
    }

    /// Kills the daemon and its etcd, as the end of a machine does.
    pub(crate) fn kill(&mut self) {
        let _ = self.daemon.child.kill();
        let _ = self.daemon.child.wait();
        let pid = fs::read_to_string(self.daemon.folder.join("cluster/etcd.pid"));
        if let Ok(pid) = pid {
            let _ = Command::new("kill").args(["-KILL", pid.trim()]).status();
        }
    }

    /// Kills the daemon alone.
    fn kill_daemon(&self) {
        let pid = self.daemon.child.id().to_string();
        let killed = Command::new("kill").args(["-KILL", &pid]).status();
        assert!(killed.is_ok_and(|status| status.success()));
    }

    /// Makes a cluster of all machines.
    pub(crate) fn make_cluster(machines: &[Self]) {
        let addresses: Vec<_> = machines
            .iter()
            .map(|machine| machine.address.as_str())
            .collect();
        let addresses = addresses.join(",");
        let create = ["cluster", "create", "lab", "--nodes", &addresses];
        machines[0].daemon.ok(&create);
    }

    /// Waits until `is_it` holds for what this machine says of volume v1, which is nothing if it
    /// has none.
    fn wait_for_volume(&self, is_it: impl Fn(&Value) -> bool) -> Value {
        let begin = Instant::now();
        loop {
            let output = self.daemon.run(&["volume", "show", "v1", "--json"]);
            let shown: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
            if is_it(&shown) {
                return shown;
            }
            assert!(begin.elapsed() < LIMIT, "{shown}");
            thread::sleep(Duration::from_millis(50));
        }
    }

    pub(crate) fn wait_for_copies(&self, in_sync: usize) -> Value {
        self.wait_for_volume(|shown| {
            let replication = &shown["replication"];
            replication["in_sync"] == in_sync && replication["primary"].is_string()
        })
    }

    /// Offers volume v1 as hosts use it.
    pub(crate) fn offer(&self) {
        let create = ["target", "create", TARGET, "--volume", "v1"];
        self.daemon.ok(&create);
    }

    /// Writes a pattern, or reads it again, through this machine's portal. Each block is checked.
    fn verify(&self, rw: &str) {
        let portals = self.daemon.json(&["portal", "list"]);
        let portal = portals[0]["url"].as_str().expect("a portal");
        let url = format!("{portal}/{TARGET}");
        let options = ["--verify", "--write", "--bs", "16k", "--iodepth", "4"];
        let args = ["bench", &url, "--rw", rw, "--size", "16M"];
        let report = self.daemon.ok(&[&args[..], &options].concat());
        assert!(
            report.contains("every block that was checked holds what it should"),
            "{report}"
        );
    }

    /// Waits until `node ls` says this of a node.
    fn wait_for(&self, node: &str, state: &str) {
        let begin = Instant::now();
        loop {
            let output = self.daemon.run(&["node", "ls", "--json"]);
            let nodes: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
            let nodes = nodes.as_array().cloned().unwrap_or_default();
            if nodes
                .iter()
                .any(|found| found["name"] == node && found["state"] == state)
            {
                return;
            }
            assert!(begin.elapsed() < LIMIT, "{nodes:?}");
            thread::sleep(Duration::from_millis(50));
        }
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        self.kill();
    }
}

fn leave_and_join_again(machines: &[Machine]) {
    let told = machines[2].daemon.mistake(&["cluster", "leave"]);
    assert!(told.contains("--force"), "{told}");
    machines[2].daemon.ok(&["cluster", "leave", "--force"]);
    let nodes = machines[0].daemon.json(&["node", "ls"]);
    assert_eq!(nodes.as_array().map(Vec::len), Some(2), "{nodes}");
    machines[2]
        .daemon
        .ok(&["cluster", "join", &machines[0].address]);
    machines[1].wait_for("n3", "up");
}

#[test]
fn three_daemons_become_a_cluster_and_a_killed_one_is_seen_and_returns() {
    if Command::new("etcd").arg("--version").output().is_err() {
        return block::testing::skip("etcd is not installed (Debian: etcd-server)");
    }
    let folder = Folder::new();
    let mut machines = Machine::start(&folder, 3);
    let told = machines[0].daemon.mistake(&["node", "ls"]);
    assert!(told.contains("ramport cluster create"), "{told}");
    let addresses: Vec<_> = machines
        .iter()
        .map(|machine| machine.address.as_str())
        .collect();
    let addresses = addresses.join(",");
    let create = ["cluster", "create", "lab", "--nodes", &addresses];
    let made = machines[0].daemon.ok(&create);
    for line in [
        "lab",
        "3 of 3 up",
        "768 MiB",
        "512 MiB",
        "n2",
        "etcds that can be lost",
    ] {
        assert!(made.contains(line), "{line}:\n{made}");
    }
    let told = machines[1].daemon.mistake(&create);
    assert!(told.contains("belongs to the cluster lab"), "{told}");
    let shown = machines[2].daemon.json(&["node", "show", "n1"]);
    assert_eq!(shown["address"], machines[0].address);
    assert_eq!(
        (&shown["role"], &shown["state"]),
        (&"storage".into(), &"up".into())
    );
    let told = machines[2].daemon.mistake(&["node", "show", "n4"]);
    assert!(told.contains("ramport node ls"), "{told}");

    machines[2].kill();
    machines[0].wait_for("n3", "down");
    let table = machines[1].daemon.ok(&["node", "ls"]);
    let row = table
        .lines()
        .find(|line| line.starts_with("n3"))
        .expect("a row");
    assert!(row.ends_with("down"), "{table}");
    let cluster = machines[1].daemon.json(&["cluster", "ls"]);
    assert_eq!(cluster["etcd_losses_max"], 1);

    machines[2].daemon.restart();
    machines[0].wait_for("n3", "up");
    machines[2].wait_for("n3", "up");

    // A daemon that is killed alone leaves its etcd, which the next one ends and replaces.
    machines[1].daemon.kill_and_restart();
    machines[1].wait_for("n2", "up");

    leave_and_join_again(&machines);
}

/// Waits until `watch` on this machine shows what `is_it` holds for.
fn watch_until(machine: &Machine, is_it: impl Fn(&Value) -> bool) -> Value {
    let begin = Instant::now();
    loop {
        let shown = machine
            .daemon
            .json(&["watch", "--once", "--interval", "100ms"]);
        if is_it(&shown) {
            return shown;
        }
        assert!(begin.elapsed() < LIMIT, "{shown}");
    }
}

/// Whether exactly these nodes have figures.
fn have_figures(shown: &Value, names: &[&str]) -> bool {
    let nodes = shown["nodes"].as_array().cloned().unwrap_or_default();
    let with_figures = nodes.iter().filter(|node| !node["figures"].is_null());
    let found: Vec<_> = with_figures.map(|node| node["name"].as_str()).collect();
    found == names.iter().copied().map(Some).collect::<Vec<_>>()
}

#[test]
fn every_node_shows_what_all_of_them_do_and_which_of_them_is_down() {
    if Command::new("etcd").arg("--version").output().is_err() {
        return block::testing::skip("etcd is not installed (Debian: etcd-server)");
    }
    let folder = Folder::new();
    let mut machines = Machine::start(&folder, 3);
    Machine::make_cluster(&machines);
    let create = ["volume", "create", "v1", "--size", "16M", "--copies", "2"];
    machines[0].daemon.ok(&create);
    machines[0].wait_for_copies(2);
    for machine in &machines {
        let shown = watch_until(machine, |shown| {
            have_figures(shown, &["n1", "n2", "n3"]) && shown["total"]["copies_in_sync"] == 2
        });
        assert_eq!(
            (&shown["cluster"], &shown["total"]["copies"]),
            (&"lab".into(), &2.into())
        );
    }
    machines[2].kill();
    // Its lease is alive at first: its connection is refused.
    let shown = watch_until(&machines[0], |shown| have_figures(shown, &["n1", "n2"]));
    assert_eq!(shown["nodes"][2]["state"], "down");
    machines[0].wait_for("n3", "down");
    let table = machines[1]
        .daemon
        .ok(&["watch", "--once", "--interval", "100ms"]);
    assert!(
        table.contains("n3 is down: its lease in etcd has ended"),
        "{table}"
    );
    assert!(table.contains("total"), "{table}");
    // Without a majority of etcds, the nodes that were known are asked nevertheless.
    machines[1].kill();
    let shown = watch_until(&machines[0], |shown| !shown["problem"].is_null());
    assert!(have_figures(&shown, &["n1"]), "{shown}");
    assert_eq!(shown["nodes"].as_array().map(Vec::len), Some(3), "{shown}");
}

/// What cannot be created says how to fix it.
fn refuse_volumes(machine: &Machine) {
    let create = |name, size, copies| {
        let args = ["volume", "create", name, "--size", size, "--copies", copies];
        machine.daemon.mistake(&args)
    };
    let told = create("v1", "16M", "2");
    assert!(told.contains("volume ls"), "{told}");
    let told = create("v2", "16M", "4");
    assert!(told.contains("choose 1 to 3"), "{told}");
    let told = create("v2", "1G", "2");
    assert!(told.contains("choose a smaller size"), "{told}");
    for args in [
        &["volume", "resize", "v1", "32M"][..],
        &["volume", "erase", "v1"],
        &["volume", "snapshot", "v1", "s1"],
    ] {
        machine.daemon.mistake(args);
    }
    let cache = [
        "volume",
        "create",
        "c1",
        "--cache-of",
        "v1",
        "--cache-size",
        "8M",
    ];
    let told = machine.daemon.mistake(&cache);
    assert!(told.contains("old blocks"), "{told}");
    let told = machine.daemon.mistake(&["volume", "remove", "v1"]);
    assert!(told.contains("all nodes"), "{told}");
}

#[test]
fn a_replicated_volume_outlives_each_of_its_nodes_in_turn() {
    if Command::new("etcd").arg("--version").output().is_err() {
        return block::testing::skip("etcd is not installed (Debian: etcd-server)");
    }
    let folder = Folder::new();
    let mut machines = Machine::start(&folder, 3);
    Machine::make_cluster(&machines);
    let create = ["volume", "create", "v1", "--size", "16M", "--copies", "2"];
    machines[2].daemon.ok(&create);
    let identity = |shown: &Value| shown["identity"]["uuid"].clone();
    let shown = machines[2].wait_for_copies(2);
    for machine in &machines {
        let seen = machine.wait_for_copies(2);
        assert_eq!(identity(&seen), identity(&shown));
        machine.offer();
    }
    refuse_volumes(&machines[1]);
    let copies = &shown["replication"]["copies"];
    let (first, second) = (place(&copies[0]["node"]), place(&copies[1]["node"]));
    let primary = place(&shown["replication"]["primary"]);
    let (primary, secondary) = if primary == first {
        (first, second)
    } else {
        (second, first)
    };
    let other = 3 - primary - secondary;

    machines[primary].verify("write");
    machines[primary].kill();
    machines[secondary].wait_for_copies(1);
    machines[secondary].verify("read");
    machines[other].verify("read");
    machines[primary].daemon.restart();
    // It copies while hosts write.
    machines[other].verify("write");
    machines[secondary].wait_for_copies(2);
    machines[primary].wait_for_copies(2);

    machines[secondary].kill();
    machines[primary].wait_for_copies(1);
    machines[primary].verify("read");
    machines[secondary].daemon.restart();
    machines[secondary].wait_for_copies(2);
    machines[secondary].verify("read");

    machines[other]
        .daemon
        .ok(&["volume", "remove", "v1", "--force"]);
    for machine in &machines {
        machine.wait_for_volume(Value::is_null);
    }
}

impl Machine {
    /// Writes and checks through this machine again and again, and reads, until `work` is done.
    /// Returns the longest time that a read took.
    fn verify_during(&self, work: impl FnOnce()) -> Duration {
        let is_over = AtomicBool::new(false);
        thread::scope(|scope| {
            let verified = scope.spawn(|| {
                while !is_over.load(Ordering::SeqCst) {
                    self.verify("write");
                }
            });
            let timed = scope.spawn(|| {
                let mut longest = Duration::ZERO;
                while !is_over.load(Ordering::SeqCst) {
                    longest = longest.max(self.read_and_time());
                }
                longest
            });
            // Some of it is in flight.
            thread::sleep(Duration::from_millis(500));
            let begin = Instant::now();
            work();
            println!("done after {:?}", begin.elapsed());
            is_over.store(true, Ordering::SeqCst);
            verified
                .join()
                .expect("no write fails, and all data are right");
            timed.join().expect("no read fails")
        })
    }

    /// Reads through this machine's portal for a while. Returns the longest time that a read took.
    fn read_and_time(&self) -> Duration {
        let portals = self.daemon.json(&["portal", "list"]);
        let portal = portals[0]["url"].as_str().expect("a portal");
        let url = format!("{portal}/{TARGET}");
        let options = ["--bs", "4k", "--iodepth", "1", "--runtime", "2"];
        let report = self
            .daemon
            .json(&[&["bench", &url, "--rw", "randread"], &options[..]].concat());
        assert_eq!(report["errors"], 0, "{report}");
        let longest_us = report["read"]["latency_us"]["max"].as_f64();
        Duration::from_secs_f64(longest_us.expect("a latency") / 1e6)
    }

    /// The node that serves volume v1, and the other one with a copy.
    fn roles(&self) -> (usize, usize) {
        let shown = self.wait_for_copies(2);
        let replication = &shown["replication"];
        let nodes = replication["copies"].as_array().expect("copies");
        let nodes = nodes.iter().map(|copy| place(&copy["node"]));
        let primary = place(&replication["primary"]);
        let others: Vec<_> = nodes.filter(|node| *node != primary).collect();
        (primary, others[0])
    }

    /// Waits until volume v1 has its copies, all in sync, on these machines alone.
    fn wait_for_places(&self, wanted: &[usize]) {
        self.wait_for_volume(|shown| {
            let replication = &shown["replication"];
            let copies = replication["copies"]
                .as_array()
                .cloned()
                .unwrap_or_default();
            let mut places: Vec<_> = copies.iter().map(|copy| place(&copy["node"])).collect();
            places.sort_unstable();
            places == wanted && replication["in_sync"] == wanted.len()
        });
    }
}

/// Which machine a node is.
fn place(name: &Value) -> usize {
    let number = name.as_str().and_then(|name| name.strip_prefix('n'));
    let number: Option<usize> = number.and_then(|number| number.parse().ok());
    number.expect("a node's name") - 1
}

/// The numbers in ascending order.
fn sorted(mut places: [usize; 2]) -> [usize; 2] {
    places.sort_unstable();
    places
}

#[test]
fn a_drained_node_moves_its_primary_and_copies_under_verified_load_and_can_be_stopped() {
    if Command::new("etcd").arg("--version").output().is_err() {
        return block::testing::skip("etcd is not installed (Debian: etcd-server)");
    }
    let folder = Folder::new();
    let mut machines = Machine::start(&folder, 3);
    Machine::make_cluster(&machines);
    let create = ["volume", "create", "v1", "--size", "16M", "--copies", "2"];
    machines[0].daemon.ok(&create);
    for machine in &machines {
        machine.wait_for_copies(2);
        machine.offer();
    }
    let told = machines[0].daemon.mistake(&["node", "drain", "n4"]);
    assert!(told.contains("ramport node ls"), "{told}");

    // Hosts use the portal of the node that is drained, then that of another one.
    for uses_drained in [true, false] {
        let (primary, secondary) = machines[0].roles();
        let other = 3 - primary - secondary;
        let name = format!("n{}", primary + 1);
        let host = if uses_drained { primary } else { secondary };
        let longest = machines[host].verify_during(|| {
            let drained = machines[other].daemon.ok(&["node", "drain", &name]);
            assert!(drained.contains("up, drained"), "{drained}");
        });
        println!("the longest read while {name} was drained: {longest:?}");
        assert!(longest < Duration::from_secs(2), "{longest:?}");
        let shown = machines[secondary].daemon.json(&["node", "show", &name]);
        assert_eq!(
            (&shown["copies"], &shown["primaries"]),
            (&0.into(), &0.into())
        );
        machines[other].wait_for_places(&sorted([secondary, other]));
        let longest = machines[secondary].verify_during(|| machines[primary].kill_daemon());
        machines[primary].kill();
        assert!(
            longest < Duration::from_secs(2),
            "no read waits: {longest:?}"
        );
        machines[other].verify("read");
        machines[primary].daemon.restart();
        machines[other].wait_for(&name, "up");
        machines[primary].verify("read");

        let away = (primary, secondary, other);
        drain_without_room(&machines, away);
        machines[other].wait_for_places(&sorted([secondary, other]));
    }
}

/// The first node is drained and the others hold the copies: that of the second fits nowhere else,
/// so it stays where it is. Afterwards none of them is drained.
fn drain_without_room(machines: &[Machine], (first, second, other): (usize, usize, usize)) {
    let name = |place: usize| format!("n{}", place + 1);
    let (first_name, second_name) = (name(first), name(second));
    let other = &machines[other].daemon;
    let told = other.mistake(&["node", "drain", &second_name]);
    assert!(told.contains("fit on no other node"), "{told}");
    machines[first]
        .daemon
        .ok(&["node", "drain", &second_name, "--force"]);
    let shown = other.json(&["node", "show", &second_name]);
    assert_eq!(
        (&shown["copies"], &shown["primaries"]),
        (&1.into(), &0.into())
    );
    assert_eq!(shown["drain"]["staying"], 1);
    for name in [&first_name, &second_name] {
        other.ok(&["node", "undrain", name]);
    }
    let shown = other.json(&["node", "show", &first_name]);
    assert!(shown["drain"].is_null(), "{shown}");
}

#[test]
fn the_copy_of_a_node_that_stays_away_is_made_elsewhere() {
    if Command::new("etcd").arg("--version").output().is_err() {
        return block::testing::skip("etcd is not installed (Debian: etcd-server)");
    }
    let folder = Folder::new();
    let mut machines = Machine::start(&folder, 3);
    Machine::make_cluster(&machines);
    let told = machines[0]
        .daemon
        .mistake(&["cluster", "set", "--repair-after", "5"]);
    assert!(told.contains("never"), "{told}");
    let set = ["cluster", "set", "--repair-after", "1s"];
    let told = machines[1].daemon.ok(&set);
    assert!(told.contains("away for 1s"), "{told}");
    let create = ["volume", "create", "v1", "--size", "16M", "--copies", "2"];
    machines[0].daemon.ok(&create);
    for machine in &machines {
        machine.wait_for_copies(2);
        machine.offer();
    }
    let (primary, secondary) = machines[0].roles();
    let other = 3 - primary - secondary;
    machines[primary].verify("write");
    // The one that serves is lost, so the other one makes the copy again.
    machines[primary].kill();
    machines[other].wait_for_places(&sorted([secondary, other]));
    machines[other].verify("read");
    machines[primary].daemon.restart();
    machines[primary].wait_for_places(&sorted([secondary, other]));
    machines[primary].verify("read");
    machines[secondary].kill();
    machines[other].wait_for_places(&sorted([primary, other]));
    machines[primary].verify("read");
}

#[test]
fn a_node_whose_port_for_volumes_is_taken_holds_copies_once_it_is_free() {
    if Command::new("etcd").arg("--version").output().is_err() {
        return block::testing::skip("etcd is not installed (Debian: etcd-server)");
    }
    let folder = Folder::new();
    let machines = Machine::start(&folder, 1);
    let (ip, port) = machines[0].address.split_once(':').expect("a port");
    let port: u16 = port.parse().expect("a number");
    let taken = TcpListener::bind((ip, port + 3)).expect("a free port");
    Machine::make_cluster(&machines);
    let create = ["volume", "create", "v1", "--size", "16M", "--copies", "1"];
    let refused = machines[0].daemon.run(&create);
    let told = String::from_utf8_lossy(&refused.stderr);
    assert!(told.contains("third port"), "{told}");
    drop(taken);
    let begin = Instant::now();
    while !machines[0].daemon.run(&create).status.success() {
        assert!(begin.elapsed() < LIMIT, "the port is not used");
        thread::sleep(Duration::from_millis(100));
    }
    machines[0].wait_for_copies(1);
}

#[test]
fn a_daemon_that_takes_part_in_no_cluster_says_how_to() {
    let daemon = Daemon::start("no-cluster");
    let create = ["volume", "create", "v1", "--size", "1G", "--copies", "2"];
    let lines: [&[&str]; 4] = [
        &["cluster", "ls"],
        &["node", "ls"],
        &["cluster", "leave"],
        &create,
    ];
    for args in lines {
        let told = daemon.mistake(args);
        assert!(told.contains("--cluster ADDRESS"), "{told}");
    }
}
