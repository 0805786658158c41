//! Saving and restoring volumes.

use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use initiator::{Operation, Slot};

use crate::daemon::Daemon;
use crate::disk::{TARGET, host, run};

/// Commands of 4 KiB that fill the volume of 8 MiB.
const COMMANDS: u64 = 2048;

/// Fills the volume of the daemon's target with blocks that tell their number and `round`.
fn fill(daemon: &Daemon, round: u8) {
    let (_device, mut queue) = host(daemon);
    for number in 0..COMMANDS {
        let buffer = queue.buffer_mut(Slot(0));
        for (at, byte) in buffer.iter_mut().enumerate() {
            *byte = (at as u64).wrapping_mul(number | 1) as u8 ^ round;
        }
        buffer[..2].copy_from_slice(&[round, number as u8]);
        run(&mut queue, Operation::Write, number * 8);
    }
}

/// The rounds of the blocks.
fn rounds(daemon: &Daemon) -> Vec<u8> {
    let (_device, mut queue) = host(daemon);
    let mut rounds = Vec::new();
    for number in 0..COMMANDS {
        run(&mut queue, Operation::Read, number * 8);
        let buffer = queue.buffer(Slot(0));
        assert_eq!(buffer[1], number as u8);
        rounds.push(buffer[0]);
    }
    rounds
}

/// Waits until the volume is online.
fn await_online(daemon: &Daemon) {
    let begin = Instant::now();
    while daemon.json(&["volume", "show", "rd0"])["state"] != "online" {
        let failure = daemon.json(&["volume", "show", "rd0"])["save"]["failure"].clone();
        assert!(failure.is_null(), "{failure}");
        assert!(
            begin.elapsed() < Duration::from_secs(30),
            "it stays offline"
        );
        thread::sleep(Duration::from_millis(10));
    }
}

/// A volume of 8 MiB that is offered, holds ones, and is saved to the folder of the daemon.
fn create_saved(daemon: &Daemon) {
    let folder = daemon.folder.display().to_string();
    let create = [
        "volume",
        "create",
        "rd0",
        "--size",
        "8M",
        "--save-to",
        &folder,
    ];
    daemon.ok(&create);
    daemon.ok(&["target", "create", TARGET, "--volume", "rd0"]);
    fill(daemon, 1);
}

#[test]
fn a_volume_is_saved_restored_and_survives_a_restart() {
    let mut daemon = Daemon::start_with("saves", &["--lost-contents", "offline"]);
    create_saved(&daemon);
    let other = daemon.folder.join("other.save").display().to_string();
    let told = daemon.ok(&["volume", "save", "rd0", &other]);
    assert!(told.contains("is saved to"), "{told}");
    let saved = daemon.json(&["volume", "save", "rd0"]);
    assert_eq!(saved["held_bytes"], 8 << 20);
    assert_eq!(saved["sequence"], 2);
    fill(&daemon, 2);
    let refused = daemon.mistake(&["volume", "restore", "rd0", &other]);
    assert!(refused.contains("holds data"), "{refused}");
    daemon.ok(&["volume", "restore", "rd0", &other, "--force"]);
    assert_eq!(rounds(&daemon), [1; COMMANDS as usize]);
    fill(&daemon, 3);
    daemon.stop_and_restart();
    await_online(&daemon);
    assert_eq!(rounds(&daemon), [3; COMMANDS as usize], "all was saved");
    // Without a definition that says so, a crash loses the contents.
    daemon.kill_and_restart();
    let shown = daemon.ok(&["volume", "show", "rd0"]);
    assert!(shown.contains("offline, contents lost"), "{shown}");
    daemon.ok(&["volume", "restore", "rd0"]);
    assert_eq!(rounds(&daemon), [3; COMMANDS as usize]);
    daemon.ok(&[
        "volume",
        "set",
        "rd0",
        "--after-crash",
        "restore",
        "--save-every",
        "1h",
    ]);
    let shown = daemon.ok(&["volume", "show", "rd0"]);
    assert!(shown.contains("every 1h, at shutdown"), "{shown}");
    daemon.ok(&["volume", "save", "rd0"]);
    daemon.kill_and_restart();
    await_online(&daemon);
    assert_eq!(rounds(&daemon), [3; COMMANDS as usize]);
    let exported = daemon.ok(&["export"]);
    assert!(exported.contains("after_crash = \"restore\""), "{exported}");
    daemon.ok(&["volume", "set", "rd0", "--no-save"]);
    let refused = daemon.mistake(&["volume", "save", "rd0"]);
    assert!(refused.contains("--save-to DIR"), "{refused}");
    let refused = daemon.mistake(&["volume", "set", "rd0", "--save-every", "5m"]);
    assert!(refused.contains("give one with --save-to"), "{refused}");
}

