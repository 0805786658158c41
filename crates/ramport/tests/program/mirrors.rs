//! Mirrors, from the command line.

use std::time::{Duration, Instant};

use crate::daemon::Daemon;

#[test]
fn a_mirror_is_created_its_members_fail_and_return_and_stay_when_it_is_removed() {
    let daemon = Daemon::start("mirrors");
    for name in ["a", "b", "c"] {
        daemon.ok(&["volume", "create", name, "--size", "8M"]);
    }
    let create = ["volume", "create", "m0", "--mirror"];
    for (members, hint) in [
        ("a", "1 members are out of range; name 2 to 8 volumes"),
        ("a,b,a", "a is named twice"),
        ("a,m0", "made of itself"),
        ("a,nothing", "nothing"),
    ] {
        let told = daemon.mistake(&[&create[..], &[members]].concat());
        assert!(told.contains(hint), "{told}");
    }
    let shown = daemon.ok(&[&create[..], &["a,b", "--resync-rate", "100M"]].concat());
    for line in ["8 MiB", "mirror of a, b", "a: in sync"] {
        assert!(shown.contains(line), "{shown}");
    }
    let mirror = ["volume", "mirror", "m0"];
    let shown = daemon.ok(&[&mirror[..], &["--fail", "a"]].concat());
    assert!(shown.contains("a: out of sync"), "{shown}");
    assert!(shown.contains("it was taken out of use"), "{shown}");
    let told = daemon.mistake(&[&mirror[..], &["--fail", "b"]].concat());
    assert!(told.contains("b has the only good copy"), "{told}");
    let told = daemon.mistake(&[&mirror[..], &["--return", "c"]].concat());
    assert!(told.contains("its members are a, b"), "{told}");
    let told = daemon.mistake(&["volume", "mirror", "c", "--return", "a"]);
    assert!(told.contains("not a mirror"), "{told}");
    daemon.ok(&[&mirror[..], &["--return", "a", "--resync-rate", "0"]].concat());
    let shown = daemon.json(&["volume", "show", "m0"]);
    assert_eq!(shown["resync_rate"], serde_json::Value::Null);
    assert_eq!(shown["mirror"]["members"][1]["state"], "in_sync");
    let told = daemon.mistake(&[&mirror[..], &["--replace", "a"]].concat());
    assert!(told.contains("as in b=c"), "{told}");
    let told = daemon.mistake(&[&mirror[..], &["--replace", "a=b"]].concat());
    assert!(told.contains("member of m0"), "{told}");
    let shown = daemon.ok(&[&mirror[..], &["--replace", "b=c"]].concat());
    assert!(shown.contains("mirror of a, c"), "{shown}");
    wait_until_in_sync(&daemon);
    daemon.ok(&["volume", "rm", "b"]);
    let told = daemon.ok(&["volume", "scrub", "m0"]);
    assert!(told.contains("the members hold the same"), "{told}");
    let found = daemon.json(&["volume", "scrub", "m0", "--repair"]);
    assert_eq!(found["compared_bytes"], 8 << 20);
    let told = daemon.mistake(&["volume", "scrub", "a"]);
    assert!(told.contains("not a mirror"), "{told}");
    let told = daemon.ok(&["volume", "rm", "m0"]);
    assert!(
        told.contains("its members stay with their contents: a, c"),
        "{told}"
    );
}

#[test]
fn a_mirror_of_memory_and_a_file_goes_on_after_a_kill_with_what_the_file_holds() {
    let mut daemon = Daemon::start("mirrors-restart");
    let folder = daemon.folder.clone();
    let path = |name: &str| folder.join(name).to_str().expect("text").to_owned();
    let file = path("b.img");
    daemon.ok(&["volume", "create", "a", "--size", "8M"]);
    daemon.ok(&["volume", "create", "b", "--size", "8M", "--file", &file]);
    daemon.ok(&["volume", "create", "m0", "--mirror", "a,b"]);
    wait_until_in_sync(&daemon);
    let source = path("source.img");
    std::fs::write(&source, vec![0xA5; 8 << 20]).expect("room");
    daemon.ok(&["volume", "mirror", "m0", "--fail", "a"]);
    daemon.ok(&["volume", "copy", &source, "m0", "--force"]);
    daemon.kill_and_restart();
    let shown = daemon.json(&["volume", "show", "m0"]);
    assert_eq!(shown["state"], "online", "{shown}");
    wait_until_in_sync(&daemon);
    daemon.ok(&["volume", "mirror", "m0", "--fail", "b"]);
    let back = path("back.img");
    daemon.ok(&["volume", "copy", "m0", &back]);
    assert!(std::fs::read(&back).expect("it was written") == vec![0xA5; 8 << 20]);
    let records = path("state.mirrors/m0");
    assert!(std::fs::exists(&records).expect("readable"));
    daemon.ok(&["volume", "rm", "m0", "--force"]);
    assert!(!std::fs::exists(&records).expect("readable"));
}

