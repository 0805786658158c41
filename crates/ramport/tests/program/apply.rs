//! `ramport apply` and `export`.

use initiator::{Operation, Slot};

use crate::daemon::Daemon;
use crate::disk;

const WANTED: &str = "[volumes.a]\nsize = \"1M\"\n[targets.t]\nnamespaces = { 1 = \"a\" }\n";

/// What a run prints on standard output and standard error, whose exit status is asserted.
fn run(daemon: &Daemon, args: &[&str], status: i32) -> (String, String) {
    let output = daemon.run(args);
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("text");
    let (out, err) = (text(output.stdout), text(output.stderr));
    assert_eq!(output.status.code(), Some(status), "{args:?}: {out}{err}");
    (out, err)
}

#[test]
fn a_file_is_shown_then_applied_and_exported_as_the_same() {
    let daemon = Daemon::start("apply");
    let file = daemon.folder.join("wanted.toml");
    std::fs::write(&file, WANTED).expect("written");
    let file = file.to_str().expect("a plain path");
    let (shown, _) = run(&daemon, &["apply", file, "--diff"], 3);
    assert!(shown.contains("+ volume a"), "{shown}");
    assert_eq!(daemon.json(&["volume", "list"]), serde_json::json!([]));
    run(&daemon, &["apply", file], 0);
    for args in [&["apply", file][..], &["apply", file, "--diff"]] {
        assert_eq!(run(&daemon, args, 0).0, "nothing to change\n");
    }
    let exported = daemon.folder.join("exported.toml");
    std::fs::write(&exported, daemon.ok(&["export"])).expect("written");
    let exported = exported.to_str().expect("a plain path");
    run(&daemon, &["apply", exported, "--diff"], 0);
}

#[test]
fn a_refused_file_changes_nothing_and_says_so() {
    let daemon = Daemon::start("refused");
    let file = daemon.folder.join("wanted.toml");
    std::fs::write(&file, WANTED).expect("written");
    let path = file.to_str().expect("a plain path");
    run(&daemon, &["apply", path], 0);
    for (text, reason) in [
        (
            "",
            "destroy the contents of volume a; to do it anyway, use --force\n",
        ),
        ("[volumes.a]", "size 0 B is out of range"),
        (
            "[volumes.a]\nsize = \"1M\"\nblock_size = 4096",
            "another block size",
        ),
    ] {
        std::fs::write(&file, text).expect("written");
        for args in [&["apply", path][..], &["apply", path, "--diff"]] {
            let (_, told) = run(&daemon, args, 1);
            assert!(
                told.contains("was refused and nothing was changed: "),
                "{told}"
            );
            assert!(told.contains(reason), "{told}");
        }
    }
    assert_eq!(daemon.json(&["volume", "list"])[0]["name"], "a");
    std::fs::write(&file, "").expect("written");
    let (shown, _) = run(&daemon, &["apply", path, "--diff", "--force"], 3);
    assert!(
        shown.contains("- volume a (its contents are lost)"),
        "{shown}"
    );
    run(&daemon, &["apply", path, "--force"], 0);
    assert_eq!(daemon.json(&["volume", "list"]), serde_json::json!([]));
}

/// A file that defines the daemon's portal and these volumes, of which the target offers one.
fn write_wanted(daemon: &Daemon, volumes: &str, offered: &str) -> String {
    let portal = daemon.json(&["portal", "ls"])[0]["url"].clone();
    let target = disk::TARGET;
    let text = format!(
        "portals = [{portal}]\n{volumes}\n[targets.\"{target}\"]\nnamespaces = {{ 1 = \"{offered}\" }}\n"
    );
    let file = daemon.folder.join("wanted.toml");
    std::fs::write(&file, text).expect("written");
    file.to_str().expect("a plain path").to_owned()
}

/// Whether the first block that a host reads begins with this byte.
fn begins_with(daemon: &Daemon, byte: u8) -> bool {
    let (_device, mut queue) = disk::host(daemon);
    queue.buffer_mut(Slot(0)).fill(0xEE);
    disk::run(&mut queue, Operation::Read, 0);
    queue.buffer(Slot(0)).iter().all(|it| *it == byte)
}

const RAM: &str = "[volumes.slow]\nsize = \"8M\"\n[volumes.b]\nsize = \"8M\"\n";
const CACHE: &str = "[volumes.c0]\nkind = \"cache\"\nof = \"slow\"\ncache_size = \"2M\"\n";
const LINEAR: &str = "[volumes.l0]\nkind = \"linear\"\nmembers = [\"slow\", \"b\"]\n";

