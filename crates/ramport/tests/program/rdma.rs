//! Portals over RDMA, by the command line.

use std::net::Ipv4Addr;

use serde_json::Value;

use crate::daemon::Daemon;

/// An address of loopback of this test's own: RoCEv2 has one UDP port per address.
fn address() -> Ipv4Addr {
    let [_, _, a, b] = std::process::id().to_be_bytes();
    Ipv4Addr::new(127, 35, a, b.max(1))
}

fn portals(daemon: &Daemon) -> Vec<(String, String)> {
    let portals = daemon.json(&["portal", "ls"]);
    let portals = portals.as_array().expect("a list");
    let text = |portal: &Value, key: &str| portal[key].as_str().expect("a text").to_owned();
    portals
        .iter()
        .map(|portal| (text(portal, "url"), text(portal, "state")))
        .filter(|(url, _)| !url.starts_with("nvme"))
        .collect()
}

#[test]
fn one_command_opens_a_portal_over_rdma_beside_one_over_tcp_and_closes_it() {
    let mut daemon = Daemon::start("rdma");
    let tcp = format!("iscsi://{}:24900,2", address());
    let rdma = format!("iser://{}:24900,2", address());
    let open = |url: &str| (url.to_owned(), "open".to_owned());
    let set = |daemon: &Daemon, to: &str| daemon.ok(&["portal", "set", &tcp, "--rdma", to]);

    let early = daemon.mistake(&["portal", "set", &tcp, "--rdma", "on"]);
    assert!(early.contains("there is no portal"), "{early}");
    daemon.ok(&["portal", "create", &tcp]);
    for _ in 0..2 {
        set(&daemon, "on");
        assert_eq!(portals(&daemon), [open(&tcp), open(&rdma)]);
    }
    daemon.kill_and_restart();
    assert_eq!(portals(&daemon), [open(&tcp), open(&rdma)]);
    for _ in 0..2 {
        set(&daemon, "off");
        assert_eq!(portals(&daemon), [open(&tcp)]);
    }
    let fault = daemon.mistake(&["portal", "set", &rdma, "--rdma", "on"]);
    assert!(fault.contains("can't be switched to RDMA"), "{fault}");
}
