//! Remote volumes, from the command line: two daemons.

use std::time::{Duration, Instant};

use serde_json::Value;

use crate::daemon::Daemon;

const TARGET: &str = "nqn.2026-11.com.example:disk";
const PATIENCE: Duration = Duration::from_secs(60);

/// The daemon that has the disk, and the disk's URL.
fn origin(name: &str) -> (Daemon, String) {
    let origin = Daemon::start(name);
    origin.ok(&["volume", "create", "disk", "--size", "8M"]);
    origin.ok(&["target", "create", TARGET, "--volume", "disk"]);
    let portals = origin.json(&["portal", "list"]);
    let portal = portals[0]["url"].as_str().expect("a portal");
    let url = format!("{portal}/{TARGET}");
    (origin, url)
}

/// Waits until volume `r0` is as `is` says.
fn wait_until(daemon: &Daemon, is: impl Fn(&Value) -> bool) -> Value {
    let end = Instant::now() + PATIENCE;
    loop {
        let volume = daemon.json(&["volume", "show", "r0"]);
        if is(&volume) {
            return volume;
        }
        assert!(Instant::now() < end, "{volume}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn a_remote_volume_is_created_shown_kept_and_removed() {
    let (mut origin, url) = origin("remote-origin");
    let mut user = Daemon::start("remote-user");
    let created = user.ok(&["volume", "create", "r0", "--remote", &url]);
    assert!(created.contains("1 of 1 paths up"), "{created}");
    assert!(created.contains("0 losses, 0 errors"), "{created}");
    let volume = user.json(&["volume", "show", "r0"]);
    assert_eq!(volume["kind"], "remote");
    assert_eq!(volume["io_timeout"], "30s");
    assert_eq!(volume["size_bytes"], 8 << 20);
    let disk = volume["disk"].as_str().expect("the disk has an identifier");
    assert!(disk.starts_with("uuid."), "{disk}");

    let resized = user.mistake(&["volume", "resize", "r0", "--size", "64M"]);
    assert!(resized.contains("on the other machine"), "{resized}");
    origin.ok(&["volume", "grow", "disk", "8M"]);
    wait_until(&user, |volume| volume["size_bytes"] == 16 << 20);
    // The definition follows, and then the file without a size is what there is.
    let file = user.folder.join("site.toml");
    let text = format!("[volumes.r0]\nkind = \"remote\"\nurls = [\"{url}\"]\n");
    std::fs::write(&file, text).expect("written");
    let end = Instant::now() + PATIENCE;
    while !user.ok(&["export"]).contains("16 MiB") {
        assert!(Instant::now() < end, "{}", user.ok(&["export"]));
        std::thread::sleep(Duration::from_millis(50));
    }
    let file = file.to_str().expect("text");
    user.ok(&["apply", file, "--force"]);
    let after = user.json(&["volume", "show", "r0"]);
    assert_eq!(
        after["created_unix_s"], volume["created_unix_s"],
        "unchanged"
    );

    origin.child.kill().expect("killed");
    origin.child.wait().expect("ended");
    user.kill_and_restart();
    let offline = wait_until(&user, |volume| volume["state"] == "offline");
    let problem = offline["problem"].as_str().expect("a reason");
    assert!(problem.contains("comes online when it is"), "{problem}");
    origin.kill_and_restart();
    wait_until(&user, |volume| volume["state"] == "online");
    let removed = user.ok(&["volume", "remove", "r0"]);
    assert!(removed.contains("stays with its contents"), "{removed}");
}

#[test]
fn what_does_not_lead_to_a_disk_is_refused() {
    let (_origin, url) = origin("remote-refused-origin");
    let user = Daemon::start("remote-refused");
    let create = |more: &[&str]| {
        let words = ["volume", "create", "r0"];
        user.mistake(&[&words[..], more].concat())
    };
    let secret = create(&["--remote", "iscsi://alice%s3cret@h/iqn.x:y/0"]);
    assert!(secret.contains("chap=/ABSOLUTE/PATH"), "{secret}");
    assert!(!secret.contains("s3cret"), "{secret}");
    let other = create(&["--remote", &format!("{url}-other")]);
    assert!(other.contains("no subsystem with this name"), "{other}");
    let size = create(&["--remote", &url, "--size", "1G"]);
    assert!(size.contains("has 8 MiB, not 1 GiB"), "{size}");
    let short = create(&["--remote", &url, "--io-timeout", "10ms"]);
    assert!(short.contains("from 1 s to 3600 s"), "{short}");
    assert_eq!(user.json(&["volume", "list"]), Value::Array(Vec::new()));
}