#[test]
fn a_file_uses_the_members_of_a_volume_otherwise_that_it_removes() {
    let daemon = Daemon::start("apply-holders");
    let path = write_wanted(&daemon, RAM, "slow");
    run(&daemon, &["apply", &path], 0);
    // The cache gets the place of the volume that it holds from now on.
    let back = format!("{CACHE}cache_mode = \"write-back\"\n");
    let cached = format!("{RAM}{back}");
    let path = write_wanted(&daemon, &cached, "c0");
    run(&daemon, &["apply", &path, "--diff"], 3);
    run(&daemon, &["apply", &path], 0);
    let (device, mut queue) = disk::host(&daemon);
    queue.buffer_mut(Slot(0)).fill(7);
    disk::run(&mut queue, Operation::Write, 0);
    drop((device, queue));

    let linear = format!("{RAM}{LINEAR}");
    let path = write_wanted(&daemon, &linear, "l0");
    run(&daemon, &["apply", &path, "--force"], 0);
    daemon.mistake(&["volume", "show", "c0"]);
    assert!(begins_with(&daemon, 7), "the cache was flushed");

    // A part fails when the linear volume is gone, which is there again then, with lock and
    // filters.
    daemon.ok(&["volume", "lock", "l0"]);
    let filter = ["filter", "set", "l0", "--delay-read", "2ms"];
    daemon.ok(&[&["volume"][..], &filter].concat());
    let (new, missing) = (daemon.folder.join("new"), daemon.folder.join("no/file"));
    let wanted = format!(
        "{cached}[volumes.a]\nkind = \"file\"\npath = {new:?}\nsize = \"1M\"\n[volumes.z]\nkind = \"file\"\npath = {missing:?}\nsize = \"1M\"\n"
    );
    let before = daemon.ok(&["export"]);
    let shown = daemon.json(&["volume", "show", "l0"]);
    let path = write_wanted(&daemon, &wanted, "c0");
    let (_, told) = run(&daemon, &["apply", &path, "--force"], 1);
    assert!(told.contains("nothing was changed"), "{told}");
    assert!(told.contains("cannot create it"), "{told}");
    assert_eq!(daemon.ok(&["export"]), before);
    assert!(!new.exists(), "a file was left behind");
    let again = daemon.json(&["volume", "show", "l0"]);
    for field in ["members", "state", "read_only", "filters", "attachments"] {
        assert_eq!(again[field], shown[field], "{field}");
    }
    assert!(begins_with(&daemon, 7));

    // With the folder, everything works; the mirror overwrites what is in b, which is nothing.
    std::fs::create_dir(daemon.folder.join("no")).expect("created");
    let path = write_wanted(&daemon, &wanted, "c0");
    run(&daemon, &["apply", &path, "--force"], 0);
    assert!(new.exists() && missing.exists());
    assert!(begins_with(&daemon, 7));
}

/// A mirror, with as many volumes beside it.
fn mirror_of(members: [&str; 2], more: &str) -> String {
    let [a, b] = members;
    let mirror = format!("[volumes.m0]\nkind = \"mirror\"\nmembers = [\"{a}\", \"{b}\"]\n");
    let volumes = ["a", "b", "c", "d"]
        .iter()
        .filter(|name| !more.contains(&format!("-{name}")));
    let volumes = volumes.map(|name| format!("[volumes.{name}]\nsize = \"8M\"\n"));
    let more = more.lines().filter(|line| !line.starts_with('-'));
    let more: Vec<_> = more.collect();
    format!(
        "{}{mirror}{}\n",
        volumes.collect::<String>(),
        more.join("\n")
    )
}

