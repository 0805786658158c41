//! What hosts with paths to several nodes of a cluster see of them.

use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use block::testing::Folder;
use serde_json::Value;

use crate::cluster::{LIMIT, Machine, TARGET};
use crate::nvme_admin::AdminHost;

/// ANA states.
const OPTIMIZED: u8 = 1;
const NON_OPTIMIZED: u8 = 2;
/// Double word 0 of the event "Asymmetric Namespace Access Change": a notice, with its log page.
const ANA_CHANGE: u32 = 0x000C_0302;

impl Machine {
    fn portal(&self, scheme: &str) -> String {
        let portals = self.daemon.json(&["portal", "list"]);
        let urls = portals.as_array().expect("a list").iter();
        let mut urls = urls.filter_map(|portal| portal["url"].as_str());
        let found = urls.find(|url| url.starts_with(scheme));
        found.expect("a portal").to_owned()
    }

    fn admin_host(&self) -> AdminHost {
        AdminHost::connect(&self.portal("nvme+tcp://"), TARGET)
    }
}

fn await_state(host: &mut AdminHost, state: u8) {
    let begin = Instant::now();
    loop {
        let found = host.ana_state(1);
        if found == state {
            return;
        }
        assert!(begin.elapsed() < LIMIT, "{found} instead of {state}");
        thread::sleep(Duration::from_millis(20));
    }
}

/// Places of the primary, the other copy, and the node without one.
fn places(shown: &Value) -> [usize; 3] {
    let replication = &shown["replication"];
    let place = |name: &Value| match name.as_str() {
        Some("n1") => 0,
        Some("n2") => 1,
        _ => 2,
    };
    let primary = place(&replication["primary"]);
    let copies = [0, 1].map(|copy| place(&replication["copies"][copy]["node"]));
    let secondary = copies[0] + copies[1] - primary;
    [primary, secondary, 3 - primary - secondary]
}

/// All nodes are one subsystem with one namespace to a host, by controllers of different IDs.
fn assert_one_subsystem(hosts: &mut [AdminHost; 3]) {
    let identities = hosts.each_mut().map(AdminHost::identity);
    for (identity, _) in &identities {
        assert_eq!(*identity, identities[0].0);
        // Several ports, several controllers, ANA.
        assert_eq!(identity.multipath, 0b1011);
    }
    let ids = identities.map(|(_, id)| id);
    assert!(
        ids[0] != ids[1] && ids[1] != ids[2] && ids[0] != ids[2],
        "{ids:?}"
    );
    let namespaces = hosts.each_mut().map(|host| host.namespace(1));
    assert_eq!(namespaces[1], namespaces[0]);
    assert_eq!(namespaces[2], namespaces[0]);
}

#[test]
fn hosts_are_told_which_node_is_the_primary() {
    if Command::new("etcd").arg("--version").output().is_err() {
        return block::testing::skip("etcd is not installed (Debian: etcd-server)");
    }
    let folder = Folder::new();
    let mut machines = Machine::start(&folder, 3);
    Machine::make_cluster(&machines);
    let create = ["volume", "create", "v1", "--size", "16M", "--copies", "2"];
    machines[0].daemon.ok(&create);
    let [primary, secondary, other] = places(&machines[0].wait_for_copies(2));
    for machine in &machines {
        machine.wait_for_copies(2);
        machine.offer();
    }

    let mut hosts = [0, 1, 2].map(|place: usize| machines[place].admin_host());
    assert_one_subsystem(&mut hosts);
    await_state(&mut hosts[primary], OPTIMIZED);
    for place in [secondary, other] {
        await_state(&mut hosts[place], NON_OPTIMIZED);
        hosts[place].request_event();
    }

    machines[primary].kill();
    assert_eq!(hosts[secondary].event(), ANA_CHANGE);
    await_state(&mut hosts[secondary], OPTIMIZED);
    assert_eq!(hosts[other].ana_state(1), NON_OPTIMIZED);

    machines[primary].daemon.restart();
    hosts[primary] = machines[primary].admin_host();
    await_state(&mut hosts[primary], NON_OPTIMIZED);
    assert_one_subsystem(&mut hosts);
    machines[secondary].wait_for_copies(2);
    assert_eq!(hosts[secondary].ana_state(1), OPTIMIZED);
}
