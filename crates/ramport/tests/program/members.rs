//! Volumes that are made of others, from the command line.

use initiator::{Operation, Slot};

use crate::daemon::Daemon;
use crate::disk;

#[test]
fn volumes_are_concatenated_striped_and_enlarged() {
    let daemon = Daemon::start("members");
    for (name, size) in [("a", "1M"), ("b", "2M"), ("c", "3M"), ("d", "4M")] {
        let options = ["--size", size, "--block-size", "4096"];
        daemon.ok(&[&["volume", "create", name][..], &options].concat());
    }
    let shown = daemon.ok(&["volume", "create", "l0", "--linear", "a,b"]);
    for line in ["3 MiB", "4 KiB", "linear of a, b"] {
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
        &["volume", "resize", "c", "--size", "8M"],
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

#[test]
fn a_linear_volume_of_memory_gets_members_of_every_kind_under_io() {
    let far = Daemon::start("members-far");
    far.ok(&["volume", "create", "rd", "--size", "2M"]);
    far.ok(&["target", "create", disk::TARGET, "--volume", "rd"]);
    let portal = far.json(&["portal", "ls"])[0]["url"].clone();
    let remote = format!("{}/{}", portal.as_str().expect("a URL"), disk::TARGET);

    let daemon = Daemon::start("members-kinds");
    let file = |name: &str| {
        let path = daemon.folder.join(name);
        path.to_str().expect("a plain path").to_owned()
    };
    let (path, slow) = (file("file"), file("slow"));
    let parts = ["p", "q", "r", "s", "l0"];
    for name in parts.iter().chain(&["ram"]) {
        daemon.ok(&["volume", "create", name, "--size", "2M"]);
    }
    daemon.ok(&["volume", "create", "slow", "--file", &slow, "--size", "2M"]);
    let cache = ["--cache-of", "slow", "--cache-size", "1M"];
    let members = [
        ("ram", &[][..]),
        ("file", &["--file", &path, "--size", "2M"]),
        ("remote", &["--remote", &remote]),
        ("stripe", &["--stripe", "p,q"]),
        ("mirror", &["--mirror", "r,s"]),
        ("cache", &cache),
    ];
    daemon.ok(&["volume", "create", "linear", "--linear", "l0"]);
    daemon.ok(&["target", "create", disk::TARGET, "--volume", "linear"]);
    disk::under_io(&daemon, |written| {
        let (_device, mut queue) = disk::host(&daemon);
        for (name, options) in members {
            let begin = daemon.json(&["volume", "show", "linear"])["size_bytes"].clone();
            let begin = begin.as_u64().expect("a size") / disk::BLOCK_BYTES as u64;
            if !options.is_empty() {
                daemon.ok(&[&["volume", "create", name][..], options].concat());
            }
            daemon.ok(&["volume", "add-member", "linear", name]);
            written.goes_on();
            // Across the end of what was there before.
            let byte = begin as u8 ^ name.len() as u8;
            queue.buffer_mut(Slot(0)).fill(byte);
            disk::run(&mut queue, Operation::Write, begin - 4);
            queue.buffer_mut(Slot(0)).fill(0);
            disk::run(&mut queue, Operation::Read, begin - 4);
            assert!(queue.buffer(Slot(0)).iter().all(|it| *it == byte), "{name}");
        }
    });
    let shown = daemon.json(&["volume", "show", "linear"]);
    assert_eq!(shown["members"].as_array().map(Vec::len), Some(7));
    assert_eq!(shown["size_bytes"], (2 * 6 + 4) << 20);
}