#[test]
fn a_file_uses_a_member_of_a_mirror_otherwise_that_it_replaces() {
    let daemon = Daemon::start("apply-replaced");
    let apply = |volumes: &str, status| {
        let path = write_wanted(&daemon, volumes, "m0");
        run(&daemon, &["apply", &path, "--force"], status).1
    };
    let members = |name: &str| daemon.json(&["volume", "show", name])["members"].clone();
    let in_sync = |name: &str| daemon.wait_for_metric("ramport_volume_member_in_sync", name, 1);
    apply(&mirror_of(["a", "b"], ""), 0);
    in_sync("b");
    disk::under_io(&daemon, |written| {
        // One file puts the old member into another volume.
        let l0 = "[volumes.l0]\nkind = \"linear\"\nmembers = [\"b\"]";
        apply(&mirror_of(["a", "c"], l0), 0);
        in_sync("c");
        written.goes_on();
        assert_eq!(members("l0"), serde_json::json!(["b"]));

        // If another part fails, the mirror has its members again.
        let before = daemon.ok(&["export"]);
        let missing = daemon.folder.join("no/file");
        let z = format!(
            "{l0}\n[volumes.l1]\nkind = \"linear\"\nmembers = [\"c\"]\n[volumes.z]\nkind = \"file\"\npath = {missing:?}\nsize = \"1M\""
        );
        let told = apply(&mirror_of(["a", "d"], &z), 1);
        assert!(told.contains("nothing was changed"), "{told}");
        assert_eq!(daemon.ok(&["export"]), before);
        daemon.mistake(&["volume", "show", "l1"]);
        in_sync("c");
        written.goes_on();

        // The old member grows, or is removed.
        let grown = format!("{l0}\n-c\n[volumes.c]\nsize = \"16M\"");
        apply(&mirror_of(["a", "d"], &grown), 0);
        in_sync("d");
        assert_eq!(
            daemon.json(&["volume", "show", "c"])["size_bytes"],
            16 << 20
        );
        apply(&mirror_of(["a", "c"], &format!("{grown}\n-d")), 0);
        in_sync("c");
        daemon.mistake(&["volume", "show", "d"]);
        written.goes_on();
    });
}

#[test]
fn a_mirror_that_could_not_be_restored_is_not_taken_apart() {
    let daemon = Daemon::start("apply-mirrors");
    let mirror = format!("{RAM}[volumes.m0]\nkind = \"mirror\"\nmembers = [\"slow\", \"b\"]\n");
    let path = write_wanted(&daemon, &mirror, "m0");
    run(&daemon, &["apply", &path], 0);
    let in_sync = |daemon: &Daemon| daemon.metric("ramport_volume_member_in_sync", "b");
    daemon.wait_for_metric("ramport_volume_member_in_sync", "b", 1);
    daemon.ok(&["volume", "mirror", "m0", "--fail", "b"]);
    let before = daemon.ok(&["export"]);
    let path = write_wanted(&daemon, &format!("{RAM}{LINEAR}"), "l0");
    for args in [&["apply", &path][..], &["apply", &path, "--diff"]] {
        let (_, told) = run(&daemon, args, 1);
        assert!(
            told.contains("member b of mirror m0 is out of sync"),
            "{told}"
        );
    }
    assert_eq!(daemon.ok(&["export"]), before);
    assert_eq!(in_sync(&daemon), 0);
    daemon.ok(&["volume", "mirror", "m0", "--return", "b"]);
    daemon.wait_for_metric("ramport_volume_member_in_sync", "b", 1);
    run(&daemon, &["apply", &path], 0);
    daemon.mistake(&["volume", "show", "m0"]);
}

#[test]
fn a_file_that_held_data_or_existed_is_not_removed_with_a_refused_change() {
    let daemon = Daemon::start("apply-files");
    let (old, empty) = (daemon.folder.join("old"), daemon.folder.join("empty"));
    for path in [&old, &empty] {
        let file = std::fs::File::create(path).expect("created");
        file.set_len(1 << 20).expect("sparse");
    }
    let new = daemon.folder.join("thick");
    let missing = daemon.folder.join("no/file");
    let volume = |name: &str, path: &std::path::Path, more: &str| {
        format!("[volumes.{name}]\nkind = \"file\"\npath = {path:?}\nsize = \"1M\"\n{more}\n")
    };
    let wanted = [
        volume("a", &old, ""),
        volume("b", &empty, ""),
        volume("c", &new, "provisioning = \"thick\""),
        volume("z", &missing, ""),
    ];
    let path = write_wanted(&daemon, &wanted.concat(), "a");
    for args in [&["apply", &path][..], &["apply", &path, "--diff"]] {
        let output = daemon.run(args);
        assert!(!new.exists(), "{output:?}");
        assert!(old.exists() && empty.exists(), "they were not created here");
    }
    assert_eq!(daemon.json(&["volume", "ls"]), serde_json::json!([]));
}
