//! BRP, from the command line.

use crate::daemon::Daemon;

const TARGET: &str = "nqn.2026-11.com.example:disk";
const PORTAL: &str = "brp://127.0.61.40:4424";

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
    let report = origin.ok(&[
        "bench",
        &url,
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
    ]);
    let verified = "every block that was checked holds what it should";
    assert!(report.contains(verified), "{report}");

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
