//! Mirrors, from the command line.

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
    let told = daemon.ok(&["volume", "rm", "m0"]);
    assert!(
        told.contains("its members stay with their contents: a, b"),
        "{told}"
    );
}
