//! BRP, from the command line.

use crate::daemon::Daemon;
use crate::rdma::address;

const TARGET: &str = "nqn.2026-11.com.example:disk";
const PORTAL: &str = "brp://127.0.61.40:4424";
const VERIFIED: &str = "every block that was checked holds what it should";

#[test]
fn a_brp_portal_serves_bench_copy_and_remote_volumes() {
    let origin = Daemon::start("brp-origin");
    origin.ok(&["volume", "create", "disk", "--size", "8M"]);
    origin.ok(&["target", "create", TARGET, "--volume", "disk"]);
    origin.ok(&["portal", "create", "brp://127.0.61.40"]);
    let portals = origin.ok(&["portal", "list"]);
    assert!(portals.contains(PORTAL), "the port is BRP's own: {portals}");
    for option in ["auth=required", "tls=required"] {
        let url = format!("brp://127.0.61.41?{option}");
        let refused = origin.mistake(&["portal", "create", &url]);
        assert!(refused.contains("leave out"), "{refused}");
    }
    let refused = origin.mistake(&["portal", "set", PORTAL, "--require-auth", "on"]);
    assert!(refused.contains("BRP has no authentication"), "{refused}");

    let url = format!("{PORTAL}/{TARGET}?unit=1");
    let report = verified_writes(&origin, &url);
    assert!(report.contains(VERIFIED), "{report}");

    let user = Daemon::start("brp-user");
    user.ok(&["volume", "create", "r0", "--remote", &url]);
    let volume = user.json(&["volume", "show", "r0"]);
    assert_eq!(volume["size_bytes"], 8 << 20);
    let sessions = origin.json(&["session", "list"]);
    let session = &sessions[0];
    assert_eq!(session["transport"], "brp");
    assert_eq!(session["brp"]["unit"], 1);
    let id = session["id"].to_string();
    let shown = origin.ok(&["session", "show", &id]);
    assert!(
        shown.contains("tags") && shown.contains("kept for"),
        "{shown}"
    );

    user.ok(&["volume", "create", "copy", "--size", "8M"]);
    let copied = user.ok(&["volume", "copy", &url, "copy", "--verify", "--force"]);
    assert!(!copied.is_empty());
    origin.ok(&["session", "remove", &id]);
}

/// The report of random writes that are read again.
fn verified_writes(daemon: &Daemon, url: &str) -> String {
    daemon.ok(&[
        "bench",
        url,
        "--rw",
        "randwrite",
        "--write",
        "--verify",
        "--bs",
        "4k",
        "--size",
        "4M",
        "--iodepth",
        "8",
    ])
}

#[test]
fn the_same_over_rdma() {
    let at = address(46);
    let origin = Daemon::start("brp-rdma-origin");
    origin.ok(&["volume", "create", "disk", "--size", "8M"]);
    origin.ok(&["target", "create", TARGET, "--volume", "disk"]);
    origin.ok(&["portal", "create", &format!("brp+rdma://{at}?rdma=soft")]);
    let portals = origin.json(&["portal", "list"]);
    let portal = format!("brp+rdma://{at}:4424?rdma=soft");
    let portals = portals.as_array().expect("a list");
    let open = portals.iter().find(|open| open["url"] == portal.as_str());
    let open = open.expect("the port is BRP's own");
    assert_eq!(open["provider"], "soft");

    let url = format!("brp+rdma://{at}/{TARGET}?unit=1&rdma=soft");
    let report = verified_writes(&origin, &url);
    assert!(report.contains(VERIFIED), "{report}");

    let user = Daemon::start("brp-rdma-user");
    user.ok(&["volume", "create", "r0", "--remote", &url]);
    assert_eq!(user.json(&["volume", "show", "r0"])["size_bytes"], 8 << 20);
    let session = &origin.json(&["session", "list"])[0];
    assert_eq!(session["transport"], "brp+rdma");
    user.ok(&["volume", "create", "copy", "--size", "8M"]);
    user.ok(&["volume", "copy", &url, "copy", "--verify", "--force"]);
}
