//! `ramport volume copy`: through the daemon, and without.

use std::fs;

use crate::daemon::Daemon;

const TARGET: &str = "nqn.2026-11.com.example:disk";
const LEN: usize = 8 << 20;

/// Bytes of which most are zeros.
fn contents() -> Vec<u8> {
    let mut bytes = vec![0; LEN];
    bytes[3 << 20..(3 << 20) + 5000].fill(7);
    bytes[LEN - 1] = 9;
    bytes
}

#[test]
fn a_volume_a_file_and_a_remote_disk_are_copied_to_each_other() {
    let daemon = Daemon::start("copy");
    let path = |name: &str| daemon.folder.join(name).to_str().expect("text").to_owned();
    let (from, between, to) = (path("from"), path("between"), path("to"));
    fs::write(&from, contents()).expect("written");
    daemon.ok(&["volume", "create", "rd0", "--size", "8M"]);
    daemon.ok(&["volume", "create", "rd1", "--size", "16M"]);
    daemon.ok(&["target", "create", TARGET, "--volume", "rd1"]);
    let portals = daemon.json(&["portal", "list"]);
    let url = format!("{}/{TARGET}", portals[0]["url"].as_str().expect("a portal"));

    // File to volume, volume to volume, both by the daemon.
    let copied = daemon.json(&["volume", "copy", &from, "rd0", "--verify"]);
    assert_eq!(copied["total_bytes"], LEN);
    assert_eq!(copied["data_bytes"], 2 * (64 << 10), "two runs hold data");
    assert_eq!(copied["verified"], true);
    let text = daemon.ok(&["volume", "copy", "rd0", "rd1"]);
    assert!(text.contains("are zeros that were not written"), "{text}");
    // A disk of another machine to a file, and file to file, by the command itself.
    daemon.ok(&["volume", "copy", &url, &between]);
    assert_eq!(
        fs::metadata(&between).expect("it exists").len(),
        2 * LEN as u64
    );
    let copied = fs::read(&between).expect("it exists");
    assert!(copied[..LEN] == contents());
    daemon.ok(&["volume", "copy", &from, &to, "--verify"]);
    assert!(fs::read(&to).expect("it exists") == contents());
}

#[test]
fn a_copy_needs_force_where_data_are_lost() {
    let daemon = Daemon::start("copy-refused");
    let path = |name: &str| daemon.folder.join(name).to_str().expect("text").to_owned();
    let from = path("from");
    fs::write(&from, contents()).expect("written");
    daemon.ok(&["volume", "create", "rd0", "--size", "8M"]);
    daemon.ok(&["volume", "copy", &from, "rd0"]);
    let refused = daemon.mistake(&["volume", "copy", &from, "rd0"]);
    assert!(
        refused.contains("holds data") && refused.contains("--force"),
        "{refused}"
    );
    daemon.ok(&["volume", "copy", &from, "rd0", "--force"]);
    let file = path("full");
    fs::write(&file, vec![1; LEN]).expect("written");
    let refused = daemon.mistake(&["volume", "copy", &from, &file]);
    assert!(
        refused.contains("holds data") && refused.contains("--force"),
        "{refused}"
    );
    assert!(
        fs::read(&file).expect("it exists") == vec![1; LEN],
        "unchanged"
    );

    daemon.ok(&["volume", "create", "small", "--size", "4M"]);
    let small = daemon.mistake(&["volume", "copy", "rd0", "small"]);
    assert!(small.contains("grow the destination"), "{small}");
    let same = daemon.mistake(&["volume", "copy", "rd0", "rd0"]);
    assert!(same.contains("name another destination"), "{same}");
    let missing = daemon.mistake(&["volume", "copy", &path("missing"), "rd0", "--force"]);
    assert!(missing.contains("cannot open"), "{missing}");
    let unknown = daemon.mistake(&["volume", "copy", "rd9", "rd0"]);
    assert!(unknown.contains("rd9"), "{unknown}");
    daemon.ok(&[
        "volume",
        "create",
        "v0",
        "--file",
        &path("used"),
        "--size",
        "8M",
    ]);
    let used = daemon.mistake(&["volume", "copy", &from, &path("used")]);
    assert!(used.contains("something else uses it"), "{used}");
}
