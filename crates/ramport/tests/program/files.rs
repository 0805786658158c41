//! Volumes in files, from the command line.

use std::fs;

use initiator::{Operation, Slot};

use crate::daemon::Daemon;
use crate::disk::{TARGET, host, run};

#[test]
fn what_was_flushed_is_there_after_a_kill() {
    let mut daemon = Daemon::start("file-kill");
    let file = daemon.folder.join("disk");
    let path = file.to_str().expect("text").to_owned();
    daemon.ok(&["volume", "create", "v0", "--file", &path, "--size", "8M"]);
    daemon.ok(&["target", "create", TARGET, "--volume", "v0"]);
    {
        let (_device, mut queue) = host(&daemon);
        for lba in 0..16 {
            queue.buffer_mut(Slot(0)).fill(lba as u8 + 1);
            run(&mut queue, Operation::Write, lba * 8);
        }
        run(&mut queue, Operation::Flush, 0);
        daemon.kill_and_restart();
    }
    let volume = &daemon.json(&["volume", "list"])[0];
    assert_eq!(volume["contents"], "present");
    assert_eq!(volume["state"], "online");
    let (_device, mut queue) = host(&daemon);
    for lba in 0..16 {
        run(&mut queue, Operation::Read, lba * 8);
        let buffer = queue.buffer(Slot(0));
        assert!(buffer.iter().all(|byte| *byte == lba as u8 + 1), "{lba}");
    }
}

#[test]
fn a_file_is_created_used_again_grown_and_left() {
    let daemon = Daemon::start("file-verbs");
    let file = daemon.folder.join("disk");
    let path = file.to_str().expect("text").to_owned();
    let missing = daemon.mistake(&["volume", "create", "v0", "--file", &path]);
    assert!(
        missing.contains("does not exist; give a size to create it"),
        "{missing}"
    );
    let created = daemon.ok(&["volume", "create", "v0", "--file", &path, "--size", "2M"]);
    assert!(created.contains(&format!("file {path}")), "{created}");
    let twice = daemon.mistake(&["volume", "create", "v1", "--file", &path]);
    assert!(twice.contains("something else uses it"), "{twice}");
    daemon.ok(&["volume", "grow", "v0", "3M"]);
    assert_eq!(fs::metadata(&file).expect("it exists").len(), 5 << 20);
    let shrunk = daemon.mistake(&["volume", "resize", "v0", "--size", "1M", "--force"]);
    assert!(shrunk.contains("cannot shrink"), "{shrunk}");
    let removed = daemon.ok(&["volume", "remove", "v0"]);
    assert!(removed.contains("stays with its contents"), "{removed}");
    let again = daemon.json(&["volume", "create", "v0", "--file", &path]);
    assert_eq!(again["size_bytes"], 5 << 20);
    assert_eq!(again["path"], path.as_str());
}

#[test]
fn a_volume_whose_file_is_gone_is_offline_and_the_daemon_starts() {
    let mut daemon = Daemon::start("file-gone");
    let file = daemon.folder.join("disk");
    let path = file.to_str().expect("text").to_owned();
    daemon.ok(&["volume", "create", "v0", "--file", &path, "--size", "2M"]);
    fs::remove_file(&file).expect("it exists");
    daemon.kill_and_restart();
    let volume = &daemon.json(&["volume", "list"])[0];
    assert_eq!(volume["state"], "offline");
    let problem = volume["problem"].as_str().expect("it has one");
    assert!(problem.contains("does not exist"), "{problem}");
    assert!(!file.exists(), "nothing is created");
    fs::write(&file, vec![7; 2 << 20]).expect("there is space");
    daemon.kill_and_restart();
    assert_eq!(daemon.json(&["volume", "list"])[0]["state"], "online");
}

#[test]
fn a_definition_with_a_file_is_applied_without_a_size_and_again_without_a_change() {
    let daemon = Daemon::start("file-apply");
    let file = daemon.folder.join("disk");
    fs::write(&file, vec![7; 2 << 20]).expect("there is space");
    let definitions = daemon.folder.join("definitions.toml");
    let text = format!(
        "[volumes.v0]\nkind = \"file\"\npath = \"{}\"\n",
        file.display()
    );
    fs::write(&definitions, text).expect("written");
    let definitions = definitions.to_str().expect("text").to_owned();
    daemon.ok(&["apply", &definitions]);
    assert_eq!(
        daemon.json(&["volume", "show", "v0"])["size_bytes"],
        2 << 20
    );
    daemon.ok(&["volume", "grow", "v0", "1M"]);
    daemon.ok(&["apply", &definitions]);
    assert_eq!(
        daemon.json(&["volume", "show", "v0"])["size_bytes"],
        3 << 20
    );
    fs::write(&definitions, "").expect("written");
    let changes = daemon.ok(&["apply", &definitions]);
    assert!(changes.contains("its file stays"), "{changes}");
    assert!(file.exists());
}
