//! SRP, from the command line.

use crate::daemon::Daemon;
use crate::rdma::address;

const TARGET: &str = "iqn.2026-11.com.example:disk";

#[test]
fn an_srp_portal_serves_bench_copy_and_remote_volumes() {
    let at = address(47);
    let origin = Daemon::start("srp-origin");
    origin.ok(&["volume", "create", "disk", "--size", "8M"]);
    origin.ok(&["target", "create", TARGET, "--volume", "disk"]);
    origin.ok(&["portal", "create", &format!("srp://{at}?rdma=soft")]);

    let url = format!("srp://{at}/{TARGET}/0?rdma=soft");
    let report = origin.ok(&[
        "bench",
        &url,
        "--rw",
        "randwrite",
        "--write",
        "--verify",
        "--bs",
        "16k",
        "--size",
        "4M",
        "--iodepth",
        "8",
    ]);
    let verified = "every block that was checked holds what it should";
    assert!(report.contains(verified), "{report}");

    let user = Daemon::start("srp-user");
    user.ok(&["volume", "create", "r0", "--remote", &url]);
    assert_eq!(user.json(&["volume", "show", "r0"])["size_bytes"], 8 << 20);
    let session = &origin.json(&["session", "list"])[0];
    assert_eq!(session["transport"], "srp");
    user.ok(&["volume", "create", "copy", "--size", "8M"]);
    user.ok(&["volume", "copy", &url, "copy", "--verify", "--force"]);
    user.ok(&["volume", "copy", "copy", "r0", "--verify", "--force"]);

    let other = format!("srp://{at}/iqn.2026-11.com.example:other/0?rdma=soft");
    let refused = origin.mistake(&["bench", &other, "--runtime", "1"]);
    assert!(refused.contains("has that name"), "{refused}");
}
