//! Contents that a restart lost.

use crate::daemon::Daemon;
use crate::iscsi::{CHECK_CONDITION, GOOD, Initiator, TARGET, portal_of};

const NQN: &str = "nqn.2025-01.io.ramport:lost";
/// ASC and ASCQ: power on or reset; manual intervention required; not ready to ready change.
const POWER_ON: (u8, u8) = (0x29, 0x00);
const INTERVENTION: (u8, u8) = (0x04, 0x03);
const BECAME_READY: (u8, u8) = (0x28, 0x00);

/// A daemon with volumes over both protocols, killed and started again.
fn restarted(name: &str, policy: &str) -> (Daemon, String) {
    let more = ["--lost-contents", policy];
    let mut daemon = Daemon::start_with(name, &more);
    daemon.ok(&["portal", "create", "iscsi://127.0.0.1:0"]);
    for volume in ["rd0", "rd1"] {
        daemon.ok(&["volume", "create", volume, "--size", "4M"]);
    }
    daemon.ok(&["target", "create", TARGET, "--volume", "rd0"]);
    daemon.ok(&["target", "create", NQN, "--volume", "rd0"]);
    daemon.kill_and_restart();
    let nvme = daemon.json(&["portal", "ls"]);
    let urls = nvme.as_array().expect("a list").iter();
    let mut urls = urls.filter_map(|portal| portal["url"].as_str());
    let url = urls.find(|url| url.starts_with("nvme+tcp"));
    let url = format!("{}/{NQN}", url.expect("a portal"));
    (daemon, url)
}

fn bench(url: &str) -> (Option<i32>, String) {
    let args = [
        "bench",
        url,
        "--rw",
        "read",
        "--size",
        "64k",
        "--runtime",
        "1",
    ];
    let output = crate::daemon::ramport().args(args).output();
    let output = output.expect("the program runs");
    let told = [output.stdout, output.stderr].concat();
    (
        output.status.code(),
        String::from_utf8_lossy(&told).into_owned(),
    )
}

#[test]
fn volumes_that_lost_their_contents_are_offline_until_that_is_acknowledged() {
    let (daemon, url) = restarted("lost-offline", "offline");
    let mut host = Initiator::login(&portal_of(&daemon), "iqn.2025-01.io.ramport:a", 1);
    assert_eq!(host.test_unit_ready().sense, Some(POWER_ON));
    for answer in [host.test_unit_ready(), host.write_block()] {
        let expected = (CHECK_CONDITION, Some(INTERVENTION));
        assert_eq!((answer.status, answer.sense), expected);
    }
    let (status, told) = bench(&url);
    assert_ne!(status, Some(0));
    assert!(told.contains("namespace not ready"), "{told}");
    let volume = daemon.json(&["volume", "show", "rd0"]);
    assert_eq!(
        (&volume["state"], &volume["contents"]),
        (&"offline".into(), &"lost".into())
    );
    let listed = daemon.ok(&["volume", "ls"]);
    assert!(listed.contains("thin, offline, contents lost"), "{listed}");

    daemon.ok(&["volume", "acknowledge", "rd0"]);
    assert_eq!(host.test_unit_ready().sense, Some(BECAME_READY));
    assert_eq!(host.write_block().status, GOOD);
    assert_eq!(bench(&url).0, Some(0));
    assert_eq!(daemon.json(&["volume", "show", "rd1"])["state"], "offline");
    assert!(
        daemon
            .ok(&["volume", "acknowledge", "--all"])
            .contains("rd1")
    );
    let none = daemon.ok(&["volume", "acknowledge", "--all"]);
    assert_eq!(none, "no volume has lost its contents\n");
    assert_eq!(daemon.json(&["volume", "show", "rd1"])["state"], "online");
}

#[test]
fn volumes_that_lost_their_contents_are_served_as_zeros_if_asked_for() {
    let (daemon, url) = restarted("lost-zeros", "zeros");
    assert_eq!(bench(&url).0, Some(0));
    let volume = daemon.json(&["volume", "show", "rd0"]);
    assert_eq!(
        (&volume["state"], &volume["contents"]),
        (&"online".into(), &"lost".into())
    );
}

#[test]
fn an_erased_volume_is_online() {
    let (daemon, url) = restarted("lost-erased", "offline");
    daemon.ok(&["volume", "erase", "rd0"]);
    assert_eq!(bench(&url).0, Some(0));
}
