//! Caches, from the command line.

use std::time::{Duration, Instant};
use std::{fs, thread};

use initiator::Operation;

use crate::daemon::Daemon;
use crate::disk;

const TARGET: &str = "nqn.2026-11.com.example:c0";

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

#[test]
fn what_a_cache_cannot_write_keeps_an_apply_from_removing_it() {
    let daemon = Daemon::start("caches-apply");
    daemon.ok(&["volume", "create", "slow", "--size", "8M"]);
    let create = ["volume", "create", "c0", "--cache-of", "slow"];
    let settings = ["--cache-size", "2M", "--cache-mode", "write-back"];
    daemon.ok(&[&create[..], &settings].concat());
    daemon.ok(&["target", "create", TARGET, "--volume", "c0"]);
    let portal = daemon.json(&["portal", "ls"])[0]["url"].clone();
    let portal = portal.as_str().expect("a URL");
    daemon.ok(&[
        "volume",
        "filter",
        "set",
        "slow",
        "--fault",
        "write:write_error",
    ]);
    let url = format!("{portal}/{TARGET}");
    let write = ["bench", &url, "--write", "--rw", "write", "--size", "64K"];
    // It may end with a flush, which fails.
    daemon.run(&write);
    let dirty = daemon.json(&["volume", "show", "c0"])["cache"]["dirty_bytes"].clone();
    assert!(dirty.as_u64() > Some(0), "{dirty}");
    daemon.ok(&["target", "rm", TARGET, "--force"]);

    let file = daemon.folder.join("without.toml");
    let text = format!("portals = [{portal:?}]\n[volumes.slow]\nsize = \"8M\"\n");
    fs::write(&file, text).expect("written");
    let apply = ["apply", file.to_str().expect("a plain path")];
    let refused = daemon.run(&apply);
    assert_eq!(refused.status.code(), Some(1), "{refused:?}");
    let shown = daemon.json(&["volume", "show", "c0"]);
    assert_eq!(shown["cache"]["dirty_bytes"], dirty, "nothing is lost");
    daemon.ok(&["volume", "filter", "clear", "slow"]);
    daemon.ok(&apply);
    daemon.mistake(&["volume", "show", "c0"]);
    assert!(daemon.json(&["volume", "show", "slow"])["used_bytes"].as_u64() > Some(0));
}

#[test]
fn a_cache_shows_what_it_does_and_sleeps_when_it_is_clean() {
    let daemon = Daemon::start("caches-idle");
    daemon.ok(&["volume", "create", "slow", "--size", "8M"]);
    let create = ["volume", "create", "c0", "--cache-of", "slow"];
    let settings = ["--cache-size", "2M", "--cache-mode", "write-back"];
    daemon.ok(&[&create[..], &settings].concat());
    daemon.ok(&["target", "create", disk::TARGET, "--volume", "c0"]);
    let (_device, mut queue) = disk::host(&daemon);
    for lba in 0..16 {
        disk::run(&mut queue, Operation::Write, lba * 8);
        disk::run(&mut queue, Operation::Read, lba * 8);
    }
    let shown = daemon.json(&["volume", "show", "c0"])["cache"].clone();
    assert_eq!(
        (&shown["write_misses"], &shown["read_hits"]),
        (&16.into(), &16.into())
    );
    let deadline = Instant::now() + Duration::from_secs(30);
    while daemon.json(&["volume", "show", "c0"])["cache"]["dirty_bytes"] != 0 {
        assert!(
            Instant::now() < deadline,
            "the background writes what is dirty"
        );
        thread::sleep(Duration::from_millis(50));
    }
    // The round that finds nothing to write is the last one.
    thread::sleep(Duration::from_millis(300));
    let before = switches(&daemon, "volume-backing");
    thread::sleep(Duration::from_secs(1));
    assert_eq!(switches(&daemon, "volume-backing"), before, "it sleeps");
    let top = daemon.ok(&["top", "--once", "--view", "caches"]);
    assert!(top.contains("c0") && !top.contains("slow"), "{top}");
    let top = daemon.json(&["top", "--once", "--interval", "100ms"]);
    assert_eq!(top["volumes"][0]["cache"]["dirty_bytes"], 0);
    let shown = daemon.json(&["volume", "show", "c0"])["cache"].clone();
    assert_eq!(shown["slower_written_bytes"], 16 << 12);
}

/// How often the thread of this name has slept.
fn switches(daemon: &Daemon, thread: &str) -> u64 {
    let threads = fs::read_dir(format!("/proc/{}/task", daemon.child.id())).expect("it runs");
    let counts = threads.filter_map(|task| {
        let task = task.expect("a thread").path();
        let name = fs::read_to_string(task.join("comm")).ok()?;
        let status = fs::read_to_string(task.join("status")).ok()?;
        let line = status
            .lines()
            .find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"))?;
        (name.trim() == thread).then(|| line.trim().parse().expect("a number"))
    });
    let counts: Vec<u64> = counts.collect();
    let [count] = counts[..] else {
        panic!("{} threads are named {thread}", counts.len());
    };
    count
}

