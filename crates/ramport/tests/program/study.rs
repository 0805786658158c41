//! `ramport study brp`, with measurements that are too short for figures.

use serde_json::Value;

use crate::daemon::Daemon;
use crate::rdma::address;

fn names(list: &Value, key: &str) -> Vec<String> {
    let list = list.as_array().expect("a list");
    let names = list.iter().map(|it| it[key].as_str().expect("a text"));
    names.map(str::to_owned).collect()
}

#[test]
fn a_study_of_brp_reports_and_leaves_nothing_behind() {
    let at = address(48).to_string();
    let daemon = Daemon::start("study-brp");
    let folder = daemon.folder.join("report");
    std::fs::create_dir(&folder).expect("created");
    let portals_before = names(&daemon.json(&["portal", "ls"]), "url");
    let report = daemon.json(&[
        "study",
        "brp",
        "--target",
        &at,
        "--runtime",
        "20ms",
        "--size",
        "16M",
        "--series",
        "latency,load",
        "--output",
        folder.to_str().expect("UTF-8"),
    ]);
    let titles = names(&report["sections"], "title");
    for network in ["software RDMA", "TCP"] {
        for device in ["RAM", "emulated device"] {
            let latency = format!("Latency at depth 1: {network}, {device} (us)");
            let at = titles.iter().position(|title| *title == latency);
            let section = &report["sections"][at.expect(&latency)];
            for row in section["rows"].as_array().expect("rows") {
                let figures = &row.as_array().expect("cells")[1..];
                assert_eq!(figures.len(), 5, "{latency}: {row}");
                assert!(
                    figures.iter().all(|it| it.as_f64() > Some(0.0)),
                    "{latency}: {row}"
                );
            }
            let load = format!("Random writes over rising load: {network}, {device} (IOPS)");
            assert!(titles.contains(&load), "{titles:?}");
        }
    }
    let remarks = report["remarks"].to_string();
    assert!(remarks.contains("against SRP"), "{remarks}");
    assert!(!remarks.contains("was not measured: no"), "{remarks}");
    for ending in ["md", "svg", "json"] {
        let path = folder.join(format!("study-brp.{ending}"));
        let text = std::fs::read_to_string(path).expect("written");
        assert!(text.contains("BRP-3"), "{text}");
    }
    assert_eq!(
        names(&daemon.json(&["portal", "ls"]), "url"),
        portals_before
    );
    for what in ["volume", "target"] {
        let left = daemon.json(&[what, "ls"]);
        assert_eq!(left.as_array().map(Vec::len), Some(0), "{left}");
    }
}
