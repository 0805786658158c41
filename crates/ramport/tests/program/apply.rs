//! `ramport apply` and `export`.

use crate::daemon::Daemon;

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
