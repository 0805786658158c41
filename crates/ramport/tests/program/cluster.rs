//! Clusters from the command line: real daemons, real etcd.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use block::testing::Folder;
use serde_json::Value;

use crate::daemon::Daemon;

/// How long something may take: far more than it needs, as machines that test are busy.
const LIMIT: Duration = Duration::from_secs(90);

/// A daemon with its etcd.
struct Machine {
    daemon: Daemon,
    address: String,
}

impl Machine {
    /// Starts daemons at 127.0.0.1 and so on; they hold the same token, which is in `folder`.
    fn start(folder: &Folder, count: usize) -> Vec<Self> {
        // Below the ports that systems give out, and another one for each process.
        let port = 30_000 + std::process::id() % 900 * 3;
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
            let daemon = Daemon::start_with(&format!("cluster-{number}"), &more);
            Self { daemon, address }
        });
        machines.collect()
    }

    /// Kills the daemon and its etcd, as the end of a machine does.
    fn kill(&mut self) {
        let _ = self.daemon.child.kill();
        let _ = self.daemon.child.wait();
        let pid = fs::read_to_string(self.daemon.folder.join("cluster/etcd.pid"));
        if let Ok(pid) = pid {
            let _ = Command::new("kill").args(["-KILL", pid.trim()]).status();
        }
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

#[test]
fn a_daemon_that_takes_part_in_no_cluster_says_how_to() {
    let daemon = Daemon::start("no-cluster");
    for args in [["cluster", "ls"], ["node", "ls"], ["cluster", "leave"]] {
        let told = daemon.mistake(&args);
        assert!(told.contains("--cluster ADDRESS"), "{told}");
    }
}
