//! Caches, from the command line.

use crate::daemon::Daemon;

#[test]
fn a_cache_is_created_changed_and_removed_and_the_slower_volume_is_free_again() {
    let mut daemon = Daemon::start("caches");
    daemon.ok(&["volume", "create", "slow", "--size", "8M"]);
    let create = [
        "volume",
        "create",
        "c0",
        "--cache-of",
        "slow",
        "--cache-size",
    ];
    for (size, hint) in [
        ("16M", "larger than the volume of 8 MiB behind it"),
        ("4K", "cache size 4 KiB is out of range"),
    ] {
        let told = daemon.mistake(&[&create[..], &[size]].concat());
        assert!(told.contains(hint), "{told}");
    }
    let told = daemon.mistake(&[&create[..], &["2M", "--cache-mode", "fast"]].concat());
    assert!(
        told.contains("choose write-through, write-around or write-back"),
        "{told}"
    );
    let shown = daemon.ok(&[&create[..], &["2M"]].concat());
    for line in [
        "8 MiB",
        "cache of slow, 2 MiB, write-through",
        "0 hits, 0 partial, 0 misses",
    ] {
        assert!(shown.contains(line), "{shown}");
    }
    let told = daemon.mistake(&["volume", "rm", "slow", "--force"]);
    assert!(told.contains("c0"), "{told}");
    let change = [
        "volume",
        "cache",
        "c0",
        "--mode",
        "write-back",
        "--size",
        "4M",
    ];
    daemon.ok(&change);
    let told = daemon.mistake(&["volume", "cache", "c0", "--size", "1G"]);
    assert!(told.contains("larger than the volume"), "{told}");
    let told = daemon.mistake(&["volume", "cache", "slow", "--size", "4M"]);
    assert!(told.contains("not a cache"), "{told}");
    daemon.kill_and_restart();
    let shown = daemon.json(&["volume", "show", "c0"]);
    assert_eq!(shown["cache_mode"], "write-back");
    assert_eq!(shown["cache"]["dirty_bytes"], 0);
    let told = daemon.ok(&["volume", "rm", "c0"]);
    assert!(
        told.contains("its members stay with their contents: slow"),
        "{told}"
    );
    daemon.ok(&["volume", "rm", "slow"]);
}
