//! Definitions that survive a kill of the daemon.

use std::fmt::Write as _;
use std::fs;
use std::time::Duration;

use control::{Client, Contents, Endpoint, VolumeView};

use crate::daemon::Daemon;

/// How soon a daemon that was killed has every one of 1,000 volumes again.
const RESTORE_GOAL: Duration = Duration::from_secs(1);
/// How often that is tried.
const RESTARTS_MAX: usize = 5;

#[test]
fn a_thousand_volumes_are_back_within_a_second_of_a_start_after_a_kill() {
    let mut daemon = Daemon::start("thousand");
    // Portals that are defined stay only if the file has them.
    let portal = daemon.json(&["portal", "list"])[0]["url"].clone();
    let mut wanted = format!("portals = [{portal}]\n");
    for number in 0..1000 {
        writeln!(wanted, "[volumes.v{number}]\nsize = \"1M\"").expect("a text");
    }
    let file = daemon.folder.join("wanted.toml");
    fs::write(&file, wanted).expect("written");
    daemon.ok(&["apply", file.to_str().expect("a plain path")]);
    // A busy machine may delay any one start, but not each of several.
    let mut fastest = Duration::MAX;
    for _ in 0..RESTARTS_MAX {
        fastest = fastest.min(restored(&mut daemon, 1000));
        if fastest < RESTORE_GOAL {
            break;
        }
    }
    assert!(fastest < RESTORE_GOAL, "{fastest:?} at best");
    daemon.ok(&["volume", "acknowledge", "v7"]);
    assert_eq!(
        daemon.json(&["volume", "show", "v7"])["contents"],
        "present"
    );
}

/// Kills the daemon and starts it again. Returns how long it takes until it has answered with
/// `volumes` volumes, all of them without their contents. Time in which the daemon could run and
/// waits for a processor does not count: it depends on the other processes of the machine alone.
fn restored(daemon: &mut Daemon, volumes: usize) -> Duration {
    let socket = Endpoint::Unix(daemon.folder.join("socket"));
    let client = Client::new(socket).expect("a client");
    let list = |_: &Daemon| client.get::<Vec<VolumeView>>("/v1/volumes").ok();
    let (listed, took) = daemon.kill_and_restart_until(list);
    assert_eq!(listed.len(), volumes);
    let is_lost = |volume: &VolumeView| volume.contents == Contents::Lost;
    assert!(listed.iter().all(is_lost));
    took.saturating_sub(waited_for_processor(daemon.child.id()))
}

/// For how long the first thread of a process, which restores the definitions, was kept from
/// running by others. Zero if the kernel does not count that.
fn waited_for_processor(pid: u32) -> Duration {
    let text = fs::read_to_string(format!("/proc/{pid}/schedstat")).unwrap_or_default();
    let nanoseconds = text.split(' ').nth(1).and_then(|field| field.parse().ok());
    Duration::from_nanos(nanoseconds.unwrap_or(0))
}
