//! Disks that keep their identifiers.

use std::fs;

use serde_json::{Value, json};

use crate::daemon::Daemon;

const NVME: &str = "nqn.2025-01.com.example:disk";
const ISCSI: &str = "iqn.2025-01.com.example:disk";
const UUID: &str = "6ba7b810-9dad-41d1-80b4-00c04fd430c8";
const NGUID: &str = "0123456789abcdef0123456789abcdef";
const NAA: &str = "60014050000000000000000000000001";

/// The identifiers that hosts see in the targets of a volume.
fn seen(daemon: &Daemon, volume: &str) -> Vec<Value> {
    let shown = daemon.json(&["volume", "show", volume]);
    let places = shown["attachments"].as_array().expect("a list").clone();
    places
        .into_iter()
        .map(|place| place["identifiers"].clone())
        .collect()
}

#[test]
fn a_disk_keeps_its_identity_on_another_machine_and_shares_it_with_no_other() {
    let first = Daemon::start("identity-first");
    let create = ["volume", "create", "rd0", "--size", "4M", "--uuid", UUID];
    let more = [
        "--nguid",
        NGUID,
        "--eui64",
        "02-00-45-67-a4-25-67-8d",
        "--naa",
        NAA,
        "--serial",
        "S 1",
    ];
    first.ok(&[&create[..], &more].concat());
    first.ok(&["target", "create", NVME, "--volume", "rd0"]);
    first.ok(&["target", "create", ISCSI, "--volume", "rd0"]);
    let set = json!({"uuid": UUID, "nguid": NGUID, "eui64": "02004567a425678d", "naa": NAA, "serial": "S 1"});
    assert_eq!(first.json(&["volume", "show", "rd0"])["identity"], set);
    let places = seen(&first, "rd0");
    let iscsi = json!({"eui64": "02004567a425678d", "naa": NAA, "serial": "S 1"});
    let nvme = json!({"uuid": UUID, "nguid": NGUID, "eui64": "02004567a425678d"});
    assert_eq!(places, [iscsi, nvme]);
    let shown = first.ok(&["volume", "show", "rd0"]);
    assert!(
        shown.contains(&format!("nguid {NGUID}")) && shown.contains("serial S 1"),
        "{shown}"
    );
    // On another machine, and after a restart there.
    let mut second = Daemon::start("identity-second");
    let portal = second.json(&["portal", "list"])[0]["url"].clone();
    let exported = first.ok(&["export"]);
    let exported: Vec<_> = exported
        .lines()
        .filter(|line| !line.starts_with("portals"))
        .collect();
    let file = second.folder.join("exported.toml");
    fs::write(
        &file,
        format!("portals = [{portal}]\n{}", exported.join("\n")),
    )
    .expect("written");
    let file = file.to_str().expect("a plain path");
    second.ok(&["apply", file]);
    assert_eq!(seen(&second, "rd0"), places);
    second.kill_and_restart();
    assert_eq!(seen(&second, "rd0"), places);
    assert_fixed_and_unique(&second, file);
}

/// Asserts that the identifiers of `rd0` cannot change, and that no other disk may share one.
/// `file` defines it.
fn assert_fixed_and_unique(second: &Daemon, file: &str) {
    let changed = fs::read_to_string(file)
        .expect("read")
        .replace("S 1", "S 2");
    fs::write(file, changed).expect("written");
    let output = second.run(&["apply", file]);
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(
        told.contains("other identifiers, which cannot change"),
        "{told}"
    );
    for (option, value) in [
        ("--uuid", UUID),
        ("--nguid", NGUID),
        ("--naa", NAA),
        ("--serial", "S 1"),
    ] {
        let told = second.mistake(&["volume", "create", "rd1", "--size", "4M", option, value]);
        assert!(told.contains("of volume rd0; choose another"), "{told}");
    }
}

#[test]
fn an_identifier_that_another_disk_derives_is_taken() {
    let daemon = Daemon::start("identity-derived");
    for name in ["a", "b"] {
        daemon.ok(&["volume", "create", name, "--size", "4M"]);
    }
    daemon.ok(&["target", "create", NVME, "--volume", "a"]);
    let uuid = seen(&daemon, "a")[0]["uuid"]
        .as_str()
        .expect("a UUID")
        .to_owned();
    let create = ["volume", "create", "copy", "--size", "4M", "--uuid", &uuid];
    let told = daemon.mistake(&create);
    assert!(told.contains("uuid"), "{told}");
    // The disk may move within this machine once nobody sees it there.
    daemon.ok(&["target", "detach", NVME, "a"]);
    daemon.ok(&create);
    let told = daemon.mistake(&["target", "attach", NVME, "a"]);
    assert!(told.contains("of volume copy"), "{told}");
    daemon.ok(&["target", "attach", NVME, "copy"]);
    assert_eq!(seen(&daemon, "copy")[0]["uuid"], uuid.as_str());
    daemon.ok(&["target", "attach", NVME, "b"]);
}

#[test]
fn identifiers_that_cannot_be_are_rejected_with_a_hint() {
    let daemon = Daemon::start("identity-invalid");
    for (option, value, hint) in [
        ("--uuid", "1", "is not a UUID"),
        ("--nguid", "00000000000000000000000000000000", "is zero"),
        ("--eui64", "0200", "is not 16 hexadecimal digits"),
        ("--naa", "4000000000000001", "begin with 2, 3 or 5"),
        ("--serial", " ", "printable ASCII"),
    ] {
        let told = daemon.mistake(&["volume", "create", "a", "--size", "4M", option, value]);
        assert!(told.contains(hint), "{told}");
    }
}