#[test]
fn a_member_that_holds_data_is_overwritten_only_with_force() {
    let daemon = Daemon::start("mirrors-force");
    let file = daemon.folder.join("data");
    std::fs::write(&file, vec![7; 1 << 20]).expect("room");
    let file = file.display().to_string();
    for name in ["a", "b", "c"] {
        daemon.ok(&["volume", "create", name, "--size", "1M"]);
    }
    for name in ["a", "b", "c"] {
        daemon.ok(&["volume", "copy", &file, name]);
    }
    let create = ["volume", "create", "m0", "--mirror", "a,b"];
    let wanted = daemon.folder.join("wanted.toml");
    let volumes = ["a", "b", "c"].map(|name| format!("[volumes.{name}]\nsize = \"1M\"\n"));
    let mirror = "[volumes.m0]\nkind = \"mirror\"\nmembers = [\"a\", \"b\"]\n";
    std::fs::write(&wanted, volumes.concat() + mirror).expect("room");
    let apply = ["apply", wanted.to_str().expect("text")];
    for args in [&create[..], &apply] {
        let output = daemon.run(args);
        let told = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success(), "{args:?}");
        assert!(
            told.contains("volume b holds data") && told.contains("--force"),
            "{told}"
        );
    }
    daemon.ok(&[&create[..], &["--force"]].concat());
    wait_until_in_sync(&daemon);
    let replace = ["volume", "mirror", "m0", "--replace", "b=c"];
    let told = daemon.mistake(&replace);
    assert!(
        told.contains("volume c holds data") && told.contains("--force"),
        "{told}"
    );
    daemon.ok(&[&replace[..], &["--force"]].concat());
}

#[test]
fn a_file_that_an_apply_makes_a_member_is_overwritten_only_with_force() {
    let daemon = Daemon::start("mirrors-apply");
    let file = daemon.folder.join("data");
    std::fs::write(&file, vec![7; 1 << 20]).expect("room");
    let wanted = daemon.folder.join("wanted.toml");
    let portal = daemon.json(&["portal", "ls"])[0]["url"].clone();
    let text = format!(
        "portals = [{portal}]\n[volumes.a]\nsize = \"1M\"\n\
        [volumes.b]\nkind = \"file\"\npath = {file:?}\nsize = \"1M\"\n\
        [volumes.m0]\nkind = \"mirror\"\nmembers = [\"a\", \"b\"]\n"
    );
    std::fs::write(&wanted, text).expect("room");
    let before = daemon.ok(&["export"]);
    let apply = ["apply", wanted.to_str().expect("text")];
    let refused = daemon.run(&apply);
    let told = String::from_utf8_lossy(&refused.stderr);
    assert!(!refused.status.success());
    assert!(
        told.contains("volume b holds data") && told.contains("--force"),
        "{told}"
    );
    assert_eq!(daemon.ok(&["export"]), before);
    assert!(std::fs::read(&file).expect("it is there") == vec![7; 1 << 20]);
    daemon.ok(&[&apply[..], &["--force"]].concat());
    wait_until_in_sync(&daemon);
    daemon.ok(&["volume", "rm", "m0", "--force"]);
    assert!(std::fs::read(&file).expect("it is there") == vec![0; 1 << 20]);
}

fn wait_until_in_sync(daemon: &Daemon) {
    let until = Instant::now() + Duration::from_secs(60);
    loop {
        let shown = daemon.json(&["volume", "show", "m0"]);
        let members = shown["mirror"]["members"].as_array().expect("a mirror");
        if members.iter().all(|member| member["state"] == "in_sync") {
            return;
        }
        assert!(Instant::now() < until, "{shown}");
        std::thread::sleep(Duration::from_millis(50));
    }
}