#[test]
fn a_cache_changes_its_size_under_io_within_the_budget() {
    let daemon = Daemon::start("caches-size");
    daemon.ok(&["volume", "create", "slow", "--size", "1G"]);
    let create = ["volume", "create", "c0", "--cache-of", "slow"];
    let settings = ["--cache-size", "1M", "--cache-mode", "write-back"];
    daemon.ok(&[&create[..], &settings].concat());
    daemon.ok(&["target", "create", disk::TARGET, "--volume", "c0"]);
    let size = |size: &str| daemon.ok(&["volume", "cache", "c0", "--size", size]);
    let free = || {
        let capacity = daemon.json(&["capacity"]);
        capacity["free_bytes"].as_u64().expect("a number")
    };
    disk::under_io(&daemon, |written| {
        for _ in 0..3 {
            size("64M");
            written.goes_on();
            let large = free();
            size("1M");
            written.goes_on();
            assert!(free() > large + (60 << 20), "memory is given back");
        }
        // The budget is 256 MiB.
        let told = daemon.run(&["volume", "cache", "c0", "--size", "512M"]);
        let told = String::from_utf8_lossy(&told.stderr).into_owned();
        assert!(told.contains("memory budget"), "{told}");
        written.goes_on();
    });
    let shown = daemon.json(&["volume", "show", "c0"]);
    assert_eq!(shown["cache_size"], "1 MiB");

    let file = daemon.folder.join("larger.toml");
    let path = file.to_str().expect("a plain path");
    let exported = daemon.ok(&["export"]);
    assert!(exported.contains("cache_size = \"1 MiB\""), "{exported}");
    let larger = |size: &str| exported.replace("cache_size = \"1 MiB\"", size);
    for (size, reason) in [
        ("cache_size = \"512M\"", "memory budget"),
        ("cache_size = \"2G\"", "larger than the volume of 1 GiB"),
    ] {
        fs::write(&file, larger(size)).expect("written");
        for args in [&["apply", path][..], &["apply", path, "--diff"]] {
            let refused = daemon.run(args);
            let told = String::from_utf8_lossy(&refused.stderr).into_owned();
            assert!(told.contains(reason), "{args:?}: {told}");
            assert_eq!(refused.status.code(), Some(1));
        }
    }
    fs::write(&file, larger("cache_size = \"8M\"")).expect("written");
    daemon.ok(&["apply", path]);
    let shown = daemon.json(&["volume", "show", "c0"]);
    assert_eq!(shown["cache_size"], "8 MiB");
}

#[test]
fn a_cache_and_the_volume_behind_it_grow_together() {
    let mut daemon = Daemon::start("caches-grow");
    let file = daemon.folder.join("slow.img");
    let create = ["volume", "create", "slow", "--size", "8M", "--file"];
    daemon.ok(&[&create[..], &[file.to_str().expect("a plain path")]].concat());
    let create = ["volume", "create", "c0", "--cache-of", "slow"];
    let settings = ["--cache-size", "2M", "--cache-mode", "write-back"];
    daemon.ok(&[&create[..], &settings].concat());
    daemon.ok(&["target", "create", disk::TARGET, "--volume", "c0"]);
    let sizes = |daemon: &Daemon| {
        ["slow", "c0"].map(|name| daemon.json(&["volume", "show", name])["size_bytes"].clone())
    };
    let told = daemon.mistake(&["volume", "grow", "slow", "8M"]);
    assert!(told.contains("grow c0 if it is a cache"), "{told}");
    disk::under_io(&daemon, |written| {
        daemon.ok(&["volume", "grow", "c0", "8M"]);
        written.goes_on();
    });
    assert_eq!(sizes(&daemon), [16 << 20, 16 << 20]);
    let (device, mut queue) = disk::host(&daemon);
    disk::run(&mut queue, Operation::Write, (16 << 20) / 512 - 8);
    disk::run(&mut queue, Operation::Flush, 0);
    drop((queue, device));
    let bytes = fs::read(&file).expect("a file");
    assert_eq!(bytes.len(), 16 << 20);
    let told = daemon.mistake(&["volume", "shrink", "c0", "8M", "--force"]);
    assert!(told.contains("is a cache, which cannot shrink"), "{told}");
    daemon.kill_and_restart();
    assert_eq!(sizes(&daemon), [16 << 20, 16 << 20]);

    // The same by a file, in which both are larger.
    let exported = daemon.ok(&["export"]);
    let path = daemon.folder.join("larger.toml");
    fs::write(&path, exported.replace("16 MiB", "24 MiB")).expect("written");
    daemon.ok(&["apply", path.to_str().expect("a plain path")]);
    assert_eq!(sizes(&daemon), [24 << 20, 24 << 20]);
    // What is made of others has the size of these.
    daemon.ok(&["volume", "create", "a", "--size", "8M"]);
    daemon.ok(&["volume", "create", "l0", "--linear", "a"]);
    daemon.ok(&[
        "volume",
        "create",
        "c1",
        "--cache-of",
        "l0",
        "--cache-size",
        "2M",
    ]);
    let told = daemon.mistake(&["volume", "grow", "c1", "8M"]);
    assert!(told.contains("volume l0 is made of others"), "{told}");
}
