//! What is refused without `--force`.

use crate::iscsi::{GOOD, Initiator, TARGET, served};

#[test]
fn used_or_written_volumes_are_destroyed_only_with_force() {
    let (daemon, portal) = served("guards");
    let mut host = Initiator::login(&portal, "iqn.2025-01.io.ramport:a", 1);
    host.ready();
    assert_eq!(host.write_block().status, GOOD);
    let url = format!("iscsi://{portal}");
    let used_bytes = || daemon.json(&["volume", "show", "rd0"])["used_bytes"].as_u64();
    let guarded = |args: &[&str], reason: &str| {
        let told = daemon.mistake(args);
        assert!(told.contains(reason), "{args:?}: {told}");
        assert!(told.ends_with("; to do it anyway, use --force\n"), "{told}");
    };
    guarded(&["volume", "erase", "rd0"], "which 1 sessions use");
    guarded(&["portal", "remove", &url], "has 1 connections");
    assert!(used_bytes() > Some(0), "nothing was erased");
    daemon.ok(&["volume", "erase", "rd0", "--force"]);
    assert_eq!(used_bytes(), Some(0));
    assert_eq!(host.write_block().status, GOOD);
    daemon.ok(&["portal", "remove", &url, "--force"]);
    daemon.ok(&["target", "remove", TARGET, "--force"]);
    guarded(&["volume", "remove", "rd0"], "holds data");
    daemon.ok(&["volume", "remove", "rd0", "--force"]);
    // What holds nothing needs no force.
    daemon.ok(&["volume", "create", "empty", "--size", "4M"]);
    daemon.ok(&["volume", "create", "thick", "--size", "4M", "--thick"]);
    daemon.ok(&["volume", "remove", "empty"]);
    daemon.ok(&["volume", "remove", "thick"]);
}
