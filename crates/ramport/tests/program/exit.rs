//! Exit statuses: docs/operations.md has the table.

use crate::daemon::{Daemon, ramport};
use crate::iscsi::portal_of;

/// The exit status of a command that needs no daemon, and what it says.
fn outcome(args: &[&str]) -> (Option<i32>, String) {
    let output = ramport().args(args).output().expect("the program runs");
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    (output.status.code(), told)
}

fn nvme_portal_of(daemon: &Daemon) -> String {
    let portals = daemon.json(&["portal", "ls"]);
    let mut urls = portals.as_array().expect("a list").iter();
    let nvme = urls.find_map(|portal| {
        let url = portal["url"].as_str()?;
        url.starts_with("nvme+tcp").then(|| url.to_owned())
    });
    nvme.expect("an NVMe/TCP portal")
}

#[test]
fn mistakes_have_one_exit_status_whatever_the_protocol() {
    let daemon = Daemon::start_with("exit", &["--iscsi", "127.0.0.1:0"]);
    daemon.ok(&["volume", "create", "a", "--size", "16M"]);
    for name in ["nqn.2025-01.io.ramport:a", "iqn.2025-01.io.ramport:a"] {
        daemon.ok(&["target", "create", name, "--volume", "a"]);
    }
    for name in [
        "nqn.2025-01.io.ramport:closed",
        "iqn.2025-01.io.ramport:closed",
    ] {
        let host = name.replace("closed", "other");
        daemon.ok(&["target", "create", name, "--volume", "a", "--host", &host]);
    }
    let nvme = nvme_portal_of(&daemon);
    let iscsi = format!("iscsi://{}", portal_of(&daemon));
    let sources = [
        (
            format!("{nvme}/nqn.2025-01.io.ramport:gone"),
            "no subsystem",
        ),
        (
            format!("{iscsi}/iqn.2025-01.io.ramport:gone/0"),
            "no target of this name",
        ),
        (
            format!("{nvme}/nqn.2025-01.io.ramport:closed"),
            "does not admit this host",
        ),
        (
            format!("{iscsi}/iqn.2025-01.io.ramport:closed/0"),
            "may not use the target",
        ),
        (
            format!("{nvme}/nqn.2025-01.io.ramport:a?ns=7"),
            "no namespace",
        ),
        (format!("{iscsi}/iqn.2025-01.io.ramport:a/7"), "no LUN"),
        (
            "nvme+tcp://127.0.0.1:1/nqn.2025-01.io.ramport:a".to_owned(),
            "cannot connect",
        ),
        (
            "iscsi://127.0.0.1:1/iqn.2025-01.io.ramport:a/0".to_owned(),
            "cannot connect",
        ),
    ];
    for (source, reason) in sources {
        let (status, told) = outcome(&["bench", &source, "--runtime", "100ms"]);
        assert_eq!(status, Some(2), "{source}: {told}");
        assert!(told.contains(reason), "{source}: {told}");
    }
    for url in ["nvme+tcp://127.0.0.1:1", "iscsi://127.0.0.1:1"] {
        let (status, told) = outcome(&["discover", url]);
        assert_eq!(status, Some(2), "{url}: {told}");
        assert!(told.contains("cannot connect"), "{url}: {told}");
    }
}
