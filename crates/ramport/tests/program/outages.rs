//! Another machine's daemon, or a way to it, is gone for a while under I/O.

use std::time::{Duration, Instant};

use block::{Blocks, Extent, Lba};
use initiator::{CommandError, Operation, Queue, Request, Slot};

use crate::daemon::Daemon;
use crate::disk;

const TARGET: &str = "nqn.2026-11.com.example:origin";
const UP: &str = "ramport_volume_path_up";
const CONNECTS: &str = "ramport_volume_path_connects_total";
const LOSSES: &str = "ramport_volume_path_losses_total";

/// The daemon of another machine, which offers a volume in a file of 8 MiB, and its URL.
fn origin(name: &str) -> (Daemon, String) {
    let origin = Daemon::start(name);
    let file = origin.folder.join("disk").display().to_string();
    origin.ok(&["volume", "create", "disk", "--file", &file, "--size", "8M"]);
    origin.ok(&["target", "create", TARGET, "--volume", "disk"]);
    let portals = origin.json(&["portal", "list"]);
    let portal = portals[0]["url"].as_str().expect("a portal");
    let url = format!("{portal}/{TARGET}?ns=1");
    (origin, url)
}

/// A daemon whose volume `r0` is the disk behind these URLs.
fn user(name: &str, urls: &[&str], more: &[&str]) -> Daemon {
    let user = Daemon::start(name);
    let urls = urls.iter().flat_map(|url| ["--remote", url]);
    let mut create = vec!["volume", "create", "r0"];
    create.extend(urls);
    user.ok(&[&create[..], more].concat());
    user
}

fn offer(user: &Daemon, volume: &str) {
    user.ok(&["target", "create", disk::TARGET, "--volume", volume]);
}

#[test]
fn io_goes_on_after_another_machine_was_killed_and_its_path_is_counted() {
    let (mut origin, url) = origin("outage-origin");
    let user = user("outage-user", &[&url], &[]);
    offer(&user, "r0");
    assert_eq!(user.metric(UP, &url), 1);
    assert_eq!(user.metric(LOSSES, &url), 0);
    disk::under_io(&user, |written| {
        origin.kill();
        user.wait_for_metric(UP, &url, 0);
        origin.restart();
        user.wait_for_metric(UP, &url, 1);
        written.goes_on();
    });
    assert_eq!(user.metric(LOSSES, &url), 1);
    assert_eq!(user.metric(CONNECTS, &url), 2);
}

#[test]
fn io_goes_on_by_another_path_and_each_path_is_counted() {
    let (origin, first) = origin("paths-origin");
    origin.ok(&["portal", "create", "nvme+tcp://127.0.0.1:0"]);
    let listed = origin.json(&["portal", "list"]);
    let listed = listed.as_array().expect("a list").iter();
    let urls = listed.map(|portal| portal["url"].as_str().expect("text"));
    let mut portals: Vec<_> = urls.collect();
    portals.sort_by_key(|portal| !first.starts_with(&format!("{portal}/")));
    let second = format!("{}/{TARGET}?ns=1", portals[1]);
    let user = user("paths-user", &[&first, &second], &[]);
    offer(&user, "r0");
    disk::under_io(&user, |written| {
        for (portal, url, other) in [(portals[0], &first, &second), (portals[1], &second, &first)] {
            origin.ok(&["portal", "remove", portal, "--force"]);
            user.wait_for_metric(UP, url, 0);
            assert_eq!(user.metric(UP, other), 1);
            written.goes_on();
            origin.ok(&["portal", "create", portal]);
            user.wait_for_metric(UP, url, 1);
        }
    });
    for url in [&first, &second] {
        assert_eq!(user.metric(LOSSES, url), 1);
        assert_eq!(user.metric(CONNECTS, url), 2);
    }
}

#[test]
fn io_fails_as_not_ready_when_its_time_is_over_and_works_again_afterwards() {
    let (mut origin, url) = origin("timeout-origin");
    let user = user("timeout-user", &[&url], &["--io-timeout", "1s"]);
    offer(&user, "r0");
    let (_device, mut queue) = disk::host(&user);
    assert_eq!(read(&mut queue), Ok(()));
    origin.kill();
    let began = Instant::now();
    let error = read(&mut queue).expect_err("nobody answers").to_string();
    assert!(began.elapsed() >= Duration::from_secs(1));
    assert!(error.to_lowercase().contains("not ready"), "{error}");
    let shown = user.json(&["volume", "show", "r0"]);
    assert_eq!(shown["paths"][0]["is_up"], false);
    let problem = shown["paths"][0]["problem"].as_str().expect("a reason");
    assert!(problem.contains("refused"), "{problem}");
    origin.restart();
    user.wait_for_metric(UP, &url, 1);
    assert_eq!(read(&mut queue), Ok(()));
}

fn read(queue: &mut Queue) -> Result<(), CommandError> {
    let request = Request {
        slot: Slot(0),
        operation: Operation::Read,
        extent: Extent::new(Lba(0), Blocks(8)),
    };
    queue.submit(request).expect("the slot is free");
    let mut done = Vec::new();
    while done.is_empty() {
        let waited = queue.wait(disk::SLEEP, disk::PATIENCE, &mut done);
        assert!(waited.expect("the queue lives") > 0, "no outcome");
    }
    done[0].result
}

#[test]
fn a_mirror_goes_on_while_the_machine_of_a_member_is_killed_and_copies_what_that_missed() {
    let (mut origin, url) = origin("mirror-origin");
    let user = user("mirror-user", &[&url], &["--io-timeout", "4s"]);
    user.ok(&["volume", "create", "near", "--size", "8M"]);
    user.ok(&["volume", "create", "m0", "--mirror", "near,r0"]);
    let in_sync = "ramport_volume_member_in_sync";
    user.wait_for_metric(in_sync, "r0", 1);
    offer(&user, "m0");
    disk::under_io(&user, |written| {
        origin.kill();
        user.wait_for_metric(in_sync, "r0", 0);
        written.goes_on();
        assert!(user.metric("ramport_volume_member_missing_bytes", "r0") > 0);
        origin.restart();
        // It could not be reached, so it returns by itself.
        user.wait_for_metric(in_sync, "r0", 1);
        // The far member alone has what is read at the end.
        user.ok(&["volume", "mirror", "m0", "--fail", "near"]);
        written.goes_on();
    });
    user.ok(&["volume", "mirror", "m0", "--return", "near"]);
    user.wait_for_metric(in_sync, "near", 1);
    let found = user.json(&["volume", "scrub", "m0"]);
    assert_eq!(found["compared_bytes"], 8 << 20);
    assert_eq!(found["differing_bytes"], 0, "{found}");
}
