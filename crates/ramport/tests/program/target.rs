//! What `target set` changes, and what it leaves.

use crate::daemon::Daemon;

#[test]
fn luns_change_without_the_list_of_hosts() {
    const TARGET: &str = "iqn.2025-01.io.ramport:luns";
    const HOST: &str = "iqn.2025-01.io.ramport:host";
    const OTHER: &str = "iqn.2025-01.io.ramport:other";
    let daemon = Daemon::start("luns");
    daemon.ok(&["volume", "create", "a", "--size", "8M"]);
    daemon.ok(&[
        "target",
        "create",
        TARGET,
        "--volume",
        "a=5",
        "--host",
        HOST,
        "--read-only-host",
        OTHER,
    ]);
    daemon.ok(&["target", "set", TARGET, "--luns", &format!("{HOST}=0:5")]);
    daemon.ok(&["target", "set", TARGET, "--luns", &format!("{OTHER}=1:5")]);
    let target = daemon.json(&["target", "show", TARGET]);
    assert_eq!(target["hosts"][HOST], "read_write", "{target}");
    assert_eq!(target["hosts"][OTHER], "read_only", "{target}");
    assert_eq!(target["luns"][HOST]["0"], "5", "{target}");
    assert_eq!(target["luns"][OTHER]["1"], "5", "{target}");
    let told = daemon.mistake(&["target", "set", TARGET, "--luns", "stranger=0:5"]);
    assert!(told.contains("list the host"), "{told}");
}
