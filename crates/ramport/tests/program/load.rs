//! A load on a daemon's volume.

use std::process::{Child, Stdio};

use crate::daemon::{Daemon, ramport};

/// The target whose volume is loaded.
pub(crate) const TARGET: &str = "nqn.2025-01.io.ramport:rd0";

/// A load on a daemon, until it is dropped.
pub(crate) struct Load(Child);

impl Drop for Load {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// I/Os of 4 KiB in the pattern `rw` on a volume `rd0`, which is created.
pub(crate) fn load(daemon: &Daemon, rw: &str) -> Load {
    daemon.ok(&["volume", "create", "rd0", "--size", "8M"]);
    daemon.ok(&["target", "create", TARGET, "--volume", "rd0"]);
    let portals = daemon.json(&["portal", "list"]);
    let url = format!("{}/{TARGET}", portals[0]["url"].as_str().expect("a URL"));
    let options = ["--rw", rw, "--write", "--bs", "4k", "--runtime", "600"];
    let bench = ramport()
        .args(["bench", &url])
        .args(options)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
    Load(bench.expect("the program runs"))
}
