//! Snapshots, clones and rolling back.

use crate::daemon::Daemon;

#[test]
fn snapshots_are_taken_cloned_rolled_back_and_removed() {
    let daemon = Daemon::start("snapshots");
    for volume in ["rd0", "rd1"] {
        daemon.ok(&["volume", "create", volume, "--size", "4M"]);
    }
    let listed = daemon.ok(&["volume", "snapshot", "rd0", "rd1", "--suffix", "-monday"]);
    for line in ["snapshot of rd0, 0 s old", "snapshot of rd1, 0 s old"] {
        assert!(listed.contains(line), "{listed}");
    }
    let told = daemon.mistake(&["volume", "snapshot", "rd0", "rd1", "--name", "x"]);
    assert!(told.contains("use --suffix"), "{told}");
    daemon.ok(&["volume", "snapshot", "rd0", "--name", "s1"]);
    daemon.ok(&["volume", "clone", "s1", "--name", "trial"]);
    let shown = daemon.json(&["volume", "show", "rd0"]);
    assert_eq!(shown["children"], serde_json::json!(["rd0-monday", "s1"]));
    let shown = daemon.ok(&["volume", "show", "trial"]);
    assert!(shown.contains("clone of s1"), "{shown}");
    let told = daemon.mistake(&["volume", "rm", "s1", "--force"]);
    assert!(
        told.contains("volume s1 cannot be removed before what is made of it: trial"),
        "{told}"
    );
    daemon.ok(&["volume", "rollback", "rd0", "--to", "s1"]);
    let told = daemon.mistake(&["volume", "rollback", "rd1", "--to", "s1"]);
    assert!(told.contains("taken of another volume"), "{told}");
    let exported = daemon.ok(&["export"]);
    assert!(exported.contains("of = \"rd0\""), "{exported}");
    for volume in ["trial", "s1", "rd0-monday", "rd0"] {
        daemon.ok(&["volume", "rm", volume]);
    }
}

#[test]
fn a_restart_leaves_snapshots_and_clones_empty_and_offline() {
    let mut daemon = Daemon::start_with("snapshots-restart", &["--lost-contents", "offline"]);
    daemon.ok(&["volume", "create", "rd0", "--size", "4M"]);
    // What it is of comes after it in the order of names.
    daemon.ok(&["volume", "snapshot", "rd0", "--name", "a-snapshot"]);
    daemon.ok(&["volume", "clone", "a-snapshot", "--name", "a-clone"]);
    daemon.ok(&["volume", "grow", "rd0", "4M"]);
    daemon.kill_and_restart();
    for volume in ["rd0", "a-snapshot", "a-clone"] {
        let shown = daemon.json(&["volume", "show", volume]);
        assert_eq!(
            (&shown["state"], &shown["contents"]),
            (&"offline".into(), &"lost".into())
        );
    }
    let told = daemon.mistake(&["volume", "snapshot", "rd0", "--name", "s2"]);
    assert!(
        told.contains("`ramport volume acknowledge rd0` first"),
        "{told}"
    );
    daemon.ok(&["volume", "acknowledge", "--all"]);
    daemon.ok(&["volume", "snapshot", "rd0", "--name", "s2"]);
}
