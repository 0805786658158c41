//! Volumes that are made of others, from the command line.

use crate::daemon::Daemon;

#[test]
fn volumes_are_concatenated_striped_and_enlarged() {
    let daemon = Daemon::start("members");
    for (name, size) in [("a", "1M"), ("b", "2M"), ("c", "3M"), ("d", "4M")] {
        let options = ["--size", size, "--block-size", "4096"];
        daemon.ok(&[&["volume", "create", name][..], &options].concat());
    }
    let shown = daemon.ok(&["volume", "create", "l0", "--linear", "a,b"]);
    for line in ["3.00 MiB", "4.00 KiB", "linear of a, b"] {
        assert!(shown.contains(line), "{shown}");
    }
    let told = daemon.mistake(&["volume", "create", "s0", "--stripe", "b,c"]);
    assert!(
        told.contains("its member b is a member of l0, too"),
        "{told}"
    );
    let stripe = ["--stripe", "c,l0", "--stripe-unit", "1M"];
    let shown = daemon.ok(&[&["volume", "create", "s0"][..], &stripe].concat());
    assert!(shown.contains("stripe of c, l0, unit 1 MiB"), "{shown}");
    for refused in [
        &["volume", "rm", "a", "--force"][..],
        &["volume", "resize", "c", "8M"],
        &["volume", "add-member", "l0", "d"],
        &[
            "target",
            "create",
            "nqn.2025-01.com.example:a",
            "--volume",
            "a",
        ],
    ] {
        let told = daemon.mistake(refused);
        assert!(told.contains("l0") || told.contains("s0"), "{told}");
    }
    daemon.ok(&["volume", "rm", "s0"]);
    daemon.ok(&["volume", "add-member", "l0", "d"]);
    let shown = daemon.json(&["volume", "show", "l0"]);
    assert_eq!(shown["members"], serde_json::json!(["a", "b", "d"]));
    assert_eq!(shown["size_bytes"], 7 << 20);
    let told = daemon.ok(&["volume", "rm", "l0"]);
    assert!(
        told.contains("its members stay with their contents: a, b, d"),
        "{told}"
    );
    let told = daemon.mistake(&[
        "volume",
        "create",
        "s0",
        "--stripe",
        "a,b",
        "--stripe-unit",
        "3K",
    ]);
    assert!(told.contains("stripe unit 3 KiB is invalid"), "{told}");
}

#[test]
fn a_volume_of_others_is_back_after_a_restart_and_offline_until_they_are_acknowledged() {
    let mut daemon = Daemon::start_with("members-restart", &["--lost-contents", "offline"]);
    let file = daemon.folder.join("disk");
    let path = file.to_str().expect("text").to_owned();
    daemon.ok(&["volume", "create", "z", "--size", "2M"]);
    daemon.ok(&["volume", "create", "y", "--file", &path, "--size", "2M"]);
    daemon.ok(&["volume", "create", "a", "--stripe", "z,y"]);
    daemon.kill_and_restart();
    let shown = daemon.json(&["volume", "show", "a"]);
    assert_eq!(
        (&shown["state"], &shown["size_bytes"]),
        (&"offline".into(), &(4 << 20).into())
    );
    let shown = daemon.ok(&["volume", "show", "a"]);
    assert!(shown.contains("member z is offline"), "{shown}");
    daemon.ok(&["volume", "acknowledge", "--all"]);
    assert_eq!(daemon.json(&["volume", "show", "a"])["state"], "online");
}