#[test]
fn a_damaged_save_is_refused_and_its_damage_listed() {
    let daemon = Daemon::start("saves-damaged");
    daemon.ok(&["volume", "create", "rd0", "--size", "8M"]);
    daemon.ok(&["target", "create", TARGET, "--volume", "rd0"]);
    fill(&daemon, 1);
    let file = daemon.folder.join("rd0.save");
    let path = file.display().to_string();
    daemon.ok(&["volume", "save", "rd0", &path]);
    let mut bytes = fs::read(&file).expect("there");
    bytes[300] ^= 0xFF;
    bytes[301] ^= 0xFF;
    fs::write(&file, &bytes).expect("written");
    let restore = ["volume", "restore", "rd0", &path, "--force"];
    let refused = daemon.mistake(&restore);
    assert!(refused.contains("bytes 0 to 262143"), "{refused}");
    assert_eq!(
        rounds(&daemon),
        [1; COMMANDS as usize],
        "nothing has changed"
    );
    let told = daemon.ok(&[&restore[..], &["--zero-damaged"]].concat());
    assert!(told.contains("bytes 0 to 262143 were damaged"), "{told}");
    fs::write(&file, &bytes[..bytes.len() / 2]).expect("written");
    let refused = daemon.mistake(&restore);
    assert!(refused.contains("is cut short"), "{refused}");
}

/// The daemon is killed at many moments of saves that replace each other.
#[test]
fn a_kill_during_saves_leaves_a_whole_save() {
    let mut daemon = Daemon::start_with("saves-kill", &["--lost-contents", "offline"]);
    create_saved(&daemon);
    daemon.ok(&["volume", "save", "rd0"]);
    for round in 2..8 {
        fill(&daemon, round);
        thread::scope(|scope| {
            let saver = scope.spawn(|| daemon.run(&["volume", "save", "rd0"]));
            thread::sleep(Duration::from_millis(u64::from(round) * 7));
            let pid = daemon.child.id().to_string();
            let killed = std::process::Command::new("kill")
                .args(["-KILL", &pid])
                .status();
            assert!(killed.expect("there is kill").success());
            saver.join().expect("it ends").status.success()
        });
        daemon.kill_and_restart();
        daemon.ok(&["volume", "restore", "rd0"]);
        let found = rounds(&daemon);
        let is_one = found.iter().all(|&other| other == found[0]);
        assert!(is_one && (1..=round).contains(&found[0]), "round {round}");
    }
    // What the kills left is removed by the next save.
    daemon.ok(&["volume", "save", "rd0"]);
    let names = fs::read_dir(&daemon.folder).expect("a folder");
    let is_partial = |name: &str| name.ends_with(".partial");
    let mut names = names.map(|entry| entry.expect("an entry").file_name());
    assert!(!names.any(|name| is_partial(&name.to_string_lossy())));
}

#[test]
fn a_damaged_volume_says_that_it_is_not_saved_and_the_file_stays() {
    let mut daemon = Daemon::start("saves-restored-damaged");
    create_saved(&daemon);
    daemon.stop_and_restart();
    await_online(&daemon);
    let file = daemon.folder.join("rd0.save");
    let mut bytes = fs::read(&file).expect("there");
    bytes[300] ^= 0xFF;
    daemon.ok(&["volume", "set", "rd0", "--after-crash", "restore"]);
    daemon.kill();
    fs::write(&file, &bytes).expect("written");
    daemon.restart();
    let begin = Instant::now();
    while daemon.json(&["volume", "show", "rd0"])["contents"] != "damaged" {
        assert!(
            begin.elapsed() < Duration::from_secs(30),
            "it is not noticed"
        );
        thread::sleep(Duration::from_millis(10));
    }
    let shown = daemon.ok(&["volume", "show", "rd0"]);
    assert!(
        shown.contains("Reads of bytes 0 to 262143 fail")
            && shown.contains("the volume is not saved, also not when the daemon stops"),
        "{shown}"
    );
    daemon.stop_and_restart();
    assert!(fs::read(&file).expect("there") == bytes, "it was replaced");
}
